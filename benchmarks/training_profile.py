"""Profile a training step on a CPU by kind of operation, with TensorFlow's profiler.

The step is that of `benchmarks/training.py`: random examples, 32 x 128, both heads, dropout, determinism, clipping,
BERT's optimizer. Operations run in parallel threads, so times are summed over threads and printed as shares. Time of a
nested operation counts for the inner operation only.

    PYTHONPATH=. python benchmarks/training_profile.py small
    PYTHONPATH=. python benchmarks/training_profile.py small --precision bfloat16
"""

import argparse
import collections
import os
import tempfile
from pathlib import Path

from benchmarks.training import BATCH_SIZE, LENGTH, our_step

# Purpose by TensorFlow's operation names; the first match counts.
GROUPS = {
    "matrix products": ("MatMul", "Einsum", "Conv"),
    "dropout": ("Random", "Bernoulli", "Philox"),
    "softmax": ("Softmax",),
    "GELU": ("Gelu", "Erf", "Tanh", "Sigmoid"),
    "optimizer": ("CpuExecutable", "L2Loss"),
    "embedding rows": ("Gather", "Scatter", "UnsortedSegment"),
    "sums": ("Sum", "Mean", "BiasAddGrad", "AddN"),
    "copies and shapes": ("Transpose", "Reshape", "Concat", "Slice", "Pad", "Pack", "Cast", "Tile", "Select", "Copy"),
}


def self_seconds(trace: Path) -> dict[str, float]:
    """Return seconds by kind of operation over all threads, without nested operations."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(trace.read_bytes())
    seconds: dict[str, float] = collections.Counter()
    for plane in space.planes:
        if plane.name != "/host:CPU":
            continue
        for line in plane.lines:
            open_events: list[tuple[int, str]] = []  # end, kind
            for event in sorted(line.events, key=lambda event: (event.offset_ps, -event.duration_ps)):
                kind = kind_of(plane.event_metadata[event.metadata_id].name)
                if kind is None:
                    continue
                while open_events and open_events[-1][0] <= event.offset_ps:
                    open_events.pop()
                if open_events:
                    seconds[open_events[-1][1]] -= event.duration_ps / 1e12
                seconds[kind] += event.duration_ps / 1e12
                open_events.append((event.offset_ps + event.duration_ps, kind))
    return seconds


def kind_of(name: str) -> str | None:
    """Return the kind of operation of an event named "kind" or "name:kind"; None for other events.

    The programs that XLA compiled, here those of the optimizer only, are of the kind "CpuExecutable".
    """
    if name.startswith("CpuExecutable::"):
        return "CpuExecutable"
    _, colon, kind = name.rpartition(":")
    return kind if colon and kind.isidentifier() and "::" not in name else None


def group_of(kind: str) -> str:
    """Return the purpose of a kind of operation."""
    return next((group for group, parts in GROUPS.items() if any(part in kind for part in parts)), "arithmetic, rest")


def main() -> None:
    """Profile the model named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", help="preset: mini, small, base")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--operations", type=int, default=4, help="maximum number of operations shown per group")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    step = our_step(options.size, options.threads, options.precision)
    import tensorflow as tf

    for _ in range(3):
        step()
    with tempfile.TemporaryDirectory() as directory:
        with tf.profiler.experimental.Profile(directory, tf.profiler.experimental.ProfilerOptions(host_tracer_level=3)):
            for _ in range(options.steps):
                step()
        (trace,) = Path(directory).rglob("*.xplane.pb")
        kinds = self_seconds(trace)
    total = sum(kinds.values())
    groups: dict[str, float] = collections.Counter()
    for kind, seconds in kinds.items():
        groups[group_of(kind)] += seconds
    print(
        f"BERT {options.size}, {options.precision}, {BATCH_SIZE} x {LENGTH}: {total / options.steps:.3f} s a step, "
        f"added up over {options.threads} threads"
    )
    for group, seconds in sorted(groups.items(), key=lambda pair: -pair[1]):
        inside = [(kind, value) for kind, value in kinds.items() if group_of(kind) == group]
        most = sorted(inside, key=lambda pair: -pair[1])[: options.operations]
        shown = ", ".join(f"{kind} {value / total:.1%}" for kind, value in most)
        print(f"{group:<20}{seconds / total:>7.1%}   {shown}")


if __name__ == "__main__":
    main()

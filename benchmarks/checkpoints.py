"""Measure reading and writing a checkpoint of BERT base (440 MB), compared with TensorFlow.

    PYTHONPATH=. python benchmarks/checkpoints.py

Weights are random. The two libraries take turns; both read from the page cache, write to a temporary directory without
flushing to the disk, and verify or compute checksums. Times are medians of the rounds, in wall-clock seconds and in CPU
seconds of all threads, which other processes barely change. A ratio is TensorFlow's time divided by beambert's in the
same round, with its range.
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from beambert.trainers.backends.tensorflow.startup import start_tensorflow

start_tensorflow()

import numpy as np  # noqa: E402  (TensorFlow has to be started first)
import tensorflow as tf  # noqa: E402

from beambert.bert_model.checkpoints import tensor_bundle  # noqa: E402
from beambert.bert_model.config import BertConfig  # noqa: E402
from benchmarks.random_rows import random_weights  # noqa: E402

ROUNDS = 9


def read(prefix: Path) -> None:
    """Read all tensors one after the other, as a restore does."""
    for stored in tensor_bundle.read(prefix).values():
        stored.read()


def read_with_tensorflow(prefix: Path) -> None:
    """Read all tensors one after the other."""
    reader = tf.train.load_checkpoint(str(prefix))
    for name in reader.get_variable_to_shape_map():
        reader.get_tensor(name)


def seconds(action: Callable[[], None]) -> tuple[float, float]:
    """Return the wall-clock and the CPU seconds of an action."""
    start, cpu_start = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - start, time.process_time() - cpu_start


def main() -> None:
    """Print the times of both libraries and their ratios."""
    weights = dict(sorted(random_weights(BertConfig.preset("base", 30522)).items()))
    variables = {name: tf.Variable(value) for name, value in weights.items()}
    directory = Path(tempfile.mkdtemp())

    def write() -> None:
        tensor_bundle.write(directory / "ours", ((name, variable.numpy()) for name, variable in variables.items()))

    def write_with_tensorflow() -> None:
        tf.raw_ops.SaveV2(
            prefix=str(directory / "theirs"),
            tensor_names=list(variables),
            shape_and_slices=[""] * len(variables),
            tensors=[variable.read_value() for variable in variables.values()],
        )

    actions = {
        "write": (write, write_with_tensorflow),
        "read": (lambda: read(directory / "ours"), lambda: read_with_tensorflow(directory / "theirs")),
    }
    try:
        size = sum(value.nbytes for value in weights.values())
        print(f"{len(weights)} tensors, {size / 1e6:.0f} MB; medians of {ROUNDS} rounds")
        for name, (ours, theirs) in actions.items():
            seconds(ours), seconds(theirs)
            times = np.array([(seconds(ours), seconds(theirs)) for _ in range(ROUNDS)])
            for column, clock in enumerate(("wall", "CPU")):
                pairs = times[:, :, column]
                ours_median, theirs_median = np.median(pairs, axis=0)
                ratios = pairs[:, 1] / pairs[:, 0]
                print(
                    f"{name:5} {clock:4}  beambert {ours_median:.2f} s  TensorFlow {theirs_median:.2f} s  "
                    f"ratio {np.median(ratios):.1f} ({ratios.min():.1f} to {ratios.max():.1f})",
                    flush=True,
                )
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()

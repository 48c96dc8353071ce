"""Measure rows per second of fine-tuning: one run with all threads, and several runs at once with one thread each.

    PYTHONPATH=. python benchmarks/runs_at_once.py uncased_L-12_H-768_A-12.zip sst2=../shared/data/glue/SST-2

Each run trains on the first rows of the training set. The two kinds take turns.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def rows_per_second(flags: list[str], output: Path, runs: int, threads: int) -> float:
    """Fine-tune in several processes at once, and return the sum of their rows per second.

    Args:
        flags: flags of `beambert finetune` without --output and --seed.
        output: directory of the runs.
        runs: number of processes.
        threads: TensorFlow threads of each process, for one operation and for operations at once.
    """
    environment = {
        **os.environ,
        "TF_NUM_INTRAOP_THREADS": str(threads),
        "TF_NUM_INTEROP_THREADS": str(threads),
    }
    command = [sys.executable, "-m", "beambert", "finetune", *flags, "--do_train"]
    outputs = [output / f"seed-{seed}" for seed in range(1, runs + 1)]
    processes = [
        subprocess.Popen(
            [*command, "--seed", str(seed), "--output", str(path)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for seed, path in enumerate(outputs, 1)
    ]
    # All processes end before an error is reported.
    codes = [process.wait() for process in processes]
    if any(codes):
        sys.exit(f"fine-tuning failed: beambert finetune {' '.join(flags)}")
    return sum(map(_rows_per_second, outputs))


def _rows_per_second(output: Path) -> float:
    """Return the rows per second of a run over all steps but the first one, which is compiled."""
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    # A line has the rate since the line before, and all lines have the same number of steps.
    return statistics.harmonic_mean([line["sequences_per_second"] for line in lines if "sequences_per_second" in line])


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="pretrained model")
    parser.add_argument("task", metavar="TASK=DIR", help="task and the directory of its files")
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16"))
    parser.add_argument("--rows", default="2560", help="training rows (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="rounds (default: %(default)s)")
    parser.add_argument("--runs", type=int, nargs="+", default=[os.cpu_count() or 1], help="numbers of runs at once")
    options = parser.parse_args()
    task, directory = options.task.split("=", 1)
    flags = [task, "--data_dir", directory, "--init_checkpoint", options.model, "--precision", options.precision]
    flags += ["--num_train_epochs", "1", "--max_train_samples", options.rows]
    # Without duplicates: on one core the two kinds are the same.
    kinds = list(dict.fromkeys([(1, os.cpu_count() or 1), *((runs, 1) for runs in options.runs)]))
    rates: dict[tuple[int, int], list[float]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as temporary:
        for repetition in range(options.repetitions):
            for runs, threads in kinds:
                output = Path(temporary) / f"{repetition}-{runs}-{threads}"
                rates[runs, threads].append(rows_per_second(flags, output, runs, threads))
    print("| runs at once | threads of each | rows/s in sum | ratio |\n|---|---|---|---|")
    for (runs, threads), found in rates.items():
        ratios = statistics.median(rate / one for rate, one in zip(found, rates[kinds[0]], strict=True))
        values = ", ".join(f"{rate:.1f}" for rate in found)
        print(f"| {runs} | {threads} | {values} | {ratios:.2f} |")


if __name__ == "__main__":
    main()

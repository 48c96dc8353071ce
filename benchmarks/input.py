"""Measure the trainer's input pipeline in examples per second, from shards to parsed batches, against plain tf.data.

The baseline uses TensorFlow alone: TFRecordDataset, batch, parse_example, prefetch; no shuffling, no random access, no
resuming. It reads one file after the other. Both read the same complete shards from the page cache; only beambert
draws masks. Seconds are CPU seconds of all threads, which other processes barely change, and wall-clock seconds.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from trainers.backends.tensorflow.startup import start_tensorflow

start_tensorflow()

import tensorflow as tf  # noqa: E402  (TensorFlow has to be started first)

from pipelines.dataset import Dataset, load  # noqa: E402
from trainers.data.parsing import parser  # noqa: E402
from trainers.data.pipeline import train_batches  # noqa: E402
from trainers.optimization.schedule import Stage  # noqa: E402

BATCH_SIZES = (32, 256)
KINDS = {
    "plain": [],
    "gzip": ["--compression", "gzip"],
    "ragged": ["--ragged"],
    "dynamic masks": ["--masking", "dynamic"],
}


def build(data: Path, output: Path, flags: list[str]) -> None:
    """Build shards of 128 positions from 10 MB of Wikipedia."""
    source = data / "wiki-extracted/enwiki-2015-00.bz2"
    command = [sys.executable, "beambert.py", "build", "--input", str(source), "--output", str(output), *flags]
    subprocess.run(
        [*command, "--vocab_size", "8000", "--dupe_factor", "1", "--validation_fraction", "0.01"],
        check=True,
        capture_output=True,
    )


def plain(directory: Path, dataset: Dataset, batch_size: int, updates: int) -> tf.data.Dataset:
    """Read the records with TensorFlow alone."""
    paths = [str(directory / shard.name) for shard in dataset.shards_of("train")]
    records = tf.data.TFRecordDataset(paths, "GZIP" if dataset.compression == "gzip" else "").repeat()
    parse = parser(dataset, dataset.max_seq_length, dataset.max_predictions_per_seq)
    batches = records.batch(batch_size, drop_remainder=True).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return batches.take(updates).prefetch(tf.data.AUTOTUNE)


def ours(directory: Path, dataset: Dataset, batch_size: int, updates: int) -> tf.data.Dataset:
    """Read the records as the trainer does."""
    return train_batches(directory, dataset, [Stage(0, batch_size, 0, updates, 0)], 0, seed=1)


def seconds(
    make: Callable[[Path, Dataset, int, int], tf.data.Dataset], directory: Path, dataset: Dataset, batch_size: int
) -> tuple[float, float]:
    """Return CPU and wall-clock microseconds per example, the minimum of two epochs after a warm-up epoch."""
    updates = dataset.num_examples("train") // batch_size
    times = []
    for _ in range(3):
        batches = make(directory, dataset, batch_size, updates)
        cpu, clock = time.process_time(), time.perf_counter()
        for _batch in batches:
            pass
        times.append((time.process_time() - cpu, time.perf_counter() - clock))
    examples = updates * batch_size
    return tuple(min(column) / examples * 1e6 for column in zip(*times[1:], strict=True))  # type: ignore[return-value]


def main() -> None:
    """Measure every kind of dataset, built from the data folder."""
    data = Path(sys.argv[1])
    print(f"{os.cpu_count()} cores; rows of 128 positions, 20 predictions")
    print(f"{'':<16}{'batch':>6}{'plain tf.data':>30}{'beambert':>30}")
    print(f"{'':<22}{'examples/CPU s':>18}{'examples/s':>12}{'examples/CPU s':>18}{'examples/s':>12}{'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for kind, flags in KINDS.items():
            directory = Path(folder) / kind.replace(" ", "-")
            build(data, directory, flags)
            dataset = load(directory)
            for batch_size in BATCH_SIZES:
                base_cpu, base_clock = seconds(plain, directory, dataset, batch_size)
                cpu, clock = seconds(ours, directory, dataset, batch_size)
                figures = f"{1e6 / base_cpu:18,.0f}{1e6 / base_clock:12,.0f}{1e6 / cpu:18,.0f}{1e6 / clock:12,.0f}"
                print(f"{kind:<16}{batch_size:>6}{figures}{base_cpu / cpu:7.2f}", flush=True)


if __name__ == "__main__":
    main()

"""Measure the trainer's input pipeline in examples per second, from shards to parsed batches, against plain tf.data.

The baseline uses TensorFlow alone: TFRecordDataset, batch, parse_example, prefetch; no shuffling, no random access, no
resuming. It reads one file after the other. beambert is measured as arrays, which every backend reads, and as the
dataset that the TensorFlow backend makes of them. All read the same complete shards from the page cache; only beambert
draws masks. Seconds are CPU seconds of all threads, which other processes barely change, and wall-clock seconds. The
ratios are CPU seconds of the baseline divided by those of beambert.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from beambert.trainers.backends.tensorflow.startup import start_tensorflow

start_tensorflow()

import tensorflow as tf  # noqa: E402  (TensorFlow has to be started first)

from beambert.pipelines.dataset import Dataset, load  # noqa: E402
from beambert.trainers.backends.tensorflow.input import dataset_of  # noqa: E402
from beambert.trainers.data.parsing import feature_lengths  # noqa: E402
from beambert.trainers.data.pipeline import Batches, train_batches  # noqa: E402
from beambert.trainers.optimization.schedule import Stage  # noqa: E402

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
    command = [sys.executable, "-m", "beambert", "build", "--input", str(source), "--output", str(output), *flags]
    subprocess.run(
        [*command, "--vocab_size", "8000", "--dupe_factor", "1", "--validation_fraction", "0.01"],
        check=True,
        capture_output=True,
    )


def plain(directory: Path, dataset: Dataset, batch_size: int, updates: int) -> tf.data.Dataset:
    """Read the records with TensorFlow alone."""
    paths = [str(directory / shard.name) for shard in dataset.shards_of("train")]
    records = tf.data.TFRecordDataset(paths, "GZIP" if dataset.compression == "gzip" else "").repeat()
    lengths = feature_lengths(dataset.instances_per_row, dataset.max_seq_length, dataset.max_predictions_per_seq)
    dtypes = {name: tf.float32 if name.endswith("_weights") else tf.int64 for name in dataset.features}
    spec = {
        in_file: tf.io.RaggedFeature(dtypes[name])
        if dataset.ragged
        else tf.io.FixedLenFeature([lengths[name]], dtypes[name])
        for name, in_file in dataset.features.items()
    }

    def parse(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(serialized, spec)
        features = {}
        for name, in_file in dataset.features.items():
            values = parsed[in_file].to_tensor(shape=[None, lengths[name]]) if dataset.ragged else parsed[in_file]
            features[name] = tf.cast(values, tf.int32) if dtypes[name] == tf.int64 else values
        return features

    batches = records.batch(batch_size, drop_remainder=True).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return batches.take(updates).prefetch(tf.data.AUTOTUNE)


def arrays(directory: Path, dataset: Dataset, batch_size: int, updates: int) -> Batches:
    """Read the records as the trainer does."""
    return train_batches(directory, dataset, [Stage(0, batch_size, 0, updates, 0)], 0, seed=1)


def tensors(directory: Path, dataset: Dataset, batch_size: int, updates: int) -> tf.data.Dataset:
    """Read the records as the trainer does with TensorFlow."""
    return dataset_of(arrays(directory, dataset, batch_size, updates))


def seconds(
    make: Callable[[Path, Dataset, int, int], Iterable], directory: Path, dataset: Dataset, batch_size: int
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
    print(f"{'':<22}{'plain tf.data':>30}{'beambert, arrays':>37}{'beambert, tensors':>37}")
    figures = f"{'examples/CPU s':>18}{'examples/s':>12}"
    print(f"{'':<16}{'batch':>6}{figures}{figures}{'ratio':>7}{figures}{'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for kind, flags in KINDS.items():
            directory = Path(folder) / kind.replace(" ", "-")
            build(data, directory, flags)
            dataset = load(directory)
            for batch_size in BATCH_SIZES:
                base, of_arrays, of_tensors = (
                    seconds(make, directory, dataset, batch_size) for make in (plain, arrays, tensors)
                )
                line = f"{kind:<16}{batch_size:>6}{1e6 / base[0]:18,.0f}{1e6 / base[1]:12,.0f}"
                for cpu, clock in (of_arrays, of_tensors):
                    line += f"{1e6 / cpu:18,.0f}{1e6 / clock:12,.0f}{base[0] / cpu:7.2f}"
                print(line, flush=True)


if __name__ == "__main__":
    main()

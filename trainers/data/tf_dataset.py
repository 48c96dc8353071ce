"""The examples of a dataset directory as a `tf.data.Dataset`, read by the trainer's own pipeline.

Importing this file does not import TensorFlow; `as_tf_dataset` does.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from beambert.pipelines import dataset as manifest
from beambert.pipelines.dataset import Shard
from beambert.pipelines.errors import DatasetError
from beambert.trainers.data.example_order import Block, blocks_in_order, length_of_step, train_blocks
from beambert.trainers.data.pipeline import SplitReader, interleaved_batches
from beambert.trainers.data.shard_reader import CorruptRecordPolicy

if TYPE_CHECKING:
    import tensorflow as tf

_MAX_SEED = 2**31
# Examples that are read and parsed together where single examples are returned.
_EXAMPLES_AT_ONCE = 64


class _Batch(NamedTuple):
    """Consecutive examples of one sequence length.

    Attributes:
        length_index: index of the sequence length, from the shortest.
        first: position of the first example.
        size: number of examples.
    """

    length_index: int
    first: int
    size: int


def as_tf_dataset(
    data_dir: str | Path,
    split: str = "train",
    *,
    batch_size: int | None = None,
    shuffle: bool = False,
    seed: int = 0,
    epochs: int | None = 1,
    drop_remainder: bool = False,
    pad_rows: bool = False,
    num_processes: int = 1,
    process_id: int = 0,
    on_corrupt_record: str = "error",
) -> "tf.data.Dataset":
    """Return the examples of a directory of `beambert build` or `beambert pretraining-data`.

    The order is deterministic, and every iteration over the dataset starts at its beginning. Epoch e reads copy e
    modulo the number of copies (`--dupe_factor`), as training does. With `shuffle`, batches and their order are those
    of `beambert pretrain` with the same seed and batch size. Otherwise the examples are in the order of the manifest.

    An element is a dict of dense tensors by feature name, with B examples, or with one example and no dimension B:

    - input_ids, input_mask, segment_ids: int32 [B, L], L tokens; also sequence_ids if rows are packed
    - masked_lm_positions, masked_lm_ids: int32 [B, P], P predictions; masked_lm_weights: float32 [B, P]
    - next_sentence_labels: int32 [B, K], K instances per row; also next_sentence_positions, int32 [B, K], and
      next_sentence_weights, float32 [B, K], if rows are packed

    Features that the build did not write are missing. Names are those of google-research/bert, for all
    `--feature_names`. Records without padding (`--ragged`) are padded. Masks of a dataset without masks (`--masking
    dynamic`) depend on seed and position in the train split, and on the position in the validation split. A dataset
    with several sequence lengths (`--length_bins`) has batches of one length each; L and P are None in its
    element_spec.

    Records are read and parsed outside of TensorFlow's graph, so that tf.data service cannot distribute the dataset.

    Args:
        data_dir: local directory with dataset.json and TFRecord shards.
        split: "train", or "validation", of which copy 0 is read.
        batch_size: number of examples of a batch, over all processes; None for single examples.
        shuffle: whether to shuffle the train split.
        seed: seed of the shuffle and of dynamic masks, from 0 to 2**31 - 1.
        epochs: number of epochs of the train split; None repeats indefinitely.
        drop_remainder: whether to omit the last batch of each sequence length if it is incomplete.
        pad_rows: whether to pad all sequences to the longest length, so that all batches have one shape.
        num_processes: number of processes that share every batch evenly. Several processes require batch_size and
            drop_remainder, so that all have the same number of batches. Every process reads all shards.
        process_id: index of this process, from 0.
        on_corrupt_record: "error", or "skip" to replace a corrupt record by another record of its shard.

    Returns:
        The dataset, with known cardinality. Iteration raises a `tf.errors.OpError` that contains the message at a
        corrupt record or an invalid example.

    Raises:
        DatasetError: data_dir is not a dataset, its shards are not TFRecord, the split has no examples, or a shard is
            missing or truncated.
        ValueError: an argument is invalid.
        VocabularyError: dynamic masks need vocab.txt, which is missing or invalid.
    """
    _check_split(split, shuffle, seed, epochs, on_corrupt_record)
    _check_batches(batch_size, drop_remainder, num_processes, process_id)
    import tensorflow as tf

    reader = _Reader(Path(data_dir), split, shuffle, seed, epochs, pad_rows, on_corrupt_record == "skip")
    global_size = batch_size or _EXAMPLES_AT_ONCE
    part = global_size // num_processes

    def parts() -> Iterator[_Batch]:
        for batch in reader.schedule(global_size):
            if batch.size == global_size:
                yield batch._replace(first=batch.first + process_id * part, size=part)
            elif not drop_remainder:
                yield batch

    signature = {
        name: tf.TensorSpec((part if drop_remainder else None, *shape[1:]), dtype)
        for name, (shape, dtype) in reader.shapes.items()
    }
    dataset = tf.data.Dataset.from_generator(lambda: reader.read(parts()), output_signature=signature)
    if batch_size is None:
        dataset = dataset.unbatch()
    cardinality = tf.data.INFINITE_CARDINALITY
    if reader.totals is not None:
        # ceil, or floor without remainder
        cardinality = sum(
            total if batch_size is None else total // batch_size if drop_remainder else -(-total // batch_size)
            for total in reader.totals
        )
    return dataset.apply(tf.data.experimental.assert_cardinality(cardinality)).prefetch(tf.data.AUTOTUNE)


class _Reader:
    """The examples of a split: their order, and reading them.

    Args: as for `as_tf_dataset`; skip: whether to skip corrupt records.

    Attributes:
        totals: number of examples of each sequence length in all epochs; None where they repeat indefinitely.
        shapes: shape and dtype of each feature; None for the number of examples and for lengths that differ.
    """

    def __init__(
        self, directory: Path, split: str, shuffle: bool, seed: int, epochs: int | None, pad_rows: bool, skip: bool
    ) -> None:
        dataset = manifest.load(directory)
        if dataset.file_format != "tfrecord":
            raise DatasetError(
                f"{directory} contains {dataset.file_format} shards, but as_tf_dataset reads TFRecord; build the data "
                "again with --format tfrecord"
            )
        self._split = SplitReader(directory, dataset, split, seed, pad_rows)
        if not self._split.lengths:
            raise DatasetError(f"{directory} has no {split} examples; build the data from more text")
        self._is_train, self._skip, self._shuffle = split == "train", skip, shuffle
        self._seed, self._epochs = seed, epochs
        self._copies = sorted({shard.copy for of_length in self._split.lengths for shard in of_length})
        self.shapes = {name: ((None, *shape[1:]), dtype) for name, (shape, dtype) in self._split.shapes(0).items()}
        self.totals = None
        if epochs is not None:
            self.totals = [_examples_of(_epochs(of_length, self._copies, epochs)) for of_length in self._split.lengths]

    def schedule(self, batch_size: int) -> Iterator[_Batch]:
        """Yield all batches; the last one of each sequence length may have fewer examples."""
        return (
            _train_batches(self._split.examples, self.totals, batch_size, self._seed)
            if self._is_train
            else _validation_batches(self._split.examples, batch_size)
        )

    def read(self, batches: Iterator[_Batch]) -> Iterator[dict[str, np.ndarray]]:
        """Yield the features of batches, whose positions increase for each sequence length.

        Raises:
            DatasetError: a record is corrupt, or not a valid example.
        """
        read = self._split.open(self._blocks, CorruptRecordPolicy(self._skip))
        for index, first, size in batches:
            yield read(index, first, size)

    def _blocks(self, length_index: int, _: int) -> Iterator[Block]:
        of_length = self._split.lengths[length_index]
        if not self._shuffle:
            return blocks_in_order(_epochs(of_length, self._copies, self._epochs))
        blocks = train_blocks(of_length, self._seed, 0)
        if self.totals is None:
            return blocks
        total = self.totals[length_index]
        return itertools.takewhile(lambda block: block.first < total, blocks)


def _epochs(shards: Sequence[Shard], copies: Sequence[int], epochs: int | None) -> Iterator[Shard]:
    """Yield the shards of each epoch in manifest order, indefinitely for None.

    Args:
        shards: shards of one sequence length.
        copies: numbers of the copies of the split, some of which may have no shard of this length.
        epochs: number of epochs.
    """
    by_copy = [[shard for shard in shards if shard.copy == copy] for copy in copies]
    numbers = itertools.count() if epochs is None else range(epochs)
    return itertools.chain.from_iterable(by_copy[epoch % len(by_copy)] for epoch in numbers)


def _examples_of(shards: Iterable[Shard]) -> int:
    return sum(shard.examples for shard in shards)


def _train_batches(
    examples: Sequence[int], totals: Sequence[int] | None, batch_size: int, seed: int
) -> Iterator[_Batch]:
    """Yield the batches of the train split, whose sequence lengths are those of the trainer's steps.

    Args:
        examples: number of examples of each sequence length in all copies.
        totals: number of examples to read of each sequence length; None for no limit.
        batch_size: number of examples of a batch.
        seed: as for `length_of_step`.
    """
    consumed = [0] * len(examples)
    for step in itertools.count():
        index = int(length_of_step(np.array([step]), examples, seed)[0])
        size = batch_size
        if totals is not None:
            remaining = [total - done for total, done in zip(totals, consumed, strict=True)]
            if not any(remaining):
                return
            # Lengths end within a few batches of each other, or earlier if a copy has no examples of a length.
            index = index if remaining[index] else next(i for i, number in enumerate(remaining) if number)
            size = min(batch_size, remaining[index])
        yield _Batch(index, consumed[index], size)
        consumed[index] += size


def _validation_batches(examples: Sequence[int], batch_size: int) -> Iterator[_Batch]:
    """Yield the batches of the validation split; those of different sequence lengths are interleaved."""
    for index, batch in interleaved_batches(examples, batch_size):
        first = batch * batch_size
        yield _Batch(index, first, min(batch_size, examples[index] - first))


def _check_split(split: str, shuffle: bool, seed: int, epochs: int | None, on_corrupt_record: str) -> None:
    if split not in manifest.SPLITS:
        raise ValueError(f"invalid split {split!r}: must be {' or '.join(manifest.SPLITS)}")
    if split == "validation" and (shuffle or epochs != 1):
        raise ValueError("the validation split is read once and in order: omit shuffle and epochs")
    if not 0 <= seed < _MAX_SEED:
        raise ValueError(f"invalid seed {seed}: must be 0 to {_MAX_SEED - 1}")
    if epochs is not None and epochs < 1:
        raise ValueError(f"invalid epochs {epochs}: must be at least 1, or None to repeat indefinitely")
    if on_corrupt_record not in ("error", "skip"):
        raise ValueError(f"invalid on_corrupt_record {on_corrupt_record!r}: must be error or skip")


def _check_batches(batch_size: int | None, drop_remainder: bool, num_processes: int, process_id: int) -> None:
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"invalid batch_size {batch_size}: must be at least 1, or None for single examples")
    if drop_remainder and batch_size is None:
        raise ValueError("drop_remainder requires a batch_size")
    if num_processes < 1 or not 0 <= process_id < num_processes:
        raise ValueError(
            f"invalid process_id {process_id} of num_processes {num_processes}: must be 0 to num_processes - 1"
        )
    if num_processes > 1 and not drop_remainder:
        raise ValueError(f"num_processes {num_processes} requires a batch_size and drop_remainder=True")
    if batch_size is not None and batch_size % num_processes:
        raise ValueError(f"invalid batch_size {batch_size}: must be a multiple of num_processes {num_processes}")

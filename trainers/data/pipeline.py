"""Build the input pipeline of pretraining: order, read, parse and mask examples into batches of numpy arrays.

This file imports neither Keras nor TensorFlow.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from beambert.pipelines.dataset import Dataset, Shard
from beambert.pipelines.errors import DatasetError
from beambert.trainers.data.dynamic_masking import DynamicMasking, mask_batch
from beambert.trainers.data.example_order import (
    TRAIN_MASKS,
    VALIDATION_MASKS,
    Block,
    blocks_in_order,
    stateless_hash,
    step_examples,
    train_blocks,
)
from beambert.trainers.data.parsing import InvalidExampleError, feature_lengths, parser
from beambert.trainers.data.shard_reader import CorruptRecordPolicy, RecordStream, check_sizes
from beambert.trainers.optimization.schedule import Stage

_Features = dict[str, np.ndarray]


class InputShard(NamedTuple):
    """The part of each batch that an input pipeline reads.

    Attributes:
        replicas: number of replicas that share a batch.
        first_replica: index of the pipeline's first replica.
        local_replicas: number of the pipeline's replicas.
    """

    replicas: int = 1
    first_replica: int = 0
    local_replicas: int = 1


@dataclass(frozen=True)
class Batches:
    """The batches of one input pipeline, readable from any index.

    Attributes:
        count: number of elements.
        shapes: shape and dtype of each feature; None for a dimension that differs by element.
        from_index: function of an index; returns an iterator over the elements from that index on, dicts of numpy
            arrays. Each iterator reads on its own and raises the error of the reader where it occurs.
    """

    count: int
    shapes: Mapping[str, tuple[tuple[int | None, ...], np.dtype]]
    from_index: Callable[[int], Iterator[dict[str, np.ndarray]]]

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        """Return an iterator over all elements."""
        return self.from_index(0)

    def __len__(self) -> int:
        """Return the number of elements."""
        return self.count


class ToFeatures(Protocol):
    """A function from b records and their keys, uint64 [b], from which masks are drawn, to their features.

    `masked_lm_prob` replaces that of the dataset in dynamic masking; None keeps it.
    """

    def __call__(self, records: list[bytes], keys: np.ndarray, masked_lm_prob: float | None = None) -> _Features:
        """Return the features."""


class SplitReader:
    """The examples of a split of a dataset, by sequence length.

    Args:
        directory: dataset directory.
        dataset: the manifest.
        split: "train", or "validation", of which copy 0 is read.
        seed: seed of the dynamic masks of the train split, below 2**31; those of the validation split are always equal.
        pad_rows: whether to pad all sequences to the longest length, so that all batches have one shape.

    Attributes:
        lengths: shards of each sequence length, shortest first; none without examples.
        examples: number of examples of each sequence length.

    Raises:
        DatasetError: a shard is missing or truncated.
    """

    def __init__(self, directory: Path, dataset: Dataset, split: str, seed: int, pad_rows: bool) -> None:
        is_train = split == "train"
        shards = [shard for shard in dataset.shards_of(split) if shard.examples and (is_train or shard.copy == 0)]
        check_sizes(directory, shards)
        self._directory, self._dataset = directory, dataset
        self.lengths = by_row_length(shards)
        self.examples = [sum(shard.examples for shard in of_length) for of_length in self.lengths]
        purpose = (seed, TRAIN_MASKS) if is_train else (0, VALIDATION_MASKS)
        self._mask_keys = [int(stateless_hash(*purpose, of_length[0].max_seq_length)[0]) for of_length in self.lengths]
        self._to_features = records_to_features(directory, dataset, self.lengths, pad_rows)

    def shapes(self, part: int) -> dict[str, tuple[tuple[int | None, ...], np.dtype]]:
        """Return the shapes and dtypes of the features of `part` examples; None for lengths that differ."""
        empty = [to_features([], np.empty(0, np.uint64)) for to_features in self._to_features]
        lengths = {name: {features[name].shape[1] for features in empty} for name in empty[0]}
        return {
            name: ((part, lengths[name].pop() if len(lengths[name]) == 1 else None), values.dtype)
            for name, values in empty[0].items()
        }

    def open(
        self, blocks: Callable[[int, int], Iterator[Block]], corrupt_records: CorruptRecordPolicy
    ) -> Callable[..., _Features]:
        """Return a function that reads examples, each sequence length in increasing order of positions.

        Args:
            blocks: function of the index of a sequence length and a position; returns the blocks in reading order, from
                the one that contains the position or an earlier one on.
            corrupt_records: action at corrupt records.

        Returns:
            The function `read`, which has open shards of its own.
        """
        streams: dict[int, RecordStream] = {}
        fillers: dict[int, list[bytes]] = {}

        def read(
            index: int,
            first: int,
            count: int,
            step: int = 0,
            size: int | None = None,
            masked_lm_prob: float | None = None,
        ) -> _Features:
            """Return the features of examples.

            Args:
                index: index of the sequence length.
                first: position of the first example.
                count: number of examples.
                step: training step, for `CorruptRecordPolicy`.
                size: number of rows; rows after `count` repeat the example at position 0, which must be the first one.
                masked_lm_prob: as in `ToFeatures`.

            Raises:
                DatasetError: a record is corrupt, or not a valid example.
            """
            if index not in streams:
                streams[index] = RecordStream(self._directory, self._dataset, blocks(index, first), corrupt_records)
                if size is not None:
                    fillers[index] = streams[index].read(0, 1, 0)
            rows = count if size is None else size
            records = streams[index].read(first, count, step)
            if rows > count:
                records = records + fillers[index] * (rows - count)
            keys = stateless_hash(self._mask_keys[index], first + np.arange(rows))
            try:
                return self._to_features[index](records, keys, masked_lm_prob)
            except InvalidExampleError as error:
                position = first + error.record if error.record < count else 0
                block = next(block for block in blocks(index, position) if position < block.end)
                shards, numbers = block.records()
                path = self._directory / block.shards[shards[position - block.first]].name
                raise DatasetError(
                    f"{path}: record {numbers[position - block.first]} {error.problem}; build the data again, or "
                    "restore dataset.json"
                ) from error

        return read


def train_batches(
    directory: Path,
    dataset: Dataset,
    stages: Sequence[Stage],
    step: int,
    seed: int,
    *,
    replicas: int = 1,
    first_replica: int = 0,
    local_replicas: int = 1,
    pad_rows: bool = False,
    corrupt_records: CorruptRecordPolicy | None = None,
    mask_rate: Callable[[int], float | None] | None = None,
) -> Batches:
    """Return the batches of the training split from a step to the end of its stage.

    The examples of a step and their order depend only on seed and stages (`beambert.trainers.data.example_order`). So
    do dynamic masks (`--masking dynamic`), which are drawn for every position of the order and every epoch.

    Args:
        directory: dataset directory.
        dataset: the manifest.
        stages: stages that read this directory, from the first one to the stage of `step`.
        step: first step.
        seed: an integer below 2**31.
        replicas: number of replicas; it must divide the batch size.
        first_replica, local_replicas: the replicas to read for, as in `InputShard`.
        pad_rows: whether to pad all sequences to the longest length, so that all batches have one shape.
        corrupt_records: action at corrupt records; None raises an error.
        mask_rate: function of a step; returns the fraction of tokens to predict in dynamic masking, None for that of
            the dataset.

    Returns:
        Dicts of features (`beambert.trainers.data.parsing.parser`), always with masked_lm_*: for each step, an element
        [batch_size / replicas, ...] per local replica. Sequence length and number of predictions may differ by step.
        Reading raises DatasetError at a corrupt record or an invalid example.

    Raises:
        DatasetError: there are no training examples, or a shard is missing or truncated.
    """
    split = SplitReader(directory, dataset, "train", seed, pad_rows)
    if not split.lengths:
        raise DatasetError(f"{directory} has no training examples; build the data from more text")
    part = stages[-1].batch_size // replicas

    def from_index(index: int) -> Iterator[_Features]:
        read = split.open(
            lambda length, position: train_blocks(split.lengths[length], seed, position),
            corrupt_records or CorruptRecordPolicy(),
        )
        skipped_steps, skipped_replicas = divmod(index, local_replicas)
        for number, length, first_of_step in step_examples(stages, step + skipped_steps, split.examples, seed):
            for replica in range(first_replica + skipped_replicas, first_replica + local_replicas):
                rate = mask_rate(number) if mask_rate else None
                yield read(length, first_of_step + replica * part, part, number, masked_lm_prob=rate)
            skipped_replicas = 0

    return Batches((stages[-1].end_step - step) * local_replicas, split.shapes(part), from_index)


def validation_batches(
    directory: Path,
    dataset: Dataset,
    batch_size: int,
    max_batches: int,
    *,
    replicas: int = 1,
    first_replica: int = 0,
    local_replicas: int = 1,
    pad_rows: bool = False,
    corrupt_records: CorruptRecordPolicy | None = None,
) -> Batches | None:
    """Return the first batches of the validation split, copy 0, each example once, in manifest order.

    Dynamic masks (`--masking dynamic`) are the same in every evaluation and do not depend on the batch size.

    Args:
        directory: dataset directory.
        dataset: the manifest.
        batch_size: global batch size in sequences.
        max_batches: maximum number of batches.
        replicas, first_replica, local_replicas, pad_rows, corrupt_records: as in `train_batches`.

    Returns:
        Batches as of `train_batches` with the additional feature example_weights, float32 [batch_size / replicas].
        All batches are full; the last batch of each sequence length is padded with examples of weight 0, which have no
        predictions. None without validation examples.

    Raises:
        DatasetError: a shard is missing or truncated.
    """
    split = SplitReader(directory, dataset, "validation", 0, pad_rows)
    if not split.lengths:
        return None
    part = batch_size // replicas
    batches = interleaved_batches(split.examples, batch_size)[:max_batches]

    def from_index(number: int) -> Iterator[_Features]:
        read = split.open(
            lambda length, _: blocks_in_order(split.lengths[length]), corrupt_records or CorruptRecordPolicy()
        )
        for element in range(number, len(batches) * local_replicas):
            step, replica = divmod(element, local_replicas)
            length, batch = batches[step]
            first = batch * batch_size + (first_replica + replica) * part
            real = min(max(split.examples[length] - first, 0), part)
            features = read(length, first, real, step, part)
            weights = (np.arange(part) < real).astype(np.float32)
            for name in {"masked_lm_weights", "next_sentence_weights"} & features.keys():
                features[name] *= weights[:, None]
            yield {**features, "example_weights": weights}

    shapes = {**split.shapes(part), "example_weights": ((part,), np.dtype(np.float32))}
    return Batches(len(batches) * local_replicas, shapes, from_index)


def interleaved_batches(examples: Sequence[int], batch_size: int) -> list[tuple[int, int]]:
    """Return the batches of all sequence lengths, interleaved so that the first batches are representative.

    Args:
        examples: number of examples of each sequence length.
        batch_size: number of examples of a batch.

    Returns:
        Index of the sequence length and index of the batch among those of that length.
    """
    ends = []
    for index, number in enumerate(examples):
        count = -(-number // batch_size)
        ends += [((batch + 0.5) / count, index, batch) for batch in range(count)]
    return [(index, batch) for _, index, batch in sorted(ends)]


def by_row_length(shards: Sequence[Shard]) -> list[list[Shard]]:
    """Return the shards of each sequence length, shortest first."""
    lengths = sorted({shard.max_seq_length for shard in shards})
    return [[shard for shard in shards if shard.max_seq_length == length] for length in lengths]


def records_to_features(
    directory: Path, dataset: Dataset, lengths: list[list[Shard]], pad_rows: bool
) -> list[ToFeatures]:
    """Return the function from records to features, with masks, of each sequence length."""
    masking = DynamicMasking.from_dataset(directory, dataset)
    longest = feature_lengths(dataset.instances_per_row, dataset.max_seq_length, dataset.max_predictions_per_seq)

    def of_length(shard: Shard) -> ToFeatures:
        parse = parser(dataset, shard.max_seq_length, shard.max_predictions_per_seq)

        def to_features(records: list[bytes], keys: np.ndarray, masked_lm_prob: float | None = None) -> _Features:
            features = parse(records)
            if masking is not None:
                rate = masking.masked_lm_prob if masked_lm_prob is None else masked_lm_prob
                of_step = dataclasses.replace(masking, masked_lm_prob=rate)
                features = mask_batch(features, of_step, shard.max_predictions_per_seq, keys)
            if pad_rows:
                features = {
                    name: np.pad(values, [(0, 0), (0, longest[name] - values.shape[1])])
                    for name, values in features.items()
                }
            return features

        return to_features

    return [of_length(shards[0]) for shards in lengths]

"""Batches of encoded rows for training, evaluation and prediction.

The rows of a step depend on (seed, step) only. Every epoch is a permutation of all rows, and batches run across epoch
boundaries (run_classifier.py: repeat, then batch).
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from trainers.backends.tensorflow.distribution import InputShard
from trainers.data.stateless_random import permutation, stateless_hash
from trainers.finetuning.finetuning_task import Rows
from trainers.optimization.schedule import Stage

# Widths are rounded up to a multiple of this: faster matrix products, and few distinct shapes.
WIDTH_MULTIPLE = 8
# Number of batches that the mean width is computed from.
_SAMPLED_BATCHES = 50


class EpochOrder:
    """The order of the rows over all epochs.

    Args:
        count: number of rows, at least 1.
        seed: random seed, less than 2**31.
    """

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed
        self._epoch = -1
        self._order = np.empty(0, np.int64)

    def rows(self, first: int, size: int) -> np.ndarray:
        """Return the rows at positions `first` to `first + size - 1` of the order, int64 [size]."""
        parts: list[np.ndarray] = []
        while size > 0:
            epoch, offset = divmod(first, self.count)
            if epoch != self._epoch:
                self._epoch, self._order = epoch, permutation(int(stateless_hash(self.seed, epoch)[0]), self.count)
            parts.append(self._order[offset : offset + size])
            first, size = first + len(parts[-1]), size - len(parts[-1])
        return np.concatenate(parts)


class Width(NamedTuple):
    """The number of positions that rows are padded to.

    Attributes:
        most: maximum length of a row.
        fixed: whether all batches are padded to `most`, or each batch to its longest row.
    """

    most: int
    fixed: bool

    def for_rows(self, rows: Rows, chosen: np.ndarray) -> int:
        """Return the width of a batch of the chosen rows, int [B]."""
        if self.fixed:
            return self.most
        flat = _choices_of(rows, chosen)
        needed = int((rows.row_splits[flat + 1] - rows.row_splits[flat]).max())
        return min(-(-needed // WIDTH_MULTIPLE) * WIDTH_MULTIPLE, self.most)


def train_batches(
    rows: Rows, head: str, seed: int, stage: Stage, step: int, share: InputShard, width: Width
) -> tf.data.Dataset:
    """Return the batches from a step to the end of its stage, one element [batch_size / replicas, ...] per replica.

    Args:
        rows: rows with targets.
        head: head of the task.
        seed: random seed of the order.
        stage: stage that contains `step`.
        step: first step.
        share: replicas whose parts of a batch are read.
        width: width of the batches.
    """
    part = stage.batch_size // share.replicas
    order = EpochOrder(len(rows), seed)

    def elements() -> Iterator[dict[str, np.ndarray]]:
        for number in range(step, stage.end_step):
            chosen = order.rows(number * stage.batch_size, stage.batch_size)
            positions = width.for_rows(rows, chosen)
            for replica in range(share.first_replica, share.first_replica + share.local_replicas):
                yield features_of(rows, head, chosen[replica * part : (replica + 1) * part], positions)

    return _dataset(elements, rows, head, part, width)


def evaluation_order(rows: Rows) -> np.ndarray:
    """Return the order of `evaluation_batches`: row indices by decreasing length, int64 [N]."""
    lengths = np.diff(rows.row_splits).reshape(-1, rows.choices).max(axis=1)
    return np.argsort(-lengths, kind="stable")


def evaluation_batches(rows: Rows, head: str, batch_size: int, share: InputShard, width: Width) -> tf.data.Dataset:
    """Return all rows in the order of `evaluation_order`, without targets.

    Args:
        rows: rows of the split.
        head: head of the task.
        batch_size: global batch size in rows, a multiple of the number of replicas.
        share: replicas whose parts of a batch are read.
        width: width of the batches.

    Returns:
        Elements [batch_size / replicas, ...], one per replica; the last batch is padded with copies of its last row.
    """
    rows = dataclasses.replace(rows, targets={})
    order = evaluation_order(rows)
    part = batch_size // share.replicas

    def elements() -> Iterator[dict[str, np.ndarray]]:
        for first in range(0, len(order), batch_size):
            chosen = order[first : first + batch_size]
            chosen = np.concatenate([chosen, np.repeat(chosen[-1:], batch_size - len(chosen))])
            positions = width.for_rows(rows, chosen)
            for replica in range(share.first_replica, share.first_replica + share.local_replicas):
                yield features_of(rows, head, chosen[replica * part : (replica + 1) * part], positions)

    return _dataset(elements, rows, head, part, width)


def features_of(rows: Rows, head: str, chosen: np.ndarray, width: int) -> dict[str, np.ndarray]:
    """Return the features of the chosen rows for model and loss.

    Args:
        rows: rows of a split.
        head: head of the task.
        chosen: row indices, int [B].
        width: number of positions, S.

    Returns:
        input_ids, input_mask, segment_ids int32 [B, S], or [B, C, S] for multiple_choice, and the targets, if any:
        [B, ...] as in `Rows`; label_ids of token classification int32 [B, S].
    """
    flat = _choices_of(rows, chosen)
    starts, ends = rows.row_splits[flat], rows.row_splits[flat + 1]
    positions = starts[:, None] + np.arange(width)  # [B * C, S]
    mask = positions < ends[:, None]
    positions = np.where(mask, positions, 0)
    shape = (len(chosen), width) if head != "multiple_choice" else (len(chosen), rows.choices, width)

    def padded(values: np.ndarray, value: int = 0) -> np.ndarray:
        return np.where(mask, values[positions], value).astype(np.int32).reshape(shape)

    features = {
        "input_ids": padded(rows.ids),
        "input_mask": mask.astype(np.int32).reshape(shape),
        "segment_ids": padded(rows.segment_ids),
    }
    for name, values in rows.targets.items():
        features[name] = padded(values, -1) if head.startswith("token_classification") else values[chosen]
    return features


def mean_width(rows: Rows, batch_size: int, width: Width) -> float:
    """Return the mean width of batches, from which the FLOPs of a step are estimated."""
    order = EpochOrder(len(rows), 0)
    batches = min(_SAMPLED_BATCHES, -(-len(rows) // batch_size))
    return float(
        np.mean([width.for_rows(rows, order.rows(batch * batch_size, batch_size)) for batch in range(batches)])
    )


def _choices_of(rows: Rows, chosen: np.ndarray) -> np.ndarray:
    """Return the indices in row_splits of the choices of rows, int [B * C]."""
    return (chosen[:, None] * rows.choices + np.arange(rows.choices)).reshape(-1)


def _dataset(
    elements: Callable[[], Iterator[dict[str, np.ndarray]]], rows: Rows, head: str, part: int, width: Width
) -> tf.data.Dataset:
    """Return a dataset of the elements, each with `part` rows and the targets of `rows`."""
    of_positions = {"input_ids", "input_mask", "segment_ids"}
    if head.startswith("token_classification"):
        of_positions.add("label_ids")
    signature = {
        name: tf.TensorSpec(
            [*values.shape[:-1], width.most if width.fixed else None] if name in of_positions else values.shape,
            values.dtype,
        )
        for name, values in features_of(rows, head, np.zeros(part, np.int64), width.most).items()
    }

    options = tf.data.Options()
    # Each host reads its own part.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = tf.data.Dataset.from_generator(elements, output_signature=signature)
    return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)

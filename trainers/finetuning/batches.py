"""Batches of encoded rows for the loop, and for prediction.

Which rows a step has is a function of (seed, step) alone: every epoch is a permutation of all rows, the epochs
follow each other without a gap, and every step takes the next of them (run_classifier.py: repeat, then batch).
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

# Matrix products like whole numbers of vectors, and few shapes.
WIDTH_MULTIPLE = 8
# Of which the mean width is taken.
_SAMPLED_BATCHES = 50


class EpochOrder:
    """The order of rows over all epochs.

    Args:
        count: rows in all, at least 1.
        seed: any whole number below 2**31.
    """

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed
        self._epoch = -1
        self._order = np.empty(0, np.int64)

    def rows(self, first: int, size: int) -> np.ndarray:
        """Return the rows at `size` positions from `first` on, int64 [size]."""
        taken: list[np.ndarray] = []
        while size > 0:
            epoch, place = divmod(first, self.count)
            if epoch != self._epoch:
                self._epoch, self._order = epoch, permutation(int(stateless_hash(self.seed, epoch)[0]), self.count)
            taken.append(self._order[place : place + size])
            first, size = first + len(taken[-1]), size - len(taken[-1])
        return np.concatenate(taken)


class Width(NamedTuple):
    """The number of positions that rows are padded to.

    Attributes:
        most: the most that any row has or may have.
        fixed: whether all rows have that many, or those of a batch as many as its longest needs.
    """

    most: int
    fixed: bool

    def for_rows(self, rows: Rows, chosen: np.ndarray) -> int:
        """Return the width of a batch of these rows, int [B]."""
        if self.fixed:
            return self.most
        flat = _choices_of(rows, chosen)
        needed = int((rows.row_splits[flat + 1] - rows.row_splits[flat]).max())
        return min(-(-needed // WIDTH_MULTIPLE) * WIDTH_MULTIPLE, self.most)


def train_batches(
    rows: Rows, head: str, seed: int, stage: Stage, step: int, share: InputShard, width: Width
) -> tf.data.Dataset:
    """Return batches from a step to the end of its stage, an element [batch_size / replicas, ...] a replica.

    Args:
        rows: with targets.
        head: of the task.
        seed: of the order.
        stage: that `step` lies in.
        step: the first step.
        share: which replicas' parts are read.
        width: positions of a row.
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
    """Return the rows in the order of `evaluation_batches`, the longest first, int64 [N]."""
    lengths = np.diff(rows.row_splits).reshape(-1, rows.choices).max(axis=1)
    return np.argsort(-lengths, kind="stable")


def evaluation_batches(rows: Rows, head: str, batch_size: int, share: InputShard, width: Width) -> tf.data.Dataset:
    """Return all rows in the order of `evaluation_order`, without targets.

    Args:
        rows: of the split.
        head: of the task.
        batch_size: rows a batch, over all replicas, which divide it.
        share: which replicas' parts are read.
        width: positions of a row.

    Returns:
        Elements [batch_size / replicas, ...], one a replica; the last batch is filled up with its last row.
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
    """Return the features that model and loss read of the chosen rows.

    Args:
        rows: of a split.
        head: of the task.
        chosen: rows, int [B].
        width: positions, S.

    Returns:
        input_ids, input_mask, segment_ids int32 [B, S], or [B, C, S] for multiple_choice, and the targets that there
        are: [B, ...] as in `Rows`, label_ids of positions int32 [B, S].
    """
    flat = _choices_of(rows, chosen)
    starts, ends = rows.row_splits[flat], rows.row_splits[flat + 1]
    places = starts[:, None] + np.arange(width)  # [B * C, S]
    mask = places < ends[:, None]
    places = np.where(mask, places, 0)
    shape = (len(chosen), width) if head != "multiple_choice" else (len(chosen), rows.choices, width)

    def padded(values: np.ndarray, value: int = 0) -> np.ndarray:
        return np.where(mask, values[places], value).astype(np.int32).reshape(shape)

    features = {
        "input_ids": padded(rows.ids),
        "input_mask": mask.astype(np.int32).reshape(shape),
        "segment_ids": padded(rows.segment_ids),
    }
    for name, values in rows.targets.items():
        features[name] = padded(values, -1) if head.startswith("token_classification") else values[chosen]
    return features


def mean_width(rows: Rows, batch_size: int, width: Width) -> float:
    """Return the mean width of rows in batches, by which the cost of a step is counted."""
    order = EpochOrder(len(rows), 0)
    batches = min(_SAMPLED_BATCHES, -(-len(rows) // batch_size))
    return float(
        np.mean([width.for_rows(rows, order.rows(batch * batch_size, batch_size)) for batch in range(batches)])
    )


def _choices_of(rows: Rows, chosen: np.ndarray) -> np.ndarray:
    """Return where the choices of rows are in row_splits, int [B * C]."""
    return (chosen[:, None] * rows.choices + np.arange(rows.choices)).reshape(-1)


def _dataset(
    elements: Callable[[], Iterator[dict[str, np.ndarray]]], rows: Rows, head: str, part: int, width: Width
) -> tf.data.Dataset:
    """Return a dataset of what `elements` yields, of `part` rows each, with the targets that `rows` has."""
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

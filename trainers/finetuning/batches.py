"""Batches of encoded rows for training, evaluation and prediction.

The rows of a step depend on (seed, step) only. Every epoch is a permutation of all rows, and batches run across epoch
boundaries (run_classifier.py: repeat, then batch). This file imports neither Keras nor TensorFlow.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from trainers.data.batches import Batches, InputShard
from trainers.data.stateless_random import permutation, stateless_hash
from trainers.finetuning.finetuning_task import Rows
from trainers.optimization.schedule import Stage

# Widths are rounded up to a multiple: faster matrix products, and few distinct shapes. JAX compiles each of them.
WIDTH_MULTIPLE = 8
STATIC_WIDTH_MULTIPLE = 32
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
        multiple: widths that are not fixed are rounded up to a multiple of this.
    """

    most: int
    fixed: bool
    multiple: int = WIDTH_MULTIPLE

    def for_rows(self, rows: Rows, chosen: np.ndarray) -> int:
        """Return the width of a batch of the chosen rows, int [B]."""
        if self.fixed:
            return self.most
        flat = _choices_of(rows, chosen)
        needed = int((rows.row_splits[flat + 1] - rows.row_splits[flat]).max())
        return min(-(-needed // self.multiple) * self.multiple, self.most)


def train_batches(
    rows: Rows, head: str, seed: int, stage: Stage, step: int, share: InputShard, width: Width
) -> Batches:
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

    def from_step(index: int) -> Iterator[np.ndarray]:
        order = EpochOrder(len(rows), seed)
        for number in range(step + index, stage.end_step):
            yield order.rows(number * stage.batch_size, stage.batch_size)

    return _batches(from_step, stage.end_step - step, rows, head, stage.batch_size, share, width)


def evaluation_order(rows: Rows) -> np.ndarray:
    """Return the order of `evaluation_batches`: row indices by decreasing length, int64 [N]."""
    lengths = np.diff(rows.row_splits).reshape(-1, rows.choices).max(axis=1)
    return np.argsort(-lengths, kind="stable")


def evaluation_batches(rows: Rows, head: str, batch_size: int, share: InputShard, width: Width) -> Batches:
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

    def from_batch(index: int) -> Iterator[np.ndarray]:
        for first in range(index * batch_size, len(order), batch_size):
            chosen = order[first : first + batch_size]
            yield np.concatenate([chosen, np.repeat(chosen[-1:], batch_size - len(chosen))])

    return _batches(from_batch, -(-len(order) // batch_size), rows, head, batch_size, share, width)


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


def _batches(
    chosen_from: Callable[[int], Iterator[np.ndarray]],
    count: int,
    rows: Rows,
    head: str,
    batch_size: int,
    share: InputShard,
    width: Width,
) -> Batches:
    """Return batches of chosen rows.

    Args:
        chosen_from: function of the index of a batch; returns an iterator over the row indices of the batches from that
            one on, int [batch_size].
        count: number of batches of all replicas.
        rows: rows, with targets if these are features.
        head: head of the task.
        batch_size: global batch size in rows.
        share: replicas whose parts of a batch are read.
        width: width of the batches.
    """
    part = batch_size // share.replicas

    def from_index(index: int) -> Iterator[dict[str, np.ndarray]]:
        first, skipped = divmod(index, share.local_replicas)
        for chosen in chosen_from(first):
            positions = width.for_rows(rows, chosen)
            for replica in range(share.first_replica + skipped, share.first_replica + share.local_replicas):
                yield features_of(rows, head, chosen[replica * part : (replica + 1) * part], positions)
            skipped = 0

    of_positions = {"input_ids", "input_mask", "segment_ids"}
    if head.startswith("token_classification"):
        of_positions.add("label_ids")
    shapes = {
        name: (
            (*values.shape[:-1], width.most if width.fixed else None) if name in of_positions else values.shape,
            values.dtype,
        )
        for name, values in features_of(rows, head, np.zeros(part, np.int64), width.most).items()
    }
    return Batches(count * share.local_replicas, shapes, from_index)

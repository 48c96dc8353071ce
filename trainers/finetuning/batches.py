"""Batches of encoded rows for training, evaluation and prediction.

The rows of a step depend on (seed, step) only. Every epoch is a permutation of all rows, and batches run across epoch
boundaries (run_classifier.py: repeat, then batch). With grouping, the rows of a batch have similar lengths, and less
padding is computed. This file imports neither Keras nor TensorFlow.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from beambert.trainers.data.example_order import permutation, stateless_hash
from beambert.trainers.data.pipeline import Batches, InputShard
from beambert.trainers.finetuning.finetuning_task import Rows
from beambert.trainers.optimization.schedule import Stage

# Widths are rounded up to a multiple: for faster matrix products on accelerators, and for few distinct shapes with JAX,
# which compiles each of them. On a CPU the time of a step is linear in the width.
ACCELERATOR_WIDTH_MULTIPLE = 8
STATIC_WIDTH_MULTIPLE = 32
# Number of batches that the mean width is computed from.
_SAMPLED_BATCHES = 1000
# Purpose of the random numbers that order the batches of an epoch.
_BATCH_ORDER = 1


class Grouping(NamedTuple):
    """Rows that are grouped into batches by their widths.

    Attributes:
        batch_size: number of rows of a batch; batches start at its multiples.
        widths: width of each row, int64 [N].
    """

    batch_size: int
    widths: np.ndarray


class EpochOrder:
    """The order of the rows over all epochs.

    With grouping, the rows of an epoch are shuffled, sorted by width, cut into batches, and the batches are shuffled.
    Rows of the same width are thus in other batches in every epoch. A batch that two epochs share has any rows.

    Args:
        count: number of rows, at least 1.
        seed: random seed, less than 2**31.
        grouping: the widths to group rows by; None for rows in random order.
    """

    def __init__(self, count: int, seed: int, grouping: Grouping | None = None) -> None:
        self.count, self.seed, self.grouping = count, seed, grouping
        self._epoch = -1
        self._order = np.empty(0, np.int64)

    def rows(self, first: int, size: int) -> np.ndarray:
        """Return the rows at positions `first` to `first + size - 1` of the order, int64 [size]."""
        parts: list[np.ndarray] = []
        while size > 0:
            epoch, offset = divmod(first, self.count)
            if epoch != self._epoch:
                self._epoch, self._order = epoch, self._order_of(epoch)
            parts.append(self._order[offset : offset + size])
            first, size = first + len(parts[-1]), size - len(parts[-1])
        return np.concatenate(parts)

    def _order_of(self, epoch: int) -> np.ndarray:
        order = permutation(int(stateless_hash(self.seed, epoch)[0]), self.count)
        if self.grouping is None:
            return order
        size, widths = self.grouping
        # The epoch has rows of the batch that the epoch before began, whole batches, and the first rows of another.
        first = -epoch * self.count % size
        batches = (self.count - first) // size
        if batches < 2:
            return order
        whole = order[first : first + batches * size]
        whole = whole[np.argsort(widths[whole], kind="stable")].reshape(batches, size)
        shuffled = permutation(int(stateless_hash(self.seed, epoch, _BATCH_ORDER)[0]), batches)
        return np.concatenate([order[:first], whole[shuffled].ravel(), order[first + batches * size :]])


class Width(NamedTuple):
    """The number of positions that rows are padded to: a batch has the largest width of its rows.

    Attributes:
        most: maximum length of a row.
        fixed: whether every row has the width `most`, or the width that its length needs.
        multiple: widths that are not fixed are rounded up to a multiple of this.
    """

    most: int
    fixed: bool
    multiple: int = 1

    def of_rows(self, rows: Rows) -> np.ndarray:
        """Return the width of each row, int64 [N]."""
        if self.fixed:
            return np.full(len(rows), self.most)
        return np.minimum(-(-row_lengths(rows) // self.multiple) * self.multiple, self.most)


def row_lengths(rows: Rows) -> np.ndarray:
    """Return the number of tokens of each row, of the longest choice where there are several; int64 [N]."""
    lengths: np.ndarray = np.diff(rows.row_splits).reshape(-1, rows.choices).max(axis=1)
    return lengths


def order_of(rows: Rows, seed: int, batch_size: int, width: Width, *, grouped: bool) -> EpochOrder:
    """Return the order of training rows.

    Args:
        rows: the rows.
        seed: random seed.
        batch_size: global batch size in rows.
        width: width of the batches.
        grouped: whether rows of the same width are grouped into batches; without effect on batches of fixed width.
    """
    grouping = Grouping(batch_size, width.of_rows(rows)) if grouped and not width.fixed else None
    return EpochOrder(len(rows), seed, grouping)


def train_batches(
    rows: Rows,
    head: str,
    seed: int,
    stage: Stage,
    step: int,
    share: InputShard,
    width: Width,
    *,
    grouped: bool = False,
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
        grouped: whether rows of similar length are grouped into batches, as in `order_of`.
    """

    def from_step(index: int) -> Iterator[np.ndarray]:
        order = order_of(rows, seed, stage.batch_size, width, grouped=grouped)
        for number in range(step + index, stage.end_step):
            yield order.rows(number * stage.batch_size, stage.batch_size)

    return _batches(from_step, stage.end_step - step, rows, head, stage.batch_size, share, width)


def evaluation_order(rows: Rows) -> np.ndarray:
    """Return the order of `evaluation_batches`: row indices by decreasing length, int64 [N]."""
    return np.argsort(-row_lengths(rows), kind="stable")


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


def mean_width(rows: Rows, batch_size: int, width: Width, *, grouped: bool) -> float:
    """Return the mean width of training batches, from which the FLOPs of a step are estimated."""
    if width.fixed:
        return float(width.most)
    order = order_of(rows, 0, batch_size, width, grouped=grouped)
    batches = min(_SAMPLED_BATCHES, -(-len(rows) // batch_size))
    chosen = order.rows(0, batches * batch_size).reshape(batches, batch_size)
    return float(width.of_rows(rows)[chosen].max(axis=1).mean())


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
    widths = width.of_rows(rows)

    def from_index(index: int) -> Iterator[dict[str, np.ndarray]]:
        first, skipped = divmod(index, share.local_replicas)
        for chosen in chosen_from(first):
            positions = int(widths[chosen].max())
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

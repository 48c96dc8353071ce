"""Lays instances out in rows: `[CLS] A [SEP] B [SEP]`, or `[CLS] A [SEP]` where there is no B, then padding."""

import dataclasses

import numpy as np

from pipelines.instances import Instances
from tokenizer.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class RowPlan:
    """Which instances stand in which row.

    Attributes:
        instances: int64 [instances], their numbers, row after row.
        row_starts: int64 [rows + 1], where each row starts in `instances`.
    """

    instances: np.ndarray
    row_starts: np.ndarray

    def __len__(self) -> int:
        return len(self.row_starts) - 1

    def some(self, first: int, last: int) -> "RowPlan":
        """The rows from `first` up to, but not including, `last`."""
        starts = self.row_starts[first : last + 1]
        return RowPlan(self.instances[starts[0] : starts[-1]], starts - starts[0])


def one_a_row(instances: np.ndarray) -> RowPlan:
    """Every instance in a row of its own, in the given order."""
    return RowPlan(instances, np.arange(len(instances) + 1))


@dataclasses.dataclass(frozen=True)
class Rows:
    """n rows of L positions with room for K instances each.

    Attributes:
        input_ids: int32 [n, L].
        segment_ids: uint8 [n, L], 1 over B and its [SEP].
        sequence_ids: uint8 [n, L], 1, 2, ... over the instances of a row, 0 over padding.
        lengths: int64 [n], positions before the padding.
        maskable: bool [n, L], neither special nor padding.
        instance_positions: int64 [n, K], where each instance's [CLS] is, then zeros.
        labels: uint8 [n, K], the instances' labels, then zeros.
        filled: bool [n, K], whether there is an instance.
    """

    input_ids: np.ndarray
    segment_ids: np.ndarray
    sequence_ids: np.ndarray
    lengths: np.ndarray
    maskable: np.ndarray
    instance_positions: np.ndarray
    labels: np.ndarray
    filled: np.ndarray

    def __len__(self) -> int:
        return len(self.input_ids)


def lay_out(
    token_ids: np.ndarray,
    instances: Instances,
    plan: RowPlan,
    row_length: int,
    instances_per_row: int,
    vocab: Vocabulary,
) -> Rows:
    """Fills rows.

    Args:
        token_ids: int32 [tokens], what the instances are runs of.
        instances: all of them.
        plan: which to lay out, and where; the instances of a row fit into it.
        row_length: L.
        instances_per_row: K.
        vocab: for the ids of [CLS], [SEP] and [PAD].
    """
    rows = len(plan)
    chosen = plan.instances
    row = np.repeat(np.arange(rows), np.diff(plan.row_starts))  # [m], of each chosen instance
    place = np.arange(len(chosen)) - plan.row_starts[:-1][row]  # its number in the row
    a_length, b_length = instances.a_length[chosen], instances.b_length[chosen]
    lengths = instances.lengths[chosen]  # [m]
    ends = np.cumsum(lengths)  # [m]
    before_row = np.concatenate([[0], ends])[plan.row_starts[:-1]]  # [n]
    cls_position = ends - lengths - before_row[row]  # [m]
    start = row * row_length + cls_position  # [m], of each instance in the flattened rows

    # Runs of text as one list of (where from, where to) pairs: a number for every token, no loop over instances.
    from_starts = np.concatenate([instances.a_start[chosen], instances.b_start[chosen]])
    to_starts = np.concatenate([start + 1, start + a_length + 2])
    run_lengths = np.concatenate([a_length, b_length])
    within = np.arange(run_lengths.sum()) - np.repeat(np.cumsum(run_lengths) - run_lengths, run_lengths)
    target = np.repeat(to_starts, run_lengths) + within
    source = np.repeat(from_starts, run_lengths) + within

    has_b = b_length > 0
    separator_a = start + a_length + 1
    last = start + lengths - 1
    input_ids = np.full(rows * row_length, vocab.pad_id, np.int32)
    input_ids[target] = token_ids[source]
    input_ids[start] = vocab.cls_id
    input_ids[separator_a] = vocab.sep_id
    input_ids[last] = vocab.sep_id
    maskable = np.zeros(rows * row_length, bool)
    maskable[target] = True

    column = np.arange(row_length)
    row_lengths = np.bincount(row, weights=lengths, minlength=rows).astype(np.int64)
    # Ids change at few places: mark the changes, then add up.
    changes = np.zeros(rows * row_length + 1, np.int16)
    changes[separator_a[has_b] + 1] += 1
    changes[last[has_b] + 1] -= 1
    segment_ids = np.cumsum(changes[:-1], dtype=np.int16).astype(np.uint8).reshape(rows, row_length)
    if instances_per_row == 1:
        sequence_ids = (column < row_lengths[:, None]).astype(np.uint8)
    else:
        changes = np.zeros((rows, row_length), np.uint8)
        changes.reshape(-1)[start] = 1
        sequence_ids = np.cumsum(changes, axis=1, dtype=np.uint8) * (column < row_lengths[:, None])

    shape = (rows, instances_per_row)
    instance_positions, labels, filled = np.zeros(shape, np.int64), np.zeros(shape, np.uint8), np.zeros(shape, bool)
    instance_positions[row, place] = cls_position
    labels[row, place] = instances.labels[chosen]
    filled[row, place] = True
    return Rows(
        input_ids=input_ids.reshape(rows, row_length),
        segment_ids=segment_ids,
        sequence_ids=sequence_ids,
        lengths=row_lengths,
        maskable=maskable.reshape(rows, row_length),
        instance_positions=instance_positions,
        labels=labels,
        filled=filled,
    )

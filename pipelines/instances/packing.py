"""Pack several short instances into one row.

The algorithm is best fit in order of decreasing length, on the histogram of lengths instead of on single instances
("longest-pack-first histogram packing", Krell et al. 2021, https://arxiv.org/abs/2107.02027). Its time depends on the
number of distinct lengths.
"""

import bisect

import numpy as np

from beambert.pipelines.instances.layout import RowPlan


def pack_lengths(counts: dict[int, int], row_length: int, max_instances: int) -> list[tuple[tuple[int, ...], int]]:
    """Assign lengths to rows.

    Args:
        counts: number of instances of each length, at least one.
        row_length: length of a row, at least the maximum length.
        max_instances: maximum number of instances in a row.

    Returns:
        (lengths of the instances of a row, longest first; number of such rows) for all rows.
    """
    full: list[tuple[tuple[int, ...], int]] = []
    lengths: tuple[int, ...]
    # Rows by remaining room; of equal ones, the last is filled first.
    open_rows: dict[int, list[tuple[tuple[int, ...], int]]] = {}
    rooms: list[int] = []  # the keys, ascending
    for length in sorted(counts, reverse=True):
        remaining = counts[length]
        while remaining:
            index = bisect.bisect_left(rooms, length)
            if index < len(rooms):
                room = rooms[index]
                lengths, rows = open_rows[room].pop()
                if not open_rows[room]:
                    del open_rows[room], rooms[index]
            else:
                room, lengths, rows = row_length, (), remaining
            # The best fit for the next instance is the same row, so it takes as many as fit.
            copies = min(room // length, max_instances - len(lengths), remaining)
            filled = min(rows, remaining // copies)
            remaining -= filled * copies
            changed = [(room - copies * length, lengths + copies * (length,), filled)]
            if lengths and rows > filled:
                changed.append((room, lengths, rows - filled))
            for left, content, number in changed:
                if not left or len(content) == max_instances:
                    full.append((content, number))
                    continue
                if left not in open_rows:
                    open_rows[left] = []
                    bisect.insort(rooms, left)
                open_rows[left].append((content, number))
    return full + [row for room in rooms for row in open_rows[room]]


def pack(lengths: np.ndarray, row_length: int, max_instances: int, rng: np.random.Generator) -> RowPlan:
    """Pack instances into rows by best fit.

    The assignment of instances of equal length, the order within rows and the order of rows are random.

    Args:
        lengths: int64 [instances], from 1 to row_length.
        row_length: length of a row.
        max_instances: maximum number of instances in a row.
        rng: random generator.
    """
    if not len(lengths):
        return RowPlan(np.zeros(0, np.int64), np.zeros(1, np.int64))
    distinct, numbers = np.unique(lengths, return_counts=True)
    packed = pack_lengths(dict(zip(distinct.tolist(), numbers.tolist(), strict=True)), row_length, max_instances)
    instances_in_row = np.repeat([len(content) for content, _ in packed], [rows for _, rows in packed])  # [rows]
    length_of_slot = np.concatenate([np.tile(content, rows) for content, rows in packed])  # [instances]

    rows = len(instances_in_row)
    row_of_slot = np.repeat(rng.permutation(rows), instances_in_row)
    shuffled = rng.permutation(len(lengths))
    instance_of_slot = np.empty(len(lengths), np.int64)
    instance_of_slot[np.argsort(length_of_slot, kind="stable")] = shuffled[np.argsort(lengths[shuffled], kind="stable")]
    order = np.lexsort((rng.random(len(lengths)), row_of_slot))
    return RowPlan(instance_of_slot[order], np.concatenate([[0], np.cumsum(np.bincount(row_of_slot, minlength=rows))]))

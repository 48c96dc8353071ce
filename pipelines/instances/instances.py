"""Arrays of tokenized documents, of the instances sampled from them, and of their rows.

`sampling.py` samples instances from documents. A row is `[CLS] A [SEP] B [SEP]`, or `[CLS] A [SEP]` without B, with
padding. It may have several short instances. They are packed by best fit in order of decreasing length, on the
histogram of lengths instead of on single instances ("longest-pack-first histogram packing", Krell et al. 2021,
https://arxiv.org/abs/2107.02027). Its time depends on the number of distinct lengths.
"""

import bisect
import dataclasses

import numpy as np

from beambert.tokenizer.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class TokenizedDocuments:
    """Documents as flat arrays, without empty documents or sentences.

    Attributes:
        token_ids: int32 [tokens].
        sentence_starts: int64 [sentences + 1], index in token_ids of the start of each sentence, and the number of
            tokens.
        document_starts: int64 [documents + 1], index of the first sentence of each document, and the number of
            sentences.
        weights: float64 [documents], sampling weights: how often each document is sampled per copy, on average.
    """

    token_ids: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.document_starts) - 1

    def document_of_sentence(self) -> np.ndarray:
        """Return the document index of each sentence: int64 [sentences]."""
        return np.repeat(np.arange(len(self)), np.diff(self.document_starts))


@dataclasses.dataclass(frozen=True)
class Instances:
    """Instances as ranges of `TokenizedDocuments.token_ids`; all arrays except labels are int64 [instances].

    Attributes:
        a_start, a_length: segment A.
        b_start, b_length: segment B; length 0 without B.
        labels: uint8 [instances]; 1 if B does not follow A, that is, B is random (nsp) or swapped with A (sop).
        tokens_truncated: tokens that are in no instance because pairs were truncated. Tokens truncated from a random B
            are not counted, because that text is also sampled on its own.
        segments_dropped: segments that could not be paired, or were too short to split.
        tokens_packed: tokens of all sampled documents, the denominator of tokens_truncated.
    """

    a_start: np.ndarray
    a_length: np.ndarray
    b_start: np.ndarray
    b_length: np.ndarray
    labels: np.ndarray
    tokens_truncated: int
    segments_dropped: int
    tokens_packed: int = 0

    def __len__(self) -> int:
        return len(self.a_start)

    @property
    def lengths(self) -> np.ndarray:
        """Return the length of each instance, including [CLS] and [SEP]: int64 [instances]."""
        return self.a_length + self.b_length + 2 + (self.b_length > 0)


def from_sentences(
    token_ids: np.ndarray, token_starts: np.ndarray, sentences: np.ndarray, weights: np.ndarray | None = None
) -> TokenizedDocuments:
    """Build `TokenizedDocuments` without empty sentences and documents.

    Args:
        token_ids: int32 [tokens].
        token_starts: int64 [sentences + 1], index in token_ids of the start of each sentence.
        sentences: int64 [documents], number of sentences of each document, including empty ones.
        weights: float64 [documents], or None for weights of 1.
    """
    weights = np.ones(len(sentences)) if weights is None else weights
    filled = np.diff(token_starts) > 0
    document_of_sentence = np.repeat(np.arange(len(sentences)), sentences)
    remaining = np.bincount(document_of_sentence[filled], minlength=len(sentences))
    return TokenizedDocuments(
        token_ids=token_ids,
        sentence_starts=np.concatenate([token_starts[:-1][filled], token_starts[-1:]]),
        document_starts=np.concatenate([[0], np.cumsum(remaining[remaining > 0])]).astype(np.int64),
        weights=weights[remaining > 0],
    )


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the concatenation of n ranges: start, start + 1, ..., start + length - 1 of each.

    Args:
        starts: int64 [n].
        lengths: int64 [n].

    Returns:
        int64 [sum of lengths].
    """
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)


@dataclasses.dataclass(frozen=True)
class RowPlan:
    """The assignment of instances to rows.

    Attributes:
        instances: int64 [instances], indices of the instances, row by row.
        row_starts: int64 [rows + 1], index in `instances` of the start of each row.
    """

    instances: np.ndarray
    row_starts: np.ndarray

    def __len__(self) -> int:
        return len(self.row_starts) - 1

    def slice_rows(self, first: int, last: int) -> "RowPlan":
        """Return the rows from `first` to `last`, exclusive."""
        starts = self.row_starts[first : last + 1]
        return RowPlan(self.instances[starts[0] : starts[-1]], starts - starts[0])


def one_instance_per_row(instances: np.ndarray) -> RowPlan:
    """Return a plan with one instance per row, in the given order."""
    return RowPlan(instances, np.arange(len(instances) + 1))


@dataclasses.dataclass(frozen=True)
class Rows:
    """n rows of L positions, each with up to K instances.

    Attributes:
        input_ids: int32 [n, L].
        segment_ids: uint8 [n, L], 1 for B and its [SEP], 0 elsewhere.
        sequence_ids: uint8 [n, L], 1, 2, ... for the instances of a row, 0 for padding.
        lengths: int64 [n], positions before the padding.
        maskable: bool [n, L], False for special tokens and padding.
        instance_positions: int64 [n, K], position of [CLS] of each instance, padded with zeros.
        labels: uint8 [n, K], label of each instance, padded with zeros.
        filled: bool [n, K], False for padding of the two arrays above.
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
    """Return the rows of a plan.

    Args:
        token_ids: int32 [tokens], from `TokenizedDocuments`.
        instances: all instances.
        plan: assignment of instances to rows; every row has at least one instance and does not exceed row_length.
        row_length: number of positions L.
        instances_per_row: maximum number of instances K.
        vocab: vocabulary, for the ids of [CLS], [SEP] and [PAD].
    """
    rows = len(plan)
    chosen = plan.instances
    a_length = instances.a_length[chosen]  # [m]
    lengths = instances.lengths[chosen]  # [m]
    row = np.repeat(np.arange(rows), np.diff(plan.row_starts))  # [m]
    number = np.arange(len(chosen)) - plan.row_starts[row]  # [m], number within the row
    ends = np.concatenate([[0], np.cumsum(lengths)])  # [m + 1], without padding
    row_ends = ends[plan.row_starts]  # [n + 1]
    cls_position = ends[:-1] - row_ends[row]  # [m]
    start = row * row_length + cls_position  # [m], in the flattened rows
    separator_a, last = start + a_length + 1, start + lengths - 1
    padding = np.append(start[1:], rows * row_length) - last - 1  # [m], positions up to the next instance

    # All arrays are constant over long runs, so np.repeat builds them. The index of the token of a position is at a
    # constant distance within a run; special tokens and padding are overwritten afterwards.
    distance = np.stack([instances.a_start[chosen] - start - 1, instances.b_start[chosen] - separator_a - 1], axis=1)
    runs = np.stack([a_length + 2, last - separator_a + padding], axis=1)
    source = np.repeat(distance.ravel(), runs.ravel())
    source += np.arange(rows * row_length)
    input_ids = token_ids.take(source, mode="clip")
    runs = np.stack([lengths, padding], axis=1)
    sequences = np.stack([number + 1, np.zeros_like(number)], axis=1).astype(np.uint8)
    sequence_ids = np.repeat(sequences.ravel(), runs.ravel())
    runs = np.stack([a_length + 2, last - separator_a, padding], axis=1)
    segment_ids = np.repeat(np.tile(np.array([0, 1, 0], np.uint8), len(chosen)), runs.ravel())

    maskable = sequence_ids > 0
    # Three times as fast as np.where.
    input_ids -= vocab.pad_id
    input_ids *= maskable
    input_ids += vocab.pad_id
    for special, positions in ((vocab.cls_id, start), (vocab.sep_id, separator_a), (vocab.sep_id, last)):
        input_ids[positions] = special
        maskable[positions] = False

    shape = (rows, instances_per_row)
    instance_positions, labels, filled = np.zeros(shape, np.int64), np.zeros(shape, np.uint8), np.zeros(shape, bool)
    instance_positions[row, number] = cls_position
    labels[row, number] = instances.labels[chosen]
    filled[row, number] = True
    return Rows(
        input_ids=input_ids.reshape(rows, row_length),
        segment_ids=segment_ids.reshape(rows, row_length),
        sequence_ids=sequence_ids.reshape(rows, row_length),
        lengths=np.diff(row_ends),
        maskable=maskable.reshape(rows, row_length),
        instance_positions=instance_positions,
        labels=labels,
        filled=filled,
    )


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

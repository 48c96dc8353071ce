"""Encode texts and pairs of texts as rows of tokens in a batch (`convert_single_example` in run_classifier.py).

Letters in shapes: N rows, T tokens of all rows together.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from beambert.pipelines.instances.instances import ranges
from beambert.tokenizer.tokenizer import Tokenizer, truncated_lengths
from beambert.trainers.errors import TaskDataError


class TextRows(NamedTuple):
    """Rows as in `finetuning_task.Rows`, and which of them were truncated or have an empty text.

    Attributes:
        ids: int32 [T].
        segment_ids: int32 [T], 1 for the second text and its [SEP], else 0.
        row_splits: int64 [N + 1].
        truncated: bool [N].
        empty: bool [N], whether a text, or the second text of a pair, has no tokens.
    """

    ids: np.ndarray
    segment_ids: np.ndarray
    row_splits: np.ndarray
    truncated: np.ndarray
    empty: np.ndarray

    def by_row(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the ids and the segment ids of each row, N arrays each, int32 [S_i], without padding."""
        bounds = list(itertools.pairwise(self.row_splits.tolist()))
        ids, segment_ids = ([values[start:end] for start, end in bounds] for values in (self.ids, self.segment_ids))
        return ids, segment_ids


def encode_texts(
    texts: Sequence[str], pairs: Sequence[str | None] | None, tokenizer: Tokenizer, max_seq_length: int
) -> TextRows:
    """Encode every example as `Tokenizer.encode` does: [CLS] text [SEP], or [CLS] text [SEP] pair [SEP].

    A long text is truncated at its end. A long pair loses one token at a time from the longer text, or from the second
    text if both have the same length. A second text without remaining tokens has no [SEP].

    Args:
        texts: N first texts.
        pairs: N second texts, each None for a single text; None if all examples are single texts.
        tokenizer: tokenizer of the model.
        max_seq_length: maximum row length in tokens, including [CLS] and [SEP].

    Raises:
        TaskDataError: max_seq_length is too small for [CLS] and [SEP].
    """
    first_ids, first_splits = tokenizer.encode_batch(texts)
    second_ids, second_splits = tokenizer.encode_batch([pair or "" for pair in pairs or [""] * len(texts)])
    first, second = np.diff(first_splits), np.diff(second_splits)  # tokens of each text, [N]
    special = np.where(second > 0, 3, 2)
    room = max_seq_length - special
    if len(room) and room.min() < 0:
        raise TaskDataError(
            f"invalid --max_seq_length {max_seq_length}: must be at least {special.max()}, for [CLS] and [SEP]"
        )
    kept_first, kept_second = truncated_lengths(first, second, room)
    second_part = np.where(kept_second > 0, kept_second + 1, 0)  # with its [SEP]
    lengths = 2 + kept_first + second_part
    row_splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    starts = row_splits[:-1]
    vocabulary = tokenizer.vocabulary
    # All ids start as [SEP]; [CLS] and the tokens overwrite the others.
    ids = np.full(int(row_splits[-1]), vocabulary.sep_id, np.int32)
    ids[starts] = vocabulary.cls_id
    ids[ranges(starts + 1, kept_first)] = first_ids[ranges(first_splits[:-1], kept_first)]
    second_starts = starts + 2 + kept_first
    ids[ranges(second_starts, kept_second)] = second_ids[ranges(second_splits[:-1], kept_second)]
    segment_ids = np.zeros(len(ids), np.int32)
    segment_ids[ranges(second_starts, second_part)] = 1
    is_pair = np.array([pair is not None for pair in pairs], bool) if pairs else np.zeros(len(texts), bool)
    empty = (first == 0) | ((second == 0) & is_pair)
    return TextRows(ids, segment_ids, row_splits, first + second > room, empty)

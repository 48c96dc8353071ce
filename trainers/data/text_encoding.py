"""Encode texts and pairs of texts as rows of tokens (`convert_single_example` in run_classifier.py), and count [UNK].

Letters in shapes: N rows, T tokens of all rows together.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from beambert.common.command_line.flags import in_quotes
from beambert.pipelines.instances.instances import ranges
from beambert.tokenizer.tokenizer import Tokenizer, truncated_lengths
from beambert.trainers.errors import TaskDataError

# Fraction of the tokens above which to warn. Text of the vocabulary's language has less than 1 %.
_MOST_UNKNOWN = 0.05
# Texts searched for the example at a time.
_TEXTS_A_SEARCH = 256


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


class UnknownTokens:
    """Counts the tokens of rows and the [UNK] among them.

    Args:
        tokenizer: tokenizer of the rows.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens = self._unknown = 0
        self._texts: Iterable[str] = ()

    def add(self, rows: Sequence[np.ndarray], texts: Iterable[str]) -> None:
        """Count the tokens of rows.

        Args:
            rows: token ids, int [S_i] each; [CLS] and [SEP] are not counted.
            texts: the texts of the rows, which `warning` searches for an example.
        """
        vocabulary = self._tokenizer.vocabulary
        ids = np.concatenate([np.zeros(0, np.int32), *rows])
        unknown = int(np.count_nonzero(ids == vocabulary.unk_id))
        if unknown and not self._unknown:
            self._texts = texts
        self._unknown += unknown
        self._tokens += int(np.count_nonzero((ids != vocabulary.cls_id) & (ids != vocabulary.sep_id)))

    def warning(self, subject: str) -> str | None:
        """Return a warning with the share of [UNK], an example and the remedy; None where [UNK] are few.

        Args:
            subject: the texts, such as "the train split".
        """
        if self._unknown <= _MOST_UNKNOWN * self._tokens:
            return None
        return (
            f"{self._unknown / self._tokens:.1%} of the tokens of {subject} are [UNK]"
            f"{example_and_remedy(self._texts, self._tokenizer)}"
        )


def example_and_remedy(texts: Iterable[str], tokenizer: Tokenizer) -> str:
    """Return the end of a warning about [UNK]: the first such word of texts, the cause, and the remedy."""
    word = _first_unknown_word(texts, tokenizer)
    example = f", such as {in_quotes(word)}" if word else ""
    if word != word.lower() and not tokenizer.rules.do_lower_case and not tokenizer.vocabulary.has_capitals():
        return f"{example}: the vocabulary has no capital letters; use --do_lower_case true"
    return (
        f"{example}: the vocabulary lacks these words; use a model for the language of the text, or add words with "
        "beambert extend-vocab"
    )


def _first_unknown_word(texts: Iterable[str], tokenizer: Tokenizer) -> str:
    remaining = iter(texts)
    while chunk := list(itertools.islice(remaining, _TEXTS_A_SEARCH)):
        ids, row_splits, offsets = tokenizer.encode_batch_with_offsets(chunk)
        unknown = np.flatnonzero(ids == tokenizer.vocabulary.unk_id)
        if len(unknown):
            text = chunk[int(np.searchsorted(row_splits, unknown[0], side="right")) - 1]
            return text[slice(*offsets[unknown[0]].tolist())]
    return ""

"""Warn about texts with many [UNK] tokens, from which a model learns and predicts little."""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from beambert.common.command_line.flags import shortened
from beambert.tokenizer.tokenizer import Tokenizer

# Fraction of the tokens above which to warn. Text of the vocabulary's language has less than 1 %.
_MOST_UNKNOWN = 0.05
# Texts searched for the example at a time.
_TEXTS_A_SEARCH = 256


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
    example = f", such as {shortened(word)}" if word else ""
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

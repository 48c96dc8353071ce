"""Encode texts to token ids with offsets: the compiled encoder, its fallback in Python, and tokens kept whole.

The compiled encoder applies the rules of `normalization.py` and `wordpiece.py` in one pass over the text (`_native.c`).
"""

import itertools
import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from beambert.common.tokenizer_files import AddedToken
from beambert.common.word_rules import WordRules
from beambert.tokenizer.normalization import (
    normalize,
    normalize_with_sources,
    prepare_chunks,
    replace_character,
    split_words,
    split_words_with_sources,
)
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.tokenizer.wordpiece import CONTINUATION, UNKNOWN, split_word

try:
    import beambert.tokenizer._native as _native
except ImportError:  # Installed on a machine without a C compiler.
    _native = None  # type: ignore[assignment]

# About 50 MB. Four times as many make tokenization of running text a tenth faster.
MAX_CHUNKS = 250_000
MAX_CHUNK_CHARACTERS = 64

Encoded = tuple[np.ndarray, np.ndarray, np.ndarray | None]
# Unicode categories of the characters of words, besides all letters (L) and marks (M).
_WORD_CATEGORIES = ("Nd", "Nl", "Pc")
_JOINERS = "\u200c\u200d"


class PythonEncoder:
    """The encoder in pure Python: the same ids as the compiled encoder, several times slower.

    BERT's rules never depend on characters beyond whitespace, and most whitespace-separated chunks of a text repeat.
    Each distinct chunk is tokenized once and cached as the bytes of its int32 ids. The ids of a text are the joined
    bytes of its chunks, without a Python object per token.

    The caches hold the last `MAX_CHUNKS` chunks and as many words, of up to `MAX_CHUNK_CHARACTERS` characters.
    """

    def __init__(self, vocabulary: Vocabulary, rules: WordRules) -> None:
        self.ids = vocabulary.ids
        self.rules = rules
        self._longest_token = max(map(len, vocabulary.tokens))
        # A word occurs in several chunks, with different punctuation.
        self._word = lru_cache(MAX_CHUNKS)(self._encode_word)
        self._chunk = lru_cache(MAX_CHUNKS)(self._encode_chunk)

    def encode(self, texts: list[str], with_offsets: bool) -> Encoded:
        """Return ids (int32 [T]), row_splits (int64 [N + 1]) and offsets (int32 [T, 2], or None without offsets)."""
        if with_offsets:
            return self._encode_with_offsets(texts)
        chunked = prepare_chunks(texts, self.rules.tokenize_chinese_chars)
        encoded = [
            # Long chunks (links, text without spaces) rarely repeat.
            b"".join(
                self._chunk(chunk) if len(chunk) <= MAX_CHUNK_CHARACTERS else self._encode_chunk(chunk)
                for chunk in text.split()
            )
            for text in chunked
        ]
        row_splits = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=row_splits[1:])
        row_splits //= np.int32().itemsize
        return np.frombuffer(bytearray().join(encoded), np.int32), row_splits, None

    def _encode_chunk(self, chunk: str) -> bytes:
        """Return the bytes of the int32 ids of a part of a text without spaces."""
        words = split_words(chunk, self.rules)
        return b"".join(
            self._word(word) if len(word) <= MAX_CHUNK_CHARACTERS else self._encode_word(word) for word in words
        )

    def _encode_word(self, word: str) -> bytes:
        """Return the bytes of the int32 ids of a word."""
        return array("i", [self.ids[token] for token in split_word(word, self.ids, self._longest_token)]).tobytes()

    def _encode_with_offsets(self, texts: list[str]) -> Encoded:
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        row_splits = [0]
        for text in texts:
            for word, sources in split_words_with_sources(text, self.rules):
                start = 0
                for token in split_word(word, self.ids):
                    length = len(word) if token == UNKNOWN else len(token) - len(CONTINUATION) * (start > 0)
                    covered = sources[start : start + length]
                    end = max(covered) + 1
                    while end < len(text) and replace_character(ord(text[end]), self.rules)[1]:
                        end += 1
                    ids.append(self.ids[token])
                    offsets.append((min(covered), end))
                    start += length
            row_splits.append(len(ids))
        pairs = np.array(offsets, np.int32).reshape(-1, 2)
        return np.array(ids, np.int32), np.array(row_splits, np.int64), pairs


class Match(NamedTuple):
    """An occurrence of a token in a text: `text[start:end]`."""

    start: int
    end: int
    token: str


class AddedTokenFinder:
    """Find tokens in texts.

    Tokens that are not normalized are sought first, then the others in the normalized text between them. At each
    position the longest token is found.

    Args:
        tokens: The tokens.
        rules: Word rules, of which normalization applies all but the separation of punctuation.
    """

    def __init__(self, tokens: Sequence[AddedToken], rules: WordRules) -> None:
        self._rules = rules
        self._exact = _Pattern({token.content: token for token in tokens if not token.normalized})
        # The first of several tokens with the same normalized text; `tokenizers` finds a random one.
        normalized = (token for token in reversed(tokens) if token.normalized)
        by_text = {normalize(token.content, rules): token for token in normalized}
        self._normalized = _Pattern({text: token for text, token in by_text.items() if text})

    def find(self, text: str) -> list[Match]:
        """Return the occurrences of the tokens in a text, without overlaps, in the order of the text."""
        found = list(self._exact.find(text))
        if not self._normalized.tokens:
            return found
        ends = [0, *(match.end for match in found)]
        starts = [*(match.start for match in found), len(text)]
        between = (self._find_normalized(text, *gap) for gap in zip(ends, starts, strict=True))
        return sorted(itertools.chain(found, *between))

    def _find_normalized(self, text: str, start: int, end: int) -> Iterator[Match]:
        """Yield the occurrences of normalized tokens in a part of a text."""
        part = text[start:end]
        matches = list(self._normalized.find(normalize(part, self._rules)))
        if not matches:
            return
        _, sources = normalize_with_sources(part, self._rules)
        for match in matches:
            low, high = match.start, match.end
            # Of a character that becomes several, such as an ideograph with spaces, a token has all or none.
            while 0 < low < high and sources[low - 1] == sources[low]:
                low += 1
            while low < high < len(sources) and sources[high - 1] == sources[high]:
                high -= 1
            covered = sources[low:high]
            if not covered:
                continue
            first, after = min(covered), max(covered) + 1
            # Accents after the last character are part of it.
            while after < len(part) and replace_character(ord(part[after]), self._rules)[1]:
                after += 1
            yield Match(start + first, start + after, match.token)


class _Pattern:
    """A regular expression that matches the longest of several texts, each of which stands for a token."""

    def __init__(self, tokens: dict[str, AddedToken]) -> None:
        self.tokens = tokens
        self._pattern = re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))))

    def find(self, text: str) -> Iterator[Match]:
        """Yield the occurrences; a text that must be a word of its own and is not does not occur, nor one inside it."""
        for match in self._pattern.finditer(text) if self.tokens else ():
            token = self.tokens[match[0]]
            start, end = match.span()
            inside_word = (start > 0 and _is_of_word(text[start - 1])) or (end < len(text) and _is_of_word(text[end]))
            if not (token.single_word and inside_word):
                yield Match(start, end, token.content)


def _is_of_word(character: str) -> bool:
    """Return whether a character matches \\w of the regular expressions of Rust."""
    category = unicodedata.category(character)
    return category[0] in "LM" or category in _WORD_CATEGORIES or character in _JOINERS


class Encoder:
    """Encode texts for `Tokenizer`.

    Args:
        vocabulary: The vocabulary.
        rules: The rules that split text into words.
        kept_whole: The tokens that are kept whole, as `AddedVocabulary` of Hugging Face's `tokenizers` does.
        compiled: True for the compiled encoder, False for the Python encoder, None for the compiled one if available.

    Attributes:
        compiled: Whether the compiled encoder is used.

    Raises:
        ImportError: compiled is True and the compiled encoder is not built.
    """

    def __init__(
        self, vocabulary: Vocabulary, rules: WordRules, kept_whole: Sequence[AddedToken], compiled: bool | None
    ) -> None:
        self.compiled = _native is not None if compiled is None else compiled
        self._ids = vocabulary.ids
        self._finder = AddedTokenFinder(kept_whole, rules) if kept_whole else None
        self._encoder: Any
        if not self.compiled:
            self._encoder = PythonEncoder(vocabulary.wordpieces, rules)
        elif _native is None:
            raise ImportError(
                "beambert.tokenizer._native is not built; install a C compiler and reinstall beambert, or use "
                "compiled=False"
            )
        else:
            self._encoder = _native.Encoder(
                list(vocabulary.wordpieces.tokens),
                vocabulary.unk_id,
                partial(replace_character, rules=rules),
                partial(split_words_with_sources, rules=rules),
            )

    def encode(self, texts: Sequence[str], with_offsets: bool) -> Encoded:
        """Return ids (int32 [T]), row_splits (int64 [N + 1]) and offsets (int32 [T, 2], or None without offsets)."""
        if self._finder is None:
            return self._encode_texts(texts, with_offsets)
        return self._encode_around(self._finder, texts, with_offsets)

    def _encode_texts(self, texts: Sequence[str], with_offsets: bool) -> Encoded:
        ids, row_splits, offsets = self._encoder.encode(list(texts), with_offsets)
        pairs = np.frombuffer(offsets, np.int32).reshape(-1, 2) if with_offsets else None
        return np.frombuffer(ids, np.int32), np.frombuffer(row_splits, np.int64), pairs

    def _encode_around(self, finder: AddedTokenFinder, texts: Sequence[str], with_offsets: bool) -> Encoded:
        """Return the result of `encode` where tokens are kept whole: the text between them is encoded."""
        matches = [finder.find(text) for text in texts]
        starts = [[0, *(match.end for match in found)] for found in matches]  # of the parts of each text
        ends = [[*(match.start for match in found), len(text)] for found, text in zip(matches, texts, strict=True)]
        parts = [
            text[start:end]
            for text, *bounds in zip(texts, starts, ends, strict=True)
            for start, end in zip(*bounds, strict=True)
        ]
        kept_ids = [[self._ids[match.token] for match in found] for found in matches]
        part_ids, part_splits, part_offsets = self._encode_texts(parts, with_offsets)
        last_parts = np.cumsum([0, *(len(tokens) + 1 for tokens in kept_ids)])
        inserted = np.cumsum([0, *map(len, kept_ids)])
        row_splits = part_splits[last_parts] + inserted
        # A token that is kept whole follows every part except the last of a text.
        insert_positions = np.delete(part_splits[1:], last_parts[1:] - 1)
        ids = np.insert(part_ids, insert_positions, np.array([i for tokens in kept_ids for i in tokens], np.int32))
        if part_offsets is None:
            return ids, row_splits, None
        # Start of each part in its text, repeated for every token of the part.
        shifts = np.repeat(np.array(list(itertools.chain(*starts)), np.int32), np.diff(part_splits))
        offsets = part_offsets + shifts[:, None]
        kept_offsets = [(match.start, match.end) for found in matches for match in found]
        offsets = np.insert(offsets, insert_positions, np.array(kept_offsets, np.int32).reshape(-1, 2), axis=0)
        return ids, row_splits, offsets

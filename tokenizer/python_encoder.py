"""The fallback encoder in pure Python: the same ids as the compiled encoder, several times slower.

BERT's rules never depend on characters beyond whitespace, and most whitespace-separated chunks of a text repeat. Each
distinct chunk is tokenized once and cached as the bytes of its int32 ids. The ids of a text are the joined bytes of its
chunks, without a Python object per token.
"""

from array import array
from functools import lru_cache

import numpy as np

from beambert.common.word_rules import WordRules
from beambert.tokenizer.normalization import prepare_chunks, replace_character, split_words, split_words_with_sources
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.tokenizer.wordpiece import CONTINUATION, UNKNOWN, split_word

# About 50 MB. Four times as many make tokenization of running text a tenth faster.
MAX_CHUNKS = 250_000
MAX_CHUNK_CHARACTERS = 64

Encoded = tuple[np.ndarray, np.ndarray, np.ndarray | None]


class PythonEncoder:
    """Encode texts for `beambert.tokenizer.tokenizer.Tokenizer`, optionally with offsets.

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

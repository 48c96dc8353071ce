"""The encoder for machines without the compiled one: the same ids, in Python, a few times slower.

BERT's rules never look past whitespace, and text repeats itself: most chunks between two spaces were met before. So
each distinct chunk is split once and remembered as the bytes of its int32 ids; the ids of a text are the bytes of its
chunks joined, without a Python object a token.
"""

from array import array
from itertools import islice

import numpy as np

from tokenizer.normalization import prepare_chunks, replace_character, split_words, split_words_with_sources
from tokenizer.vocabulary import Vocabulary
from tokenizer.wordpiece import CONTINUATION, UNKNOWN, split_word

# Some 50 MB. Four times as many make running text a tenth faster.
MAX_CHUNKS = 250_000
MAX_CHUNK_CHARACTERS = 64

Encoded = tuple[np.ndarray, np.ndarray, np.ndarray | None]


class PythonEncoder:
    """Encode texts, with offsets if asked; see `tokenizer.tokenizer.Tokenizer`, which calls it.

    Not thread-safe. The memory holds at most `MAX_CHUNKS` chunks and as many words, none longer than
    `MAX_CHUNK_CHARACTERS`, plus those of one batch. It has no influence on results.
    """

    def __init__(self, vocabulary: Vocabulary, do_lower_case: bool) -> None:
        self.ids = vocabulary.ids
        self.do_lower_case = do_lower_case
        self.chunks = _Chunks(vocabulary, do_lower_case)

    def encode(self, texts: list[str], with_offsets: bool) -> Encoded:
        """Return int32 ids of all texts, int64 bounds of each text, and int32 (start, end) of each token or None."""
        if with_offsets:
            return self._encode_with_offsets(texts)
        ids_of_chunk = self.chunks.__getitem__
        encoded = [b"".join(map(ids_of_chunk, text.split())) for text in prepare_chunks(texts)]
        self.chunks.shrink()
        row_splits = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=row_splits[1:])
        row_splits //= np.int32().itemsize
        return np.frombuffer(bytearray().join(encoded), np.int32), row_splits, None

    def _encode_with_offsets(self, texts: list[str]) -> Encoded:
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        row_splits = [0]
        for text in texts:
            for word, sources in split_words_with_sources(text, self.do_lower_case):
                start = 0
                for token in split_word(word, self.ids):
                    length = len(word) if token == UNKNOWN else len(token) - len(CONTINUATION) * (start > 0)
                    covered = sources[start : start + length]
                    end = max(covered) + 1
                    while end < len(text) and replace_character(ord(text[end]), self.do_lower_case)[1]:
                        end += 1
                    ids.append(self.ids[token])
                    offsets.append((min(covered), end))
                    start += length
            row_splits.append(len(ids))
        pairs = np.array(offsets, np.int32).reshape(-1, 2)
        return np.array(ids, np.int32), np.array(row_splits, np.int64), pairs


class _Cache(dict[str, bytes]):
    """A cache from a chunk of text, or a word, to the bytes of its token ids (int32), computed on first use."""

    def shrink(self) -> None:
        """Drop the most recent entries where there are too many: what is frequent comes early."""
        if len(self) > MAX_CHUNKS:
            kept = dict(islice(self.items(), MAX_CHUNKS // 2))
            self.clear()
            self.update(kept)


class _Words(_Cache):
    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.ids = vocabulary.ids
        self.longest_token = max(map(len, vocabulary.tokens))

    def __missing__(self, word: str) -> bytes:
        tokens = split_word(word, self.ids, self.longest_token)
        encoded = array("i", [self.ids[token] for token in tokens]).tobytes()
        if len(word) <= MAX_CHUNK_CHARACTERS:
            self[word] = encoded
        return encoded


class _Chunks(_Cache):
    def __init__(self, vocabulary: Vocabulary, do_lower_case: bool) -> None:
        super().__init__()
        self.do_lower_case = do_lower_case
        # A word is met in several chunks, with one or another punctuation.
        self.words = _Words(vocabulary)

    def __missing__(self, chunk: str) -> bytes:
        encoded = b"".join(map(self.words.__getitem__, split_words(chunk, self.do_lower_case)))
        # Long chunks (links, text without spaces) hardly ever come again.
        if len(chunk) <= MAX_CHUNK_CHARACTERS:
            self[chunk] = encoded
        return encoded

    def shrink(self) -> None:
        super().shrink()
        self.words.shrink()

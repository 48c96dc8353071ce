"""Text to piece ids, exactly as google-research/bert's `FullTokenizer`, not much slower than splitting at whitespace.

BERT's rules never look past whitespace, and text repeats itself: most chunks between two spaces were met before. So
each distinct chunk is split once and remembered as the bytes of its int32 ids; the ids of a text are the bytes of its
chunks joined, without a Python object a token.
"""

from array import array
from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from tokenizer.normalization import prepare_chunks, split_words
from tokenizer.vocabulary import Vocabulary, VocabularyError
from tokenizer.wordpiece import CONTINUATION, split_word

# Some 50 MB. Four times as many make running text a tenth faster.
MAX_CHUNKS = 250_000
MAX_CHUNK_CHARACTERS = 64


class Tokenizer:
    """Splits texts into the pieces of a vocabulary.

    Not thread-safe: give each thread its own. Pickles without its memory of chunks.

    The memory holds at most `MAX_CHUNKS` chunks and as many words, none longer than `MAX_CHUNK_CHARACTERS`, plus those
    of one batch. It has no influence on results.

    Args:
        vocabulary: the pieces.
        do_lower_case: True for uncased models: lower-case and strip accents.
    """

    def __init__(self, vocabulary: Vocabulary, do_lower_case: bool = True) -> None:
        self.vocabulary = vocabulary
        self.do_lower_case = do_lower_case
        self._chunks = _Chunks(vocabulary, do_lower_case)

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[Vocabulary, bool]]:
        return Tokenizer, (self.vocabulary, self.do_lower_case)

    def tokenize(self, text: str) -> list[str]:
        """The pieces of a text, "[UNK]" for a word that cannot be spelt; no [CLS] or [SEP] is added."""
        piece_ids, _ = self.encode_batch([text])
        return [self.vocabulary.pieces[piece_id] for piece_id in piece_ids]

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The piece ids of N texts, without [CLS] and [SEP]; fastest with some thousands of texts at a time.

        Returns:
            ids: int32 [T], the ids of all texts, one text after the other.
            row_splits: int64 [N + 1]; text i has the ids `ids[row_splits[i]:row_splits[i + 1]]`.

        Raises:
            TypeError: texts is one string instead of a sequence of them.
        """
        if isinstance(texts, str):
            raise TypeError("encode_batch takes a sequence of texts; put the one text into a list")
        ids_of_chunk = self._chunks.__getitem__
        encoded = [b"".join(map(ids_of_chunk, text.split())) for text in prepare_chunks(texts)]
        self._chunks.shrink()
        row_splits = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=row_splits[1:])
        return np.frombuffer(bytearray().join(encoded), np.int32), row_splits // np.int32().itemsize

    def encode(
        self, text: str, pair: str | None = None, max_seq_length: int = 512
    ) -> tuple[list[int], list[int], list[int]]:
        """One text, or a pair of texts, as a model input: [CLS] text [SEP], or [CLS] text [SEP] pair [SEP].

        What is too long is cut at the end, of a pair one piece at a time from the longer text, from `pair` if both
        are as long. A pair without pieces, or with none left, has no [SEP]. Follows `convert_single_example` in
        google-research/bert, run_classifier.py.

        Returns:
            input_ids, input_mask (1 for a piece, 0 for padding) and segment_ids (1 for `pair` and its [SEP]), each of
            max_seq_length integers.

        Raises:
            ValueError: max_seq_length leaves no room for [CLS] and [SEP].
        """
        ids, splits = self.encode_batch([text] if pair is None else [text, pair])
        first, second = ids[: splits[1]].tolist(), ids[splits[1] :].tolist()
        special = 3 if second else 2
        room = max_seq_length - special
        if room < 0:
            raise ValueError(f"max_seq_length {max_seq_length} has no room for [CLS] and [SEP]; use {special} or more")
        while len(first) + len(second) > room:
            (first if len(first) > len(second) else second).pop()
        vocabulary = self.vocabulary
        input_ids = [vocabulary.cls_id, *first, vocabulary.sep_id]
        segment_ids = [0] * len(input_ids)
        if second:
            input_ids += [*second, vocabulary.sep_id]
            segment_ids += [1] * (len(second) + 1)
        input_mask = [1] * len(input_ids)
        padding = max_seq_length - len(input_ids)
        return input_ids + [vocabulary.pad_id] * padding, input_mask + [0] * padding, segment_ids + [0] * padding

    def decode(self, ids: Iterable[int]) -> str:
        """The pieces joined to words, a space between two words; special tokens are shown.

        What normalisation took away (case, accents, where the spaces were) does not come back.

        Raises:
            VocabularyError: an id outside the vocabulary.
        """
        pieces = []
        for piece_id in ids:
            if not 0 <= piece_id < len(self.vocabulary):
                raise VocabularyError(
                    f"id {piece_id} is not in {self.vocabulary.origin}, which has {len(self.vocabulary)} pieces; "
                    "use the vocabulary that made the ids"
                )
            pieces.append(self.vocabulary.pieces[piece_id])
        return " ".join(pieces).replace(f" {CONTINUATION}", "")


class _Memory(dict[str, bytes]):
    """From a chunk of text, or a word, to the bytes of its piece ids (int32), worked out when it is first met."""

    def shrink(self) -> None:
        """Forgets what was met last if there is too much: what is frequent is met early."""
        if len(self) > MAX_CHUNKS:
            kept = dict(islice(self.items(), MAX_CHUNKS // 2))
            self.clear()
            self.update(kept)


class _Words(_Memory):
    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.ids = vocabulary.ids
        self.longest_piece = max(map(len, vocabulary.pieces))

    def __missing__(self, word: str) -> bytes:
        pieces = split_word(word, self.ids, self.longest_piece)
        encoded = array("i", [self.ids[piece] for piece in pieces]).tobytes()
        if len(word) <= MAX_CHUNK_CHARACTERS:
            self[word] = encoded
        return encoded


class _Chunks(_Memory):
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

"""Convert text to token ids exactly as google-research/bert's `FullTokenizer`, with offsets into the text.

`normalization.py` and `wordpiece.py` implement the published rules. The compiled encoder applies them in one pass over
the text (`_native.c`); an encoder in Python takes its place where it is not compiled.
"""

import itertools
import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
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
from beambert.tokenizer.vocabulary import VOCABULARY_FILE_NAMES, Vocabulary, VocabularyError, rules_beside
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


class Tokenizer:
    """Tokenize text with a WordPiece vocabulary, as google-research/bert's `FullTokenizer` does.

    The added tokens of the vocabulary are kept whole, as in Hugging Face tokenizers.

    A tokenizer is not thread-safe: use one per thread. Its pickle holds the vocabulary and the options only.

    Args:
        vocabulary: The vocabulary.
        do_lower_case: Whether to lower-case text, as uncased models require.
        never_split: Tokens such as "[MASK]" that are kept whole wherever they occur in a text, with or without spaces
            around them, in addition to the added tokens of the vocabulary. By default such tokens are split like other
            text, as in google-research/bert.
        compiled: True for the compiled encoder, False for the Python encoder, None for the compiled one if available.
        strip_accents: Whether to strip accents. None: if text is lower-cased, as in google-research/bert.
        tokenize_chinese_chars: Whether each CJK ideograph is a word. False for text that is segmented into words by
            spaces.

    Raises:
        VocabularyError: A token of never_split is not in the vocabulary.
        ImportError: compiled is True and the compiled encoder is not built.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        do_lower_case: bool = True,
        never_split: Sequence[str] = (),
        compiled: bool | None = None,
        *,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
    ) -> None:
        for token in never_split:
            if token not in vocabulary.ids:
                raise VocabularyError(f"invalid never_split token {token!r}: it is not in {vocabulary.origin}")
        self.vocabulary = vocabulary
        self.rules = WordRules(do_lower_case, strip_accents, tokenize_chinese_chars)
        self.never_split = tuple(never_split)
        kept_whole = [*vocabulary.added_tokens, *(AddedToken(token, normalized=False) for token in never_split)]
        self._encoder = Encoder(vocabulary, self.rules, kept_whole, compiled)
        self.compiled = self._encoder.compiled

    @classmethod
    def load(
        cls,
        path: str | Path,
        do_lower_case: bool | None = None,
        never_split: Sequence[str] = (),
        *,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool | None = None,
    ) -> "Tokenizer":
        """Load the tokenizer of a released or trained model.

        Rules that are None are those recorded in the directory of the vocabulary: in beambert.json, dataset.json or
        corpus.json, or in tokenizer_config.json and tokenizer.json (Hugging Face). Without a record, text is
        lower-cased unless a token of the vocabulary contains a capital letter.

        Args:
            path: A vocab.txt or tokenizer.json, or a directory that contains one: an unpacked TF1 release, a Hugging
                Face model, or an output directory of `beambert`. If both files exist, vocab.txt is used.
            do_lower_case, strip_accents, tokenize_chinese_chars: Rules as for `Tokenizer`.
            never_split: Further tokens that are kept whole; see `Tokenizer`.

        Returns:
            The tokenizer.

        Raises:
            VocabularyError: The vocabulary is missing or invalid.
        """
        path = Path(path)
        if path.is_dir():
            paths = [path / name for name in VOCABULARY_FILE_NAMES if (path / name).is_file()]
            if not paths:
                names = " or ".join(VOCABULARY_FILE_NAMES)
                raise VocabularyError(f"{path} contains no {names}; give a BERT model's directory or vocabulary")
            path = paths[0]
        vocabulary = Vocabulary.load(path)
        recorded = rules_beside(path)
        lower = recorded.do_lower_case if do_lower_case is None else do_lower_case
        chinese = recorded.tokenize_chinese_chars if tokenize_chinese_chars is None else tokenize_chinese_chars
        return cls(
            vocabulary,
            not vocabulary.has_capitals() if lower is None else lower,
            never_split,
            strip_accents=recorded.strip_accents if strip_accents is None else strip_accents,
            tokenize_chinese_chars=chinese,
        )

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        # Without `compiled`: the machine that unpickles may not have the same encoder.
        return partial(Tokenizer, never_split=self.never_split, **asdict(self.rules)), (self.vocabulary,)

    @property
    def keeps_tokens(self) -> bool:
        """Return whether tokens are kept whole, so that a token may have several words."""
        return bool(self.vocabulary.added_tokens or self.never_split)

    def tokenize(self, text: str) -> list[str]:
        """Return the tokens of a text, without [CLS] and [SEP].

        Args:
            text: The text.

        Returns:
            The tokens. A word that the vocabulary cannot represent becomes "[UNK]".
        """
        token_ids, _ = self.encode_batch([text])
        return [self.vocabulary.tokens[token_id] for token_id in token_ids]

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of N texts as a ragged array, without [CLS] and [SEP].

        Batches of several thousand texts are fastest.

        Args:
            texts: The texts, length N.

        Returns:
            A tuple of two arrays.

            - `ids`: int32 [T], the token ids of all texts, concatenated.
            - `row_splits`: int64 [N + 1]; the ids of text i are `ids[row_splits[i]:row_splits[i + 1]]`.

        Raises:
            TypeError: texts is a single string.
        """
        ids, row_splits, _ = self._encode(texts, with_offsets=False)
        return ids, row_splits

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the token ids of N texts and the offsets of each token in its text.

        `text[start:end]` is the source of a token, before lower-casing and accent stripping. It includes characters
        inside the token that normalization removes, and accents after its last character. The offsets of "[UNK]" cover
        the whole word. Two tokens overlap if one character decomposes into both, such as a Hangul syllable.

        Args:
            texts: The texts, length N.

        Returns:
            A tuple of three arrays.

            - `ids`: int32 [T], as from `encode_batch`.
            - `row_splits`: int64 [N + 1], as from `encode_batch`.
            - `offsets`: int32 [T, 2], start and end of each token in its text, in characters (code points).

        Raises:
            TypeError: texts is a single string.
        """
        ids, row_splits, offsets = self._encode(texts, with_offsets=True)
        assert offsets is not None
        return ids, row_splits, offsets

    def _encode(self, texts: Sequence[str], with_offsets: bool) -> Encoded:
        if isinstance(texts, str):
            raise TypeError("texts must be a sequence of str, not one str; use [text]")
        return self._encoder.encode(texts, with_offsets)

    def align_words(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of a text given as words and the first token of each word, for word labeling tasks.

        This is the `orig_to_tok_map` of the README of google-research/bert, without [CLS] and [SEP].

        Args:
            words: The words, length W.

        Returns:
            A tuple of two arrays.

            - `ids`: int32 [T], the token ids of all words, concatenated.
            - `orig_to_tok_map`: int64 [W], the index in `ids` of the first token of each word, or -1 if normalization
              removes the whole word (a lone control character or accent).

        Raises:
            TypeError: words is a single string.
        """
        ids, row_splits = self.encode_batch(words)
        return ids, np.where(row_splits[1:] > row_splits[:-1], row_splits[:-1], -1)

    def encode(
        self, text: str, pair: str | None = None, max_seq_length: int = 512
    ) -> tuple[list[int], list[int], list[int]]:
        """Return one text or text pair as a model input: [CLS] text [SEP], or [CLS] text [SEP] pair [SEP].

        A long text is truncated at its end. A long pair loses one token at a time from the longer text, from `pair` if
        both are equally long. A `pair` without tokens has no [SEP]. This is `convert_single_example` of
        google-research/bert, run_classifier.py.

        Args:
            text: The first text.
            pair: The second text, or None for a single text.
            max_seq_length: Number of positions, including [CLS], [SEP] and padding.

        Returns:
            A tuple of three lists of max_seq_length integers.

            - `input_ids`: token ids, padded with [PAD].
            - `input_mask`: 1 for a token, 0 for padding.
            - `segment_ids`: 1 for the tokens of `pair` and its [SEP], 0 elsewhere.

        Raises:
            ValueError: max_seq_length is too small for [CLS] and [SEP].
        """
        ids, splits = self.encode_batch([text] if pair is None else [text, pair])
        first, second = ids[: splits[1]].tolist(), ids[splits[1] :].tolist()
        special = 3 if second else 2
        room = max_seq_length - special
        if room < 0:
            raise ValueError(f"invalid max_seq_length {max_seq_length}: must be at least {special} ([CLS] and [SEP])")
        kept_first, kept_second = truncated_lengths(len(first), len(second), room)
        first, second = first[:kept_first], second[:kept_second]
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
        """Return the text of token ids: words separated by one space, special tokens included.

        Case, accents and the original spacing cannot be restored once normalization has removed them.

        Args:
            ids: Token ids.

        Returns:
            The text.

        Raises:
            VocabularyError: An id is outside the vocabulary.
        """
        tokens = []
        for token_id in ids:
            if not 0 <= token_id < len(self.vocabulary):
                raise VocabularyError(
                    f"invalid token id {token_id}: {self.vocabulary.origin} has {len(self.vocabulary)} tokens; "
                    "use the vocabulary that encoded the text"
                )
            tokens.append(self.vocabulary.tokens[token_id])
        return " ".join(tokens).replace(f" {CONTINUATION}", "")


def truncated_lengths(
    first: np.ndarray | int, second: np.ndarray | int, room: np.ndarray | int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths of text pairs after truncation, as google-research/bert truncates them.

    `_truncate_seq_pair` of run_classifier.py and `truncate_seq_pair` of create_pretraining_data.py remove one token at
    a time from the longer text, or from the second if both are equally long. So either the shorter text is kept whole,
    or both get half of the room, the first one more token if it is odd.

    Args:
        first: Tokens of the first texts: int64 [n] or one number.
        second: Tokens of the second texts: int64 [n] or one number.
        room: Maximum tokens of a pair, at least 0: int64 [n] or one number.

    Returns:
        Lengths of the first and of the second texts: int64 [n] or one number each.
    """
    kept_second = np.minimum(second, np.maximum(room - first, room // 2))
    return np.minimum(first, room - kept_second), kept_second

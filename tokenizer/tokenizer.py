"""Convert text to token ids exactly as google-research/bert's `FullTokenizer`, with offsets into the text.

`normalization.py` and `wordpiece.py` implement the published rules, and `encoder.py` applies them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from beambert.common.tokenizer_files import AddedToken
from beambert.common.word_rules import WordRules
from beambert.tokenizer.encoder import Encoded, Encoder
from beambert.tokenizer.vocabulary import VOCABULARY_FILE_NAMES, Vocabulary, VocabularyError, rules_beside
from beambert.tokenizer.wordpiece import CONTINUATION


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

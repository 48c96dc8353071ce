"""Text to token ids, exactly as google-research/bert's `FullTokenizer`, and back to the places in the text.

The rules stand in `normalization.py` and `wordpiece.py` as they are published. Here they run in one compiled pass over
the text (`_native.c`), or, where that was not built, by a memory of chunks in Python (`python_encoder.py`); the results
are the same.
"""

import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tokenizer.normalization import replace_character, split_words_with_sources
from tokenizer.pair_truncation import truncated_lengths
from tokenizer.python_encoder import PythonEncoder
from tokenizer.vocabulary import Vocabulary, VocabularyError
from tokenizer.wordpiece import CONTINUATION

try:
    import tokenizer._native as _native
except ImportError:  # Installed on a machine without a C compiler.
    _native = None  # type: ignore[assignment]

VOCABULARY_FILE_NAME = "vocab.txt"
TOKENIZER_JSON_FILE_NAME = "tokenizer.json"
TOKENIZER_CONFIG_FILE_NAME = "tokenizer_config.json"


class Tokenizer:
    """Split texts into the tokens of a vocabulary.

    Not thread-safe: give each thread its own. Pickles small.

    Args:
        vocabulary: the tokens.
        do_lower_case: True for uncased models: lower-case and strip accents.
        never_split: tokens such as "[MASK]" that stand for themselves where they are written in a text, as if with
            spaces around them. The released tokenizer splits them like other text, and so does this one by default.
        compiled: which encoder to run: the compiled one (True), the Python one (False), the faster that there is
            (None).

    Raises:
        VocabularyError: a token of never_split is not in the vocabulary.
        ImportError: compiled is True where the compiled encoder was not built.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        do_lower_case: bool = True,
        never_split: Sequence[str] = (),
        compiled: bool | None = None,
    ) -> None:
        for token in never_split:
            if token not in vocabulary.ids:
                raise VocabularyError(f"never_split names {token!r}, which {vocabulary.origin} does not have")
        self.vocabulary = vocabulary
        self.do_lower_case = do_lower_case
        self.never_split = tuple(never_split)
        self.compiled = _native is not None if compiled is None else compiled
        # Longer ones first, so that one which starts like another is found.
        self._whole = re.compile("(" + "|".join(map(re.escape, sorted(never_split, reverse=True))) + ")")
        self._encoder: Any
        if not self.compiled:
            self._encoder = PythonEncoder(vocabulary, do_lower_case)
        elif _native is None:
            raise ImportError("tokenizer._native was not built; install a C compiler, then beambert again")
        else:
            self._encoder = _native.Encoder(
                list(vocabulary.tokens),
                vocabulary.unk_id,
                partial(replace_character, do_lower_case=do_lower_case),
                partial(split_words_with_sources, do_lower_case=do_lower_case),
            )

    @classmethod
    def load(cls, path: str | Path, do_lower_case: bool | None = None, never_split: Sequence[str] = ()) -> "Tokenizer":
        """Return the tokenizer of a released or trained model.

        Args:
            path: a vocab.txt, or the directory that holds it: an unpacked TF1 release, a Hugging Face model, what
                `beambert` wrote. A directory without one may have Hugging Face's tokenizer.json.
            do_lower_case: None finds out: from tokenizer_config.json beside the vocabulary (Hugging Face), else the
                text is lower-cased unless a token of the vocabulary has a capital letter.
            never_split: see `Tokenizer`.

        Raises:
            VocabularyError: no vocabulary there, or one that cannot be used.
        """
        path = Path(path)
        if path.is_dir():
            names = (VOCABULARY_FILE_NAME, TOKENIZER_JSON_FILE_NAME)
            paths = [path / name for name in names if (path / name).is_file()]
            if not paths:
                raise VocabularyError(f"{path} has no {' and no '.join(names)}; name a BERT model's directory or file")
            path = paths[0]
        vocabulary = Vocabulary.load(path)
        if do_lower_case is None:
            do_lower_case = _configured_lower_case(path.with_name(TOKENIZER_CONFIG_FILE_NAME))
        if do_lower_case is None:
            do_lower_case = not vocabulary.has_capitals()
        return cls(vocabulary, do_lower_case, never_split)

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[Any, ...]]:
        # Not which encoder runs here: the other machine may have another.
        return Tokenizer, (self.vocabulary, self.do_lower_case, self.never_split)

    def tokenize(self, text: str) -> list[str]:
        """Return the tokens of a text, "[UNK]" for a word that cannot be spelled; no [CLS] or [SEP] is added."""
        token_ids, _ = self.encode_batch([text])
        return [self.vocabulary.tokens[token_id] for token_id in token_ids]

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of many texts, without [CLS] and [SEP]; fastest with some thousands of texts at a time.

        Returns:
            ids: int32 [T], the ids of all texts, one text after the other.
            row_splits: int64 [N + 1]; text i has the ids `ids[row_splits[i]:row_splits[i + 1]]`.

        Raises:
            TypeError: texts is one string instead of a sequence of them.
        """
        ids, row_splits, _ = self._encode(texts, with_offsets=False)
        return ids, row_splits

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the ids of many texts, and the place of each token in its text.

        `text[start:end]` is what a token was made from: with its capitals and accents, and with characters inside that
        are not in the token because the rules remove them. Accents that follow are the last character's; "[UNK]" has
        the whole word. Two tokens share a character that decomposes and falls apart, such as a Hangul syllable.

        Returns:
            ids, row_splits: as `encode_batch` returns them.
            offsets: int32 [T, 2], start and end of each token in its text, in characters (code points).

        Raises:
            TypeError: texts is one string instead of a sequence of them.
        """
        ids, row_splits, offsets = self._encode(texts, with_offsets=True)
        assert offsets is not None
        return ids, row_splits, offsets

    def _encode(self, texts: Sequence[str], with_offsets: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        if isinstance(texts, str):
            raise TypeError("encode_batch takes a sequence of texts; put the one text into a list")
        if self.never_split:
            return self._encode_around_whole_tokens(texts, with_offsets)
        encoded = self._encoder.encode(list(texts), with_offsets)
        offsets = np.frombuffer(encoded[2], np.int32).reshape(-1, 2) if with_offsets else None
        return np.frombuffer(encoded[0], np.int32), np.frombuffer(encoded[1], np.int64), offsets

    def _encode_around_whole_tokens(
        self, texts: Sequence[str], with_offsets: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        # Of each text: what stands before the first whole token, that token, what stands between, ...
        split = [self._whole.split(text) for text in texts]
        parts = [part for tokens in split for part in tokens[::2]]
        whole = [[self.vocabulary.ids[token] for token in tokens[1::2]] for tokens in split]
        encoded = self._encoder.encode(parts, with_offsets)
        part_splits = np.frombuffer(encoded[1], np.int64)
        last_parts = np.cumsum([0, *(len(tokens) + 1 for tokens in whole)])
        inserted = np.cumsum([0, *map(len, whole)])
        row_splits = part_splits[last_parts] + inserted
        # After every part but a text's last.
        places = np.delete(part_splits[1:], last_parts[1:] - 1)
        ids = np.insert(
            np.frombuffer(encoded[0], np.int32), places, np.array([i for tokens in whole for i in tokens], np.int32)
        )
        if not with_offsets:
            return ids, row_splits, None
        starts = [np.cumsum([0, *map(len, tokens)]) for tokens in split]
        # Where each part starts in its text, once for every token of it.
        part_starts = np.array([place for start in starts for place in start[:-1:2]], np.int32)
        shifts = np.repeat(part_starts, np.diff(part_splits))
        offsets = np.frombuffer(encoded[2], np.int32).reshape(-1, 2) + shifts[:, None]
        bounds = [pair for start in starts for pair in zip(start[1:-1:2], start[2:-1:2], strict=True)]
        offsets = np.insert(offsets, places, np.array(bounds, np.int32).reshape(-1, 2), axis=0)
        return ids, row_splits, offsets

    def align_words(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of a text given as words, and the first token of each, for tasks that label words.

        Follows the recipe for `orig_to_tok_map` in the README of google-research/bert, without [CLS] and [SEP].

        Returns:
            ids: int32 [T].
            orig_to_tok_map: int64 [W], place in ids of the first token of each word; -1 for a word of which the rules
                leave nothing (a lone control character or accent).
        """
        ids, row_splits = self.encode_batch(words)
        return ids, np.where(row_splits[1:] > row_splits[:-1], row_splits[:-1], -1)

    def encode(
        self, text: str, pair: str | None = None, max_seq_length: int = 512
    ) -> tuple[list[int], list[int], list[int]]:
        """Return one text, or a pair of texts, as a model input: [CLS] text [SEP], or [CLS] text [SEP] pair [SEP].

        A text that is too long is cut at its end. A pair loses one token at a time from the longer text, from `pair` if
        both are equally long. A pair without tokens, or with none left, has no [SEP]. Follows `convert_single_example`
        in google-research/bert, run_classifier.py.

        Returns:
            input_ids, input_mask (1 for a token, 0 for padding) and segment_ids (1 for `pair` and its [SEP]), each of
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
        """Return the tokens joined to words, a space between two words; special tokens are shown.

        What normalization took away (case, accents, where the spaces were) does not come back.

        Raises:
            VocabularyError: an id outside the vocabulary.
        """
        tokens = []
        for token_id in ids:
            if not 0 <= token_id < len(self.vocabulary):
                raise VocabularyError(
                    f"id {token_id} is not in {self.vocabulary.origin}, which has {len(self.vocabulary)} pieces; "
                    "use the vocabulary that made the ids"
                )
            tokens.append(self.vocabulary.tokens[token_id])
        return " ".join(tokens).replace(f" {CONTINUATION}", "")


def _configured_lower_case(path: Path) -> bool | None:
    # Imported where it is needed: a tokenizer without such a file is ready sooner.
    from beambert_common.typed_json import JsonError, convert, read

    try:
        content = read(path, dict[str, Any])
        return convert(content.get("do_lower_case"), bool | None, "do_lower_case")  # type: ignore[arg-type]
    except FileNotFoundError:
        return None
    except JsonError as error:
        raise VocabularyError(f"{path}: {error}; correct it or say do_lower_case") from error

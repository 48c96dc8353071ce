"""The vocabulary file: one token per line; the line number, starting at 0, is the token id.

The files beside it record added tokens and the rules that split text into words.
"""

import codecs
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Required, TypedDict

import numpy as np

from beambert.common.local_files import read_small
from beambert.common.tokenizer_files import TOKENIZER_JSON_FILE_NAME, AddedToken, read_added_tokens, read_rules
from beambert.common.typed_json import JsonError, convert, decode, read, shorten
from beambert.common.word_rules import RecordedRules
from beambert.tokenizer.wordpiece import CONTINUATION

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Placeholders for personal data. A vocabulary that has one keeps it whole: no text is split into such a token.
PLACEHOLDER_TOKENS = ("[EMAIL]", "[IBAN]", "[CARD]", "[IP]", "[PHONE]")
VOCABULARY_FILE_NAMES = ("vocab.txt", TOKENIZER_JSON_FILE_NAME)
_RESERVED = re.compile(r"\[unused\d+\]")
# Files of beambert in a directory with a vocab.txt, and the field that contains the rules ("": the file itself).
_RECORDS = {"beambert.json": "", "dataset.json": "", "corpus.json": "options"}


class VocabularyError(ValueError):
    """A vocabulary that cannot be read, used or learned. The message is one line and states what to do."""


class _Model(TypedDict, total=False):
    type: Required[str]
    continuing_subword_prefix: str | None
    vocab: Any


class _AddedToken(TypedDict):
    id: int
    content: str


class TokenizerJson(TypedDict, total=False):
    """The fields of a Hugging Face `tokenizer.json` that `Vocabulary` reads."""

    model: Required[_Model]
    added_tokens: list[_AddedToken]


@dataclass(frozen=True)
class Vocabulary:
    """An immutable WordPiece vocabulary; vocabularies with the same tokens are equal.

    Attributes:
        tokens: The tokens in id order. Tokens that continue a word start with "##".
        origin: The file name, for messages.
        added_tokens: Those of the tokens that a tokenizer keeps whole where a text contains them. In a vocab.txt
            without a record beside it, these are its `PLACEHOLDER_TOKENS`.
        learned_with: Options with which `LearnWordPieceVocabulary` learned it; {} if unknown.

    Raises:
        VocabularyError: A token occurs twice, or one of `SPECIAL_TOKENS` is missing.
    """

    tokens: tuple[str, ...] = field(repr=False)
    origin: str = field(default="vocabulary", compare=False)
    added_tokens: tuple[AddedToken, ...] = ()
    learned_with: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.ids) < len(self.tokens):
            first: dict[str, int] = {}
            for number, token in enumerate(self.tokens, start=1):
                if first.setdefault(token, number) < number:
                    raise VocabularyError(
                        f"{self.origin}: line {number} repeats token {token!r} of line {first[token]}; restore the "
                        "file from its source, or remove the line if no model was trained with this vocabulary"
                    )
        missing = [token for token in SPECIAL_TOKENS if token not in self.ids]
        if missing:
            raise VocabularyError(
                f"{self.origin}: missing special tokens {', '.join(missing)} ({len(self.tokens)} tokens); give the "
                "vocab.txt of a BERT model, one token per line, or learn a vocabulary with `beambert build`"
            )

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Load a local vocabulary file, with the added tokens of its directory (see `read_added_tokens`).

        Args:
            path: A tokenizer.json if the name ends in ".json" (see `from_tokenizer_json`), else a vocab.txt
                (see `from_bytes`). Added tokens are read beside files of these two names only.

        Returns:
            The vocabulary.

        Raises:
            VocabularyError: A file cannot be read or is invalid.
        """
        path = Path(path)
        try:
            data = read_small(path)
        except OSError as error:
            raise VocabularyError(f"{path}: {error.strerror}; give a vocabulary file with --vocab_file") from error
        is_json = str(path).endswith(".json")
        vocabulary = cls.from_tokenizer_json(data, str(path)) if is_json else cls.from_bytes(data, str(path))
        if path.name not in VOCABULARY_FILE_NAMES:
            return vocabulary
        try:
            return vocabulary._with_recorded_tokens(read_added_tokens(path.parent))
        except JsonError as error:
            raise VocabularyError(f"{error}; correct the file, or copy it again from its source") from error

    @classmethod
    def from_tokenizer_json(cls, data: bytes, origin: str) -> "Vocabulary":
        """Return the vocabulary of a `tokenizer.json`, as saved by Hugging Face's `tokenizers`.

        Added tokens are included.

        Args:
            data: Content of the file.
            origin: File name for messages.

        Returns:
            The vocabulary.

        Raises:
            VocabularyError: The file is invalid, the tokenizer is not a WordPiece model, or the ids are not consecutive
                from 0.
        """
        try:
            content = decode(data, TokenizerJson)
            model = content["model"]
            if model["type"] != "WordPiece" or model.get("continuing_subword_prefix") != CONTINUATION:
                raise VocabularyError(
                    f"{origin}: a {shorten(model['type'])} tokenizer, not a WordPiece tokenizer with the prefix ##; "
                    "give the tokenizer.json of a BERT model"
                )
            ids = convert(model.get("vocab"), dict[str, int], "model.vocab")
        except JsonError as error:
            raise VocabularyError(f"{origin}: {error}; give the vocab.txt of a BERT model") from error
        ids.update((added["content"], added["id"]) for added in content.get("added_tokens", ()))
        tokens = sorted(ids, key=lambda token: ids[token])
        if [ids[token] for token in tokens] != list(range(len(tokens))):
            raise VocabularyError(
                f"{origin}: the token ids are not consecutive from 0; give the vocab.txt of a BERT model"
            )
        return cls(tuple(tokens), origin)._with_text()

    @classmethod
    def from_bytes(cls, data: bytes, origin: str) -> "Vocabulary":
        """Return the vocabulary of a `vocab.txt`.

        Silently removes a byte order mark, CRLF line ends, blank lines at the end of the file, and spaces and tabs
        around a token (`load_vocab` of google-research/bert strips these too).

        Args:
            data: Content of the file: UTF-8, one token per line.
            origin: File name for messages.

        Returns:
            The vocabulary.

        Raises:
            VocabularyError: The file is not UTF-8, a line before the last token is blank, a token occurs twice, a
                special token is missing, or there are only special tokens.
        """
        data = data.removeprefix(codecs.BOM_UTF8)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise VocabularyError(f"{origin}: line {line} is not UTF-8; convert the file to UTF-8") from error
        # str.splitlines would also break at characters that may be tokens, such as U+2028.
        tokens = [line.strip(" \t\r") for line in text.split("\n")]
        while tokens and not tokens[-1]:
            tokens.pop()
        if "" in tokens:
            raise VocabularyError(
                f"{origin}: line {tokens.index('') + 1} is blank, which shifts all token ids after it; restore the "
                "file from its source, or remove the line if no model was trained with this vocabulary"
            )
        return cls.of_tokens(tokens, origin)._with_text()

    @classmethod
    def of_tokens(cls, tokens: Iterable[str], origin: str = "vocabulary") -> "Vocabulary":
        """Return the vocabulary of tokens in id order, which keeps its `PLACEHOLDER_TOKENS` whole.

        Raises:
            VocabularyError: As of the constructor.
        """
        tokens = tuple(tokens)
        present = set(PLACEHOLDER_TOKENS).intersection(tokens)
        added = (AddedToken(token, normalized=False) for token in PLACEHOLDER_TOKENS if token in present)
        return cls(tokens, origin, added_tokens=tuple(added))

    def _with_text(self) -> "Vocabulary":
        """Return the vocabulary itself if it has tokens for text.

        Raises:
            VocabularyError: All tokens are special tokens.
        """
        if not len(self.text_ids()):
            raise VocabularyError(
                f"{self.origin} contains special tokens only, so every word would be [UNK]; "
                "give the vocab.txt of a BERT model"
            )
        return self

    def _with_recorded_tokens(self, recorded: Iterable[tuple[int | None, AddedToken]]) -> "Vocabulary":
        """Return a vocabulary with the added tokens of its directory, without special tokens of BERT.

        Args:
            recorded: Ids and tokens, from `read_added_tokens`. Tokens that the vocabulary lacks follow it. Without any,
                the vocabulary stays as it is.

        Raises:
            VocabularyError: An id is not that of the token in the vocabulary, nor the next one.
        """
        recorded = list(recorded)
        if not recorded:
            return self
        tokens, added = list(self.tokens), []
        for number, token in sorted(recorded, key=lambda pair: (pair[0] is None, pair[0])):
            if token.content in SPECIAL_TOKENS:
                continue
            expected = self.ids.get(token.content, len(tokens))
            if number not in (None, expected):
                raise VocabularyError(
                    f"{self.origin}: the added token {token.content!r} has the id {number} in the files beside it, not "
                    f"{expected}; copy all files of the tokenizer again from their source"
                )
            if expected == len(tokens):
                tokens.append(token.content)
            added.append(token)
        return replace(self, tokens=tuple(tokens), added_tokens=tuple(added))

    def with_added_tokens(self, tokens: Iterable[AddedToken], origin: str) -> "Vocabulary":
        """Return a vocabulary with further added tokens.

        Args:
            tokens: Tokens of the vocabulary; those that already are added tokens stay as they are.
            origin: Where they come from, for messages.

        Raises:
            VocabularyError: The vocabulary does not have a token.
        """
        added = {token.content: token for token in self.added_tokens}
        for token in tokens:
            if token.content not in self.ids:
                raise VocabularyError(
                    f"{origin}: the model has no embedding for the token {token.content!r}, which is not in "
                    f"{self.origin}; add it with `beambert extend-vocab --added_tokens`"
                )
            added.setdefault(token.content, token)
        return replace(self, added_tokens=tuple(added.values()))

    @cached_property
    def added_by_id(self) -> dict[int, AddedToken]:
        """Return the added tokens by id."""
        return {self.ids[token.content]: token for token in self.added_tokens}

    @cached_property
    def wordpieces(self) -> "Vocabulary":
        """Return the vocabulary without the added tokens at its end, which WordPiece does not use."""
        count = len(self.tokens)
        while count - 1 in self.added_by_id:
            count -= 1
        return self if count == len(self) else Vocabulary(self.tokens[:count], self.origin)

    def to_bytes(self) -> bytes:
        """Return the content of `vocab.txt`: UTF-8, each token followed by a newline.

        Raises:
            VocabularyError: An added token is not a line as `from_bytes` reads it.
        """
        for token in self.added_tokens:
            if "\n" in token.content or token.content != token.content.strip(" \t\r"):
                raise VocabularyError(
                    f"the added token {token.content!r} of {self.origin} has a newline, or spaces at its ends, which "
                    "vocab.txt cannot store; convert the model with --to huggingface"
                )
        return self._lines()

    def _lines(self) -> bytes:
        return ("\n".join(self.tokens) + "\n").encode("utf-8")

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Return the dictionary from token to id."""
        return {token: number for number, token in enumerate(self.tokens)}

    @cached_property
    def sha256(self) -> str:
        """Return the hex SHA-256 of `to_bytes()`, that is, of the file after the repairs of `from_bytes`."""
        return hashlib.sha256(self._lines()).hexdigest()

    @property
    def pad_id(self) -> int:
        """Return the id of [PAD]."""
        return self.ids["[PAD]"]

    @property
    def unk_id(self) -> int:
        """Return the id of [UNK]."""
        return self.ids["[UNK]"]

    @property
    def cls_id(self) -> int:
        """Return the id of [CLS]."""
        return self.ids["[CLS]"]

    @property
    def sep_id(self) -> int:
        """Return the id of [SEP]."""
        return self.ids["[SEP]"]

    @property
    def mask_id(self) -> int:
        """Return the id of [MASK]."""
        return self.ids["[MASK]"]

    def has_capitals(self) -> bool:
        """Return whether a text token contains a capital letter, as in cased vocabularies only.

        Tokens in brackets, such as "[URL]", are ignored, and so are added tokens. Tokenization separates brackets from
        words, so such a token never results from text.
        """
        added = {token.content for token in self.added_tokens}
        return any(
            token != token.lower()
            for token in self.tokens
            if not (token.startswith("[") and token.endswith("]")) and token not in added
        )

    def special_ids(self) -> np.ndarray:
        """Return the ids of special tokens, `SPECIAL_TOKENS` and every "[unusedN]": int32 [K], ascending."""
        in_brackets = ((number, token) for number, token in enumerate(self.tokens) if token.startswith("["))
        special = [number for number, token in in_brackets if token in SPECIAL_TOKENS or _RESERVED.fullmatch(token)]
        return np.array(special, dtype=np.int32)

    def unused_ids(self) -> list[int]:
        """Return the ids of the "[unusedN]" tokens that are no added tokens, ascending."""
        return [
            number
            for number, token in enumerate(self.tokens)
            if _RESERVED.fullmatch(token) and number not in self.added_by_id
        ]

    def text_ids(self) -> np.ndarray:
        """Return the ids of all tokens except `special_ids`: int32 [V - K], ascending."""
        return np.setdiff1d(np.arange(len(self), dtype=np.int32), self.special_ids())


def rules_beside(vocabulary_file: str | Path) -> RecordedRules:
    """Return the word rules that a model, a dataset, a corpus or a Hugging Face directory records for its vocabulary.

    Args:
        vocabulary_file: A vocab.txt or tokenizer.json. In cloud storage, records are not read.

    Returns:
        The rules; the defaults without a record.

    Raises:
        VocabularyError: A record is invalid.
    """
    if "://" in str(vocabulary_file):
        return RecordedRules()
    path = Path(vocabulary_file).expanduser().absolute()
    try:
        for name, field in _RECORDS.items():
            recorded = _read_record(path.with_name(name), field)
            if recorded is not None:
                return recorded
        return read_rules(path.parent)
    except JsonError as error:
        raise VocabularyError(f"{error}; correct the file, or copy it again from its source") from error


def _read_record(path: Path, field: str) -> RecordedRules | None:
    """Return the rules of a record; None if the file does not exist or another program wrote it."""
    try:
        content: dict[str, Any] = read(path, dict[str, Any])
        if not str(content.get("format")).startswith("beambert-"):
            return None
        return convert(content.get(field) if field else content, RecordedRules, field)
    except FileNotFoundError:
        return None
    except JsonError as error:
        raise JsonError(f"{path}: {error}") from error

"""The vocabulary file: one token a line, the line's number (from 0) being the token's id."""

import codecs
import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Required, TypedDict

import numpy as np

from tokenizer.wordpiece import CONTINUATION

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_RESERVED = re.compile(r"\[unused\d+\]")


class VocabularyError(ValueError):
    """A vocabulary that cannot be used or made; the message is one line that says what to do."""


class _Model(TypedDict, total=False):
    type: Required[str]
    continuing_subword_prefix: str | None
    vocab: Any


class _AddedToken(TypedDict):
    id: int
    content: str


class TokenizerJson(TypedDict, total=False):
    """The fields of a `tokenizer.json` that are read."""

    model: Required[_Model]
    added_tokens: list[_AddedToken]


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a vocabulary in the order of their ids.

    Attributes:
        tokens: token i has id i; those that continue a word start with "##".
        origin: the file's name, for messages; two vocabularies are equal if their tokens are.

    Raises:
        VocabularyError: a token occurs twice, or one of `SPECIAL_TOKENS` is missing.
    """

    tokens: tuple[str, ...] = field(repr=False)
    origin: str = field(default="vocabulary", compare=False)

    def __post_init__(self) -> None:
        if len(self.ids) < len(self.tokens):
            first: dict[str, int] = {}
            for number, token in enumerate(self.tokens, start=1):
                if first.setdefault(token, number) < number:
                    raise VocabularyError(
                        f"{self.origin}: line {number} repeats the piece {token!r} of line {first[token]}; "
                        "a piece has one id: take the vocabulary from its source again, or remove it if you made it"
                    )
        missing = [token for token in SPECIAL_TOKENS if token not in self.ids]
        if missing:
            raise VocabularyError(
                f"{self.origin}: no {', '.join(missing)} among its {len(self.tokens)} pieces; a BERT vocabulary has "
                "each on a line of its own: name a BERT model's vocab.txt, or let `beambert build` learn one"
            )

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Read a local vocabulary file (`from_bytes`) or, by its suffix, a tokenizer.json (`from_tokenizer_json`).

        Raises:
            VocabularyError: it cannot be read or used.
        """
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise VocabularyError(f"{path}: {error.strerror}; name a vocabulary file with --vocab_file") from error
        if str(path).endswith(".json"):
            return cls.from_tokenizer_json(data, str(path))
        return cls.from_bytes(data, str(path))

    @classmethod
    def from_tokenizer_json(cls, data: bytes, origin: str) -> "Vocabulary":
        """Read the tokens of a WordPiece tokenizer as Hugging Face's `tokenizers` saves it.

        Tokens that were added to it later have the ids after those of the model.

        Raises:
            VocabularyError: not such a file, another kind of tokenizer, or ids that are not 0, 1, 2, ...
        """
        # Imported where it is needed: a vocabulary of one token a line is ready sooner.
        from beambert_common.typed_json import JsonError, convert, decode, shortened

        try:
            content = decode(data, TokenizerJson)
            model = content["model"]
            if model["type"] != "WordPiece" or model.get("continuing_subword_prefix") != CONTINUATION:
                raise VocabularyError(
                    f"{origin} is of a {shortened(model['type'])} tokenizer, not of BERT's; name a BERT model's"
                )
            ids = convert(model.get("vocab"), dict[str, int], "model.vocab")
        except JsonError as error:
            raise VocabularyError(f"{origin}: {error}; name a BERT model's vocab.txt") from error
        ids.update((added["content"], added["id"]) for added in content.get("added_tokens", ()))
        tokens = sorted(ids, key=lambda token: ids[token])
        if [ids[token] for token in tokens] != list(range(len(tokens))):
            raise VocabularyError(
                f"{origin}: the ids of its pieces are not 0, 1, 2, ...; name a BERT model's vocab.txt"
            )
        return cls(tuple(tokens), origin)._with_text()

    @classmethod
    def from_bytes(cls, data: bytes, origin: str) -> "Vocabulary":
        """Read the content of a vocabulary file.

        Repaired without a word: a byte-order mark, CRLF line ends, spaces and tabs around a token (the released
        `load_vocab` strips them too), blank lines at the end of the file.

        Args:
            data: UTF-8 text.
            origin: the file's name, for messages.

        Raises:
            VocabularyError: invalid UTF-8, a blank line before the last token, a token twice, a special token missing,
                or no other token.
        """
        data = data.removeprefix(codecs.BOM_UTF8)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise VocabularyError(f"{origin}: line {line} is not UTF-8; convert the file to UTF-8") from error
        # Not str.splitlines: it also breaks at characters that may be tokens, such as U+2028.
        tokens = [line.strip(" \t\r") for line in text.split("\n")]
        while tokens and not tokens[-1]:
            tokens.pop()
        if "" in tokens:
            raise VocabularyError(
                f"{origin}: line {tokens.index('') + 1} is blank, which would shift the id of every piece after it; "
                "take the vocabulary from its source again, or remove the line if no model was trained with it"
            )
        return cls(tuple(tokens), origin)._with_text()

    def _with_text(self) -> "Vocabulary":
        """Return the vocabulary, unless every text would be [UNK] in it.

        Raises:
            VocabularyError: it has no token but special ones.
        """
        if not len(self.text_ids()):
            raise VocabularyError(
                f"{self.origin} holds only special tokens, so that every word would be [UNK]; "
                "name a vocabulary with tokens that stand for text"
            )
        return self

    def to_bytes(self) -> bytes:
        """Return the content of the vocabulary file: UTF-8, each token followed by a newline."""
        return "".join(f"{token}\n" for token in self.tokens).encode("utf-8")

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Return the id of each token."""
        return {token: number for number, token in enumerate(self.tokens)}

    @cached_property
    def sha256(self) -> str:
        """Return the hex SHA-256 of `to_bytes()`, so that a file repaired in reading counts as its repaired form."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

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
        """Return whether a token that stands for text has a capital letter, as only cased vocabularies do.

        A token in brackets, such as "[URL]", stands for no text: brackets are words of their own, so no text is spelled
        with it.
        """
        return any(
            token != token.lower() for token in self.tokens if not (token.startswith("[") and token.endswith("]"))
        )

    def special_ids(self) -> np.ndarray:
        """Return the ids of special tokens: `SPECIAL_TOKENS` and every "[unusedN]"; int32, ascending."""
        special = [i for i, token in enumerate(self.tokens) if token in SPECIAL_TOKENS or _RESERVED.fullmatch(token)]
        return np.array(special, dtype=np.int32)

    def text_ids(self) -> np.ndarray:
        """Return the ids of tokens that stand for text, all but `special_ids`; int32, ascending."""
        return np.setdiff1d(np.arange(len(self), dtype=np.int32), self.special_ids())

"""Tokens that a tokenizer keeps whole, as Hugging Face tokenizers record them: `AddedToken` of `tokenizers`."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypedDict

from beambert.common.hugging_face_rules import TOKENIZER_CONFIG_FILE_NAME, TOKENIZER_JSON_FILE_NAME, read_file
from beambert.common.typed_json import Count, NonEmpty

# The only file with the added tokens of models before 2023, without their attributes.
ADDED_TOKENS_FILE_NAME = "added_tokens.json"
SPECIAL_TOKENS_FILE_NAME = "special_tokens_map.json"


@dataclass(frozen=True)
class AddedToken:
    """A token that is kept whole where a text contains it; the fields have the names and defaults of `tokenizers`.

    Attributes:
        content: The token.
        single_word: Whether it is kept only between characters that are not of words.
        lstrip, rstrip: Whether it includes the whitespace before or after it. The token ids do not depend on this.
        normalized: Whether it is sought in the normalized text, such as the lower-cased one, and normalized itself.
        special: Whether it is a special token of the model.
    """

    content: NonEmpty
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = True
    special: bool = False


class _TokenizerConfig(TypedDict, total=False):
    """The fields of `tokenizer_config.json` and `special_tokens_map.json` that are read."""

    added_tokens_decoder: dict[Count, AddedToken]
    additional_special_tokens: list[NonEmpty | AddedToken] | None


@dataclass(frozen=True, kw_only=True)
class _Entry(AddedToken):
    """An added token in `tokenizer.json`, with its id."""

    id: Count


class _TokenizerJson(TypedDict, total=False):
    """The field of `tokenizer.json` that is read."""

    added_tokens: list[_Entry]


def read_added_tokens(directory: Path) -> list[tuple[int | None, AddedToken]]:
    """Return the added tokens of a directory with their ids, special tokens of BERT included.

    `tokenizer_config.json` has all of them since 2023. Otherwise those of the older files are combined, of which
    `tokenizer.json` has the attributes.

    Args:
        directory: The directory, in which each file may be missing.

    Returns:
        (id, token) for each token. The id is None where only `vocab.txt` has it.

    Raises:
        JsonError: A file cannot be read or is invalid; the message starts with its path.
    """
    config: _TokenizerConfig = read_file(directory / TOKENIZER_CONFIG_FILE_NAME, _TokenizerConfig)
    if "added_tokens_decoder" in config:
        return list(config["added_tokens_decoder"].items())
    special = [
        AddedToken(token, normalized=False, special=True) if isinstance(token, str) else token
        for content in (config, read_file(directory / SPECIAL_TOKENS_FILE_NAME, _TokenizerConfig))
        for token in content.get("additional_special_tokens") or ()
    ]
    names = {token.content for token in special}
    tokens: dict[str, tuple[int | None, AddedToken]] = {}
    for entry in read_file(directory / TOKENIZER_JSON_FILE_NAME, _TokenizerJson).get("added_tokens", ()):
        tokens[entry.content] = (entry.id, AddedToken(*(getattr(entry, field.name) for field in fields(AddedToken))))
    for content, number in read_file(directory / ADDED_TOKENS_FILE_NAME, dict[NonEmpty, Count]).items():
        is_special = content in names
        tokens.setdefault(content, (number, AddedToken(content, normalized=not is_special, special=is_special)))
    for token in special:
        tokens.setdefault(token.content, (None, token))
    return list(tokens.values())

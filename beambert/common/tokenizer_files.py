"""Read the tokenizer files of a Hugging Face model: its word rules, and the tokens that its tokenizer keeps whole."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypedDict

from beambert.common.typed_json import Count, JsonError, NonEmpty, convert, read
from beambert.common.word_rules import RecordedRules

TOKENIZER_CONFIG_FILE_NAME = "tokenizer_config.json"
TOKENIZER_JSON_FILE_NAME = "tokenizer.json"
# The only file with the added tokens of models before 2023, without their attributes.
ADDED_TOKENS_FILE_NAME = "added_tokens.json"
SPECIAL_TOKENS_FILE_NAME = "special_tokens_map.json"


class _RulesConfig(TypedDict, total=False):
    """The fields of `tokenizer_config.json` that are read."""

    do_lower_case: bool | None
    strip_accents: bool | None
    tokenize_chinese_chars: bool | None


class _NormalizerJson(TypedDict, total=False):
    """The field of `tokenizer.json` that is read."""

    normalizer: Any


class _BertNormalizer(TypedDict, total=False):
    """The normalizer of `tokenizer.json` in a BERT model."""

    lowercase: bool
    strip_accents: bool | None
    handle_chinese_chars: bool


def read_rules(directory: Path) -> RecordedRules:
    """Return the rules of a directory; a rule in `tokenizer_config.json` has precedence over `tokenizer.json`.

    Args:
        directory: The directory, in which both files may be missing.

    Raises:
        JsonError: A file cannot be read or is invalid; the message starts with its path.
    """
    config: _RulesConfig = read_file(directory / TOKENIZER_CONFIG_FILE_NAME, _RulesConfig)
    normalizer: _BertNormalizer = {}
    if not _RulesConfig.__annotations__.keys() <= config.keys():
        normalizer = _normalizer(directory / TOKENIZER_JSON_FILE_NAME)
    lower = config.get("do_lower_case")
    chinese = config.get("tokenize_chinese_chars")
    return RecordedRules(
        do_lower_case=normalizer.get("lowercase") if lower is None else lower,
        strip_accents=config["strip_accents"] if "strip_accents" in config else normalizer.get("strip_accents"),
        tokenize_chinese_chars=normalizer.get("handle_chinese_chars", True) if chinese is None else chinese,
    )


def _normalizer(path: Path) -> _BertNormalizer:
    """Return the BertNormalizer of a `tokenizer.json`; {} without one."""
    normalizer = read_file(path, _NormalizerJson).get("normalizer")
    if not isinstance(normalizer, dict) or normalizer.get("type") != "BertNormalizer":
        return {}
    try:
        return convert(normalizer, _BertNormalizer, "normalizer")
    except JsonError as error:
        raise JsonError(f"{path}: {error}") from error


def read_file(path: Path, schema: Any) -> Any:
    """Return the content of a JSON file of a model; {} if it does not exist.

    Raises:
        JsonError: The file cannot be read or is invalid; the message starts with its path.
    """
    try:
        return read(path, schema)
    except FileNotFoundError:
        return {}
    except JsonError as error:
        raise JsonError(f"{path}: {error}") from error


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


class _TokensConfig(TypedDict, total=False):
    """The fields of `tokenizer_config.json` and `special_tokens_map.json` that are read."""

    added_tokens_decoder: dict[Count, AddedToken]
    additional_special_tokens: list[NonEmpty | AddedToken] | None


@dataclass(frozen=True, kw_only=True)
class _Entry(AddedToken):
    """An added token in `tokenizer.json`, with its id."""

    id: Count


class _TokensJson(TypedDict, total=False):
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
    config: _TokensConfig = read_file(directory / TOKENIZER_CONFIG_FILE_NAME, _TokensConfig)
    if "added_tokens_decoder" in config:
        return list(config["added_tokens_decoder"].items())
    special = [
        AddedToken(token, normalized=False, special=True) if isinstance(token, str) else token
        for content in (config, read_file(directory / SPECIAL_TOKENS_FILE_NAME, _TokensConfig))
        for token in content.get("additional_special_tokens") or ()
    ]
    names = {token.content for token in special}
    tokens: dict[str, tuple[int | None, AddedToken]] = {}
    for entry in read_file(directory / TOKENIZER_JSON_FILE_NAME, _TokensJson).get("added_tokens", ()):
        tokens[entry.content] = (entry.id, AddedToken(*(getattr(entry, field.name) for field in fields(AddedToken))))
    for content, number in read_file(directory / ADDED_TOKENS_FILE_NAME, dict[NonEmpty, Count]).items():
        is_special = content in names
        tokens.setdefault(content, (number, AddedToken(content, normalized=not is_special, special=is_special)))
    for token in special:
        tokens.setdefault(token.content, (None, token))
    return list(tokens.values())

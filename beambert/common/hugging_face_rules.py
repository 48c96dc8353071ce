"""Read the word rules of a Hugging Face model: `tokenizer_config.json`, and the normalizer of `tokenizer.json`."""

from pathlib import Path
from typing import Any, TypedDict

from beambert.common.typed_json import JsonError, convert, read
from beambert.common.word_rules import RecordedRules

TOKENIZER_CONFIG_FILE_NAME = "tokenizer_config.json"
TOKENIZER_JSON_FILE_NAME = "tokenizer.json"


class _TokenizerConfig(TypedDict, total=False):
    """The fields of `tokenizer_config.json` that are read."""

    do_lower_case: bool | None
    strip_accents: bool | None
    tokenize_chinese_chars: bool | None


class _TokenizerJson(TypedDict, total=False):
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
    config: _TokenizerConfig = read_file(directory / TOKENIZER_CONFIG_FILE_NAME, _TokenizerConfig)
    normalizer: _BertNormalizer = {}
    if not _TokenizerConfig.__annotations__.keys() <= config.keys():
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
    normalizer = read_file(path, _TokenizerJson).get("normalizer")
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

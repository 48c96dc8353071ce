"""Read the word rules that are recorded beside a vocabulary."""

from pathlib import Path
from typing import Any, TypedDict

from beambert.common.tokenizer_files import read_rules
from beambert.common.typed_json import JsonError, convert, read
from beambert.common.word_rules import RecordedRules
from beambert.tokenizer.vocabulary import VocabularyError

# Files of beambert in a directory with a vocab.txt, and the field that contains the rules ("": the file itself).
_RECORDS = {"beambert.json": "", "dataset.json": "", "corpus.json": "options"}


class _Rules(TypedDict, total=False):
    do_lower_case: bool | None
    strip_accents: bool | None
    tokenize_chinese_chars: bool


def rules_beside(vocabulary_file: Path) -> RecordedRules:
    """Return the rules that a model, a dataset, a corpus or a Hugging Face directory records for its vocabulary.

    Args:
        vocabulary_file: A vocab.txt or tokenizer.json.

    Returns:
        The rules; the defaults without a record.

    Raises:
        VocabularyError: A record is invalid.
    """
    try:
        for name, field in _RECORDS.items():
            recorded = _read(vocabulary_file.with_name(name), field)
            if recorded is not None:
                return recorded
        return read_rules(vocabulary_file.parent)
    except JsonError as error:
        raise VocabularyError(f"{error}; correct the file, or copy it again from its source") from error


def _read(path: Path, field: str) -> RecordedRules | None:
    """Return the rules of a record; None if the file does not exist or another program wrote it."""
    try:
        content: dict[str, Any] = read(path, dict[str, Any])
        if not str(content.get("format")).startswith("beambert-"):
            return None
        rules = convert(content.get(field) if field else content, _Rules, field)
    except FileNotFoundError:
        return None
    except JsonError as error:
        raise JsonError(f"{path}: {error}") from error
    return RecordedRules(**rules)

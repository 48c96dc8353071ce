"""Identify languages with py3langid (BSD license), whose model is part of the package.

The extra `[clean]` installs it. docs/design/text-processing.md compares it with other identifiers.
"""

import functools
from collections.abc import Sequence
from typing import Any

# Sufficient for reliable results; time is proportional to the sample.
_SAMPLE_CHARACTERS = 1000
_SAMPLE_PARTS = 4
# A third of the results for shorter texts, such as names and lists, were wrong.
_MIN_CHARACTERS = 200


@functools.cache
def _identifier() -> Any:
    """Return the identifier with its model; cached."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE)


def known_languages() -> list[str]:
    """Return the ISO 639 codes of all languages that `identify` distinguishes.

    Raises:
        ModuleNotFoundError: py3langid is not installed.
    """
    return sorted(_identifier().labels)


def identify(text: str) -> str:
    """Return the ISO 639 code (two letters if the language has one) of the main language of a text."""
    return _identifier().classify(text)[0]


def sample(sentences: Sequence[str]) -> str:
    """Return about 1,000 characters from four evenly spaced parts of a document, to sample more than its opening."""
    text = " ".join(sentences)
    if len(text) <= _SAMPLE_CHARACTERS:
        return text
    length = _SAMPLE_CHARACTERS // _SAMPLE_PARTS
    last = len(text) - length
    starts = [last * number // (_SAMPLE_PARTS - 1) for number in range(_SAMPLE_PARTS)]
    return " ".join(text[start : start + length] for start in starts)


def main_language(sentences: Sequence[str]) -> str:
    """Return the ISO 639 code of the main language of a document, or "" for fewer than 200 characters."""
    text = sample(sentences)
    return identify(text) if len(text) >= _MIN_CHARACTERS else ""


def is_other_language(sentences: Sequence[str], language: str) -> bool:
    """Return whether a document is in another language than `language`; False for fewer than 200 characters.

    Args:
        sentences: the sentences of the document.
        language: ISO 639 code; subtags after a hyphen ("zh-hans") are ignored.
    """
    return main_language(sentences) not in ("", language.split("-")[0].lower())

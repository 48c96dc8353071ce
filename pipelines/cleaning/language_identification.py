"""Language identification by py3langid (BSD license): its model is part of the package, nothing is downloaded.

It was chosen after a comparison, see docs/CORPUS.md. It is in the extra `[clean]`.
"""

import functools
from collections.abc import Sequence
from typing import Any

# Enough for certainty; more costs time in proportion.
_SAMPLE_CHARACTERS = 1000
_SAMPLE_PIECES = 4
# Of shorter texts, names and lists among them, a third of the answers were wrong.
_LEAST_CHARACTERS = 200


@functools.cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE)


def known_languages() -> list[str]:
    """Return the ISO 639 codes that `identify` can return.

    Raises:
        ModuleNotFoundError: py3langid is not installed.
    """
    return sorted(_identifier().labels)


def identify(text: str) -> str:
    """Return the ISO 639 code (two letters where there is one) of the language that a text is mostly in."""
    return _identifier().classify(text)[0]


def sample(sentences: Sequence[str]) -> str:
    """Return about 1,000 characters of a document from four places, so that its opening does not decide."""
    text = " ".join(sentences)
    if len(text) <= _SAMPLE_CHARACTERS:
        return text
    piece = _SAMPLE_CHARACTERS // _SAMPLE_PIECES
    last = len(text) - piece
    starts = [last * number // (_SAMPLE_PIECES - 1) for number in range(_SAMPLE_PIECES)]
    return " ".join(text[start : start + piece] for start in starts)


def is_other_language(sentences: Sequence[str], language: str) -> bool:
    """Return whether a document is not in `language`; False below 200 characters, too few to decide.

    Args:
        sentences: of the document.
        language: ISO 639 code; what follows a hyphen ("zh-hans") is not looked at.
    """
    text = sample(sentences)
    return len(text) >= _LEAST_CHARACTERS and identify(text) != language.split("-")[0].lower()

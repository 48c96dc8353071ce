"""Cleaning rules: plain functions over one paragraph or one document."""

NO_TEXT = "no_text"
DUPLICATE = "duplicate"


def fold_whitespace(paragraph: str) -> str:
    """Every run of whitespace, line ends of any kind included, becomes one blank; none is left at the ends."""
    return " ".join(paragraph.split())


def rejection_reason(sentences: list[str]) -> str | None:
    """Why a document is left out of the corpus, or None. `DUPLICATE` is found later, where equal texts meet."""
    return None if sentences else NO_TEXT

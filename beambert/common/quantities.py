"""Format numbers with their nouns for messages."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: "1 file", "3 files", "2 copies" with the plural "copies"."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"

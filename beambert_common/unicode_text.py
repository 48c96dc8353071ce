"""Text with characters that files or terminals cannot hold."""


def replace_surrogates(text: str) -> str:
    """Return a text with "?" for each lone surrogate: JSON can write one, but UTF-8 has none."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def escape_unprintable(text: str) -> str:
    r"""Return a text with `\uXXXX` for each character that is not printable."""
    return "".join(character if character.isprintable() else f"\\u{ord(character):04x}" for character in text)

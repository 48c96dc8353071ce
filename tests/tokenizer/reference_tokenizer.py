"""Oracle of the tokenizer: the published rules (google-research/bert, tokenization.py), character by character.

It shares no code with the code under test.
"""

import unicodedata


def published_words(
    text: str, do_lower_case: bool, strip_accents: bool | None = None, tokenize_chinese_chars: bool = True
) -> list[str]:
    """Return the words of BasicTokenizer, with the two options that transformers added."""
    cleaned = ""
    for character in text:
        category = unicodedata.category(character)
        if character in (" ", "\t", "\n", "\r") or category == "Zs":
            cleaned += " "
        elif category in ("Cc", "Cf") or character in ("\x00", "\ufffd"):
            pass
        elif tokenize_chinese_chars and (
            "\u4e00" <= character <= "\u9fff"
            or "\u3400" <= character <= "\u4dbf"
            or "\uf900" <= character <= "\ufaff"
            or "\U00020000" <= character <= "\U0002a6df"
            or "\U0002a700" <= character <= "\U0002ceaf"
            or "\U0002f800" <= character <= "\U0002fa1f"
        ):
            cleaned += " " + character + " "
        else:
            cleaned += character
    spaced = ""
    for token in cleaned.split():
        if do_lower_case:
            token = token.lower()
        if strip_accents or (do_lower_case and strip_accents is None):
            decomposed = unicodedata.normalize("NFD", token)
            token = "".join(character for character in decomposed if unicodedata.category(character) != "Mn")
        for character in token:
            mark = unicodedata.category(character)[0] == "P" or character in "$+<=>^`|~"
            spaced += " " + character + " " if mark else character
        spaced += " "
    return spaced.split()


def published_pieces(word: str, vocabulary: set[str]) -> list[str]:
    """Return the tokens of one word by WordpieceTokenizer."""
    if len(word) > 200:
        return ["[UNK]"]
    pieces: list[str] = []
    while word:
        candidates = [("##" if pieces else "") + word[:length] for length in range(len(word), 0, -1)]
        piece = next((candidate for candidate in candidates if candidate in vocabulary), None)
        if piece is None:
            return ["[UNK]"]
        word = word[len(piece) - 2 * bool(pieces) :]
        pieces.append(piece)
    return pieces

"""Words to pieces: the rule of `WordpieceTokenizer` in google-research/bert, tokenization.py."""

from collections.abc import Container

UNKNOWN = "[UNK]"
CONTINUATION = "##"
MAX_WORD_CHARACTERS = 200


def split_word(word: str, pieces: Container[str], longest_piece: int = MAX_WORD_CHARACTERS) -> list[str]:
    """Splits one word, greedily taking the longest piece that matches, then the longest for what is left.

    Args:
        word: a word as `tokenizer.normalization.split_words` makes it.
        pieces: the pieces of the vocabulary (its dictionary of ids); those that continue a word start with "##".
        longest_piece: no piece has more characters than this; a smaller number only saves time.

    Returns:
        The pieces, or ["[UNK]"] if the word has more than 200 characters or cannot be spelt with the pieces.
    """
    if len(word) > MAX_WORD_CHARACTERS:
        return [UNKNOWN]
    found = []
    start = 0
    while start < len(word):
        prefix = CONTINUATION if start else ""
        for end in range(min(len(word), start + longest_piece), start, -1):
            piece = prefix + word[start:end]
            if piece in pieces:
                break
        else:
            return [UNKNOWN]
        found.append(piece)
        start = end
    return found

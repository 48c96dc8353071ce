"""Words to tokens: the rule of `WordpieceTokenizer` in google-research/bert, tokenization.py."""

from collections.abc import Container

UNKNOWN = "[UNK]"
CONTINUATION = "##"
MAX_WORD_CHARACTERS = 200


def split_word(word: str, tokens: Container[str], longest_token: int = MAX_WORD_CHARACTERS) -> list[str]:
    """Split one word, greedily taking the longest matching token, then the longest for the rest.

    Args:
        word: a word as `tokenizer.normalization.split_words` makes it.
        tokens: the tokens of the vocabulary (its dictionary of ids); those that continue a word start with "##".
        longest_token: no token has more characters than this; a smaller number only saves time.

    Returns:
        The tokens, or ["[UNK]"] if the word has more than 200 characters or cannot be spelled with the tokens.
    """
    if len(word) > MAX_WORD_CHARACTERS:
        return [UNKNOWN]
    spelling = []
    start = 0
    while start < len(word):
        prefix = CONTINUATION if start else ""
        for end in range(min(len(word), start + longest_token), start, -1):
            token = prefix + word[start:end]
            if token in tokens:
                break
        else:
            return [UNKNOWN]
        spelling.append(token)
        start = end
    return spelling

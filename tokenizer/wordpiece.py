"""Split words into tokens by the rule of `WordpieceTokenizer` in google-research/bert, tokenization.py."""

from collections.abc import Container

UNKNOWN = "[UNK]"
CONTINUATION = "##"
MAX_WORD_CHARACTERS = 200


def split_word(word: str, tokens: Container[str], longest_token: int = MAX_WORD_CHARACTERS) -> list[str]:
    """Split one word into tokens, greedily longest match first.

    Args:
        word: A word from `beambert.tokenizer.normalization.split_words`.
        tokens: The tokens of the vocabulary, such as `Vocabulary.ids`. Tokens that continue a word start with "##".
        longest_token: Length in characters of the longest token; a tight bound saves time.

    Returns:
        The tokens, or ["[UNK]"] if the word has more than 200 characters or does not match.
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

"""Learn a WordPiece vocabulary from word counts.

Google did not release the code that learned the BERT vocabularies. This learner has two stages. Byte-pair encoding
proposes 1.5 times the requested number of tokens (`beambert.tokenizer.merging`). Then the tokens with the lowest cost
under longest-match-first tokenization are dropped (`beambert.tokenizer.pruning`). docs/design/vocabulary-learning.md
compares it with other learners.
"""

from collections import Counter
from collections.abc import Mapping

from beambert.tokenizer.merging import merge_pairs
from beambert.tokenizer.normalization import is_cjk, is_punctuation
from beambert.tokenizer.pruning import prune_tokens
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, VocabularyError
from beambert.tokenizer.wordpiece import CONTINUATION, MAX_WORD_CHARACTERS

# Candidate tokens per token of the vocabulary. On validation text, 1.2 is worse and 2 is no better.
_SURPLUS = 1.5
# The released vocabularies have this many reserved tokens between [PAD] (id 0) and [UNK] (id 100).
_RESERVED_BEFORE_UNKNOWN = 99


def learn_vocabulary(
    word_counts: Mapping[str, int], vocab_size: int, num_unused: int = 0, alphabet_limit: int = 1000
) -> list[str]:
    """Learn a vocabulary of exactly vocab_size tokens; the result does not depend on the order of word_counts.

    The alphabet consists of the alphabet_limit most frequent characters (ties: lower code point first). A character c
    is a token at the start of a word (c) and inside a word (##c), see `_alphabet_tokens`. Longer tokens are proposed by
    `beambert.tokenizer.merging.merge_pairs` up to 1.5 * vocab_size tokens and reduced to vocab_size by
    `beambert.tokenizer.pruning.prune_tokens`.

    Words of more than 200 characters, which are always "[UNK]", and words with a character outside the alphabet are
    ignored. Memory and time are proportional to the number of remaining words, less than 1 kB each for words between
    spaces; `beambert.tokenizer.word_counts.most_frequent` limits their number. Time grows about quadratically with
    their length: 2,000 words of 6.5, 22.5 and 44.7 letters on average take 0.2, 2.7 and 13.9 s.

    Args:
        word_counts: Occurrences of each word, from `beambert.tokenizer.word_counts.count_words`.
        vocab_size: Number of tokens of all kinds.
        num_unused: Number of "[unusedN]" tokens.
        alphabet_limit: Maximum number of characters in the alphabet.

    Returns:
        The tokens in id order. Special and reserved tokens come first (`reserved_tokens`), then the alphabet by code
        point with the "##" tokens last, then longer tokens by descending frequency in the tokenized words (ties: order
        of code points).

    Raises:
        VocabularyError: vocab_size is smaller than the alphabet and the reserved tokens together, or larger than the
            number of tokens that the words allow.
    """
    reserved = reserved_tokens(num_unused)
    alphabet = set(_characters_by_frequency(word_counts)[:alphabet_limit])
    counted = [
        (word, count)
        for word, count in word_counts.items()
        if len(word) <= MAX_WORD_CHARACTERS and alphabet.issuperset(word)
    ]
    words = [word for word, _ in counted]
    counts = [count for _, count in counted]
    # One string object per character instead of one per occurrence.
    continuing = {character: CONTINUATION + character for character in alphabet}
    spellings = [[word[0], *(continuing[character] for character in word[1:])] for word in words]
    forms = _alphabet_tokens(alphabet, spellings)
    if len(reserved) + len(forms) > vocab_size:
        # The forms that spell the words of the text.
        forms = {token for word in spellings for token in word}
    # Sorts every "c" before every "##c".
    characters = sorted(forms, key=lambda token: (len(token), token))

    fixed = len(reserved) + len(characters)
    if fixed > vocab_size:
        raise VocabularyError(
            f"invalid --vocab_size {vocab_size}: the alphabet and the reserved tokens alone are {fixed} tokens; "
            f"raise --vocab_size to at least {fixed}, preferably several times that, or lower --alphabet_limit"
        )
    # A dictionary, to keep the order.
    candidates: dict[str, None] = {}
    most = int(vocab_size * _SURPLUS) - fixed
    for token in merge_pairs(spellings, counts):
        if len(candidates) >= most:
            break
        candidates[token] = None
    wanted = vocab_size - fixed
    if len(candidates) < wanted:
        available = fixed + len(candidates)
        raise VocabularyError(
            f"invalid --vocab_size {vocab_size}: the words of the text allow at most {available} tokens; "
            f"lower --vocab_size to {available} or less, or add text"
        )
    return [*reserved, *characters, *prune_tokens(words, counts, characters, list(candidates), wanted)]


def _alphabet_tokens(alphabet: set[str], spellings: list[list[str]]) -> set[str]:
    """Return both forms of every character: "c" and "##c", so that other text has fewer "[UNK]".

    The text may have a character only inside words (the x of box), while other text starts a word with it (xenon).
    Punctuation and CJK ideographs are words of their own, and have no "##c" unless a word of the text has other
    characters too, as with `tokenize_chinese_chars` false.
    """
    joined = {token[-1] for word in spellings if len(word) > 1 for token in word}
    separate = {character for character in alphabet if is_punctuation(character) or is_cjk(character)} - joined
    return alphabet | {CONTINUATION + character for character in alphabet - separate}


def alphabet_losses(word_counts: Mapping[str, int], limit: int) -> dict[str, int]:
    """Return the number of characters and words that the alphabet limit excludes, and a sufficient limit.

    Args:
        word_counts: Occurrences of each word, as for `learn_vocabulary`.
        limit: The alphabet_limit.

    Returns:
        "characters": distinct characters.
        "characters_excluded": characters outside the alphabet.
        "words_excluded": running words with such a character, all "[UNK]".
        "sufficient_limit": the smallest limit that excludes at most one running word in a thousand.
    """
    ranked = _characters_by_frequency(word_counts)
    words_excluded = sufficient = 0
    if len(ranked) > limit:
        rank = {character: number for number, character in enumerate(ranked, start=1)}
        by_rank: Counter[int] = Counter()
        for word, count in word_counts.items():
            if len(word) <= MAX_WORD_CHARACTERS:
                by_rank[max(map(rank.__getitem__, word))] += count
        words_excluded = sum(count for last, count in by_rank.items() if last > limit)
        allowed = by_rank.total() // 1000
        sufficient = len(ranked)
        while sufficient and by_rank[sufficient] <= allowed:
            allowed -= by_rank[sufficient]
            sufficient -= 1
    return {
        "characters": len(ranked),
        "characters_excluded": max(0, len(ranked) - limit),
        "words_excluded": words_excluded,
        "sufficient_limit": sufficient or limit,
    }


def reserved_tokens(num_unused: int) -> list[str]:
    """Return the special and reserved tokens in the order of the released vocabularies.

    The order is [PAD], [unused0] ... [unused98], [UNK], [CLS], [SEP], [MASK], [unused99] ...

    Args:
        num_unused: Number of "[unusedN]" tokens.
    """
    unused = [f"[unused{number}]" for number in range(num_unused)]
    before, after = unused[:_RESERVED_BEFORE_UNKNOWN], unused[_RESERVED_BEFORE_UNKNOWN:]
    return [SPECIAL_TOKENS[0], *before, *SPECIAL_TOKENS[1:], *after]


def _characters_by_frequency(word_counts: Mapping[str, int]) -> list[str]:
    """Return the distinct characters, most frequent first; ties in the order of code points."""
    occurrences: Counter[str] = Counter()
    for word, count in word_counts.items():
        if len(word) <= MAX_WORD_CHARACTERS:
            for character in word:
                occurrences[character] += count
    return sorted(occurrences, key=lambda character: (-occurrences[character], character))

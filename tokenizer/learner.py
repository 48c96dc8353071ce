"""A WordPiece vocabulary from counted words.

Google never released the learner of the BERT vocabularies. This one works in two stages: byte-pair encoding proposes
half as many tokens again as are wanted (`tokenizer.merging`). Then those that cost least are dropped, by the rule that
WordPiece spells with (`tokenizer.pruning`). docs/VOCABULARY.md compares it with others.
"""

from collections import Counter
from collections.abc import Mapping

from tokenizer.merging import merge_pairs
from tokenizer.pruning import prune_tokens
from tokenizer.vocabulary import SPECIAL_TOKENS, VocabularyError
from tokenizer.wordpiece import CONTINUATION, MAX_WORD_CHARACTERS

# Proposals for each token that is wanted. On validation text 1.2 is worse, and 2 no better.
_SURPLUS = 1.5
# The released vocabularies have this many reserved tokens between [PAD], which is 0, and [UNK], which is 100.
_RESERVED_BEFORE_UNKNOWN = 99


def learn_vocabulary(
    word_counts: Mapping[str, int], vocab_size: int, num_unused: int = 0, alphabet_limit: int = 1000
) -> list[str]:
    """Learn exactly vocab_size tokens; the result does not depend on the order of word_counts.

    In the order of their ids: the special tokens and num_unused reserved tokens as in the released vocabularies
    (`reserved_tokens`); the alphabet, in the order of code points, "##" after the others; longer tokens, the most used
    first (by occurrences in the spelling of all words, ties in the order of code points).

    The alphabet is the alphabet_limit most frequent characters, ties going to the lower code point; each is a token as
    it starts a word (c) and as it continues one (##c), where seen so. Longer tokens are proposed by
    `tokenizer.merging.merge_pairs` until there are half as many tokens again as vocab_size, then dropped down to
    vocab_size by `tokenizer.pruning.prune_tokens`.

    Left out: words of more than 200 characters (always "[UNK]"), or with a character outside the alphabet. Memory and
    time grow with the words that are left, less than 1 kB each; `tokenizer.word_counts.most_frequent` bounds both.

    Args:
        word_counts: occurrences of each word, as `tokenizer.word_counts.count_words` counts them.
        vocab_size: number of tokens, all kinds together.
        num_unused: "[unusedN]" tokens.
        alphabet_limit: number of characters.

    Raises:
        VocabularyError: the alphabet and the reserved tokens alone are more than vocab_size, or the words are all
            whole before it is reached.
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
    # One string object a character, not one an occurrence.
    continuing = {character: CONTINUATION + character for character in alphabet}
    spellings = [[word[0], *(continuing[character] for character in word[1:])] for word in words]
    # The key puts every "c" before every "##c".
    characters = sorted({token for word in spellings for token in word}, key=lambda token: (len(token), token))

    fixed = len(reserved) + len(characters)
    if fixed > vocab_size:
        raise VocabularyError(
            f"--vocab_size {vocab_size} is less than the {fixed} pieces of the alphabet and the reserved tokens; "
            f"raise --vocab_size to at least {fixed}, better to some times as many, or lower --alphabet_limit"
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
            f"the text has words for only {available} pieces, not for --vocab_size {vocab_size}; "
            f"lower --vocab_size to {available} or less, or add text"
        )
    return [*reserved, *characters, *prune_tokens(words, counts, characters, list(candidates), wanted)]


def alphabet_losses(word_counts: Mapping[str, int], limit: int) -> dict[str, int]:
    """Return what the limit of the alphabet leaves out, and the least limit that leaves out nothing.

    Args:
        word_counts: as `learn_vocabulary` takes them.
        limit: the alphabet_limit.

    Returns:
        "characters": distinct ones. "characters_excluded": of them. "words_excluded": occurrences of words with
        such a character, all "[UNK]". "sufficient_limit": the smallest alphabet outside which at most one running
        word in a thousand lies.
    """
    ranked = _characters_by_frequency(word_counts)
    outside = enough = 0
    if len(ranked) > limit:
        rank = {character: number for number, character in enumerate(ranked, start=1)}
        by_rank: Counter[int] = Counter()
        for word, count in word_counts.items():
            if len(word) <= MAX_WORD_CHARACTERS:
                by_rank[max(map(rank.__getitem__, word))] += count
        outside = sum(count for last, count in by_rank.items() if last > limit)
        allowed = by_rank.total() // 1000
        enough = len(ranked)
        while enough and by_rank[enough] <= allowed:
            allowed -= by_rank[enough]
            enough -= 1
    return {
        "characters": len(ranked),
        "characters_excluded": max(0, len(ranked) - limit),
        "words_excluded": outside,
        "sufficient_limit": enough or limit,
    }


def reserved_tokens(num_unused: int) -> list[str]:
    """Return the first tokens of a vocabulary, in the order of the released ones.

    Those have 99 reserved tokens before [UNK] and the others after [MASK]: [PAD], [unused0] ... [unused98], [UNK],
    [CLS], [SEP], [MASK], [unused99] ...
    """
    unused = [f"[unused{number}]" for number in range(num_unused)]
    before, after = unused[:_RESERVED_BEFORE_UNKNOWN], unused[_RESERVED_BEFORE_UNKNOWN:]
    return [SPECIAL_TOKENS[0], *before, *SPECIAL_TOKENS[1:], *after]


def _characters_by_frequency(word_counts: Mapping[str, int]) -> list[str]:
    occurrences: Counter[str] = Counter()
    for word, count in word_counts.items():
        if len(word) <= MAX_WORD_CHARACTERS:
            for character in word:
                occurrences[character] += count
    return sorted(occurrences, key=lambda character: (-occurrences[character], character))

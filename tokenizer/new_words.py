"""Choose the words of a text to add to a vocabulary: those that it splits into the most tokens.

A word that is added also changes the words that start with it, because WordPiece takes the longest token first. So the
costs of these words are updated after each addition, and an addition that would make one of them "[UNK]" is refused.
"""

import bisect
import dataclasses
import heapq
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from beambert.tokenizer.wordpiece import CONTINUATION, MAX_WORD_CHARACTERS, UNKNOWN, split_word

# Changes of the tokens of a word between two vocabularies.
FEWER = "fewer tokens"
AS_MANY = "other tokens of the same number"
MORE = "more tokens"
NO_LONGER_UNKNOWN = f"no longer {UNKNOWN}"
NOW_UNKNOWN = f"now {UNKNOWN}"
CHANGES = (FEWER, AS_MANY, MORE, NO_LONGER_UNKNOWN, NOW_UNKNOWN)


@dataclasses.dataclass(frozen=True)
class NewWord:
    """A word to add to a vocabulary.

    Attributes:
        word: the word, as the tokenizer normalizes it.
        count: its occurrences in the text.
        former_tokens: its tokens in the vocabulary without any new word.
    """

    word: str
    count: int
    former_tokens: tuple[str, ...]


def select_words(
    word_counts: Mapping[str, int], tokens: Iterable[str], num_words: int, min_count: int = 1
) -> list[NewWord]:
    """Return the words whose addition to a vocabulary saves the most tokens; the order of word_counts has no effect.

    The cost of a word is count * (number of its tokens - 1), with the words that were chosen before it as tokens. A
    word that is "[UNK]" costs count * number of its characters. The word with the highest cost is chosen next (ties:
    order of code points). It is left out if the words that start with it would have more tokens together than it saves,
    or if one of them would become "[UNK]".

    Args:
        word_counts: occurrences of each word, from `beambert.tokenizer.learner.count_words`.
        tokens: the tokens of the vocabulary.
        num_words: maximum number of words.
        min_count: minimum occurrences of a word to add.

    Returns:
        The words in the order of their choice; fewer than `num_words` if the text has no more of them.
    """
    known = set(tokens)
    longest = max(map(len, known), default=1)
    # In this order, the words that start with a word follow it.
    words = sorted(word for word in word_counts if len(word) <= MAX_WORD_CHARACTERS)
    former = {word: split_word(word, known, longest) for word in words}
    current = dict(former)
    costs = {word: _cost(word, word_counts[word], current[word]) for word in words}
    heap = [(-cost, word) for word, cost in costs.items() if cost > 0 and word_counts[word] >= min_count]
    heapq.heapify(heap)
    chosen: list[NewWord] = []
    refused: set[str] = set()
    while heap and len(chosen) < num_words:
        cost, word = heapq.heappop(heap)
        if -cost != costs[word] or word in refused:
            continue
        known.add(word)
        longest = max(longest, len(word))
        changed = {other: split_word(other, known, longest) for other in _starting_with(words, word)}
        saved = sum(costs[other] - _cost(other, word_counts[other], now) for other, now in changed.items())
        loses_word = any(now == [UNKNOWN] != current[other] for other, now in changed.items())
        if saved <= 0 or loses_word:
            known.discard(word)
            refused.add(word)
            continue
        chosen.append(NewWord(word, word_counts[word], tuple(former[word])))
        current |= changed
        for other, now in changed.items():
            cost_now = _cost(other, word_counts[other], now)
            if cost_now != costs[other] and cost_now > 0 and word_counts[other] >= min_count:
                heapq.heappush(heap, (-cost_now, other))
            costs[other] = cost_now
    return chosen


def compare_tokenization(
    word_counts: Mapping[str, int], before: Container[str], after: Container[str]
) -> dict[str, list[tuple[str, list[str], list[str]]]]:
    """Return the words of a text whose tokens differ between two vocabularies, without those that became one token.

    Args:
        word_counts: occurrences of each word.
        before: tokens of the first vocabulary, such as `Vocabulary.ids`.
        after: tokens of the second vocabulary.

    Returns:
        For each of `CHANGES`, its words as (word, tokens before, tokens after), in descending order of their
        occurrences.
    """
    words: dict[str, list[tuple[str, list[str], list[str]]]] = {change: [] for change in CHANGES}
    for word in sorted(word_counts, key=lambda word: (-word_counts[word], word)):
        old, new = split_word(word, before), split_word(word, after)
        if new == [UNKNOWN] != old:
            change = NOW_UNKNOWN
        elif old == new or len(new) == 1:
            continue
        elif old == [UNKNOWN]:
            change = NO_LONGER_UNKNOWN
        else:
            change = FEWER if len(new) < len(old) else MORE if len(new) > len(old) else AS_MANY
        words[change].append((word, old, new))
    return words


def split_token(token: str, tokens: Container[str]) -> list[str]:
    """Split a token of one vocabulary into tokens of another one, greedily longest match first.

    A token that continues a word is split into tokens that continue a word. If that is not possible, it is split as the
    start of a word, and a token that starts a word as the continuation of one.

    Args:
        token: a token that is neither a special nor an "[unusedN]" token.
        tokens: the tokens of the other vocabulary.

    Returns:
        The tokens; empty if the token cannot be split into them.
    """
    text = token.removeprefix(CONTINUATION)
    for continues in (text != token, text == token):
        pieces = split_word(text, tokens, continues=continues)
        if pieces != [UNKNOWN]:
            return pieces
    return []


def _cost(word: str, count: int, spelling: Sequence[str]) -> int:
    return count * (len(word) if list(spelling) == [UNKNOWN] else len(spelling) - 1)


def _starting_with(words: Sequence[str], prefix: str) -> Iterator[str]:
    """Yield the words that start with a prefix, from a sorted sequence."""
    for index in range(bisect.bisect_left(words, prefix), len(words)):
        if not words[index].startswith(prefix):
            return
        yield words[index]

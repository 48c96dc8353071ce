"""Drop the tokens whose absence costs least: the second stage of `tokenizer.learner`.

This is the top-down idea of the published WordPiece learners (keep what longest-match-first uses), with the very number
that it is about: how many more tokens the words would take without a token.
"""

import heapq
from collections import defaultdict
from collections.abc import Sequence

from tokenizer.wordpiece import CONTINUATION

_NONE = -1


def prune_tokens(
    words: Sequence[str], counts: Sequence[int], alphabet: Sequence[str], candidates: Sequence[str], keep: int
) -> list[str]:
    """Drop candidates one by one until `keep` are left, each time the one whose absence costs least.

    The cost of a token is how many more tokens all counted words would take without it. Words are spelled longest match
    first (`tokenizer.wordpiece.split_word`) with all others that are left. The cost is exact at each step, and below 0
    where the greedy rule goes astray with the token. Of equal costs, the candidate that stands last goes first.

    Args:
        words: distinct words of characters of the alphabet.
        counts: occurrences of each.
        alphabet: tokens of one character that spell every word; never dropped.
        candidates: other tokens, none twice; "##" continues a word.
        keep: number of candidates to leave.

    Returns:
        The candidates that are left, the most used first: by occurrences in the spelling of all words, ties in the
        order of code points.
    """
    tokens = _Tokens(words, counts, alphabet, candidates)
    for _ in range(len(candidates) - keep):
        tokens.drop_cheapest()
    return tokens.by_use()


class _Tokens:
    """The tokens that are left, by number, and what the absence of each would cost, kept up to date word by word."""

    def __init__(
        self, words: Sequence[str], counts: Sequence[int], alphabet: Sequence[str], candidates: Sequence[str]
    ) -> None:
        self.words = words
        self.counts = counts
        self.first_candidate = len(alphabet)
        self.names = [*alphabet, *candidates]
        self.texts = [name.removeprefix(CONTINUATION) for name in self.names]
        self.longest = max(map(len, self.texts), default=1)
        # Token numbers by text, without "##".
        self.starting: dict[str, int] = {}
        self.continuing: dict[str, int] = {}
        for number, (name, text) in enumerate(zip(self.names, self.texts, strict=True)):
            self._table(name)[text] = number
        # By candidate; and the words whose spelling, with all tokens or without one of them, has it or had it once.
        self.costs = dict.fromkeys(range(self.first_candidate, len(self.names)), 0)
        self.words_of: dict[int, list[int]] = defaultdict(list)
        for word in range(len(words)):
            self._add(word)
        self.heap = [(cost, -token) for token, cost in self.costs.items()]
        heapq.heapify(self.heap)

    def _table(self, name: str) -> dict[str, int]:
        return self.continuing if name.startswith(CONTINUATION) else self.starting

    def _split(self, word: str, start: int, without: int = _NONE) -> list[int]:
        """Return the token numbers of a word from `start` on, longest match first, one token being absent."""
        spelling = []
        size = len(word)
        while start < size:
            tokens = self.continuing if start else self.starting
            for end in range(min(size, start + self.longest), start, -1):
                token = tokens.get(word[start:end], without)
                if token != without:
                    break
            spelling.append(token)
            start = end
        return spelling

    def _costs_in(self, word: str) -> tuple[list[tuple[int, int]], set[int]]:
        """Return (candidate, cost of its absence) of those in a word, and all candidates that this depends on."""
        spelling = self._split(word, 0)
        costs = []
        involved: set[int] = set()
        start = 0
        for position, token in enumerate(spelling):
            if token >= self.first_candidate and token not in spelling[:position]:
                otherwise = self._split(word, start, token)
                costs.append((token, len(otherwise) - len(spelling) + position))
                involved.add(token)
                involved.update(otherwise)
            start += len(self.texts[token])
        return costs, involved

    def _add(self, word: int) -> list[int]:
        costs, involved = self._costs_in(self.words[word])
        for token, cost in costs:
            self.costs[token] += cost * self.counts[word]
        for token in involved:
            if token >= self.first_candidate:
                self.words_of[token].append(word)
        return [token for token, _ in costs]

    def _subtract(self, word: int) -> list[int]:
        costs, _ = self._costs_in(self.words[word])
        for token, cost in costs:
            self.costs[token] -= cost * self.counts[word]
        return [token for token, _ in costs]

    def drop_cheapest(self) -> None:
        """Drop the candidate of the lowest cost, the last among equals."""
        while True:
            cost, negative = heapq.heappop(self.heap)
            dropped = -negative
            # Every change of a cost is in the heap; what was true before it is passed over.
            if self.costs.get(dropped) == cost:
                break
        words = set(self.words_of.pop(dropped, ()))
        changed: set[int] = set()
        for word in words:
            changed.update(self._subtract(word))
        del self._table(self.names[dropped])[self.texts[dropped]]
        del self.costs[dropped]
        for word in words:
            changed.update(self._add(word))
        changed.discard(dropped)
        for token in changed:
            heapq.heappush(self.heap, (self.costs[token], -token))

    def by_use(self) -> list[str]:
        """Return the candidates that are left, the most used first, ties in the order of code points."""
        uses = dict.fromkeys(range(len(self.names)), 0)
        for word, count in zip(self.words, self.counts, strict=True):
            for token in self._split(word, 0):
                uses[token] += count
        return [self.names[token] for token in sorted(self.costs, key=lambda token: (-uses[token], self.names[token]))]

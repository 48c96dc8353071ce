"""Drop the tokens with the lowest removal cost: the second stage of `beambert.tokenizer.learner`.

Like the published top-down WordPiece learners, it keeps the tokens that longest-match-first tokenization uses. The cost
of a token is exact: the number of additional tokens that the words take without it.
"""

import heapq
from collections import defaultdict
from collections.abc import Container, Sequence

from beambert.tokenizer.wordpiece import CONTINUATION

_NONE = -1


def prune_tokens(
    words: Sequence[str], counts: Sequence[int], alphabet: Sequence[str], candidates: Sequence[str], keep: int
) -> list[str]:
    """Drop the candidate with the lowest cost repeatedly until `keep` candidates are left.

    The cost of a token is the number of additional tokens over all counted words if it is removed. Words are tokenized
    longest match first (`beambert.tokenizer.wordpiece.split_word`) with all remaining tokens, and costs are exact after
    every step. A cost is negative if greedy matching takes more tokens with the token than without it. Ties: the last
    candidate is dropped first.

    Args:
        words: Distinct words over the alphabet.
        counts: Occurrences of each word.
        alphabet: Tokens of one character that cover every word; never dropped.
        candidates: Other tokens, distinct; "##" marks a continuation.
        keep: Number of candidates to keep.

    Returns:
        The remaining candidates by descending frequency in the tokenized words (ties: order of code points).
    """
    tokens = _Tokens(words, counts, alphabet, candidates)
    for _ in range(len(candidates) - keep):
        tokens.drop_cheapest()
    return tokens.by_use()


class _Tokens:
    """The remaining tokens, by number, and the removal cost of each, updated word by word."""

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
        # By candidate: its cost, and the words whose tokens with or without it contain it or did so before.
        self.costs = dict.fromkeys(range(self.first_candidate, len(self.names)), 0)
        self.words_of: dict[int, list[int]] = defaultdict(list)
        for word in range(len(words)):
            self._add(word)
        self.heap = [(cost, -token) for token, cost in self.costs.items()]
        heapq.heapify(self.heap)

    def _table(self, name: str) -> dict[str, int]:
        """Return the table for word starts or for continuations that a token is in."""
        return self.continuing if name.startswith(CONTINUATION) else self.starting

    def _split(self, word: str) -> list[int]:
        """Return the tokens of a word, longest match first."""
        spelling = []
        start, size = 0, len(word)
        while start < size:
            tokens = self.continuing if start else self.starting
            for end in range(min(size, start + self.longest), start, -1):
                token = tokens.get(word[start:end], _NONE)
                if token != _NONE:
                    break
            spelling.append(token)
            start = end
        return spelling

    def _split_without(self, word: str, start: int, token: int, boundaries: Container[int]) -> tuple[list[int], int]:
        """Split a word from `start` on without using one token, up to the next of the boundaries.

        Returns:
            The tokens, and the boundary.
        """
        spelling = []
        size = len(word)
        while True:
            tokens = self.continuing if start else self.starting
            for end in range(min(size, start + self.longest), start, -1):
                other = tokens.get(word[start:end], token)
                if other != token:
                    break
            spelling.append(other)
            start = end
            if start in boundaries:
                return spelling, start

    def _costs_in(self, word: str) -> tuple[list[tuple[int, int]], set[int]]:
        """Return (candidate, removal cost) for the candidates in a word, and all tokens that the costs depend on.

        Where the tokens without the candidate meet a boundary of the present tokens, both continue equally up to the
        next use of the candidate.
        """
        spelling = self._split(word)
        # Offset of each token and of the end, with its position, and the offsets of each candidate.
        boundaries: dict[int, int] = {}
        offsets: dict[int, list[int]] = {}
        start = 0
        for position, token in enumerate(spelling):
            boundaries[start] = position
            if token >= self.first_candidate:
                offsets.setdefault(token, []).append(start)
            start += len(self.texts[token])
        boundaries[start] = len(spelling)
        costs = []
        involved = set(offsets)
        for token, starts in offsets.items():
            cost = reached = 0
            for start in starts:
                if start >= reached:
                    otherwise, reached = self._split_without(word, start, token, boundaries)
                    cost += len(otherwise) - boundaries[reached] + boundaries[start]
                    involved.update(otherwise)
            costs.append((token, cost))
        return costs, involved

    def _add(self, word: int) -> list[int]:
        """Add the costs of a word, and return the candidates concerned."""
        costs, involved = self._costs_in(self.words[word])
        for token, cost in costs:
            self.costs[token] += cost * self.counts[word]
        for token in involved:
            if token >= self.first_candidate:
                self.words_of[token].append(word)
        return [token for token, _ in costs]

    def _subtract(self, word: int) -> list[int]:
        """Subtract the costs of a word, and return the candidates concerned."""
        costs, _ = self._costs_in(self.words[word])
        for token, cost in costs:
            self.costs[token] -= cost * self.counts[word]
        return [token for token, _ in costs]

    def drop_cheapest(self) -> None:
        """Drop the candidate with the lowest cost (ties: the last)."""
        while True:
            cost, negative = heapq.heappop(self.heap)
            dropped = -negative
            # The heap holds every cost that a candidate has had; outdated entries are skipped.
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
        """Return the remaining candidates by descending frequency (ties: order of code points)."""
        uses = dict.fromkeys(range(len(self.names)), 0)
        for word, count in zip(self.words, self.counts, strict=True):
            for token in self._split(word):
                uses[token] += count
        return [self.names[token] for token in sorted(self.costs, key=lambda token: (-uses[token], self.names[token]))]

"""Leaves out the pieces that WordPiece misses least: the second stage of `tokenizer.learner`.

This is the top-down idea of the published WordPiece learners (keep what longest-match-first uses), with the very number
that it is about: how many more pieces the words would take without a piece.
"""

import heapq
from collections import defaultdict
from collections.abc import Sequence

from tokenizer.wordpiece import CONTINUATION

_NONE = -1


def prune_pieces(
    words: Sequence[str], counts: Sequence[int], alphabet: Sequence[str], candidates: Sequence[str], keep: int
) -> list[str]:
    """Drops candidates one by one until `keep` are left, each time the one whose absence costs least.

    The cost of a piece is the number of pieces that all words together (each as often as it is counted) would take
    more without it, spelt longest match first (`tokenizer.wordpiece.split_word`) with all others that are left. It is
    exact at each step, and below 0 where the greedy rule goes astray with the piece. Of equal costs, the candidate
    that stands last goes first.

    Args:
        words: distinct words of characters of the alphabet.
        counts: occurrences of each.
        alphabet: pieces of one character that spell every word; never dropped.
        candidates: other pieces, none twice; "##" continues a word.
        keep: number of candidates to leave.

    Returns:
        The candidates that are left, the most used first: by occurrences in the spelling of all words, ties in the
        order of code points.
    """
    pieces = _Pieces(words, counts, alphabet, candidates)
    for _ in range(len(candidates) - keep):
        pieces.drop_cheapest()
    return pieces.by_use()


class _Pieces:
    """The pieces that are left, by number, and what the absence of each would cost, kept up to date word by word."""

    def __init__(
        self, words: Sequence[str], counts: Sequence[int], alphabet: Sequence[str], candidates: Sequence[str]
    ) -> None:
        self.words = words
        self.counts = counts
        self.first_candidate = len(alphabet)
        self.names = [*alphabet, *candidates]
        self.texts = [name.removeprefix(CONTINUATION) for name in self.names]
        self.longest = max(map(len, self.texts), default=1)
        # Piece numbers by text, without "##".
        self.starting: dict[str, int] = {}
        self.continuing: dict[str, int] = {}
        for number, (name, text) in enumerate(zip(self.names, self.texts, strict=True)):
            self._table(name)[text] = number
        # By candidate; and the words whose spelling, with all pieces or without one of them, has it or had it once.
        self.costs = dict.fromkeys(range(self.first_candidate, len(self.names)), 0)
        self.words_of: dict[int, list[int]] = defaultdict(list)
        for word in range(len(words)):
            self._add(word)
        self.heap = [(cost, -piece) for piece, cost in self.costs.items()]
        heapq.heapify(self.heap)

    def _table(self, name: str) -> dict[str, int]:
        return self.continuing if name.startswith(CONTINUATION) else self.starting

    def _split(self, word: str, start: int, without: int = _NONE) -> list[int]:
        """The numbers of the pieces of a word from `start` on, longest match first, one piece being absent."""
        found = []
        size = len(word)
        while start < size:
            pieces = self.continuing if start else self.starting
            for end in range(min(size, start + self.longest), start, -1):
                piece = pieces.get(word[start:end], without)
                if piece != without:
                    break
            found.append(piece)
            start = end
        return found

    def _costs_in(self, word: str) -> tuple[list[tuple[int, int]], set[int]]:
        """(candidate, what its absence costs) of those that spell a word, and all candidates that this hangs on."""
        spelling = self._split(word, 0)
        costs = []
        involved: set[int] = set()
        start = 0
        for position, piece in enumerate(spelling):
            if piece >= self.first_candidate and piece not in spelling[:position]:
                otherwise = self._split(word, start, piece)
                costs.append((piece, len(otherwise) - len(spelling) + position))
                involved.add(piece)
                involved.update(otherwise)
            start += len(self.texts[piece])
        return costs, involved

    def _add(self, word: int) -> list[int]:
        costs, involved = self._costs_in(self.words[word])
        for piece, cost in costs:
            self.costs[piece] += cost * self.counts[word]
        for piece in involved:
            if piece >= self.first_candidate:
                self.words_of[piece].append(word)
        return [piece for piece, _ in costs]

    def _subtract(self, word: int) -> list[int]:
        costs, _ = self._costs_in(self.words[word])
        for piece, cost in costs:
            self.costs[piece] -= cost * self.counts[word]
        return [piece for piece, _ in costs]

    def drop_cheapest(self) -> None:
        """Drops the candidate of the lowest cost, the last among equals."""
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
        for piece in changed:
            heapq.heappush(self.heap, (self.costs[piece], -piece))

    def by_use(self) -> list[str]:
        """The candidates that are left, the most used first, ties in the order of code points."""
        uses = dict.fromkeys(range(len(self.names)), 0)
        for word, count in zip(self.words, self.counts, strict=True):
            for piece in self._split(word, 0):
                uses[piece] += count
        return [self.names[piece] for piece in sorted(self.costs, key=lambda piece: (-uses[piece], self.names[piece]))]

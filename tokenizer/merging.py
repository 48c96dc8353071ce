"""Byte-pair encoding (Sennrich et al. 2016, section 3.2) with "##" tokens: the first stage of `tokenizer.learner`.

It proposes candidate tokens.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from beambert.tokenizer.wordpiece import CONTINUATION

Pair = tuple[str, str]


def merge_pairs(spellings: Sequence[list[str]], counts: Sequence[int]) -> Iterator[str]:
    """Merge the most frequent pair of neighboring tokens repeatedly until every word is one token.

    Ties: the pair that is first in the order of code points (left token, then right). Within a word, pairs are merged
    from left to right.

    Args:
        spellings: Tokens of each word, initially its characters; modified in place.
        counts: Occurrences of each word.

    Yields:
        The result of each merge. A token can result from several merges.
    """
    pair_counts: dict[Pair, int] = defaultdict(int)
    # Indices of the words that contain the pair or did so before a merge.
    words_of_pair: dict[Pair, list[int]] = defaultdict(list)
    for number, spelling in enumerate(spellings):
        for pair in pairwise(spelling):
            pair_counts[pair] += counts[number]
            words_of_pair[pair].append(number)
    # Counts in the heap may be outdated, but only too high; they are corrected when popped.
    heap = [(-count, pair) for pair, count in pair_counts.items()]
    heapq.heapify(heap)
    while heap:
        negative_count, pair = heap[0]
        count = pair_counts.get(pair, 0)
        if count < -negative_count:
            if count > 0:
                heapq.heapreplace(heap, (-count, pair))
            else:
                heapq.heappop(heap)
            continue
        heapq.heappop(heap)
        left, right = pair
        merged = left + right.removeprefix(CONTINUATION)
        changes: dict[Pair, int] = defaultdict(int)
        for number in words_of_pair.pop(pair):
            for changed, change in _merge_in_word(spellings[number], left, right, merged):
                changes[changed] += change * counts[number]
                if change > 0:
                    words_of_pair[changed].append(number)
        for changed, change in changes.items():
            pair_counts[changed] += change
            if change > 0:
                heapq.heappush(heap, (-pair_counts[changed], changed))
            elif not pair_counts[changed]:
                del pair_counts[changed]
                words_of_pair.pop(changed, None)
        # Removed last: in "aaa" the changes above add to the count of the merged pair itself.
        pair_counts.pop(pair, None)
        yield merged


def _merge_in_word(spelling: list[str], left: str, right: str, merged: str) -> list[tuple[Pair, int]]:
    """Merge a pair in one word in place; return the pairs that the word lost (-1) and gained (+1)."""
    changes = []
    position = 0
    while left in spelling[position:-1]:
        position = spelling.index(left, position)
        if spelling[position + 1] == right:
            if position:
                before = spelling[position - 1]
                changes += [((before, left), -1), ((before, merged), 1)]
            if position + 2 < len(spelling):
                after = spelling[position + 2]
                changes += [((right, after), -1), ((merged, after), 1)]
            spelling[position : position + 2] = [merged]
        position += 1
    return changes

"""A WordPiece vocabulary from text: count words, then merge the most frequent pair of neighbouring pieces, again and
again, until there are enough pieces.

Google never released the learner of the BERT vocabularies. This is byte-pair encoding (Sennrich et al. 2016, section
3.2) over words spelt with "##" pieces, which is what the field uses in its place.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

from tokenizer.normalization import prepare_chunks, split_words
from tokenizer.vocabulary import SPECIAL_TOKENS, VocabularyError
from tokenizer.wordpiece import CONTINUATION, MAX_WORD_CHARACTERS

Pair = tuple[str, str]

# Distinct chunks between two clearances of `count_words`, some 150 bytes each.
_MAX_CHUNKS = 1_000_000


def count_words(texts: Iterable[str], do_lower_case: bool) -> Counter[str]:
    """How often each word occurs in the texts; words as `tokenizer.normalization.split_words` makes them.

    Memory grows with the number of distinct words, not with the amount of text. Counts of parts of a corpus add up to
    the counts of the whole; of a large corpus, prune each part's rarest words before adding (see `learn_vocabulary`).
    """
    words: Counter[str] = Counter()
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(prepare_chunks([text])[0].split())
        if len(chunks) > _MAX_CHUNKS:
            _add_words(words, chunks, do_lower_case)
            chunks.clear()
    _add_words(words, chunks, do_lower_case)
    return words


def _add_words(words: Counter[str], chunks: Counter[str], do_lower_case: bool) -> None:
    for chunk, count in chunks.items():
        for word in split_words(chunk, do_lower_case):
            words[word] += count


def learn_vocabulary(
    word_counts: Mapping[str, int], vocab_size: int, min_count: int = 1, alphabet_limit: int = 1000
) -> list[str]:
    """Learns exactly vocab_size pieces: `SPECIAL_TOKENS` ([PAD] is id 0), the alphabet, then merges, best first.

    The alphabet is the alphabet_limit most frequent characters, ties going to the lower code point; each is a piece as
    it starts a word (c) and as it continues one (##c), where seen so. Then, of all pairs of neighbouring pieces, the
    one with the highest count in the words so far is merged everywhere, ties going to the pair that is first in the
    order of code points (left piece, then right). Nothing depends on the order of word_counts.

    Left out: words counted less than min_count times, of more than 200 characters (always "[UNK]"), or with a
    character outside the alphabet. Memory and time grow with the words that are left, about 1 kB each; min_count
    bounds both.

    Args:
        word_counts: occurrences of each word, as `count_words` counts them.
        vocab_size: number of pieces, all kinds together.
        min_count: words seen fewer times are not learnt from.
        alphabet_limit: number of characters.

    Raises:
        VocabularyError: the alphabet alone has more pieces than vocab_size, or the words are all whole before it is
            reached.
    """
    counted = [
        (word, count) for word, count in word_counts.items() if count >= min_count and len(word) <= MAX_WORD_CHARACTERS
    ]
    alphabet = _most_frequent_characters(counted, alphabet_limit)
    counted = [(word, count) for word, count in counted if alphabet.issuperset(word)]
    words = [[word[0], *(CONTINUATION + character for character in word[1:])] for word, _ in counted]
    counts = [count for _, count in counted]

    spelt = {piece for word in words for piece in word}
    # A dictionary, to keep the order; the key puts every "c" before every "##c".
    pieces = dict.fromkeys([*SPECIAL_TOKENS, *sorted(spelt, key=lambda piece: (len(piece), piece))])
    if len(pieces) > vocab_size:
        raise VocabularyError(
            f"--vocab_size {vocab_size} is less than the {len(pieces)} pieces of the alphabet and the special tokens; "
            f"raise --vocab_size to at least {len(pieces)}, better to some times as many"
        )

    merges = _Merges(words, counts)
    while len(pieces) < vocab_size:
        pair = merges.best_pair()
        if pair is None:
            raise VocabularyError(
                f"the text has words for only {len(pieces)} pieces, not for --vocab_size {vocab_size}; "
                f"lower --vocab_size to {len(pieces)} or less, or add text"
            )
        pieces[merges.merge(pair)] = None
    return list(pieces)


def _most_frequent_characters(counted: list[tuple[str, int]], limit: int) -> set[str]:
    occurrences: Counter[str] = Counter()
    for word, count in counted:
        for character in word:
            occurrences[character] += count
    return set(sorted(occurrences, key=lambda character: (-occurrences[character], character))[:limit])


class _Merges:
    """The words as lists of pieces, with the count of every pair of neighbours kept up to date through merges."""

    def __init__(self, words: list[list[str]], counts: list[int]) -> None:
        self.words = words
        self.counts = counts
        self.pair_counts: dict[Pair, int] = defaultdict(int)
        # Numbers of the words that have the pair, or had it.
        self.words_of_pair: dict[Pair, set[int]] = defaultdict(set)
        for number, word in enumerate(words):
            for pair in pairwise(word):
                self.pair_counts[pair] += counts[number]
                self.words_of_pair[pair].add(number)
        # Every pair is in the heap with a count that is its own or, until it is met, too high.
        self.heap = [(-count, pair) for pair, count in self.pair_counts.items()]
        heapq.heapify(self.heap)

    def best_pair(self) -> Pair | None:
        """The pair with the highest count, the first in the order of code points among equals; None without pairs."""
        while self.heap:
            negative_count, pair = self.heap[0]
            count = self.pair_counts.get(pair, 0)
            if count == -negative_count:
                return pair
            if count < -negative_count and count > 0:
                heapq.heapreplace(self.heap, (-count, pair))
            else:
                heapq.heappop(self.heap)
        return None

    def merge(self, pair: Pair) -> str:
        """Replaces the pair by one piece in every word, from left to right; returns that piece."""
        left, right = pair
        merged = left + right.removeprefix(CONTINUATION)
        changes: dict[Pair, int] = defaultdict(int)
        for number in self.words_of_pair.pop(pair):
            word, count = self.words[number], self.counts[number]
            shorter = _merge_in_word(word, left, right, merged)
            if len(shorter) == len(word):
                continue
            for old in pairwise(word):
                changes[old] -= count
            for new in pairwise(shorter):
                changes[new] += count
                if merged in new:
                    self.words_of_pair[new].add(number)
            self.words[number] = shorter
        for changed, change in changes.items():
            count = self.pair_counts[changed] + change
            if count:
                self.pair_counts[changed] = count
            else:
                del self.pair_counts[changed]
            if change > 0:
                heapq.heappush(self.heap, (-count, changed))
        return merged


def _merge_in_word(word: list[str], left: str, right: str, merged: str) -> list[str]:
    shorter = []
    position = 0
    while position < len(word):
        if word[position] == left and position + 1 < len(word) and word[position + 1] == right:
            shorter.append(merged)
            position += 2
        else:
            shorter.append(word[position])
            position += 1
    return shorter

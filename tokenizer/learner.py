"""Learn a WordPiece vocabulary from word counts.

Google did not release the code that learned the BERT vocabularies. This learner has two stages. Byte-pair encoding
proposes 1.5 times the requested number of tokens (`merge_pairs`). Then the tokens with the lowest cost under
longest-match-first tokenization are dropped (`prune_tokens`). docs/design/vocabulary-learning.md compares it with other
learners.
"""

import heapq
import string
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from operator import add

from beambert.common.word_rules import WordRules
from beambert.tokenizer.normalization import is_cjk, is_punctuation, prepare_chunks, split_words
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, VocabularyError
from beambert.tokenizer.wordpiece import CONTINUATION, MAX_WORD_CHARACTERS

try:
    import beambert.tokenizer._native as _native
except ImportError:  # Installed on a machine without a C compiler.
    _native = None  # type: ignore[assignment]

# Distinct chunks after which `count_words` empties its buffer, about 150 bytes each.
_MAX_CHUNKS = 1_000_000
# Candidate tokens per token of the vocabulary. On validation text, 1.2 is worse and 2 is no better.
_SURPLUS = 1.5
# The released vocabularies have this many reserved tokens between [PAD] (id 0) and [UNK] (id 100).
_RESERVED_BEFORE_UNKNOWN = 99
_NONE = -1


def count_words(texts: Iterable[str], rules: WordRules) -> Counter[str]:
    """Count the words of texts, as split by `beambert.tokenizer.normalization.split_words`.

    Memory is proportional to the number of distinct words, not to the size of the text. Counts of parts of a corpus can
    be added. For a large corpus, limit the counts of each part with `most_frequent` before adding.

    Args:
        texts: The texts.
        rules: Rules that split the texts into words.
    """
    words: Counter[str] = Counter()
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(prepare_chunks([text], rules.tokenize_chinese_chars)[0].split())
        if len(chunks) > _MAX_CHUNKS:
            _add_words(words, chunks, rules)
            chunks.clear()
    _add_words(words, chunks, rules)
    return words


def _add_words(words: Counter[str], chunks: Counter[str], rules: WordRules) -> None:
    """Add the words of chunks, which have no whitespace, to the counts."""
    count_of = words.get
    for chunk, count in chunks.items():
        if chunk.isascii():
            # Most chunks are letters and digits, with or without a punctuation character after them.
            body, mark = (chunk, "") if chunk.isalnum() else (chunk[:-1], chunk[-1])
            if body.isalnum() and (not mark or mark in string.punctuation):
                word = body.lower() if rules.do_lower_case else body
                words[word] = count_of(word, 0) + count
                if mark:
                    words[mark] = count_of(mark, 0) + count
                continue
        for word in split_words(chunk, rules):
            words[word] = count_of(word, 0) + count


def most_frequent(word_counts: Mapping[str, int], limit: int, min_count: int = 1) -> dict[str, int]:
    """Return the `limit` most frequent words; the result does not depend on the order of word_counts.

    Words of more than 200 characters, which are always "[UNK]", are excluded.

    Args:
        word_counts: Occurrences of each word.
        limit: Maximum number of words (ties: order of code points).
        min_count: Minimum occurrences of a word.
    """
    kept = {
        word: count for word, count in word_counts.items() if count >= min_count and len(word) <= MAX_WORD_CHARACTERS
    }
    if len(kept) <= limit:
        return kept
    return dict(sorted(kept.items(), key=lambda item: (-item[1], item[0]))[:limit])


def learn_vocabulary(
    word_counts: Mapping[str, int],
    vocab_size: int,
    num_unused: int = 0,
    alphabet_limit: int = 1000,
    added_tokens: Sequence[str] = (),
) -> list[str]:
    """Learn a vocabulary of exactly vocab_size tokens; the result does not depend on the order of word_counts.

    The alphabet consists of the alphabet_limit most frequent characters (ties: lower code point first). A character c
    is a token at the start of a word (c) and inside a word (##c), see `_alphabet_tokens`. Longer tokens are proposed by
    `merge_pairs` up to 1.5 * vocab_size tokens and reduced to vocab_size by
    `prune_tokens`.

    Words of more than 200 characters, which are always "[UNK]", and words with a character outside the alphabet are
    ignored. Memory and time are proportional to the number of remaining words, less than 1 kB each for words between
    spaces; `most_frequent` limits their number. Time grows faster than their length: 2,000 words of 6.5, 22.5 and 44.7
    letters on average take 0.1, 0.2 and 0.6 s.

    Args:
        word_counts: Occurrences of each word, from `count_words`.
        vocab_size: Number of tokens of all kinds.
        num_unused: Number of "[unusedN]" tokens.
        alphabet_limit: Maximum number of characters in the alphabet.
        added_tokens: Tokens that are kept whole, so that they are not among the words.

    Returns:
        The tokens in id order. Special and reserved tokens come first (`reserved_tokens`), then the alphabet by code
        point with the "##" tokens last, then longer tokens by descending frequency in the tokenized words (ties: order
        of code points), then the added tokens.

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
    forms = _alphabet_tokens(alphabet, words)
    if len(reserved) + len(added_tokens) + len(forms) > vocab_size:
        # The forms that spell the words of the text.
        inner = set().union(*(word[1:] for word in words))
        forms = {word[0] for word in words} | {CONTINUATION + character for character in inner}
    # Sorts every "c" before every "##c".
    characters = sorted(forms, key=lambda token: (len(token), token))

    fixed = len(reserved) + len(added_tokens) + len(characters)
    if fixed > vocab_size:
        raise VocabularyError(
            f"invalid --vocab_size {vocab_size}: the alphabet and the reserved tokens alone are {fixed} tokens; "
            f"raise --vocab_size to at least {fixed}, preferably several times that, or lower --alphabet_limit"
        )
    # A dictionary, to keep the order.
    candidates: dict[str, None] = {}
    most = int(vocab_size * _SURPLUS) - fixed
    for token in merge_pairs(words, counts):
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
    return [*reserved, *characters, *prune_tokens(words, counts, characters, list(candidates), wanted), *added_tokens]


def _alphabet_tokens(alphabet: set[str], words: Sequence[str]) -> set[str]:
    """Return both forms of every character: "c" and "##c", so that other text has fewer "[UNK]".

    The text may have a character only inside words (the x of box), while other text starts a word with it (xenon).
    Punctuation and CJK ideographs are words of their own, and have no "##c" unless a word of the text has other
    characters too, as with `tokenize_chinese_chars` false.
    """
    joined = set().union(*(word for word in words if len(word) > 1))
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


def merge_pairs(words: Sequence[str], counts: Sequence[int]) -> Iterator[str]:
    """Merge the most frequent pair of neighboring tokens repeatedly until every word is one token.

    Ties: the pair that is first in the order of code points (left token, then right). Within a word, pairs are merged
    from left to right.

    Args:
        words: Distinct words, not empty; at first, their tokens are their characters.
        counts: Occurrences of each word.

    Yields:
        The result of each merge. A token can result from several merges.

    Raises:
        ValueError: there are more than 1,114,112 tokens, the number of Unicode code points.
    """
    # A character stands for each token, so that a spelling is a string, a pair is two characters of it, and a merge is
    # `str.replace`. `tokens` has the token of each character.
    tokens: list[str] = []
    symbols: dict[str, str] = {}

    def symbol_of(token: str) -> str:
        if token not in symbols:
            symbols[token] = chr(len(tokens))
            tokens.append(token)
        return symbols[token]

    continuing = {ord(character): symbol_of(CONTINUATION + character) for character in set().union(*words)}
    spellings = [symbol_of(word[0]) + word[1:].translate(continuing) for word in words]

    pair_counts: dict[str, int] = defaultdict(int)
    # Numbers of the words that contain the pair or did so before a merge.
    words_of_pair: dict[str, list[int]] = defaultdict(list)
    for number, spelling in enumerate(spellings):
        for pair in _pairs(spelling):
            pair_counts[pair] += counts[number]
            words_of_pair[pair].append(number)
    # Counts in the heap may be outdated, but only too high; they are corrected when popped.
    heap = [(-count, tokens[ord(pair[0])], tokens[ord(pair[1])], pair) for pair, count in pair_counts.items()]
    heapq.heapify(heap)
    while heap:
        negative_count, left_token, right_token, pair = heap[0]
        count = pair_counts.get(pair, 0)
        if count < -negative_count:
            if count > 0:
                heapq.heapreplace(heap, (-count, left_token, right_token, pair))
            else:
                heapq.heappop(heap)
            continue
        heapq.heappop(heap)
        merged_token = left_token + right_token.removeprefix(CONTINUATION)
        left, right, merged = *pair, symbol_of(merged_token)
        changes: dict[str, int] = defaultdict(int)
        for number in words_of_pair.pop(pair):
            spelling, count = spellings[number], counts[number]
            start = spelling.find(pair)
            if start < 0:
                continue
            spellings[number] = spelling.replace(pair, merged)
            if spelling.find(pair, start + 1) >= 0:
                for other in _pairs(spelling):
                    changes[other] -= count
                for other in _pairs(spellings[number]):
                    changes[other] += count
                    if merged in other:
                        words_of_pair[other].append(number)
                continue
            if start:
                before = spelling[start - 1]
                changes[before + left] -= count
                changes[before + merged] += count
                words_of_pair[before + merged].append(number)
            if start + 2 < len(spelling):
                after = spelling[start + 2]
                changes[right + after] -= count
                changes[merged + after] += count
                words_of_pair[merged + after].append(number)
        for changed, change in changes.items():
            pair_counts[changed] += change
            if change > 0:
                names = tokens[ord(changed[0])], tokens[ord(changed[1])]
                heapq.heappush(heap, (-pair_counts[changed], *names, changed))
            elif not pair_counts[changed]:
                del pair_counts[changed]
                words_of_pair.pop(changed, None)
        # Removed last: the changes above subtract from the count of the merged pair itself in "aaa".
        pair_counts.pop(pair, None)
        yield merged_token


def _pairs(spelling: str) -> Iterator[str]:
    """Return the pairs of neighboring characters."""
    return map(add, spelling, spelling[1:])


def prune_tokens(
    words: Sequence[str], counts: Sequence[int], alphabet: Sequence[str], candidates: Sequence[str], keep: int
) -> list[str]:
    """Drop the candidate with the lowest cost repeatedly until `keep` candidates are left.

    The cost of a token is the number of additional tokens over all counted words if it is removed. Words are tokenized
    longest match first (`split_word` in wordpiece.py) with all remaining tokens, and costs are exact after
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


class _Matcher:
    """Longest match first with the remaining tokens, in Python. `_native.Encoder` takes its place where it is compiled.

    Args:
        names: The tokens in the order of their numbers; "##" marks a continuation.
    """

    def __init__(self, names: Sequence[str]) -> None:
        # Token numbers by text, without "##".
        self._starting: dict[str, int] = {}
        self._continuing: dict[str, int] = {}
        for number, name in enumerate(names):
            self._table(name)[name.removeprefix(CONTINUATION)] = number
        self._longest = max(map(len, (*self._starting, *self._continuing)), default=1)

    def _table(self, name: str) -> dict[str, int]:
        """Return the table for word starts or for continuations that a token is in."""
        return self._continuing if name.startswith(CONTINUATION) else self._starting

    def drop(self, name: str) -> None:
        """Forget a token."""
        del self._table(name)[name.removeprefix(CONTINUATION)]

    def costs(self, word: str, first: int) -> tuple[list[int], list[tuple[int, int]], set[int]]:
        """Return what a word costs without one of its tokens.

        Where the tokens without a candidate meet a boundary of the present tokens, both continue equally up to the next
        use of the candidate.

        Args:
            word: A word that the tokens before `first` spell.
            first: Number of the first candidate.

        Returns:
            The tokens of the word; (candidate, number of additional tokens without it) for the candidates among them;
            and all candidates that these numbers depend on.
        """
        spelling, ends = self._split(word, 0, _NONE, (len(word),))
        # Offset of each token and of the end, with its position, and the offsets of each candidate.
        boundaries = {start: position for position, start in enumerate([0, *ends])}
        offsets: dict[int, list[int]] = {}
        for token, start in zip(spelling, boundaries, strict=False):
            if token >= first:
                offsets.setdefault(token, []).append(start)
        costs = []
        involved = set(offsets)
        for token, starts in offsets.items():
            cost = reached = 0
            for start in starts:
                if start >= reached:
                    otherwise, ends = self._split(word, start, token, boundaries)
                    reached = ends[-1]
                    cost += len(otherwise) - boundaries[reached] + boundaries[start]
                    involved.update(other for other in otherwise if other >= first)
            costs.append((token, cost))
        return spelling, costs, involved

    def _split(self, word: str, start: int, token: int, boundaries: Container[int]) -> tuple[list[int], list[int]]:
        """Return the tokens from `start` up to the next of the boundaries without using one token, and their ends."""
        spelling, ends = list[int](), list[int]()
        while start not in boundaries or not spelling:
            tokens = self._continuing if start else self._starting
            for end in range(min(len(word), start + self._longest), start, -1):
                other = tokens.get(word[start:end], token)
                if other != token:
                    break
            spelling.append(other)
            ends.append(end)
            start = end
        return spelling, ends


class _Tokens:
    """The remaining tokens, by number, and the removal cost of each, updated word by word."""

    def __init__(
        self, words: Sequence[str], counts: Sequence[int], alphabet: Sequence[str], candidates: Sequence[str]
    ) -> None:
        self.words = words
        self.counts = counts
        self.first_candidate = len(alphabet)
        self.names = [*alphabet, *candidates]
        self.matcher = _Matcher(self.names) if _native is None else _native.Encoder(self.names)
        # By candidate: its cost, and the words whose tokens with or without it contain it or did so before.
        self.costs = dict.fromkeys(range(self.first_candidate, len(self.names)), 0)
        self.words_of: dict[int, list[int]] = defaultdict(list)
        # By word: the candidates in it and their costs, as last added to `costs`.
        self.costs_in_word: list[list[tuple[int, int]]] = [[] for _ in words]
        for word in range(len(words)):
            self._add_costs(word)
        self.heap = [(cost, -token) for token, cost in self.costs.items()]
        heapq.heapify(self.heap)

    def _add_costs(self, word: int) -> None:
        """Add the costs of a word."""
        _, costs, involved = self.matcher.costs(self.words[word], self.first_candidate)
        self.costs_in_word[word] = costs
        for token, cost in costs:
            self.costs[token] += cost * self.counts[word]
        for token in involved:
            self.words_of[token].append(word)

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
            for token, cost in self.costs_in_word[word]:
                self.costs[token] -= cost * self.counts[word]
                changed.add(token)
        self.matcher.drop(self.names[dropped])
        del self.costs[dropped]
        for word in words:
            self._add_costs(word)
            changed.update(token for token, _ in self.costs_in_word[word])
        changed.discard(dropped)
        for token in changed:
            heapq.heappush(self.heap, (self.costs[token], -token))

    def by_use(self) -> list[str]:
        """Return the remaining candidates by descending frequency (ties: order of code points)."""
        uses = dict.fromkeys(range(len(self.names)), 0)
        for word, count in zip(self.words, self.counts, strict=True):
            for token in self.matcher.costs(word, len(self.names))[0]:
                uses[token] += count
        return [self.names[token] for token in sorted(self.costs, key=lambda token: (-uses[token], self.names[token]))]

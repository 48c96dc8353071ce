"""Word counts of a corpus: counted in shards, summed by groups of words, pruned by a rule (`learn_vocabulary.py`)."""

import dataclasses
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator

import apache_beam as beam

from pipelines.vocabulary.vocabulary_options import VocabularyOptions
from tokenizer.word_counts import count_words, most_frequent

# A shard of 64 MiB of English has some 200,000 distinct words, those after the first 100,000 once or twice.
WORDS_A_SHARD = 100_000
# (split, language or "" where languages are not distinguished, group of words)
Group = tuple[str, str, int]
# (words joined by blanks, the count of each, number of running words withheld)
Batch = tuple[str, list[int], int]
# (counts by word, number of running words withheld)
GroupCounts = tuple[dict[str, int], int]


def num_word_groups(num_partitions: int) -> int:
    """Return the number of groups that words are merged in: one a shard, so that groups grow no faster than shards.

    At least 64, to have work for a cluster, and at most 1024, as every shard has a batch for every group; then a group
    of a corpus of 10 TB has about a million distinct words, some 150 MB.
    """
    return min(max(64, num_partitions), 1024)


def word_batches(
    split: str,
    texts: Iterable[str],
    options: VocabularyOptions,
    num_groups: int,
    language: str = "",
    weight: float = 1.0,
) -> Iterator[tuple[Group, Batch]]:
    """Count the words of a shard and distribute them over the groups.

    Args:
        split: "train" or "validation". Training text is not counted where a vocabulary is taken over.
        texts: of the shard's documents.
        options: of the vocabulary.
        num_groups: from `num_word_groups`.
        language: of the texts, or "".
        weight: what their counts are multiplied by.
    """
    if split == "train" and not options.vocab_size:
        return
    word_counts = scaled(count_words(texts, options.do_lower_case), weight)
    kept = most_frequent(word_counts, WORDS_A_SHARD if split == "train" else len(word_counts))
    groups: list[tuple[list[str], list[int]]] = [([], []) for _ in range(num_groups)]
    for word, count in kept.items():
        words, counts = groups[zlib.crc32(word.encode("utf-8")) % num_groups]
        words.append(word)
        counts.append(count)
    withheld = word_counts.total() - sum(kept.values())
    for number, (words, counts) in enumerate(groups):
        # What is withheld belongs to no group in particular.
        if words or (withheld and not number):
            yield (split, language, number), (" ".join(words), counts, 0 if number else withheld)


def scaled(word_counts: Counter[str], factor: float) -> Counter[str]:
    """Return the counts times a factor, rounded; counts that become 0 are left out."""
    if factor == 1.0:
        return word_counts
    return +Counter({word: round(count * factor) for word, count in word_counts.items()})


class MergeWordCounts(beam.CombineFn):
    """Sum the counts of the batches of one group. Sums do not depend on the order of merging."""

    def create_accumulator(self) -> GroupCounts:
        """Return empty counts."""
        return {}, 0

    def add_input(self, accumulator: GroupCounts, batch: Batch) -> GroupCounts:
        """Add one batch."""
        words, counts, withheld = batch
        return self._add(accumulator, zip(words.split(), counts, strict=True), withheld)

    def merge_accumulators(self, accumulators: Iterable[GroupCounts]) -> GroupCounts:
        """Add all to a new one."""
        merged = self.create_accumulator()
        for counts, withheld in accumulators:
            merged = self._add(merged, counts.items(), withheld)
        return merged

    def extract_output(self, accumulator: GroupCounts) -> GroupCounts:
        """Return the counts as Beam passes them on."""
        return accumulator

    @staticmethod
    def _add(accumulator: GroupCounts, items: Iterable[tuple[str, int]], withheld: int) -> GroupCounts:
        total, before = accumulator
        for word, count in items:
            total[word] = total.get(word, 0) + count
        return total, before + withheld


@dataclasses.dataclass(frozen=True)
class WordGroup:
    """The contribution of a group of words of the training text.

    Attributes:
        words: counts of the words to learn from.
        distinct: words of the group, those left out included.
        running: occurrences of these, and of what shards withheld.
    """

    words: dict[str, int]
    distinct: int
    running: int


def prune_group(counts: GroupCounts, limit: int, min_count: int) -> WordGroup:
    """Keep at most `limit` words of a group, each counted at least min_count times."""
    word_counts, withheld = counts
    kept = most_frequent(word_counts, limit, min_count)
    return WordGroup(kept, len(word_counts), sum(word_counts.values()) + withheld)

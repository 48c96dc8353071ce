"""Count the words of a corpus by shard, sum the counts by word group, and prune them.

`transforms/vocabulary.py` has the order of these steps.
"""

import dataclasses
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping

from beambert.common.word_rules import WordRules
from beambert.pipelines.vocabulary.vocabulary_options import VocabularyOptions
from beambert.tokenizer.learner import count_words, most_frequent

# A shard of 64 MiB of English has about 200,000 distinct words; those beyond the first 100,000 occur once or twice.
WORDS_PER_SHARD = 100_000
# (split, language, or "" if languages are not distinguished, number of the word group)
Group = tuple[str, str, int]
# (words joined by spaces, count of each word, dropped running words, weight of all of them)
Batch = tuple[str, list[int], int, float]
# (counts by word, dropped running words)
GroupCounts = tuple[dict[str, int], int]


def num_word_groups(num_partitions: int) -> int:
    """Return the number of word groups: one per shard, at least 64 and at most 1024.

    64 groups provide enough parallelism for a cluster. The maximum limits the number of batches, as every shard has one
    for every group. With 1024 groups, a group of a 10 TB corpus has about a million distinct words (about 150 MB).
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
    """Count the words of a shard and distribute them over the word groups.

    Args:
        split: "train" or "validation". Training text is not counted if the vocabulary is given.
        texts: texts of the documents.
        options: options of the vocabulary.
        num_groups: number of word groups, from `num_word_groups`.
        language: language of the texts, or "".
        weight: factor of the counts, which `MergeWordCounts` applies to the sum of all shards.
    """
    if split == "train" and not options.vocab_size:
        return
    word_counts = count_words(texts, WordRules.of(options))
    kept = most_frequent(word_counts, WORDS_PER_SHARD if split == "train" else len(word_counts))
    groups: list[tuple[list[str], list[int]]] = [([], []) for _ in range(num_groups)]
    for word, count in kept.items():
        words, counts = groups[zlib.crc32(word.encode("utf-8")) % num_groups]
        words.append(word)
        counts.append(count)
    dropped = word_counts.total() - sum(kept.values())
    for number, (words, counts) in enumerate(groups):
        # Dropped words are reported with the first group.
        if words or (dropped and not number):
            yield (split, language, number), (" ".join(words), counts, 0 if number else dropped, weight)


def rounded(word_counts: Mapping[str, float], dropped: float) -> GroupCounts:
    """Round weighted counts. A word keeps a count of 0, and its occurrences are added to the dropped ones."""
    counts = {word: round(count) for word, count in word_counts.items()}
    # fsum: the sum does not depend on the order of the words.
    without_count = math.fsum(count for word, count in word_counts.items() if not counts[word])
    return counts, round(dropped + without_count)


@dataclasses.dataclass(frozen=True)
class WordGroup:
    """The words of one group that the learner gets.

    Attributes:
        words: counts of the words to learn from.
        distinct: distinct words of the group, including pruned ones and those with a weighted count of 0.
        running: running words of the group, including pruned ones and those dropped by shards.
    """

    words: dict[str, int]
    distinct: int
    running: int


def prune_group(counts: GroupCounts, limit: int, min_count: int) -> WordGroup:
    """Keep the `limit` most frequent words of a group that occur at least min_count times."""
    word_counts, dropped = counts
    kept = most_frequent(word_counts, limit, min_count)
    return WordGroup(kept, len(word_counts), sum(word_counts.values()) + dropped)

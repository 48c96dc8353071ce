"""The vocabulary of a corpus: word counts of its shards, merged by groups of words, and what is learned from them.

Memory is bounded by a rule on the text, not by what happens to meet on a worker. So the words learned from do not
depend on the engine, the workers or the order of files:

1. A shard is a partition of documents, chosen by hash. Of the training text, it passes on its `WORDS_A_SHARD`
   most frequent words (ties: the first in order of code points), and how many running words it withholds.
2. Words are spread over groups by their CRC-32. The counts of a group are summed (`MergeWordCounts`).
3. A group keeps the words counted at least min_count times, and of these at most `WORDS_LEARNED_FROM` / groups, the
   most frequent (ties as above).
4. The learner sees what all groups keep, at most `WORDS_LEARNED_FROM` words.

`--language_sampling_exponent` multiplies the counts of a language between steps 2 and 3 by its sampling factor
(`language_factors`) and rounds them.

Words of more than 200 characters are "[UNK]" under every vocabulary and are withheld by their shard. `corpus.json` says
how much was left out. Validation text is only measured, group by group, and passes on all its other words.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from pipelines.dataset import SPLITS
from pipelines.errors import DatasetError
from pipelines.io.atomic_files import read_bytes, write_atomically
from pipelines.sources import SourceError
from pipelines.vocabulary.vocabulary_options import VocabularyOptions, language_factors, require_languages
from pipelines.vocabulary.word_groups import Batch, Group, GroupCounts, MergeWordCounts, WordGroup, prune_group, scaled
from tokenizer.coverage import Coverage, coverage
from tokenizer.learner import alphabet_losses, learn_vocabulary
from tokenizer.vocabulary import Vocabulary

# Less than 1 kB of memory each in the learner.
WORDS_LEARNED_FROM = 2_000_000


@dataclasses.dataclass(frozen=True)
class Vocabularies:
    """The vocabulary that was made, and what it is compared with.

    Attributes:
        vocab: learned or taken over.
        learned_from: numbers of words, for `corpus.json`; None where the vocabulary was taken over.
        compared: another vocabulary to measure, or None.
        alphabet: what its limit leaves out (`tokenizer.learner.alphabet_losses`); None as for learned_from.
    """

    vocab: Vocabulary
    learned_from: dict[str, int] | None
    compared: Vocabulary | None
    alphabet: dict[str, int] | None = None


def learn_or_read(_: None, word_groups: Iterable[WordGroup], options: VocabularyOptions) -> Vocabularies:
    """Learn the vocabulary, or read the one that is given.

    Raises:
        SourceError: no word to learn from.
        VocabularyError: too few words for the vocabulary's size, or a file is no vocabulary.
    """
    compared = _read(options.compare_vocab) if options.compare_vocab else None
    if options.vocab_file:
        return Vocabularies(_read(options.vocab_file), None, compared)
    words: dict[str, int] = {}
    distinct = running = 0
    for group in word_groups:
        words.update(group.words)
        distinct += group.distinct
        running += group.running
    if not running:
        raise SourceError(
            "no document with a word is left to learn a vocabulary from; give files with text, see in "
            "rejected/*.jsonl of the output which rules left it out, or lower --validation_fraction"
        )
    tokens = learn_vocabulary(words, options.vocab_size, options.num_unused, options.alphabet_limit)
    learned_from = {
        "words": running,
        "words_excluded": running - sum(words.values()),
        "distinct_words": distinct,
        "distinct_words_excluded": distinct - len(words),
    }
    alphabet = alphabet_losses(words, options.alphabet_limit)
    return Vocabularies(Vocabulary(tuple(tokens)), learned_from, compared, alphabet)


def _read(path: str) -> Vocabulary:
    return Vocabulary.from_bytes(read_bytes(path), path)


def measure_group(counts: GroupCounts, vocabularies: Vocabularies) -> tuple[Coverage, Coverage]:
    """Return how the vocabulary, and the one it is compared with, spell a group of validation words."""
    word_counts, withheld = counts
    # A shard of validation text withholds nothing but words of more than 200 characters.
    too_long = Coverage(words=withheld, unknown=withheld, tokens=withheld)
    compared = vocabularies.compared
    return (
        coverage(word_counts, vocabularies.vocab.ids) + too_long,
        coverage(word_counts, compared.ids) + too_long if compared else Coverage(),
    )


def write_vocabulary(
    _: None, vocabularies: Vocabularies, coverages: Iterable[tuple[Coverage, Coverage]], path: str, mark: str = ""
) -> dict[str, Any]:
    """Write the vocabulary file; return the "vocab" of `corpus.json`.

    Raises:
        DatasetError: the file `mark` is missing: the directory was deleted and possibly replaced.
    """
    if mark and not FileSystems.exists(mark):
        raise DatasetError(f"{mark} was removed while the command ran; run the same command again")
    own = other = Coverage()
    for measured in coverages:
        own, other = own + measured[0], other + measured[1]
    validation = {"vocab": dataclasses.asdict(own)}
    if vocabularies.compared:
        validation["compare_vocab"] = dataclasses.asdict(other)
    with write_atomically(path) as file:
        file.write(vocabularies.vocab.to_bytes())
    return {
        "size": len(vocabularies.vocab),
        "sha256": file.sha256,
        "learned_from": vocabularies.learned_from,
        "alphabet": vocabularies.alphabet,
        "validation": validation,
    }


def scale_language_counts(
    element: tuple[Group, GroupCounts], totals: Mapping[str, int], exponent: float
) -> tuple[Group, Batch]:
    """Return a group's word counts of one language, multiplied by the language's factor."""
    (split, language, number), (word_counts, withheld) = element
    require_languages(totals, exponent)
    factor = language_factors(totals, exponent)[language]
    counts = scaled(Counter(word_counts), factor)
    return (split, "", number), (" ".join(counts), list(counts.values()), round(withheld * factor))


def make_vocabulary(
    start: beam.PCollection,
    words: beam.PCollection,
    options: VocabularyOptions,
    num_groups: int,
    path: str,
    mark: str = "",
) -> beam.PCollection:
    """Compose the steps from the word counts of shards to the vocabulary file.

    Args:
        start: one element, None.
        words: what `word_batches` yields for every shard.
        options: how to make it.
        num_groups: from `num_word_groups`.
        path: the file to write, on any Beam filesystem.
        mark: a file without which nothing is written, "" for none.

    Returns:
        One element, the "vocab" of `corpus.json`: "size" and "sha256" of the file; "learned_from", numbers of words in
        the training text and of those left out; "validation", the `Coverage` of it and of what it is compared with.
    """
    merged = words | "MergeWordCounts" >> beam.CombinePerKey(MergeWordCounts())
    train, validation = (
        merged | f"{split.capitalize()}Words" >> beam.Filter(lambda element, split: element[0][0] == split, split)
        for split in SPLITS
    )
    if options.language_sampling_exponent != 1.0:
        totals = (
            train
            | "LanguageWords" >> beam.Map(lambda element: (element[0][1], sum(element[1][0].values()) + element[1][1]))
            | "AddLanguageWords" >> beam.CombinePerKey(sum)
        )
        train = (
            train
            | "WeighLanguages"
            >> beam.Map(scale_language_counts, beam.pvalue.AsDict(totals), options.language_sampling_exponent)
            | "MergeLanguages" >> beam.CombinePerKey(MergeWordCounts())
        )
    train, validation = train | "TrainCounts" >> beam.Values(), validation | "ValidationCounts" >> beam.Values()
    kept = train | "PruneWords" >> beam.Map(prune_group, WORDS_LEARNED_FROM // num_groups, options.min_count)
    vocabularies = start | "Learn" >> beam.Map(learn_or_read, beam.pvalue.AsIter(kept), options)
    coverages = validation | "Measure" >> beam.Map(measure_group, beam.pvalue.AsSingleton(vocabularies))
    return start | "WriteVocabulary" >> beam.Map(
        write_vocabulary, beam.pvalue.AsSingleton(vocabularies), beam.pvalue.AsIter(coverages), path, mark
    )

"""Learn the vocabulary of a corpus from the word counts of its shards, in bounded memory.

Limits are applied by shard and by word group, never by worker. So the learned vocabulary does not depend on the runner,
the workers or the order of files:

1. A shard contains the documents of one hash partition. For training text, it emits its `WORDS_PER_SHARD` most frequent
   words (ties: order of code points) and the number of running words that it drops.
2. Words are distributed over groups by CRC-32, and the counts of a group are summed, multiplied by the weights of their
   inputs and rounded (`MergeWordCounts`).
3. A group keeps words with at least min_count occurrences, up to the `MAX_LEARNER_WORDS` / groups most frequent ones
   (ties as above).
4. The learner gets the words of all groups, at most `MAX_LEARNER_WORDS`.

With `--language_sampling_exponent`, the counts of each language are multiplied by its sampling factor
(`language_factors`) and rounded between steps 2 and 3.

Words of more than 200 characters, which are always "[UNK]", are dropped in step 1. `corpus.json` records the number of
dropped words. Validation text is only used to measure coverage, group by group; its shards drop no other words.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from beambert.pipelines.dataset import SPLITS
from beambert.pipelines.errors import DatasetError, SourceError
from beambert.pipelines.io.atomic_files import read_bytes, write_atomically
from beambert.pipelines.vocabulary.vocabulary_options import VocabularyOptions, language_factors, require_languages
from beambert.pipelines.vocabulary.word_groups import (
    Batch,
    Group,
    GroupCounts,
    MergeWordCounts,
    WordGroup,
    prune_group,
    rounded,
)
from beambert.tokenizer.coverage import Coverage, coverage
from beambert.tokenizer.learner import alphabet_losses, learn_vocabulary
from beambert.tokenizer.vocabulary import Vocabulary

# The learner takes less than 1 kB of memory per word.
MAX_LEARNER_WORDS = 2_000_000


@dataclasses.dataclass(frozen=True)
class Vocabularies:
    """The vocabulary of a corpus, and the vocabulary to compare it with.

    Attributes:
        vocab: the learned or given vocabulary.
        learned_from: word counts for `corpus.json`; None for a given vocabulary.
        compared: the vocabulary to compare with, or None.
        alphabet: result of `beambert.tokenizer.learner.alphabet_losses`; None for a given vocabulary.
    """

    vocab: Vocabulary
    learned_from: dict[str, int] | None
    compared: Vocabulary | None
    alphabet: dict[str, int] | None = None


def learn_or_read(_: None, word_groups: Iterable[WordGroup], options: VocabularyOptions) -> Vocabularies:
    """Learn the vocabulary, or read the one given by --vocab_file.

    Raises:
        SourceError: there are no words to learn from.
        VocabularyError: there are too few words for the vocabulary size, or a vocabulary file is invalid.
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
            "the training split has no words to learn a vocabulary from; give files with text, check any "
            "rejected/*.jsonl in the output directory, or lower --validation_fraction"
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
    """Return the coverage of a group of validation words by the vocabulary and by the one to compare with."""
    word_counts, dropped = counts
    # Shards of validation text drop only words of more than 200 characters.
    too_long = Coverage(words=dropped, unknown=dropped, tokens=dropped)
    compared = vocabularies.compared
    return (
        coverage(word_counts, vocabularies.vocab.ids) + too_long,
        coverage(word_counts, compared.ids) + too_long if compared else Coverage(),
    )


def write_vocabulary(
    _: None, vocabularies: Vocabularies, coverages: Iterable[tuple[Coverage, Coverage]], path: str, mark: str = ""
) -> dict[str, Any]:
    """Write the vocabulary file and return "vocab" of `corpus.json`.

    Raises:
        DatasetError: the file `mark` is missing, because the directory was deleted and possibly replaced.
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
    """Return the word counts of a group in one language, multiplied by the sampling factor of the language."""
    (split, language, number), (word_counts, dropped) = element
    require_languages(totals, exponent)
    factor = language_factors(totals, exponent)[language]
    counts, dropped = rounded({word: count * factor for word, count in word_counts.items()}, dropped * factor)
    return (split, "", number), (" ".join(counts), list(counts.values()), dropped, 1.0)


def make_vocabulary(
    start: beam.PCollection,
    words: beam.PCollection,
    options: VocabularyOptions,
    num_groups: int,
    path: str,
    mark: str = "",
) -> beam.PCollection:
    """Build the vocabulary file from the word counts of shards.

    Args:
        start: one element, None.
        words: results of `word_batches` for all shards.
        options: options of the vocabulary.
        num_groups: number of word groups, from `num_word_groups`.
        path: vocabulary file to write, on any Beam filesystem.
        mark: file that must exist when the vocabulary is written, or "".

    Returns:
        One element, "vocab" of `corpus.json`: "size" and "sha256" of the file, "learned_from" with the words of the
        training text and the dropped ones, and "validation" with the `Coverage` of both vocabularies.
    """
    vocabularies, coverages = learn_vocabularies(start, words, options, num_groups)
    return start | "WriteVocabulary" >> beam.Map(
        write_vocabulary, beam.pvalue.AsSingleton(vocabularies), beam.pvalue.AsIter(coverages), path, mark
    )


def learn_vocabularies(
    start: beam.PCollection, words: beam.PCollection, options: VocabularyOptions, num_groups: int
) -> tuple[beam.PCollection, beam.PCollection]:
    """Return one `Vocabularies`, and the `Coverage` of both vocabularies for every group of validation words.

    The arguments are as for `make_vocabulary`.
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
    kept = train | "PruneWords" >> beam.Map(prune_group, MAX_LEARNER_WORDS // num_groups, options.min_count)
    vocabularies = start | "Learn" >> beam.Map(learn_or_read, beam.pvalue.AsIter(kept), options)
    return vocabularies, validation | "Measure" >> beam.Map(measure_group, beam.pvalue.AsSingleton(vocabularies))

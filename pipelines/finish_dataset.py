"""Finish a dataset: write the report, the descriptions and then dataset.json, after all shards are written."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from beambert.common.word_rules import WordRules, without_released_rules
from beambert.pipelines import dataset
from beambert.pipelines.corpus.corpus_manifest import Corpus
from beambert.pipelines.corpus.corpus_warnings import alphabet_warnings
from beambert.pipelines.dataset import SPLITS, Dataset, Shard, sizes_of_dataset
from beambert.pipelines.dataset_report import data_report
from beambert.pipelines.dataset_report.data_warnings import Facts, warnings_of
from beambert.pipelines.dataset_report.dataset_descriptions import write_missing_descriptions
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.examples.statistics import Statistics
from beambert.pipelines.examples.train_eval_overlap import Overlap
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.io.atomic_files import require_written, write_text
from beambert.pipelines.io.versions import versions
from beambert.tokenizer.vocabulary import Vocabulary


def recorded_options(
    options: PretrainingDataOptions, vocabulary: Vocabulary, corpus: Corpus | None = None, corpus_sha256: str = ""
) -> dict[str, Any]:
    """Return the field "options" of `dataset.json`: these options, those of the corpus, and the checksums.

    Args:
        options: options of the examples.
        vocabulary: the vocabulary of the examples.
        corpus: manifest of the corpus; None for documents of another pipeline.
        corpus_sha256: hex SHA-256 of the manifest.
    """
    recorded = {
        **without_released_rules(asdict(options)),
        # A list, as JSON has it, so that it compares equal to the recorded options.
        "length_bins": list(options.length_bins),
        "vocab_sha256": vocabulary.sha256,
    }
    return recorded if corpus is None else {**recorded, "corpus": corpus.options, "corpus_sha256": corpus_sha256}


def finish_dataset(
    output: str,
    options: PretrainingDataOptions,
    vocabulary: Vocabulary,
    shards: Iterable[Shard],
    statistics: Mapping[str, Statistics],
    corpus: Corpus | None = None,
    corpus_sha256: str = "",
    overlap: Overlap | None = None,
) -> Dataset:
    """Write report.html, README.md, croissant.json, then dataset.json, and return the manifest.

    Args:
        output: dataset directory with all shards and vocab.txt.
        options: options of the examples.
        vocabulary: the vocabulary of the examples.
        shards: all shards, in any order.
        statistics: statistics by split.
        corpus, corpus_sha256: as for `recorded_options`.
        overlap: validation text that occurs in the training text; None if unknown.

    Raises:
        DatasetError: there are no training instances, or a shard is missing or was written twice.
    """
    by_split = {split: statistics.get(split, Statistics()) for split in SPLITS}
    if not by_split["train"].instances:
        raise DatasetError("there are no training instances: the documents are too short; add longer documents")
    shards = sorted(shards, key=lambda shard: shard.name)
    repeated = [name for name, number in Counter(shard.name for shard in shards).items() if number > 1]
    if repeated:
        raise DatasetError(f"{repeated[0]} was written twice; join the collections before CreatePretrainingExamples")
    require_written(output, sizes_of_dataset(shards))
    alphabet: list[str] = []
    if corpus is not None and corpus.vocab["sha256"] == vocabulary.sha256:
        unknown = by_split["train"].unknown_tokens / max(by_split["train"].tokens, 1)
        alphabet = alphabet_warnings(corpus.vocab, corpus.options["alphabet_limit"], unknown)
    counts = corpus.counts if corpus is not None else {}
    num_replacements = len(vocabulary.text_ids())
    found = overlap or Overlap(0, 0, 0, 0)
    train, validation = by_split["train"], by_split["validation"]
    warnings = warnings_of(Facts(train, validation, counts, found, options, num_replacements, alphabet))
    manifest = Dataset(
        max_seq_length=options.max_seq_length,
        max_predictions_per_seq=options.max_predictions_per_seq,
        instances_per_row=options.instances_per_row,
        features=options.names_of_features(),
        file_format=options.format,
        compression=options.compression,
        ragged=options.without_padding,
        vocab_size=len(vocabulary),
        vocab_sha256=vocabulary.sha256,
        **asdict(WordRules.of(options)),
        options=recorded_options(options, vocabulary, corpus, corpus_sha256),
        counts={
            **counts,
            **{split: by_split[split].numbers() for split in SPLITS},
            **({"overlap": overlap._asdict()} if overlap is not None else {}),
            "warnings": warnings,
        },
        shards=shards,
        versions=versions(options.format),
    )
    largest = max(manifest.shards_of("train"), key=lambda shard: shard.examples)
    samples = data_report.read_samples(f"{output}/{largest.name}", vocabulary)
    report = data_report.render(manifest, options, train, validation, vocabulary, samples)
    write_text(f"{output}/{data_report.FILE_NAME}", report)
    write_missing_descriptions(manifest, output)
    write_text(f"{output}/{dataset.FILE_NAME}", manifest.to_json())
    return manifest

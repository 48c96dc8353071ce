"""Finish job 2: write the report, the descriptions and then dataset.json, after all shards are written."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import apache_beam as beam
import numpy as np

from beambert.common.word_rules import WordRules
from beambert.pipelines import dataset
from beambert.pipelines.corpus.corpus_reader import CorpusReader
from beambert.pipelines.dataset import SPLITS, Dataset, Shard, sizes_of_dataset
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.examples import train_eval_overlap
from beambert.pipelines.examples.statistics import Statistics
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.io.atomic_files import read_bytes, write_text
from beambert.pipelines.io.versions import versions
from beambert.pipelines.io.written_files import require_written
from beambert.pipelines.reporting import data_report
from beambert.pipelines.reporting.data_warnings import warnings_of
from beambert.pipelines.reporting.dataset_descriptions import write_missing_descriptions
from beambert.pipelines.reporting.report_content import Report
from beambert.pipelines.reporting.samples import read_samples
from beambert.pipelines.vocabulary.alphabet_warning import alphabet_warnings
from beambert.tokenizer.vocabulary import Vocabulary


class WriteManifest(beam.DoFn):
    """Write report.html, README.md, croissant.json, then dataset.json, after all shards are written."""

    def __init__(
        self,
        reader: CorpusReader,
        output: str,
        options: PretrainingDataOptions,
        recorded_options: dict[str, Any],
        vocab: dict[str, Any],
    ) -> None:
        self._reader = reader
        self._output = output
        self._options = options
        self._recorded_options = recorded_options
        self._vocab = vocab

    def process(
        self,
        _: None,
        shards: Iterable[list[Shard]],
        statistics: dict[str, Statistics],
        overlap: np.ndarray,
    ) -> Iterator[str]:
        """Write the files and yield the path of the manifest."""
        # Read here, not part of the job: the manifest of a corpus of terabytes exceeds the size limit of a job.
        corpus = self._reader.read_manifest()
        by_split = {split: statistics.get(split, Statistics()) for split in SPLITS}
        if not by_split["train"].instances:
            raise DatasetError(
                "the corpus has no training instances: its documents are too short; add longer documents"
            )
        validation = train_eval_overlap.read_validation_sentences(self._reader, corpus.shards)
        common = train_eval_overlap.overlap_of(validation, overlap)
        alphabet: list[str] = []
        if corpus.vocab["sha256"] == self._vocab["sha256"]:
            unknown = by_split["train"].unknown_tokens / max(by_split["train"].tokens, 1)
            alphabet = alphabet_warnings(corpus.vocab, corpus.options["alphabet_limit"], unknown)
        all_shards = sorted((shard for written in shards for shard in written), key=lambda shard: shard.name)
        require_written(self._output, sizes_of_dataset(all_shards))
        vocab_path = f"{self._output}/{dataset.VOCAB_FILE_NAME}"
        vocab = Vocabulary.from_bytes(read_bytes(vocab_path), vocab_path)
        num_replacements = len(vocab.text_ids())
        warnings = warnings_of(by_split, corpus.counts, common, self._options, num_replacements, alphabet)
        manifest = Dataset(
            max_seq_length=self._options.max_seq_length,
            max_predictions_per_seq=self._options.max_predictions_per_seq,
            instances_per_row=self._options.instances_per_row,
            features=self._options.names_of_features(),
            file_format=self._options.format,
            compression=self._options.compression,
            ragged=self._options.without_padding,
            vocab_size=self._vocab["size"],
            vocab_sha256=self._vocab["sha256"],
            **asdict(WordRules.of(self._options)),
            options=self._recorded_options,
            counts={
                **corpus.counts,
                **{split: by_split[split].numbers() for split in SPLITS},
                "overlap": common._asdict(),
                "warnings": warnings,
            },
            shards=all_shards,
            versions=versions(self._options.format),
        )
        largest = max(manifest.shards_of("train"), key=lambda shard: shard.examples)
        samples = read_samples(f"{self._output}/{largest.name}", vocab)
        content = Report(manifest, self._options, by_split, corpus.options, vocab.tokens, num_replacements, samples)
        write_text(f"{self._output}/{data_report.FILE_NAME}", data_report.render(content))
        write_missing_descriptions(manifest, self._output)
        path = f"{self._output}/{dataset.FILE_NAME}"
        write_text(path, manifest.to_json())
        yield path

"""Job 2: a corpus's parts and a vocabulary -> tokens -> pairs -> masks -> shards, dataset.json last.

This file only composes; rules live in `shards.py` and what it calls. A part is a bucket.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from pipelines import dataset
from pipelines.corpus_files import Corpus, Part
from pipelines.dataset import Dataset, DatasetError, Shard
from pipelines.pretraining_options import PretrainingDataOptions
from pipelines.shards import SPLITS, duplicates_of, tokenize_part, write_shards
from pipelines.versions import require_same_rules, versions
from pipelines.writing import read_bytes, write_text
from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import Vocabulary


class WriteShards(beam.DoFn):
    """Part -> the shard files of each duplicate; yields (shards, counts)."""

    def __init__(self, corpus: str, output: str, options: PretrainingDataOptions) -> None:
        self._corpus = corpus
        self._output = output
        self._options = options

    def setup(self) -> None:
        """Loads the vocabulary, once a worker thread."""
        require_same_rules(self._options.character_rules, "the machine that started the job")
        path = f"{self._output}/{dataset.VOCAB_FILE_NAME}"
        self._vocab = Vocabulary.from_bytes(read_bytes(path), path)
        self._tokenizer = Tokenizer(self._vocab, self._options.do_lower_case)

    def process(self, part: Part) -> Iterator[tuple[list[Shard], dict[str, int]]]:
        """Tokenises one part and writes its shards."""
        documents = tokenize_part(f"{self._corpus}/{part.name}", part.split, self._tokenizer, self._options)
        unknown = int(np.count_nonzero(documents.token_ids == self._vocab.unk_id))
        for duplicate in range(duplicates_of(part.split, self._options)):
            shards, statistics = write_shards(documents, part, duplicate, self._output, self._tokenizer, self._options)
            counts = statistics.to_json()
            if duplicate == 0:
                counts |= {"tokens": len(documents.token_ids), "unknown_tokens": unknown}
            yield shards, counts


class WriteDatasetManifest(beam.DoFn):
    """Every shard is on disk: writes dataset.json."""

    def __init__(
        self,
        output: str,
        options: PretrainingDataOptions,
        recorded_options: dict[str, Any],
        corpus: Corpus,
        vocab: dict[str, Any],
    ) -> None:
        self._output = output
        self._options = options
        self._recorded_options = recorded_options
        self._corpus = corpus
        self._vocab = vocab

    def process(self, _: None, shards: Iterable[tuple[list[Shard], dict[str, int]]]) -> Iterator[str]:
        """Writes the manifest and yields its path."""
        shards = list(shards)
        counts: dict[str, Any] = dict(self._corpus.counts)
        for split in SPLITS:
            total: Counter[str] = Counter()
            for written, shard_counts in shards:
                if any(shard.split == split for shard in written):
                    total.update(shard_counts)
            counts[split] = dict(sorted(total.items()))
        if not counts["train"].get("instances"):
            raise DatasetError("the corpus gives no training instance: its documents are too short; add longer ones")
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
            do_lower_case=self._options.do_lower_case,
            options=self._recorded_options,
            counts=counts,
            shards=sorted((shard for written, _ in shards for shard in written), key=lambda shard: shard.name),
            versions=versions(),
        )
        path = f"{self._output}/{dataset.FILE_NAME}"
        write_text(path, manifest.to_json())
        yield path


def build_pretraining_data(
    pipeline: beam.Pipeline,
    corpus: Corpus,
    corpus_directory: str,
    options: PretrainingDataOptions,
    recorded_options: dict[str, Any],
    vocab: dict[str, Any],
    output: str,
) -> None:
    """Composes job 2.

    Args:
        pipeline: to add the steps to.
        corpus: the manifest of job 1.
        corpus_directory: where it lies.
        options: what to do.
        recorded_options: what `dataset.json` is to say of options: these and the corpus's.
        vocab: "size" and "sha256" of vocab.txt, which lies in `output` already.
        output: the dataset directory, on any Beam filesystem.
    """
    shards = (
        pipeline
        | "Parts" >> beam.Create(corpus.parts)
        | "Spread" >> beam.Reshuffle()
        | "WriteShards" >> beam.ParDo(WriteShards(corpus_directory, output, options))
    )
    _ = (
        pipeline
        | "Start" >> beam.Create([None])
        | "Manifest"
        >> beam.ParDo(
            WriteDatasetManifest(output, options, recorded_options, corpus, vocab), shards=beam.pvalue.AsIter(shards)
        )
    )

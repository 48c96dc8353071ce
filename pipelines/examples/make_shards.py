"""Tokenize the documents of a partition, and write the shards of one copy of a partition."""

from collections.abc import Sequence

import numpy as np

from beambert.pipelines.corpus.corpus_manifest import CorpusShard
from beambert.pipelines.corpus.corpus_reader import CorpusReader
from beambert.pipelines.dataset import PartitionOfSplit, Shard
from beambert.pipelines.documents import Document
from beambert.pipelines.examples import shard_writer
from beambert.pipelines.examples.pretraining_examples import PretrainingExamples
from beambert.pipelines.examples.statistics import Statistics
from beambert.pipelines.instances.instances import TokenizedDocuments, from_sentences
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.io.live_counts import WorkCounter
from beambert.tokenizer.tokenizer import Tokenizer


def shard_name(place: PartitionOfSplit, copy: int, row_length: int, options: PretrainingDataOptions) -> str:
    """Return the path of the shard for a row length, relative to the dataset directory."""
    of_length = f"length-{row_length:05d}-" if options.length_bins else ""
    return (
        f"shards/{place.split}-copy-{copy:03d}-{of_length}{place.partition:05d}-of-{place.partitions:05d}"
        f"{shard_writer.extension(options)}"
    )


def tokenize(
    texts: Sequence[str],
    sentences: np.ndarray,
    weights: np.ndarray,
    languages: Sequence[str],
    split: str,
    tokenizer: Tokenizer,
    options: PretrainingDataOptions,
) -> TokenizedDocuments:
    """Tokenize the documents of a partition.

    Args:
        texts: the sentences of all documents.
        sentences: int64 [documents], number of sentences of each document.
        weights: float64 [documents], sampling weights.
        languages: language of each document.
        split: "train" or "validation"; the latter has no weights.
        tokenizer: the tokenizer.
        options: options of the examples; language_factors are used.
    """
    token_ids, token_starts = tokenizer.encode_batch(texts)
    # The validation split stays unchanged.
    if split != "train":
        weights = np.ones(len(sentences))
    elif options.language_factors:
        weights = weights * np.array([options.language_factors[language] for language in languages])
    return from_sentences(token_ids, token_starts, sentences, weights)


def tokenize_shard(
    corpus: CorpusReader, corpus_shard: CorpusShard, options: PretrainingDataOptions, tokenizer: Tokenizer
) -> TokenizedDocuments:
    """Read one Parquet shard of the corpus into flat arrays of token ids."""
    table = corpus.read_shard(corpus_shard.name)
    documents = table["sentences"].combine_chunks()
    sentences = np.diff(documents.offsets.to_numpy()).astype(np.int64)
    weights, languages = table["weight"].to_numpy(), table["language"].to_pylist()
    return tokenize(
        documents.flatten().to_pylist(), sentences, weights, languages, corpus_shard.split, tokenizer, options
    )


def tokenize_documents(
    documents: Sequence[Document], split: str, options: PretrainingDataOptions, tokenizer: Tokenizer
) -> TokenizedDocuments:
    """Tokenize segmented documents, in their order."""
    texts = [sentence for document in documents for sentence in document.sentences]
    sentences = np.array([document.num_sentences for document in documents], np.int64)
    weights = np.array([document.weight for document in documents])
    languages = [document.language for document in documents]
    return tokenize(texts, sentences, weights, languages, split, tokenizer, options)


def write_shards(
    examples: PretrainingExamples, copy: int, output: str, counter: WorkCounter | None = None
) -> tuple[list[Shard], Statistics]:
    """Write one copy of one partition, one file per row length that occurs.

    Args:
        examples: the examples of the partition.
        copy: number of the copy.
        output: dataset directory.
        counter: counter of the work on the copy; None for none.
    """
    options, vocab_size = examples.options, len(examples.tokenizer.vocabulary)
    statistics = Statistics()
    shards: list[Shard] = []
    num_rows = 0
    for row_length, batches in examples.by_row_length(copy, statistics):
        name = shard_name(examples.place, copy, row_length, options)
        with shard_writer.create(f"{output}/{name}", options, row_length, vocab_size) as file:
            for features in batches:
                file.write(features)
                num_rows += len(features["input_ids"])
                if counter:
                    # Rows with several instances are fewer; the counter then lags behind.
                    counter.add(len(features["input_ids"]), counter.total * num_rows / statistics.instances)
        predictions = options.predictions_in(row_length)
        shards.append(
            Shard(
                name,
                examples.place.split,
                copy,
                file.examples,
                file.bytes,
                file.sha256,
                row_length,
                predictions,
            )
        )
    return shards, statistics

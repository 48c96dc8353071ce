"""Tokenize the documents of a partition, and write shards atomically as TFRecord, Parquet or ArrayRecord files."""

import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from beambert.pipelines.corpus.corpus_manifest import CorpusReader, CorpusShard
from beambert.pipelines.dataset import PartitionOfSplit, Shard
from beambert.pipelines.documents import Document
from beambert.pipelines.examples import array_record_files
from beambert.pipelines.examples.example_encoder import ExampleEncoder, mask_feature
from beambert.pipelines.examples.pretraining_examples import PretrainingExamples
from beambert.pipelines.examples.statistics import Statistics
from beambert.pipelines.instances.instances import TokenizedDocuments, from_sentences
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.io.atomic_files import HashedFile, write_atomically
from beambert.pipelines.io.job_progress import WorkCounter
from beambert.tokenizer.tokenizer import Tokenizer

# Values are never null, which the schema declares.
_INT32 = pyarrow.field("element", pyarrow.int32(), nullable=False)
_UINT8 = pyarrow.field("element", pyarrow.uint8(), nullable=False)
_BYTES = ("segment_ids", "sequence_ids", "next_sentence_labels")


def parquet_schema(options: PretrainingDataOptions) -> pyarrow.Schema:
    """Return the schema: lists of int32, or of uint8 for small values, and a scalar label without packing."""
    fields = []
    for name, name_in_file in options.names_of_features().items():
        value = _UINT8 if name in _BYTES else _INT32
        is_list = options.pack or not name.startswith("next_sentence_")
        fields.append(pyarrow.field(name_in_file, pyarrow.list_(value) if is_list else value.type, nullable=False))
    return pyarrow.schema(fields)


def _parquet_encodings(options: PretrainingDataOptions) -> dict[str, Any]:
    """Return the arguments of pyarrow.parquet.ParquetWriter for the column encodings.

    Ids and positions use byte stream split. After zstd they are 15 % smaller than with plain or dictionary encoding,
    and take half the time.
    """
    split = [f"{field.name}.list.element" for field in parquet_schema(options) if field.type == pyarrow.list_(_INT32)]
    return {"use_dictionary": False, "use_byte_stream_split": split}


def _parquet_table(features: dict[str, np.ndarray], options: PretrainingDataOptions) -> pyarrow.Table:
    """Return a batch of n rows as a table.

    Args:
        features: as for `beambert.pipelines.examples.example_encoder.ExampleEncoder.encode`, including
            `mask_feature` of every feature.
        options: options of the examples.
    """
    columns = []
    types = parquet_schema(options)
    for name, name_in_file in options.names_of_features().items():
        of_type = types.field(name_in_file).type
        if not pyarrow.types.is_list(of_type):
            columns.append(pyarrow.array(features[name][:, 0], of_type))
            continue
        content = features[mask_feature(name)] != 0  # [n, L], [n, P] or [n, K]
        offsets = np.concatenate([[0], np.cumsum(content.sum(axis=1))]).astype(np.int32)
        values = pyarrow.array(features[name][content], of_type.value_type)
        columns.append(pyarrow.ListArray.from_arrays(offsets, values, type=of_type))
    return pyarrow.Table.from_arrays(columns, schema=types)


# Level 6 takes more than three times as long and makes files a tenth smaller.
_GZIP_LEVEL = 1


class ShardFile:
    """An open shard; `examples`, `bytes` and `sha256` are final once it is closed."""

    def __init__(self, file: HashedFile, append: Callable[[dict[str, np.ndarray]], object]) -> None:
        self._file = file
        self._append = append
        self.examples = 0

    def write(self, features: dict[str, np.ndarray]) -> None:
        """Append a batch of records.

        Args:
            features: arrays by feature, from `beambert.pipelines.examples.pretraining_examples.features_of`.
        """
        self._append(features)
        self.examples += len(features["input_ids"])

    @property
    def bytes(self) -> int:
        """Return the size of the file in bytes."""
        return self._file.bytes

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the file in hexadecimal."""
        return self._file.sha256


def extension(options: PretrainingDataOptions) -> str:
    """Return the suffix of shard file names, including the dot."""
    if options.format == "parquet":
        return ".parquet"
    if options.format == "array_record":
        return array_record_files.EXTENSION
    return ".tfrecord.gz" if options.compression == "gzip" else ".tfrecord"


@contextmanager
def create_shard(path: str, options: PretrainingDataOptions, row_length: int, vocab_size: int) -> Iterator[ShardFile]:
    """Open a shard for writing; after an error, no file remains.

    Args:
        path: new file, on any Beam filesystem.
        options: options of the examples: format, compression, features, their names, and padding.
        row_length: length L of the rows.
        vocab_size: number of tokens in the vocabulary.
    """
    with write_atomically(path) as file:
        if options.format == "parquet":
            schema = parquet_schema(options)
            with pyarrow.parquet.ParquetWriter(
                file, schema, compression="zstd", **_parquet_encodings(options)
            ) as writer:
                yield ShardFile(file, lambda features: writer.write_table(_parquet_table(features, options)))
            return
        encoder = ExampleEncoder(options, row_length, vocab_size)
        if options.format == "array_record":
            with array_record_files.create(file) as append:
                yield ShardFile(file, lambda features: append(encoder.serialize(features)))
            return
        if options.compression == "gzip":
            # Without file name and time in the header, the same records give the same bytes.
            with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as compressed:
                yield ShardFile(file, lambda features: compressed.write(encoder.encode(features)))
            return
        yield ShardFile(file, lambda features: file.write(encoder.encode(features)))


def shard_name(place: PartitionOfSplit, copy: int, row_length: int, options: PretrainingDataOptions) -> str:
    """Return the path of the shard for a row length, relative to the dataset directory."""
    of_length = f"length-{row_length:05d}-" if options.length_bins else ""
    return (
        f"shards/{place.split}-copy-{copy:03d}-{of_length}{place.partition:05d}-of-{place.partitions:05d}"
        f"{extension(options)}"
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
        with create_shard(f"{output}/{name}", options, row_length, vocab_size) as file:
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

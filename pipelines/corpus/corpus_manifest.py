"""Read, verify and write a corpus: `corpus.json` and `corpus/*.parquet`.

Each partition of a corpus is one Parquet shard, with documents in order of their IDs. The second job reads each shard
as one partition, without another shuffle. Its job graph does not contain the checksums of the shards, which would be
most of its bytes. A worker process reads them from `corpus.json` and verifies the SHA-256 of that file, which is part
of the job.
"""

import dataclasses
import functools
import hashlib
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow
import pyarrow.compute
import pyarrow.parquet
from apache_beam.io.filesystems import FileSystems

from beambert.common.typed_json import (
    Count,
    FormatError,
    JsonError,
    NonEmpty,
    Number,
    Positive,
    RelativeName,
    Sha256,
    convert,
    decode,
    require,
    require_format,
    shown,
)
from beambert.common.word_rules import without_released_rules
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.options import CorpusOptions
from beambert.pipelines.dataset import SPLITS, VOCAB_FILE_NAME, PartitionOfSplit
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.io.atomic_files import list_files, read_bytes, write_atomically
from beambert.pipelines.io.manifest_schemas import (
    CorpusCounts,
    CorpusVocabulary,
    InputFile,
    Split,
)

FILE_NAME = "corpus.json"
FORMAT = "beambert-corpus"
FORMAT_VERSION = 3
SCHEMA = pyarrow.schema(
    [
        ("id", pyarrow.string()),
        ("title", pyarrow.string()),
        ("source", pyarrow.string()),
        ("language", pyarrow.string()),
        ("weight", pyarrow.float64()),
        ("sentences", pyarrow.list_(pyarrow.string())),
    ]
)
# Another column of shards in which a document has metadata, so that the files of other corpora stay the same.
METADATA = pyarrow.field("metadata", pyarrow.string())
_REMEDY = "restore it from a copy, or delete the directory and build the corpus again"
_ROW_GROUP_CHARACTERS = 8 << 20
_ROW_GROUP_DOCUMENTS = 10_000


@dataclasses.dataclass(frozen=True)
class CorpusShard:
    """One Parquet file, which contains one partition.

    Attributes:
        name: path relative to the corpus directory.
        split: "train" or "validation".
        partition: number of the partition within the split.
        partitions: number of partitions of the split.
        documents: number of documents.
        sentences: number of sentences.
        bytes: size of the file.
        sha256: hex SHA-256 of the file.
    """

    name: RelativeName
    split: Split
    partition: Count
    partitions: Positive
    documents: Count
    sentences: Count
    bytes: Count
    sha256: Sha256

    @property
    def place(self) -> PartitionOfSplit:
        """Return the partition."""
        return PartitionOfSplit(self.split, self.partition, self.partitions)


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The content of `corpus.json`.

    Attributes:
        options: `CorpusOptions` of the build, without released word rules. Together with `files`, they identify a
            finished stage.
        files: [path, bytes, modification time, ...] of every input file.
        counts: documents, sentences, words, characters and bytes, in total, by input and by language. Also documents
            rejected by reason and by input, paragraphs cleaned by rule, and bytes removed by input and rule. Also
            files that lost more than half of their text, and letters of uncased text that lose a mark.
        vocab: "size" and "sha256" of vocab.txt, and its coverage (`beambert.pipelines.vocabulary`).
        shards: all Parquet files.
        versions: versions of the packages that built the corpus.
    """

    options: dict[str, Any]
    files: list[InputFile]
    counts: dict[str, Any]
    vocab: dict[str, Any]
    shards: list[CorpusShard]
    versions: dict[str, str]

    def to_json(self) -> str:
        """Return the text of `corpus.json`, with sorted keys."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **dataclasses.asdict(self)}
        return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def load(directory: str, remedy: str = _REMEDY) -> Corpus | None:
    """Return the manifest of a corpus directory, or None if the file is missing.

    Args:
        directory: corpus directory on any Beam filesystem.
        remedy: end of the error message for an invalid manifest.

    Raises:
        SourceError: the manifest is invalid.
    """
    path = FileSystems.join(directory, FILE_NAME)
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise SourceError(f"{path} is a directory; {remedy}") from error
    return parse(content, path, remedy)


def parse(manifest: bytes, path: str, remedy: str = _REMEDY) -> Corpus:
    """Return the content of a `corpus.json`.

    Args:
        manifest: bytes of the file.
        path: path of the file, for messages.
        remedy: end of the error message for an invalid manifest.

    Raises:
        SourceError: the manifest is invalid.
    """
    try:
        require_format(manifest, FORMAT, FORMAT_VERSION)
        corpus = decode(manifest, Corpus)
        options = convert(corpus.options, CorpusOptions, "options")
        require(corpus.counts, CorpusCounts, "counts")
        require(corpus.vocab, CorpusVocabulary, "vocab")
        for number, file in enumerate(corpus.files):
            require(file[:3], tuple[NonEmpty, Count, Number | str | None], f"files[{number}]")
            require(file[3:], list[Number], f"files[{number}][3:]")
        for number, shard in enumerate(corpus.shards):
            _require_name(shard, number)
        _require_sums(corpus.shards, corpus.counts)
    except FormatError as error:
        raise SourceError(f"{path} {error}; build the corpus again into another directory") from error
    except JsonError as error:
        raise SourceError(f"{path}: {error}; {remedy}") from error
    # An option that is not recorded has its default.
    return dataclasses.replace(
        corpus, options={**without_released_rules(dataclasses.asdict(options)), **corpus.options}
    )


def _require_name(shard: CorpusShard, number: int) -> None:
    """Raise JsonError if the name of a shard does not match its partition."""
    name = f"corpus/{shard.split}-{shard.partition:05d}-of-{shard.partitions:05d}.parquet"
    if shard.partition >= shard.partitions or shard.name != name:
        raise JsonError(
            f"shards[{number}].name is {shown(shard.name)}, but its split, partition and partitions are "
            f"{shard.split}, {shard.partition} and {shard.partitions}"
        )


def _require_sums(shards: Sequence[CorpusShard], counts: Mapping[str, Any]) -> None:
    """Raise JsonError if shards are duplicated or do not add up to the counts."""
    names = {shard.name for shard in shards}
    if len(names) != len(shards):
        raise JsonError("a shard is listed twice")
    for unit in ("documents", "sentences"):
        for split in SPLITS:
            count = counts[unit][split]
            total = sum(getattr(shard, unit) for shard in shards if shard.split == split)
            if total != count:
                raise JsonError(f"counts.{unit}.{split} is {count}, but the shards sum to {total}")


def corpus_shard_name(split: str, number: int, options: CorpusOptions) -> str:
    """Return the name of the files of a shard, without suffix."""
    return f"{split}-{number:05d}-of-{options.num_partitions_of(split):05d}"


def write_shard(path: str, documents: Sequence[Document]) -> tuple[int, str]:
    """Write documents as Parquet in row groups of bounded size.

    Args:
        path: the new file, on any Beam filesystem.
        documents: segmented documents, in the order to write.

    Returns:
        Size in bytes and hex SHA-256 of the file.
    """
    schema = SCHEMA.append(METADATA) if any(document.metadata for document in documents) else SCHEMA
    with write_atomically(path) as file, pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        group: list[Document] = []
        characters = 0
        for document in documents:
            group.append(document)
            characters += len(document.text)
            if characters >= _ROW_GROUP_CHARACTERS or len(group) >= _ROW_GROUP_DOCUMENTS:
                writer.write_table(_table(group, schema))
                group, characters = [], 0
        if group:
            writer.write_table(_table(group, schema))
    return file.bytes, file.sha256


def _table(documents: list[Document], schema: pyarrow.Schema) -> pyarrow.Table:
    rows = [(each.id, each.title, each.source, each.language, each.weight, _metadata_json(each)) for each in documents]
    *columns, metadata = zip(*rows, strict=True)
    arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=False)]
    arrays.append(_sentences(documents))
    if METADATA.name in schema.names:
        arrays.append(pyarrow.array(metadata, METADATA.type))
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def _sentences(documents: list[Document]) -> pyarrow.Array:
    """Return the column of sentences; Arrow splits the texts several times as fast as it converts lists."""
    if not all(document.paragraphs for document in documents):
        return pyarrow.array([document.sentences for document in documents], pyarrow.list_(pyarrow.string()))
    return pyarrow.compute.split_pattern(pyarrow.array([document.text for document in documents]), "\n")


def _metadata_json(document: Document) -> str:
    """Return the metadata as a JSON object, a string that every reader of Parquet supports; "" without metadata."""
    return json.dumps(document.metadata, ensure_ascii=False, sort_keys=True) if document.metadata else ""


def sizes_of_corpus(shards: Iterable[CorpusShard]) -> dict[str, int | None]:
    """Return the files of a corpus by name, with their sizes in bytes if known, as `require_written` expects."""
    return {VOCAB_FILE_NAME: None, **{shard.name: shard.bytes for shard in shards}}


REMEDY = "restore it from a copy, or build the corpus again into another directory"
_LOCK = threading.Lock()


@dataclasses.dataclass(frozen=True)
class CorpusReader:
    """A reader that verifies the files of a corpus.

    Attributes:
        directory: corpus directory, on any Beam filesystem.
        manifest_sha256: hex SHA-256 of its `corpus.json`.
    """

    directory: str
    manifest_sha256: str

    @classmethod
    def open(cls, directory: str) -> "CorpusReader":
        """Return a reader for the current state of a corpus directory."""
        content = read_bytes(f"{directory}/{corpus_manifest.FILE_NAME}")
        return cls(directory, hashlib.sha256(content).hexdigest())

    def read_manifest(self) -> Corpus:
        """Read `corpus.json`.

        Raises:
            SourceError: the file is missing or has changed since the job started.
        """
        path = f"{self.directory}/{corpus_manifest.FILE_NAME}"
        return corpus_manifest.parse(_checked(path, self.manifest_sha256, "its state at the start of the job"), path)

    def read_shard(self, name: str, columns: Sequence[str] = ("sentences", "weight", "language")) -> pyarrow.Table:
        """Read a shard.

        Args:
            name: path of the shard relative to the corpus directory.
            columns: names of columns in `corpus_manifest.SCHEMA`, or `METADATA`, which a shard may lack; the default is
                what job 2 requires.

        Raises:
            SourceError: the file is missing, or its SHA-256 differs from `corpus.json`.
        """
        with _LOCK:
            sha256 = _checksums(self)[name]
        # Read into memory at once: a shard is several dozen megabytes, and hashing is much faster than tokenizing.
        content = _checked(f"{self.directory}/{name}", sha256, corpus_manifest.FILE_NAME)
        shard = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content))
        missing = {METADATA.name} - set(shard.schema_arrow.names)
        return shard.read([column for column in columns if column not in missing]).combine_chunks()


@functools.lru_cache(maxsize=1)
def _checksums(reader: CorpusReader) -> dict[str, str]:
    """Return the SHA-256 of every shard by name; cached in the process."""
    return {shard.name: shard.sha256 for shard in reader.read_manifest().shards}


def _checked(path: str, sha256: str, expected: str) -> bytes:
    """Return the content of a file, or raise SourceError if its SHA-256 is not `sha256`, that of `expected`."""
    try:
        content = read_bytes(path)
    except FileNotFoundError as error:
        raise SourceError(f"{path} is missing; {REMEDY}") from error
    actual = hashlib.sha256(content).hexdigest()
    if actual != sha256:
        raise SourceError(f"{path} differs from {expected} (SHA-256 {actual[:12]}, not {sha256[:12]}); {REMEDY}")
    return content


def require_shards(directory: str, shards: Iterable[CorpusShard]) -> None:
    """Check with one directory listing that every shard exists with the size stated in `corpus.json`.

    Raises:
        SourceError: a shard is missing or has a different size.
    """
    sizes = {file.path.rsplit("/", 1)[-1]: file.size_in_bytes for file in list_files(f"{directory}/corpus/*.parquet")}
    for shard in shards:
        size = sizes.get(shard.name.rsplit("/", 1)[-1])
        if size is None:
            raise SourceError(f"{directory}/{shard.name} is missing; {REMEDY}")
        if size != shard.bytes:
            raise SourceError(
                f"{directory}/{shard.name} differs from {corpus_manifest.FILE_NAME} ({size:,} bytes, not "
                f"{shard.bytes:,}); {REMEDY}"
            )

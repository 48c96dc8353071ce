"""A corpus on disk: `corpus.json`, `corpus/*.parquet` and `rejected/*.jsonl`.

A corpus is stored as the partitions it was grouped into, a Parquet shard each, documents in order of their identity.
The second job reads a shard as one partition and needs no shuffle of its own.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow
import pyarrow.parquet
from apache_beam.io.filesystems import FileSystems

from beambert_common.renamed_fields import with_new_names, with_old_names
from beambert_common.typed_json import (
    Count,
    JsonError,
    NonEmpty,
    Number,
    Positive,
    RelativeName,
    Sha256,
    convert,
    decode,
    header_of,
    require,
    shown,
)
from pipelines.corpus.records import Record
from pipelines.dataset import SPLITS, VOCAB_FILE_NAME
from pipelines.errors import SourceError
from pipelines.io.atomic_files import read_bytes, write_atomically
from pipelines.io.manifest_schemas import (
    RENAMED_CORPUS_FIELDS,
    CorpusCounts,
    CorpusVocabulary,
    InputFile,
    RecordedCorpusOptions,
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
_REMEDY = "restore it from a copy, or delete the directory and build the corpus again"
_ROW_GROUP_CHARACTERS = 8 << 20
_ROW_GROUP_DOCUMENTS = 10_000


@dataclasses.dataclass(frozen=True)
class CorpusShard:
    """One Parquet file, which is one partition.

    Attributes:
        name: path relative to the corpus directory.
        split: "train" or "validation".
        partition, partitions: its number within the split, and how many the split has.
        documents, sentences: how many it holds.
        bytes, sha256: of the file.
    """

    name: RelativeName
    split: Split
    partition: Count
    partitions: Positive
    documents: Count
    sentences: Count
    bytes: Count
    sha256: Sha256


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The content of `corpus.json`.

    Attributes:
        options: what the corpus was made with; with `files` the fingerprint by which a finished stage is known.
        files: [path, bytes, time last changed, ...] of every input.
        counts: documents, sentences, words, characters and bytes, by input and by language too; documents rejected by
            reason and by input; paragraphs cleaned by rule; bytes lost by input and rule; the files that cleaning left
            less than half of; letters of uncased text that lose a mark, with an example.
        vocab: "size" and "sha256" of vocab.txt, and how it fits (`pipelines.vocabulary`).
        shards: every Parquet file.
        versions: packages the corpus was made with.
    """

    options: dict[str, Any]
    files: list[InputFile]
    counts: dict[str, Any]
    vocab: dict[str, Any]
    shards: list[CorpusShard]
    versions: dict[str, str]

    def to_json(self) -> str:
        """Serialize to the text of `corpus.json`, keys sorted."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **dataclasses.asdict(self)}
        return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def load(directory: str, remedy: str = _REMEDY) -> Corpus | None:
    """Return the manifest of a corpus directory, None if there is none.

    Args:
        directory: on any Beam filesystem.
        remedy: the end of the message about a damaged manifest.

    Raises:
        SourceError: it is there but cannot be understood.
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
    """Return the content of a `corpus.json`; `remedy` ends the message about a damaged one.

    Raises:
        SourceError: it cannot be understood; `path` is named.
    """
    names: dict[str, str] = {}
    try:
        header = header_of(manifest)
        if header.format != FORMAT or header.format_version not in (FORMAT_VERSION, *RENAMED_CORPUS_FIELDS):
            raise SourceError(
                f"{path} is of format {shown(header.format)} {shown(header.format_version)}, this beambert reads "
                f"{shown(FORMAT)} {FORMAT_VERSION}; build the corpus again into another directory"
            )
        names = RENAMED_CORPUS_FIELDS.get(header.format_version, {})
        corpus = convert(with_new_names(decode(manifest, dict[str, Any]), names), Corpus)
        require(corpus.options, RecordedCorpusOptions, "options")
        require(corpus.counts, CorpusCounts, "counts")
        require(corpus.vocab, CorpusVocabulary, "vocab")
        for number, file in enumerate(corpus.files):
            require(file[:3], tuple[NonEmpty, Count, Number | str | None], f"files[{number}]")
            require(file[3:], list[Number], f"files[{number}][3:]")
        for number, shard in enumerate(corpus.shards):
            _require_name(shard, number)
        _require_sums(corpus.shards, corpus.counts)
    except JsonError as error:
        raise SourceError(f"{path}: {with_old_names(str(error), names)}; {remedy}") from error
    return corpus


def _require_name(shard: CorpusShard, number: int) -> None:
    """Raise JsonError where the name of a shard is not that of its partition."""
    name = f"corpus/{shard.split}-{shard.partition:05d}-of-{shard.partitions:05d}.parquet"
    if shard.partition >= shard.partitions or shard.name != name:
        raise JsonError(
            f"shards[{number}].name is {shown(shard.name)}, its split, partition and partitions are {shard.split}, "
            f"{shard.partition} and {shard.partitions}"
        )


def _require_sums(shards: Sequence[CorpusShard], counts: Mapping[str, Any]) -> None:
    """Raise JsonError where shards are missing, are there twice, or do not add up to the counts."""
    names = {shard.name for shard in shards}
    if len(names) != len(shards):
        raise JsonError("a shard is listed twice")
    for unit in ("documents", "sentences"):
        for split in SPLITS:
            count = counts[unit][split]
            total = sum(getattr(shard, unit) for shard in shards if shard.split == split)
            if total != count:
                raise JsonError(f"counts.{unit}.{split} is {count}, the sum over the shards is {total}")


def write_shard(path: str, records: Sequence[Record]) -> tuple[int, str]:
    """Write documents as Parquet in row groups of bounded size.

    Args:
        path: the file to make.
        records: the documents, in the order to write.

    Returns:
        Size in bytes and SHA-256 of the file.
    """
    with write_atomically(path) as file, pyarrow.parquet.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        group: list[Record] = []
        characters = 0
        for record in records:
            group.append(record)
            characters += len(record.text)
            if characters >= _ROW_GROUP_CHARACTERS or len(group) >= _ROW_GROUP_DOCUMENTS:
                writer.write_table(_table(group))
                group, characters = [], 0
        if group:
            writer.write_table(_table(group))
    return file.bytes, file.sha256


def _table(records: list[Record]) -> pyarrow.Table:
    rows = [
        (record.id.hex(), record.title, record.source, record.language, record.weight, record.text.split("\n"))
        for record in records
    ]
    columns = [pyarrow.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    return pyarrow.Table.from_arrays(columns, schema=SCHEMA)


def sizes_of_corpus(shards: Iterable[CorpusShard]) -> dict[str, int | None]:
    """Return what `require_written` checks of a corpus: its shards and its vocabulary."""
    return {VOCAB_FILE_NAME: None, **{shard.name: shard.bytes for shard in shards}}

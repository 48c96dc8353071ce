"""A corpus on disk: `corpus.json`, `corpus/*.parquet` and `rejected/*.jsonl`.

A corpus is stored as the partitions it was grouped into, a Parquet part each, documents in order of their identity.
The second job reads a part as one partition and needs no shuffle of its own.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow
import pyarrow.parquet
from apache_beam.io.filesystems import FileSystems

from beambert_common.typed_json import (
    Count,
    JsonError,
    NonEmpty,
    Number,
    Positive,
    RelativeName,
    Sha256,
    decode,
    header_of,
    require,
    shown,
)
from pipelines.corpus.records import Record
from pipelines.dataset import SPLITS, VOCAB_FILE_NAME
from pipelines.errors import SourceError
from pipelines.io.atomic_files import read_bytes, write_atomically
from pipelines.io.manifest_schemas import CorpusCounts, CorpusVocabulary, InputFile, RecordedCorpusOptions, Split

FILE_NAME = "corpus.json"
FORMAT = "beambert-corpus"
FORMAT_VERSION = 2
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
class Part:
    """One Parquet file, which is one partition.

    Attributes:
        name: path relative to the corpus directory.
        split: "train" or "validation".
        bucket, buckets: its number within the split, and how many the split has.
        documents, sentences: how many it holds.
        bytes, sha256: of the file.
    """

    name: RelativeName
    split: Split
    bucket: Count
    buckets: Positive
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
        vocab: "size" and "sha256" of vocab.txt, and how it fits (`pipelines.corpus.learn_vocabulary.make_vocabulary`).
        parts: every Parquet file.
        versions: packages the corpus was made with.
    """

    options: dict[str, Any]
    files: list[InputFile]
    counts: dict[str, Any]
    vocab: dict[str, Any]
    parts: list[Part]
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
    try:
        header = header_of(manifest)
        if header.format != FORMAT or header.format_version != FORMAT_VERSION:
            raise SourceError(
                f"{path} is of format {shown(header.format)} {shown(header.format_version)}, this beambert reads "
                f"{shown(FORMAT)} {FORMAT_VERSION}; build the corpus again into another directory"
            )
        corpus = decode(manifest, Corpus)
        require(corpus.options, RecordedCorpusOptions, "options")
        require(corpus.counts, CorpusCounts, "counts")
        require(corpus.vocab, CorpusVocabulary, "vocab")
        for number, file in enumerate(corpus.files):
            require(file[:3], tuple[NonEmpty, Count, Number | str | None], f"files[{number}]")
            require(file[3:], list[Number], f"files[{number}][3:]")
        for number, part in enumerate(corpus.parts):
            _require_name(part, number)
        _require_sums(corpus.parts, corpus.counts)
    except JsonError as error:
        raise SourceError(f"{path}: {error}; {remedy}") from error
    return corpus


def _require_name(part: Part, number: int) -> None:
    """Raise JsonError where the name of a part is not that of its partition."""
    name = f"corpus/{part.split}-{part.bucket:05d}-of-{part.buckets:05d}.parquet"
    if part.bucket >= part.buckets or part.name != name:
        raise JsonError(
            f"parts[{number}].name is {shown(part.name)}, its split, bucket and buckets are {part.split}, "
            f"{part.bucket} and {part.buckets}"
        )


def _require_sums(parts: Sequence[Part], counts: Mapping[str, Any]) -> None:
    """Raise JsonError where parts are missing, are there twice, or do not add up to the counts."""
    names = {part.name for part in parts}
    if len(names) != len(parts):
        raise JsonError("a part is listed twice")
    for unit in ("documents", "sentences"):
        for split in SPLITS:
            count = counts[unit][split]
            total = sum(getattr(part, unit) for part in parts if part.split == split)
            if total != count:
                raise JsonError(f"counts.{unit}.{split} is {count}, the sum over the parts is {total}")


def write_part(path: str, records: Sequence[Record]) -> tuple[int, str]:
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


def sizes_of_corpus(parts: Iterable[Part]) -> dict[str, int | None]:
    """Return what `require_written` checks of a corpus: its parts and its vocabulary."""
    return {VOCAB_FILE_NAME: None, **{part.name: part.bytes for part in parts}}

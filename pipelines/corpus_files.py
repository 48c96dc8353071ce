"""A corpus on disk: `corpus.json`, `corpus/*.parquet` and `rejected/*.jsonl`.

A corpus is stored as the buckets it was grouped into, a Parquet part each, documents in order of their identity.
The second job reads a part as one bucket and needs no shuffle of its own.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import pyarrow
import pyarrow.parquet
from apache_beam.io.filesystems import FileSystems

from pipelines.records import Record
from pipelines.sources.files import SourceError
from pipelines.writing import read_bytes, write_atomically

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
_ROW_GROUP_CHARACTERS = 8 << 20
_ROW_GROUP_DOCUMENTS = 10_000


@dataclasses.dataclass(frozen=True)
class Part:
    """One Parquet file, which is one bucket.

    Attributes:
        name: path relative to the corpus directory.
        split: "train" or "validation".
        bucket, buckets: its number within the split, and how many the split has.
        documents, sentences: how many it holds.
        bytes, sha256: of the file.
    """

    name: str
    split: str
    bucket: int
    buckets: int
    documents: int
    sentences: int
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The content of `corpus.json`.

    Attributes:
        options: what the corpus was made with; with `files` the fingerprint by which a finished stage is known.
        files: [path, bytes, time last changed, ...] of every input.
        counts: documents, sentences, words, characters and bytes, by input and by language too; documents rejected by
            reason and by input; paragraphs cleaned by rule; bytes lost by input and rule; the files that cleaning left
            less than half of; letters of uncased text that lose a mark, with an example.
        vocab: "size" and "sha256" of vocab.txt, and how it fits (`pipelines.vocabulary.make_vocabulary`).
        parts: every Parquet file.
        versions: packages the corpus was made with.
    """

    options: dict[str, Any]
    files: list[list[Any]]
    counts: dict[str, Any]
    vocab: dict[str, Any]
    parts: list[Part]
    versions: dict[str, str]

    def to_json(self) -> str:
        """Serialises to the text of `corpus.json`, keys sorted."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **dataclasses.asdict(self)}
        return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def load(directory: str) -> Corpus | None:
    """Reads the manifest of a corpus directory; None if there is none.

    Raises:
        SourceError: it is there but cannot be understood.
    """
    path = FileSystems.join(directory, FILE_NAME)
    try:
        return parse(read_bytes(path), path)
    except FileNotFoundError:
        return None


def parse(manifest: bytes, path: str) -> Corpus:
    """Return the content of a `corpus.json`.

    Raises:
        SourceError: it cannot be understood; `path` is named.
    """
    try:
        content = json.loads(manifest)
        if content["format"] != FORMAT or content["format_version"] != FORMAT_VERSION:
            raise SourceError(
                f"{path} is of format {content['format']} {content['format_version']}, this beambert reads {FORMAT} "
                f"{FORMAT_VERSION}; build the corpus again into another directory"
            )
        fields = {field.name: content[field.name] for field in dataclasses.fields(Corpus)}
        fields["parts"] = [Part(**part) for part in fields["parts"]]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise SourceError(
            f"{path} is not a corpus manifest ({error!r}); delete the directory and build the corpus again"
        ) from error
    return Corpus(**fields)


def write_part(path: str, records: Sequence[Record]) -> tuple[int, str]:
    """Writes documents as Parquet in row groups of bounded size.

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

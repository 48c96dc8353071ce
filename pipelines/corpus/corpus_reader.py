"""Read the Parquet files of a corpus, every one checked against the SHA-256 in `corpus.json`.

A job is sent without the checksums, which would be most of its bytes: a worker process reads them from `corpus.json`,
and knows by the SHA-256 of that file that it is the manifest that the job was started with.
"""

import dataclasses
import functools
import hashlib
import threading
from collections.abc import Iterable, Sequence

import pyarrow
import pyarrow.parquet
from apache_beam.io.filesystems import FileSystems

from pipelines.corpus import corpus_manifest
from pipelines.corpus.corpus_manifest import Corpus, CorpusShard
from pipelines.errors import SourceError
from pipelines.io.atomic_files import read_bytes, storage_errors

REMEDY = "restore it from a copy, or build the corpus again into another directory"
_LOCK = threading.Lock()


@dataclasses.dataclass(frozen=True)
class CorpusReader:
    """The files of a corpus, checked when they are read.

    Attributes:
        directory: the corpus directory, on any Beam filesystem.
        manifest_sha256: hex digest of its `corpus.json`.
    """

    directory: str
    manifest_sha256: str

    @classmethod
    def open(cls, directory: str) -> "CorpusReader":
        """Return the reader of a corpus directory as it is now."""
        content = read_bytes(f"{directory}/{corpus_manifest.FILE_NAME}")
        return cls(directory, hashlib.sha256(content).hexdigest())

    def read_manifest(self) -> Corpus:
        """Read `corpus.json`.

        Raises:
            SourceError: the file is missing, or is not the one that the job was started with.
        """
        path = f"{self.directory}/{corpus_manifest.FILE_NAME}"
        return corpus_manifest.parse(_checked(path, self.manifest_sha256, "what it was when the job started"), path)

    def read_shard(self, name: str, columns: Sequence[str] = ("sentences", "weight", "language")) -> pyarrow.Table:
        """Read columns of `corpus_manifest.SCHEMA` of a shard.

        Args:
            name: of the shard, relative to the directory.
            columns: by default what job 2 needs of a document.

        Raises:
            SourceError: the file is missing, or its SHA-256 is not that of `corpus.json`.
        """
        with _LOCK:
            sha256 = _checksums(self)[name]
        # Read once and whole: a shard is a few dozen megabytes, and a file is hashed far faster than it is tokenized.
        content = _checked(f"{self.directory}/{name}", sha256, corpus_manifest.FILE_NAME)
        return pyarrow.parquet.read_table(pyarrow.BufferReader(content), columns=list(columns)).combine_chunks()


@functools.lru_cache(maxsize=1)
def _checksums(reader: CorpusReader) -> dict[str, str]:
    """Return the SHA-256 of every shard by name, read once a process."""
    return {shard.name: shard.sha256 for shard in reader.read_manifest().shards}


def _checked(path: str, sha256: str, expected: str) -> bytes:
    try:
        content = read_bytes(path)
    except FileNotFoundError as error:
        raise SourceError(f"{path} is missing; {REMEDY}") from error
    actual = hashlib.sha256(content).hexdigest()
    if actual != sha256:
        raise SourceError(f"{path} differs from {expected} (SHA-256 {actual[:12]}, not {sha256[:12]}); {REMEDY}")
    return content


def require_shards(directory: str, shards: Iterable[CorpusShard]) -> None:
    """Check that every shard is there and has the size that `corpus.json` states, by one listing of the directory.

    Raises:
        SourceError: a shard is missing or has another size.
    """
    with storage_errors(directory):
        listed = FileSystems.match([f"{directory}/corpus/*.parquet"])[0].metadata_list
    sizes = {file.path.rsplit("/", 1)[-1]: file.size_in_bytes for file in listed}
    for shard in shards:
        size = sizes.get(shard.name.rsplit("/", 1)[-1])
        if size is None:
            raise SourceError(f"{directory}/{shard.name} is missing; {REMEDY}")
        if size != shard.bytes:
            raise SourceError(
                f"{directory}/{shard.name} differs from {corpus_manifest.FILE_NAME} ({size:,} bytes, not "
                f"{shard.bytes:,}); {REMEDY}"
            )

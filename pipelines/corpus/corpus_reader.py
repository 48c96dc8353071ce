"""Read the Parquet files of a corpus and verify them against the SHA-256 checksums in `corpus.json`.

The job graph does not contain the checksums, which would be most of its bytes. A worker process reads them from
`corpus.json` and verifies the SHA-256 of that file, which is part of the job.
"""

import dataclasses
import functools
import hashlib
import threading
from collections.abc import Iterable, Sequence

import pyarrow
import pyarrow.parquet

from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.corpus_manifest import Corpus, CorpusShard
from beambert.pipelines.errors import SourceError
from beambert.pipelines.io.atomic_files import list_files, read_bytes

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
            columns: names of columns in `corpus_manifest.SCHEMA`; the default is what job 2 requires.

        Raises:
            SourceError: the file is missing, or its SHA-256 differs from `corpus.json`.
        """
        with _LOCK:
            sha256 = _checksums(self)[name]
        # Read into memory at once: a shard is several dozen megabytes, and hashing is much faster than tokenizing.
        content = _checked(f"{self.directory}/{name}", sha256, corpus_manifest.FILE_NAME)
        return pyarrow.parquet.read_table(pyarrow.BufferReader(content), columns=list(columns)).combine_chunks()


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

"""Find what `beambert inspect` prints of a directory: the first shard of a dataset, or of a corpus."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beambert.bert_model.checkpoints.path_contents import contents_of
from beambert.common.quantities import counted
from beambert.pipelines import dataset
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.corpus_manifest import Corpus
from beambert.pipelines.corpus.corpus_reader import CorpusReader, require_shards
from beambert.pipelines.dataset import SPLITS, Dataset
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.io.atomic_files import read_bytes
from beambert.pipelines.io.written_files import require_written
from beambert.tokenizer.vocabulary import Vocabulary

_COLUMNS = ("title", "source", "language", "sentences")


def load_dataset(directory: str) -> Dataset | None:
    """Return the manifest of a dataset directory, local or on gs://; None if the path is not a dataset.

    Raises:
        DatasetError: The manifest is invalid.
    """
    manifest = f"{directory}/{dataset.FILE_NAME}"
    if not FileSystems.exists(manifest):
        return None
    try:
        return Dataset.from_json(read_bytes(manifest), manifest)
    except IsADirectoryError as error:
        raise DatasetError(f"{manifest} is a directory; build the data again") from error


def first_shard(directory: str, manifest: Dataset) -> tuple[str, str]:
    """Return the path of the first shard of a dataset, and a line that describes the dataset.

    The first shard of the training split comes before those of the validation split.

    Raises:
        DatasetError: The dataset has no examples, or the shard does not have its recorded size.
    """
    shards = [shard for split in SPLITS for shard in manifest.shards_of(split) if shard.examples]
    if not shards:
        raise DatasetError(f"{directory} is a dataset without examples; build it again from more text")
    counts = ", ".join(f"{manifest.num_examples(split):,} {split} examples" for split in SPLITS)
    _require_size(directory, shards[0].name, shards[0].bytes)
    path = f"{directory}/{shards[0].name}"
    num_shards = counted(len(manifest.shards), "shard")
    return path, f"{directory} is a dataset of {num_shards} with {counts}; first shard: {shards[0].name}"


def require_vocabulary(vocabulary: Vocabulary, manifest: Dataset) -> None:
    """Check that a dataset's examples were made with a vocabulary.

    Raises:
        DatasetError: They were made with another vocabulary.
    """
    if vocabulary.sha256 != manifest.vocab_sha256:
        raise DatasetError(
            f"{vocabulary.origin} is not the vocabulary of the dataset (its SHA-256 differs; it has "
            f"{len(vocabulary):,} tokens, the dataset's has {manifest.vocab_size:,}); copy it again, or give the "
            "vocabulary with --vocab_file"
        )


def load_corpus(directory: str) -> Corpus | None:
    """Return the manifest of a corpus directory, local or on gs://; None if the path is not a corpus.

    Raises:
        SourceError: The manifest is invalid.
    """
    if not FileSystems.exists(f"{directory}/{corpus_manifest.FILE_NAME}"):
        return None
    return corpus_manifest.load(directory)


def is_corpus_shard(path: str) -> bool:
    """Return whether a path is a shard of a corpus: a Parquet file of documents."""
    if not path.endswith(".parquet"):
        return False
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            schema = pyarrow.parquet.read_schema(pyarrow.PythonFile(file, mode="r"))
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError):
        return False
    return set(_COLUMNS) <= set(schema.names)


def describe_corpus(directory: str, manifest: Corpus) -> str:
    """Return a line with the number of shards of a corpus, and one with the size of each split."""
    lines = [f"{directory} is a corpus of {counted(len(manifest.shards), 'shard')}"]
    for split in SPLITS:
        shards = [shard for shard in manifest.shards if shard.split == split]
        if shards:
            documents, sentences = (
                sum(getattr(shard, name) for shard in shards) for name in ("documents", "sentences")
            )
            lines.append(f"  {split:<11} {documents:,} documents, {sentences:,} sentences")
    return "\n".join(lines)


def first_corpus_shard(directory: str, manifest: Corpus) -> str:
    """Return the path of the first shard of a corpus that has documents.

    Raises:
        DatasetError: The corpus has no documents.
        SourceError: The shard is missing, or differs from the manifest.
    """
    shard = next((shard for shard in manifest.shards if shard.documents), None)
    if shard is None:
        raise DatasetError(f"{directory} is a corpus without documents; build it again from more text")
    require_shards(directory, [shard])
    CorpusReader.open(directory).read_shard(shard.name)
    return f"{directory}/{shard.name}"


def _require_size(directory: str, name: str, size: int) -> None:
    """Raise DatasetError if a file does not have the size in the manifest."""
    require_written(directory, {name: size}, "copy the directory again, or build it again")


def documents(path: str, start: int, number: int) -> Iterator[dict[str, Any]]:
    """Yield documents of a corpus shard, with title, source, language and sentences.

    Args:
        path: The shard.
        start: Index of the first document.
        number: Maximum number of documents.

    Raises:
        DatasetError: The shard cannot be read.
    """
    with _opened(path) as parquet:
        table = parquet.read(columns=list(_COLUMNS)).slice(start, number)
    yield from table.to_pylist()


def sizes_of_corpus_shard(path: str) -> tuple[int, int]:
    """Return the numbers of documents and sentences of a corpus shard.

    Raises:
        DatasetError: The shard cannot be read.
    """
    with _opened(path) as parquet:
        batches = parquet.iter_batches(columns=["sentences"])
        num_sentences = sum(len(batch.column(0).flatten()) for batch in batches)
        return parquet.metadata.num_rows, num_sentences


@contextlib.contextmanager
def _opened(path: str) -> Iterator[pyarrow.parquet.ParquetFile]:
    """Open a corpus shard; errors of the body are a `DatasetError`."""
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            yield pyarrow.parquet.ParquetFile(pyarrow.PythonFile(file, mode="r"))
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read ({error}); build the corpus again") from error


def require_file(path: str) -> None:
    """Raise DatasetError for a local directory that is neither a dataset nor a corpus."""
    if "://" not in path and Path(path).is_dir():
        raise DatasetError(
            f"{path} {contents_of(Path(path))}; give a shard, or a directory written by beambert build, corpus or "
            "pretraining-data"
        )

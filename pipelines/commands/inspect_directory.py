"""Find what `beambert inspect` prints of a directory: the first shard of a dataset, or of a corpus."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pyarrow.parquet
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beambert.bert_model.checkpoints.path_contents import contents_of
from beambert.common.formatting import counted
from beambert.pipelines import dataset
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.corpus_manifest import Corpus
from beambert.pipelines.corpus.corpus_reader import CorpusReader, require_shards
from beambert.pipelines.dataset import SPLITS, Dataset
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.io.atomic_files import read_bytes, require_written
from beambert.tokenizer.vocabulary import Vocabulary

_COLUMNS = ("title", "source", "language", "sentences")


class InspectedShard(NamedTuple):
    """A shard to inspect.

    Attributes:
        path: the shard.
        description: lines about the directory, or the sizes of a shard of documents; "" for a shard of examples.
        is_corpus: whether it has documents instead of examples.
        manifest: the dataset of the directory; None for a corpus and for a shard.
    """

    path: str
    description: str = ""
    is_corpus: bool = False
    manifest: Dataset | None = None


def find_shard(path: str) -> InspectedShard:
    """Return the shard at a path, or the first shard of the dataset or corpus at a path.

    Args:
        path: an absolute path, local or on gs://.

    Raises:
        DatasetError, SourceError: The path does not exist, a manifest is invalid, there is no shard with content, or
            the shard differs from its manifest.
    """
    if FileSystems.exists(f"{path}/{dataset.FILE_NAME}"):
        return _first_of_dataset(path)
    if FileSystems.exists(f"{path}/{corpus_manifest.FILE_NAME}") and (corpus := corpus_manifest.load(path)):
        return _first_of_corpus(path, corpus)
    # A bucket has no directories, only the objects in them.
    if not FileSystems.exists(path):
        raise DatasetError(f"{path} does not exist; check the path")
    if "://" not in path and Path(path).is_dir():
        raise DatasetError(
            f"{path} {contents_of(Path(path))}; give a shard, or a directory written by beambert build, corpus or "
            "pretraining-data"
        )
    sizes = _sizes_of_documents(path)
    return InspectedShard(path, sizes, is_corpus=bool(sizes))


def _first_of_dataset(directory: str) -> InspectedShard:
    """Return the first shard of the training split, or else of the validation split."""
    path = f"{directory}/{dataset.FILE_NAME}"
    manifest = Dataset.from_json(read_bytes(path), path)
    shards = [shard for split in SPLITS for shard in manifest.shards_of(split) if shard.examples]
    if not shards:
        raise DatasetError(f"{directory} is a dataset without examples; build it again from more text")
    first = shards[0]
    require_written(directory, {first.name: first.bytes}, "copy the directory again, or build it again")
    counts = ", ".join(f"{manifest.num_examples(split):,} {split} examples" for split in SPLITS)
    num_shards = counted(len(manifest.shards), "shard")
    description = f"{directory} is a dataset of {num_shards} with {counts}; first shard: {first.name}"
    return InspectedShard(f"{directory}/{first.name}", description, manifest=manifest)


def _first_of_corpus(directory: str, manifest: Corpus) -> InspectedShard:
    shard = next((shard for shard in manifest.shards if shard.documents), None)
    if shard is None:
        raise DatasetError(f"{directory} is a corpus without documents; build it again from more text")
    documents, sentences = manifest.counts["documents"], manifest.counts["sentences"]
    lines = [f"{directory} is a corpus of {counted(len(manifest.shards), 'shard')}"]
    lines += [f"  {split:<11} {documents[split]:,} documents, {sentences[split]:,} sentences" for split in SPLITS]
    require_shards(directory, [shard])
    CorpusReader.open(directory).read_shard(shard.name)
    return InspectedShard(f"{directory}/{shard.name}", "\n".join(lines), is_corpus=True)


def _sizes_of_documents(path: str) -> str:
    """Return one line with the sizes of a shard of a corpus; "" for another file."""
    if not path.endswith(".parquet"):
        return ""
    with contextlib.suppress(DatasetError), _opened(path) as parquet:
        if set(_COLUMNS) <= set(parquet.schema_arrow.names):
            batches = parquet.iter_batches(columns=["sentences"])
            sentences = sum(len(batch.column(0).flatten()) for batch in batches)
            return f"{path} has {counted(parquet.metadata.num_rows, 'document')}, {counted(sentences, 'sentence')}"
    return ""


def find_vocabulary(shard: InspectedShard, vocab_file: str | None) -> Vocabulary:
    """Return the vocabulary of a shard's examples: a file, or vocab.txt in the shard's directory or its parent.

    Raises:
        DatasetError: There is no such file, or the examples were made with another vocabulary.
        VocabularyError: The file is invalid.
    """
    try:
        path, content = (
            (vocab_file, read_bytes(vocab_file)) if vocab_file else read_above(shard.path, dataset.VOCAB_FILE_NAME)
        )
    except FileNotFoundError as error:
        if vocab_file:
            raise DatasetError(f"--vocab_file {vocab_file} does not exist; check the path") from error
        raise DatasetError(f"{error} do not exist; give the vocabulary of {shard.path} with --vocab_file") from error
    vocabulary = Vocabulary.from_bytes(content, path)
    if not vocab_file and shard.manifest and vocabulary.sha256 != shard.manifest.vocab_sha256:
        raise DatasetError(
            f"{vocabulary.origin} is not the vocabulary of the dataset (its SHA-256 differs; it has "
            f"{len(vocabulary):,} tokens, the dataset's has {shard.manifest.vocab_size:,}); copy it again, or give the "
            "vocabulary with --vocab_file"
        )
    return vocabulary


def read_above(path: str, name: str) -> tuple[str, bytes]:
    """Return the path and the content of a file in the directory of a shard, or else in its parent.

    Raises:
        FileNotFoundError: Neither exists; the message has both paths.
    """
    folder = FileSystems.split(path)[0].rstrip("/")
    candidates = [f"{folder}/{name}", f"{FileSystems.split(folder)[0].rstrip('/')}/{name}"]
    for candidate in candidates:
        try:
            return candidate, read_bytes(candidate)
        except FileNotFoundError:
            continue
    raise FileNotFoundError(" and ".join(candidates))


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


@contextlib.contextmanager
def _opened(path: str) -> Iterator[pyarrow.parquet.ParquetFile]:
    """Open a corpus shard; errors of the body are a `DatasetError`."""
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            yield pyarrow.parquet.ParquetFile(pyarrow.PythonFile(file, mode="r"))
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read ({error}); build the corpus again") from error

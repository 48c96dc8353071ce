"""Run `beambert inspect`: find the shard, read it and print it."""

import contextlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow
import pyarrow.parquet
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from rich.text import Text

from beambert.bert_model.checkpoints.path_contents import contents_of
from beambert.common.formatting import counted
from beambert.common.progress import TextConsole
from beambert.common.terminal import printable_lines
from beambert.pipelines import dataset
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.corpus_manifest import Corpus, CorpusReader, require_shards
from beambert.pipelines.dataset import SPLITS, Dataset
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.examples import inspection
from beambert.pipelines.examples.example_reader import read_examples
from beambert.pipelines.examples.inspection import MASK, OTHER, SAME, Example, InstanceText, Span
from beambert.pipelines.examples.statistics import Statistics
from beambert.pipelines.io.atomic_files import read_bytes, require_written
from beambert.pipelines.runner.job_output import absolute
from beambert.tokenizer.vocabulary import Vocabulary

_COLUMNS = ("title", "source", "language", "sentences")
_STYLES = {MASK: "bold black on yellow", OTHER: "bold white on red", SAME: "bold black on green"}


def print_shard(path: str, vocab_file: str, start: int, number: int, stats: bool) -> None:
    """Print a shard, or the first shard of a directory.

    Args:
        path: a shard of examples or documents, or a directory of a dataset or a corpus, local or on gs://.
        vocab_file: vocabulary of the examples; "" for vocab.txt in the shard's directory or its parent.
        start: index of the first example or document to print.
        number: maximum number of examples or documents to print.
        stats: print statistics of all examples or documents instead.

    Raises:
        DatasetError, SourceError, VocabularyError: The shard or the vocabulary is missing, corrupt or of another kind.
    """
    shard = _find_shard(absolute(path).rstrip("/") or "/")
    if shard.description:
        _print(shard.description)
    if shard.is_corpus:
        # The description has the statistics of documents.
        if not stats:
            _print_documents(shard.path, start, number)
        return
    vocab = _find_vocabulary(shard, absolute(vocab_file) if vocab_file else "")
    if stats:
        _print_statistics(shard.path, vocab)
    else:
        _print_examples(shard.path, vocab, start, number)


# Shards and vocabularies.


class _InspectedShard(NamedTuple):
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


def _find_shard(path: str) -> _InspectedShard:
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
    return _InspectedShard(path, sizes, is_corpus=bool(sizes))


def _first_of_dataset(directory: str) -> _InspectedShard:
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
    return _InspectedShard(f"{directory}/{first.name}", description, manifest=manifest)


def _first_of_corpus(directory: str, manifest: Corpus) -> _InspectedShard:
    shard = next((shard for shard in manifest.shards if shard.documents), None)
    if shard is None:
        raise DatasetError(f"{directory} is a corpus without documents; build it again from more text")
    documents, sentences = manifest.counts["documents"], manifest.counts["sentences"]
    lines = [f"{directory} is a corpus of {counted(len(manifest.shards), 'shard')}"]
    lines += [f"  {split:<11} {documents[split]:,} documents, {sentences[split]:,} sentences" for split in SPLITS]
    require_shards(directory, [shard])
    CorpusReader.open(directory).read_shard(shard.name)
    return _InspectedShard(f"{directory}/{shard.name}", "\n".join(lines), is_corpus=True)


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


def _find_vocabulary(shard: _InspectedShard, vocab_file: str) -> Vocabulary:
    """Return the vocabulary of a shard's examples.

    Args:
        shard: the shard.
        vocab_file: absolute path; "" for vocab.txt in the shard's directory or its parent.

    Raises:
        DatasetError: There is no such file, or the examples were made with another vocabulary.
        VocabularyError: The file is invalid.
    """
    try:
        path, content = (
            (vocab_file, read_bytes(vocab_file)) if vocab_file else _read_above(shard.path, dataset.VOCAB_FILE_NAME)
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


def _read_above(path: str, name: str) -> tuple[str, bytes]:
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


@contextlib.contextmanager
def _opened(path: str) -> Iterator[pyarrow.parquet.ParquetFile]:
    """Open a corpus shard; errors of the body are a `DatasetError`."""
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            yield pyarrow.parquet.ParquetFile(pyarrow.PythonFile(file, mode="r"))
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read ({error}); build the corpus again") from error


# Terminal output.


def _examples(path: str, vocab: Vocabulary) -> Iterator[Example]:
    for number, features in enumerate(read_examples(path)):
        try:
            yield inspection.decode(features, len(vocab))
        except DatasetError as error:
            raise DatasetError(f"{path}, example {number}: {error}") from error


def _print_examples(path: str, vocab: Vocabulary, start: int, number: int) -> None:
    labels = _labels(path)
    _print(path, style="bold")
    shown = 0
    for index, example in enumerate(itertools.islice(_examples(path, vocab), start, start + number), start):
        shown += 1
        if not example.instances:
            _print(f"\n{index}  no tokens, row length {example.row_length}", style="cyan")
        for order, instance in enumerate(inspection.as_text(example, vocab)):
            name = f"{index}" if len(example.instances) == 1 else f"{index}.{order}"
            _print(f"\n{name}  {_heading(instance, example, labels)}", style="cyan")
            _print_text(_styled("A  ", instance.a))
            if instance.b:
                _print_text(_styled("B  ", instance.b))
    if not shown:
        _print(f"no examples at or after index {start}")


def _labels(path: str) -> tuple[str, str]:
    """Return the names of a shard's labels, by the objective in `dataset.json` where it exists."""
    try:
        origin, content = _read_above(path, dataset.FILE_NAME)
        objective = Dataset.from_json(content, origin).options["objective"]
    except (FileNotFoundError, DatasetError):
        objective = "nsp"
    return inspection.LABELS.get(objective, ("0", "1"))


def _print_documents(path: str, start: int, number: int) -> None:
    _print(path, style="bold")
    with _opened(path) as parquet:
        documents = parquet.read(columns=list(_COLUMNS)).slice(start, number).to_pylist()
    for index, document in enumerate(documents, start):
        facts = [document["title"], document["source"], document["language"]]
        heading = ", ".join([*filter(None, facts), f"{len(document['sentences']):,} sentences"])
        _print(f"\n{index}  {heading}", style="cyan")
        for sentence in document["sentences"]:
            _print(sentence)
    if not documents:
        _print(f"no documents at or after index {start}")


def _print(content: str, style: str = "") -> None:
    _print_text(Text(printable_lines(content), style))


def _print_text(text: Text) -> None:
    # Colors, and lines wrapped at its width, are for a terminal; elsewhere a segment is one line.
    if sys.stdout.isatty():
        TextConsole().print(text)
    else:
        print(text.plain)


def _heading(instance: InstanceText, example: Example, labels: tuple[str, str]) -> str:
    lengths = f"A {instance.a_tokens}" + (f" + B {instance.b_tokens}" if instance.b else "")
    masks = f"{instance.masked} masked" if example.masks else "masked during training"
    parts = [f"{lengths} tokens", f"row length {example.row_length}", masks]
    if instance.label is not None and instance.b:
        parts.insert(0, labels[instance.label])
    return ", ".join(parts)


def _styled(prefix: str, spans: list[Span]) -> Text:
    text = Text(prefix)
    for number, span in enumerate(spans):
        text.append("" if span.glued or not number else " ")
        text.append(printable_lines(str(span)), style=_STYLES.get(span.kind))
    return text


def _print_statistics(path: str, vocab: Vocabulary) -> None:
    statistics = Statistics()
    has_masks = has_labels = False
    for example in _examples(path, vocab):
        inspection.count(statistics, example, vocab)
        has_masks |= example.masks
        has_labels |= any(label is not None for _, _, label in example.instances)
    _print(path)
    if not statistics.rows:
        print("  no examples")
        return
    labels = _labels(path)
    print(f"  examples    {statistics.rows:,} rows with {statistics.instances:,} instances")
    padding = (statistics.positions - statistics.instance_tokens) / max(statistics.positions, 1)
    print(f"  lengths     {_range_text(statistics.row_lengths)} tokens, {padding:.1%} padding")
    unknown = statistics.unknown_tokens / max(statistics.tokens, 1)
    print(f"  tokens      {statistics.tokens:,} excluding [CLS] and [SEP], {unknown:.2%} [UNK]")
    if has_labels:
        print(f"  labels      {statistics.instances_labeled_1 / max(statistics.instances, 1):.1%} {labels[1]}")
    if not has_masks:
        print("  masked      during training")
        return
    masked = max(statistics.masked_tokens, 1)
    print(
        f"  masked      {statistics.masked_tokens / max(statistics.instance_tokens, 1):.1%} of tokens, "
        f"{_range_text(statistics.masked_in_row)} per row: {statistics.masked_as_mask / masked:.1%} [MASK], "
        f"{statistics.masked_as_random / masked:.1%} random, {statistics.masked_as_original / masked:.1%} unchanged"
    )


def _range_text(histogram: np.ndarray) -> str:
    """Return minimum, mean and maximum of a histogram by value."""
    values = histogram.nonzero()[0]
    mean = (histogram * np.arange(len(histogram))).sum() / histogram.sum()
    return f"{values[0]} to {values[-1]} (mean {mean:.1f})"

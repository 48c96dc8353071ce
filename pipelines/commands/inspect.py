"""`beambert inspect`: the examples of shards as text, or their numbers."""

import argparse
import itertools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.text import Text

from beambert_common.command_line.flag_config import FlagConfig
from beambert_common.command_line.flags import non_negative_int, positive_int
from beambert_common.command_line.path_flags import ANY_PATH
from pipelines import dataset
from pipelines.dataset import Dataset
from pipelines.errors import DatasetError
from pipelines.examples import inspection
from pipelines.examples.inspection import MASK, OTHER, SAME, Example, InstanceText, Span
from pipelines.examples.statistics import Statistics
from tokenizer.vocabulary import Vocabulary

DESCRIPTION = """Prints pretraining examples as text: segments A and B, their label, and every masked word as [word→what
the model sees]. Reads what `beambert build` writes in any of its formats, and the TFRecord files of
google-research/bert's create_pretraining_data.py. Of a dataset directory, prints its first shard; of a corpus, the
documents of its first file. With --stats, prints the numbers of all examples instead."""
EXAMPLE = "beambert inspect data"
COMMON_FLAGS = ()

_STYLES = {MASK: "bold black on yellow", OTHER: "bold white on red", SAME: "bold black on green"}


@dataclass(frozen=True, kw_only=True)
class InspectConfig(FlagConfig):
    """The configuration of `beambert inspect`; the help of each flag says what it does."""

    shards: tuple[str, ...]
    vocab_file: str | None = None
    number: int = 10
    start: int = 0
    stats: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `beambert inspect`."""
    parser.add_argument(
        "shards",
        nargs="+",
        type=ANY_PATH,
        metavar="SHARD",
        help="files of examples, or a dataset or corpus, local or on gs://",
    )
    parser.add_argument(
        "--vocab_file",
        type=ANY_PATH,
        metavar="FILE",
        help="the vocabulary of the examples (default: vocab.txt above the shard)",
    )
    parser.add_argument(
        "--number", type=positive_int, metavar="N", default=InspectConfig.number, help="examples to print of each shard"
    )
    parser.add_argument(
        "--start", type=non_negative_int, metavar="N", default=InspectConfig.start, help="the first of them"
    )
    parser.add_argument("--stats", action="store_true", help="print numbers of all examples instead of text")


def configure(args: argparse.Namespace) -> InspectConfig:
    """Return what the flags ask for."""
    return InspectConfig.from_args(args)


def run(config: InspectConfig) -> int:
    """Run the command.

    Raises:
        DatasetError, VocabularyError: a shard or vocabulary that is missing, corrupt or of another kind.
    """
    # Imported here and below, so that `--help` does not wait for Beam.
    from apache_beam.io.filesystems import FileSystems

    from pipelines.commands.inspect_directory import (
        describe_corpus,
        first_corpus_shard,
        first_shard,
        is_corpus_part,
        load_corpus,
        load_dataset,
        require_file,
        require_vocabulary,
    )
    from pipelines.runner.job_output import absolute

    try:
        for path in config.shards:
            path = absolute(path)
            if not FileSystems.exists(path):
                raise DatasetError(f"{path} does not exist; check the path")
            manifest = load_dataset(path)
            corpus = None if manifest else load_corpus(path)
            if manifest:
                path, line = first_shard(path, manifest)
                _print(Text(line))
            elif corpus:
                print(describe_corpus(path, corpus))
                path = first_corpus_shard(path, corpus)
            require_file(path)
            if corpus or is_corpus_part(path):
                if not config.stats:
                    _print_documents(path, config.start, config.number)
                continue
            vocab = _vocabulary(path, config.vocab_file)
            if manifest and not config.vocab_file:
                require_vocabulary(vocab, manifest)
            if config.stats:
                _print_statistics(path, vocab)
            else:
                _print_examples(path, vocab, config.start, config.number)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has seen enough; what Python still holds back goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _folders_above(path: str) -> Iterator[str]:
    from apache_beam.io.filesystems import FileSystems

    for _ in range(2):
        path = FileSystems.split(path)[0].rstrip("/")
        yield path


def _vocabulary(path: str, vocab_file: str | None) -> Vocabulary:
    from pipelines.io.atomic_files import read_bytes
    from pipelines.runner.job_output import absolute

    if vocab_file:
        candidates = [absolute(vocab_file)]
    else:
        candidates = [f"{folder}/{dataset.VOCAB_FILE_NAME}" for folder in _folders_above(path)]
    for candidate in candidates:
        try:
            return Vocabulary.from_bytes(read_bytes(candidate), candidate)
        except FileNotFoundError:
            continue
    raise DatasetError(
        f"{' and '.join(candidates)} do not exist; name the vocabulary of {path} with --vocab_file"
        if len(candidates) > 1
        else f"--vocab_file {vocab_file} does not exist; check the path"
    )


def _objective(path: str) -> str:
    """Return the meaning of a shard's labels, from `dataset.json` where it exists."""
    from pipelines.io.atomic_files import read_bytes

    for folder in _folders_above(path):
        manifest = f"{folder}/{dataset.FILE_NAME}"
        try:
            return Dataset.from_json(read_bytes(manifest), manifest).options.get("objective", "nsp")
        except (FileNotFoundError, DatasetError):
            continue
    return "nsp"


def _examples(path: str, vocab: Vocabulary) -> Iterator[Example]:
    from pipelines.examples.example_reader import read_examples

    for number, features in enumerate(read_examples(path)):
        try:
            yield inspection.decode(features, len(vocab))
        except DatasetError as error:
            raise DatasetError(f"{path}, example {number}: {error}") from error


def _print_examples(path: str, vocab: Vocabulary, start: int, number: int) -> None:
    labels = inspection.LABELS.get(_objective(path), ("0", "1"))
    _print(Text(path, style="bold"))
    shown = 0
    for place, example in enumerate(itertools.islice(_examples(path, vocab), start, start + number), start):
        shown += 1
        for order, instance in enumerate(inspection.as_text(example, vocab)):
            name = f"{place}" if len(example.instances) == 1 else f"{place}.{order}"
            _print(Text(f"\n{name}  {_heading(instance, example, labels)}", style="cyan"))
            _print(_styled("A  ", instance.a))
            if instance.b:
                _print(_styled("B  ", instance.b))
    if not shown:
        _print(Text(f"no example from number {start} on"))


def _print_documents(path: str, start: int, number: int) -> None:
    from pipelines.commands.inspect_directory import documents

    _print(Text(path, style="bold"))
    shown = 0
    for place, document in enumerate(documents(path, start, number), start):
        shown += 1
        facts = [document["title"], document["source"], document["language"]]
        heading = ", ".join([*filter(None, facts), f"{len(document['sentences']):,} sentences"])
        _print(Text(f"\n{place}  {heading}", style="cyan"))
        for sentence in document["sentences"]:
            _print(Text(sentence))
    if not shown:
        _print(Text(f"no document from number {start} on"))


def _print(text: Text) -> None:
    # Colours and line breaks at its width are for a terminal; elsewhere a segment is a line.
    if sys.stdout.isatty():
        Console(highlight=False).print(text)
    else:
        print(text.plain)


def _heading(instance: InstanceText, example: Example, labels: tuple[str, str]) -> str:
    lengths = f"A {instance.a_tokens}" + (f" + B {instance.b_tokens}" if instance.b else "")
    masks = f"{instance.masked} masked" if example.masks else "masked by the trainer"
    parts = [f"{lengths} tokens", f"row of {example.row_length}", masks]
    if instance.label is not None and instance.b:
        parts.insert(0, labels[min(instance.label, 1)])
    return ", ".join(parts)


def _styled(prefix: str, spans: list[Span]) -> Text:
    text = Text(prefix, style="")
    for number, span in enumerate(spans):
        text.append("" if span.glued or not number else " ")
        text.append(inspection.plain([span]), style=_STYLES.get(span.kind))
    return text


def _print_statistics(path: str, vocab: Vocabulary) -> None:
    statistics = Statistics()
    has_masks = has_labels = False
    for example in _examples(path, vocab):
        inspection.count(statistics, example, vocab)
        has_masks |= example.masks
        has_labels |= any(label is not None for _, _, label in example.instances)
    print(path)
    if not statistics.rows:
        print("  no example")
        return
    labels = inspection.LABELS.get(_objective(path), ("0", "1"))
    print(f"  examples    {statistics.rows:,} rows with {statistics.instances:,} instances")
    padding = 1 - statistics.instance_tokens / statistics.positions
    print(f"  lengths     {_range_text(statistics.row_lengths)} positions, {padding:.1%} padding")
    unknown = statistics.unknown_tokens / max(statistics.tokens, 1)
    print(f"  tokens      {statistics.tokens:,} without [CLS] and [SEP], {unknown:.2%} [UNK]")
    if has_labels:
        print(f"  labels      {statistics.instances_labeled_1 / statistics.instances:.1%} {labels[1]}")
    if not has_masks:
        print("  masked      by the trainer")
        return
    masked = max(statistics.masked_tokens, 1)
    print(
        f"  masked      {statistics.masked_tokens / statistics.instance_tokens:.1%} of positions, "
        f"{_range_text(statistics.masked_in_row)} a row: {statistics.masked_as_mask / masked:.1%} [MASK], "
        f"{statistics.masked_as_random / masked:.1%} random, {statistics.masked_as_original / masked:.1%} the same"
    )


def _range_text(histogram: np.ndarray) -> str:
    """Return minimum, mean and maximum of a histogram by value."""
    values = histogram.nonzero()[0]
    mean = (histogram * np.arange(len(histogram))).sum() / histogram.sum()
    return f"{values[0]} to {values[-1]} (mean {mean:.1f})"

"""Define and run `beambert inspect`, which prints examples as text, or their statistics."""

import argparse
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from rich.text import Text

from beambert.common.command_line.flags import FlagConfig, non_negative_int, positive_int
from beambert.common.command_line.path_flags import ANY_PATH
from beambert.common.progress import TextConsole
from beambert.common.terminal import printable_lines
from beambert.pipelines import dataset
from beambert.pipelines.dataset import Dataset
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.examples import inspection
from beambert.pipelines.examples.inspection import MASK, OTHER, SAME, Example, InstanceText, Span
from beambert.pipelines.examples.statistics import Statistics
from beambert.tokenizer.vocabulary import Vocabulary

DESCRIPTION = """Print pretraining examples or corpus documents as text.

Shows segments A and B, the label, and every masked word as [original→input]. Reads every format of `beambert build`
and the TFRecord files of google-research/bert. For a directory, reads the first shard of its dataset or corpus."""
EXAMPLE = """beambert inspect data
beambert inspect data --number 3 --start 100
beambert inspect data/shards/*.tfrecord --stats"""
COMMON_FLAGS = ("--number", "--start", "--stats", "--vocab_file")

_STYLES = {MASK: "bold black on yellow", OTHER: "bold white on red", SAME: "bold black on green"}


@dataclass(frozen=True, kw_only=True)
class InspectConfig(FlagConfig):
    """The configuration of `beambert inspect`; the attributes are its flags."""

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
        help="Shards of examples or documents, or directories of a dataset or a corpus, local or on gs://",
    )
    group = parser.add_argument_group("input")
    group.add_argument(
        "--vocab_file",
        type=ANY_PATH,
        metavar="FILE",
        help="Vocabulary of the examples (default: vocab.txt in the shard's directory or its parent)",
    )
    group = parser.add_argument_group("output")
    group.add_argument(
        "--number",
        type=positive_int,
        metavar="N",
        default=InspectConfig.number,
        help="Number of examples or documents to print per shard",
    )
    group.add_argument(
        "--start",
        type=non_negative_int,
        metavar="N",
        default=InspectConfig.start,
        help="Index of the first example or document to print, starting at 0 (default: 0)",
    )
    group.add_argument(
        "--stats", action="store_true", help="Print statistics of all examples or documents instead of their text"
    )


def configure(args: argparse.Namespace) -> InspectConfig:
    """Return the configuration from parsed flags."""
    return InspectConfig.from_args(args)


def run(config: InspectConfig) -> int:
    """Run the command.

    Raises:
        DatasetError, VocabularyError: A shard or the vocabulary is missing, corrupt or of another kind.
    """
    # Imported late, here and below: `--help` must not wait for Beam.
    from beambert.pipelines.commands.inspect_directory import find_shard, find_vocabulary
    from beambert.pipelines.runner.job_output import absolute

    vocab_file = absolute(config.vocab_file) if config.vocab_file else None
    for path in config.shards:
        shard = find_shard(absolute(path).rstrip("/") or "/")
        if shard.description:
            _print(_text(shard.description))
        if shard.is_corpus:
            # The description has the statistics of documents.
            if not config.stats:
                _print_documents(shard.path, config.start, config.number)
        elif config.stats:
            _print_statistics(shard.path, find_vocabulary(shard, vocab_file))
        else:
            _print_examples(shard.path, find_vocabulary(shard, vocab_file), config.start, config.number)
    return 0


def _examples(path: str, vocab: Vocabulary) -> Iterator[Example]:
    from beambert.pipelines.examples.example_reader import read_examples

    for number, features in enumerate(read_examples(path)):
        try:
            yield inspection.decode(features, len(vocab))
        except DatasetError as error:
            raise DatasetError(f"{path}, example {number}: {error}") from error


def _print_examples(path: str, vocab: Vocabulary, start: int, number: int) -> None:
    labels = _labels(path)
    _print(_text(path, style="bold"))
    shown = 0
    for index, example in enumerate(itertools.islice(_examples(path, vocab), start, start + number), start):
        shown += 1
        if not example.instances:
            _print(_text(f"\n{index}  no tokens, row length {example.row_length}", style="cyan"))
        for order, instance in enumerate(inspection.as_text(example, vocab)):
            name = f"{index}" if len(example.instances) == 1 else f"{index}.{order}"
            _print(_text(f"\n{name}  {_heading(instance, example, labels)}", style="cyan"))
            _print(_styled("A  ", instance.a))
            if instance.b:
                _print(_styled("B  ", instance.b))
    if not shown:
        _print(_text(f"no examples at or after index {start}"))


def _labels(path: str) -> tuple[str, str]:
    """Return the names of a shard's labels, by the objective in `dataset.json` where it exists."""
    from beambert.pipelines.commands.inspect_directory import read_above

    try:
        origin, content = read_above(path, dataset.FILE_NAME)
        objective = Dataset.from_json(content, origin).options["objective"]
    except (FileNotFoundError, DatasetError):
        objective = "nsp"
    return inspection.LABELS.get(objective, ("0", "1"))


def _print_documents(path: str, start: int, number: int) -> None:
    from beambert.pipelines.commands.inspect_directory import documents

    _print(_text(path, style="bold"))
    shown = 0
    for index, document in enumerate(documents(path, start, number), start):
        shown += 1
        facts = [document["title"], document["source"], document["language"]]
        heading = ", ".join([*filter(None, facts), f"{len(document['sentences']):,} sentences"])
        _print(_text(f"\n{index}  {heading}", style="cyan"))
        for sentence in document["sentences"]:
            _print(_text(sentence))
    if not shown:
        _print(_text(f"no documents at or after index {start}"))


def _text(content: str, style: str = "") -> Text:
    return Text(printable_lines(content), style)


def _print(text: Text) -> None:
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
        text.append(printable_lines(inspection.plain([span])), style=_STYLES.get(span.kind))
    return text


def _print_statistics(path: str, vocab: Vocabulary) -> None:
    statistics = Statistics()
    has_masks = has_labels = False
    for example in _examples(path, vocab):
        inspection.count(statistics, example, vocab)
        has_masks |= example.masks
        has_labels |= any(label is not None for _, _, label in example.instances)
    _print(_text(path))
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

"""Define `beambert inspect`, which prints examples as text, or their statistics."""

import argparse
import dataclasses
from typing import Annotated

from msgspec import Meta

from beambert.common.command_line import options
from beambert.common.command_line.options import Flag
from beambert.common.command_line.path_flags import ANY_PATH

DESCRIPTION = """Print pretraining examples or corpus documents as text.

Shows segments A and B, the label, and every masked word as [original→input]. Reads every format of `beambert build`
and the TFRecord files of google-research/bert. For a directory, reads the first shard of its dataset or corpus."""
EXAMPLE = """beambert inspect data
beambert inspect data --number 3 --start 100
beambert inspect data/shards/*.tfrecord --stats"""
COMMON_FLAGS = ("--number", "--start", "--stats", "--vocab_file")


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectConfig:
    """The configuration of `beambert inspect`; the help of the flags has these descriptions.

    Attributes:
        shards: Shards of examples or documents, or directories of a dataset or a corpus, local or on gs://.
        vocab_file: Vocabulary of the examples (default: vocab.txt in the shard's directory or its parent).
        number: Number of examples or documents to print per shard.
        start: Index of the first example or document to print, starting at 0 (default: 0).
        stats: Print statistics of all examples or documents instead of their text.
    """

    shards: tuple[str, ...]
    vocab_file: Annotated[str, Flag("input", type=ANY_PATH, metavar="FILE")] = ""
    number: Annotated[int, Meta(ge=1, le=2**31 - 1), Flag("output")] = 10
    start: Annotated[int, Meta(ge=0, le=2**31 - 1), Flag("output")] = 0
    stats: Annotated[bool, Flag("output")] = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `beambert inspect`."""
    shards = options.options_of(InspectConfig)[0]
    parser.add_argument("shards", nargs="+", type=ANY_PATH, metavar="SHARD", help=shards.description)
    options.add_arguments(parser, InspectConfig)


def configure(args: argparse.Namespace) -> InspectConfig:
    """Return the configuration from parsed flags."""
    return options.from_args(InspectConfig, args, shards=tuple(args.shards))


def run(config: InspectConfig) -> int:
    """Run the command.

    Raises:
        DatasetError, SourceError, VocabularyError: A shard or the vocabulary is missing, corrupt or of another kind.
    """
    # Imported late: `--help` must not wait for Beam.
    from beambert.pipelines.commands import inspect_run

    for path in config.shards:
        inspect_run.print_shard(path, config.vocab_file, config.start, config.number, config.stats)
    return 0

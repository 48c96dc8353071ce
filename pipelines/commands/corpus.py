"""Define `beambert corpus` and the flags that it shares with other data commands.

This module does not import Beam, so that `--help` is fast; `corpus_run.py` is imported when the command runs.
"""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from beambert.common.command_line import options
from beambert.common.command_line.flags import Number, WholeNumber
from beambert.common.command_line.path_flags import ANY_OUTPUT_DIRECTORY, ANY_PATH
from beambert.pipelines.corpus.options import CorpusOptions
from beambert.pipelines.formats import FORMATS

if TYPE_CHECKING:
    from beambert.pipelines.commands.corpus_run import CorpusConfig

DESCRIPTION = """Build a corpus of clean sentences and a WordPiece vocabulary from raw text.

Cleans documents, splits them into sentences, and removes duplicates. Sets a validation split aside, and learns the
vocabulary from the training split. Writes corpus.json, corpus/*.parquet, vocab.txt, and rejected text in
rejected/*.jsonl."""
EXAMPLE = """beambert corpus --input 'texts/*.txt' --output corpus
beambert corpus --input dump.jsonl --text_field body --output corpus --vocab_size 8000"""
COMMON_FLAGS = (
    "--input",
    "--output",
    "--input_format",
    "--text_field",
    "--language",
    "--vocab_size",
    "--vocab_file",
    "--validation_fraction",
)

ACCEPTS_BEAM_FLAGS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `beambert corpus`."""
    add_input_arguments(parser)
    options.group(parser, "output").add_argument(
        "--output", required=True, type=ANY_OUTPUT_DIRECTORY, metavar="DIR", help="Output directory"
    )
    add_corpus_arguments(parser)


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the input files."""
    group = options.group(parser, "input")
    group.add_argument(
        "--input",
        action="extend",
        nargs="+",
        type=ANY_PATH,
        metavar="GLOB",
        default=[],
        help="Input files or quoted glob patterns, local, on gs:// or on any other Beam filesystem; .gz, .bz2, .zst "
        "and .xz files are decompressed",
    )
    group.add_argument(
        "--input_weights",
        action="extend",
        nargs="+",
        type=Number(0.0, 1_000.0, least_too=False, most_too=True),
        metavar="W",
        help="Sampling weights, one per --input pattern: how often each copy of the data contains its documents, for "
        "example 0.5 or 3, at most 1,000 (default: 1)",
    )


def add_corpus_arguments(parser: argparse.ArgumentParser, has_flag: Callable[[str], bool] = lambda _: True) -> None:
    """Add the flags of `CorpusOptions`.

    Args:
        parser: the parser.
        has_flag: returns whether the command has the flag of a field.
    """
    # Help shows the groups in this order.
    for title in ("corpus", "cleaning", "deduplication", "vocabulary"):
        options.group(parser, title)
    options.add_arguments(parser, CorpusOptions, has_flag, input_format={"choices": ("auto", *FORMATS)})
    options.group(parser, "vocabulary").add_argument(
        "--vocab_multiple_of",
        type=WholeNumber(1, 1_000_000),
        default=1,
        metavar="N",
        help="Round --vocab_size up to a multiple of N, filled with learned tokens; 8 suits GPUs, 128 suits TPUs",
    )


def configure(args: argparse.Namespace) -> "CorpusConfig":
    """Return the configuration. Raise as `beambert.pipelines.commands.corpus_run.configure` does."""
    from beambert.pipelines.commands import corpus_run

    return corpus_run.configure(args)


def run(config: "CorpusConfig", beam_flags: list[str]) -> int:
    """Run the command. Raise as `beambert.pipelines.commands.corpus_run.run` does."""
    from beambert.pipelines.commands import corpus_run

    return corpus_run.run(config, beam_flags)

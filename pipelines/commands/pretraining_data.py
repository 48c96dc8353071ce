"""Define `beambert pretraining-data`.

This module does not import Beam, so that `--help` is fast; `pretraining_data_run.py` is imported when the command runs.
"""

import argparse
from typing import TYPE_CHECKING

from beambert.common.command_line import options
from beambert.common.command_line.path_flags import ANY_OUTPUT_DIRECTORY, ANY_PATH
from beambert.pipelines.instances.options import PretrainingDataOptions

if TYPE_CHECKING:
    from beambert.pipelines.commands.pretraining_data_run import PretrainingDataConfig

DESCRIPTION = """Build masked pretraining examples from a corpus written by `beambert corpus`.

Tokenizes the sentences, samples pairs and masks tokens. Writes shards/*.tfrecord, vocab.txt, report.html, a dataset
card (README.md), a Croissant description (croissant.json) and dataset.json. The trainer of google-research/bert reads
the TFRecord shards too."""
EXAMPLE = """beambert pretraining-data --input corpus --output data
beambert pretraining-data --input corpus --output data512 --max_seq_length 512 --max_predictions_per_seq 77"""
COMMON_FLAGS = (
    "--input",
    "--output",
    "--max_seq_length",
    "--max_predictions_per_seq",
    "--dupe_factor",
    "--objective",
    "--masking",
    "--random_seed",
)

ACCEPTS_BEAM_FLAGS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `beambert pretraining-data`."""
    group = parser.add_argument_group("input")
    group.add_argument(
        "--input", required=True, type=ANY_PATH, metavar="DIR", help="Corpus directory written by `beambert corpus`"
    )
    group.add_argument(
        "--vocab_file", type=ANY_PATH, metavar="FILE", help="Another vocab.txt to use instead of the corpus's own"
    )
    group = parser.add_argument_group("output")
    group.add_argument(
        "--output",
        required=True,
        type=ANY_OUTPUT_DIRECTORY,
        metavar="DIR",
        help="Output directory; may be the corpus directory",
    )
    add_example_arguments(parser)


def add_example_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `PretrainingDataOptions`, and the flag about memory, which does not change any result."""
    options.add_arguments(parser, PretrainingDataOptions)
    group = parser.add_argument_group("devices")
    group.add_argument(
        "--ignore_memory_estimate",
        action="store_true",
        help="Run even if the estimated memory exceeds the available memory",
    )


def configure(args: argparse.Namespace) -> "PretrainingDataConfig":
    """Return the configuration. Raise DatasetError for contradicting options."""
    from beambert.pipelines.commands.pretraining_data_run import PretrainingDataConfig

    examples = options.from_args(PretrainingDataOptions, args)
    return PretrainingDataConfig(args.input, args.output, args.vocab_file, examples, args.ignore_memory_estimate)


def run(config: "PretrainingDataConfig", beam_flags: list[str]) -> int:
    """Run the command. Raise as `beambert.pipelines.commands.pretraining_data_run.run` does."""
    from beambert.pipelines.commands import pretraining_data_run

    return pretraining_data_run.run(config, beam_flags)

"""`beambert pretraining-data`: its flags.

This file imports no Beam, so that `--help` does not wait for it; `pretraining_data_run.py` is imported when the command
runs.
"""

import argparse
from typing import TYPE_CHECKING

from beambert_common.command_line.path_flags import ANY_OUTPUT_DIRECTORY, ANY_PATH
from pipelines.commands import example_flags

if TYPE_CHECKING:
    from pipelines.commands.pretraining_data_config import PretrainingDataConfig

DESCRIPTION = """Turns a corpus into pretraining examples: WordPiece tokens, next sentence pairs, masked words, TFRecord
shards that google-research/bert's trainer reads too. Writes shards/*.tfrecord, vocab.txt,
report.html and dataset.json."""
EXAMPLE = "beambert pretraining-data --input data --output data512 --max_seq_length 512 --max_predictions_per_seq 77"
COMMON_FLAGS = (
    "--input",
    "--output",
    "--max_seq_length",
    "--max_predictions_per_seq",
    "--dupe_factor",
    "--objective",
    "--masking",
)

ACCEPTS_BEAM_FLAGS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `beambert pretraining-data`."""
    group = parser.add_argument_group("what to read and write")
    group.add_argument(
        "--input", required=True, type=ANY_PATH, metavar="DIR", help="a corpus, as `beambert corpus` makes it"
    )
    group.add_argument(
        "--output",
        required=True,
        type=ANY_OUTPUT_DIRECTORY,
        metavar="DIR",
        help="directory for the result; may be the same",
    )
    group.add_argument("--vocab_file", type=ANY_PATH, metavar="FILE", help="another vocab.txt than the corpus's own")
    example_flags.add_arguments(parser)
    add_machine_arguments(parser)


def add_machine_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags about this machine, which do not change any result."""
    group = parser.add_argument_group("this machine")
    group.add_argument(
        "--ignore_memory_estimate",
        action="store_true",
        help="go ahead where more memory would be needed than is free",
    )


def configure(args: argparse.Namespace) -> "PretrainingDataConfig":
    """Return the configuration. Raise DatasetError for a value that is out of range."""
    from pipelines.commands.pretraining_data_config import PretrainingDataConfig

    return PretrainingDataConfig.from_args(args)


def run(config: "PretrainingDataConfig", beam_flags: list[str]) -> int:
    """Run the command. Raise as `pipelines.commands.pretraining_data_run.run` does."""
    from pipelines.commands import pretraining_data_run

    return pretraining_data_run.run(config, beam_flags)

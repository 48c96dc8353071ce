"""`beambert pretraining-data`: its flags.

This file imports no Beam, so that `--help` does not wait for it; `deploy/pretraining_data.py` is imported when the
command runs.
"""

import argparse

from deploy import example_flags

DESCRIPTION = """Turns a corpus into pretraining examples: WordPiece tokens, next sentence pairs, masked words, TFRecord
shards that google-research/bert's trainer reads too. Writes shards/*.tfrecord, vocab.txt,
report.html and dataset.json."""

ACCEPTS_BEAM_FLAGS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `beambert pretraining-data`."""
    group = parser.add_argument_group("what to read and write")
    group.add_argument("--input", required=True, metavar="DIR", help="a corpus, as `beambert corpus` makes it")
    group.add_argument("--output", required=True, metavar="DIR", help="directory for the result; may be the same")
    group.add_argument("--vocab_file", metavar="FILE", help="another vocab.txt than the corpus's own")
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


def run(args: argparse.Namespace, beam_flags: list[str]) -> int:
    """Runs the command. Raises as `deploy.pretraining_data.run` does."""
    from deploy import pretraining_data

    return pretraining_data.run(args, beam_flags)

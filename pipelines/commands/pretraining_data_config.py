"""The configuration of job 2: the corpus and the options that the flags of `beambert pretraining-data` name."""

import argparse
from dataclasses import dataclass

from pipelines.commands.example_flags import example_options
from pipelines.instances.options import PretrainingDataOptions


@dataclass(frozen=True)
class PretrainingDataConfig:
    """The configuration of job 2.

    Attributes:
        corpus_directory: as it was typed.
        output: the value of --output.
        vocab_file: another vocabulary than the corpus's own, None for that.
        options: what to do, but for what the corpus says; `dataset.json` records them.
        ignore_memory_estimate: whether to run where more memory would be needed than is free.
    """

    corpus_directory: str
    output: str
    vocab_file: str | None
    options: PretrainingDataOptions
    ignore_memory_estimate: bool = False

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> "PretrainingDataConfig":
        """Return the configuration that the flags of `beambert pretraining-data` name.

        Raises:
            DatasetError: a value is out of range.
        """
        return cls(args.input, args.output, args.vocab_file, example_options(args), args.ignore_memory_estimate)

    @classmethod
    def from_build_args(cls, args: argparse.Namespace) -> "PretrainingDataConfig":
        """Return the configuration of the second job of `beambert build`, whose corpus is in its own --output.

        Job 1 writes the vocabulary, learned or given, beside the corpus.

        Raises:
            DatasetError: a value is out of range.
        """
        return cls(args.output, args.output, None, example_options(args), args.ignore_memory_estimate)

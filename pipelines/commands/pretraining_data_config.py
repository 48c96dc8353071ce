"""Define the configuration of job 2: the corpus and the options of `beambert pretraining-data`."""

import argparse
from dataclasses import dataclass

from beambert.common.command_line.options import from_args
from beambert.pipelines.examples import array_record_files
from beambert.pipelines.instances.options import PretrainingDataOptions


@dataclass(frozen=True)
class PretrainingDataConfig:
    """The configuration of job 2.

    Attributes:
        corpus_directory: Value of --input, the corpus.
        output: Value of --output.
        vocab_file: Vocabulary to use instead of the corpus's own, or None.
        options: Options of the examples, except those that the corpus determines; `dataset.json` records them.
        ignore_memory_estimate: Whether to run even if the estimated memory exceeds the available memory.
    """

    corpus_directory: str
    output: str
    vocab_file: str | None
    options: PretrainingDataOptions
    ignore_memory_estimate: bool = False

    def __post_init__(self) -> None:
        """Check that the package of the format is installed, before any work."""
        if self.options.format == "array_record":
            array_record_files.require_package()

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> "PretrainingDataConfig":
        """Return the configuration from the flags of `beambert pretraining-data`.

        Raises:
            DatasetError: A value is out of range.
        """
        return cls(
            args.input,
            args.output,
            args.vocab_file,
            from_args(PretrainingDataOptions, args),
            args.ignore_memory_estimate,
        )

    @classmethod
    def from_build_args(cls, args: argparse.Namespace) -> "PretrainingDataConfig":
        """Return the configuration of job 2 of `beambert build`, whose corpus is in its own --output.

        Job 1 writes the vocabulary, learned or copied from --vocab_file, into the same directory.

        Raises:
            DatasetError: A value is out of range.
        """
        return cls(args.output, args.output, None, from_args(PretrainingDataOptions, args), args.ignore_memory_estimate)

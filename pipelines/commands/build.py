"""Define and run `beambert build`: both jobs, from raw text to shards."""

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from beambert.common.command_line.options import from_args
from beambert.pipelines.commands import corpus as corpus_flags
from beambert.pipelines.commands import pretraining_data
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.io.output_directory import CORPUS_ENTRIES, CORPUS_MANIFEST, DATASET_MANIFEST

if TYPE_CHECKING:
    from beambert.pipelines.commands.corpus_run import CorpusConfig
    from beambert.pipelines.commands.pretraining_data_run import PretrainingDataConfig

DESCRIPTION = """Build pretraining data from raw text.

Runs `beambert corpus`, then `beambert pretraining-data`, and writes both to --output. After an interruption, run the
same command again: it resumes, and skips the stages that are complete."""
EXAMPLE = """beambert build --input 'texts/*.txt' --output data
beambert build --input 'texts/*.txt' --output data --vocab_size 8000 --direct_num_workers 8
beambert build --input_format language_reference --output demo-data"""
COMMON_FLAGS = (
    "--input",
    "--output",
    "--input_format",
    "--text_field",
    "--language",
    "--vocab_size",
    "--max_seq_length",
    "--dupe_factor",
)

ACCEPTS_BEAM_FLAGS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of both jobs."""
    corpus_flags.add_arguments(parser)
    pretraining_data.add_example_arguments(parser)


@dataclass(frozen=True)
class BuildConfig:
    """The configuration of `beambert build`: both jobs, into one output directory.

    Attributes:
        corpus: Configuration of job 1, the corpus.
        data: Configuration of job 2, the pretraining data of that corpus.
    """

    corpus: "CorpusConfig"
    data: "PretrainingDataConfig"


def configure(args: argparse.Namespace) -> BuildConfig:
    """Return the configuration from parsed flags.

    Raises:
        SourceError, DatasetError, VocabularyError: A flag is invalid, or a file is missing.
    """
    # Imported late: `--help` must not wait for Beam.
    from beambert.pipelines.commands.pretraining_data_run import PretrainingDataConfig

    # Job 2 first: its flags are checked before the input files are listed, which may take long. Its corpus is in the
    # same directory, with the vocabulary.
    examples = from_args(PretrainingDataOptions, args)
    data = PretrainingDataConfig(args.output, args.output, None, examples, args.ignore_memory_estimate)
    return BuildConfig(corpus_flags.configure(args), data)


def run(config: BuildConfig, beam_flags: list[str]) -> int:
    """Run the command.

    Raises:
        SourceError, DatasetError, VocabularyError: The input or a flag is invalid.
    """
    from beambert.pipelines.commands import corpus_run, pretraining_data_run
    from beambert.pipelines.corpus.corpus_manifest import sizes_of_corpus
    from beambert.pipelines.io.atomic_files import require_written
    from beambert.pipelines.runner.beam_flags import pipeline_options
    from beambert.pipelines.runner.job_output import absolute, claim_output

    output = config.corpus.output
    # Each job needs its own options: a runner modifies them.
    corpus_engine, data_engine = (pipeline_options(beam_flags) for _ in range(2))
    manifests = (CORPUS_MANIFEST, DATASET_MANIFEST)
    entries = CORPUS_ENTRIES | pretraining_data_run.entries_written(output)
    with claim_output(output, "build", manifests, entries):
        corpus = corpus_run.make_corpus(config.corpus, corpus_engine, config.data.options.objective)
        manifest = pretraining_data_run.make_pretraining_data(config.data, corpus, data_engine)
        # Job 2 does not read every file of the corpus, so it would not detect that one is missing.
        require_written(absolute(output), sizes_of_corpus(corpus.shards))
    print(f"\nContents of {output}:")
    corpus_run.print_summary(corpus, output)
    pretraining_data_run.print_summary(manifest, output)
    return 0

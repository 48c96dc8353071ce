"""`beambert build`: both jobs, from raw text to shards."""

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.commands import corpus as corpus_flags
from pipelines.commands import example_flags, pretraining_data
from pipelines.io.output_directory import CORPUS_ENTRIES, CORPUS_MANIFEST, DATASET_ENTRIES, DATASET_MANIFEST

if TYPE_CHECKING:
    from pipelines.commands.corpus_config import CorpusConfig
    from pipelines.commands.pretraining_data_config import PretrainingDataConfig

DESCRIPTION = """From raw text to pretraining data in one command: `beambert corpus`, then `beambert pretraining-data`,
both into --output. Run it again after an interruption: a stage that has finished with the same inputs and options is
not done again."""
EXAMPLE = "beambert build --input 'texts/*.txt' --output data"
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
    example_flags.add_arguments(parser)
    pretraining_data.add_machine_arguments(parser)


@dataclass(frozen=True)
class BuildConfig:
    """The configuration of `beambert build`: both jobs, into one output directory.

    Attributes:
        corpus: the first job.
        data: the second job, on the corpus that the first one makes.
    """

    corpus: "CorpusConfig"
    data: "PretrainingDataConfig"


def configure(args: argparse.Namespace) -> BuildConfig:
    """Return what the flags ask for.

    Raises:
        SourceError, DatasetError, VocabularyError: a mistake in the flags, or a file that is missing.
    """
    # Imported here, so that `--help` does not wait for Beam.
    from pipelines.commands.corpus_config import corpus_config
    from pipelines.commands.pretraining_data_config import PretrainingDataConfig

    # A mistake in the second job's flags shows before the first job's input is listed.
    data = PretrainingDataConfig.from_build_args(args)
    return BuildConfig(corpus_config(args), data)


def run(config: BuildConfig, beam_flags: list[str]) -> int:
    """Run the command.

    Raises:
        SourceError, DatasetError, VocabularyError: invalid input or flags.
    """
    from pipelines.commands import corpus_run, pretraining_data_run
    from pipelines.corpus.corpus_manifest import sizes_of_corpus
    from pipelines.io.written_files import require_written
    from pipelines.runner import pipeline_runner
    from pipelines.runner.job_output import absolute
    from pipelines.runner.output_lock import claim_output

    output = config.corpus.output
    # An engine changes the options that it is given.
    corpus_engine, data_engine = (pipeline_runner.pipeline_options(beam_flags) for _ in range(2))
    manifests, entries = (CORPUS_MANIFEST, DATASET_MANIFEST), CORPUS_ENTRIES | DATASET_ENTRIES
    with claim_output(output, "build", manifests, entries):
        corpus = corpus_run.make_corpus(config.corpus, corpus_engine, config.data.options.objective)
        manifest = pretraining_data_run.make_pretraining_data(config.data, corpus, data_engine)
        # The second job does not need all that the first has written.
        require_written(absolute(output), sizes_of_corpus(corpus.shards))
    print(f"\n{output} holds")
    printed = corpus_run.print_summary(corpus, output)
    pretraining_data_run.print_summary(manifest, output, printed)
    return 0

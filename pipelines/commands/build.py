"""`beambert build`: both jobs, from raw text to shards."""

import argparse

from pipelines.commands import corpus as corpus_flags
from pipelines.commands import example_flags, pretraining_data
from pipelines.io.output_directory import CORPUS_ENTRIES, CORPUS_MANIFEST, DATASET_ENTRIES, DATASET_MANIFEST

DESCRIPTION = """From raw text to pretraining data in one command: `beambert corpus`, then `beambert pretraining-data`,
both into --output. Run it again after an interruption: a stage that has finished with the same inputs and options is
not done again."""

ACCEPTS_BEAM_FLAGS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of both jobs."""
    corpus_flags.add_arguments(parser)
    example_flags.add_arguments(parser)
    pretraining_data.add_machine_arguments(parser)


def run(args: argparse.Namespace, beam_flags: list[str]) -> int:
    """Runs the command.

    Raises:
        SourceError, DatasetError, VocabularyError: a mistake in the input or the flags.
    """
    # Imported here, so that `--help` does not wait for Beam.
    from pipelines.commands import corpus_run, pretraining_data_run
    from pipelines.commands.corpus_config import corpus_config
    from pipelines.corpus.corpus_manifest import sizes_of_corpus
    from pipelines.io.written_files import require_written
    from pipelines.runner import pipeline_runner
    from pipelines.runner.job_output import absolute
    from pipelines.runner.output_lock import claim_output

    # A mistake in the second job's flags shows before the first job's hours; the case is the first job's.
    # Job 1 puts the vocabulary, learnt or given, beside the corpus.
    data_config = pretraining_data_run.pretraining_data_config(args, args.output, None)
    # An engine changes the options that it is given.
    corpus_engine, data_engine = (pipeline_runner.pipeline_options(beam_flags) for _ in range(2))
    manifests, entries = (CORPUS_MANIFEST, DATASET_MANIFEST), CORPUS_ENTRIES | DATASET_ENTRIES
    with claim_output(args.output, "build", manifests, entries):
        corpus = corpus_run.make_corpus(corpus_config(args), corpus_engine, args.objective)
        manifest = pretraining_data_run.make_pretraining_data(data_config, corpus, data_engine)
        # The second job does not need all that the first has written.
        require_written(absolute(args.output), sizes_of_corpus(corpus.parts))
    print(f"\n{args.output} holds")
    printed = corpus_run.print_summary(corpus, args.output)
    pretraining_data_run.print_summary(manifest, args.output, printed)
    return 0

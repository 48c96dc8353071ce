"""`beambert build`: both jobs, from raw text to shards."""

import argparse

from deploy import corpus_flags, example_flags, pretraining_data_flags
from pipelines.output_directory import CORPUS_ENTRIES, CORPUS_MANIFEST, DATASET_ENTRIES, DATASET_MANIFEST

DESCRIPTION = """From raw text to pretraining data in one command: `beambert corpus`, then `beambert pretraining-data`,
both into --output. Run it again after an interruption: a stage that has finished with the same inputs and options is
not done again."""

ACCEPTS_BEAM_FLAGS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of both jobs."""
    corpus_flags.add_arguments(parser)
    example_flags.add_arguments(parser)
    pretraining_data_flags.add_machine_arguments(parser)


def run(args: argparse.Namespace, beam_flags: list[str]) -> int:
    """Runs the command.

    Raises:
        SourceError, DatasetError, VocabularyError: a mistake in the input or the flags.
    """
    # Imported here, so that `--help` does not wait for Beam.
    import deploy.corpus
    import deploy.pretraining_data
    from deploy.output import absolute
    from deploy.output_lock import claim_output
    from pipelines.written_files import require_written, sizes_of_corpus

    # A mistake in the second job's flags shows before the first job's hours; the case is the first job's.
    example_flags.example_options(args, do_lower_case=True)
    manifests, entries = (CORPUS_MANIFEST, DATASET_MANIFEST), CORPUS_ENTRIES | DATASET_ENTRIES
    with claim_output(args.output, "build", manifests, entries):
        corpus = deploy.corpus.make_corpus(args, beam_flags, args.objective)
        # Job 1 has put the vocabulary, learnt or given, beside the corpus.
        args.vocab_file = None
        manifest = deploy.pretraining_data.make_pretraining_data(args, corpus, args.output, beam_flags)
        # The second job does not need all that the first has written.
        require_written(absolute(args.output), sizes_of_corpus(corpus.parts))
    print(f"\n{args.output} holds")
    printed = deploy.corpus.print_summary(corpus, args.output)
    deploy.pretraining_data.print_summary(manifest, args.output, printed)
    return 0

"""`beambert build`: both jobs, from raw text to shards."""

import argparse

import deploy.corpus
import deploy.pretraining_data
from deploy import example_flags
from deploy.output_lock import lock_output

DESCRIPTION = """From raw text to pretraining data in one command: `beambert corpus`, then `beambert pretraining-data`,
both into --output. Run it again after an interruption: a stage that has finished with the same inputs and options is
not done again."""

ACCEPTS_BEAM_FLAGS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of both jobs."""
    deploy.corpus.add_arguments(parser)
    example_flags.add_arguments(parser)
    deploy.pretraining_data.add_machine_arguments(parser)


def run(args: argparse.Namespace, beam_flags: list[str]) -> int:
    """Runs the command.

    Raises:
        SourceError, DatasetError, VocabularyError: a mistake in the input or the flags.
    """
    # A mistake in the second job's flags shows before the first job's hours; the case is the first job's.
    example_flags.example_options(args, do_lower_case=True)
    with lock_output(args.output):
        corpus = deploy.corpus.make_corpus(args, beam_flags)
        # Job 1 has put the vocabulary, learnt or given, beside the corpus.
        args.vocab_file = None
        manifest = deploy.pretraining_data.make_pretraining_data(args, corpus, args.output, beam_flags)
    print(f"\n{args.output} holds")
    deploy.corpus.print_summary(corpus, args.output)
    deploy.pretraining_data.print_summary(manifest, args.output)
    return 0

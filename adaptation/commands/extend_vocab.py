"""Define `beambert extend-vocab`, which adds the words of a text to the vocabulary of a model.

This module imports neither Beam nor TensorFlow, so that `--help` is fast.
"""

import argparse
import dataclasses

from beambert.adaptation.options import ExtendVocabOptions
from beambert.common.command_line import options
from beambert.pipelines.formats import FORMATS
from beambert.pipelines.formats.input_format import ReadOptions

DESCRIPTION = """Add the words of a text to the vocabulary of a model, or replace its vocabulary.

Adds the words that the vocabulary splits into the most tokens. The embedding of a new word is the mean of the
embeddings of its former tokens. All other weights stay bit for bit. MODEL may have any format; DIR is a new model
directory. Pretrain the result on your text before you fine-tune it."""
EXAMPLE = """beambert extend-vocab uncased --input 'texts/*.txt' --num_tokens 1000 --output uncased-domain
beambert extend-vocab uncased --replace data/vocab.txt --output uncased-new"""
COMMON_FLAGS = ("--input", "--num_tokens", "--output", "--fill_unused", "--replace", "--to")
# Flags of reading that the command does not have.
_NO_FLAGS = {field.name for field in dataclasses.fields(ReadOptions)} - {"input_format", "encoding", "text_field"}
# The language reference is a format without --input.
_FORMATS = ("auto", *(name for name in FORMATS if name != "language_reference"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    options.add_groups(parser, "input", "vocabulary", "output", "task")
    options.add_arguments(
        parser,
        ExtendVocabOptions,
        lambda name: name not in _NO_FLAGS,
        input_format={"choices": _FORMATS},
    )


def configure(args: argparse.Namespace) -> ExtendVocabOptions:
    """Return the options of parsed flags. Raise VocabularyError as `ExtendVocabOptions`."""
    field_flags = (f"--text_field {args.text_field}",) if args.text_field else ()
    return options.from_args(ExtendVocabOptions, args, field_flags=field_flags)


def run(config: ExtendVocabOptions) -> int:
    """Run the command. Raise as `beambert.adaptation.extension_run.run` does."""
    # Imported late: `--help` must not wait for Beam.
    from beambert.adaptation import extension_run

    return extension_run.run(config)

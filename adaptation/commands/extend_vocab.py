"""Define `beambert extend-vocab`, which adds the words of a text to the vocabulary of a model.

This module imports neither Beam nor TensorFlow, so that `--help` is fast.
"""

import argparse

from beambert.adaptation.extension_config import ExtendVocabConfig
from beambert.bert_model.checkpoints import writer
from beambert.bert_model.heads import ALL_HEADS
from beambert.common.command_line import options
from beambert.common.command_line.flags import positive_int, vocabulary_size
from beambert.common.command_line.path_flags import ANY_PATH, LOCAL_OUTPUT_DIRECTORY, LOCAL_PATH
from beambert.pipelines.formats import FORMATS
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.trainers.commands.model_flags import add_model_arguments

DESCRIPTION = """Add the words of a text to the vocabulary of a model, or replace its vocabulary.

Adds the words that the vocabulary splits into the most tokens. The embedding of a new word is the mean of the
embeddings of its former tokens. All other weights stay bit for bit. MODEL may have any format; DIR is a new model
directory. Pretrain the result on your text before you fine-tune it."""
EXAMPLE = """beambert extend-vocab uncased --input 'texts/*.txt' --num_tokens 1000 --output uncased-domain
beambert extend-vocab uncased --replace data/vocab.txt --output uncased-new"""
COMMON_FLAGS = ("--input", "--num_tokens", "--output", "--fill_unused", "--replace", "--to")
_READ_FLAGS = ("input_format", "encoding", "text_field")
# The language reference is a format without --input.
_FORMATS = ("auto", *(name for name in FORMATS if name != "language_reference"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "model",
        type=LOCAL_PATH,
        metavar="MODEL",
        help="A model directory, or a checkpoint or zip archive of the released BERT; the format is detected",
    )
    group = options.group(parser, "input")
    group.add_argument(
        "--input",
        action="extend",
        nargs="+",
        type=ANY_PATH,
        metavar="GLOB",
        default=[],
        help="Input files or quoted glob patterns, as for build; the text is neither cleaned nor deduplicated. With "
        "--replace, the text only measures the vocabularies",
    )
    options.add_arguments(parser, ReadOptions, _READ_FLAGS.__contains__, input_format={"choices": _FORMATS})
    group = parser.add_argument_group("vocabulary")
    group.add_argument("--num_tokens", type=vocabulary_size, metavar="N", help="Number of words to add")
    group.add_argument(
        "--min_count",
        type=positive_int,
        metavar="N",
        default=ExtendVocabConfig.min_count,
        help="Minimum occurrences of a word to add",
    )
    group.add_argument(
        "--fill_unused",
        action="store_true",
        help="Replace [unusedN] tokens instead of adding rows, so that the vocabulary size stays",
    )
    group.add_argument(
        "--replace",
        type=LOCAL_PATH,
        metavar="VOCAB",
        help="New vocabulary, a vocab.txt or tokenizer.json; tokens of both vocabularies keep their embeddings",
    )
    group = parser.add_argument_group("output")
    group.add_argument(
        "--output",
        required=True,
        type=LOCAL_OUTPUT_DIRECTORY,
        metavar="DIR",
        help="Output directory; must be new or empty",
    )
    group.add_argument("--to", choices=writer.KINDS, default=ExtendVocabConfig.to, help="Output format")
    parser.add_argument_group("task").add_argument(
        "--task",
        choices=tuple(ALL_HEADS),
        help="Task head of MODEL; required if the files do not record it, as for a TF1 checkpoint of a token "
        "classifier (default: as detected)",
    )
    add_model_arguments(parser)


def configure(args: argparse.Namespace) -> ExtendVocabConfig:
    """Return the configuration of parsed flags. Raise VocabularyError as `ExtendVocabConfig`."""
    return ExtendVocabConfig.from_args(args)


def run(config: ExtendVocabConfig) -> int:
    """Run the command. Raise as `beambert.adaptation.extension_run.run` does."""
    # Imported late: `--help` must not wait for Beam.
    from beambert.adaptation import extension_run

    return extension_run.run(config)

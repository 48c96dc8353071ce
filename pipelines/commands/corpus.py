"""Define `beambert corpus` and the flags that it shares with other data commands.

This module does not import Beam, so that `--help` is fast; `corpus_run.py` is imported when the command runs.
"""

import argparse
from typing import TYPE_CHECKING

from beambert.common.command_line.flags import fraction, num_partitions, number
from beambert.common.command_line.path_flags import ANY_OUTPUT_DIRECTORY, ANY_PATH
from beambert.pipelines.commands import cleaning_flags, vocabulary_flags
from beambert.pipelines.formats import FORMATS
from beambert.pipelines.formats.input_format import BAD_RECORD_ACTIONS, WIKITEXT_EXTRACTORS
from beambert.pipelines.segmentation.segmenters import SEGMENTERS

if TYPE_CHECKING:
    from beambert.pipelines.commands.corpus_config import CorpusConfig

DESCRIPTION = """Build a corpus of clean sentences and a WordPiece vocabulary from raw text.

Cleans documents, splits them into sentences, and removes duplicates. Sets a validation split aside, and learns the
vocabulary from the training split. Writes corpus.json, corpus/*.parquet, vocab.txt, and rejected text in
rejected/*.jsonl."""
EXAMPLE = """beambert corpus --input 'texts/*.txt' --output corpus
beambert corpus --input dump.jsonl --text_field body --output corpus --vocab_size 8000"""
COMMON_FLAGS = (
    "--input",
    "--output",
    "--input_format",
    "--text_field",
    "--language",
    "--vocab_size",
    "--vocab_file",
    "--validation_fraction",
)

ACCEPTS_BEAM_FLAGS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `beambert corpus`."""
    add_input_arguments(parser)
    group = parser.add_argument_group("output")
    group.add_argument("--output", required=True, type=ANY_OUTPUT_DIRECTORY, metavar="DIR", help="Output directory")
    add_corpus_arguments(parser)
    cleaning_flags.add_arguments(parser)
    group = parser.add_argument_group("vocabulary")
    group.add_argument(
        "--vocab_file", type=ANY_PATH, metavar="FILE", help="Existing vocab.txt to use instead of learning a vocabulary"
    )
    vocabulary_flags.add_arguments(group)


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the group "input"."""
    group = parser.add_argument_group("input")
    group.add_argument(
        "--input",
        action="extend",
        nargs="+",
        type=ANY_PATH,
        metavar="GLOB",
        default=[],
        help="Input files or quoted glob patterns, local, on gs:// or on any other Beam filesystem; .gz, .bz2, .zst "
        "and .xz files are decompressed",
    )
    group.add_argument(
        "--input_weights",
        action="extend",
        nargs="+",
        type=number(0.0, 1_000.0, least_too=False, most_too=True),
        metavar="W",
        help="Sampling weights, one per --input pattern: how often each copy of the data contains its documents, for "
        "example 0.5 or 3, at most 1,000 (default: 1)",
    )
    group.add_argument(
        "--input_format",
        choices=("auto", *FORMATS),
        default="auto",
        metavar="FORMAT",
        help="Input format: auto, text (one document per file), sentences (one sentence per line, an empty line "
        "between documents), bookcorpus, gutenberg, jsonl, json, csv, tsv, parquet, wikiextractor, wikipedia or "
        "language_reference (needs no --input); see docs/reference/input-formats.md",
    )
    group.add_argument(
        "--encoding",
        default="utf-8",
        metavar="NAME",
        help="Encoding of text files; Gutenberg books that are not valid UTF-8 are read as cp1252",
    )
    group.add_argument(
        "--text_field",
        metavar="NAME",
        help="JSON field, or Parquet, CSV or TSV column, with the text or the list of its sentences (default: text)",
    )
    group.add_argument(
        "--id_field",
        metavar="NAME",
        help="Field or column with the document ID, which rejected/*.jsonl records as source_id (default: none)",
    )
    group.add_argument(
        "--on_bad_record",
        choices=BAD_RECORD_ACTIONS,
        default="stop",
        help="Action for a record that cannot be read or has no text: stop the job, or skip the record and list it in "
        "rejected/*.jsonl with file, line and reason",
    )
    group.add_argument(
        "--document_unit",
        choices=("book", "chapter"),
        default="book",
        help="Document unit of Gutenberg books; chapters are recognized by English and German headings",
    )
    group.add_argument(
        "--language_field",
        metavar="NAME",
        help="JSON field, or Parquet, CSV or TSV column, with the language code of a document, for example en "
        "(default: language, if the field exists)",
    )
    group.add_argument(
        "--wikitext_extractor",
        choices=WIKITEXT_EXTRACTORS,
        default=WIKITEXT_EXTRACTORS[0],
        help="Extractor of the pages of Wikipedia dumps: beambert's own, or the package wikiextractor 3.1.0 (requires "
        "the extra [wikiextractor]; license AGPL-3.0)",
    )


def add_corpus_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the group "corpus": language, sentences, validation split and partitions."""
    group = parser.add_argument_group("corpus")
    group.add_argument(
        "--language",
        default="en",
        metavar="CODE",
        help="ISO 639 language code of documents that state none, or und (undetermined); it selects the sentence rules "
        "and the default of --do_lower_case",
    )
    group.add_argument(
        "--segmenter",
        choices=SEGMENTERS,
        default="rules",
        metavar="NAME",
        help="Sentence segmenter: rules (sentencex with corrections), sentencex (unmodified) or lines (one sentence "
        "per line)",
    )
    group.add_argument(
        "--abbreviations",
        type=ANY_PATH,
        metavar="FILE",
        help="Text file with one abbreviation a line, after which --segmenter rules never ends a sentence, in addition "
        "to those of the language",
    )
    group.add_argument(
        "--truncation_noise",
        type=fraction,
        default=0.0,
        metavar="FRACTION",
        help="Fraction of sentences to truncate at a random word, for robustness to incomplete text; "
        "google-research/bert recommends 0.02 (default: 0)",
    )
    group.add_argument(
        "--validation_fraction",
        type=fraction,
        default=0.02,
        metavar="FRACTION",
        help="Fraction of documents in the validation split, selected by a hash of their text",
    )
    group.add_argument(
        "--num_partitions",
        type=num_partitions,
        metavar="N",
        help="Number of hash partitions of the documents; another number gives other examples for the same seed "
        "(default: by input size)",
    )


def configure(args: argparse.Namespace) -> "CorpusConfig":
    """Return the configuration. Raise as `beambert.pipelines.commands.corpus_config.corpus_config` does."""
    from beambert.pipelines.commands.corpus_config import corpus_config

    return corpus_config(args)


def run(config: "CorpusConfig", beam_flags: list[str]) -> int:
    """Run the command. Raise as `beambert.pipelines.commands.corpus_run.run` does."""
    from beambert.pipelines.commands import corpus_run

    return corpus_run.run(config, beam_flags)

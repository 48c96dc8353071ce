"""`beambert corpus`: its flags, of which other commands have many too.

This file imports no Beam, so that `--help` does not wait for it; `corpus_run.py` is imported when the command runs.
"""

import argparse
from typing import TYPE_CHECKING

from beambert_common.command_line.flags import accept_old_name, fraction, num_partitions, positive_float
from beambert_common.command_line.path_flags import ANY_OUTPUT_DIRECTORY, ANY_PATH
from pipelines.commands import cleaning_flags, vocabulary_flags
from pipelines.corpus.segmentation import SEGMENTERS
from pipelines.sources.input_formats import BAD_RECORD_ACTIONS, FORMATS

if TYPE_CHECKING:
    from pipelines.commands.corpus_config import CorpusConfig

DESCRIPTION = """Reads documents, splits them into sentences, drops equal texts, holds some documents out, and learns a
WordPiece vocabulary from the rest (or takes one over). Writes vocab.txt, corpus/*.parquet and corpus.json."""
EXAMPLE = "beambert corpus --input 'texts/*.txt' --output data"
COMMON_FLAGS = ("--input", "--output", "--input_format", "--text_field", "--language", "--vocab_size", "--vocab_file")

ACCEPTS_BEAM_FLAGS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `beambert corpus`."""
    add_input_arguments(parser)
    group = parser.add_argument_group("what to make of it")
    group.add_argument(
        "--output", required=True, type=ANY_OUTPUT_DIRECTORY, metavar="DIR", help="directory for the result"
    )
    add_split_arguments(group)
    group = parser.add_argument_group("the vocabulary")
    group.add_argument("--vocab_file", type=ANY_PATH, metavar="FILE", help="a vocab.txt to use instead of learning one")
    vocabulary_flags.add_arguments(group)


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the input."""
    group = parser.add_argument_group("what to read")
    group.add_argument(
        "--input",
        action="extend",
        nargs="+",
        type=ANY_PATH,
        metavar="GLOB",
        default=[],
        help="files, or quoted patterns; local, gs:// or any Beam filesystem; .gz, .bz2, .zst and .xz are undone",
    )
    group.add_argument(
        "--input_weights",
        action="extend",
        nargs="+",
        type=positive_float,
        metavar="W",
        help="how often the documents of each --input pattern are to be seen in every pass over the data, one number "
        "for each, such as 0.5 or 3 (default: 1)",
    )
    group.add_argument(
        "--input_format",
        choices=FORMATS,
        default="auto",
        metavar="FORMAT",
        help="sentences: one a line, an empty line between documents (google-research/bert's input). "
        "bookcorpus: one sentence a line, a book a file or empty lines between books. text: one document a file. "
        "gutenberg: Project Gutenberg's plain text, licence and credits taken out. jsonl: an object a line. "
        "json: an array of objects, or objects over several lines. csv, tsv: a header, then a document a row. "
        "parquet: a document a row. wikiextractor: <doc ...> or --json as WikiExtractor writes it. "
        "wikipedia: a MediaWiki dump, pages-articles(-multistream).xml(.bz2). "
        "language_reference: the Python language reference inside this Python, needs no --input. "
        "auto: wikipedia, wikiextractor, jsonl, json, parquet or gutenberg where the content shows it, csv or tsv by "
        "the name, else text; archives, web pages and other kinds of files are refused",
    )
    group.add_argument(
        "--encoding",
        default="utf-8",
        metavar="NAME",
        help="of the text files; Gutenberg books that are not UTF-8 are read as cp1252, a superset of Latin-1",
    )
    group.add_argument(
        "--text_field",
        metavar="NAME",
        help="field of a JSON object, or column of a Parquet, CSV or TSV file, that holds the text or the list of its "
        "sentences (default: text)",
    )
    group.add_argument(
        "--id_field",
        metavar="NAME",
        help="field or column that identifies a document; rejected/*.jsonl shows it as source_id (default: none)",
    )
    group.add_argument(
        "--on_bad_record",
        choices=BAD_RECORD_ACTIONS,
        default="stop",
        help="stop: a record that cannot be read, or has no text in its field, ends the job. skip: such records are "
        "left out, counted in corpus.json and listed in rejected/*.jsonl with file, line and reason",
    )
    group.add_argument(
        "--document_unit",
        choices=("book", "chapter"),
        default="book",
        help="what a document of a Gutenberg book is; chapters are told by their headings, in English and German",
    )
    group.add_argument(
        "--language_field",
        metavar="NAME",
        help="field of a JSON object, or column of a Parquet, CSV or TSV file, that holds the language code of a "
        "document, such as en (default: language, where there is one)",
    )
    group.add_argument(
        "--language",
        default="en",
        metavar="CODE",
        help="ISO 639 code of the text that states none, for splitting sentences and for the default of "
        "--do_lower_case; und: undetermined",
    )
    group.add_argument(
        "--segmenter",
        choices=SEGMENTERS,
        default="rules",
        metavar="NAME",
        help="how paragraphs become sentences. rules: sentencex with its known faults mended. "
        "lines: every line is a sentence. sentencex: as it is",
    )

    cleaning_flags.add_arguments(parser)


def add_split_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the flags of the validation split and of document groups."""
    group.add_argument(
        "--truncation_noise",
        type=fraction,
        default=0.0,
        metavar="SHARE",
        help="share of sentences to cut off at a random word, so that a model also meets text that is none; "
        "google-research/bert advises 0.02",
    )
    group.add_argument(
        "--validation_fraction",
        type=fraction,
        default=0.02,
        metavar="SHARE",
        help="fraction of the documents in the validation split, chosen by their text",
    )
    flag = group.add_argument(
        "--num_partitions",
        type=num_partitions,
        metavar="N",
        help="partitions the documents are grouped into (default: by input size; part of what a seed means)",
    )
    accept_old_name(group, flag, "--num_buckets")


def configure(args: argparse.Namespace) -> "CorpusConfig":
    """Return what the flags ask for. Raises as `pipelines.commands.corpus_config.corpus_config` does."""
    from pipelines.commands.corpus_config import corpus_config

    return corpus_config(args)


def run(config: "CorpusConfig", beam_flags: list[str]) -> int:
    """Run the command. Raise as `pipelines.commands.corpus_run.run` does."""
    from pipelines.commands import corpus_run

    return corpus_run.run(config, beam_flags)

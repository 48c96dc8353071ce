"""`beambert corpus`: job 1 on the chosen engine, skipped where its result is there already."""

import argparse
import dataclasses
import platform
import sys
from typing import Any

from apache_beam.io.filesystems import FileSystems

from deploy import embedded
from deploy.flags import boolean, fraction, positive_int
from deploy.output import absolute, refuse_other, require_writable
from deploy.progress import watch_files
from pipelines import corpus_files, dataset
from pipelines.corpus import CorpusOptions, build_corpus, choose_num_buckets
from pipelines.corpus_files import Corpus
from pipelines.dataset import DatasetError
from pipelines.sources import FORMATS, ReadOptions, SourceError
from pipelines.sources.files import match_files
from pipelines.sources.wikipedia import TRUNCATED
from pipelines.writing import delete_matching, read_bytes
from tokenizer.vocabulary import Vocabulary

DESCRIPTION = """Reads documents, splits them into sentences, drops equal texts, holds some documents out, and learns a
WordPiece vocabulary from the rest (or takes one over). Writes vocab.txt, corpus/*.parquet and corpus.json."""

ACCEPTS_BEAM_FLAGS = True

# Text grows about this much when it is decompressed; only the number of buckets hangs on it.
_EXPANSION = 4
_COMPRESSED = (".gz", ".bz2", ".zst", ".xz")
_LANGUAGE_REFERENCE_BYTES = 500_000
_VOCAB_SIZE = 30_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `beambert corpus`."""
    group = parser.add_argument_group("what to read")
    group.add_argument(
        "--input",
        nargs="+",
        metavar="GLOB",
        default=[],
        help="files, or quoted patterns; local, gs:// or any Beam filesystem; .gz, .bz2, .zst and .xz are undone",
    )
    group.add_argument(
        "--input_format",
        choices=FORMATS,
        default="auto",
        metavar="FORMAT",
        help="sentences: one a line, an empty line between documents (google-research/bert's input). "
        "text: one document a file. jsonl: an object a line. wikiextractor: <doc ...> as WikiExtractor writes it. "
        "wikipedia: a MediaWiki dump, pages-articles(-multistream).xml(.bz2). "
        "language_reference: the Python language reference inside this Python, needs no --input. "
        "auto: wikipedia, wikiextractor or jsonl where the content shows it, else text",
    )
    group.add_argument("--encoding", default="utf-8", metavar="NAME", help="of the text files")
    group.add_argument("--text_field", default="text", metavar="NAME", help="field of a JSON line that holds the text")
    group.add_argument(
        "--language", default="en", metavar="CODE", help="ISO 639 code of the text, for splitting sentences"
    )

    group = parser.add_argument_group("what to make of it")
    group.add_argument("--output", required=True, metavar="DIR", help="directory for the result")
    group.add_argument("--vocab_size", type=positive_int, metavar="N", help=f"pieces to learn (default: {_VOCAB_SIZE})")
    group.add_argument("--vocab_file", metavar="FILE", help="a vocab.txt to use instead of learning one")
    group.add_argument(
        "--do_lower_case",
        type=boolean,
        nargs="?",
        const=True,
        default=True,
        metavar="true|false",
        help="lower-case and strip accents (uncased), or not (cased)",
    )
    group.add_argument(
        "--validation_fraction",
        type=fraction,
        default=0.02,
        metavar="SHARE",
        help="share of documents held out for evaluation, chosen by their text",
    )
    group.add_argument(
        "--num_buckets",
        type=positive_int,
        metavar="N",
        help="parts the documents are grouped into (default: by input size; part of what a seed means)",
    )


def run(args: argparse.Namespace, beam_flags: list[str]) -> int:
    """Runs the command.

    Raises:
        SourceError, DatasetError, VocabularyError: a mistake in the input or the flags.
    """
    corpus = make_corpus(args, beam_flags)
    print_summary(corpus, args.output)
    print(f"\nNext: beambert pretraining-data --input {args.output} --output DIR")
    return 0


def _describe(path: str) -> list[list[Any]]:
    """[path, bytes, time last changed] of every file that a pattern matches."""
    return [[file.path, file.size_in_bytes, file.last_updated_in_seconds] for file in match_files([path])]


def _inputs(args: argparse.Namespace) -> list[list[Any]]:
    if args.input_format == "language_reference":
        if args.input:
            raise SourceError("--input_format language_reference reads no file; leave --input out")
        return [["language_reference", _LANGUAGE_REFERENCE_BYTES, platform.python_version()]]
    if not args.input:
        raise SourceError("--input is missing; name files or quoted patterns, such as --input 'texts/*.txt'")
    found = {file[0]: file for pattern in args.input for file in _describe(absolute(pattern))}
    return [found[path] for path in sorted(found)]


def _vocab_file(args: argparse.Namespace) -> str:
    if not args.vocab_file:
        return ""
    if args.vocab_size:
        raise SourceError("--vocab_size and --vocab_file exclude each other; learn a vocabulary or bring one")
    path = absolute(args.vocab_file)
    try:
        Vocabulary.from_bytes(read_bytes(path), args.vocab_file)
    except FileNotFoundError as error:
        raise SourceError(f"--vocab_file {args.vocab_file} does not exist; check the path") from error
    return path


def _options(args: argparse.Namespace, inputs: list[list[Any]]) -> CorpusOptions:
    text_bytes = sum(size * (_EXPANSION if path.endswith(_COMPRESSED) else 1) for path, size, _ in inputs)
    vocab_file = _vocab_file(args)
    return CorpusOptions(
        read=ReadOptions(args.input_format, args.encoding, args.text_field),
        language=args.language,
        do_lower_case=args.do_lower_case,
        vocab_size=0 if vocab_file else (args.vocab_size or _VOCAB_SIZE),
        vocab_file=vocab_file,
        num_buckets=args.num_buckets or choose_num_buckets(text_bytes),
        validation_fraction=args.validation_fraction,
    )


def make_corpus(args: argparse.Namespace, beam_flags: list[str]) -> Corpus:
    """Runs job 1, or finds that the same was done before.

    Raises:
        DatasetError: the output holds another corpus.
        SourceError, VocabularyError: a mistake in the input or the flags.
    """
    inputs = _inputs(args)
    options = _options(args, inputs)
    files = inputs + (_describe(options.vocab_file) if options.vocab_file else [])
    output = absolute(args.output)
    existing = corpus_files.load(output)
    if existing:
        refuse_other(args.output, "corpus", existing.options, dataclasses.asdict(options))
        if existing.files != files:
            raise DatasetError(
                f"--output {args.output} holds a corpus of other input files, or they changed since; "
                "choose another --output, or delete that directory"
            )
        print(f"Corpus in {args.output} is up to date.", flush=True)
        return existing
    if FileSystems.exists(f"{output}/{dataset.FILE_NAME}"):
        raise DatasetError(
            f"--output {args.output} holds a dataset made from another corpus; "
            "choose another --output, or delete that directory"
        )
    require_writable(args.output)
    # What a killed build left: the parts may be of other options.
    for pattern in ("corpus/*.parquet*", "rejected/*.jsonl*"):
        delete_matching(f"{output}/{pattern}")
    print(f"Corpus: reading {len(inputs)} input(s) into {options.num_buckets} bucket(s)", flush=True)
    total = options.num_buckets + options.num_buckets_of("validation")
    with watch_files("Corpus", f"{output}/corpus/*.parquet", total, "parts"):
        embedded.run(
            lambda pipeline: build_corpus(pipeline, inputs, files, options, output),
            embedded.pipeline_options(beam_flags),
            args.output,
        )
    corpus = corpus_files.load(output)
    if corpus is None:
        raise RuntimeError(f"the corpus job ended without {output}/{corpus_files.FILE_NAME}")
    return corpus


def print_summary(corpus: Corpus, output: str) -> None:
    """Prints what the corpus holds and where."""
    documents, rejected = corpus.counts["documents"], corpus.counts["documents_rejected"]
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in rejected.items()) or "none"
    print(
        f"  corpus      {output}/corpus/  {documents['train']:,} documents, {documents['validation']:,} held out, "
        f"{sum(corpus.counts['sentences'].values()):,} sentences; rejected: {reasons}"
    )
    if rejected.get(TRUNCATED):
        print(
            f"  warning     {rejected[TRUNCATED]:,} break(s) in damaged dumps, see {output}/rejected/", file=sys.stderr
        )
    print(f"  vocabulary  {output}/vocab.txt  {corpus.vocab['size']:,} pieces")

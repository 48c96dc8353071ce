"""`beambert corpus`: job 1 on the chosen engine, skipped where its result is there already."""

import argparse
import dataclasses
import platform
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from apache_beam.io.filesystems import FileSystems

from beambert_flags import fraction, positive_float, positive_int
from deploy import cleaning_flags, embedded, vocabulary_flags
from deploy.output import absolute, delete_temporary, delete_work, refuse_other, with_defaults, work_directory
from deploy.output_lock import lock_output
from deploy.progress import Stage, watch_files
from pipelines import corpus_files, dataset
from pipelines.buckets import choose_num_buckets
from pipelines.corpus import build_corpus
from pipelines.corpus_files import Corpus
from pipelines.corpus_options import CorpusOptions
from pipelines.dataset import DatasetError
from pipelines.decontamination import load_keys
from pipelines.language_codes import require_language
from pipelines.losses import loss_warnings
from pipelines.parts import part_name
from pipelines.reading import Input, Unit, split_inputs
from pipelines.segmentation import SEGMENTERS
from pipelines.shards import SPLITS
from pipelines.sources import FORMATS, WITHOUT_LANGUAGES, ReadOptions, SourceError
from pipelines.sources.files import match_files
from pipelines.sources.wikipedia import TRUNCATED
from pipelines.vocabulary import LANGUAGE_REMEDY
from pipelines.writing import delete_matching

DESCRIPTION = """Reads documents, splits them into sentences, drops equal texts, holds some documents out, and learns a
WordPiece vocabulary from the rest (or takes one over). Writes vocab.txt, corpus/*.parquet and corpus.json."""

ACCEPTS_BEAM_FLAGS = True

# Grouping, sorting and writing take this share of the time that reading takes (60 MB of Wikipedia, 2026-11-21).
_COST_OF_WRITING = 0.25
# Text grows about this much when it is decompressed; only the number of buckets hangs on it.
_EXPANSION = 4
_COMPRESSED = (".gz", ".bz2", ".zst", ".xz")
_LANGUAGE_REFERENCE_BYTES = 500_000
# Options that come into play when the text is read and counted: whoever only changes these goes on from there.
_OF_VOCABULARY_ALONE = ("vocab_size", "vocab_file", "num_unused", "alphabet_limit", "min_count", "compare_vocab")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `beambert corpus`."""
    add_input_arguments(parser)
    group = parser.add_argument_group("what to make of it")
    group.add_argument("--output", required=True, metavar="DIR", help="directory for the result")
    add_split_arguments(group)
    group = parser.add_argument_group("the vocabulary")
    group.add_argument("--vocab_file", metavar="FILE", help="a vocab.txt to use instead of learning one")
    vocabulary_flags.add_arguments(group)


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say what to read."""
    group = parser.add_argument_group("what to read")
    group.add_argument(
        "--input",
        action="extend",
        nargs="+",
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
        "parquet: a document a row. wikiextractor: <doc ...> or --json as WikiExtractor writes it. "
        "wikipedia: a MediaWiki dump, pages-articles(-multistream).xml(.bz2). "
        "language_reference: the Python language reference inside this Python, needs no --input. "
        "auto: wikipedia, wikiextractor, jsonl, parquet or gutenberg where the content shows it, else text",
    )
    group.add_argument(
        "--encoding",
        default="utf-8",
        metavar="NAME",
        help="of the text files; Gutenberg books that are not UTF-8 are read as cp1252, a superset of Latin-1",
    )
    group.add_argument(
        "--text_field",
        default="text",
        metavar="NAME",
        help="field of a JSON line, or column of a Parquet file, that holds the text or the list of its sentences",
    )
    group.add_argument(
        "--language_field",
        metavar="NAME",
        help="field of a JSON line, or column of a Parquet file, that holds the language code of a document, such as "
        "en (default: language, where there is one)",
    )
    group.add_argument(
        "--document_unit",
        choices=("book", "chapter"),
        default="book",
        help="what a document of a Gutenberg book is; chapters are told by their headings, in English and German",
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
    """Adds the flags that say how documents are held out and grouped."""
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
    with lock_output(args.output):
        corpus = make_corpus(args, beam_flags)
    print_summary(corpus, args.output)
    print(f"\nNext: beambert pretraining-data --input {args.output} --output DIR")
    return 0


def _describe(path: str) -> list[list[Any]]:
    """[path, bytes, time last changed] of every file that a pattern matches."""
    return [[file.path, file.size_in_bytes, file.last_updated_in_seconds] for file in match_files([path])]


def find_inputs(args: argparse.Namespace) -> list[Input]:
    """Every file to read, none twice, in order of their paths. Raises SourceError where there is none."""
    if args.input_format == "language_reference":
        if args.input:
            raise SourceError("--input_format language_reference reads no file; leave --input out")
        name = "language_reference"
        return [Input(name, _LANGUAGE_REFERENCE_BYTES, platform.python_version(), name, 1.0)]
    if not args.input:
        raise SourceError("--input is missing; name files or quoted patterns, such as --input 'texts/*.txt'")
    weights = args.input_weights or [1.0] * len(args.input)
    if len(weights) != len(args.input):
        raise SourceError(
            f"--input_weights has {len(weights)} number(s) for {len(args.input)} --input pattern(s); give one for "
            "each, and quote the patterns so that beambert expands them"
        )
    found: dict[str, Input] = {}
    for pattern, weight in zip(args.input, weights, strict=True):
        for path, size, changed in _describe(absolute(pattern)):
            found.setdefault(path, Input(path, size, changed, pattern, weight))
    return [found[path] for path in sorted(found)]


def text_bytes(inputs: list[Input]) -> int:
    """About how many bytes of text the files hold, undone where they are compressed."""
    return sum(each.bytes * (_EXPANSION if each.path.endswith(_COMPRESSED) else 1) for each in inputs)


def corpus_options(args: argparse.Namespace, inputs: list[Input]) -> CorpusOptions:
    """What the flags ask of job 1. Raises SourceError or VocabularyError for a value that cannot be."""
    require_language(args.language)
    if args.language_sampling_exponent != 1.0 and args.input_format in WITHOUT_LANGUAGES:
        raise SourceError(
            f"--language_sampling_exponent {args.language_sampling_exponent:g} has no effect on --input_format "
            f"{args.input_format}, whose documents state no language; {LANGUAGE_REMEDY}"
        )
    return CorpusOptions(
        **vocabulary_flags.options(args),
        read=ReadOptions(
            args.input_format, args.encoding, args.text_field, args.document_unit, args.language_field or ""
        ),
        language=args.language,
        segmenter=args.segmenter,
        truncation_noise=args.truncation_noise,
        num_buckets=args.num_buckets or choose_num_buckets(text_bytes(inputs)),
        validation_fraction=args.validation_fraction,
        cleaning=cleaning_flags.options(args),
        identify_language=args.identify_language,
        decontaminate=[file.path for file in match_files(list(map(absolute, args.decontaminate)), "--decontaminate")],
        decontaminate_action=args.decontaminate_action,
        near_duplicates=args.drop_near_duplicates,
        repeated_paragraphs=args.drop_repeated_paragraphs,
    )


def megabytes_read(units: list[Unit]) -> Callable[[str], dict[str, float]]:
    """For progress: note of a unit -> the MB it stands for."""
    sizes = {f"{unit.name()}.json": unit.bytes / 1e6 for unit in units}
    return lambda path: {"MB/s read": sizes.get(path.rsplit("/", 1)[-1], 0.0)}


def _stage(units: list[Unit], options: CorpusOptions, output: str, work: str) -> Stage:
    """What shows how far job 1 has come: notes of what was read and written, or where there are none the parts."""
    names = [part_name(split, n, options) for split in SPLITS for n in range(options.num_buckets_of(split))]
    if not work:
        return Stage("Corpus", f"{output}/corpus/*.parquet", {f"{name}.parquet": 1.0 for name in names}, "parts")
    read = {f"{unit.name()}.json": float(unit.bytes) for unit in units}
    written = {f"{name}.json": _COST_OF_WRITING * sum(read.values()) / len(names) for name in names}
    return Stage("Corpus", f"{work}/*.json", read | written, "pieces and parts", megabytes_read(units))


class CorpusJob(NamedTuple):
    """Job 1 as the flags ask for it.

    Attributes:
        inputs: every file to read.
        options: what to do.
        files: [path, bytes, time last changed, ...] of every file the result hangs on.
        evaluation: the same of those to be looked for in the text.
    """

    inputs: list[Input]
    options: CorpusOptions
    files: list[list[Any]]
    evaluation: list[list[Any]]


def corpus_job(args: argparse.Namespace) -> CorpusJob:
    """Finds the files and checks the flags. Raises SourceError or VocabularyError for a mistake in either."""
    inputs = find_inputs(args)
    options = corpus_options(args, inputs)
    others = [options.vocab_file, options.compare_vocab]
    files = [[each.path, each.bytes, each.changed, each.weight] for each in inputs]
    evaluation = [file for path in options.decontaminate for file in _describe(path)]
    files += [file for path in others if path for file in _describe(path)] + evaluation
    if options.decontaminate:
        load_keys(tuple(options.decontaminate))
    return CorpusJob(inputs, options, files, evaluation)


def make_corpus(args: argparse.Namespace, beam_flags: list[str]) -> Corpus:
    """Runs job 1 in an output directory that is locked, or finds that the same was done before.

    Raises:
        DatasetError: the output holds another corpus.
        SourceError, VocabularyError: a mistake in the input or the flags.
    """
    inputs, options, files, evaluation = corpus_job(args)
    output = absolute(args.output)
    existing = corpus_files.load(output)
    if existing:
        recorded = with_defaults(existing.options, CorpusOptions)
        refuse_other(args.output, "corpus", recorded, dataclasses.asdict(options))
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
    units = split_inputs(inputs, options)
    early = {name: value for name, value in dataclasses.asdict(options).items() if name not in _OF_VOCABULARY_ALONE}
    # Other engines than the embedded one have a shuffle of their own.
    embedded_engine = embedded.is_embedded(embedded.pipeline_options(beam_flags))
    work = work_directory(output, [early, bool(options.vocab_size), inputs, evaluation]) if embedded_engine else ""
    done = len(FileSystems.match([f"{work}/*.json"])[0].metadata_list) if work else 0
    if not done:
        # What a killed job left is of other options or inputs.
        for pattern in ("corpus/*.parquet*", "rejected/*.jsonl*"):
            delete_matching(f"{output}/{pattern}")
        delete_work(output)
    print(
        f"Corpus: {len(inputs)} input(s) in {len(units)} piece(s) into {options.num_buckets} bucket(s)"
        + (", going on from an earlier run" if done else ""),
        flush=True,
    )
    if args.do_lower_case is None and not options.do_lower_case:
        reason = f"--vocab_file {args.vocab_file}" if args.vocab_file else f"--language {args.language}"
        print(f"Case: cased, because of {reason}; --do_lower_case true overrides", flush=True)
    with watch_files(_stage(units, options, output, work)):
        embedded.run(
            lambda pipeline: build_corpus(pipeline, units, files, options, output, work),
            embedded.pipeline_options(beam_flags),
            args.output,
        )
    delete_temporary(output)
    delete_work(output)
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
    for warning in vocabulary_flags.mark_warnings(corpus.counts.get("marks")):
        print(f"  warning     {warning}", file=sys.stderr)
    for warning in loss_warnings(corpus.counts, f"{output}/rejected/"):
        print(f"  warning     {warning}", file=sys.stderr)
    vocabulary_flags.print_summary(
        corpus.vocab, f"{output}/vocab.txt", corpus.options["compare_vocab"], corpus.options["alphabet_limit"]
    )

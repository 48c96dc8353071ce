"""What `beambert corpus` runs: job 1 on the chosen engine, skipped where its result is there already."""

import argparse
import dataclasses
import platform
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from apache_beam.io.filesystems import FileSystems

from deploy import cleaning_flags, embedded, vocabulary_flags
from deploy.input_check import check_inputs, given_fields
from deploy.output import (
    absolute,
    begun_work,
    delete_temporary,
    delete_work,
    refuse_other,
    remedy_for,
    with_defaults,
    work_directory,
)
from deploy.output_lock import claim_output
from deploy.progress import Stage, watch_files
from pipelines import corpus_files, dataset
from pipelines.buckets import choose_num_buckets
from pipelines.corpus import build_corpus
from pipelines.corpus_files import Corpus
from pipelines.corpus_options import CorpusOptions
from pipelines.dataset import DatasetError
from pipelines.decontamination import load_evaluation
from pipelines.language_codes import require_language
from pipelines.losses import loss_warnings
from pipelines.output_directory import CORPUS_ENTRIES, CORPUS_MANIFEST, DATASET_MANIFEST
from pipelines.parts import part_name
from pipelines.pretraining_options import require_documents
from pipelines.reading import Input, Unit, split_inputs
from pipelines.shards import SPLITS
from pipelines.source_warnings import source_warnings
from pipelines.sources import WITHOUT_LANGUAGES, ReadOptions, SourceError, is_one_document
from pipelines.sources.files import DEFAULT_TEXT_FIELD, match_files
from pipelines.sources.wikipedia import TRUNCATED
from pipelines.vocabulary import LANGUAGE_REMEDY
from pipelines.writing import delete_matching
from pipelines.written_files import require_written, sizes_of_corpus

# Grouping, sorting and writing take this share of the time that reading takes (60 MB of Wikipedia, 2026-11-21).
_COST_OF_WRITING = 0.25
# Text grows about this much when it is decompressed; only the number of buckets hangs on it.
_EXPANSION = 4
_COMPRESSED = (".gz", ".bz2", ".zst", ".xz")
_LANGUAGE_REFERENCE_BYTES = 500_000
# Options that come into play when the text is read and counted: whoever only changes these goes on from there.
_OF_VOCABULARY_ALONE = ("vocab_size", "vocab_file", "num_unused", "alphabet_limit", "min_count", "compare_vocab")


def run(args: argparse.Namespace, beam_flags: list[str]) -> int:
    """Runs the command.

    Raises:
        SourceError, DatasetError, VocabularyError: a mistake in the input or the flags.
    """
    with claim_output(args.output, "corpus", (CORPUS_MANIFEST, DATASET_MANIFEST), CORPUS_ENTRIES):
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
    # A pattern such as '**/*' also matches what this command writes.
    output = f"{absolute(args.output)}/" if getattr(args, "output", None) else None
    paths = [path for path in sorted(found) if output is None or not path.startswith(output)]
    if not paths:
        raise SourceError(f"--input matches only files in --output {args.output}; name the files to read")
    return [found[path] for path in paths]


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
            args.input_format,
            args.encoding,
            args.text_field or DEFAULT_TEXT_FIELD,
            args.document_unit,
            args.id_field or "",
            args.on_bad_record,
            args.language_field or "",
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
        load_evaluation(tuple(options.decontaminate))
    return CorpusJob(inputs, options, files, evaluation)


def make_corpus(args: argparse.Namespace, beam_flags: list[str], objective: str = "") -> Corpus:
    """Runs job 1 in an output directory that is locked, or finds that the same was done before.

    Args:
        args: the flags of `deploy.corpus_flags`.
        beam_flags: those of Beam's.
        objective: of the examples to be made from the corpus, where that is known.

    Raises:
        DatasetError: the output holds another corpus, or the objective needs more documents than there are.
        SourceError, VocabularyError: a mistake in the input or the flags.
    """
    inputs, options, files, evaluation = corpus_job(args)
    if len(inputs) == 1 and objective == "nsp" and is_one_document(inputs[0].path, options.read):
        # Known before the file is read, which may take hours.
        require_documents(1, objective)
    output = absolute(args.output)
    existing = corpus_files.load(output, remedy_for(args.output))
    if existing:
        recorded = with_defaults(existing.options, CorpusOptions)
        refuse_other(args.output, "corpus", recorded, dataclasses.asdict(options))
        if existing.files != files:
            raise DatasetError(
                f"--output {args.output} holds a corpus of other input files, or they changed since; "
                "choose another --output, or delete that directory"
            )
        require_written(output, sizes_of_corpus(existing.parts), f"delete {args.output} and run the same command again")
        print(f"Corpus in {args.output} is up to date.", flush=True)
        return existing
    if FileSystems.exists(f"{output}/{dataset.FILE_NAME}"):
        raise DatasetError(
            f"--output {args.output} holds a dataset made from another corpus; "
            "choose another --output, or delete that directory"
        )
    check_inputs(inputs, options.read, given_fields(args))
    units = split_inputs(inputs, options)
    early = {name: value for name, value in dataclasses.asdict(options).items() if name not in _OF_VOCABULARY_ALONE}
    # Other engines than the embedded one have a shuffle of their own.
    embedded_engine = embedded.is_embedded(embedded.pipeline_options(beam_flags))
    work = work_directory(output, [early, bool(options.vocab_size), inputs, evaluation]) if embedded_engine else ""
    done = len(FileSystems.match([f"{work}/*.json"])[0].metadata_list) if work else 0
    if not done:
        # What a killed job left is of other options or inputs.
        for pattern in ("corpus/*-of-*.parquet*", "rejected/*-of-*.jsonl*"):
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
    with begun_work(output, "corpus"), watch_files(_stage(units, options, output, work)):
        embedded.run(
            lambda pipeline: build_corpus(pipeline, units, files, options, output, work),
            embedded.pipeline_options(beam_flags),
            args.output,
        )
    delete_temporary(output)
    delete_work(output)
    corpus = corpus_files.load(output)
    if corpus is None:
        raise DatasetError(f"{output}/{corpus_files.FILE_NAME} was removed while the command ran; run the same again")
    require_written(output, sizes_of_corpus(corpus.parts))
    return corpus


def print_summary(corpus: Corpus, output: str) -> list[str]:
    """Print what the corpus holds and where, and return the warnings among it."""
    documents, rejected = corpus.counts["documents"], corpus.counts["documents_rejected"]
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in rejected.items()) or "none"
    print(
        f"  corpus      {output}/corpus/  {documents['train']:,} documents, {documents['validation']:,} held out, "
        f"{sum(corpus.counts['sentences'].values()):,} sentences; rejected: {reasons}"
    )
    if FileSystems.match([f"{absolute(output)}/rejected/*.jsonl"])[0].metadata_list:
        print(f"  rejected    {output}/rejected/  documents and paragraphs that were left out, by rule")
    if rejected.get(TRUNCATED):
        print(
            f"  warning     {rejected[TRUNCATED]:,} break(s) in damaged dumps, see {output}/rejected/", file=sys.stderr
        )
    warnings = vocabulary_flags.mark_warnings(corpus.counts.get("marks"))
    warnings += loss_warnings(corpus.counts, f"{output}/rejected/")
    warnings += source_warnings(corpus.counts)
    for warning in warnings:
        print(f"  warning     {warning}", file=sys.stderr)
    return warnings + vocabulary_flags.print_summary(
        corpus.vocab, f"{output}/vocab.txt", corpus.options["compare_vocab"], corpus.options["alphabet_limit"]
    )

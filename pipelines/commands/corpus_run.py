"""Configure and run job 1, `beambert corpus`, on the selected runner, unless the output is up to date."""

import argparse
import dataclasses
import hashlib
import importlib.util
import shlex
import sys
from pathlib import Path
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from beambert.common.command_line.options import from_args
from beambert.common.formatting import counted
from beambert.common.terminal import print_summary_line, print_warnings
from beambert.common.typed_json import convert
from beambert.common.word_rules import RecordedRules, WordRuleFlags, WordRules, without_released_rules
from beambert.pipelines import dataset
from beambert.pipelines.cleaning import quality_model
from beambert.pipelines.cleaning.decontamination import load_evaluation
from beambert.pipelines.cleaning.language_identification import known_languages
from beambert.pipelines.cleaning.personal_data import require_placeholders
from beambert.pipelines.cleaning.urls import load_url_list
from beambert.pipelines.commands.input_files import check_inputs, describe_file, find_inputs
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.corpus_manifest import Corpus, corpus_shard_name, sizes_of_corpus
from beambert.pipelines.corpus.corpus_warnings import alphabet_warnings, loss_warnings, source_warnings
from beambert.pipelines.corpus.document_steps import load_function
from beambert.pipelines.corpus.options import CorpusOptions, url_flag
from beambert.pipelines.dataset import SPLITS
from beambert.pipelines.documents import choose_num_partitions
from beambert.pipelines.errors import DatasetError, SourceError
from beambert.pipelines.formats.frames import COMPRESSED_SUFFIXES
from beambert.pipelines.formats.wikipedia.wikiextractor_process import require_package
from beambert.pipelines.instances.options import require_documents
from beambert.pipelines.io.atomic_files import list_files, read_bytes, require_written
from beambert.pipelines.io.job_progress import Stage, report_progress
from beambert.pipelines.io.output_directory import CORPUS_ENTRIES, CORPUS_MANIFEST, DATASET_MANIFEST
from beambert.pipelines.runner import pipeline_runner
from beambert.pipelines.runner.beam_flags import pipeline_options
from beambert.pipelines.runner.job_output import (
    absolute,
    begun_work,
    claim_output,
    delete_finished_work,
    remedy_for,
    require_same_options,
    resume,
    work_directory,
)
from beambert.pipelines.segmentation.own_abbreviations import read_abbreviations
from beambert.pipelines.sources.files import match_files
from beambert.pipelines.sources.readers import Input, find_format, split_inputs
from beambert.pipelines.transforms.corpora import build_corpus
from beambert.pipelines.vocabulary.vocabulary_options import DEFAULT_VOCAB_SIZE
from beambert.tokenizer.lost_marks import default_do_lower_case, loses_mark
from beambert.tokenizer.normalization import CHARACTER_RULES
from beambert.tokenizer.vocabulary import Vocabulary, rules_beside
from beambert.tokenizer.wordpiece import Coverage

# Approximate compression ratio of text; only the number of partitions depends on it.
_EXPANSION = 4
_FIELD_FLAGS = ("text_field", "html_field", "keep_fields", "id_field", "language_field")
# Time of grouping, sorting and writing as a fraction of the time of reading (60 MB of Wikipedia, 2026-11-21).
_COST_OF_WRITING = 0.25
# Options that apply after the text is read and counted: a job that changes only these resumes from that point.
_VOCABULARY_OPTIONS = ("vocab_size", "vocab_file", "num_unused", "alphabet_limit", "min_count", "compare_vocab")


@dataclasses.dataclass(frozen=True)
class CorpusConfig:
    """The checked configuration of job 1.

    Attributes:
        output: Value of --output.
        inputs: All input files, sorted by path.
        options: Options of the job; `corpus.json` records them.
        files: [path, bytes, time of last change, ...] of every file that the result depends on.
        evaluation: The same for the files of --decontaminate, --block_urls and --allow_urls.
        field_flags: The field flags of the command line, each with its value.
        abbreviations: Value of --abbreviations, or "".
        cased_because: The flag that makes text cased by default; "" for uncased text and for an explicit
            --do_lower_case.
        overwrite: Whether `beambert vocab` replaces an existing file.
    """

    output: str
    inputs: list[Input]
    options: CorpusOptions
    files: list[list[Any]]
    evaluation: list[list[Any]]
    field_flags: list[str]
    abbreviations: str
    cased_because: str
    overwrite: bool

    @property
    def text_bytes(self) -> int:
        """Return the approximate bytes of text in the input files, decompressed."""
        return _text_bytes(self.inputs)


def configure(args: argparse.Namespace) -> CorpusConfig:
    """Return the configuration from the flags of `beambert corpus`, `build` or `vocab`. Input files are only listed.

    Raises:
        SourceError, VocabularyError: A flag is invalid, or a file is missing.
    """
    inputs = find_inputs(args.input_format, args.input, args.input_weights, args.output)
    options = corpus_options(args, inputs)
    evaluation = [describe_file(path) for path in [*options.decontaminate, *options.block_urls, *options.allow_urls]]
    vocabularies = [path for path in (options.vocab_file, options.compare_vocab) if path]
    files = [[file.path, file.bytes, file.changed, file.weight] for file in inputs]
    files += [describe_file(path) for path in vocabularies] + evaluation
    if options.decontaminate:
        load_evaluation(tuple(options.decontaminate))
    for flag, paths in (("--block_urls", options.block_urls), ("--allow_urls", options.allow_urls)):
        load_url_list(tuple(paths), flag)
    because = f"--vocab_file {args.vocab_file}" if args.vocab_file else f"--language {args.language}"
    return CorpusConfig(
        output=args.output,
        inputs=inputs,
        options=options,
        files=files,
        evaluation=evaluation,
        field_flags=[f"--{name} {value}" for name in _FIELD_FLAGS if (value := getattr(args, name)) is not None],
        abbreviations=args.abbreviations or "",
        cased_because=because if args.do_lower_case is None and not options.do_lower_case else "",
        overwrite=getattr(args, "overwrite", False),
    )


def corpus_options(args: argparse.Namespace, inputs: list[Input]) -> CorpusOptions:
    """Return the options of job 1. Raise SourceError or VocabularyError for an invalid value."""
    size = args.vocab_size
    if size is None and not args.vocab_file:
        size = DEFAULT_VOCAB_SIZE
    flags = WordRuleFlags(
        do_lower_case=args.do_lower_case,
        strip_accents=args.strip_accents,
        tokenize_chinese_chars=args.tokenize_chinese_chars,
    )
    rules = word_rules(flags, args.vocab_file, args.language)
    vocab_file, compare_vocab = args.vocab_file or "", args.compare_vocab or ""
    for flag, path in (("--vocab_file", vocab_file), ("--compare_vocab", compare_vocab)):
        if path:
            _read_vocabulary(flag, path)
    quality_path = absolute(args.quality_model) if args.quality_model else ""
    options = from_args(
        CorpusOptions,
        args,
        **dataclasses.asdict(rules),
        vocab_size=-(-(size or 0) // args.vocab_multiple_of) * args.vocab_multiple_of,
        vocab_file=vocab_file and absolute(vocab_file),
        compare_vocab=compare_vocab and absolute(compare_vocab),
        character_rules=CHARACTER_RULES,
        num_partitions=args.num_partitions or choose_num_partitions(_text_bytes(inputs)),
        decontaminate=[file.path for file in match_files(args.decontaminate or [], "--decontaminate")],
        block_urls=[file.path for file in match_files(args.block_urls or [], "--block_urls")],
        allow_urls=[file.path for file in match_files(args.allow_urls or [], "--allow_urls")],
        abbreviations=read_abbreviations(args.abbreviations or ""),
        quality_model=quality_path,
        quality_model_sha256=quality_model.checksum(quality_path) if quality_path else "",
    )
    if options.read.wikitext_extractor == "wikiextractor":
        require_package()
    if options.read.html_field:
        _require("--html_field", "resiliparse", "web")
    if options.cleaning.fix_mojibake:
        _require("--fix_mojibake", "ftfy", "clean")
    if options.cleaning.personal_data_rules:
        for package in ("phonenumbers", "stdnum"):
            _require(f"--pii {options.cleaning.pii}", package, "clean")
    if options.vocab_file:
        require_placeholders(_read_vocabulary("--vocab_file", vocab_file), options.cleaning.placeholders)
    if options.identify_language:
        _require("--identify_language", "py3langid", "clean")
        known = known_languages()
        if options.language.split("-")[0].lower() not in known:
            raise SourceError(
                f"--identify_language does not support --language {options.language}; choose from {', '.join(known)}"
            )
    return options


def _require(flag: str, package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        package = {"stdnum": "python-stdnum"}.get(package, package)
        raise SourceError(f"{flag} requires {package}, which is not installed; run pip install 'beambert[{extra}]'")


def _text_bytes(inputs: list[Input]) -> int:
    return sum(file.bytes * (_EXPANSION if file.path.endswith(COMPRESSED_SUFFIXES) else 1) for file in inputs)


def word_rules(flags: WordRuleFlags, vocab_file: str | None, language: str) -> WordRules:
    """Return the rules of the flags, or else those recorded beside --vocab_file, or else the defaults.

    By default, a vocabulary without capitals counts as uncased. For a language that is cased by default, it counts as
    cased if it contains marks that uncased text loses. Without a vocabulary, the language decides. No language is cased
    by default if uncased text keeps its marks.

    Raises:
        SourceError, VocabularyError: The vocabulary or its record is missing or invalid.
    """
    recorded = rules_beside(vocab_file) if vocab_file else RecordedRules()
    uncased = flags.rules(recorded, vocabulary_is_cased=False)
    if flags.do_lower_case is not None or recorded.do_lower_case is not None:
        return uncased
    is_cased = uncased.strips_accents and not default_do_lower_case(language)
    if vocab_file:
        vocabulary = _read_vocabulary("--vocab_file", vocab_file)
        is_cased = vocabulary.has_capitals() or (is_cased and any(map(loses_mark, vocabulary.tokens)))
    return flags.rules(recorded, vocabulary_is_cased=is_cased)


def _read_vocabulary(flag: str, path: str) -> Vocabulary:
    try:
        return Vocabulary.from_bytes(read_bytes(absolute(path)), path)
    except FileNotFoundError as error:
        raise SourceError(f"{flag} {path} does not exist; check the path") from error
    except IsADirectoryError as error:
        raise SourceError(f"{flag} {path} is a directory; give the vocab.txt in it") from error


def run(config: CorpusConfig, beam_flags: list[str]) -> int:
    """Run the command.

    Raises:
        SourceError, DatasetError, VocabularyError: The input or a flag is invalid.
    """
    with claim_output(config.output, "corpus", (CORPUS_MANIFEST, DATASET_MANIFEST), CORPUS_ENTRIES):
        corpus = make_corpus(config, pipeline_options(beam_flags))
    print_summary(corpus, config.output)
    alphabet = alphabet_warnings(corpus.vocab, corpus.options["alphabet_limit"])
    print_warnings([*loss_warnings(corpus.counts, "rejected/"), *alphabet, *source_warnings(corpus.counts)])
    print(f"\nNext: beambert pretraining-data --input {shlex.quote(config.output)} --output DIR")
    return 0


def make_corpus(config: CorpusConfig, beam_options: PipelineOptions, objective: str = "") -> Corpus:
    """Run job 1 in a locked output directory, or return the existing corpus if it is up to date.

    Args:
        config: Input files and options.
        beam_options: Beam's options, with the runner.
        objective: Pretraining objective of the examples, or "" if unknown.

    Raises:
        DatasetError: The output contains another corpus, or the objective needs more documents.
        SourceError, VocabularyError: The input or a flag is invalid.
    """
    inputs, options = config.inputs, config.options
    if len(inputs) == 1 and objective == "nsp" and find_format(inputs[0].path, options.read).name == "text":
        # Fail before the file is read, which may take hours.
        require_documents(1, objective)
    output = absolute(config.output)
    existing = corpus_manifest.load(output, remedy_for(config.output))
    if existing:
        # With the defaults of options that are not recorded.
        recorded = dataclasses.asdict(convert(existing.options, CorpusOptions))
        require_same_options(config.output, "corpus", recorded, dataclasses.asdict(options))
        if existing.files != config.files:
            raise DatasetError(
                f"--output {config.output} contains a corpus of other input files, or the files have changed; "
                "choose another --output, or delete that directory"
            )
        require_written(
            output, sizes_of_corpus(existing.shards), f"delete {config.output} and run the same command again"
        )
        delete_finished_work(output, "corpus")
        print(f"Corpus in {config.output} is up to date.", flush=True)
        return existing
    if FileSystems.exists(f"{output}/{dataset.FILE_NAME}"):
        raise DatasetError(
            f"--output {config.output} contains a dataset of another corpus; "
            "choose another --output, or delete that directory"
        )
    check_inputs(inputs, options.read, config.field_flags, url_flag(vars(options)))
    splits = split_inputs(inputs, options.read)
    early = without_released_rules(dataclasses.asdict(options))
    early = {name: value for name, value in early.items() if name not in _VOCABULARY_OPTIONS}
    if options.filters:
        early["filter_code"] = [_checksum_of_code(name) for name in options.filters]
    # Only the local runner, which shuffles in memory, resumes from completion markers.
    embedded_engine = pipeline_runner.is_embedded(beam_options)
    work = (
        work_directory(output, [early, bool(options.vocab_size), inputs, config.evaluation], "corpus")
        if embedded_engine
        else ""
    )
    done = resume(output, work, ("corpus/*-of-*.parquet*", "rejected/*-of-*.jsonl*"))
    shards = [
        f"{corpus_shard_name(split, number, options)}.parquet"
        for split in SPLITS
        for number in range(options.num_partitions_of(split))
    ]
    stage = Stage("Corpus", sum(split.bytes for split in splits), "documents", _COST_OF_WRITING, shards)
    print(
        f"Corpus: {counted(len(inputs), 'input file')}, {counted(len(splits), 'file split')}, "
        f"{counted(options.num_partitions, 'partition')}" + (", resuming an earlier run" if done else ""),
        flush=True,
    )
    if config.cased_because:
        print(f"Text is cased because of {config.cased_because}; --do_lower_case true overrides this", flush=True)
    with begun_work(output, "corpus"), report_progress(stage, pattern="" if work else f"{output}/corpus/*.parquet"):
        pipeline_runner.run(
            lambda pipeline: build_corpus(pipeline, splits, config.files, options, output, work),
            beam_options,
            config.output,
        )
    corpus = corpus_manifest.load(output)
    if corpus is None:
        raise DatasetError(
            f"{output}/{corpus_manifest.FILE_NAME} was removed while the command ran; run the same command again"
        )
    require_written(output, sizes_of_corpus(corpus.shards))
    return corpus


def _checksum_of_code(name: str) -> str:
    """Return the SHA-256 of the file with a function "package.module:function"; "" for a module without a file.

    Raises:
        SourceError: The function cannot be imported.
    """
    load_function(name)
    path = Path(getattr(sys.modules[name.partition(":")[0]], "__file__", None) or "")
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def print_summary(corpus: Corpus, output: str) -> None:
    """Print contents and paths of the corpus."""
    documents, rejected = corpus.counts["documents"], corpus.counts["documents_rejected"]
    reported = corpus.counts["documents_reported"]
    print_summary_line("corpus", f"{output}/corpus/")
    print_summary_line(
        "",
        f"{documents['train']:,} training documents, {documents['validation']:,} validation documents, "
        f"{sum(corpus.counts['sentences'].values()):,} sentences",
    )
    if list_files(f"{absolute(output)}/rejected/*.jsonl"):
        print_summary_line("rejected", f"{output}/rejected/  documents by rule: {_by_rule(rejected)}")
    if reported:
        print_summary_line("reported", f"{output}/rejected/  documents kept, by rule: {_by_rule(reported)}")
    print_vocabulary(corpus.vocab, f"{output}/vocab.txt", corpus.options["compare_vocab"])
    if (flag := url_flag(corpus.options)) and not corpus.counts.get("domains"):
        print_warnings([f"no document has a URL, so {flag} had no effect"])


def _by_rule(documents: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {rule}" for rule, count in documents.items()) or "none"


def print_vocabulary(vocab: dict[str, Any], path: str, compared: str) -> None:
    """Print size, path and coverage of a vocabulary.

    Args:
        vocab: The field "vocab" of `corpus.json`.
        path: Path of vocab.txt, as printed.
        compared: Path of the vocabulary of --compare_vocab, or "".
    """
    print_summary_line("vocabulary", f"{path}  {vocab['size']:,} tokens")
    words = vocab["learned_from"]
    if words:
        share = words["words_excluded"] / words["words"]
        print_summary_line(
            "",
            f"learned from {words['distinct_words'] - words['distinct_words_excluded']:,} of "
            f"{words['distinct_words']:,} distinct words; rare words excluded: {share:.3%} of the text",
        )
    measured = {name: Coverage(**counts) for name, counts in vocab["validation"].items()}
    if not measured["vocab"].words:
        print_summary_line("", "coverage not measured: the validation split is empty; increase --validation_fraction")
        return
    print_summary_line("", f"{measured['vocab'].words:,} validation words: {measured['vocab']}")
    if compared:
        print_summary_line("", f"compared with {compared}: {measured['compare_vocab']}")

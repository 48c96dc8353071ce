"""Define the configuration of job 1: the input files and the options of `beambert corpus`."""

import argparse
import importlib.util
import os
import platform
from dataclasses import dataclass
from typing import Any

from apache_beam.io.filesystem import BeamIOError, FileMetadata
from apache_beam.io.filesystems import FileSystems

from beambert.common.command_line.options import from_args
from beambert.common.formatting import counted
from beambert.pipelines.cleaning.decontamination import load_evaluation
from beambert.pipelines.cleaning.language_identification import known_languages
from beambert.pipelines.commands.vocabulary_flags import vocabulary_options
from beambert.pipelines.corpus.options import CorpusOptions
from beambert.pipelines.corpus.partitions import choose_num_partitions
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats import reads_files
from beambert.pipelines.formats.frames import COMPRESSED_SUFFIXES
from beambert.pipelines.formats.wikipedia.wikiextractor_process import require_package
from beambert.pipelines.io.atomic_files import storage_errors
from beambert.pipelines.runner.job_output import absolute
from beambert.pipelines.segmentation.own_abbreviations import read_abbreviations
from beambert.pipelines.sources.file_splits import Input
from beambert.pipelines.sources.files import match_files

# Approximate compression ratio of text; only the number of partitions depends on it.
_EXPANSION = 4
_LANGUAGE_REFERENCE_BYTES = 500_000
_FIELD_FLAGS = ("text_field", "id_field", "language_field")


@dataclass(frozen=True)
class CorpusConfig:
    """The checked configuration of job 1.

    Attributes:
        output: Value of --output.
        inputs: All input files, sorted by path.
        options: Options of the job; `corpus.json` records them.
        files: [path, bytes, time of last change, ...] of every file that the result depends on.
        evaluation: The same for the files of --decontaminate.
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


def corpus_config(args: argparse.Namespace) -> CorpusConfig:
    """Return the configuration from the flags of `beambert corpus`, `build` or `vocab`. Input files are only listed.

    Raises:
        SourceError, VocabularyError: A flag is invalid, or a file is missing.
    """
    inputs = _find_inputs(args.input_format, args.input, args.input_weights, args.output)
    options = corpus_options(args, inputs)
    files = [[file.path, file.bytes, file.changed, file.weight] for file in inputs]
    evaluation = [_describe(_metadata(path)) for path in options.decontaminate]
    vocabularies = [path for path in (options.vocab_file, options.compare_vocab) if path]
    files += [_describe(_metadata(path)) for path in vocabularies] + evaluation
    if options.decontaminate:
        load_evaluation(tuple(options.decontaminate))
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
    options = from_args(
        CorpusOptions,
        args,
        **vocabulary_options(args),
        num_partitions=args.num_partitions or choose_num_partitions(_text_bytes(inputs)),
        decontaminate=[file.path for file in match_files(args.decontaminate or [], "--decontaminate")],
        abbreviations=read_abbreviations(args.abbreviations or ""),
    )
    if options.read.wikitext_extractor == "wikiextractor":
        require_package()
    if options.cleaning.fix_mojibake:
        _require_clean("--fix_mojibake", "ftfy")
    if options.identify_language:
        _require_clean("--identify_language", "py3langid")
        known = known_languages()
        if options.language.split("-")[0].lower() not in known:
            raise SourceError(
                f"--identify_language does not support --language {options.language}; choose from {', '.join(known)}"
            )
    return options


def _require_clean(flag: str, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise SourceError(f"{flag} requires {package}, which is not installed; run pip install 'beambert[clean]'")


def _find_inputs(
    input_format: str, patterns: list[str] | None, weights: list[float] | None, output: str
) -> list[Input]:
    """Return the distinct input files, sorted by path. Raise SourceError if no file matches."""
    if not reads_files(input_format):
        if patterns:
            raise SourceError(f"--input_format {input_format} reads no files; leave --input out")
        return [Input(input_format, _LANGUAGE_REFERENCE_BYTES, platform.python_version(), input_format, 1.0)]
    if not patterns:
        raise SourceError("--input is missing; give files or quoted patterns, such as --input 'texts/*.txt'")
    weights = weights or [1.0] * len(patterns)
    if len(weights) != len(patterns):
        raise SourceError(
            f"--input_weights has {counted(len(weights), 'value')} for {counted(len(patterns), '--input pattern')}; "
            "give one value per pattern, and quote the patterns so that beambert expands them"
        )
    inputs: dict[str, Input] = {}
    for pattern, weight in zip(patterns, weights, strict=True):
        for file in match_files([pattern]):
            path, size, changed = _describe(file)
            inputs.setdefault(path, Input(path, size, changed, pattern, weight))
    # A pattern such as '**/*' also matches the output of an earlier run.
    paths = _paths_outside(output, sorted(inputs)) if output else sorted(inputs)
    if not paths:
        raise SourceError(f"--input matches only files in --output {output}; give the files to read")
    return [inputs[path] for path in paths]


def _paths_outside(directory: str, paths: list[str]) -> list[str]:
    """Return the paths that are not below a directory, also not through linked directories."""
    names = (f"{absolute(directory)}/", f"{os.path.realpath(directory)}/")
    parents = {os.path.dirname(path) for path in paths}  # noqa: PTH120
    inside = {parent for parent in parents if f"{os.path.realpath(parent)}/".startswith(names)}
    return [path for path in paths if not path.startswith(names) and os.path.dirname(path) not in inside]  # noqa: PTH120


def _metadata(path: str) -> FileMetadata:
    """Return size and time of last change of a file by its literal path."""
    try:
        with storage_errors(path):
            return FileSystems.get_filesystem(path).metadata(path)
    except (BeamIOError, OSError) as error:
        raise SourceError(f"{path} cannot be read ({error}); check the path and its permissions") from error


def _describe(file: FileMetadata) -> list[Any]:
    """Return [path, bytes, time of last change] of a file."""
    return [file.path, file.size_in_bytes, file.last_updated_in_seconds]


def _text_bytes(inputs: list[Input]) -> int:
    return sum(file.bytes * (_EXPANSION if file.path.endswith(COMPRESSED_SUFFIXES) else 1) for file in inputs)

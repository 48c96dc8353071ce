"""Define and run `beambert quality train`, which trains the quality model of `--quality_model`."""

import argparse
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from beambert.common.command_line import options
from beambert.common.command_line.options import Flag
from beambert.common.command_line.path_flags import ANY_OUTPUT_FILE, ANY_PATH
from beambert.common.formatting import counted
from beambert.common.terminal import print_summary_line, print_warnings
from beambert.pipelines.errors import OutputFileError, SourceError
from beambert.pipelines.formats import FORMATS
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.io.output_file import check_output_file

if TYPE_CHECKING:
    from beambert.pipelines.cleaning.quality_model import TextSample, Trained
    from beambert.pipelines.sources.readers import Input

DESCRIPTION = """Train a model that recognizes good text, from examples of good and bad text.

Writes a model for --quality_model of build, corpus and vocab. Prints the accuracy on validation documents, the table
from which to choose --min_quality, and the documents that are the hardest to decide."""
EXAMPLE = """beambert quality train --good 'wikipedia/*.txt' --bad 'spam/*.txt' --output quality.model
beambert quality train --good 'articles/*' --bad 'corpus/rejected/*.jsonl' --output quality.model --overwrite"""
COMMON_FLAGS = ("--good", "--bad", "--output", "--overwrite", "--input_format", "--text_field")

# The language reference is a format without files.
_FORMATS = ("auto", *(name for name in FORMATS if name != "language_reference"))
# Flags of reading without effect on the text.
_NO_FLAGS = ("id_field", "language_field")
_SHOWN_EXAMPLES = 6
# Validation documents of a class below which the results are uncertain.
_FEW_DOCUMENTS = 50


@dataclasses.dataclass(frozen=True, kw_only=True)
class QualityTrainOptions:
    """The options of `beambert quality train`; the help of the flags has these descriptions.

    Attributes:
        read: Options of reading the files, of both classes.
        good: Files or quoted glob patterns of good text, in any format of beambert corpus.
        bad: Files or quoted glob patterns of bad text, such as boilerplate or spam.
        output: Model file to write, for example quality.model.
        overwrite: Replace --output if it is a quality model.
        field_flags: The field flags of the command line, each with its value.
    """

    read: ReadOptions = dataclasses.field(default_factory=ReadOptions)
    good: Annotated[list[str], Flag("input", type=ANY_PATH, metavar="GLOB", required=True)]
    bad: Annotated[list[str], Flag("input", type=ANY_PATH, metavar="GLOB", required=True)]
    output: Annotated[str, Flag("output", type=ANY_OUTPUT_FILE, metavar="FILE", required=True)]
    overwrite: Annotated[bool, Flag("output")] = False
    field_flags: tuple[str, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `beambert quality train`."""
    options.add_groups(parser, "input", "output")
    options.add_arguments(
        parser, QualityTrainOptions, lambda name: name not in _NO_FLAGS, input_format={"choices": _FORMATS}
    )


def configure(args: argparse.Namespace) -> QualityTrainOptions:
    """Return the options of parsed flags. Raise SourceError for an invalid value."""
    field_flags = (f"--text_field {args.text_field}",) if args.text_field else ()
    return options.from_args(QualityTrainOptions, args, field_flags=field_flags)


def run(config: QualityTrainOptions) -> int:
    """Train and write a model, and print the results on validation documents.

    Raises:
        SourceError, OutputFileError: a one-line message.
    """
    # Imported late: `--help` must not wait for Beam.
    from beambert.common.signals import ended_by_signals
    from beambert.pipelines.cleaning.quality_model import TextSample, train
    from beambert.pipelines.io.atomic_files import write_atomically
    from beambert.pipelines.runner.job_output import absolute

    inputs = {"--good": find_inputs("--good", config.good), "--bad": find_inputs("--bad", config.bad)}
    output = absolute(config.output)
    _check_output(output, config, inputs)
    both = {file.path for file in inputs["--good"]} & {file.path for file in inputs["--bad"]}
    if both:
        raise SourceError(
            f"--good and --bad both match {min(both)}{f' and {len(both) - 1:,} more' if len(both) > 1 else ''}; give "
            "each file in one of them"
        )
    samples = {flag: TextSample() for flag in inputs}
    for flag, files in inputs.items():
        skipped = _read(flag, files, config, samples[flag])
        without = f", {skipped:,} without text or not readable" if skipped else ""
        print(
            f"{flag:<6} {counted(len(files), 'file')}, {counted(samples[flag].seen, 'document')}{without}", flush=True
        )
    good, bad = (sample.examples() for sample in samples.values())
    shared = {example.id for example in good} & {example.id for example in bad}
    good, bad = ([example for example in examples if example.id not in shared] for examples in (good, bad))
    for flag, examples in (("--good", good), ("--bad", bad)):
        _require_documents(flag, len(examples), len(shared))
    trained = train(good, bad)
    with ended_by_signals(), write_atomically(output) as file:
        file.write(trained.model.to_bytes())
    _print_results(trained, config.output)
    print_warnings(_warnings(trained, len(shared)))
    return 0


def find_inputs(flag: str, patterns: list[str]) -> "list[Input]":
    """Return the files of a class. Raise SourceError if a pattern matches none."""
    from beambert.pipelines.sources.files import match_files
    from beambert.pipelines.sources.readers import Input

    files = match_files(patterns, flag)
    return [Input(file.path, file.size_in_bytes, file.last_updated_in_seconds, flag, 1.0) for file in files]


def _check_output(output: str, config: QualityTrainOptions, inputs: "dict[str, list[Input]]") -> None:
    from apache_beam.io.filesystems import FileSystems

    from beambert.pipelines.cleaning.quality_model import MAX_FILE_BYTES, parse
    from beambert.pipelines.io.atomic_files import read_bytes

    check_output_file(
        "--output",
        output,
        [(flag, file.path) for flag, files in inputs.items() for file in files],
        overwrite=config.overwrite,
        takes_stream=False,
        exists=FileSystems.exists,
    )
    if config.overwrite and FileSystems.exists(output):
        try:
            parse(read_bytes(output, MAX_FILE_BYTES + 1), output)
        except SourceError as error:
            raise OutputFileError(
                f"--output {config.output} exists and is not a quality model; give another --output"
            ) from error


def _read(flag: str, files: "list[Input]", config: QualityTrainOptions, sample: "TextSample") -> int:
    """Add the documents of files to a sample, after the paragraph rules, which also precede the model in a corpus.

    Returns:
        The number of documents that are not added: the reader rejects them, or they have no words.
    """
    from beambert.pipelines.cleaning.rules import CleaningOptions
    from beambert.pipelines.commands.input_files import check_inputs
    from beambert.pipelines.corpus.document_steps import clean_document
    from beambert.pipelines.sources.readers import FileSplit, read_documents

    check_inputs(files, config.read, list(config.field_flags))
    rules, documents = CleaningOptions(), 0
    for file in files:
        for document in read_documents(FileSplit(file, 0, None), config.read):
            documents += 1
            if not document.rejected:
                sample.add(clean_document(document, rules).text)
    if not sample.seen:
        raise SourceError(f"{flag} has no documents with words in {counted(len(files), 'file')}; give files with text")
    return documents - sample.seen


def _require_documents(flag: str, documents: int, shared: int) -> None:
    from beambert.pipelines.cleaning.quality_model import MIN_DOCUMENTS

    if documents < MIN_DOCUMENTS:
        without = f" without the {shared:,} that are in both classes" if shared else ""
        raise SourceError(
            f"{flag} has {counted(documents, 'distinct document')}{without}, fewer than {MIN_DOCUMENTS}; give more (a "
            "text file is one document, unless its --input_format divides it)"
        )


def _print_results(trained: "Trained", output: str) -> None:
    report = trained.model.report
    validation = report["validation"]
    print_summary_line("model", output)
    print_summary_line(
        "validation",
        f"{validation['good']:,} good and {validation['bad']:,} bad documents, accuracy {report['accuracy']:.1%} "
        "(mean of both classes)",
    )
    print("\n--min_quality  good kept  bad kept")
    for threshold, good, bad in report["thresholds"]:
        print(f"{threshold:>13}  {good:>9.1%}  {bad:>8.1%}")
    print("\nprobability  documents  mean probability  fraction good")
    for number, row in enumerate(report["calibration"]):
        cells = f"{row[0]:>9,}  {row[1]:>16.3f}  {row[2]:>13.3f}" if row else f"{0:>9,}"
        print(f"{number / 5:.1f} to {number / 5 + 0.2:.1f}   {cells}")
    print("\nValidation documents nearest to 0.5:")
    for line in _hardest(trained):
        print(line)


def _hardest(trained: "Trained") -> Iterator[str]:
    from beambert.common.terminal import printable
    from beambert.pipelines.cleaning.quality_model import nearest

    for probability, is_good, snippet in nearest(trained.validation, 0.5, _SHOWN_EXAMPLES):
        yield f"  {probability:.3f}  {'good' if is_good else 'bad '}  {printable(snippet)}"


def _warnings(trained: "Trained", shared: int) -> list[str]:
    report = trained.model.report
    sizes = report["validation"]["good"], report["validation"]["bad"]
    smallest = min(sizes)
    two_standard_errors = sum(1 / documents for documents in sizes) ** 0.5 / 2
    warnings = []
    if report["accuracy"] < 0.5 + two_standard_errors:
        warnings.append(
            f"the accuracy on validation documents ({report['accuracy']:.1%}) is at chance (50%): the model cannot "
            "distinguish --good from --bad; give more documents, or more different ones"
        )
    elif smallest < _FEW_DOCUMENTS:
        warnings.append(
            f"the validation split has only {counted(smallest, 'document')} of a class: accuracy and calibration are "
            f"uncertain; give {10 * _FEW_DOCUMENTS:,} documents or more of each class"
        )
    if shared:
        warnings.append(f"{counted(shared, 'document')} in both --good and --bad are left out")
    return warnings

"""Define and run `beambert vocab`, which writes a vocabulary file only."""

import argparse
import json
import uuid
from typing import TYPE_CHECKING

from beambert.common.command_line import options
from beambert.common.command_line.path_flags import ANY_OUTPUT_FILE
from beambert.common.formatting import counted
from beambert.common.terminal import print_summary_line
from beambert.pipelines.commands import corpus
from beambert.pipelines.io.output_file import check_output_file

if TYPE_CHECKING:
    from beambert.pipelines.commands.corpus_run import CorpusConfig

DESCRIPTION = """Learn a WordPiece vocabulary from raw text.

Writes one token per line, the same bytes as `beambert build` with the same input and flags. Learns from the training
split, where equal documents count once, and prints the coverage of the validation split."""
EXAMPLE = """beambert vocab --input 'texts/*.txt' --output vocab.txt
beambert vocab --input 'texts/*.txt' --output cased.txt --vocab_size 16000 --do_lower_case false"""
COMMON_FLAGS = (
    "--input",
    "--output",
    "--input_format",
    "--language",
    "--vocab_size",
    "--do_lower_case",
    "--alphabet_limit",
    "--overwrite",
)

ACCEPTS_BEAM_FLAGS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `beambert vocab`."""
    corpus.add_input_arguments(parser)
    group = options.group(parser, "output")
    group.add_argument(
        "--output", required=True, type=ANY_OUTPUT_FILE, metavar="FILE", help="Vocabulary file to write, e.g. vocab.txt"
    )
    group.add_argument("--overwrite", action="store_true", help="Replace --output if it exists")
    corpus.add_corpus_arguments(parser, lambda name: name != "vocab_file")
    # The configuration of a corpus reads this attribute, for which this command has no flag.
    parser.set_defaults(vocab_file=None)


# The configuration of the corpus whose vocabulary is learned.
configure = corpus.configure


def run(config: "CorpusConfig", beam_flags: list[str]) -> int:
    """Run the command.

    Raises:
        SourceError, DatasetError, OutputFileError, VocabularyError: The input or a flag is invalid.
    """
    from apache_beam.io.filesystems import FileSystems

    from beambert.common.signals import ended_by_signals
    from beambert.common.terminal import print_warnings
    from beambert.pipelines.commands.corpus_run import print_vocabulary
    from beambert.pipelines.commands.input_files import check_inputs
    from beambert.pipelines.corpus.corpus_warnings import alphabet_warnings, mark_warnings
    from beambert.pipelines.corpus.options import url_flag
    from beambert.pipelines.io.atomic_files import read_bytes, require_written
    from beambert.pipelines.io.job_progress import Stage, report_progress
    from beambert.pipelines.runner import pipeline_runner
    from beambert.pipelines.runner.beam_flags import pipeline_options
    from beambert.pipelines.runner.job_output import absolute, delete_folder, require_writable
    from beambert.pipelines.sources.readers import split_inputs
    from beambert.pipelines.transforms.vocabulary import build_vocabulary

    inputs, corpus_options = config.inputs, config.options
    beam_options = pipeline_options(beam_flags)
    output = absolute(config.output)
    inputs_read = [("--input", file.path) for file in inputs]
    inputs_read += [
        (f"--{name}", path)
        for name in ("decontaminate", "block_urls", "allow_urls")
        for path in getattr(corpus_options, name)
    ]
    inputs_read += [("--quality_model", corpus_options.quality_model)]
    inputs_read += [("--compare_vocab", corpus_options.compare_vocab), ("--abbreviations", config.abbreviations)]
    check_output_file(
        "--output",
        output,
        inputs_read,
        overwrite=config.overwrite,
        makes_directory=True,
        takes_stream=False,
        exists=FileSystems.exists,
    )
    require_writable(FileSystems.split(config.output)[0] or ".")
    check_inputs(inputs, corpus_options.read, config.field_flags, url_flag(vars(corpus_options)))
    print(f"Vocabulary: {corpus_options.vocab_size:,} tokens from {counted(len(inputs), 'input file')}", flush=True)
    temporary = f"{output}.{uuid.uuid4().hex}.tmp"
    report = f"{temporary}/vocab.json"
    splits = split_inputs(inputs, corpus_options.read)
    work = f"{temporary}/work" if pipeline_runner.is_embedded(beam_options) else ""
    try:
        stage = Stage("Vocabulary", sum(split.bytes for split in splits), "documents")
        with ended_by_signals(), report_progress(stage):
            pipeline_runner.run(
                lambda pipeline: build_vocabulary(pipeline, splits, corpus_options, output, report, work),
                beam_options,
                config.output,
            )
        require_written(FileSystems.split(output)[0], {FileSystems.split(output)[1]: None})
        result = json.loads(read_bytes(report))
    finally:
        delete_folder(temporary)
    if result["documents_rejected"]:
        rejected = ", ".join(f"{count:,} {rule}" for rule, count in result["documents_rejected"].items())
        print_summary_line("rejected", f"documents by rule: {rejected}")
    print_vocabulary(result["vocab"], config.output, corpus_options.compare_vocab)
    alphabet = alphabet_warnings(result["vocab"], corpus_options.alphabet_limit)
    print_warnings([*mark_warnings(result.get("diacritics")), *alphabet])
    return 0

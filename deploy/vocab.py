"""`beambert vocab`: a vocabulary file alone."""

import argparse
import json
import sys
import uuid

from apache_beam.io.filesystems import FileSystems

from deploy import embedded, vocabulary_flags
from deploy.corpus import (
    add_input_arguments,
    add_split_arguments,
    corpus_options,
    find_inputs,
    megabytes_read,
)
from deploy.output import absolute, delete_folder, require_writable
from deploy.progress import Stage, watch_files
from pipelines.corpus import build_vocabulary
from pipelines.dataset import DatasetError
from pipelines.reading import split_inputs
from pipelines.writing import read_bytes

DESCRIPTION = """Learns a WordPiece vocabulary from text and writes it, one piece a line: the very bytes that `beambert
build` learns from the same input with the same flags. Equal documents count once. Documents held out are not learnt
from: on them it measures how well the vocabulary fits, and prints that."""

ACCEPTS_BEAM_FLAGS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `beambert vocab`."""
    add_input_arguments(parser)
    group = parser.add_argument_group("what to make of it")
    group.add_argument("--output", required=True, metavar="FILE", help="the vocabulary file, such as vocab.txt")
    add_split_arguments(group)
    vocabulary_flags.add_arguments(parser.add_argument_group("the vocabulary"))


def run(args: argparse.Namespace, beam_flags: list[str]) -> int:
    """Runs the command.

    Raises:
        SourceError, DatasetError, VocabularyError: a mistake in the input or the flags.
    """
    args.vocab_file = None
    inputs = find_inputs(args)
    options = corpus_options(args, inputs)
    output = absolute(args.output)
    if FileSystems.exists(output):
        raise DatasetError(f"--output {args.output} is there already; choose another name, or delete it")
    require_writable(FileSystems.split(args.output)[0] or ".")
    print(f"Vocabulary: {options.vocab_size:,} pieces from {len(inputs)} input(s)", flush=True)
    temporary = f"{output}.{uuid.uuid4().hex}.tmp"
    report = f"{temporary}/vocab.json"
    units = split_inputs(inputs, options)
    is_embedded = embedded.is_embedded(embedded.pipeline_options(beam_flags))
    work = f"{temporary}/work" if is_embedded else ""
    try:
        costs = {f"{unit.name()}.json": float(unit.bytes) for unit in units}
        with watch_files(Stage("Vocabulary", f"{work}/*.json", costs, "pieces", megabytes_read(units))):
            embedded.run(
                lambda pipeline: build_vocabulary(pipeline, units, options, output, report, work),
                embedded.pipeline_options(beam_flags),
                args.output,
            )
        vocab = json.loads(read_bytes(report))
    finally:
        delete_folder(temporary)
    for warning in vocabulary_flags.mark_warnings(vocab.get("marks")):
        print(f"  warning     {warning}", file=sys.stderr)
    vocabulary_flags.print_summary(vocab, args.output, options.compare_vocab, options.alphabet_limit)
    return 0

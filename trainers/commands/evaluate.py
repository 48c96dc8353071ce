"""Define `beambert evaluate`, which measures a pretrained model on text and on minimal pairs."""

import argparse
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from beambert.common import file_errors
from beambert.common.command_line import options
from beambert.common.command_line.options import BatchSize, Flag, PositiveInt, SequenceLength
from beambert.common.command_line.path_flags import ANY_OUTPUT_FILE, ANY_PATH, LOCAL_OUTPUT_FILE
from beambert.pipelines.io.output_file import OutputFile, check_output_file
from beambert.trainers.backends.startup import choose_backend, start_backend
from beambert.trainers.data.text_encoding import UnknownTokens
from beambert.trainers.errors import TrainingError
from beambert.trainers.evaluation.input_files import find_files
from beambert.trainers.evaluation.minimal_pairs import LAYOUTS, find_pair_files, read_pairs, sample_pairs
from beambert.trainers.evaluation.text_windows import TEXT_UNITS, read_texts, text_windows
from beambert.trainers.inference.model_loading import MASKED_LM, check_max_seq_length, check_model, load_model
from beambert.trainers.monitoring.training_progress import warn
from beambert.trainers.options import InferenceOptions

DESCRIPTION = """Evaluate a pretrained model without training.

On text: masked-LM loss, accuracy and pseudo-perplexity. On minimal pairs, such as BLiMP: accuracy by paradigm and
field. The model must have a masked-LM head."""
EXAMPLE = """beambert evaluate run --texts validation.txt
beambert evaluate run --pairs blimp/data --output blimp.json --report blimp.html"""
COMMON_FLAGS = ("--pairs", "--texts", "--max_pairs", "--max_tokens", "--whole_word", "--output", "--report")
_TEXT_SUFFIXES = (".txt",)
# Minimum window: [CLS], a token and [SEP].
_LEAST_LENGTH = 3


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(InferenceOptions):
    """The options of `beambert evaluate`.

    Attributes:
        directory: A pretrained model: the --output of `beambert pretrain`, or any model that `beambert convert` reads.
        pairs: Files of minimal pairs, directories of them, or quoted glob patterns.
        pairs_layout: Layout of --pairs: blimp, JSON Lines; zorro, text with the bad sentence on odd lines and the good
            one on even lines; tsv, columns good, bad, paradigm, field (default: by suffix, .jsonl, .txt or .tsv).
        texts: UTF-8 text files, directories of .txt files, or quoted glob patterns.
        text_unit: Texts of --texts: each line, or the lines up to a blank line.
        output: Output file of all scores as JSON, written atomically.
        report: Output file of an HTML report.
        overwrite: Replace an existing --output or --report.
        whole_word: Mask the later tokens of the same word too when a token is scored (Kauf and Ivanova 2023).
        max_pairs: Maximum number of pairs, a fixed sample spread evenly over the paradigms (default: all).
        max_tokens: Maximum number of tokens of --texts, a fixed sample of their windows (default: all).
        max_seq_length: Maximum sequence length in tokens; longer texts are divided into windows (default: the training
            length, else the model's limit).
        batch_size: Maximum batch size in masked copies (default: 2,048 tokens per batch on a CPU, otherwise 16,384).

    Raises:
        TrainingError: a value is out of range, or there is nothing to evaluate on.
    """

    directory: Annotated[str, Flag("", type=ANY_PATH, metavar="DIR")]
    pairs: Annotated[tuple[str, ...], Flag("input", nargs="+", type=ANY_PATH, metavar="PATH")] = ()
    pairs_layout: Annotated[str | None, Flag("input", choices=LAYOUTS)] = None
    texts: Annotated[tuple[str, ...], Flag("input", nargs="+", type=ANY_PATH, metavar="PATH")] = ()
    text_unit: Annotated[str, Flag("input", choices=TEXT_UNITS)] = "line"
    output: Annotated[str | None, Flag("output", type=ANY_OUTPUT_FILE, metavar="FILE")] = None
    report: Annotated[str | None, Flag("output", type=LOCAL_OUTPUT_FILE, metavar="FILE")] = None
    overwrite: Annotated[bool, Flag("output")] = False
    whole_word: Annotated[bool, Flag("evaluation")] = False
    max_pairs: Annotated[PositiveInt | None, Flag("evaluation")] = None
    max_tokens: Annotated[PositiveInt | None, Flag("evaluation")] = None
    max_seq_length: Annotated[SequenceLength | None, Flag("evaluation")] = None
    batch_size: Annotated[BatchSize | None, Flag("evaluation")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pairs and not self.texts:
            raise TrainingError("give --pairs, --texts, or both")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    options.add_groups(parser, "input", "output", "evaluation", "numerics", "devices")
    options.add_arguments(parser, EvaluateOptions)


def configure(args: argparse.Namespace) -> EvaluateOptions:
    """Return the options of parsed flags."""
    return options.from_args(EvaluateOptions, args)


def run(config: EvaluateOptions) -> int:
    """Evaluate a model, print the scores and write the output files.

    Raises:
        CheckpointError, ConfigError, OutputFileError, TaskDataError, TrainingError, VocabularyError: a one-line
            message.
    """
    files = find_files("--texts", config.texts, _TEXT_SUFFIXES)
    _check_outputs(config, files)
    all_pairs = read_pairs("--pairs", config.pairs, config.pairs_layout) if config.pairs else []
    backend = choose_backend(config.backend)
    check_model(Path(config.directory), **config.model_options)
    start_backend(backend)
    inference_model = load_model(Path(config.directory), precision=config.precision, **config.model_options)
    if not inference_model.has(MASKED_LM):
        raise TrainingError(f"{config.directory} has no masked-LM head; give a pretrained model")
    limit = inference_model.max_seq_length if config.max_seq_length is None else config.max_seq_length
    check_max_seq_length(limit, inference_model.config, _LEAST_LENGTH)
    from beambert.trainers.evaluation.evaluation_results import EvaluationResults, results_lines, results_page
    from beambert.trainers.evaluation.evaluation_run import encode_pairs, evaluate_pairs, evaluate_text
    from beambert.trainers.inference.masked_scoring import MaskedScorer

    tokenizer = inference_model.tokenizer()
    # Both inputs are encoded first: a mistake in one of them is reported before hours of computation.
    encoded = encode_pairs(sample_pairs(all_pairs, config.max_pairs), tokenizer, limit)
    windows = text_windows(read_texts(files, config.text_unit), tokenizer, limit)
    if files and not windows.rows:
        raise TrainingError(f"--texts {' '.join(config.texts)} has no text: check the files")
    unknown = UnknownTokens(tokenizer)
    unknown.add(windows.rows, read_texts(files, config.text_unit))
    if (line := unknown.warning("--texts")) is not None:
        warn(line)
    scorer = MaskedScorer(inference_model, limit, config.batch_size)
    results = EvaluationResults(
        model=config.directory,
        vocabulary_sha256=inference_model.vocabulary.sha256,
        word_rules=inference_model.word_rules,
        max_seq_length=limit,
        precision=config.precision,
        whole_word=config.whole_word,
        text=evaluate_text(scorer, windows, config.max_tokens, config.whole_word) if files else None,
        pairs=evaluate_pairs(scorer, tokenizer, encoded, len(all_pairs), config.whole_word) if all_pairs else None,
    )
    content = json.dumps(results.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    _write("--output", config.output, content, config.overwrite)
    _write("--report", config.report, results_page(results), config.overwrite)
    print("\n".join(results_lines(results, shutil.get_terminal_size().columns)))
    return 0


def _check_outputs(config: EvaluateOptions, text_files: Sequence[Path]) -> None:
    """Check that the outputs do not exist, are two files, and are not inputs of the command.

    Args:
        config: the configuration.
        text_files: the files of --texts.

    Raises:
        OutputFileError, TrainingError: the check failed.
        TaskDataError: as for `find_pair_files`.
    """
    inputs = [("DIR", config.directory), *config.model_paths]
    inputs += [("--pairs", path) for path in config.pairs] + [("--texts", path) for path in config.texts]
    # Patterns are not expanded by the check.
    inputs += [("--pairs", str(path)) for path in find_pair_files("--pairs", config.pairs, config.pairs_layout)]
    inputs += [("--texts", str(path)) for path in text_files]
    if config.report is not None:
        check_output_file("--report", config.report, inputs, overwrite=config.overwrite)
        inputs.append(("--report", config.report))
    if config.output is not None:
        check_output_file("--output", config.output, inputs, overwrite=config.overwrite)
        if config.report is not None and os.path.realpath(config.output) == os.path.realpath(config.report):
            raise TrainingError(
                f"--output {config.output} is the same file as --report {config.report}: give two names"
            )


def _write(flag: str, path: str | None, content: str, overwrite: bool) -> None:
    """Write an output file atomically, unless the flag is not set."""
    if path is None:
        return
    with (
        file_errors.writing(f"{flag} {path}"),
        OutputFile(flag, path, overwrite=overwrite) as output,
        output.path.open("a", encoding="utf-8") as file,
    ):
        file.write(content)

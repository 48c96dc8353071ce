"""Define `beambert predict`, which prints the predictions of a fine-tuned model."""

import argparse
import codecs
import itertools
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, TextIO

from beambert.bert_model.checkpoints.variable_names import TASKS
from beambert.common import file_errors
from beambert.common.command_line import options
from beambert.common.command_line.options import BatchSize, Flag, SequenceLength, VocabularySize
from beambert.common.command_line.path_flags import ANY_OUTPUT_FILE, ANY_PATH
from beambert.common.progress import TextProgress
from beambert.common.typed_json import Fraction
from beambert.pipelines.io.output_file import OutputFile, check_output_file, check_stdout
from beambert.trainers.backends.startup import choose_backend, start_backend
from beambert.trainers.errors import TrainingError
from beambert.trainers.finetuning.tasks.tagging.tag_schemes import OUTSIDE
from beambert.trainers.inference.model_loading import check_model, load_model
from beambert.trainers.inference.predictor import WORDS_AT, Answer, Predictor
from beambert.trainers.inference.spans import max_query_length
from beambert.trainers.inference.tokenization import LINES_A_CHUNK, PAIR_SEPARATOR, TextLines, open_texts
from beambert.trainers.monitoring.training_progress import warn
from beambert.trainers.options import InferenceOptions

DESCRIPTION = """Predict with a fine-tuned model, for texts on the command line or in a file.

A pair of texts is 'TEXT ||| TEXT', multiple choice is 'TEXT ||| CHOICE ||| CHOICE', and a question is
'QUESTION ||| CONTEXT'. With --question, every text is a context."""
EXAMPLE = """beambert predict reviews-model 'A wonderful film.'
beambert predict reviews-model --input_file texts.txt --output_file predictions.jsonl --json
beambert predict qa 'Ada Lovelace was born in London.' --question 'Where was Ada Lovelace born?'"""
COMMON_FLAGS = ("--input_file", "--output_file", "--json", "--top_k", "--question", "--max_seq_length", "--batch_size")


@dataclass(frozen=True, kw_only=True)
class PredictOptions(InferenceOptions):
    """The options of `beambert predict`.

    Attributes:
        directory: A fine-tuned model: the --output of `beambert finetune`, a TF1 checkpoint or a Hugging Face
            directory.
        texts: A quoted text.
        input_file: Text file with one text per line, instead of TEXT; - reads stdin.
        output_file: Output file, written atomically (default: stdout).
        overwrite: Replace an existing --output_file.
        json: Write one JSON object per line, with all fields.
        question: Question to answer from each text, for question-answering models.
        null_score_diff_threshold: Predict no answer if null_score - score exceeds X, for models trained with
            unanswerable questions (default: always answer).
        threshold: Lowest probability of the labels of a multi-label model to print; 0 prints all (default: 0.5).
        words_at: Word boundaries for token classification: white space and punctuation, or white space only, for texts
            split like the training data (default: punctuation).
        top_k: Number of labels per text, most probable first.
        task: Task head of DIR; required if the files do not record it, as for a TF1 checkpoint of a token classifier.
        max_seq_length: Maximum sequence length in tokens; longer texts are truncated, or split into windows for
            question answering and token classification (default: the training length, else the model's limit).
        batch_size: Maximum batch size in texts (default: 2,048 tokens per batch on a CPU, otherwise 32 texts).

    Raises:
        TrainingError: a value is out of range, or there are no texts, or texts from two sources.
    """

    directory: Annotated[str, Flag("", type=ANY_PATH, metavar="DIR")]
    texts: Annotated[tuple[str, ...], Flag("", nargs="*", metavar="TEXT")] = ()
    input_file: Annotated[str | None, Flag("input", type=ANY_PATH, metavar="FILE")] = None
    output_file: Annotated[str | None, Flag("output", type=ANY_OUTPUT_FILE, metavar="FILE")] = None
    overwrite: Annotated[bool, Flag("output")] = False
    json: Annotated[bool, Flag("output")] = False
    question: Annotated[str | None, Flag("predictions", metavar="TEXT")] = None
    null_score_diff_threshold: Annotated[float | None, Flag("predictions", metavar="X")] = None
    threshold: Annotated[Fraction | None, Flag("predictions", metavar="P")] = None
    words_at: Annotated[str | None, Flag("predictions", choices=WORDS_AT)] = None
    top_k: Annotated[VocabularySize, Flag("predictions", metavar="K")] = 5
    task: Annotated[str | None, Flag("task", choices=tuple(TASKS))] = None
    max_seq_length: Annotated[SequenceLength | None, Flag("predictions")] = None
    batch_size: Annotated[BatchSize | None, Flag("predictions")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.texts) == bool(self.input_file):
            raise TrainingError("give either TEXT or --input_file")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    options.add_groups(parser, "input", "output", "predictions", "task", "numerics", "devices")
    options.add_arguments(parser, PredictOptions)


def configure(args: argparse.Namespace) -> PredictOptions:
    """Return the options of parsed flags. Raises TrainingError unless texts have exactly one source."""
    return options.from_args(PredictOptions, args)


def run(config: PredictOptions) -> int:
    """Predict and write the predictions.

    Raises:
        CheckpointError, ConfigError, OutputFileError, TrainingError, VocabularyError: a one-line message.
    """
    _check_output(config)
    source = None if config.input_file is None else open_texts(config.input_file)
    backend = choose_backend(config.backend)
    check_model(Path(config.directory), **config.model_options)
    start_backend(backend)
    predictor = Predictor(
        load_model(Path(config.directory), task=config.task, precision=config.precision, **config.model_options),
        max_seq_length=config.max_seq_length,
        batch_size=config.batch_size,
        top_k=config.top_k,
        question=config.question,
        null_score_diff_threshold=config.null_score_diff_threshold,
        threshold=config.threshold,
        words_at=config.words_at,
    )
    try:
        with _destination(config.output_file, config.overwrite) as output:
            if source is None:
                # Python decodes bytes of the command line that are not UTF-8 as lone surrogates.
                texts = [text.encode(errors="surrogateescape").decode(errors="replace") for text in config.texts]
                _write(predictor, texts, [f"{text[:40]!r}" for text in texts], config.json, output)
                count = len(texts)
            else:
                assert config.input_file is not None
                # The progress line would mix with predictions on the same terminal.
                is_terminal = config.output_file is None and sys.stdout.isatty()
                with source:
                    count = _predict_lines(predictor, source, config.input_file, config.json, output, not is_terminal)
            output.flush()
    except BrokenPipeError:
        # The reader closed the pipe; discard what Python still buffers.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if (line := predictor.unknown.warning("the texts")) is not None:
        warn(line)
    if predictor.doubtful:
        warn(
            f"{predictor.doubtful:,} of {count:,} inputs are single texts, but {config.directory} was probably trained "
            f"on pairs; write 'TEXT{PAIR_SEPARATOR}TEXT'"
        )
    if predictor.cut:
        inputs, limit = "texts", f"--max_seq_length {predictor.max_seq_length}"
        if predictor.inference_model.task == "span":
            inputs, limit = "questions", f"{max_query_length(predictor.max_seq_length)} tokens"
        warn(f"{predictor.cut:,} of {count:,} {inputs} exceeded {limit} and were truncated")
    return 0


def _check_output(config: PredictOptions) -> None:
    """Check that the output does not exist and is not an input of the command.

    Raises:
        OutputFileError: the check failed.
    """
    inputs = [("DIR", config.directory), *config.model_paths]
    if config.input_file is not None:
        inputs.insert(0, ("--input_file", config.input_file))
    if config.output_file is None:
        check_stdout(inputs)
    else:
        check_output_file("--output_file", config.output_file, inputs, overwrite=config.overwrite)


@contextmanager
def _destination(output_file: str | None, overwrite: bool) -> Iterator[TextIO]:
    """Yield the output stream: stdout, or a file that is written atomically."""
    if output_file is None:
        yield sys.stdout
        return
    with (
        file_errors.writing(f"--output_file {output_file}"),
        OutputFile("--output_file", output_file, overwrite=overwrite) as output,
        output.path.open("a", encoding="utf-8") as file,
    ):
        yield file


def _predict_lines(
    predictor: Predictor, source: BinaryIO, input_file: str, as_json: bool, output: TextIO, show_progress: bool
) -> int:
    """Predict for every line of a file; return the number of lines.

    Raises:
        TrainingError: a line lacks a part that the task needs; only of a pipe, other lines are predicted before.
    """
    name = "stdin" if input_file == "-" else input_file
    if source.seekable():
        start = source.tell()
        for number, text in enumerate(TextLines(source), start=1):
            predictor.check([text], [f"{name}, line {number}"])
        source.seek(start)
    lines = TextLines(source)
    remaining, count = iter(lines), 0
    size = None if name == "stdin" else Path(name).stat().st_size
    with TextProgress(size) if show_progress else nullcontext() as progress:
        while chunk := list(itertools.islice(remaining, LINES_A_CHUNK)):
            locations = [f"{name}, line {count + number}" for number in range(1, len(chunk) + 1)]
            _write(predictor, chunk, locations, as_json, output)
            count += len(chunk)
            if progress:
                progress.add(len(chunk), lines.bytes_read)
        if progress:
            progress.finish(f"{count:,} texts")
    if lines.corrupt:
        warn(f"{lines.corrupt:,} of {count:,} lines were not valid UTF-8; the invalid bytes were dropped")
    return count


def _write(predictor: Predictor, texts: list[str], locations: list[str], as_json: bool, output: TextIO) -> None:
    # stdout escapes the characters that its encoding lacks as Python does, such as \xe9, which JSON does not allow.
    ascii_only = codecs.lookup(output.encoding or "utf-8").name != "utf-8"
    for text, answer in zip(texts, predictor.answers(texts, locations), strict=True):
        if as_json:
            output.write(json.dumps(answer, ensure_ascii=ascii_only) + "\n")
        else:
            output.write("\n".join([text.strip(), *(f"  {line}" for line in shown(answer))]) + "\n")


def shown(answer: Answer) -> list[str]:
    """Return an answer of a `Predictor` as lines for the terminal."""
    if "labels" in answer:
        lines = [f"{candidate['probability']:6.1%}  {candidate['label']}" for candidate in answer["labels"]]
        if not lines:
            likeliest = max(answer["probabilities"], key=answer["probabilities"].__getitem__)
            probability = answer["probabilities"][likeliest]
            return [f"no label, the most probable is {likeliest} with {probability:.1%} (--threshold)"]
        return lines
    if "choices" in answer:
        order = sorted(range(len(answer["choices"])), key=lambda i: -answer["probabilities"][i])
        return [f"{answer['probabilities'][i]:6.1%}  {answer['choices'][i]}" for i in order]
    if "context" in answer:
        if answer["end"] < 0:
            return [f"no answer  (null score {answer['null_score']:.2f}, best answer {answer['score']:.2f})"]
        details = f"{answer['start']} to {answer['end']}, score {answer['score']:.2f}, null {answer['null_score']:.2f}"
        return [f"{answer['answer']}  ({details})"]
    if "words" in answer:
        words = [
            f"{word['word']} [{word['label']}]" if word["label"] != OUTSIDE else word["word"]
            for word in answer["words"]
        ]
        entities = [
            f"{entity['type']}  {entity['text']}  ({entity['start']} to {entity['end']})"
            for entity in answer["entities"]
        ]
        return [" ".join(words), *entities] if words else []
    return [f"{answer['score']:.4g}"]

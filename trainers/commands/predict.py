"""`beambert predict`: what a fine-tuned model says of texts."""

import argparse
import itertools
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO

from beambert_common import file_errors
from beambert_common.command_line.flags import batch_size, number, sequence_length, vocabulary_size
from beambert_common.command_line.path_flags import LOCAL_OUTPUT_FILE, LOCAL_PATH
from bert_model.checkpoints.variable_names import TASKS
from pipelines.io.output_file import OutputFile, check_output_file, check_stdout
from trainers.backends.tensorflow.startup import start_tensorflow
from trainers.commands.model_flags import ModelConfig, add_model_arguments
from trainers.errors import TrainingError
from trainers.finetuning.tasks.tagging.tag_schemes import OUTSIDE
from trainers.inference.model_loading import check_model, load_model
from trainers.inference.predictor import WORDS_AT, Answer, Predictor
from trainers.inference.tokenization import LINES_A_CHUNK, PAIR_SEPARATOR, TextLines, open_texts
from trainers.monitoring.training_progress import TextProgress, warn

DESCRIPTION = (
    "Asks a fine-tuned model about texts. For a pair of texts write 'a text ||| another', for multiple choice 'a text "
    "||| a choice ||| another choice', for a question 'question ||| context', or give it with --question."
)
EXAMPLE = 'beambert predict mrpc "A dog ran. ||| A dog was running."'
COMMON_FLAGS = ()


@dataclass(frozen=True, kw_only=True)
class PredictConfig(ModelConfig):
    """What `beambert predict` is configured with; the help of each flag says what it does."""

    directory: str
    texts: tuple[str, ...] = ()
    input_file: str | None = None
    output_file: str | None = None
    overwrite: bool = False
    json: bool = False
    question: str | None = None
    null_score_diff_threshold: float | None = None
    words_at: str | None = None
    top_k: int = 5
    task: str | None = None
    max_seq_length: int | None = None
    batch_size: int = 32

    def __post_init__(self) -> None:
        """Check that there are texts.

        Raises:
            TrainingError: no texts, or texts from two sources.
        """
        if bool(self.texts) == bool(self.input_file):
            raise TrainingError("give TEXT, one or more, or --input_file; one of the two")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "directory",
        type=LOCAL_PATH,
        metavar="DIR",
        help="a fine-tuned model of any kind: what `beambert finetune` wrote, a TF1 checkpoint, a Hugging Face model",
    )
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="a text in quotes")
    parser.add_argument(
        "--input_file", type=LOCAL_PATH, metavar="FILE", help="a text a line, in place of TEXT; - for stdin"
    )
    parser.add_argument(
        "--output_file",
        type=LOCAL_OUTPUT_FILE,
        metavar="FILE",
        help="a new file, written atomically (default: lines as they are done, to stdout)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace --output_file if it exists")
    parser.add_argument("--json", action="store_true", help="a JSON object a line, with all that is known")
    parser.add_argument("--question", metavar="TEXT", help="what a model of answer spans is asked about each text")
    parser.add_argument(
        "--null_score_diff_threshold",
        type=number(),
        metavar="X",
        help="say that a question has no answer where null_score - score exceeds this, for models trained with such "
        "questions (default: always answer)",
    )
    parser.add_argument(
        "--words_at",
        choices=WORDS_AT,
        help="where the words of a token classifier end: at white space and punctuation, or, for texts that were split "
        "as the training data, at white space alone (default: punctuation)",
    )
    parser.add_argument(
        "--top_k",
        type=vocabulary_size,
        default=PredictConfig.top_k,
        metavar="K",
        help="labels of a text, the likeliest",
    )
    parser.add_argument(
        "--task",
        choices=tuple(TASKS),
        help="which head DIR has; needed where the files do not tell, as a TF1 checkpoint of a token classifier",
    )
    parser.add_argument(
        "--max_seq_length",
        type=sequence_length,
        metavar="N",
        help="pieces that are read of a text; the rest is cut, or for answer spans and token classification read in "
        "further windows (default: what the model was trained with or can read)",
    )
    parser.add_argument(
        "--batch_size", type=batch_size, default=PredictConfig.batch_size, metavar="N", help="texts computed together"
    )
    add_model_arguments(parser)


def configure(args: argparse.Namespace) -> PredictConfig:
    """Return what the flags ask for. Raises TrainingError where texts are given in no way or in two."""
    return PredictConfig.from_args(args)


def run(config: PredictConfig) -> int:
    """Predict.

    Raises:
        CheckpointError, ConfigError, OutputFileError, TrainingError, VocabularyError: one line for the user.
    """
    _check_output(config)
    source = None if config.input_file is None else open_texts(config.input_file)
    check_model(Path(config.directory), **config.model_options)
    start_tensorflow()
    predictor = Predictor(
        load_model(Path(config.directory), task=config.task, **config.model_options),
        max_seq_length=config.max_seq_length,
        batch_size=config.batch_size,
        top_k=config.top_k,
        question=config.question,
        null_score_diff_threshold=config.null_score_diff_threshold,
        words_at=config.words_at,
    )
    try:
        with _destination(config.output_file, config.overwrite) as output:
            if source is None:
                # What a shell gives that is not UTF-8 comes as half a character.
                texts = [text.encode(errors="surrogateescape").decode(errors="replace") for text in config.texts]
                _write(predictor, texts, [f"{text[:40]!r}" for text in texts], config.json, output)
                count = len(texts)
            else:
                assert config.input_file is not None
                # Of an answer that stands on the screen the progress would be a part.
                is_seen = config.output_file is None and sys.stdout.isatty()
                with source:
                    count = _predict_lines(predictor, source, config.input_file, config.json, output, not is_seen)
            output.flush()
    except BrokenPipeError:
        # Whoever reads has seen enough; what Python still holds back goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if predictor.doubtful:
        given, trained = "single texts", f"pairs; write 'a text{PAIR_SEPARATOR}another'"
        if not predictor.opened.likely_pairs:
            given, trained = "pairs", "single texts; give one text each"
        warn(
            f"{predictor.doubtful:,} of {count:,} are {given}, and {config.directory} seems to be trained on {trained}"
        )
    if predictor.cut:
        warn(f"{predictor.cut:,} of {count:,} texts were longer than {predictor.max_seq_length} pieces and were cut")
    return 0


def _check_output(config: PredictConfig) -> None:
    """Refuse an output that exists or that the command reads.

    Raises:
        OutputFileError: it names the file and the remedy.
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
    """Yield the stream of the output: stdout, or a file that is written atomically."""
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
    """Predict every line of a file in batches; return the number of lines."""
    name = "stdin" if input_file == "-" else input_file
    lines = TextLines(source)
    remaining, count = iter(lines), 0
    progress = TextProgress(None if name == "stdin" else Path(name).stat().st_size) if show_progress else None
    while chunk := list(itertools.islice(remaining, LINES_A_CHUNK)):
        places = [f"{name}, line {count + number}" for number in range(1, len(chunk) + 1)]
        _write(predictor, chunk, places, as_json, output)
        count += len(chunk)
        if progress:
            progress.update(len(chunk), lines.bytes_read)
    if progress:
        progress.finish(f"{count:,} texts")
    if lines.damaged:
        warn(f"{lines.damaged:,} of {count:,} lines were not UTF-8; the bytes that are not were left out")
    return count


def _write(predictor: Predictor, texts: list[str], places: list[str], as_json: bool, output: TextIO) -> None:
    for text, answer in zip(texts, predictor.answers(texts, places), strict=True):
        if as_json:
            output.write(json.dumps(answer, ensure_ascii=False) + "\n")
        else:
            output.write("\n".join([text.strip(), *(f"  {line}" for line in shown(answer))]) + "\n")


def shown(answer: Answer) -> list[str]:
    """Return an answer of a `Predictor` as lines of text."""
    if "labels" in answer:
        lines = [f"{candidate['probability']:6.1%}  {candidate['label']}" for candidate in answer["labels"]]
        return lines or ["no label is likely"]
    if "choices" in answer:
        order = sorted(range(len(answer["choices"])), key=lambda i: -answer["probabilities"][i])
        return [f"{answer['probabilities'][i]:6.1%}  {answer['choices'][i]}" for i in order]
    if "context" in answer:
        if answer["end"] < 0:
            return [f"no answer  (null score {answer['null_score']:.2f}, best answer {answer['score']:.2f})"]
        place = f"{answer['start']} to {answer['end']}, score {answer['score']:.2f}, null {answer['null_score']:.2f}"
        return [f"{answer['answer']}  ({place})"]
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

"""`beambert demo`: run build, pretrain and fill-mask on documents that need no download."""

import argparse
import shlex
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from beambert.common.command_line import options
from beambert.common.command_line.options import Flag, PositiveInt
from beambert.common.command_line.path_flags import LOCAL_OUTPUT_DIRECTORY
from beambert.common.formatting import format_duration
from beambert.common.process import python_command, python_environment
from beambert.common.signals import handled_signals
from beambert.common.terminal import MAX_COLUMNS
from beambert.pipelines.io.output_directory import lock_directory
from beambert.trainers.errors import TrainingError

DESCRIPTION = """Build data, pretrain a tiny BERT and fill masked words, in a few minutes and without a download.

The text is the Python language reference that ships with Python. The demo runs `build`, `pretrain` and `fill-mask`, and
prints each command. The evaluation uses the validation split."""

EXAMPLE = """beambert demo
beambert demo --output beambert-demo --num_train_steps 500"""

COMMON_FLAGS = ("--output", "--num_train_steps")

# Half a megabyte of text suits a small vocabulary and short sequences, with which a model learns context after fewer
# steps (docs/guides/small-bert.md). Topics of the language reference quote each other.
_BUILD_FLAGS = shlex.split(
    "--input_format language_reference --vocab_size 1000 --validation_fraction 0.2 --drop_near_duplicates "
    "--drop_repeated_paragraphs --objective mlm --max_seq_length 32 --max_predictions_per_seq 5"
)
_TRAINING_FLAGS = shlex.split("--model tiny --train_batch_size 64 --learning_rate 1.5e-3 --num_warmup_steps 200")
_SENTENCES = (
    "Changed in [MASK] 3.8: the call is allowed.",
    "def __init__([MASK], name):",
    "For [MASK], see the reference.",
    'The "finally" [MASK] is executed.',
    "The capital of France is [MASK].",
)
_REMARK = """This BERT has read nothing but the Python manual:
at home in Python, lost in France."""


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """The options of `beambert demo`.

    Attributes:
        output: Output directory of data and model.
        num_train_steps: Number of training steps; lower it for a shorter demo.

    Raises:
        TrainingError: a value is out of range.
    """

    output: Annotated[str, Flag("output", type=LOCAL_OUTPUT_DIRECTORY, metavar="DIR")] = "beambert-demo"
    num_train_steps: Annotated[PositiveInt, Flag("training")] = 2000

    def __post_init__(self) -> None:
        options.check(self, TrainingError)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    options.add_arguments(parser, DemoOptions)


def configure(args: argparse.Namespace) -> DemoOptions:
    """Return the options of parsed flags."""
    return options.from_args(DemoOptions, args)


def run(config: DemoOptions) -> int:
    """Run the commands in order and return 0, or the exit code of the first command that fails.

    Raises:
        OutputError: another process writes into --output, or it cannot be written.
    """
    with lock_directory(f"--output {config.output}", Path(config.output), "another --output"):
        return _run(Path(config.output), config.num_train_steps)


def _run(output: Path, num_train_steps: int) -> int:
    """Run the commands while --output is locked."""
    start = time.monotonic()
    data, model = str(output / "data"), str(output / "model")
    columns = min(MAX_COLUMNS, shutil.get_terminal_size((MAX_COLUMNS, 24)).columns)
    training = ["--data", data, "--output", model, "--num_train_steps", str(num_train_steps), *_TRAINING_FLAGS]
    steps = (
        ("Build: documents, vocabulary and masked examples", ["build", "--output", data, *_BUILD_FLAGS]),
        ("Pretrain a BERT of two layers, and evaluate it on the validation split", ["pretrain", *training]),
        ("Fill in the blanks", ["fill-mask", model, "--top_k", "3", *_SENTENCES]),
    )
    for number, (title, command) in enumerate(steps, start=1):
        lines = shell_lines(["beambert", *command], columns)
        print(f"\n[{number}/{len(steps)}] {title}\n$ {lines}\n", flush=True)
        # Ctrl-C ends the command, which says what to do next.
        with handled_signals((signal.SIGINT,), lambda number, frame: None):  # noqa: ARG005
            program = python_command("-m", "beambert", *command)
            result = subprocess.run(program, env=python_environment(), check=False)  # noqa: S603
        if result.returncode:
            return result.returncode
    duration = format_duration(time.monotonic() - start)
    print(
        f"\nDone in {duration}. {_REMARK}\n\n"
        "Next, give it your own text:\n"
        "  .venv/bin/beambert build --input 'texts/*.txt' --output DATA\n"
        "  .venv/bin/beambert pretrain --data DATA --output MODEL --model mini \\\n"
        "    --num_train_steps 20000\n\n"
        "Reports for a browser:\n"
        f"  {output / 'data' / 'report.html'}\n"
        f"  {output / 'model' / 'report.html'}"
    )
    return 0


def shell_lines(command: list[str], columns: int) -> str:
    """Return a command as a shell takes it after a prompt of two characters, on lines of at most `columns`."""
    lines = [""]
    for word in map(shlex.quote, command):
        # Two columns are for the prompt or the indentation, one for the space, two for the backslash.
        if len(lines[-1]) + len(word) > columns - 5 and lines[-1]:
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)

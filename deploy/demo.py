"""`beambert demo`: run build, pretrain and fill-mask on documents that need no download."""

import argparse
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from beambert_common.command_line.flag_config import FlagConfig
from beambert_common.command_line.flags import positive_int
from beambert_common.command_line.path_flags import LOCAL_OUTPUT_DIRECTORY
from beambert_common.durations import format_duration
from pipelines.io.directory_lock import lock_directory

DESCRIPTION = """Build data, pretrain a tiny BERT and fill masked words, in a few minutes and without a download.

The text is the Python language reference that ships with Python. The demo runs `build`, `pretrain` and `fill-mask`, and
prints each command. The evaluation uses the validation split."""

EXAMPLE = """beambert demo
beambert demo --output beambert-demo --num_train_steps 500"""

COMMON_FLAGS = ("--output", "--num_train_steps")

_SENTENCES = (
    "Changed in [MASK] 3.8: the call is allowed.",
    "A class definition defines a class [MASK].",
    "This method should return a new [MASK].",
    "If the expression is true, the [MASK] is executed.",
)


@dataclass(frozen=True, kw_only=True)
class DemoConfig(FlagConfig):
    """Options of `beambert demo`; the help of each flag describes its field."""

    output: str = "beambert-demo"
    num_train_steps: int = 2500


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `beambert demo`."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "--output",
        default=DemoConfig.output,
        type=LOCAL_OUTPUT_DIRECTORY,
        metavar="DIR",
        help="Output directory of data and model",
    )
    group = parser.add_argument_group("training")
    group.add_argument(
        "--num_train_steps",
        type=positive_int,
        default=DemoConfig.num_train_steps,
        metavar="N",
        help="Number of training steps; lower it for a shorter demo",
    )


def configure(args: argparse.Namespace) -> DemoConfig:
    """Return the configuration of parsed flags."""
    return DemoConfig.from_args(args)


def run(config: DemoConfig) -> int:
    """Run the commands in order and return 0, or the exit code of the first command that fails.

    Raises:
        OutputError: another process writes into --output, or it cannot be written.
    """
    with lock_directory(f"--output {config.output}", Path(config.output), "another --output"):
        return _run(Path(config.output), config.num_train_steps)


def _run(output: Path, num_train_steps: int) -> int:
    """Run the commands while --output is locked."""
    start = time.monotonic()
    data, model = (shlex.quote(str(output / name)) for name in ("data", "model"))
    steps = (
        (
            "Build: documents, vocabulary and masked examples",
            f"build --input_format language_reference --output {data} --vocab_size 2000 --validation_fraction 0.15"
            " --max_seq_length 64 --max_predictions_per_seq 10",
        ),
        (
            "Pretrain, and evaluate on the validation split",
            f"pretrain --data {data} --output {model} --model tiny --num_train_steps {num_train_steps}",
        ),
        ("Fill masked words", f"fill-mask {model} {shlex.join(_SENTENCES)}"),
    )
    for number, (title, command) in enumerate(steps, start=1):
        print(f"\n[{number}/{len(steps)}] {title}\n$ beambert {command}", flush=True)
        result = subprocess.run([sys.executable, "-m", "beambert", *shlex.split(command)], check=False)  # noqa: S603
        if result.returncode:
            return result.returncode
    duration = format_duration(time.monotonic() - start)
    print(f"\nDone in {duration}. A tiny model and half a megabyte of text: a demonstration, not a useful BERT.")
    print(
        f"  vocabulary  {data}/vocab.txt\n"
        f"  shards      {data}/shards/ (manifest: {data}/dataset.json)\n"
        f"  checkpoint  {model}/checkpoints/\n"
        f"  evaluation  {model}/eval_results.txt\n\n"
        "Next, use your own text:\n"
        "  .venv/bin/beambert build --input 'texts/*.txt' --output DATA\n"
        "  .venv/bin/beambert pretrain --data DATA --output MODEL --model mini --num_train_steps 20000"
    )
    return 0

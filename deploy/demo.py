"""`beambert demo`: the whole way on real documents that need no download, by the commands a user would type."""

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
from pipelines.io.directory_lock import lock_directory

DESCRIPTION = """Builds data from the Python language reference that ships inside this Python, learns a vocabulary from
it, pretrains a tiny BERT for two minutes, evaluates it on held-out documents and lets it fill masked words."""
EXAMPLE = "beambert demo"
COMMON_FLAGS = ()

_SENTENCES = (
    "Changed in [MASK] 3.8: the call is allowed.",
    "A class definition defines a class [MASK].",
    "This method should return a new [MASK].",
    "If the expression is true, the [MASK] is executed.",
)


@dataclass(frozen=True, kw_only=True)
class DemoConfig(FlagConfig):
    """What `beambert demo` is configured with; the help of each flag says what it does."""

    output: str = "beambert-demo"
    num_train_steps: int = 2500


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `beambert demo`."""
    parser.add_argument(
        "--output",
        default=DemoConfig.output,
        type=LOCAL_OUTPUT_DIRECTORY,
        metavar="DIR",
        help="directory for data and model",
    )
    parser.add_argument(
        "--num_train_steps", type=positive_int, default=DemoConfig.num_train_steps, help="fewer for a quicker look"
    )


def configure(args: argparse.Namespace) -> DemoConfig:
    """Return what the flags ask for."""
    return DemoConfig.from_args(args)


def run(config: DemoConfig) -> int:
    """Run the commands in order; the first that fails ends the demo with its exit code.

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
            "From documents to a vocabulary and masked sentence pairs",
            f"build --input_format language_reference --output {data} --vocab_size 2000 --validation_fraction 0.15"
            " --max_seq_length 64 --max_predictions_per_seq 10",
        ),
        (
            "Pretraining, then evaluation on the documents held out",
            f"pretrain --data {data} --output {model} --model tiny --num_train_steps {num_train_steps}",
        ),
        ("Filling masked words", f"fill-mask {model} {shlex.join(_SENTENCES)}"),
    )
    for number, (title, command) in enumerate(steps, start=1):
        print(f"\n[{number}/{len(steps)}] {title}\n$ beambert {command}", flush=True)
        result = subprocess.run([sys.executable, "-m", "beambert", *shlex.split(command)], check=False)  # noqa: S603
        if result.returncode:
            return result.returncode
    print(
        f"\nDone in {time.monotonic() - start:.0f} s. A tiny model on half a megabyte of text: a start, not a BERT.\n"
        f"  vocabulary  {data}/vocab.txt\n"
        f"  shards      {data}/shards/, described by {data}/dataset.json\n"
        f"  checkpoint  {model}/checkpoints/\n"
        f"  evaluation  {model}/eval_results.txt\n\n"
        "Next, your own text:\n"
        "  .venv/bin/beambert build --input 'texts/*.txt' --output DATA\n"
        "  .venv/bin/beambert pretrain --data DATA --output MODEL --model mini --num_train_steps 20000"
    )
    return 0

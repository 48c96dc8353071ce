"""`beambert demo`: the whole way on real documents that need no download, by the commands a user would type."""

import argparse
import shlex
import subprocess
import sys
import time
from pathlib import Path

DESCRIPTION = """Builds data from the Python language reference that ships inside this Python, learns a vocabulary from
it, pretrains a tiny BERT for two minutes, evaluates it on held-out documents and lets it fill masked words."""

_SENTENCES = (
    "The following [MASK] is equivalent to the original.",
    "If the expression is true, the [MASK] is executed.",
    "The [MASK] statement raises an exception.",
    "A function definition is an executable [MASK].",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `beambert demo`."""
    parser.add_argument("--output", default="beambert-demo", metavar="DIR", help="directory for data and model")
    parser.add_argument("--num_train_steps", type=int, default=600, help="fewer for a quicker look")


def run(args: argparse.Namespace) -> int:
    """Runs the commands one after the other; the first that fails ends the demonstration with its exit code."""
    start = time.monotonic()
    data, model = (shlex.quote(str(Path(args.output) / name)) for name in ("data", "model"))
    steps = (
        (
            "From documents to a vocabulary and masked sentence pairs",
            f"build --input_format language_reference --output {data} --vocab_size 4000 --validation_fraction 0.15",
        ),
        (
            "Pretraining, then evaluation on the documents held out",
            f"pretrain --data {data} --output {model} --model tiny --num_train_steps {args.num_train_steps}",
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

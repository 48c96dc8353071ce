"""Reproduce published results with the released BERT-base weights, and print a table.

    make reproduce
    python -m benchmarks.reproduction ../shared/data reproduction

Each part writes its rows to RESULTS/parts/PART.json. A part with results is not run again, and fine-tuning resumes from
its last checkpoint, so that the command may be stopped at any time. The parts depend on the CPU: without bfloat16
instructions, bfloat16 is slower than float32, and everything is computed in float32. On 2 cores the parts take about
seven hours with these instructions and about 14 hours without them, three and eight of them for SST-2. --parts
selects parts, also some that do not run otherwise: those of the other kind of CPU, and CoLA in random order.
"""

import argparse
import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from beambert.common.local_files import write_atomic
from beambert.common.terminal import print_library_warnings
from benchmarks.reproduction import (
    continued_pretraining,
    exports,
    hidden_states,
    model_cards,
    multilingual,
    scores,
)
from benchmarks.reproduction.commands import run_command
from benchmarks.reproduction.precision import fastest_precision
from benchmarks.reproduction.released_models import released_model

Rows = list[list[str]]
# Directories in the data directory.
_DATA = ("glue", "gutenberg", "wiki-extracted")
_HEADER = ["result", "published or compared with", "measured", "remarks"]


def parts(data: Path, results: Path) -> dict[str, Callable[[], Rows]]:
    """Return the function of each part, in the order in which they run."""

    def model(kind: str) -> Path:
        return released_model(kind, results / "models")

    def finetuning(task: str, precision: str, name: str) -> Callable[[], Rows]:
        in_random_order = name.endswith("random-order")
        return lambda: scores.run(
            task, precision, model("uncased"), data, results / name, in_random_order=in_random_order
        )

    return {
        **{
            f"fill-mask-{kind}": lambda kind=kind: model_cards.run(kind, model(kind))  # type: ignore[misc]
            for kind in ("uncased", "cased", "multi-cased")
        },
        "hidden-states": lambda: hidden_states.run(model("uncased"), data, results / "hidden-states"),
        "multilingual": lambda: multilingual.run(model("multi-cased"), results / "multilingual"),
        "cola-bfloat16": finetuning("cola", "bfloat16", "cola-bfloat16"),
        "cola-float32": finetuning("cola", "float32", "cola-float32"),
        "exports": lambda: exports.run(results / f"cola-{fastest_precision()}", data, results / "exports"),
        "cola-random-order": finetuning("cola", fastest_precision(), "cola-random-order"),
        "mrpc-bfloat16": finetuning("mrpc", "bfloat16", "mrpc-bfloat16"),
        "mrpc-float32": finetuning("mrpc", "float32", "mrpc-float32"),
        "continued-pretraining": lambda: continued_pretraining.run(
            model("uncased"), data, results / "continued-pretraining"
        ),
        "sst2-bfloat16": finetuning("sst2", "bfloat16", "sst2-bfloat16"),
        "sst2-float32": finetuning("sst2", "float32", "sst2-float32"),
    }


def default_parts(names: Iterable[str], fastest: str) -> list[str]:
    """Return the parts that run if none are selected.

    Args:
        names: the names of all parts.
        fastest: the fastest precision of this CPU. Where it is float32, parts in bfloat16 are left out. Where it is
            bfloat16, CoLA runs in both, and the tasks that take longer do not. CoLA in random order is left out: the
            published score, which grouped batches are compared with, is from random order.
    """
    left_out = ("mrpc-float32", "sst2-float32") if fastest == "bfloat16" else ("-bfloat16",)
    return [name for name in names if not name.endswith((*left_out, "-random-order"))]


def run_part(name: str, data: Path, results: Path) -> None:
    """Run a part and write its rows."""
    begin = time.monotonic()
    rows = parts(data, results)[name]()
    content = {
        "rows": rows,
        "seconds": round(time.monotonic() - begin),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
    }
    directory = results / "parts"
    directory.mkdir(parents=True, exist_ok=True)
    write_atomic(directory / f"{name}.json", json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")


def table(data: Path, results: Path) -> str:
    """Return the Markdown table of all parts with results."""
    lines = [_HEADER, ["---"] * len(_HEADER)]
    seconds = 0
    for name in parts(data, results):
        path = results / "parts" / f"{name}.json"
        if path.is_file():
            content = json.loads(path.read_text(encoding="utf-8"))
            lines += content["rows"]
            seconds += content["seconds"]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{seconds / 60:.0f} minutes in total"


def main() -> None:
    """Run the parts without results, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help=f"data directory, with {', '.join(_DATA)}")
    parser.add_argument("results", type=Path, help="directory of models, runs and results; about 15 GB")
    parser.add_argument("--parts", nargs="+", help="parts to run (default: each task once, CoLA also in float32)")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name in _DATA:
        if not (options.data / name).is_dir():
            sys.exit(f"{options.data} has no directory {name}")
    print_library_warnings()
    names = list(parts(options.data, options.results))
    for name in options.parts or []:
        if name not in names:
            sys.exit(f"unknown part {name}: choose from {', '.join(names)}")
    if options.part:
        run_part(options.part, options.data, options.results)
        return
    for name in options.parts or default_parts(names, fastest_precision()):
        if (options.results / "parts" / f"{name}.json").is_file():
            print(f"{name}: done before", flush=True)
            continue
        print(f"{name}: {datetime.datetime.now(tz=datetime.UTC):%H:%M} UTC", flush=True)
        # A process for each part: libraries and models of other parts take no memory.
        command = [sys.executable, "-m", "benchmarks.reproduction", str(options.data), str(options.results)]
        run_command([*command, "--part", name], f"part {name}")
    print(f"\n{table(options.data, options.results)}")


if __name__ == "__main__":
    main()

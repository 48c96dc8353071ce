"""Train a small BERT past the plateau on 10 million words of Wikipedia, and evaluate it.

    make bench-quality
    python -m benchmarks.small_bert ../shared/data quality

A command whose result exists is not run again, and training resumes from its last checkpoint, so that the benchmark may
be stopped at any time.
"""

import argparse
import json
import shlex
import shutil
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from beambert.common.local_files import write_atomic
from benchmarks.reproduction.commands import run_beambert

MODEL = Path(__file__).with_name("model.json")
# Directories in the data directory.
_DATA = ("wiki-extracted", "blimp")

# The file that each command writes last, and the command, in the directory of results. DATA is the data directory.
RECIPE = {
    "corpus/corpus.json": "beambert corpus --input 'DATA/wiki-extracted/*.bz2' --output corpus --vocab_size 8000",
    "data-16/dataset.json": "beambert pretraining-data --input corpus --output data-16 --max_seq_length 16 "
    "--max_predictions_per_seq 3 --masking dynamic --dupe_factor 1 --objective mlm --short_seq_prob 0",
    "data-64/dataset.json": "beambert pretraining-data --input corpus --output data-64 --max_seq_length 64 "
    "--max_predictions_per_seq 10 --masking dynamic --dupe_factor 5",
    "data-128/dataset.json": "beambert pretraining-data --input corpus --output data-128 --max_seq_length 128 "
    "--max_predictions_per_seq 20 --masking dynamic --dupe_factor 5",
    "short/eval_results.json": "beambert pretrain --data data-16 --output short --model model.json --no_next_sentence "
    "--optimizer adamw --learning_rate 1e-3 --num_warmup_steps 200 --lr_schedule wsd --train_batch_size 128 "
    "--num_train_steps 1600 --eval_steps 400 --max_eval_steps 20 --eval_batch_size 256 --precision bfloat16",
    "run/eval_results.json": "beambert pretrain --data data-64 data-128 --schedule 64x0.5@64,128x0.5@32 --output run "
    "--init_checkpoint short --optimizer adamw --learning_rate 1e-3 --num_warmup_steps 200 --lr_schedule wsd "
    "--lr_decay_fraction 0.25 --num_train_steps 20000 --eval_steps 1000 --max_eval_steps 20 --eval_batch_size 64 "
    "--precision bfloat16",
    "blimp.json": "beambert evaluate run --pairs blimp/data --output blimp.json",
}


def flags_of(command: str, data: Path, fraction: float) -> list[str]:
    """Return name and flags of a command of the recipe.

    Args:
        command: the command line.
        data: data directory.
        fraction: fraction of the training steps.
    """
    flags = [word.replace("DATA", str(data)) for word in shlex.split(command)[1:]]
    for name in ("--num_train_steps", "--num_warmup_steps"):
        if name in flags:
            place = flags.index(name) + 1
            flags[place] = str(max(round(fraction * int(flags[place])), 2))
    return flags


def claim(results: Path, options: dict[str, Any]) -> None:
    """Create the results directory, or check that it has results of the same options.

    Raises:
        SystemExit: the directory has other files, or results of other options.
    """
    record = results / "options.json"
    if record.is_file():
        if (found := _json(record)) != options:
            sys.exit(f"{results} has results of {found}, not of {options}: give another directory")
        return
    if results.is_dir() and any(results.iterdir()):
        sys.exit(f"{results} has other files: give a new or empty directory")
    results.mkdir(parents=True, exist_ok=True)
    write_atomic(record, json.dumps(options).encode())


def extract_pairs(source: Path, target: Path) -> None:
    """Extract the archive of BLiMP that a directory contains, once."""
    if target.is_dir():
        return
    archive = next(source.glob("*.tar.xz"), None)
    if archive is None:
        sys.exit(f"{source} has no BLiMP archive (*.tar.xz)")
    temporary = target.with_name(f"{target.name}.tmp")
    with tarfile.open(archive) as file:
        file.extractall(temporary, filter="data")
    temporary.replace(target)


def summary(results: Path) -> str:
    """Return the scores of the finished recipe as a Markdown table."""
    run, blimp = (_json(results / name) for name in ("run/eval_results.json", "blimp.json"))
    pairs, minutes = blimp["pairs"], _minutes(results)
    rows = [
        ["masked_lm_loss", f"{run['masked_lm_loss']:.3f}", ""],
        ["masked_lm_accuracy", f"{run['masked_lm_accuracy']:.3f}", "0.30"],
        ["next_sentence_accuracy", f"{run['next_sentence_accuracy']:.3f}", "0.75"],
        ["BLiMP", f"{100 * pairs['mean_of_paradigms']['accuracy']:.1f}", "58"],
        ["minutes of training", f"{minutes:.0f}", "120"],
    ]
    lines = [["score", "measured", "goal"], ["---"] * 3, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _minutes(results: Path) -> float:
    """Return the minutes of training of both runs, without start, compilation, evaluation and checkpoints."""
    lines = [(results / run / "metrics.jsonl").read_text(encoding="utf-8").splitlines() for run in ("short", "run")]
    return sum(float(max(json.loads(line)["seconds"] for line in of_run)) for of_run in lines) / 60


def _json(path: Path) -> Mapping[str, Any]:
    content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def main() -> None:
    """Run the commands without results, and print the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help=f"data directory, with {' and '.join(_DATA)}")
    parser.add_argument("results", type=Path, help="directory of data, runs and scores; about 1 GB")
    parser.add_argument("--fraction", type=float, default=1.0, help="fraction of the training steps, for a trial")
    options = parser.parse_args()
    for name in _DATA:
        if not (options.data / name).is_dir():
            sys.exit(f"{options.data} has no directory {name}")
    if not 0 < options.fraction <= 1:
        sys.exit(f"invalid --fraction {options.fraction}: must be above 0 and at most 1")
    data, results = options.data.resolve(), options.results.resolve()
    claim(results, {"data": str(data), "fraction": options.fraction})
    extract_pairs(data / "blimp", results / "blimp")
    shutil.copyfile(MODEL, results / "model.json")
    for result, command in RECIPE.items():
        if (results / result).is_file():
            print(f"{result}: done before", flush=True)
        else:
            run_beambert(*flags_of(command, data, options.fraction), directory=results)
    print(f"\n{summary(results)}")


if __name__ == "__main__":
    main()

"""Fine-tune a released model with three seeds, and compare the scores with the published ones."""

import json
import statistics
from pathlib import Path
from typing import NamedTuple

from benchmarks.reproduction.commands import run_beambert


class Task(NamedTuple):
    """A fine-tuning task.

    Attributes:
        directory: its directory in the data.
        metric: metric in eval_results.json.
        published: published scores of the development set in percent, with their sources.
        rows: number of development rows, for the standard error of an accuracy; None for other metrics.
    """

    directory: str
    metric: str
    published: str
    rows: int | None = None


# Sources: trainers/run_report/published_scores.py.
TASKS = {
    "cola": Task("glue/CoLA", "eval_matthews", "56.5 (rerun)"),
    "mrpc": Task("glue/MRPC", "eval_accuracy", "84.55 (README, 84 to 88 by seed), 86.7 (paper)", 408),
    "sst2": Task("glue/SST-2", "eval_accuracy", "92.7 (paper), 92.3 (rerun)", 872),
}
SEEDS = 3
# A point of the paper's grid, that of the README's MRPC example.
FLAGS = ("--learning_rate", "2e-5", "--num_train_epochs", "3", "--train_batch_size", "32", "--max_seq_length", "128")


def run(task: str, precision: str, model: Path, data: Path, output: Path, *flags: str) -> list[list[str]]:
    """Fine-tune with three seeds, resuming unfinished runs, and return the row of the table.

    Args:
        task: a task of `TASKS`.
        precision: "float32" or "bfloat16".
        model: released model.
        data: data directory.
        output: directory of the runs.
        *flags: further flags of `beambert finetune`.
    """
    command = ["finetune", task, "--data_dir", str(data / TASKS[task].directory)]
    command += ["--init_checkpoint", str(model), "--output", str(output), "--precision", precision, *FLAGS, *flags]
    run_beambert(*command, "--seeds", str(SEEDS), "--keep_checkpoint_max", "1")
    return [row(task, precision, output)]


def row(task: str, precision: str, output: Path) -> list[str]:
    """Return the row of the table for finished runs."""
    metric, rows = TASKS[task].metric, TASKS[task].rows
    seeds = sorted(output.glob("seed-*"))
    scores = [100 * json.loads((seed / "eval_results.json").read_text())[metric] for seed in seeds]
    seconds = [json.loads((seed / "metrics.jsonl").read_text().splitlines()[-1])["seconds"] for seed in seeds]
    mean = statistics.mean(scores)
    error = f"; standard error of one run ± {(mean * (100 - mean) / rows) ** 0.5:.1f}" if rows else ""
    return [
        f"{task}, {metric.removeprefix('eval_')}, {precision}",
        TASKS[task].published,
        f"{mean:.1f} ({', '.join(f'{score:.1f}' for score in scores)})",
        f"{statistics.mean(seconds) / 60:.0f} minutes a seed{error}",
    ]

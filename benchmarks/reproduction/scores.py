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
        rows: number of development rows.
        epochs: epochs of training, of the paper's grid (appendix A.3: 2, 3 or 4).
    """

    directory: str
    metric: str
    published: str
    rows: int
    epochs: int


# Sources: trainers/run_report/published_scores.py.
TASKS = {
    "cola": Task("glue/CoLA", "eval_matthews", "56.5 (rerun)", 1043, 3),
    "mrpc": Task("glue/MRPC", "eval_accuracy", "84.55 (README, 84 to 88 by seed), 86.7 (paper)", 408, 3),
    # The published scores are from 3 epochs. With 67,349 rows, the third would take hours and is of little use.
    "sst2": Task("glue/SST-2", "eval_accuracy", "92.7 (paper), 92.3 (rerun), both 3 epochs", 872, 2),
}
SEEDS = 3
# A point of the paper's grid, that of the README's MRPC example.
BATCH_SIZE = 32
FLAGS = ("--learning_rate", "2e-5", "--max_seq_length", "128")


def run(task: str, precision: str, model: Path, data: Path, output: Path, *, in_random_order: bool) -> list[list[str]]:
    """Fine-tune with three seeds, resuming unfinished runs, and return the row of the table.

    Args:
        task: a task of `TASKS`.
        precision: "float32" or "bfloat16".
        model: released model.
        data: data directory.
        output: directory of the runs.
        in_random_order: whether batches are not grouped by length.
    """
    command = ["finetune", task, "--data_dir", str(data / TASKS[task].directory)]
    command += ["--init_checkpoint", str(model), "--output", str(output), "--precision", precision, *FLAGS]
    command += ["--train_batch_size", str(BATCH_SIZE), "--num_train_epochs", str(TASKS[task].epochs)]
    command += ["--seeds", str(SEEDS), "--keep_checkpoint_max", "1"]
    run_beambert(*command, *(["--group_by_length", "false"] if in_random_order else []))
    return [row(task, f"{precision}, random order" if in_random_order else precision, output)]


def row(task: str, remark: str, output: Path) -> list[str]:
    """Return the row of the table for finished runs."""
    metric, rows = TASKS[task].metric, TASKS[task].rows
    seeds = sorted(output.glob("seed-*"))
    scores = [100 * json.loads((seed / "eval_results.json").read_text())[metric] for seed in seeds]
    mean = statistics.mean(scores)
    return [
        f"{task}, {metric.removeprefix('eval_')}, {remark}",
        TASKS[task].published,
        f"{mean:.1f} ({', '.join(f'{score:.1f}' for score in scores)})",
        f"{statistics.mean(map(_minutes, seeds)):.0f} minutes a seed; standard error of one run "
        f"± {100 * _standard_error(metric, mean / 100, rows):.1f}",
    ]


def _minutes(run: Path) -> float:
    """Return the minutes of training at the median speed, which interruptions and other programs hardly change."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    speed = statistics.median(line["sequences_per_second"] for line in lines if "sequences_per_second" in line)
    return float(max(line["step"] for line in lines) * BATCH_SIZE / speed / 60)


def _standard_error(metric: str, score: float, rows: int) -> float:
    """Return the standard error of a score from the number of rows: of a proportion, or of a correlation."""
    if metric == "eval_accuracy":
        return float((score * (1 - score) / rows) ** 0.5)
    return float((1 - score**2) / (rows - 1) ** 0.5)

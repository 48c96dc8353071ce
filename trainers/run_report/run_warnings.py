"""Derive warnings about a run from its metrics."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from beambert.common.typed_json import JsonError, read
from beambert.reporting.numbers import percent
from beambert.trainers.metrics.chance_levels import pretraining_warnings
from beambert.trainers.run_report.task_sections import warnings_of_details

RESULTS_NAME = "eval_results.json"
EVALUATION_NAME = "evaluation.json"

_MUCH_WAITING = 0.1
# Nats above the lowest validation loss; smaller differences are noise.
_CLEARLY_WORSE = 0.02


def warnings_of(
    options: Mapping[str, Any], train: Sequence[Mapping[str, Any]], validation: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return warnings about a run, most severe first, one line each.

    Args:
        options: options of the command.
        train, validation: lines of metrics.jsonl, by step.
    """
    warnings = []
    last = train[-1] if train else {}
    total = options.get("num_train_steps")
    step = max((line["step"] for line in (*train, *validation)), default=0)
    if not train:
        warnings.append("The log has no training metrics yet.")
    elif isinstance(total, int) and step < total:
        warnings.append(f"The run is incomplete: {step:,} of {total:,} steps. Run the same command again to resume.")
    skipped = last.get("skipped_steps")
    if skipped:
        warnings.append(
            f"{skipped:,} of {last['step']:,} steps were skipped because the loss or gradient was not finite. If there "
            "are more than a few, train again with a lower --learning_rate or a longer warm-up."
        )
    corrupt = max((line.get("corrupt_records") or 0 for line in train), default=0)
    if corrupt:
        warnings.append(f"{corrupt:,} corrupt records were skipped. Copy or build the data again.")
    if train and not validation:
        warnings.append(
            "The run has no evaluation. Build the data with a validation split and give --eval_steps or --do_eval."
        )
    losses = [(line["loss"], line["step"]) for line in validation if isinstance(line.get("loss"), float)]
    if losses and losses[-1][0] > min(losses)[0] + _CLEARLY_WORSE:
        lowest, at = min(losses)
        warnings.append(
            f"The model overfits: the validation loss is {losses[-1][0]:.3f}, up from {lowest:.3f} at step {at:,}. "
            "Train for fewer steps or on more data."
        )
    waits = [line["data_wait_fraction"] for line in train if isinstance(line.get("data_wait_fraction"), float)]
    if waits and sum(waits) / len(waits) > _MUCH_WAITING:
        warnings.append(
            f"{percent(sum(waits) / len(waits))} of the training time was spent waiting for data. Use more CPU cores "
            "or a faster disk."
        )
    return warnings


def score_warnings(metrics: Mapping[str, Any], evaluation: Mapping[str, Any]) -> list[str]:
    """Return warnings about the scores of an evaluation, for the report and the terminal.

    Args:
        metrics: metrics in eval_results.json or a line of metrics.jsonl.
        evaluation: content of evaluation.json; {} without the file.
    """
    return [*pretraining_warnings(metrics), *warnings_of_details(evaluation)]


def score_warnings_in(output: Path) -> list[str]:
    """Return `score_warnings` of the last evaluation in a run directory."""
    return score_warnings(results_in(output), json_in(output / EVALUATION_NAME))


def results_in(output: Path) -> dict[str, Any]:
    """Return the metrics of the last evaluation in a run directory; {} if the file is missing or invalid."""
    return json_in(output / RESULTS_NAME)


def json_in(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; {} if the file is missing or invalid."""
    try:
        return read(path, dict[str, Any])
    except (OSError, JsonError):
        return {}

"""Read and write `runs.json`, the outcomes of several runs of one task."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from beambert.common.local_files import write_atomic
from beambert.common.typed_json import JsonError, Number, read, require, shortened
from beambert.pipelines.io.output_directory import RUNS_MANIFEST
from beambert.trainers.errors import TrainingError
from beambert.trainers.training.run_manifest import RecordedOptions


class Grid(TypedDict):
    """The grid of `beambert tune` that may delete the checkpoints of a run."""

    runs: list[str]
    best_metric: str | None


class OutcomeFields(TypedDict):
    """A run in `runs.json`."""

    options: dict[str, str]
    metrics: dict[str, Number | None] | None
    problem: str | None
    asked: RecordedOptions
    contents: dict[str, str | None]
    grid: Grid | None


def recorded_outcomes(output: Path) -> dict[str, Any]:
    """Return the outcomes that earlier commands recorded, as `OutcomeFields` by run name; NaN replaces null metrics.

    Args:
        output: directory of the runs.

    Raises:
        TrainingError: the file is corrupt.
    """
    path = output / RUNS_MANIFEST
    try:
        outcomes = read(path, dict[str, dict[str, Any]])
        require(outcomes, dict[str, OutcomeFields])
        for name in outcomes:
            if Path(name).name != name:
                raise JsonError(f"{shortened(name)} is not a valid run name")
    except FileNotFoundError:
        return {}
    except JsonError as error:
        raise TrainingError(f"{path}: {error}; move the file away to evaluate the runs again") from error
    for outcome in outcomes.values():
        if outcome["metrics"] is not None:
            outcome["metrics"] = _with_nan(outcome["metrics"])
    return outcomes


def results_of(path: Path) -> dict[str, float]:
    """Return the metrics of a complete run, with NaN in place of null.

    Args:
        path: its eval_results.json.

    Raises:
        TrainingError: the file is missing or corrupt.
    """
    try:
        return _with_nan(read(path, dict[str, Number | None]))
    except FileNotFoundError as error:
        raise TrainingError(f"{path} was removed while the command ran: run the same command again") from error
    except JsonError as error:
        raise TrainingError(f"{path}: {error}; run the same command again") from error


def _with_nan(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """Return metrics with NaN in place of JSON's null."""
    return {name: math.nan if value is None else value for name, value in metrics.items()}


def write_outcomes(output: Path, outcomes: Mapping[str, Any]) -> None:
    """Write the outcomes of runs, as `recorded_outcomes` returns them."""
    content = {name: dict(outcome) for name, outcome in outcomes.items()}
    for outcome in content.values():
        if outcome["metrics"] is not None:
            metrics = outcome["metrics"].items()
            outcome["metrics"] = {name: value if math.isfinite(value) else None for name, value in metrics}
    write_atomic(output / RUNS_MANIFEST, json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")

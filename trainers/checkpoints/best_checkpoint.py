"""Read and write `best.json`, which records the checkpoint with the best evaluation.

This file imports neither Keras nor TensorFlow.
"""

import json
import math
from pathlib import Path
from typing import NamedTuple, TypedDict

from beambert.common.local_files import write_atomic
from beambert.common.typed_json import Count, JsonError, NonEmpty, Number, read
from beambert.trainers.checkpoints.checkpoint_manager import Checkpoint
from beambert.trainers.errors import TrainingError

FILE_NAME = "best.json"
# The name of a metric is one of these words, or ends with an underscore and one of them.
LOWER_IS_BETTER = ("loss", "error", "perplexity")
HIGHER_IS_BETTER = ("accuracy", "f1", "precision", "recall", "exact", "exact_match", "pearson", "spearman", "matthews")


class BestCheckpoint(NamedTuple):
    """The content of `best.json`.

    Attributes:
        step: step of the best checkpoint.
        metric: name of the metric that selected it.
        value: value of the metric.
    """

    step: int
    metric: str
    value: float


class _BestFields(TypedDict):
    step: Count
    metric: NonEmpty
    value: Number


def lower_is_better(metric: str) -> bool:
    """Return whether lower values of a metric are better, by the last word of its name.

    Raises:
        TrainingError: the name ends with none of the known words.
    """
    for words, lower in ((LOWER_IS_BETTER, True), (HIGHER_IS_BETTER, False)):
        if any(f"_{metric}".endswith(f"_{word}") for word in words):
            return lower
    raise TrainingError(
        f"invalid --best_metric {metric}: must end with one of {', '.join(LOWER_IS_BETTER + HIGHER_IS_BETTER)}"
    )


def best(directory: Path) -> BestCheckpoint | None:
    """Return the best checkpoint recorded in a directory; None without a record or without its checkpoint.

    Raises:
        TrainingError: the record cannot be read.
    """
    path = directory / FILE_NAME
    try:
        content = read(path, _BestFields)
    except FileNotFoundError:
        return None
    except JsonError as error:
        raise TrainingError(f"{path}: {error}; remove it, and the next evaluation writes it again") from error
    record = BestCheckpoint(content["step"], content["metric"], float(content["value"]))
    return record if Checkpoint.of_step(directory, record.step).index_file.exists() else None


def record_if_improved(directory: Path, step: int, metric: str, value: float, data_step: int = 0) -> bool:
    """Record a checkpoint as the best if its evaluation improved; of equal values, the first one is kept.

    Args:
        directory: directory of the checkpoints, including the one of `step`.
        step: step of the evaluated checkpoint.
        metric: name of the metric. A record of another metric is replaced.
        value: value of the metric; a non-finite value is never the best.
        data_step: first step of training on the data of the evaluation. A record of this step or before is of other
            data, and is replaced.

    Returns:
        Whether the checkpoint is now the best one.

    Raises:
        TrainingError: the direction of the metric is unknown, or the record cannot be read.
        FileError: the record cannot be written.
    """
    lower = lower_is_better(metric)
    if not math.isfinite(value):
        return False
    before = best(directory)
    is_comparable = before is not None and before.metric == metric and (before.step > data_step or not data_step)
    if before is not None and is_comparable and before.step != step:
        improved = value < before.value if lower else value > before.value
        if not improved:
            return False
    content = json.dumps(BestCheckpoint(step, metric, value)._asdict(), indent=2) + "\n"
    write_atomic(directory / FILE_NAME, content.encode())
    return True

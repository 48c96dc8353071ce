"""`best.json`: the checkpoint with the best evaluation so far.

This file imports neither Keras nor TensorFlow.
"""

import json
import math
from pathlib import Path
from typing import NamedTuple, TypedDict

from beambert_common.atomic_files import write_atomic
from beambert_common.typed_json import Count, JsonError, NonEmpty, Number, read
from trainers.errors import TrainingError

FILE_NAME = "best.json"
# A metric's name is one of these words, or ends in one after an underscore.
LOWER_IS_BETTER = ("loss", "error", "perplexity")
HIGHER_IS_BETTER = ("accuracy", "f1", "precision", "recall", "exact", "exact_match", "pearson", "spearman", "matthews")


class BestCheckpoint(NamedTuple):
    """The content of `best.json`.

    Attributes:
        step: of the best checkpoint.
        metric: that it was best by.
        value: of the metric.
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
        TrainingError: the name ends in no word of either list.
    """
    for words, lower in ((LOWER_IS_BETTER, True), (HIGHER_IS_BETTER, False)):
        if any(f"_{metric}".endswith(f"_{word}") for word in words):
            return lower
    raise TrainingError(
        f"whether a high or a low {metric} is better is not known; give --best_metric a name that ends in "
        f"{', '.join(LOWER_IS_BETTER + HIGHER_IS_BETTER)}"
    )


def best(directory: Path) -> BestCheckpoint | None:
    """Return the best checkpoint by the record in its directory; None without a record or its checkpoint.

    Raises:
        TrainingError: the record cannot be read.
    """
    path = directory / FILE_NAME
    try:
        content = read(path, _BestFields)
    except FileNotFoundError:
        return None
    except JsonError as error:
        raise TrainingError(f"{path}: {error}; remove it, the next evaluation writes it") from error
    record = BestCheckpoint(content["step"], content["metric"], float(content["value"]))
    return record if (directory / f"model.ckpt-{record.step}.index").exists() else None


def record_if_improved(directory: Path, step: int, metric: str, value: float) -> bool:
    """Record a checkpoint as the best if its evaluation improved on the best before; of equals, the first stays.

    Args:
        directory: of the checkpoints; that of `step` is there already.
        step: of the checkpoint evaluated.
        metric: name of the metric. After an evaluation by another metric than that of the record, what the record
            says counts for nothing.
        value: of the metric; one that is not a number or infinite is never the best.

    Returns:
        Whether it is the best now.

    Raises:
        TrainingError: it is not known whether the metric should be high or low, or the record cannot be read.
        FileError: the record cannot be written.
    """
    lower = lower_is_better(metric)
    if not math.isfinite(value):
        return False
    before = best(directory)
    if before is not None and before.metric == metric and before.step != step:
        improved = value < before.value if lower else value > before.value
        if not improved:
            return False
    content = json.dumps(BestCheckpoint(step, metric, value)._asdict(), indent=2) + "\n"
    write_atomic(directory / FILE_NAME, content.encode())
    return True

"""`--class_weights`: the weight of an example in the loss, by its label."""

import numpy as np

from beambert_common.command_line.flags import real_number, shortened
from trainers.errors import TrainingError
from trainers.finetuning.finetuning_task import FinetuningTask, Rows

BALANCED = "balanced"


def class_weights_of(text: str, task: FinetuningTask, rows: Rows) -> tuple[float, ...]:
    """Return the weight of each class, in the order of the task's labels.

    Args:
        text: "balanced", for N / (n * count) of each of n classes among N predictions, or LABEL=WEIGHT,..., 1 for a
            label that is not named.
        task: with labels.
        rows: of the training.

    Raises:
        TrainingError: the task has no classes or several to a row, no such label, or no number.
    """
    if task.labels is None or task.multi_label:
        raise TrainingError(f"--class_weights needs one of several labels an example, which {task.name} does not have")
    if text == BALANCED:
        labels = rows.targets["label_ids"]
        counts = np.bincount(labels[labels >= 0], minlength=len(task.labels))
        # A class that does not occur weighs nothing anyway.
        return tuple((counts.sum() / (len(counts) * np.maximum(counts, 1))).tolist())
    weights = dict.fromkeys(task.labels, 1.0)
    for part in text.split(","):
        label, equals, number = part.rpartition("=")
        weight = real_number(number)
        if not equals or not 0 <= weight < float("inf"):
            raise TrainingError(f"--class_weights: {shortened(part)} is not LABEL=WEIGHT, such as {task.labels[0]}=2")
        if label not in weights:
            raise TrainingError(
                f"--class_weights names {shortened(label)}; labels of {task.name} are {', '.join(task.labels)}"
            )
        weights[label] = weight
    return tuple(weights.values())

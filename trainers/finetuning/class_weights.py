"""Parse `--class_weights`, the weights of the classes in the loss."""

import numpy as np

from beambert.common.command_line.flags import real_number, shortened
from beambert.trainers.errors import TrainingError
from beambert.trainers.finetuning.finetuning_task import FinetuningTask, Rows

BALANCED = "balanced"


def class_weights_of(text: str, task: FinetuningTask, rows: Rows) -> tuple[float, ...]:
    """Return the weight of each class, in the order of the task's labels.

    Args:
        text: "balanced", for weights N / (n * count) of n classes among N predictions, or LABEL=WEIGHT,..., with weight
            1 for other labels.
        task: a task with labels.
        rows: rows of the training split.

    Raises:
        TrainingError: the task is not single-label classification, or the text names an unknown label or is not valid.
    """
    if task.labels is None or task.multi_label:
        raise TrainingError(f"--class_weights requires a task with one label per example, unlike {task.name}")
    if text == BALANCED:
        labels = rows.targets["label_ids"]
        counts = np.bincount(labels[labels >= 0], minlength=len(task.labels))
        # The weight of a class without examples has no effect.
        return tuple((counts.sum() / (len(counts) * np.maximum(counts, 1))).tolist())
    weights = dict.fromkeys(task.labels, 1.0)
    for part in text.split(","):
        label, equals, number = part.rpartition("=")
        weight = real_number(number)
        if not equals or not 0 <= weight < float("inf"):
            raise TrainingError(f"--class_weights: {shortened(part)} is not LABEL=WEIGHT, such as {task.labels[0]}=2")
        if label not in weights:
            raise TrainingError(
                f"--class_weights: unknown label {shortened(label)}; {task.name} has {', '.join(task.labels)}"
            )
        weights[label] = weight
    return tuple(weights.values())

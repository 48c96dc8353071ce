"""The loss of a head as an objective of the training loop."""

from collections.abc import Sequence

import numpy as np
from keras import ops

from beambert.bert_model.finetuning_models import BertForTask
from beambert.bert_model.variable_names import variables_by_tf1_name
from beambert.trainers.objective import Features, Objective, Sums, Tensor

# Metrics of the progress line, with their labels.
SHOWN_METRICS = {"loss": "loss", "accuracy": "accuracy"}
# Name of the only loss term.
LOSS = "task_loss"


def finetuning_objective(model: BertForTask, *, class_weights: Sequence[float] | None = None) -> Objective:
    """Return the objective of a model. Its loss is the weighted mean over predictions, as its head defines them.

    Features are input_ids, input_mask, segment_ids and the targets of `finetuning_task.Rows`, padded with 0, or with -1
    for labels of positions. example_weights [B] is optional.

    Args:
        model: model, created in the scope of its devices.
        class_weights: n weights of a prediction by its true class; None for 1 each.
    """
    head = model.head
    by_class = None if class_weights is None else np.array(class_weights, np.float32)

    def weights_of(features: Features) -> Tensor:
        """Return the weight of each prediction, float32 [B], or [B, S] for positions."""
        weights, rows = head.weights(features), features.get("example_weights")
        if by_class is not None:
            weights = weights * ops.take(by_class, ops.maximum(features["label_ids"], 0), axis=0)
        if rows is None:
            return weights
        return weights * (rows[:, None] if head.labels_positions else rows)

    def weights(features: Features) -> dict[str, Tensor]:
        return {LOSS: ops.sum(weights_of(features))}

    def sums(features: Features, seed: Tensor | None) -> Sums:
        losses, right = head.losses(features, model(features, seed=seed))
        weight = weights_of(features)
        totals = {LOSS: (ops.sum(weight * losses), ops.sum(weight))}
        if right is not None:
            counted = weight if by_class is None else ops.cast(weight > 0, "float32")
            totals["accuracy"] = (ops.sum(counted * right), ops.sum(counted))
        return totals

    variables = variables_by_tf1_name(model)
    frozen = [name for name in variables if head.freezes_encoder and name.startswith("bert/")]
    return Objective(
        {name: variable for name, variable in variables.items() if name not in frozen},
        sums,
        weights,
        frozen={name: variables[name] for name in frozen},
        vocab_size=model.config.vocab_size,
    )

"""The fine-tuning losses (run_classifier.py and run_squad.py; paper, section 4) as an objective of the training loop.

Letters in shapes: B rows, C choices, S positions, n labels.
"""

from collections.abc import Sequence

import numpy as np
from keras import ops

from beambert.bert_model.checkpoints.variable_names import variables_by_tf1_name
from beambert.bert_model.finetuning_models import BertForTask
from beambert.trainers.objective import Features, Objective, Sums, Tensor

# Metrics of the progress line, with their labels.
SHOWN_METRICS = {"loss": "loss", "accuracy": "accuracy"}
# Name of the only loss term.
LOSS = "task_loss"


def finetuning_objective(
    model: BertForTask,
    *,
    multi_label: bool = False,
    class_weights: Sequence[float] | None = None,
    frozen_prefix: str | None = None,
) -> Objective:
    """Return the objective of a model. Its loss is the weighted mean over predictions.

    | head | prediction | loss |
    |---|---|---|
    | classification | row | cross-entropy; multi-label: mean over the labels of the binary cross-entropy |
    | regression | row | squared error |
    | multiple_choice | row | cross-entropy over the choices |
    | span | row | mean of the cross-entropies of start and end over all positions, including padding |
    | token_classification | labeled position | cross-entropy |

    Features are input_ids, input_mask, segment_ids and the targets of `finetuning_task.Rows`, padded with 0, or with -1
    for labels of positions. example_weights [B] is optional.

    Args:
        model: model, created in the scope of its devices.
        multi_label: whether a row may have several labels.
        class_weights: n weights of a prediction by its true class; None for 1 each.
        frozen_prefix: prefix of the TF1 names of variables that are not trained.
    """
    by_class = None if class_weights is None else np.array(class_weights, np.float32)

    def weights_of(features: Features) -> Tensor:
        """Return the weight of each prediction, float32 [B], or [B, S] for positions."""
        rows = features.get("example_weights")
        if model.task.startswith("token_classification"):
            weights = ops.cast(features["label_ids"] >= 0, "float32")  # [B, S]
            rows = None if rows is None else rows[:, None]
        else:
            weights = ops.ones(ops.shape(features["input_ids"])[:1], "float32")  # [B]
        if by_class is not None:
            weights = weights * ops.take(by_class, ops.maximum(features["label_ids"], 0), axis=0)
        return weights if rows is None else weights * rows

    def weights(features: Features) -> dict[str, Tensor]:
        return {LOSS: ops.sum(weights_of(features))}

    def sums(features: Features, seed: Tensor | None) -> Sums:
        losses, right = _losses(model, features, model(features, seed=seed), multi_label)
        weight = weights_of(features)
        totals = {LOSS: (ops.sum(weight * losses), ops.sum(weight))}
        if right is not None:
            counted = weight if by_class is None else ops.cast(weight > 0, "float32")
            totals["accuracy"] = (ops.sum(counted * right), ops.sum(counted))
        return totals

    variables = variables_by_tf1_name(model)
    frozen = [name for name in variables if frozen_prefix is not None and name.startswith(frozen_prefix)]
    return Objective(
        {name: variable for name, variable in variables.items() if name not in frozen},
        sums,
        weights,
        frozen={name: variables[name] for name in frozen},
        vocab_size=model.config.vocab_size,
    )


def _losses(model: BertForTask, features: Features, logits: Tensor, multi_label: bool) -> tuple[Tensor, Tensor | None]:
    """Return the loss of each prediction and, where defined, its accuracy (1 or 0), float32 [B] or [B, S]."""
    if model.task == "regression":
        return ops.square(logits - features["label_values"]), None
    if model.task == "span":
        targets = [features[name] for name in ("start_positions", "end_positions")]
        start, end = (_cross_entropy(values, target) for values, target in zip(logits, targets, strict=True))
        right = ops.logical_and(*(ops.equal(ops.argmax(v, -1), t) for v, t in zip(logits, targets, strict=True)))
        return (start + end) / 2, ops.cast(right, "float32")
    if multi_label:
        labels = features["label_values"]  # [B, n]
        # -log sigmoid(x) where the label is 1, -log sigmoid(-x) where it is 0, without overflow.
        losses = ops.maximum(logits, 0.0) - logits * labels + ops.log1p(ops.exp(-ops.abs(logits)))
        right = ops.all(ops.equal(logits > 0, labels > 0.5), -1)
        return ops.mean(losses, -1), ops.cast(right, "float32")
    labels = ops.maximum(features["label_ids"], 0)
    return _cross_entropy(logits, labels), ops.cast(ops.equal(ops.argmax(logits, -1), labels), "float32")


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy in nats, float32 [...], of logits [..., n] and labels int [...] in [0, n)."""
    return ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)

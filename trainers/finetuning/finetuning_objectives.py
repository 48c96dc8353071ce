"""The fine-tuning losses (run_classifier.py and run_squad.py; paper, section 4) as an objective of the training loop.

Letters in shapes: B rows, C choices, S positions, n labels.
"""

from collections.abc import Sequence

import tensorflow as tf

from bert_model.checkpoints.variable_names import variables_by_tf1_name
from bert_model.finetuning_models import BertForTask
from trainers.objective import Features, Objective, Sums

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
    by_class = None if class_weights is None else tf.constant(class_weights, tf.float32)

    def weights_of(features: Features) -> tf.Tensor:
        """Return the weight of each prediction, float32 [B], or [B, S] for positions."""
        rows = features.get("example_weights")
        labels = features.get("label_ids", tf.zeros((), tf.int32))
        if model.task.startswith("token_classification"):
            weights = tf.cast(labels >= 0, tf.float32)  # [B, S]
            rows = None if rows is None else rows[:, None]
        else:
            weights = tf.ones(tf.shape(features["input_ids"])[:1])  # [B]
        if by_class is not None:
            weights *= tf.gather(by_class, tf.maximum(labels, 0))
        return weights if rows is None else weights * rows

    def weights(features: Features) -> dict[str, tf.Tensor]:
        return {LOSS: tf.reduce_sum(weights_of(features))}

    def sums(features: Features, seed: tf.Tensor | None) -> Sums:
        losses, right = _losses(model, features, model(features, seed=seed), multi_label)
        weight = weights_of(features)
        totals = {LOSS: (tf.reduce_sum(weight * losses), tf.reduce_sum(weight))}
        if right is not None:
            counted = weight if by_class is None else tf.cast(weight > 0, tf.float32)
            totals["accuracy"] = (tf.reduce_sum(counted * right), tf.reduce_sum(counted))
        return totals

    variables = {name: variable.value for name, variable in variables_by_tf1_name(model).items()}
    frozen = {name for name in variables if frozen_prefix is not None and name.startswith(frozen_prefix)}
    return Objective(
        {name: variable for name, variable in variables.items() if name not in frozen},
        sums,
        weights,
        frozen={name: variables[name] for name in frozen},
        vocab_size=model.config.vocab_size,
    )


def _losses(
    model: BertForTask, features: Features, logits: tf.Tensor, multi_label: bool
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Return the loss of each prediction and, where defined, its accuracy (1 or 0), float32 [B] or [B, S]."""
    if model.task == "regression":
        return tf.math.squared_difference(logits, features["label_values"]), None
    if model.task == "span":
        start, end = (
            tf.nn.sparse_softmax_cross_entropy_with_logits(features[name], values)
            for name, values in zip(("start_positions", "end_positions"), logits, strict=True)
        )
        right = (tf.argmax(logits[0], -1, tf.int32) == features["start_positions"]) & (
            tf.argmax(logits[1], -1, tf.int32) == features["end_positions"]
        )
        return (start + end) / 2, tf.cast(right, tf.float32)
    if multi_label:
        labels = features["label_values"]  # [B, n]
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
        right = tf.reduce_all((logits > 0) == (labels > 0.5), -1)
        return tf.reduce_mean(losses, -1), tf.cast(right, tf.float32)
    labels = tf.maximum(features["label_ids"], 0)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return losses, tf.cast(tf.argmax(logits, -1, tf.int32) == labels, tf.float32)

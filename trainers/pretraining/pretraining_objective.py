"""Define the pretraining objective: losses, and metrics under the names of the released code."""

from keras import ops

from beambert.bert_model.pretraining import BertForPretraining, pretraining_losses
from beambert.bert_model.variable_names import variables_by_tf1_name
from beambert.trainers.objective import Features, Objective, Sums, Tensor

# Metrics of the progress line, with their labels.
SHOWN_METRICS = {"loss": "loss", "masked_lm_accuracy": "MLM accuracy", "next_sentence_accuracy": "NSP accuracy"}


def pretraining_objective(model: BertForPretraining, next_sentence: bool = True) -> Objective:
    """Return the pretraining objective of a model.

    Its metrics are masked_lm_loss and masked_lm_accuracy, weighted means over predictions, and next_sentence_loss and
    next_sentence_accuracy, means over pairs. The loss is the sum of the two losses.

    Args:
        model: a model created in the scope of the devices that train it.
        next_sentence: whether to train next-sentence prediction if the data has labels for it; False is "No NSP" of
            the paper, section 5.1.
    """

    def weights_of(features: Features) -> tuple[Tensor, Tensor | None]:
        """Return the weight of each prediction [B, P] and of each pair [B] or [B, K]."""
        predictions = features["masked_lm_weights"]  # [B, P]
        rows = features.get("example_weights", ops.ones_like(predictions[:, 0]))  # [B]
        pairs = None
        if next_sentence and "next_sentence_labels" in features:
            pairs = features["next_sentence_weights"] * rows[:, None] if "next_sentence_weights" in features else rows
        return predictions * rows[:, None], pairs

    def weights(features: Features) -> dict[str, Tensor]:
        predictions, pairs = weights_of(features)
        terms = {"masked_lm_loss": ops.sum(predictions)}
        if pairs is not None:
            terms["next_sentence_loss"] = ops.sum(pairs)
        return terms

    def sums(features: Features, seed: Tensor | None) -> Sums:
        logits = model(features, seed=seed)
        losses = pretraining_losses(logits, features)
        predictions, pairs = weights_of(features)
        is_correct = ops.equal(ops.argmax(logits.masked_lm, -1), features["masked_lm_ids"])  # [B, P]
        totals = {
            "masked_lm_accuracy": _mean_of(ops.cast(is_correct, "float32"), predictions),
            "masked_lm_loss": _mean_of(losses.masked_lm_per_position, predictions),
        }
        per_pair = losses.next_sentence_per_example  # [B], or [B, K] for packed rows
        if pairs is not None and per_pair is not None:
            labels = ops.reshape(features["next_sentence_labels"], ops.shape(per_pair))
            right = ops.cast(ops.equal(ops.argmax(logits.next_sentence, -1), labels), "float32")
            totals["next_sentence_accuracy"] = _mean_of(right, pairs)
            totals["next_sentence_loss"] = _mean_of(per_pair, pairs)
        return totals

    return Objective(variables_by_tf1_name(model), sums, weights, vocab_size=model.config.vocab_size)


def _mean_of(values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the numerator and the denominator of a weighted mean."""
    return ops.sum(weights * values), ops.sum(weights)

"""Pretraining as a task of the loop: its losses, and the metrics by the names that the released code gives them."""

import tensorflow as tf

from bert_model.names import variables_by_tf1_name
from bert_model.pretraining import BertForPretraining, pretraining_losses
from trainers.loop import Features, Sums, Task

# Metrics on the progress line, with the words for them.
SHOWN_METRICS = {"loss": "loss", "masked_lm_accuracy": "masked LM accuracy"}


def pretraining_task(model: BertForPretraining) -> Task:
    """The task of a model; its sums are masked_lm_loss, masked_lm_accuracy over predictions by weight, and
    next_sentence_loss, next_sentence_accuracy over pairs, which are absent where the data has no such labels."""

    def loss(features: Features, seed: tf.Tensor | None) -> tuple[tf.Tensor, Sums]:
        logits = model(features, seed=seed)
        losses = pretraining_losses(logits, features)
        weights = features["masked_lm_weights"]  # [B, P]
        predictions = tf.reduce_sum(weights)
        right_pieces = tf.argmax(logits.masked_lm, -1, tf.int32) == features["masked_lm_ids"]  # [B, P]
        sums = {
            "masked_lm_accuracy": (tf.reduce_sum(weights * tf.cast(right_pieces, tf.float32)), predictions),
            "masked_lm_loss": (tf.reduce_sum(weights * losses.masked_lm_per_position), predictions),
        }
        per_pair = losses.next_sentence_per_example  # [B], or [B, K] for packed rows
        if per_pair is not None:
            labels = tf.reshape(features["next_sentence_labels"], tf.shape(per_pair))
            right = tf.cast(tf.argmax(logits.next_sentence, -1, tf.int32) == labels, tf.float32)
            weights = features.get("next_sentence_weights", tf.ones_like(per_pair))
            pairs = tf.reduce_sum(weights)
            sums["next_sentence_accuracy"] = (tf.reduce_sum(weights * right), pairs)
            sums["next_sentence_loss"] = (tf.reduce_sum(weights * per_pair), pairs)
        return losses.total, sums

    variables = {name: variable.value for name, variable in variables_by_tf1_name(model).items()}
    return Task(variables, loss, vocab_size=model.config.vocab_size)

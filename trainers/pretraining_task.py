"""Pretraining as a task of the loop: its losses, and the metrics by the names that the released code gives them."""

import tensorflow as tf

from bert_model.names import variables_by_tf1_name
from bert_model.pretraining import BertForPretraining, pretraining_losses
from trainers.loop import Features, Sums, Task

# Metrics on the progress line, with the words for them.
SHOWN_METRICS = {"loss": "loss", "masked_lm_accuracy": "masked LM accuracy"}


def pretraining_task(model: BertForPretraining) -> Task:
    """The task of a model; its sums are masked_lm_loss, masked_lm_accuracy over predictions by weight, and
    next_sentence_loss, next_sentence_accuracy over examples."""

    def loss(features: Features, seed: tf.Tensor | None) -> tuple[tf.Tensor, Sums]:
        logits = model(features, seed=seed)
        losses = pretraining_losses(logits, features)
        weights = features["masked_lm_weights"]  # [B, P]
        labels = tf.reshape(features["next_sentence_labels"], [-1])  # [B]
        predictions = tf.reduce_sum(weights)
        examples = tf.cast(tf.size(labels), tf.float32)
        right_pieces = tf.argmax(logits.masked_lm, -1, tf.int32) == features["masked_lm_ids"]  # [B, P]
        right_sentences = tf.argmax(logits.next_sentence, -1, tf.int32) == labels  # [B]
        sums = {
            "masked_lm_accuracy": (tf.reduce_sum(weights * tf.cast(right_pieces, tf.float32)), predictions),
            "masked_lm_loss": (tf.reduce_sum(weights * losses.masked_lm_per_position), predictions),
            "next_sentence_accuracy": (tf.reduce_sum(tf.cast(right_sentences, tf.float32)), examples),
            "next_sentence_loss": (tf.reduce_sum(losses.next_sentence_per_example), examples),
        }
        return losses.total, sums

    variables = {name: variable.value for name, variable in variables_by_tf1_name(model).items()}
    return Task(variables, loss)

"""The heads of the encoder: linear head of all tasks except the masked-LM head, and text embeddings.

Letters in shapes: B examples, S positions, H hidden size, n labels.
"""

from typing import Any

import keras
from keras import ops

from beambert.bert_model.config import BertConfig
from beambert.bert_model.layers import truncated_normal
from beambert.bert_model.ops import dropout

Tensor = Any


class LinearHead(keras.layers.Layer):
    """Dropout and a linear layer, in float32 under every policy: every head except the masked-LM head.

    Args:
        config: configuration of the model.
        num_labels: number of logits, n.
        dropout_rate: dropout rate of the inputs in training.
        input_size: size of the inputs; None for the hidden size.
    """

    def __init__(
        self,
        config: BertConfig,
        num_labels: int,
        dropout_rate: float = 0.0,
        input_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype="float32", **kwargs)
        self.dropout_rate = dropout_rate
        # Shape [labels, inputs], as in the released code.
        self.output_weights = self.add_weight(
            (num_labels, input_size or config.hidden_size), truncated_normal(config), name="output_weights"
        )
        self.output_bias = self.add_weight((num_labels,), "zeros", name="output_bias")
        self.built = True

    def call(self, inputs: Tensor, seed: Tensor | None = None) -> Tensor:
        """Return the logits of the labels.

        Args:
            inputs: float [B, ..., H], or [B, ..., input_size].
            seed: int32 [2] or [B, 2], seed of the dropout, or None.

        Returns:
            float32 [..., n], logits.
        """
        inputs = dropout(inputs, self.dropout_rate, seed)
        return ops.matmul(inputs, ops.transpose(self.output_weights)) + self.output_bias


def mean_embedding(hidden: Tensor, input_mask: Tensor) -> Tensor:
    """Return the mean of the hidden states of a text, including [CLS] and [SEP], without padding.

    Args:
        hidden: float [B, S, H].
        input_mask: int [B, S], 1 for tokens, 0 for padding.

    Returns:
        float32 [B, H]; zeros for an example without tokens.
    """
    # LiteRT converts expand_dims, but not an index with None.
    mask = ops.expand_dims(ops.cast(input_mask, "float32"), -1)  # [B, S, 1]
    total = ops.sum(ops.cast(hidden, "float32") * mask, axis=1)  # [B, H]
    return total / ops.maximum(ops.sum(mask, axis=1), 1.0)


def cls_embedding(hidden: Tensor) -> Tensor:
    """Return the hidden state of [CLS].

    Args:
        hidden: float [B, S, H].

    Returns:
        float32 [B, H].
    """
    return ops.cast(hidden[:, 0], "float32")

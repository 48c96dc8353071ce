"""The layers of heads: masked-LM head, linear layer of all other heads, and text embeddings.

Letters in shapes: B examples, S positions, P masked positions, H hidden size, V rows of the vocabulary, n labels.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from beambert.bert_model.config import BertConfig
from beambert.bert_model.dropout import dropout
from beambert.bert_model.layers import activation
from beambert.bert_model.parameters import dense, layer_norm, truncated_normal

Tensor = Any

# Logit of vocabulary padding: softmax probability 0, but finite, so that its product with 0 is 0.
PADDED_LOGIT = -1e9


class MaskedLanguageModelHead(keras.layers.Layer):
    """The masked-LM head (paper, section 3.1, task 1; `get_masked_lm_output` of the released run_pretraining.py).

    The output matrix is tied to the word embeddings.

    Args:
        config: configuration of the model.
        vocabulary_rows: rows of the word embeddings; rows from vocab_size on are never predicted.
    """

    def __init__(self, config: BertConfig, vocabulary_rows: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.activation = activation(config)
        self.transform = dense(config.hidden_size, config.hidden_size, config, "transform")
        self.norm = layer_norm(config)
        self.output_bias = self.add_weight((vocabulary_rows,), "zeros", "float32", name="output_bias", autocast=False)
        padding = np.arange(vocabulary_rows) >= config.vocab_size  # [V]
        self.padding_bias = np.where(padding, PADDED_LOGIT, 0.0).astype(np.float32) if padding.any() else None
        self.built = True

    def call(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """Return the logits over the vocabulary.

        Args:
            hidden: float [B, P, H], hidden states of the masked positions.
            word_embeddings: float [V, H].

        Returns:
            float32 [B, P, V], logits.
        """
        batch, predictions, size = ops.shape(hidden)
        hidden = ops.reshape(hidden, (batch * predictions, size))  # [B * P, H]
        hidden = self.norm(self.activation(self.transform(hidden)))  # [B * P, H]
        matrix = ops.cast(word_embeddings, self.compute_dtype)  # [V, H]
        logits = ops.matmul(ops.cast(hidden, matrix.dtype), ops.transpose(matrix))  # [B * P, V]
        bias = self.output_bias if self.padding_bias is None else self.output_bias + self.padding_bias  # [V]
        logits = ops.cast(logits, "float32") + bias
        return ops.reshape(logits, (batch, predictions, self.output_bias.shape[0]))  # [B, P, V]


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

"""The two heads of pretraining (paper, section 3.1; `get_masked_lm_output` and `get_next_sentence_output` of the
released run_pretraining.py).

Letters in shapes: B examples, S positions, P masked positions, H hidden size, V vocabulary size.
"""

from typing import Any

import keras
from keras import ops

from bert_model.config import BertConfig
from bert_model.layers import dense, gelu, layer_norm, truncated_normal

Tensor = Any


class MaskedLanguageModelHead(keras.layers.Layer):
    """Predicts the pieces at the masked positions; its output matrix is the word embedding matrix (tied).

    Args:
        config: shape of the model.
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.transform = dense(config.hidden_size, config.hidden_size, config, "transform")
        self.norm = layer_norm(config)
        self.output_bias = self.add_weight((config.vocab_size,), "zeros", name="output_bias")
        self.built = True

    def call(self, hidden: Tensor, positions: Tensor, word_embeddings: Tensor) -> Tensor:
        """Scores every piece of the vocabulary, at the masked positions alone.

        Args:
            hidden: float [B, S, H], the encoder's output.
            positions: int [B, P], indices into S.
            word_embeddings: float [V, H].

        Returns:
            float [B, P, V], logits.
        """
        batch, length, size = ops.shape(hidden)
        predictions = ops.shape(positions)[1]
        flat = ops.reshape(hidden, (batch * length, size))  # [B * S, H]
        first = ops.expand_dims(ops.arange(batch, dtype="int32") * length, 1)  # [B, 1]
        masked = ops.take(flat, ops.reshape(ops.cast(positions, "int32") + first, (-1,)), axis=0)  # [B * P, H]
        masked = self.norm(gelu(self.transform(masked)))  # [B * P, H]
        matrix = ops.cast(word_embeddings, self.compute_dtype)  # [V, H]
        logits = ops.matmul(ops.cast(masked, matrix.dtype), ops.transpose(matrix)) + self.output_bias  # [B * P, V]
        return ops.reshape(logits, (batch, predictions, -1))  # [B, P, V]


class NextSentenceHead(keras.layers.Layer):
    """Tells whether segment B followed segment A: class 0 says that it did, class 1 that B is from elsewhere.

    Args:
        config: shape of the model.
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_weights = self.add_weight((2, config.hidden_size), truncated_normal(config), name="output_weights")
        self.output_bias = self.add_weight((2,), "zeros", name="output_bias")
        self.built = True

    def call(self, pooled: Tensor) -> Tensor:
        """Scores the two classes.

        Args:
            pooled: float [B, H].

        Returns:
            float [B, 2], logits.
        """
        return ops.matmul(pooled, ops.transpose(self.output_weights)) + self.output_bias

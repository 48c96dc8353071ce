"""One Transformer layer of BERT (paper, section 3; `transformer_model` of the released modeling.py).

Keras layers hold the parameters; the arithmetic is keras.ops alone, so that it runs under every backend.
Letters in shapes: B examples, S positions, H hidden size, A heads, D = H / A, I intermediate size.
"""

import math
from typing import Any

import keras
from keras import ops

from bert_model.config import BertConfig
from bert_model.dropout import dropout, fold_in

Tensor = Any

LAYER_NORM_EPSILON = 1e-12
# What the released code adds to the score of a padding position.
MASKED_SCORE = -10000.0


def truncated_normal(config: BertConfig) -> keras.initializers.Initializer:
    """The initializer of every weight matrix: normal, redrawn beyond two standard deviations."""
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def gelu(inputs: Tensor) -> Tensor:
    """GELU in the tanh form that the released code computes: x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))."""
    # The same function by way of (1 + tanh(z)) / 2 = sigmoid(2z), and without the power that makes the library's own
    # form five times slower on a CPU.
    scale = 2.0 * math.sqrt(2.0 / math.pi)
    return inputs * ops.sigmoid(inputs * (scale + (scale * 0.044715) * (inputs * inputs)))


def dense(units: int, input_size: int, config: BertConfig, name: str) -> keras.layers.Dense:
    """A built dense layer: kernel [input_size, units], bias [units]."""
    layer = keras.layers.Dense(units, kernel_initializer=truncated_normal(config), name=name)
    layer.build((None, input_size))
    return layer


def layer_norm(config: BertConfig) -> keras.layers.LayerNormalization:
    """A built layer normalisation over the hidden size, in float32: gamma [H], beta [H]."""
    layer = keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON, dtype="float32", name="LayerNorm")
    layer.build((None, config.hidden_size))
    return layer


class SelfAttention(keras.layers.Layer):
    """Multi-head self-attention without its output projection.

    Args:
        config: shape of the model.
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads = config.num_attention_heads
        self.dropout_rate = config.attention_probs_dropout_prob
        hidden = config.hidden_size
        self.query = dense(hidden, hidden, config, "query")
        self.key = dense(hidden, hidden, config, "key")
        self.value = dense(hidden, hidden, config, "value")
        self.built = True

    def call(self, hidden: Tensor, attention_bias: Tensor, seed: Tensor | None = None) -> Tensor:
        """Mixes positions.

        Args:
            hidden: float [B, S, H].
            attention_bias: float [B, 1, 1, S], 0 for real positions, -10000 for padding.
            seed: int32 [2] of the dropout of the attention probabilities, or None.

        Returns:
            float [B, S, H].
        """
        batch, length, size = ops.shape(hidden)
        head_size = size // self.heads

        def split_heads(projected: Tensor) -> Tensor:
            projected = ops.reshape(projected, (batch, length, self.heads, head_size))  # [B, S, A, D]
            return ops.transpose(projected, (0, 2, 1, 3))  # [B, A, S, D]

        # Scaling the queries instead of the scores is the same product, on a far smaller tensor.
        query = split_heads(self.query(hidden) * (1.0 / math.sqrt(head_size)))  # [B, A, S, D]
        key = split_heads(self.key(hidden))  # [B, A, S, D]
        value = split_heads(self.value(hidden))  # [B, A, S, D]

        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # [B, A, S, S]
        probabilities = ops.softmax(scores + ops.cast(attention_bias, scores.dtype), axis=-1)  # [B, A, S, S]
        probabilities = dropout(probabilities, self.dropout_rate, seed)
        context = ops.transpose(ops.matmul(probabilities, value), (0, 2, 1, 3))  # [B, S, A, D]
        return ops.reshape(context, (batch, length, size))  # [B, S, H]


class TransformerLayer(keras.layers.Layer):
    """Self-attention and feed-forward, each followed by dropout, the residual and layer normalisation (post-LN).

    Uses `DROPOUT_SITES` consecutive dropout seeds.

    Args:
        config: shape of the model.
    """

    DROPOUT_SITES = 3

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        hidden, intermediate = config.hidden_size, config.intermediate_size
        self.dropout_rate = config.hidden_dropout_prob
        self.attention = SelfAttention(config, name="attention")
        self.attention_output = dense(hidden, hidden, config, "attention_output")
        self.attention_norm = layer_norm(config)
        self.intermediate = dense(intermediate, hidden, config, "intermediate")
        self.output_dense = dense(hidden, intermediate, config, "output")
        self.output_norm = layer_norm(config)
        self.built = True

    def call(self, hidden: Tensor, attention_bias: Tensor, seed: Tensor | None = None) -> Tensor:
        """Runs the layer.

        Args:
            hidden: float [B, S, H].
            attention_bias: float [B, 1, 1, S], 0 for real positions, -10000 for padding.
            seed: int32 [2], the first of the layer's dropout seeds, or None for no dropout.

        Returns:
            float [B, S, H].
        """
        attended = self.attention_output(self.attention(hidden, attention_bias, seed))  # [B, S, H]
        attended = dropout(attended, self.dropout_rate, fold_in(seed, 1))
        hidden = self.attention_norm(hidden + ops.cast(attended, hidden.dtype))  # [B, S, H]

        transformed = self.output_dense(gelu(self.intermediate(hidden)))  # [B, S, I] inside, [B, S, H]
        transformed = dropout(transformed, self.dropout_rate, fold_in(seed, 2))
        return self.output_norm(hidden + ops.cast(transformed, hidden.dtype))  # [B, S, H]

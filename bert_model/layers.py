"""The Transformer layer of BERT (paper, section 3; `transformer_model` of the released modeling.py).

Keras layers contain the parameters; all arithmetic uses keras.ops, so that it runs under every backend.
Letters in shapes: B examples, S positions, Q query positions, H hidden size, A heads, I intermediate size.
"""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from beambert.bert_model.attention import SelfAttention
from beambert.bert_model.config import BertConfig
from beambert.bert_model.dropout import dropout, fold_in
from beambert.bert_model.parameters import dense, layer_norm

Tensor = Any


def gelu(inputs: Tensor) -> Tensor:
    """Return GELU in the tanh form of the released code: x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))."""
    # Computed with (1 + tanh(z)) / 2 = sigmoid(2z), without the power that makes the library's form five times slower
    # on a CPU. The custom gradient saves one tensor for the backward pass instead of four.
    scale = 2.0 * math.sqrt(2.0 / math.pi)
    is_jax = keras.backend.backend() == "jax"

    @ops.custom_gradient
    def with_gradient(inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        share = ops.sigmoid(inputs * (scale + (scale * 0.044715) * (inputs * inputs)))
        outputs = inputs * share

        def gradient(upstream: Tensor) -> Tensor:
            slope = scale + (3.0 * scale * 0.044715) * (inputs * inputs)
            # XLA computes `share` again from the inputs; with the outputs it would read one more tensor.
            rest = inputs * (share * (1.0 - share)) if is_jax else outputs - outputs * share
            return upstream * (share + rest * slope)

        return outputs, gradient

    return with_gradient(inputs)


def gelu_erf(inputs: Tensor) -> Tensor:
    """Return the exact GELU: x/2 * (1 + erf(x / sqrt(2)))."""
    return inputs * (0.5 * (1.0 + ops.erf(inputs * math.sqrt(0.5))))


def activation(config: BertConfig) -> Callable[[Tensor], Tensor]:
    """Return the activation function of `hidden_act`."""
    return {"gelu": gelu, "gelu_erf": gelu_erf, "relu": ops.relu}[config.hidden_act]


def library_activation(config: BertConfig) -> Callable[[Tensor], Tensor]:
    """Return the activation function of `hidden_act` as Keras computes it: equal up to rounding, with a slow gradient.

    TensorFlow recognizes it after a dense layer and fuses both with oneDNN.
    """
    return {
        "gelu": lambda inputs: ops.gelu(inputs, approximate=True),
        "gelu_erf": lambda inputs: ops.gelu(inputs, approximate=False),
        "relu": ops.relu,
    }[config.hidden_act]


class TransformerLayer(keras.layers.Layer):
    """Self-attention and feed-forward, each followed by dropout, residual and layer normalization (post-LN).

    Uses `DROPOUT_SITES` consecutive dropout seeds. A call has no state, as activation checkpointing requires.

    Args:
        config: configuration of the model.
        fused_attention: as in `SelfAttention`.
    """

    DROPOUT_SITES = 3

    def __init__(self, config: BertConfig, fused_attention: bool | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        hidden, intermediate = config.hidden_size, config.intermediate_size
        self.dropout_rate = config.hidden_dropout_prob
        self.attention = SelfAttention(config, fused_attention, name="attention")
        self.attention_output = dense(hidden, hidden, config, "attention_output")
        self.attention_norm = layer_norm(config)
        self.intermediate = dense(intermediate, hidden, config, "intermediate", activation(config))
        self.output_dense = dense(hidden, intermediate, config, "output")
        self.output_norm = layer_norm(config)
        self.built = True

    def call(
        self,
        hidden: Tensor,
        attention_bias: Tensor,
        seed: Tensor | None = None,
        queries: Tensor | None = None,
        *,
        maps: bool = False,
    ) -> Any:
        """Run the layer.

        Args:
            hidden: float [B, S, H].
            attention_bias: float [B, 1, 1 or Q, S], added to attention scores.
            seed: int32 [2] or [B, 2], first dropout seed of the layer, or None for no dropout.
            queries: float [B, Q, H], positions of `hidden` to compute; None for all, Q = S.
            maps: whether to return the attention probabilities.

        Returns:
            float [B, Q, H]; with `maps`, a pair of it and the attention probabilities, float32 [B, A, Q, S].
        """
        residual = hidden if queries is None else queries  # [B, Q, H]
        attended, probabilities = self.attention(residual, hidden, attention_bias, seed, maps=maps)
        attended = dropout(self.attention_output(attended), self.dropout_rate, fold_in(seed, 1))  # [B, Q, H]
        residual = self.attention_norm(residual + ops.cast(attended, residual.dtype))  # [B, Q, H]

        transformed = self.output_dense(self.intermediate(residual))  # [B, Q, I] inside, [B, Q, H]
        transformed = dropout(transformed, self.dropout_rate, fold_in(seed, 2))
        output = self.output_norm(residual + ops.cast(transformed, residual.dtype))  # [B, Q, H]
        return (output, probabilities) if maps else output


def gather_positions(values: Tensor, positions: Tensor) -> Tensor:
    """Return the vectors of each example at its positions.

    Args:
        values: [B, S, H].
        positions: int [B, Q], indices into S.

    Returns:
        [B, Q, H].
    """
    if keras.backend.backend() == "jax":
        from beambert.bert_model.jax_lookup import take_positions

        return take_positions(values, positions)
    batch, length, size = ops.shape(values)
    flat = ops.reshape(values, (batch * length, size))  # [B * S, H]
    first = ops.expand_dims(ops.arange(batch, dtype="int32") * length, 1)  # [B, 1]
    return ops.take(flat, ops.cast(positions, "int32") + first, axis=0)  # [B, Q, H]


def take_rows(table: keras.Variable, ids: Tensor) -> Tensor:
    """Return rows of an embedding table.

    Args:
        table: float32 [V, H].
        ids: int [...], in [0, V).

    Returns:
        float32 [..., H].
    """
    if keras.backend.backend() == "jax":
        from beambert.bert_model import jax_lookup

        return jax_lookup.take_rows(table.value, ids)
    return ops.take(table, ids, axis=0)

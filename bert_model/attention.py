"""Self-attention and attention masks (paper, section 3; `attention_layer` of the released modeling.py).

Letters in shapes: B examples, S positions, Q query positions, H hidden size, A heads, D = H / A.
"""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from beambert.bert_model.config import BertConfig
from beambert.bert_model.dropout import dropout
from beambert.bert_model.parameters import dense

Tensor = Any

# Added to the attention scores of masked positions, as in the released code.
MASKED_SCORE = -10000.0


def attention_bias(input_mask: Tensor, sequence_ids: Tensor | None = None, causal_attention: bool = False) -> Tensor:
    """Return the bias of the attention scores: 0 where a position may attend to another, -10000 elsewhere.

    Args:
        input_mask: int [B, S], 1 for tokens, 0 for padding, which is masked.
        sequence_ids: int [B, S], for packed rows: positions attend only to positions with the same id.
        causal_attention: whether a position attends only to itself and earlier positions, as in the ablation "LTR" of
            the paper (section 5.1).

    Returns:
        float32 [B, 1, 1, S], or [B, 1, S, S] with `sequence_ids` or `causal_attention`.
    """
    # LiteRT converts expand_dims, but not an index with None.
    visible = ops.expand_dims(ops.cast(input_mask, "bool"), 1)  # [B, 1, S]
    if sequence_ids is not None:
        visible = ops.logical_and(visible, _same_sequence(sequence_ids))  # [B, S, S]
    if causal_attention:
        positions = ops.arange(ops.shape(input_mask)[1])
        visible = ops.logical_and(visible, positions[:, None] >= positions[None, :])  # [B, S, S]
    return ((1.0 - ops.cast(visible, "float32")) * MASKED_SCORE)[:, None]  # [B, 1, 1 or S, S]


def positions_in_sequence(sequence_ids: Tensor) -> Tensor:
    """Return position ids that restart at every instance of a packed row.

    Args:
        sequence_ids: int [B, S].

    Returns:
        int32 [B, S].
    """
    positions = ops.arange(ops.shape(sequence_ids)[1])
    earlier = ops.logical_and(_same_sequence(sequence_ids), positions[:, None] > positions[None, :])  # [B, S, S]
    return ops.sum(ops.cast(earlier, "int32"), axis=-1)  # [B, S]


def _same_sequence(sequence_ids: Tensor) -> Tensor:
    return ops.equal(sequence_ids[:, :, None], sequence_ids[:, None, :])  # [B, S, S]


class SelfAttention(keras.layers.Layer):
    """Multi-head self-attention without the output projection.

    Args:
        config: configuration of the model.
        fused_attention: whether to compute attention in one kernel (`jax_attention.py`) under JAX, where it supports
            dtype and shapes and no attention maps are needed; None, the default, where the first device is a GPU that
            can run it. Without a GPU, True interprets the kernel slowly, for tests.

    Attributes:
        wrap_mixing: None, or a wrapper of the attention computation from queries, keys and values, called with
            positional tensors. Its tensors of size B A Q S grow with the square of S.
    """

    def __init__(self, config: BertConfig, fused_attention: bool | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads = config.num_attention_heads
        self.dropout_rate = config.attention_probs_dropout_prob
        has_kernel = keras.backend.backend() == "jax" and _has_kernel()
        self.fused_attention = has_kernel if fused_attention is None else fused_attention
        self.interpret_kernel = not has_kernel
        self.wrap_mixing: Callable[[Callable[..., Tensor]], Callable[..., Tensor]] | None = None
        hidden = config.hidden_size
        self.query = dense(hidden, hidden, config, "query")
        self.key = dense(hidden, hidden, config, "key")
        self.value = dense(hidden, hidden, config, "value")
        self.built = True

    def call(
        self, queries: Tensor, hidden: Tensor, attention_bias: Tensor, seed: Tensor | None = None, *, maps: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Compute attention for the query positions.

        Args:
            queries: float [B, Q, H], query positions.
            hidden: float [B, S, H], key and value positions.
            attention_bias: float [B, 1, 1 or Q, S], added to the scores.
            seed: int32 [2] or [B, 2], seed of the attention dropout, or None.
            maps: whether to return the attention probabilities.

        Returns:
            float [B, Q, H], and the probabilities before dropout, float32 [B, A, Q, S], or None without `maps`.
        """
        batch, query_length, size = ops.shape(queries)
        head_size = size // self.heads

        def split_heads(projected: Tensor, length: Any) -> Tensor:
            return ops.reshape(projected, (batch, length, self.heads, head_size))  # [B, length, A, D]

        # Scaling the queries instead of the scores gives the same product on a smaller tensor.
        query = split_heads(self.query(queries) * (1.0 / math.sqrt(head_size)), query_length)  # [B, Q, A, D]
        key = split_heads(self.key(hidden), ops.shape(hidden)[1])  # [B, S, A, D]
        value = split_heads(self.value(hidden), ops.shape(hidden)[1])  # [B, S, A, D]

        if self.fused_attention and keras.backend.backend() == "jax" and not maps:
            from beambert.bert_model import jax_attention

            if jax_attention.is_supported(query, key, seed):
                context = jax_attention.attention(
                    query, key, value, attention_bias, seed, self.dropout_rate, interpret=self.interpret_kernel
                )
                return ops.reshape(context, (batch, query_length, size)), None  # [B, Q, H]

        mix = self._mix if self.wrap_mixing is None else self.wrap_mixing(self._mix)
        if not maps:
            return mix(query, key, value, attention_bias, seed), None
        return self._mix(query, key, value, attention_bias, seed, maps=True)

    def _mix(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_bias: Tensor,
        seed: Tensor | None,
        *,
        maps: bool = False,
    ) -> Any:
        """Return the attention output, [B, Q, H]; with `maps` also the probabilities [B, A, Q, S]."""
        batch, query_length, heads, head_size = ops.shape(query)
        query = ops.transpose(query, (0, 2, 1, 3))  # [B, A, Q, D]
        scores = ops.matmul(query, ops.transpose(key, (0, 2, 3, 1)))  # [B, A, Q, S]
        bias = ops.cast(attention_bias, "float32")
        if keras.backend.backend() == "jax" and not maps:
            from beambert.bert_model.jax_gradients import softmax

            probabilities = softmax(scores, bias)  # [B, A, Q, S]
        else:
            probabilities = ops.softmax(ops.cast(scores, "float32") + bias, axis=-1)  # [B, A, Q, S]
        kept = dropout(ops.cast(probabilities, value.dtype), self.dropout_rate, seed)
        context = ops.matmul(kept, ops.transpose(value, (0, 2, 1, 3)))  # [B, A, Q, D]
        context = ops.reshape(ops.transpose(context, (0, 2, 1, 3)), (batch, query_length, heads * head_size))
        return (context, probabilities) if maps else context  # [B, Q, H]


def _has_kernel() -> bool:
    """Return whether JAX's first device can run `jax_attention.py`: an NVIDIA GPU with bfloat16 products (Ampere)."""
    import jax

    try:
        return float(jax.local_devices()[0].compute_capability) >= 8.0
    except (AttributeError, ValueError):  # A CPU or TPU; an AMD GPU.
        return False

"""Self-attention and the masks that say who attends to whom (paper, section 3; `attention_layer` of modeling.py).

Letters in shapes: B examples, S positions, Q query positions, H hidden size, A heads, D = H / A.
"""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bert_model.config import BertConfig
from bert_model.dropout import dropout
from bert_model.parameters import dense

Tensor = Any

# What the released code adds to the score of a position that is not to be attended to.
MASKED_SCORE = -10000.0


def attention_bias(input_mask: Tensor, sequence_ids: Tensor | None = None, causal_attention: bool = False) -> Tensor:
    """Return what is added to attention scores: 0 where a position may attend to another, -10000 where not.

    Args:
        input_mask: int [B, S], 1 for real positions, 0 for padding, which no position attends to.
        sequence_ids: int [B, S], for rows of several instances: attention only within equal ids.
        causal_attention: whether a position attends to itself and those before it alone, as in the ablation "LTR" of
            the paper (section 5.1).

    Returns:
        float32 [B, 1, 1, S], or [B, 1, S, S] with `sequence_ids` or `causal_attention`.
    """
    # An operation of its own rather than an index with None: LiteRT converts only that.
    visible = ops.expand_dims(ops.cast(input_mask, "bool"), 1)  # [B, 1, S]
    if sequence_ids is not None:
        visible = ops.logical_and(visible, _same_sequence(sequence_ids))  # [B, S, S]
    if causal_attention:
        positions = ops.arange(ops.shape(input_mask)[1])
        visible = ops.logical_and(visible, positions[:, None] >= positions[None, :])  # [B, S, S]
    return ((1.0 - ops.cast(visible, "float32")) * MASKED_SCORE)[:, None]  # [B, 1, 1 or S, S]


def positions_in_sequence(sequence_ids: Tensor) -> Tensor:
    """Return position ids that restart at every instance of a row: the count of earlier positions of equal id.

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
    """Multi-head self-attention without its output projection.

    Args:
        config: shape of the model.
        fused_attention: whether to use the backend's own attention where no dropout and no map is asked for; None,
            the default, uses it under JAX on a GPU, where Keras picks a fused kernel if dtype and shapes allow.

    Attributes:
        wrap_mixing: None, or what to wrap the step from queries, keys and values to their mixture in, before it is
            called with positional tensors; its tensors of size B A Q S are the ones that grow with the square of S.
    """

    def __init__(self, config: BertConfig, fused_attention: bool | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads = config.num_attention_heads
        self.dropout_rate = config.attention_probs_dropout_prob
        has_kernel = keras.backend.backend() == "jax" and any(
            device.startswith("gpu") for device in keras.distribution.list_devices()
        )
        self.fused_attention = has_kernel if fused_attention is None else fused_attention
        # None lets Keras choose. On a TPU it would choose a kernel that it gives no bias, so that padding took part.
        self.flash_attention = None if has_kernel else False
        self.wrap_mixing: Callable[[Callable[..., Tensor]], Callable[..., Tensor]] | None = None
        hidden = config.hidden_size
        self.query = dense(hidden, hidden, config, "query")
        self.key = dense(hidden, hidden, config, "key")
        self.value = dense(hidden, hidden, config, "value")
        self.built = True

    def call(
        self, queries: Tensor, hidden: Tensor, attention_bias: Tensor, seed: Tensor | None = None, *, maps: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Mix the positions of each example.

        Args:
            queries: float [B, Q, H], the positions that attend.
            hidden: float [B, S, H], the positions attended to.
            attention_bias: float [B, 1, 1 or Q, S], added to the scores.
            seed: int32 [2] of the dropout of the attention probabilities, or None.
            maps: whether the probabilities are wanted.

        Returns:
            float [B, Q, H], and the probabilities before dropout, float32 [B, A, Q, S], or None if not wanted.
        """
        batch, query_length, size = ops.shape(queries)
        head_size = size // self.heads

        def split_heads(projected: Tensor, length: Any) -> Tensor:
            return ops.reshape(projected, (batch, length, self.heads, head_size))  # [B, length, A, D]

        # Scaling the queries instead of the scores is the same product, on a far smaller tensor.
        query = split_heads(self.query(queries) * (1.0 / math.sqrt(head_size)), query_length)  # [B, Q, A, D]
        key = split_heads(self.key(hidden), ops.shape(hidden)[1])  # [B, S, A, D]
        value = split_heads(self.value(hidden), ops.shape(hidden)[1])  # [B, S, A, D]

        if self.fused_attention and not maps and (seed is None or self.dropout_rate == 0):
            # cuDNN's kernel wants a bias with a row for every query.
            bias = ops.broadcast_to(attention_bias, (batch, 1, query_length, ops.shape(hidden)[1]))
            context = ops.dot_product_attention(
                query, key, value, bias, scale=1.0, flash_attention=self.flash_attention
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
        """Return values mixed by attention, [B, Q, H]; with `maps` the probabilities [B, A, Q, S] too."""
        batch, query_length, heads, head_size = ops.shape(query)
        query = ops.transpose(query, (0, 2, 1, 3))  # [B, A, Q, D]
        scores = ops.matmul(query, ops.transpose(key, (0, 2, 3, 1)))  # [B, A, Q, S]
        scores = ops.cast(scores, "float32") + ops.cast(attention_bias, "float32")
        probabilities = ops.softmax(scores, axis=-1)  # [B, A, Q, S]
        kept = dropout(ops.cast(probabilities, value.dtype), self.dropout_rate, seed)
        context = ops.matmul(kept, ops.transpose(value, (0, 2, 1, 3)))  # [B, A, Q, D]
        context = ops.reshape(ops.transpose(context, (0, 2, 1, 3)), (batch, query_length, heads * head_size))
        return (context, probabilities) if maps else context  # [B, Q, H]

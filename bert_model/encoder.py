"""The BERT encoder (paper, section 3; `BertModel` of the released modeling.py): embeddings, Transformer layers, pooler.

Keras layers contain the parameters. Letters in shapes: B examples, S positions, Q query or output positions, K
instances of a packed row, H hidden size, A heads, D = H / A, I intermediate size.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
from keras import ops

from beambert.bert_model.config import BertConfig
from beambert.bert_model.layers import Dense, LayerNormalization, activation, truncated_normal
from beambert.bert_model.ops import (
    attention,
    attention_probabilities,
    dropout,
    fold_in,
    rematerialized,
    row_major,
    take_positions,
    take_rows,
)

Tensor = Any

# Added to the attention scores of masked positions, as in the released code.
MASKED_SCORE = -10000.0


class Packing(NamedTuple):
    """The instances of packed rows: attention is restricted to an instance, and positions are counted from its start.

    Attributes:
        sequence_ids: int [B, S], 1, 2, 3, ... for the instances of a row, 0 for padding.
        cls_positions: int [B, K], position of [CLS] of each instance; None for position 0 of the row.
    """

    sequence_ids: Tensor
    cls_positions: Tensor | None = None

    @property
    def same_sequence(self) -> Tensor:
        """Return whether two positions belong to the same instance, bool [B, S, S]."""
        return ops.equal(self.sequence_ids[:, :, None], self.sequence_ids[:, None, :])

    @property
    def position_ids(self) -> Tensor:
        """Return position ids that restart at every instance, int32 [B, S]."""
        positions = ops.arange(ops.shape(self.sequence_ids)[1])
        earlier = ops.logical_and(self.same_sequence, positions[:, None] > positions[None, :])  # [B, S, S]
        return ops.sum(ops.cast(earlier, "int32"), axis=-1)


class Embeddings(keras.layers.Layer):
    """Sum of word, position and segment embeddings, with layer normalization and dropout, in float32 (paper, figure 2).

    Args:
        config: configuration of the model.
        vocabulary_rows: rows of the word embeddings, at least vocab_size.
    """

    def __init__(self, config: BertConfig, vocabulary_rows: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dropout_rate = config.hidden_dropout_prob

        def table(rows: int, name: str) -> keras.Variable:
            shape = (rows, config.hidden_size)
            return self.add_weight(shape, truncated_normal(config), "float32", name=name, autocast=False)

        self.word_embeddings = table(vocabulary_rows, "word_embeddings")
        self.token_type_embeddings = table(config.type_vocab_size, "token_type_embeddings")
        self.position_embeddings = table(config.max_position_embeddings, "position_embeddings")
        self.norm = LayerNormalization(config, name="LayerNorm")
        self.built = True

    def call(
        self, input_ids: Tensor, segment_ids: Tensor, seed: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Tensor:
        """Embed tokens.

        Args:
            input_ids: int [B, S], in [0, vocab_size).
            segment_ids: int [B, S], in [0, type_vocab_size).
            seed: int32 [2] or [B, 2], seed of the dropout, or None.
            position_ids: int [B, S], in [0, max_position_embeddings); None for 0, 1, 2, ...

        Returns:
            float32 [B, S, H].
        """
        words = take_rows(self.word_embeddings, input_ids)  # [B, S, H]
        # Look-up by a product with one-hot vectors, as in the released code: its gradient is a matrix product too,
        # while that of a gather would scatter all positions into the same few rows.
        one_hot = ops.one_hot(segment_ids, self.token_type_embeddings.shape[0], dtype="float32")  # [B, S, 2]
        segments = ops.matmul(one_hot, self.token_type_embeddings)  # [B, S, H]
        if position_ids is None:
            positions = self.position_embeddings[: ops.shape(input_ids)[1]]  # [S, H]
        else:
            positions = take_rows(self.position_embeddings, position_ids)  # [B, S, H]
        return dropout(self.norm(row_major(words + segments + positions)), self.dropout_rate, seed)  # [B, S, H]


def attention_bias(input_mask: Tensor, packing: Packing | None = None, causal_attention: bool = False) -> Tensor:
    """Return the bias of the attention scores: 0 where a position may attend to another, -10000 elsewhere.

    Args:
        input_mask: int [B, S], 1 for tokens, 0 for padding, which is masked.
        packing: the instances of packed rows: positions attend only to positions of the same instance.
        causal_attention: whether a position attends only to itself and earlier positions, as in the ablation "LTR" of
            the paper (section 5.1).

    Returns:
        float32 [B, 1, 1, S], or [B, 1, S, S] with `packing` or `causal_attention`.
    """
    # LiteRT converts expand_dims, but not an index with None.
    visible = ops.expand_dims(ops.cast(input_mask, "bool"), 1)  # [B, 1, S]
    if packing is not None:
        visible = ops.logical_and(visible, packing.same_sequence)  # [B, S, S]
    if causal_attention:
        positions = ops.arange(ops.shape(input_mask)[1])
        visible = ops.logical_and(visible, positions[:, None] >= positions[None, :])  # [B, S, S]
    return ((1.0 - ops.cast(visible, "float32")) * MASKED_SCORE)[:, None]  # [B, 1, 1 or S, S]


class SelfAttention(keras.layers.Layer):
    """Multi-head self-attention without the output projection (`attention_layer` of the released modeling.py).

    Args:
        config: configuration of the model.

    Attributes:
        rematerialize: whether the backward pass computes the scores and what follows from them again.
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads = config.num_attention_heads
        self.dropout_rate = config.attention_probs_dropout_prob
        self.rematerialize = False
        hidden = config.hidden_size
        self.query = Dense(config, hidden, hidden, name="query")
        self.key = Dense(config, hidden, hidden, name="key")
        self.value = Dense(config, hidden, hidden, name="value")
        self.built = True

    def call(self, queries: Tensor, hidden: Tensor, attention_bias: Tensor, seed: Tensor | None = None) -> Tensor:
        """Compute attention for the query positions.

        Args:
            queries: float [B, Q, H], query positions.
            hidden: float [B, S, H], key and value positions.
            attention_bias: float [B, 1, 1 or Q, S], added to the scores.
            seed: int32 [2] or [B, 2], seed of the attention dropout, or None.

        Returns:
            float [B, Q, H].
        """
        query, key = self._scaled_query(queries), self._split_heads(self.key, hidden)  # [B, Q, A, D], [B, S, A, D]
        value = self._split_heads(self.value, hidden)  # [B, S, A, D]
        context = attention(
            query, key, value, attention_bias, seed, self.dropout_rate, rematerialize=self.rematerialize
        )  # [B, Q, A, D]
        return ops.reshape(context, ops.shape(queries))  # [B, Q, H]

    def probabilities(self, hidden: Tensor, attention_bias: Tensor) -> Tensor:
        """Return the attention probabilities without dropout, float32 [B, A, S, S], of hidden states [B, S, H]."""
        query, key = self._scaled_query(hidden), self._split_heads(self.key, hidden)
        return attention_probabilities(query, key, attention_bias)

    def _scaled_query(self, queries: Tensor) -> Tensor:
        # Scaling the queries instead of the scores gives the same product on a smaller tensor.
        scale = 1.0 / math.sqrt(queries.shape[-1] // self.heads)
        return self._split_heads(lambda inputs: self.query(inputs) * scale, queries)

    def _split_heads(self, project: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        # The shape of the inputs: tf2onnx mistakes that of a projection for the two axes of its matrix product.
        batch, length, size = ops.shape(inputs)
        return ops.reshape(project(inputs), (batch, length, self.heads, size // self.heads))  # [B, length, A, D]


class TransformerLayer(keras.layers.Layer):
    """Self-attention and feed-forward, each followed by dropout, residual and layer normalization (post-LN).

    Uses `DROPOUT_SITES` consecutive dropout seeds. A call has no state, as rematerialization requires.

    Args:
        config: configuration of the model.
    """

    DROPOUT_SITES = 3

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        hidden, intermediate = config.hidden_size, config.intermediate_size
        self.dropout_rate = config.hidden_dropout_prob
        self.attention = SelfAttention(config, name="attention")
        self.attention_output = Dense(config, hidden, hidden, name="attention_output")
        self.attention_norm = LayerNormalization(config, name="LayerNorm")
        self.intermediate = Dense(config, hidden, intermediate, activation(config), name="intermediate")
        self.output_dense = Dense(config, intermediate, hidden, name="output")
        self.output_norm = LayerNormalization(config, name="LayerNorm")
        self.built = True

    def call(
        self, hidden: Tensor, attention_bias: Tensor, seed: Tensor | None = None, queries: Tensor | None = None
    ) -> Tensor:
        """Run the layer.

        Args:
            hidden: float [B, S, H].
            attention_bias: float [B, 1, 1 or Q, S], added to attention scores.
            seed: int32 [2] or [B, 2], first dropout seed of the layer, or None for no dropout.
            queries: float [B, Q, H], positions of `hidden` to compute; None for all, Q = S.

        Returns:
            float [B, Q, H].
        """
        residual = hidden if queries is None else queries  # [B, Q, H]
        attended = self.attention(residual, hidden, attention_bias, seed)
        attended = dropout(self.attention_output(attended), self.dropout_rate, fold_in(seed, 1))  # [B, Q, H]
        residual = self.attention_norm(residual + ops.cast(attended, residual.dtype))  # [B, Q, H]

        transformed = self.output_dense(self.intermediate(residual))  # [B, Q, I] inside, [B, Q, H]
        transformed = dropout(transformed, self.dropout_rate, fold_in(seed, 2))
        return self.output_norm(residual + ops.cast(transformed, residual.dtype))  # [B, Q, H]


class BertEncoder(keras.layers.Layer):
    """BERT without a head.

    Uses `dropout_sites` consecutive dropout seeds; heads use the seeds after them.

    Args:
        config: configuration of the model.
        vocabulary_rows: rows of the word embeddings, where they are padded; None for vocab_size.
        causal_attention: whether a position attends only to itself and earlier positions.

    Example::

        encoder = BertEncoder(BertConfig.preset("tiny", vocab_size=30522))
        hidden, pooled = encoder(input_ids, input_mask, segment_ids)
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        vocabulary_rows: int | None = None,
        causal_attention: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.causal_attention = causal_attention
        self.embeddings = Embeddings(config, vocabulary_rows or config.vocab_size, name="embeddings")
        self.layers = [TransformerLayer(config, name=f"layer_{index}") for index in range(config.num_hidden_layers)]
        self.pooler = Dense(config, config.hidden_size, config.hidden_size, name="pooler")
        self.dropout_sites = 1 + TransformerLayer.DROPOUT_SITES * config.num_hidden_layers
        self._rematerialize_layers = False
        self.built = True

    def set_activation_checkpointing(self, scope: str) -> None:
        """Set which activations the backward pass computes again, from the next trace of a step.

        Gradients stay the same: dropout is a function of its seed, so that the masks of the second computation are
        equal.

        Args:
            scope: "none" stores all activations. "layer" stores only the input of each layer and costs a second forward
                pass. "attention" discards scores, softmax and dropout of attention, which grow with the square of the
                length, at a few percent of the time (Korthikanti et al. 2022, section 5).
        """
        self._rematerialize_layers = scope == "layer"
        for layer in self.layers:
            layer.attention.rematerialize = scope == "attention"

    def call(
        self,
        input_ids: Tensor,
        input_mask: Tensor,
        segment_ids: Tensor,
        seed: Tensor | None = None,
        *,
        packing: Packing | None = None,
        output_positions: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Encode a batch.

        Args:
            input_ids: int [B, S], in [0, vocab_size); S is at most max_position_embeddings unless rows are packed.
            input_mask: int [B, S], 1 for tokens, 0 for padding.
            segment_ids: int [B, S], 0 for segment A, 1 for segment B.
            seed: int32 [2], or under JAX [B, 2], a seed per example, for training with dropout; None, as in
                evaluation, for none.
            packing: the instances of packed rows; None for one instance per row, with [CLS] at position 0.
            output_positions: int [B, Q], positions that the last layer computes besides [CLS]; None for all.

        Returns:
            The hidden states of the last layer, float32 [B, S, H] or [B, Q, H], and the pooled output, float [B, H] or
            [B, K, H] with `cls_positions`: a dense layer with tanh on [CLS].
        """
        given_positions = None if packing is None else packing.cls_positions
        if given_positions is None:
            cls_positions = ops.zeros((ops.shape(input_ids)[0], 1), "int32")
        else:
            cls_positions = ops.cast(given_positions, "int32")  # [B, K]
        wanted = None
        if output_positions is not None:
            wanted = ops.concatenate([cls_positions, ops.cast(output_positions, "int32")], axis=1)  # [B, K + Q]
        for hidden in self.hidden_states(input_ids, input_mask, segment_ids, seed, packing, wanted):
            last = hidden
        if output_positions is None:
            cls_states = take_positions(last, cls_positions)  # [B, K, H]
        else:
            count = ops.shape(cls_positions)[1]
            cls_states, last = last[:, :count], last[:, count:]  # [B, K, H], [B, Q, H]
        pooled = ops.tanh(self.pooler(cls_states))  # [B, K, H]
        return last, pooled[:, 0] if given_positions is None else pooled

    def pooled_output(
        self, input_ids: Tensor, input_mask: Tensor, segment_ids: Tensor, seed: Tensor | None = None
    ) -> Tensor:
        """Return the pooled output, float [B, H]: the last layer computes [CLS] only; the arguments are of `call`."""
        no_positions = ops.zeros((ops.shape(input_ids)[0], 0), "int32")
        return self(input_ids, input_mask, segment_ids, seed, output_positions=no_positions)[1]

    def hidden_states(
        self,
        input_ids: Tensor,
        input_mask: Tensor,
        segment_ids: Tensor,
        seed: Tensor | None = None,
        packing: Packing | None = None,
        last_positions: Tensor | None = None,
    ) -> Iterator[Tensor]:
        """Yield the embeddings and the output of every layer, L + 1 tensors float32 [B, S, H].

        Args:
            input_ids, input_mask, segment_ids, seed, packing: as for `call`.
            last_positions: int32 [B, Q], positions of the last output, [B, Q, H]; None for all.
        """
        position_ids = None if packing is None else packing.position_ids
        bias = attention_bias(input_mask, packing, self.causal_attention)  # [B, 1, 1 or S, S]
        hidden = self.embeddings(input_ids, segment_ids, seed, position_ids)  # [B, S, H]
        yield hidden
        for index, layer in enumerate(self.layers):
            arguments = [hidden, bias, fold_in(seed, 1 + TransformerLayer.DROPOUT_SITES * index)]
            if layer is self.layers[-1] and last_positions is not None:
                if bias.shape[2] != 1:
                    arguments[1] = take_positions(bias[:, 0], last_positions)[:, None]  # [B, 1, Q, S]
                arguments.append(take_positions(hidden, last_positions))  # [B, Q, H]
            hidden = (rematerialized(layer) if self._rematerialize_layers else layer)(*arguments)
            yield hidden

    def attention_maps(
        self, input_ids: Tensor, input_mask: Tensor, segment_ids: Tensor, packing: Packing | None = None
    ) -> list[Tensor]:
        """Return the attention probabilities of all layers, float32 [B, A, S, S]; the arguments are those of `call`."""
        bias = attention_bias(input_mask, packing, self.causal_attention)
        states = self.hidden_states(input_ids, input_mask, segment_ids, packing=packing)
        return [layer.attention.probabilities(hidden, bias) for layer, hidden in zip(self.layers, states, strict=False)]

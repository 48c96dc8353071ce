"""The BERT encoder: embeddings, Transformer layers and pooler (`BertModel` of the released modeling.py).

Letters in shapes: B examples, S positions, Q positions of the output, K instances of a row, H hidden size, A heads.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from beambert.bert_model.attention import attention_bias, positions_in_sequence
from beambert.bert_model.config import BertConfig
from beambert.bert_model.dropout import dropout, fold_in
from beambert.bert_model.layers import TransformerLayer, gather_positions, take_rows
from beambert.bert_model.parameters import dense, layer_norm, truncated_normal

Tensor = Any


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
        self.norm = layer_norm(config)
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
        embedded = words + segments + positions  # [B, S, H]
        if keras.backend.backend() == "jax":
            from beambert.bert_model.jax_layout import row_major

            embedded = row_major(embedded)
        return dropout(self.norm(embedded), self.dropout_rate, seed)  # [B, S, H]


class EncoderOutput(NamedTuple):
    """The complete output of the encoder.

    Attributes:
        hidden: float32 [B, S or Q, H], hidden states of the last layer.
        pooled: float [B, H] or [B, K, H], pooled output.
        all_hidden: L + 1 tensors float32 [B, S, H]: the embeddings and the hidden states of all layers, ending with
            `hidden`; None unless requested.
        attention_maps: L tensors float32 [B, A, S, S], attention probabilities of all layers, the last one
            [B, A, Q, S] for Q output positions; None unless requested.
    """

    hidden: Tensor
    pooled: Tensor
    all_hidden: list[Tensor] | None
    attention_maps: list[Tensor] | None


class BertEncoder(keras.layers.Layer):
    """BERT without a head.

    Uses `dropout_sites` consecutive dropout seeds; heads use the seeds after them.

    Args:
        config: configuration of the model.
        vocabulary_rows: rows of the word embeddings, where they are padded (`vocabulary_padding.py`).
        fused_attention: as in `SelfAttention`.

    Attributes:
        wrap_layer: None, or a wrapper of each layer, such as `tf.recompute_grad`, called with positional tensors.

    Example::

        encoder = BertEncoder(BertConfig.preset("tiny", vocab_size=30522))
        hidden, pooled = encoder(input_ids, input_mask, segment_ids)
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        vocabulary_rows: int | None = None,
        fused_attention: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.embeddings = Embeddings(config, vocabulary_rows or config.vocab_size, name="embeddings")
        self.layers = [
            TransformerLayer(config, fused_attention, name=f"layer_{index}")
            for index in range(config.num_hidden_layers)
        ]
        self.pooler = dense(config.hidden_size, config.hidden_size, config, "pooler")
        self.dropout_sites = 1 + TransformerLayer.DROPOUT_SITES * config.num_hidden_layers
        self.wrap_layer: Callable[[Callable[..., Tensor]], Callable[..., Tensor]] | None = None
        self.built = True

    def call(
        self,
        input_ids: Tensor,
        input_mask: Tensor,
        segment_ids: Tensor,
        seed: Tensor | None = None,
        *,
        sequence_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        causal_attention: bool = False,
        pooled_positions: Tensor | None = None,
        output_positions: Tensor | None = None,
        output_range: int | None = None,
        all_hidden: bool = False,
        attention_maps: bool = False,
    ) -> Any:
        """Encode a batch.

        Args:
            input_ids: int [B, S], in [0, vocab_size); S is at most max_position_embeddings unless rows are packed.
            input_mask: int [B, S], 1 for tokens, 0 for padding.
            segment_ids: int [B, S], 0 for segment A, 1 for segment B.
            seed: int32 [2], or under JAX [B, 2], a seed per example, for training with dropout; None, as in
                evaluation, for none.
            sequence_ids: int [B, S] for packed rows: 1, 2, 3, ... for the instances of a row, 0 for padding. Attention
                is restricted to an instance, and positions are counted from its start.
            position_ids: int [B, S], instead of positions counted from the start.
            causal_attention: whether a position attends only to itself and earlier positions.
            pooled_positions: int [B, K], position of [CLS] of each instance of a packed row; None for position 0.
            output_positions: int [B, Q], positions that the last layer computes; None for all.
            output_range: number of first positions that the last layer computes; 0 for the pooled output only.
            all_hidden: whether to return the hidden states of all layers.
            attention_maps: whether to return the attention probabilities of all layers.

        Returns:
            The hidden states of the last layer, float32 [B, S, H] or [B, Q, H], and the pooled output, float [B, H] or
            [B, K, H]: a dense layer with tanh on [CLS]. With `all_hidden` or `attention_maps`, an `EncoderOutput`.

        Raises:
            ValueError: both `output_positions` and `output_range` are set.
        """
        if output_positions is not None and output_range is not None:
            raise ValueError("output_positions and output_range are mutually exclusive")
        batch = ops.shape(input_ids)[0]
        if position_ids is None and sequence_ids is not None:
            position_ids = positions_in_sequence(sequence_ids)
        if output_range is not None:
            output_positions = ops.broadcast_to(ops.arange(output_range, dtype="int32"), (batch, output_range))
        first = ops.zeros((batch, 1), "int32") if pooled_positions is None else ops.cast(pooled_positions, "int32")
        bias = attention_bias(input_mask, sequence_ids, causal_attention)  # [B, 1, 1 or S, S]
        hidden = self.embeddings(input_ids, segment_ids, seed, position_ids)  # [B, S, H]

        states, maps = [hidden], []
        queries: tuple[Tensor, ...] = ()
        for index, layer in enumerate(self.layers):
            if index == len(self.layers) - 1 and output_positions is not None:
                wanted = ops.concatenate([first, ops.cast(output_positions, "int32")], axis=1)  # [B, K + Q]
                queries = (gather_positions(hidden, wanted),)  # [B, K + Q, H]
                if bias.shape[2] != 1:
                    bias = gather_positions(bias[:, 0], wanted)[:, None]  # [B, 1, K + Q, S]
            layer_seed = fold_in(seed, 1 + TransformerLayer.DROPOUT_SITES * index)
            if attention_maps:
                hidden, probabilities = layer(hidden, bias, layer_seed, *queries, maps=True)
                maps.append(probabilities)  # [B, A, S or K + Q, S]
            else:
                run = layer if self.wrap_layer is None else self.wrap_layer(layer)
                hidden = run(hidden, bias, layer_seed, *queries)
            states.append(hidden)  # [B, S or K + Q, H]

        if output_positions is None:
            to_pool = gather_positions(hidden, first)  # [B, K, H]
        else:
            pooled_count = ops.shape(first)[1]
            to_pool, hidden = hidden[:, :pooled_count], hidden[:, pooled_count:]  # [B, K, H], [B, Q, H]
            states[-1] = hidden
            maps[-1:] = [probabilities[:, :, pooled_count:] for probabilities in maps[-1:]]
        pooled = ops.tanh(self.pooler(to_pool))  # [B, K, H]
        if pooled_positions is None:
            pooled = pooled[:, 0]  # [B, H]
        if all_hidden or attention_maps:
            return EncoderOutput(hidden, pooled, states if all_hidden else None, maps if attention_maps else None)
        return hidden, pooled

"""The BERT encoder: embeddings, a stack of Transformer layers, the pooler (`BertModel` of the released modeling.py).

Letters in shapes: B examples, S positions, H hidden size.
"""

from typing import Any

import keras
from keras import ops

from bert_model.config import BertConfig
from bert_model.dropout import dropout, fold_in
from bert_model.layers import MASKED_SCORE, TransformerLayer, dense, layer_norm, truncated_normal

Tensor = Any


class Embeddings(keras.layers.Layer):
    """Sum of word, position and segment embeddings, normalised, with dropout (paper, figure 2).

    Args:
        config: shape of the model.
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dropout_rate = config.hidden_dropout_prob

        def table(rows: int, name: str) -> keras.Variable:
            return self.add_weight((rows, config.hidden_size), truncated_normal(config), name=name)

        self.word_embeddings = table(config.vocab_size, "word_embeddings")
        self.token_type_embeddings = table(config.type_vocab_size, "token_type_embeddings")
        self.position_embeddings = table(config.max_position_embeddings, "position_embeddings")
        self.norm = layer_norm(config)
        self.built = True

    def call(self, input_ids: Tensor, segment_ids: Tensor, seed: Tensor | None = None) -> Tensor:
        """Embeds pieces.

        Args:
            input_ids: int [B, S], in [0, vocab_size).
            segment_ids: int [B, S], in [0, type_vocab_size).
            seed: int32 [2] of the dropout, or None.

        Returns:
            float [B, S, H].
        """
        words = ops.take(self.word_embeddings, input_ids, axis=0)  # [B, S, H]
        # Two rows looked up by a product with one-hot vectors, as the released code does: its gradient is a matrix
        # product too, where that of a gather would scatter every position into the same few rows.
        one_hot = ops.one_hot(segment_ids, self.token_type_embeddings.shape[0], dtype=words.dtype)  # [B, S, 2]
        segments = ops.matmul(one_hot, self.token_type_embeddings)  # [B, S, H]
        positions = self.position_embeddings[: ops.shape(input_ids)[1]]  # [S, H]
        return dropout(self.norm(words + segments + positions), self.dropout_rate, seed)  # [B, S, H]


class BertEncoder(keras.layers.Layer):
    """BERT without a head.

    Uses `dropout_sites` consecutive dropout seeds; a head that needs more begins after them.

    Args:
        config: shape of the model.

    Example:
        encoder = BertEncoder(BertConfig.preset("tiny", vocab_size=30522))
        hidden, pooled = encoder(input_ids, input_mask, segment_ids)
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.embeddings = Embeddings(config, name="embeddings")
        self.layers = [TransformerLayer(config, name=f"layer_{index}") for index in range(config.num_hidden_layers)]
        self.pooler = dense(config.hidden_size, config.hidden_size, config, "pooler")
        self.dropout_sites = 1 + TransformerLayer.DROPOUT_SITES * config.num_hidden_layers
        self.built = True

    def call(
        self, input_ids: Tensor, input_mask: Tensor, segment_ids: Tensor, seed: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Encodes a batch.

        Args:
            input_ids: int [B, S], in [0, vocab_size); S at most max_position_embeddings.
            input_mask: int [B, S], 1 for real positions, 0 for padding.
            segment_ids: int [B, S], 0 for segment A, 1 for segment B.
            seed: int32 [2] for training with dropout; None, as in evaluation, for none.

        Returns:
            The last layer's hidden states, float [B, S, H], and the pooled output, float [B, H]: a dense layer with
            tanh over the first position, [CLS].
        """
        attention_bias = (1.0 - ops.cast(input_mask, "float32")) * MASKED_SCORE  # [B, S]
        attention_bias = attention_bias[:, None, None, :]  # [B, 1, 1, S]
        hidden = self.embeddings(input_ids, segment_ids, seed)  # [B, S, H]
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden, attention_bias, fold_in(seed, 1 + TransformerLayer.DROPOUT_SITES * index))
        pooled = ops.tanh(self.pooler(hidden[:, 0]))  # [B, H]
        return hidden, pooled

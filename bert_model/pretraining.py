"""BERT for pretraining: the encoder with both heads, and the two losses.

Letters in shapes: B examples, S positions, P masked positions, K instances of a packed row, H hidden size, V rows of
the vocabulary.
"""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from beambert.bert_model.checkpoints.variable_names import PRETRAINING
from beambert.bert_model.config import BertConfig
from beambert.bert_model.encoder import BertEncoder, Packing
from beambert.bert_model.heads import LinearHead
from beambert.bert_model.layers import Dense, LayerNormalization, activation
from beambert.bert_model.ops import cross_entropy
from beambert.bert_model.size import padded_size

Tensor = Any
Features = dict[str, Tensor]

# Logit of vocabulary padding: softmax probability 0, but finite, so that its product with 0 is 0.
PADDED_LOGIT = -1e9


class PretrainingLogits(NamedTuple):
    """The pretraining logits: `masked_lm` float32 [B, P, V], `next_sentence` float32 [B, 2] or [B, K, 2]."""

    masked_lm: Tensor
    next_sentence: Tensor


class PretrainingLosses(NamedTuple):
    """The pretraining losses, float32, in nats.

    `total` is the training loss, the sum of `masked_lm` and `next_sentence`. `masked_lm_per_position` [B, P] and
    `next_sentence_per_example` [B] or [B, K] are unweighted. Without next_sentence_labels, the latter is None and
    `next_sentence` is 0.
    """

    total: Tensor
    masked_lm: Tensor
    next_sentence: Tensor
    masked_lm_per_position: Tensor
    next_sentence_per_example: Tensor | None


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
        self.transform = Dense(config, config.hidden_size, config.hidden_size, name="transform")
        self.norm = LayerNormalization(config, name="LayerNorm")
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


class BertForPretraining(keras.layers.Layer):
    """The encoder with masked-LM head and next-sentence head.

    The last layer computes only [CLS] and the masked positions, which the heads read.

    Args:
        config: configuration of the model.
        pad_vocabulary: whether to pad word embeddings and output bias to a multiple of 128 rows, which are never
            predicted; checkpoints do not have them (`size.py`).
        causal_attention: as in the encoder.

    Call `keras.utils.set_random_seed` before for reproducible initial weights.

    Example::

        model = BertForPretraining(BertConfig.preset("tiny", vocab_size=30522))
        losses = pretraining_losses(model(features), features)
    """

    task = PRETRAINING
    num_labels = None

    def __init__(
        self,
        config: BertConfig,
        *,
        pad_vocabulary: bool = False,
        causal_attention: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.causal_attention = causal_attention
        rows = padded_size(config.vocab_size) if pad_vocabulary else config.vocab_size
        self.encoder = BertEncoder(config, vocabulary_rows=rows, causal_attention=causal_attention, name="bert")
        self.masked_lm = MaskedLanguageModelHead(config, rows, name="masked_lm")
        self.next_sentence = LinearHead(config, 2, name="next_sentence")
        self.built = True

    def call(self, features: Features, seed: Tensor | None = None) -> PretrainingLogits:
        """Predict masked tokens and whether segment B follows segment A.

        Args:
            features: input_ids, input_mask, segment_ids int [B, S] and masked_lm_positions int [B, P]; for packed
                rows also sequence_ids int [B, S] and next_sentence_positions int [B, K]. Labels (masked_lm_ids,
                masked_lm_weights, next_sentence_labels, next_sentence_weights) are ignored.
            seed: int32 [2], or under JAX [B, 2], a seed per example, for training with dropout; None, as in
                evaluation, for none.

        Returns:
            The logits of both heads.
        """
        packing = None
        if "sequence_ids" in features:
            packing = Packing(features["sequence_ids"], features.get("next_sentence_positions"))
        hidden, pooled = self.encoder(
            *(features[name] for name in ("input_ids", "input_mask", "segment_ids")),
            seed,
            packing=packing,
            output_positions=features["masked_lm_positions"],
        )  # [B, P, H], [B, H] or [B, K, H]
        return PretrainingLogits(
            masked_lm=self.masked_lm(hidden, self.encoder.embeddings.word_embeddings),  # [B, P, V]
            next_sentence=self.next_sentence(pooled),  # [B, 2] or [B, K, 2]: class 0 if B followed A, 1 if not
        )


def pretraining_losses(logits: PretrainingLogits, features: Features) -> PretrainingLosses:
    """Return the pretraining losses of the released `get_masked_lm_output` and `get_next_sentence_output`.

    masked_lm = sum(weights * cross entropy) / (sum(weights) + 1e-5), next_sentence = mean cross entropy,
    total = their sum.

    Args:
        logits: logits of the model.
        features: masked_lm_ids int [B, P] and masked_lm_weights float [B, P] (0 for unused predictions);
            next_sentence_labels int [B, 1] (0 = B follows A), or [B, K] with next_sentence_weights float [B, K] (0
            where a packed row has fewer instances), or neither, for data without the next-sentence task.

    Returns:
        The losses.
    """
    weights = ops.cast(features["masked_lm_weights"], "float32")  # [B, P]
    per_position = cross_entropy(logits.masked_lm, features["masked_lm_ids"])  # [B, P]
    masked_lm = ops.sum(weights * per_position) / (ops.sum(weights) + 1e-5)
    if "next_sentence_labels" not in features:
        return PretrainingLosses(masked_lm, masked_lm, ops.zeros((), "float32"), per_position, None)
    shape = ops.shape(logits.next_sentence)[:-1]
    per_example = cross_entropy(
        logits.next_sentence, ops.reshape(features["next_sentence_labels"], shape)
    )  # [B] or [B, K]
    if "next_sentence_weights" in features:
        weights = ops.cast(features["next_sentence_weights"], "float32")  # [B, K]
        next_sentence = ops.sum(weights * per_example) / ops.maximum(ops.sum(weights), 1.0)
    else:
        next_sentence = ops.mean(per_example)
    return PretrainingLosses(masked_lm + next_sentence, masked_lm, next_sentence, per_position, per_example)

"""BERT as it is pretrained: the encoder with both heads, and the two losses.

Letters in shapes: B examples, S positions, P masked positions, V vocabulary size.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from bert_model.config import BertConfig
from bert_model.encoder import BertEncoder
from bert_model.heads import MaskedLanguageModelHead, NextSentenceHead

Tensor = Any
Features = dict[str, Tensor]


class PretrainingLogits(NamedTuple):
    """What the model predicts: `masked_lm` float [B, P, V], `next_sentence` float [B, 2]."""

    masked_lm: Tensor
    next_sentence: Tensor


class PretrainingLosses(NamedTuple):
    """Losses in nats, float32.

    `total` is the scalar that training descends, the other two its terms; `masked_lm_per_position` [B, P] and
    `next_sentence_per_example` [B] are not yet weighted or averaged.
    """

    total: Tensor
    masked_lm: Tensor
    next_sentence: Tensor
    masked_lm_per_position: Tensor
    next_sentence_per_example: Tensor


class BertForPretraining(keras.layers.Layer):
    """Encoder, masked-LM head and next-sentence head.

    Args:
        config: shape of the model.

    Initial weights follow `keras.utils.set_random_seed`, called before.

    Example:
        model = BertForPretraining(BertConfig.preset("tiny", vocab_size=30522))
        losses = pretraining_losses(model(features), features)
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.encoder = BertEncoder(config, name="bert")
        self.masked_lm = MaskedLanguageModelHead(config, name="masked_lm")
        self.next_sentence = NextSentenceHead(config, name="next_sentence")
        self.built = True

    def call(self, features: Features, seed: Tensor | None = None) -> PretrainingLogits:
        """Predicts masked pieces and whether B follows A.

        Args:
            features: input_ids, input_mask, segment_ids int [B, S] and masked_lm_positions int [B, P]; the labels
                (masked_lm_ids, masked_lm_weights, next_sentence_labels) may be there and are not read.
            seed: int32 [2] for training with dropout; None, as in evaluation, for none.
        """
        hidden, pooled = self.encoder(
            features["input_ids"], features["input_mask"], features["segment_ids"], seed
        )  # [B, S, H], [B, H]
        return PretrainingLogits(
            masked_lm=self.masked_lm(
                hidden, features["masked_lm_positions"], self.encoder.embeddings.word_embeddings
            ),  # [B, P, V]
            next_sentence=self.next_sentence(pooled),  # [B, 2]
        )


def pretraining_losses(logits: PretrainingLogits, features: Features) -> PretrainingLosses:
    """The loss of pretraining, as `get_masked_lm_output` and `get_next_sentence_output` of the released code have it.

    masked_lm = sum(weights * cross entropy) / (sum(weights) + 1e-5), next_sentence = mean cross entropy,
    total = their sum.

    Args:
        logits: what the model predicts.
        features: masked_lm_ids int [B, P], masked_lm_weights float [B, P] (0 for unused predictions),
            next_sentence_labels int [B, 1] (0 = B follows A).
    """
    masked_lm_logits = ops.cast(logits.masked_lm, "float32")  # [B, P, V]
    next_sentence_logits = ops.cast(logits.next_sentence, "float32")  # [B, 2]
    weights = ops.cast(features["masked_lm_weights"], "float32")  # [B, P]
    labels = ops.reshape(features["next_sentence_labels"], (-1,))  # [B]
    per_position = cross_entropy(masked_lm_logits, features["masked_lm_ids"])  # [B, P]
    per_example = cross_entropy(next_sentence_logits, labels)  # [B]
    masked_lm = ops.sum(weights * per_position) / (ops.sum(weights) + 1e-5)
    next_sentence = ops.mean(per_example)
    return PretrainingLosses(masked_lm + next_sentence, masked_lm, next_sentence, per_position, per_example)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """-log softmax(logits)[label], in nats.

    Args:
        logits: float32 [..., C].
        labels: int [...], in [0, C).

    Returns:
        float32 [...].
    """
    # On a CPU a third faster than the library's sparse form, whose deterministic gradient scatters into the logits.
    one_hot = ops.one_hot(labels, logits.shape[-1], dtype=logits.dtype)  # [..., C]
    return ops.logsumexp(logits, axis=-1) - ops.sum(one_hot * logits, axis=-1)

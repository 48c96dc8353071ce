"""BERT for pretraining: the encoder with both heads, and the two losses.

Letters in shapes: B examples, S positions, P masked positions, K instances of a packed row, V rows of the vocabulary.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from beambert.bert_model.config import BertConfig
from beambert.bert_model.encoder import BertEncoder
from beambert.bert_model.head_layers import LinearHead, MaskedLanguageModelHead
from beambert.bert_model.heads import PRETRAINING
from beambert.bert_model.vocabulary_padding import padded_size

Tensor = Any
Features = dict[str, Tensor]


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


class BertForPretraining(keras.layers.Layer):
    """The encoder with masked-LM head and next-sentence head.

    The last layer computes only [CLS] and the masked positions, which the heads read.

    Args:
        config: configuration of the model.
        pad_vocabulary: whether to pad word embeddings and output bias to a multiple of 128 rows, which are never
            predicted; `vocabulary_padding.py` removes them in checkpoints.
        causal_attention: as in the encoder.
        fused_attention: as in `SelfAttention`.

    Call `keras.utils.set_random_seed` before for reproducible initial weights.

    Example::

        model = BertForPretraining(BertConfig.preset("tiny", vocab_size=30522))
        losses = pretraining_losses(model(features), features)
    """

    head = PRETRAINING
    num_labels = None

    def __init__(
        self,
        config: BertConfig,
        *,
        pad_vocabulary: bool = False,
        causal_attention: bool = False,
        fused_attention: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.causal_attention = causal_attention
        rows = padded_size(config.vocab_size) if pad_vocabulary else config.vocab_size
        self.encoder = BertEncoder(config, vocabulary_rows=rows, fused_attention=fused_attention, name="bert")
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
        hidden, pooled = self.encoder(
            features["input_ids"],
            features["input_mask"],
            features["segment_ids"],
            seed,
            sequence_ids=features.get("sequence_ids"),
            pooled_positions=features.get("next_sentence_positions"),
            output_positions=features["masked_lm_positions"],
            causal_attention=self.causal_attention,
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


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return -log softmax(logits)[label], in nats.

    Args:
        logits: float32 [..., C].
        labels: int [...], in [0, C).

    Returns:
        float32 [...].
    """
    labels = ops.cast(labels, "int32")
    if keras.backend.backend() == "jax":
        from beambert.bert_model import jax_gradients

        return jax_gradients.cross_entropy(logits, labels)

    # With a custom gradient: automatic differentiation of log-sum-exp takes twice as long on a CPU, and the library's
    # sparse form, whose deterministic gradient scatters into the logits, three times.
    @ops.custom_gradient
    def with_gradient(logits: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        probabilities = ops.softmax(logits, axis=-1)  # [..., C]
        # The maximum probability is exp(0) / sum(exp(logits - maximum)), at least 1 / C.
        log_sum = -ops.log(ops.max(probabilities, axis=-1))  # [...], of exp(logits - maximum)
        of_label = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)[..., 0]  # [...]

        def gradient(upstream: Tensor) -> Tensor:
            one_hot = ops.one_hot(labels, logits.shape[-1], dtype=logits.dtype)  # [..., C]
            return (probabilities - one_hot) * ops.expand_dims(upstream, -1)

        # The logits are subtracted first, so that large logits do not cancel the sum.
        return (ops.max(logits, axis=-1) - of_label) + log_sum, gradient

    return with_gradient(logits)

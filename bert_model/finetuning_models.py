"""BERT for fine-tuning: the encoder with a head (paper, section 4; run_classifier.py and run_squad.py)."""

from typing import Any

import keras

from beambert.bert_model.config import BertConfig, ConfigError
from beambert.bert_model.encoder import BertEncoder
from beambert.bert_model.heads import HEADS

Tensor = Any
Features = dict[str, Tensor]


class BertForTask(keras.layers.Layer):
    """The encoder with a head of `heads`, whose modules state their logits.

    Args:
        config: configuration of the model.
        head: name of the head, one of `HEADS`.
        num_labels: number of labels, n; None where the head has a fixed number.
        causal_attention: as in the encoder.

    Raises:
        ConfigError: the head is unknown, or num_labels is not valid for it.

    Example::

        model = BertForTask(BertConfig.preset("tiny", vocab_size=30522), "classification", num_labels=3)
        logits = model(features)
    """

    def __init__(
        self,
        config: BertConfig,
        head: str,
        num_labels: int | None = None,
        *,
        causal_attention: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if head not in HEADS:
            raise ConfigError(f"unknown head {head!r}; choose from {', '.join(HEADS)}")
        self.config = config
        self.head = HEADS[head]
        self.num_labels = self.head.label_count(num_labels)
        self.causal_attention = causal_attention
        self.encoder = BertEncoder(config, causal_attention=causal_attention, name="bert")
        self.head.add_layers(self)
        self.built = True

    def call(self, features: Features, seed: Tensor | None = None, *, all_positions: bool = False) -> Tensor:
        """Predict the logits of a batch.

        Args:
            features: input_ids, input_mask, segment_ids int [B, S], or [B, C, S] for choices; others are ignored.
            seed: int32 [2], or under JAX [B, 2], a seed per example, for training with dropout; None, as in
                evaluation, for none.
            all_positions: whether the last layer computes positions that the logits do not depend on.

        Returns:
            Logits, float32, as the class of the head states.
        """
        inputs = [features[name] for name in ("input_ids", "input_mask", "segment_ids")]
        return self.head.logits(self, inputs, seed, all_positions=all_positions)

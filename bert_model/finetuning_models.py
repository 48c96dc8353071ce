"""BERT for fine-tuning: the encoder with a linear head (paper, section 4; run_classifier.py and run_squad.py).

One task freezes the encoder and has a BiLSTM before the head (`feature_based.py`; paper, section 5.3).

Letters in shapes: B examples, C choices, S positions, H hidden size, n labels.
"""

from typing import Any

import keras
from keras import ops

from beambert.bert_model.checkpoints.variable_names import BILSTM_LAYERS, FEATURE_BASED, label_count
from beambert.bert_model.config import BertConfig
from beambert.bert_model.encoder import BertEncoder
from beambert.bert_model.feature_based import FeatureBasedLayers, frozen_features
from beambert.bert_model.heads import LinearHead
from beambert.bert_model.ops import fold_in

Tensor = Any
Features = dict[str, Tensor]


class BertForTask(keras.layers.Layer):
    """The encoder with the head of a task.

    The logits of each task:

    - classification: [B, n], from the pooled output
    - regression: [B], from the pooled output
    - span: start and end, [B, S] each, from every position
    - token_classification: [B, S, n], from every position
    - token_classification_bilstm: [B, S, n], from every position; the encoder has neither gradient nor dropout
    - multiple_choice: [B, C], from the pooled output of every choice; features of shape [B, C, S]

    Args:
        config: configuration of the model.
        task: a task of the list.
        num_labels: number of labels, n; None where the task has a fixed number.
        causal_attention: as in the encoder.

    Raises:
        ConfigError: the task is unknown, or num_labels is not valid for it.

    Example::

        model = BertForTask(BertConfig.preset("tiny", vocab_size=30522), "classification", num_labels=3)
        logits = model(features)
    """

    def __init__(
        self,
        config: BertConfig,
        task: str,
        num_labels: int | None = None,
        *,
        causal_attention: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.task = task
        self.num_labels = label_count(task, num_labels)
        self.causal_attention = causal_attention
        self.encoder = BertEncoder(config, causal_attention=causal_attention, name="bert")
        # As in the released code, which has no dropout before the span head.
        rate = 0.0 if task == "span" else config.hidden_dropout_prob
        self.bilstm = FeatureBasedLayers(config, name="bilstm") if task == FEATURE_BASED else None
        input_size = 2 * config.hidden_size if task == FEATURE_BASED else None
        self.head = LinearHead(config, self.num_labels, rate, input_size, name="head")
        self.built = True

    def call(self, features: Features, seed: Tensor | None = None) -> Any:
        """Predict the logits of a batch.

        Args:
            features: input_ids, input_mask, segment_ids int [B, S], or [B, C, S] for multiple_choice; other features
                are ignored.
            seed: int32 [2], or under JAX [B, 2], a seed per example, for training with dropout; None, as in
                evaluation, for none.

        Returns:
            Logits, float32, as in the table above.
        """
        inputs = [features[name] for name in ("input_ids", "input_mask", "segment_ids")]
        if self.task == "multiple_choice":
            batch, choices, length = ops.shape(inputs[0])
            inputs = [ops.reshape(values, (batch * choices, length)) for values in inputs]  # [B * C, S]
            if seed is not None and len(ops.shape(seed)) == 2:
                # The call sites of the choices are numbered consecutively, so that every choice has its own masks.
                sites = self.encoder.dropout_sites + 1
                seeds = ops.stack([fold_in(seed, sites * choice) for choice in range(choices)], axis=1)  # [B, C, 2]
                seed = ops.reshape(seeds, (batch * choices, 2))
        head_seed = fold_in(seed, self.encoder.dropout_sites)
        if self.bilstm is not None:
            frozen = frozen_features(self.encoder, *inputs)  # [B, S, 4 H]
            hidden = self.bilstm(frozen, inputs[1], head_seed)  # [B, S, 2 H]
            return self.head(hidden, fold_in(head_seed, BILSTM_LAYERS))  # [B, S, n]
        if self.task in ("span", "token_classification"):
            hidden, _ = self.encoder(*inputs, seed)  # [B, S, H]
            logits = self.head(hidden, head_seed)  # [B, S, n]
            return (logits[:, :, 0], logits[:, :, 1]) if self.task == "span" else logits
        pooled = self.encoder.pooled_output(inputs[0], inputs[1], inputs[2], seed)  # [B or B * C, H]
        logits = self.head(pooled, head_seed)  # [B or B * C, n]
        if self.task == "multiple_choice":
            return ops.reshape(logits, (batch, choices))
        return logits[:, 0] if self.task == "regression" else logits

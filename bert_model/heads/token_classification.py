"""A label per word, predicted at its first token (paper, section 5.3)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from beambert.bert_model.heads.head import (
    FinetuningHead,
    Inputs,
    Logits,
    Tensor,
    head_seed,
    hidden_states,
    mean_cross_entropy,
)


class TokenClassification(FinetuningHead):
    """Logits [B, S, n] from every position; cross-entropy of the labeled positions."""

    name = "token_classification"
    hugging_face_classes: ClassVar[tuple[str, ...]] = ("BertForTokenClassification",)
    pipeline_tag = "token-classification"
    inputs = Inputs.WORDS
    reads_pooler = False
    labels_positions = True

    def logits(self, model: Any, inputs: Sequence[Tensor], seed: Tensor | None, *, all_positions: bool) -> Tensor:
        """Return the logits, [B, S, n]."""
        return model.linear(hidden_states(model, inputs, seed), head_seed(model, seed))

    def rows_of_batch(self, logits: Sequence[np.ndarray], lengths: Sequence[int]) -> Logits:
        """Return the logits of each row, [S_i, n]."""
        return [values[:length] for values, length in zip(logits, lengths, strict=True)]

    def evaluation_loss(self, targets: Mapping[str, np.ndarray], logits: Logits) -> float:
        """Return the mean loss over the labeled positions."""
        labels = targets["label_ids"]
        labeled = labels >= 0
        return mean_cross_entropy(np.concatenate(logits)[labeled], labels[labeled])

"""One of several choices for a text (paper, section 4.4)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from beambert.bert_model.heads.head import Answer, AnswerLimits, FinetuningHead, Inputs, Tensor, rounded


class MultipleChoice(FinetuningHead):
    """Logits [B, C] from the pooled output of every choice, of inputs [B, C, S]; cross-entropy over the choices."""

    name = "multiple_choice"
    fixed_labels = 1
    hugging_face_classes = ("BertForMultipleChoice",)
    pipeline_tag = "multiple-choice"
    inputs = Inputs.CHOICES
    input_example = "'context ||| one choice ||| another'"

    def logits(self, model: Any, inputs: Sequence[Tensor], seed: Tensor | None, *, all_positions: bool) -> Tensor:
        """Return the logits, [B, C]."""
        from keras import ops

        from beambert.bert_model.ops import fold_in

        batch, choices, length = ops.shape(inputs[0])
        inputs = [ops.reshape(values, (batch * choices, length)) for values in inputs]  # [B * C, S]
        if seed is not None and len(ops.shape(seed)) == 2:
            # The call sites of the choices are numbered consecutively, so that every choice has its own masks.
            sites = model.encoder.dropout_sites + 1
            seeds = ops.stack([fold_in(seed, sites * choice) for choice in range(choices)], axis=1)  # [B, C, 2]
            seed = ops.reshape(seeds, (batch * choices, 2))
        logits = super().logits(model, inputs, seed, all_positions=all_positions)  # [B * C, 1]
        return ops.reshape(logits, (batch, choices))

    def answer(self, logits: np.ndarray, labels: Sequence[str], limits: AnswerLimits) -> Answer:
        """Return the index of the best choice, and the probability of each; logits are [C]."""
        (probabilities,) = self.probabilities(logits[None])
        return {"choice": int(logits.argmax()), "probabilities": list(map(rounded, probabilities))}

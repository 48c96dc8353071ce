"""Extractive question answering: start and end of the answer (run_squad.py; paper, section 4.2)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beambert.bert_model.config import BertConfig
from beambert.bert_model.heads.head import (
    Features,
    FinetuningHead,
    Inputs,
    Logits,
    Shapes,
    Tensor,
    add_linear,
    cross_entropy,
    head_seed,
    hidden_states,
)
from beambert.bert_model.variable_names import VariableName, read_table

_SPAN = """
linear.         cls/squad/      qa_outputs.

output_weights  output_weights  weight  n,H
output_bias     output_bias     bias    n
"""


class Span(FinetuningHead):
    """Logits of start and end [B, 2, S] from every position; mean of both cross-entropies over all positions.

    The targets start_positions and end_positions int32 [B] are positions of the row, 0 for no answer.
    """

    name = "span"
    fixed_labels = 2
    hugging_face_classes = ("BertForQuestionAnswering",)
    pipeline_tag = "question-answering"
    inputs = Inputs.QUESTION
    input_example = "'question ||| context'"
    reads_pooler = False
    loss_reads_padding = True
    # That of run_squad.py.
    default_length = 384

    def own_variables(self, config: BertConfig, num_labels: int) -> list[VariableName]:
        """Return weights and bias of the linear layer, under the names of run_squad.py."""
        return read_table(_SPAN, {"n": num_labels, "H": config.hidden_size})

    def matches_weights(self, shapes: Shapes) -> bool:
        """Return whether the weights have the head of run_squad.py."""
        return "cls/squad/output_weights" in shapes

    def add_layers(self, model: Any) -> None:
        """Add the linear layer without dropout, as in the released code."""
        add_linear(model, 0.0)

    def logits(self, model: Any, inputs: Sequence[Tensor], seed: Tensor | None, *, all_positions: bool) -> Tensor:
        """Return the logits of start and end, [B, 2, S]."""
        from keras import ops

        logits = model.linear(hidden_states(model, inputs, seed), head_seed(model, seed))  # [B, S, 2]
        return ops.transpose(logits, (0, 2, 1))

    def losses(self, features: Features, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the loss of each row, and whether start and end are right, float32 [B]."""
        from keras import ops

        targets = [features[name] for name in ("start_positions", "end_positions")]
        both = (logits[:, 0], logits[:, 1])  # [B, S] each
        start, end = (cross_entropy(values, target) for values, target in zip(both, targets, strict=True))
        right = ops.logical_and(*(ops.equal(ops.argmax(v, -1), t) for v, t in zip(both, targets, strict=True)))
        return (start + end) / 2, ops.cast(right, "float32")

    def rows_of_batch(self, logits: Sequence[np.ndarray], lengths: Sequence[int]) -> Logits:
        """Return the logits of start and end, [2, S_i] of each row."""
        return [values[:, :length] for values, length in zip(logits, lengths, strict=True)]

    def evaluation_loss(self, targets: Mapping[str, np.ndarray], logits: Logits) -> None:
        """Return None, since the loss includes padding."""

    def outputs(self, logits: Tensor) -> dict[str, Tensor]:
        """Return the logits."""
        return {"start_logits": logits[:, 0], "end_logits": logits[:, 1]}

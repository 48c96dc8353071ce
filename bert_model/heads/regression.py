"""A number per text or pair of texts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beambert.bert_model.heads.head import (
    Answer,
    AnswerLimits,
    Features,
    FinetuningHead,
    Logits,
    Shapes,
    Tensor,
    rounded,
)


class Regression(FinetuningHead):
    """Logits [B] from the pooled output; squared error to the target label_values float32 [B]."""

    name = "regression"
    fixed_labels = 1
    hugging_face_classes = ("BertForSequenceClassification",)
    problem_type = "regression"
    pipeline_tag = "text-classification"
    # Scores are lower with it (docs/benchmarks/fine-tuning.md).
    groups_by_length = False

    def matches_config(self, problem_type: str | None, num_labels: int | None) -> bool:
        """Return whether the problem type is that of this head; by default, transformers so treats a single class."""
        return problem_type == self.problem_type or num_labels == 1

    def matches_weights(self, shapes: Shapes) -> bool:
        """Return whether the weights have a classifier with a single output."""
        return shapes.get("output_weights", ())[:1] == (1,)

    def logits(self, model: Any, inputs: Sequence[Tensor], seed: Tensor | None, *, all_positions: bool) -> Tensor:
        """Return the logits, [B]."""
        return super().logits(model, inputs, seed, all_positions=all_positions)[:, 0]

    def losses(self, features: Features, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the squared error of each row, float32 [B], and no accuracy."""
        from keras import ops

        return ops.square(logits - features["label_values"]), None

    def initial_bias(self, targets: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the mean of the targets.

        Adam moves a bias by at most the learning rate a step, so that one from 0 would not reach the mean of targets
        from 0 to 5; the encoder would learn it instead, and lose what it was pretrained for.
        """
        return np.array([np.mean(targets["label_values"])])

    def evaluation_loss(self, targets: Mapping[str, np.ndarray], logits: Logits) -> float:
        """Return the mean squared error."""
        return float(np.mean(np.square(np.asarray(logits, np.float64) - targets["label_values"])))

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Return the scores, which are the logits."""
        return logits

    def answer(self, logits: np.ndarray, labels: Sequence[str], limits: AnswerLimits) -> Answer:
        """Return the score."""
        return {"score": rounded(float(logits))}

    def outputs(self, logits: Tensor) -> dict[str, Tensor]:
        """Return the scores."""
        return {"score": logits}

"""Any number of labels per text or pair of texts."""

from collections.abc import Mapping, Sequence

import numpy as np

from beambert.bert_model.heads.head import Answer, AnswerLimits, Features, FinetuningHead, Logits, Tensor, rounded


class MultiLabel(FinetuningHead):
    """Logits [B, n] from the pooled output; mean over the labels of the binary cross-entropy.

    The target label_values float32 [B, n] is 1 for each label of the row. Files record the head as a classification
    whose texts may have several labels.
    """

    name = "multi_label"
    recorded_task = "classification"
    several_labels = True
    hugging_face_classes = ("BertForSequenceClassification",)
    problem_type = "multi_label_classification"
    pipeline_tag = "text-classification"

    def matches_config(self, problem_type: str | None, num_labels: int | None) -> bool:
        """Return whether the problem type is that of this head."""
        return problem_type == self.problem_type

    def losses(self, features: Features, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the loss of each row, and whether all labels are right, float32 [B]."""
        from keras import ops

        labels = features["label_values"]  # [B, n]
        # -log sigmoid(x) where the label is 1, -log sigmoid(-x) where it is 0, without overflow.
        losses = ops.maximum(logits, 0.0) - logits * labels + ops.log1p(ops.exp(-ops.abs(logits)))
        right = ops.all(ops.equal(logits > 0, labels > 0.5), -1)
        return ops.mean(losses, -1), ops.cast(right, "float32")

    def evaluation_loss(self, targets: Mapping[str, np.ndarray], logits: Logits) -> float:
        """Return the mean loss over rows and labels."""
        scores = np.asarray(logits, np.float64)
        return float(np.mean(np.logaddexp(0.0, scores) - targets["label_values"] * scores))

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Return the independent probability of each label, float64 [N, n]."""
        return sigmoid(logits)

    def answer(self, logits: np.ndarray, labels: Sequence[str], limits: AnswerLimits) -> Answer:
        """Return the labels with at least the threshold, most probable first, and the probabilities of all."""
        probabilities = self.probabilities(logits)
        order = np.argsort(-probabilities, kind="stable").tolist()
        likely = [i for i in order if probabilities[i] >= limits.threshold]
        return {
            "labels": [{"label": labels[i], "probability": rounded(probabilities[i])} for i in likely],
            "probabilities": dict(zip(labels, map(rounded, probabilities), strict=True)),
        }

    def outputs(self, logits: Tensor) -> dict[str, Tensor]:
        """Return independent probabilities; the caller applies a threshold, usually 0.5."""
        from keras import ops

        return {"probabilities": ops.sigmoid(logits)}


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Return the probabilities of independent classes, float64, with the shape of the logits."""
    exponentials = np.exp(-np.abs(logits.astype(np.float64)))
    return np.where(logits >= 0, 1.0, exponentials) / (1.0 + exponentials)

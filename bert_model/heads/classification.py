"""One label per text or pair of texts (run_classifier.py)."""

from collections.abc import Sequence

import numpy as np

from beambert.bert_model.heads.head import Answer, AnswerLimits, FinetuningHead, Shapes, rounded


class Classification(FinetuningHead):
    """Logits [B, n] from the pooled output; cross-entropy."""

    name = "classification"
    hugging_face_classes = ("BertForSequenceClassification",)
    problem_type = "single_label_classification"
    pipeline_tag = "text-classification"

    def matches_weights(self, shapes: Shapes) -> bool:
        """Return whether the weights have a classifier; those of other heads look like it."""
        return "output_weights" in shapes

    def answer(self, logits: np.ndarray, labels: Sequence[str], limits: AnswerLimits) -> Answer:
        """Return the most probable labels."""
        (probabilities,) = self.probabilities(logits[None])
        order = np.argsort(-probabilities, kind="stable").tolist()[: limits.top_k]
        return {"labels": [{"label": labels[i], "probability": rounded(probabilities[i])} for i in order]}

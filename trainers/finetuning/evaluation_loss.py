"""The mean loss of an evaluation, from logits alone; the same as that of training without class weights."""

import numpy as np

from trainers.finetuning.finetuning_task import Logits, Rows


def evaluation_loss(head: str, multi_label: bool, rows: Rows, logits: Logits) -> float | None:
    """Return the mean over rows, or over labeled positions; None where the rows have no targets.

    Spans are without: what padding adds to their loss is not known from their logits.

    Args:
        head: of the task.
        multi_label: whether a row may have several labels.
        rows: with targets.
        logits: of the rows.
    """
    if not rows.targets or head == "span":
        return None
    if head == "regression":
        return float(np.mean(np.square(np.asarray(logits, np.float64) - rows.targets["label_values"])))
    if head.startswith("token_classification"):
        scores, labels = np.concatenate(logits), rows.targets["label_ids"]
        kept = labels >= 0
        return _cross_entropy(scores[kept], labels[kept])
    scores = np.asarray(logits, np.float64)
    if multi_label:
        values = rows.targets["label_values"]
        return float(np.mean(np.logaddexp(0.0, scores) - values * scores))
    return _cross_entropy(scores, rows.targets["label_ids"])


def _cross_entropy(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean over rows of float [N, n] against int [N]; 0 of none."""
    if not len(labels):
        return 0.0
    scores = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(labels)), labels]))

"""Mean evaluation loss from logits, equal to the training loss without class weights."""

import numpy as np

from beambert.trainers.finetuning.finetuning_task import Logits, Rows


def evaluation_loss(head: str, multi_label: bool, rows: Rows, logits: Logits) -> float | None:
    """Return the mean loss over rows or labeled positions; None for rows without targets and for spans.

    The loss of spans includes padding, whose logits are not available.

    Args:
        head: head of the task.
        multi_label: whether a row may have several labels.
        rows: rows with targets.
        logits: logits of the rows.
    """
    if not rows.targets or head == "span":
        return None
    if head == "regression":
        return float(np.mean(np.square(np.asarray(logits, np.float64) - rows.targets["label_values"])))
    if head.startswith("token_classification"):
        scores, labels = np.concatenate(logits), rows.targets["label_ids"]
        labeled = labels >= 0
        return _cross_entropy(scores[labeled], labels[labeled])
    scores = np.asarray(logits, np.float64)
    if multi_label:
        values = rows.targets["label_values"]
        return float(np.mean(np.logaddexp(0.0, scores) - values * scores))
    return _cross_entropy(scores, rows.targets["label_ids"])


def _cross_entropy(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean cross-entropy of scores float [N, n] against labels int [N]; 0 for N = 0."""
    if not len(labels):
        return 0.0
    scores = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(labels)), labels]))

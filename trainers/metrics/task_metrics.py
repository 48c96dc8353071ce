"""Compute the metrics of GLUE and other tasks, with the values of scikit-learn and SciPy.

A metric without examples, or with a denominator of 0 (constant predictions), is 0.

Letters in shapes: N examples or rows, n classes.
"""

import numpy as np


def confusion(labels: np.ndarray, predictions: np.ndarray, class_count: int) -> np.ndarray:
    """Return the confusion matrix, int64 [n, n], with true classes as rows and predicted classes as columns.

    Args:
        labels, predictions: int [N], from 0 to n - 1.
        class_count: n.
    """
    cells = labels.astype(np.int64) * class_count + predictions
    return np.bincount(cells, minlength=class_count * class_count).reshape(class_count, class_count)


def accuracy(counts: np.ndarray) -> float:
    """Return the accuracy of a confusion matrix [n, n]."""
    return _ratio(np.trace(counts), counts.sum())


def f1(counts: np.ndarray) -> float:
    """Return the F1 of the second class of a confusion matrix [2, 2]."""
    return _ratio(2 * counts[1, 1], counts[1].sum() + counts[:, 1].sum())


def class_f1(counts: np.ndarray) -> np.ndarray:
    """Return the F1 of each class of a confusion matrix [n, n], float64 [n]; 0 for classes that do not occur."""
    return 2 * np.diagonal(counts) / np.maximum(counts.sum(0) + counts.sum(1), 1)


def macro_f1(counts: np.ndarray) -> float:
    """Return the mean F1 of the classes of a confusion matrix [n, n] that occur as label or prediction."""
    seen = counts.sum(0) + counts.sum(1) > 0
    return _mean(class_f1(counts)[seen])


def matthews(counts: np.ndarray) -> float:
    """Return the Matthews correlation coefficient of a confusion matrix [n, n], from -1 to 1.

    For more than two classes it is R_K of Gorodkin, "Comparing two K-category assignments by a K-category correlation
    coefficient" (2004).
    """
    counts = counts.astype(np.float64)
    true, predicted, total = counts.sum(1), counts.sum(0), counts.sum()
    covariance = np.trace(counts) * total - true @ predicted
    return _ratio(covariance, np.sqrt(total**2 - true @ true) * np.sqrt(total**2 - predicted @ predicted))


def pearson(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Return the Pearson correlation of labels and predictions [N], from -1 to 1."""
    x, y = _direction(labels), _direction(predictions)
    return float(np.clip(x @ y, -1.0, 1.0))


def spearman(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Return the Spearman correlation of labels and predictions [N], the Pearson correlation of their ranks."""
    return pearson(ranks(labels), ranks(predictions))


def ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each number, float64 [N], from 1; equal numbers have their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def micro_f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Return the micro-averaged F1 of multi-label predictions; labels and predictions bool [N, n]."""
    return _ratio(2 * (labels & predictions).sum(), labels.sum() + predictions.sum())


def label_f1(labels: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    """Return the F1 of each label, float64 [n], 0 for labels that do not occur; labels and predictions bool [N, n]."""
    return 2 * (labels & predictions).sum(0) / np.maximum(labels.sum(0) + predictions.sum(0), 1)


def mean_label_f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Return the mean of `label_f1`."""
    return _mean(label_f1(labels, predictions))


def subset_accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Return the fraction of examples with all labels correct; labels and predictions bool [N, n]."""
    return _mean((labels == predictions).all(axis=1))


# Metrics by their name in eval_results.txt, without "eval_". Of a confusion matrix int64 [n, n]:
CLASS_METRICS = {"accuracy": accuracy, "f1": f1, "macro_f1": macro_f1, "matthews": matthews}
# Of labels and predictions bool [N, n]:
MULTI_LABEL_METRICS = {"micro_f1": micro_f1, "macro_f1": mean_label_f1, "subset_accuracy": subset_accuracy}
# Of labels and predictions float [N]:
REGRESSION_METRICS = {"pearson": pearson, "spearman": spearman}


def constant_class_levels(counts: np.ndarray) -> dict[str, float]:
    """Return the highest scores of predicting the same class for all examples, as chance levels by name.

    Args:
        counts: int [n], number of examples of each class; with two classes, F1 is that of the second.
    """
    total = max(int(counts.sum()), 1)
    class_scores = 2 * counts / (total + counts)
    return {
        "accuracy_majority_class": _ratio(counts.max(), total),
        "f1_constant_prediction": float(class_scores[1]) if len(counts) == 2 else 0.0,
        "macro_f1_constant_prediction": _ratio(class_scores.max(), (counts > 0).sum()),
        "matthews_constant_prediction": 0.0,
    }


def constant_labels_levels(labels: np.ndarray) -> dict[str, float]:
    """Return the highest scores of predicting the same label set for all examples, as chance levels by name.

    Args:
        labels: bool [N, n].
    """
    counts = labels.sum(0)
    _, same = np.unique(labels, axis=0, return_counts=True)
    return {
        "micro_f1_constant_prediction": best_constant_micro_f1(labels),
        "macro_f1_constant_prediction": _mean(2 * counts / (len(labels) + counts)) if len(labels) else 0.0,
        "subset_accuracy_majority_class": _ratio(same.max(initial=0), len(labels)),
    }


def best_constant_micro_f1(labels: np.ndarray) -> float:
    """Return the highest `micro_f1` of predicting the same label set for all examples; labels bool [N, n]."""
    counts = np.sort(labels.sum(0))[::-1]
    sizes = np.arange(1, len(counts) + 1)
    # The best label set of a given size has the most frequent labels.
    scores = 2 * np.cumsum(counts) / np.maximum(sizes * len(labels) + counts.sum(), 1)
    return float(scores.max(initial=0.0))


def _direction(values: np.ndarray) -> np.ndarray:
    """Return the centered numbers scaled to norm 1, float64 [N]; zeros if all numbers are equal."""
    values = values.astype(np.float64)
    if not len(values) or (values == values[0]).all():
        return np.zeros(len(values))
    centered = values - values.mean()
    largest = np.abs(centered).max()
    centered = centered / largest if largest else centered
    length = np.linalg.norm(centered)
    return centered / length if length else centered


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator else 0.0


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.0

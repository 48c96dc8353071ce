"""Logits to probabilities, with numpy, and without overflow whatever the logits.

Letters in shapes: N rows, n classes.
"""

import numpy as np


def softmax(logits: np.ndarray) -> np.ndarray:
    """Of one class among several, float64 [N, n]; logits float [N, n]."""
    exponentials = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Of each class by itself, float64, of the shape of the logits."""
    exponentials = np.exp(-np.abs(logits.astype(np.float64)))
    return np.where(logits >= 0, 1.0, exponentials) / (1.0 + exponentials)

"""Models of every task with random weights, and the functions of their exports; made once per session."""

import dataclasses
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from beambert.trainers.inference import span_signatures
from beambert.trainers.inference.export_writers import graph_tokenizer
from beambert.trainers.inference.model_loading import InferenceModel, load_model
from tests.trainers.random_models import CONFIG as TWO_LAYERS
from tests.trainers.random_models import write_model

CONFIG = dataclasses.replace(TWO_LAYERS, num_hidden_layers=1)
LENGTH = 48
# So that windows overlap in a model this small.
STRIDE = 7
TOP_K = 3
LABELS = ("no", "perhaps", "yes \u00e9")
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
TASKS = {
    "pretraining": None,
    "classification": LABELS,
    "regression": None,
    "token_classification": TAGS,
    "token_classification_bilstm": TAGS,
    "multiple_choice": None,
    "span": None,
}
# A classifier whose texts have any number of labels.
MULTI_LABEL = "multi_label"


def write_models(folder: Path) -> None:
    """Write a model of every task into a new directory of its name."""
    for task, labels in TASKS.items():
        write_model(folder / task, task, labels, config=CONFIG)
    # With two layers, its texts differ in the number of labels.
    write_model(folder / MULTI_LABEL, MULTI_LABEL, LABELS)


class ServedModels:
    """The signatures of exports with a tokenizer, without files; each is traced when it is first called.

    Args:
        folder: directory of `write_models`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.load = cache(self._load)
        self._signatures = cache(self._traced)

    def _load(self, name: str) -> InferenceModel:
        return load_model(self._folder / name)

    def _traced(self, name: str):
        from beambert.trainers.inference.signatures import served_model

        model = self.load(name)
        # The module keeps the tables of the tokenizer.
        return served_model(model, graph_tokenizer(model, "exact"), LENGTH, TOP_K)

    def function(self, name: str, signature: str):
        """Return a signature of a model, a function of tensors."""
        return self._signatures(name)[1][signature]

    def ask(self, name: str, signature: str, **inputs: object) -> dict[str, np.ndarray]:
        """Return the outputs of a signature for lists of strings or arrays."""
        import tensorflow as tf

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(span_signatures, "DOC_STRIDE", STRIDE)
            outputs = self.function(name, signature)(**{key: tf.constant(value) for key, value in inputs.items()})
        return {key: value.numpy() for key, value in outputs.items()}


def softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


def close(found: object, wanted: object) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)

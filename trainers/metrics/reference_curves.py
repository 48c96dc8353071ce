"""Reference curves: masked-LM loss and accuracy against training tokens, of runs with default options.

`docs/guides/loss-stuck.md` has commands, machine and dates. This file imports neither Keras nor TensorFlow.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Point(NamedTuple):
    """An evaluation: training tokens so far with padding, masked-LM loss in nats, masked-LM accuracy."""

    tokens: int
    loss: float
    accuracy: float


class ReferenceRun(NamedTuple):
    """A reference run.

    Attributes:
        model: preset of the model.
        hidden_size, layers: shape of the model.
        data: description of the training data.
        points: validation results, by tokens.
    """

    model: str
    hidden_size: int
    layers: int
    data: str
    points: tuple[Point, ...]


_WIKIPEDIA = "61 MB of English Wikipedia with a vocabulary of 8,000 tokens"

REFERENCE_RUNS: tuple[ReferenceRun, ...] = ()


def reference_of(config: Mapping[str, Any]) -> ReferenceRun | None:
    """Return the reference run of a model's size; None if there is none.

    Args:
        config: content of bert_config.json.
    """
    shape = config.get("hidden_size"), config.get("num_hidden_layers")
    return next((run for run in REFERENCE_RUNS if (run.hidden_size, run.layers) == shape), None)


def reference_at(run: ReferenceRun, tokens: float) -> Point | None:
    """Return the last point of a run at or before a number of tokens; None before the first point."""
    before = [point for point in run.points if point.tokens <= tokens]
    return before[-1] if before else None

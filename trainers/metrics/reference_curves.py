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

REFERENCE_RUNS = (
    ReferenceRun(
        "tiny",
        128,
        2,
        _WIKIPEDIA,
        (
            Point(1_024_000, 6.998, 0.060),
            Point(2_048_000, 6.795, 0.086),
            Point(3_072_000, 6.648, 0.107),
            Point(4_096_000, 6.558, 0.122),
            Point(5_120_000, 6.487, 0.132),
            Point(6_144_000, 6.453, 0.134),
            Point(7_168_000, 6.426, 0.143),
            Point(8_192_000, 6.394, 0.146),
            Point(9_216_000, 6.384, 0.145),
            Point(10_240_000, 6.381, 0.146),
            Point(11_264_000, 6.363, 0.147),
        ),
    ),
    ReferenceRun(
        "mini",
        256,
        4,
        _WIKIPEDIA,
        (
            Point(1_638_400, 6.64, 0.110),
            Point(3_276_800, 6.49, 0.129),
            Point(4_915_200, 6.46, 0.135),
            Point(6_553_600, 6.44, 0.139),
            Point(8_192_000, 6.42, 0.144),
            Point(9_830_400, 6.39, 0.144),
            Point(11_468_800, 6.37, 0.145),
            Point(13_107_200, 6.36, 0.147),
        ),
    ),
)


def reference_of(config: Mapping[str, Any]) -> ReferenceRun | None:
    """Return the reference run of a model's size; None for another size.

    Args:
        config: content of bert_config.json.
    """
    shape = config.get("hidden_size"), config.get("num_hidden_layers")
    return next((run for run in REFERENCE_RUNS if (run.hidden_size, run.layers) == shape), None)


def reference_at(run: ReferenceRun, tokens: float) -> Point | None:
    """Return the last point of a run at or before a number of tokens; None before the first point."""
    before = [point for point in run.points if point.tokens <= tokens]
    return before[-1] if before else None

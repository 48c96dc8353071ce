"""Reference curves: masked-LM loss and accuracy against training tokens.

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
        f"{_WIKIPEDIA}, in sequences of 16, then 64, then 128 tokens",
        (
            Point(819_200, 6.437, 0.149),
            Point(1_638_400, 5.695, 0.202),
            Point(2_457_600, 5.408, 0.225),
            Point(3_276_800, 5.053, 0.258),
            # From here on 64 tokens, with next-sentence prediction and a new warm-up.
            Point(7_372_800, 4.848, 0.255),
            Point(11_468_800, 4.589, 0.279),
            Point(15_564_800, 4.422, 0.289),
            Point(19_660_800, 4.267, 0.307),
            Point(23_756_800, 4.180, 0.317),
            Point(27_852_800, 4.097, 0.322),
            Point(36_044_800, 3.959, 0.337),
            Point(44_236_800, 3.877, 0.347),
            Point(52_428_800, 3.816, 0.354),
            Point(60_620_800, 3.707, 0.367),
            Point(68_812_800, 3.536, 0.386),
            Point(77_004_800, 3.361, 0.409),
            Point(85_196_800, 3.289, 0.419),
        ),
    ),
    ReferenceRun(
        "small",
        512,
        4,
        f"{_WIKIPEDIA}, in sequences of 16 tokens",
        (
            Point(819_200, 6.132, 0.177),
            Point(1_638_400, 5.505, 0.223),
            Point(2_457_600, 5.257, 0.245),
            Point(3_276_800, 4.924, 0.273),
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

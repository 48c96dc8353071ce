"""Define `baselines.json`, the masked-LM levels and measures of a run's training text, and the levels a run has passed.

A level is passed where masked_lm_loss is below the loss of the level. This file imports neither Keras nor TensorFlow.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from beambert.common.local_files import write_atomic
from beambert.common.typed_json import JsonError, NonNegative, decode, require_format
from beambert.trainers.metrics.ngram_baselines import BIGRAM, UNCHANGED, UNIGRAM, Level
from beambert.trainers.metrics.text_measures import TextMeasures

FILE_NAME = "baselines.json"
FORMAT = "beambert-baselines"
FORMAT_VERSION = 1
LOSS = "masked_lm_loss"
# Sentences for the terminal: what the model does after it has passed each level.
MEANINGS = {
    UNIGRAM: "the model now predicts masked words better than by their frequency",
    UNCHANGED: "the model now also uses words that masking has left unchanged",
    BIGRAM: "the model now predicts better than from the two neighboring words",
}


@dataclasses.dataclass(frozen=True)
class LevelFields:
    """A level as recorded: mean cross-entropy in nats, and fraction of correct predictions."""

    loss: NonNegative
    accuracy: NonNegative


@dataclasses.dataclass(frozen=True)
class BaselineRecord:
    """The content of `baselines.json`.

    Attributes:
        levels: masked-LM levels by name, as of `beambert.trainers.metrics.ngram_baselines`; empty without predictions.
        text: measures of the training text.
    """

    levels: dict[str, LevelFields]
    text: TextMeasures

    @classmethod
    def of(cls, levels: Mapping[str, Level], text: TextMeasures) -> "BaselineRecord":
        """Return the record of levels, rounded to the digits that a sample supports."""
        fields = {name: LevelFields(round(level.loss, 4), round(level.accuracy, 4)) for name, level in levels.items()}
        return cls(fields, text)

    def write(self, output: Path) -> None:
        """Write the file to a run directory."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **dataclasses.asdict(self)}
        write_atomic(output / FILE_NAME, json.dumps(content, indent=2, sort_keys=True).encode() + b"\n")


def load(output: Path) -> BaselineRecord | None:
    """Return the record in a run directory; None if it is missing, invalid or of another version."""
    try:
        content = (output / FILE_NAME).read_bytes()
        require_format(content, FORMAT, FORMAT_VERSION)
        return decode(content, BaselineRecord)
    except (OSError, JsonError):
        return None


class _Level(Protocol):
    @property
    def loss(self) -> float: ...


def in_order(levels: Mapping[str, _Level]) -> list[str]:
    """Return the names of the levels in the order in which a run passes them, by descending loss."""
    return sorted(levels, key=lambda name: -levels[name].loss)


def standing(metrics: Mapping[str, Any], levels: Mapping[str, _Level]) -> str | None:
    """Return the last level passed, such as "past bigram", or "not past unigram" if none; None without levels or loss.

    Args:
        metrics: metrics of training steps or of an evaluation.
        levels: levels by name.
    """
    order = in_order(levels)
    if not order or not isinstance(metrics.get(LOSS), int | float):
        return None
    passed = passed_levels(metrics, levels)
    return f"past {passed[-1]}" if passed else f"not past {order[0]}"


def passed_levels(metrics: Mapping[str, Any], levels: Mapping[str, _Level]) -> list[str]:
    """Return the names of the levels passed, in the order in which a run passes them; empty without a loss."""
    loss = metrics.get(LOSS)
    return [name for name in in_order(levels) if isinstance(loss, int | float) and loss < levels[name].loss]


def passed_at(lines: Iterable[Mapping[str, Any]], levels: Mapping[str, _Level]) -> dict[str, int]:
    """Return the first step at which each level was passed, without levels that were not.

    Args:
        lines: lines of metrics.jsonl of one split, by step.
        levels: levels by name.
    """
    steps: dict[str, int] = {}
    for line in lines:
        for name in passed_levels(line, levels):
            steps.setdefault(name, line["step"])
    return {name: steps[name] for name in in_order(levels) if name in steps}

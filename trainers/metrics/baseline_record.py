"""Define `baselines.json`: the masked-LM levels of a run's training text, and its measures.

This file imports neither Keras nor TensorFlow.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from beambert.common.local_files import write_atomic
from beambert.common.typed_json import JsonError, NonNegative, decode, require_format
from beambert.trainers.metrics.ngram_baselines import Level
from beambert.trainers.metrics.text_measures import TextMeasures

FILE_NAME = "baselines.json"
FORMAT = "beambert-baselines"
FORMAT_VERSION = 1


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

"""`beambert.json`: properties of a model that weights, `bert_config.json` and `vocab.txt` do not record."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from beambert.bert_model.checkpoints import tf1
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.bert_model.heads import ALL_HEADS
from beambert.bert_model.heads.head import Head
from beambert.common.local_files import read_small
from beambert.common.typed_json import (
    Count,
    FormatError,
    JsonError,
    NonEmpty,
    Number,
    Positive,
    convert,
    decode,
    require_format,
    shown,
)
from beambert.common.word_rules import RecordedRules, without_released_rules

FILE_NAME = "beambert.json"
CONFIG_FILE_NAME = "bert_config.json"
VOCAB_FILE_NAME = "vocab.txt"
MODEL_CARD_FILE_NAME = "README.md"
# Directory of the checkpoints of a run, or of the single checkpoint of a converted model.
CHECKPOINTS_NAME = "checkpoints"
CHECKPOINT_NAME = "model.ckpt"
FORMAT = "beambert-model"
FORMAT_VERSION = 2


@dataclasses.dataclass(frozen=True)
class ModelRecord:
    """The content of `beambert.json`.

    Attributes:
        task: `recorded_task` of the head.
        num_labels: number of classes; None for a head without classes.
        labels: names of the classes; None where they have no names.
        do_lower_case: whether text is lower-cased before WordPiece; None if unknown.
        max_seq_length: maximum sequence length of the training; None if unknown.
        data_fingerprint: hex digest of the training data, several separated by commas; None if unknown.
        steps: number of training steps; None if unknown.
        metrics: metrics of the evaluation.
        origin: description of the initial or converted checkpoint; None for neither.
        causal_attention: whether a position attends only to itself and earlier positions; other formats do not record
            this.
        multi_label: whether a text may have several labels, with a sigmoid per label instead of the softmax.
        text_pairs: whether all fine-tuning examples were pairs of texts (True) or none was (False); None for a mixture,
            or if unknown.
        strip_accents, tokenize_chinese_chars: as in `WordRules`; not written where they are the released rules.
        next_sentence: whether next-sentence prediction was trained; False for a pretraining run without it, whose head
            has random weights that readers ignore. Only False is written.
    """

    task: NonEmpty
    num_labels: Positive | None = None
    labels: tuple[str, ...] | None = None
    do_lower_case: bool | None = None
    max_seq_length: Positive | None = None
    data_fingerprint: str | None = None
    steps: Count | None = None
    metrics: dict[str, Number] = dataclasses.field(default_factory=dict)
    origin: str | None = None
    causal_attention: bool = False
    multi_label: bool = False
    text_pairs: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    next_sentence: bool = True

    @property
    def head(self) -> Head:
        """Return the recorded head."""
        heads = [head for head in ALL_HEADS.values() if head.recorded_task == self.task]
        return next((head for head in heads if head.several_labels == self.multi_label), heads[0])

    @property
    def word_rules(self) -> RecordedRules:
        """Return the recorded word rules."""
        return RecordedRules(self.do_lower_case, self.strip_accents, self.tokenize_chinese_chars)

    def to_json(self) -> str:
        """Serialize to the text of `beambert.json`, with sorted keys."""
        fields = without_released_rules(dataclasses.asdict(self))
        if self.next_sentence:
            del fields["next_sentence"]
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **fields}
        # JSON cannot represent infinite metrics.
        content["metrics"] = {name: value for name, value in self.metrics.items() if math.isfinite(value)}
        return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


# Required fields; the others are written only where they differ from their default.
_REQUIRED = frozenset(field.name for field in dataclasses.fields(ModelRecord)) - {
    "strip_accents",
    "tokenize_chinese_chars",
    "next_sentence",
}
_REMEDY = "copy the model from its source again"


def load(directory: Path, remedy: str = _REMEDY) -> ModelRecord | None:
    """Return the record of a model's directory; None otherwise.

    Args:
        directory: directory of the model.
        remedy: last part of the error message about a corrupt record.

    Raises:
        CheckpointError: the record cannot be read.
    """
    path = directory / FILE_NAME
    try:
        content = read_small(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror or error}); {remedy}") from error
    try:
        require_format(content, FORMAT, FORMAT_VERSION)
        fields = decode(content, dict[str, Any])
        for name in sorted(_REQUIRED - fields.keys()):
            raise JsonError(f"{name} is missing")
        record = convert(fields, ModelRecord)
        if record.task not in {head.recorded_task for head in ALL_HEADS.values()}:
            raise JsonError(f"task has the unknown value {shown(record.task)}")
        if record.head.has_classes and record.num_labels is None:
            raise JsonError(f"num_labels must be an integer for the task {record.task}, not null")
        if record.labels is not None and record.num_labels not in (None, len(record.labels)):
            raise JsonError(f"num_labels is {shown(record.num_labels)}, but there are {len(record.labels)} labels")
    except FormatError as error:
        raise CheckpointError(
            f"{path} {error}; train or convert the model again, or remove this file from a copy of the directory to "
            "read its weights alone"
        ) from error
    except JsonError as error:
        raise CheckpointError(f"{path}: {error}; {remedy}") from error
    return record


def model_checkpoint(directory: Path) -> Path | None:
    """Return the path of the model's checkpoint, without `.index`: that of the record's `steps`, else the last one.

    Returns:
        The path, or None where there is no checkpoint.

    Raises:
        CheckpointError: the record cannot be read.
    """
    record = load(directory)
    if record is not None and record.steps is not None:
        path = directory / CHECKPOINTS_NAME / f"{CHECKPOINT_NAME}-{record.steps}"
        if path.with_name(f"{path.name}.index").is_file():
            return path
    return checkpoint(directory)


def checkpoint(directory: Path) -> Path | None:
    """Return the path of the last checkpoint in a model's directory, without `.index`; None otherwise."""
    return tf1.find(directory / CHECKPOINTS_NAME) or tf1.find(directory)

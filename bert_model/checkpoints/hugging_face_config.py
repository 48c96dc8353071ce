"""The JSON files of a Hugging Face model: config.json and tokenizer_config.json.

`hidden_act` "gelu" is the erf form in transformers; the tanh form of the released BERT is called "gelu_new".
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.bert_model.config import BertConfig, ConfigError
from beambert.bert_model.heads import ALL_HEADS
from beambert.bert_model.heads.head import Head
from beambert.common.tokenizer_files import AddedToken, read_rules
from beambert.common.typed_json import JsonError, convert, shorten
from beambert.common.typed_json import read as read_json
from beambert.common.word_rules import RecordedRules, WordRules, without_released_rules

CONFIG_FILE_NAME = "config.json"

# Classes of transformers whose config.json has the names of the labels.
_WITH_LABELS = ("BertForSequenceClassification", "BertForTokenClassification")
# Activation in `BertConfig` -> name in transformers.
_ACTIVATIONS = {"gelu": "gelu_new", "gelu_erf": "gelu", "relu": "relu"}
_ACTIVATIONS_READ = {"gelu": "gelu_erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu"}
# Required values of keys; with any other value, the model is not BERT.
_FIXED_KEYS = {"model_type": "bert", "is_decoder": False, "position_embedding_type": "absolute"}


@dataclasses.dataclass(frozen=True)
class _Config:
    """The fields of `config.json` in addition to those of `BertConfig`."""

    hidden_act: str = "gelu"
    id2label: dict[str, str | int] | None = None
    architectures: list[str] | None = None
    problem_type: str | None = None


@dataclasses.dataclass(frozen=True)
class Description:
    """The content of a `config.json`.

    Attributes:
        config: configuration of the model.
        head: head of the model; None where the file has no class of transformers.
        labels: names of the classes; None where they have no names.
    """

    config: BertConfig
    head: Head | None
    labels: tuple[str, ...] | None


def describe(directory: Path) -> Description:
    """Read `config.json`.

    Raises:
        CheckpointError: the file is missing, is not a JSON object, or describes another architecture than BERT.
    """
    path = directory / CONFIG_FILE_NAME
    content = _json_object(path)
    content.setdefault("model_type", "bert")
    for key, value in _FIXED_KEYS.items():
        if content.get(key, value) != value:
            raise CheckpointError(
                f"{path} sets {key} to {shorten(repr(content[key]))}, while BERT has {value!r}; use a BERT model"
            )
    try:
        described = convert(content, _Config)
        labels = _labels(described.id2label)
    except JsonError as error:
        raise CheckpointError(f"{path}: {error}; copy it again") from error
    activation = described.hidden_act
    if activation not in _ACTIVATIONS_READ:
        known = ", ".join(_ACTIVATIONS_READ)
        raise CheckpointError(f"{path} sets hidden_act to {shorten(repr(activation))}; supported values: {known}")
    fields = {field.name for field in dataclasses.fields(BertConfig)}
    values = {key: value for key, value in content.items() if key in fields}
    if "vocab_size" not in values:
        raise CheckpointError(f"{path}: vocab_size is missing; copy it again")
    try:
        config = BertConfig(**{**values, "hidden_act": _ACTIVATIONS_READ[activation]})
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error
    name = described.architectures[0] if described.architectures else None
    heads = [head for head in ALL_HEADS.values() if name in head.hugging_face_classes]
    if name is not None and not heads:
        known = ", ".join(dict.fromkeys(name for head in ALL_HEADS.values() for name in head.hugging_face_classes))
        raise CheckpointError(f"{path} has the unknown class {shorten(name)}; use one of {known}")
    count = None if labels is None else len(labels)
    matching = [head for head in heads if head.matches_config(described.problem_type, count)]
    # transformers writes LABEL_0, LABEL_1, ... for classes without names.
    if labels == _numbered(len(labels or ())):
        labels = None
    return Description(config, matching[-1] if matching else None, labels)


def architecture(head: Head, tf1_names: Iterable[str]) -> str:
    """Return the class of transformers for a model with these weights.

    Raises:
        CheckpointError: transformers has no class for the head.
    """
    name = head.hugging_face_class(list(tf1_names))
    if name is None:
        raise CheckpointError(f"transformers has no class for {head.name}; use --to native or tf1")
    return name


def config_json(
    config: BertConfig,
    kind: str,
    head: Head,
    num_labels: int | None,
    labels: Sequence[str] | None,
) -> dict[str, Any]:
    """Return the content of a `config.json`.

    Args:
        config: configuration of the model.
        kind: class of transformers, from `architecture`.
        head: head of the model.
        num_labels: number of classes; None for a head without classes.
        labels: names of the classes; None for LABEL_0, LABEL_1, ...
    """
    content: dict[str, Any] = {
        **dataclasses.asdict(config),
        "architectures": [kind],
        "model_type": "bert",
        "hidden_act": _ACTIVATIONS[config.hidden_act],
        "position_embedding_type": "absolute",
        "pad_token_id": 0,
        "torch_dtype": "float32",
    }
    if kind in _WITH_LABELS:
        content["id2label"] = dict(enumerate(labels or _numbered(num_labels or 1)))
        content["label2id"] = {label: number for number, label in content["id2label"].items()}
    if head.problem_type is not None:
        content["problem_type"] = head.problem_type
    return content


def _labels(id2label: dict[str, str | int] | None) -> tuple[str, ...] | None:
    if id2label is None:
        return None
    if set(id2label) != {str(number) for number in range(len(id2label))}:
        raise JsonError("the keys of id2label must be consecutive numbers from 0")
    return tuple(str(id2label[key]) for key in sorted(id2label, key=int))


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(f"LABEL_{number}" for number in range(count))


def _json_object(path: Path) -> dict[str, Any]:
    try:
        return read_json(path, dict[str, Any])
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing; copy it from the model's source") from error
    except JsonError as error:
        raise CheckpointError(f"{path}: {error}; copy it again") from error


def tokenizer_config(
    config: BertConfig, word_rules: WordRules, added_tokens: Mapping[int, AddedToken] | None = None
) -> str:
    """Return the text of a `tokenizer_config.json` for a `vocab.txt` in the same directory.

    Args:
        config: configuration of the model.
        word_rules: rules that split text into words.
        added_tokens: added tokens by id.
    """
    tokens = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    content: dict[str, Any] = {
        "tokenizer_class": "BertTokenizer",
        **without_released_rules(dataclasses.asdict(word_rules)),
        "model_max_length": config.max_position_embeddings,
        **tokens,
    }
    if added_tokens:
        content["added_tokens_decoder"] = {
            str(number): dataclasses.asdict(token) for number, token in added_tokens.items()
        }
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def word_rules(directory: Path) -> RecordedRules:
    """Return the word rules of `tokenizer_config.json` and `tokenizer.json`.

    Raises:
        CheckpointError: a file is not a JSON object.
    """
    try:
        return read_rules(directory)
    except JsonError as error:
        raise CheckpointError(f"{error}; copy it again") from error

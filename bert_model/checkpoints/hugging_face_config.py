"""The JSON files of a Hugging Face model: config.json and tokenizer_config.json.

`hidden_act` "gelu" is the erf form in transformers; the tanh form of the released BERT is called "gelu_new".
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.bert_model.checkpoints.variable_names import FEATURE_BASED
from beambert.bert_model.config import BertConfig, ConfigError
from beambert.common.tokenizer_files import AddedToken, read_rules
from beambert.common.typed_json import JsonError, convert, shortened
from beambert.common.typed_json import read as read_json
from beambert.common.word_rules import RecordedRules, WordRules, without_released_rules

CONFIG_FILE_NAME = "config.json"

# Class of transformers -> task. A BertModel is a pretraining model without heads.
_TASKS = {
    "BertModel": "pretraining",
    "BertForPreTraining": "pretraining",
    "BertForMaskedLM": "pretraining",
    "BertForNextSentencePrediction": "pretraining",
    "BertForSequenceClassification": "classification",
    "BertForQuestionAnswering": "span",
    "BertForTokenClassification": "token_classification",
    "BertForMultipleChoice": "multiple_choice",
}
# Activation in `BertConfig` -> name in transformers.
_ACTIVATIONS = {"gelu": "gelu_new", "gelu_erf": "gelu", "relu": "relu"}
_ACTIVATIONS_READ = {"gelu": "gelu_erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu"}
# Required values of keys; with any other value, the model is not BERT.
_FIXED_KEYS = {"model_type": "bert", "is_decoder": False, "position_embedding_type": "absolute"}

# `problem_type` of a multi-label classifier.
_MULTI_LABEL = "multi_label_classification"


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
        task: task of the head; None where the file has no class of transformers.
        labels: names of the classes; None where they have no names.
        multi_label: whether a text may have several labels.
    """

    config: BertConfig
    task: str | None
    labels: tuple[str, ...] | None
    multi_label: bool


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
                f"{path} sets {key} to {shortened(repr(content[key]))}, while BERT has {value!r}; use a BERT model"
            )
    try:
        described = convert(content, _Config)
        labels = _labels(described.id2label)
    except JsonError as error:
        raise CheckpointError(f"{path}: {error}; copy it again") from error
    activation = described.hidden_act
    if activation not in _ACTIVATIONS_READ:
        known = ", ".join(_ACTIVATIONS_READ)
        raise CheckpointError(f"{path} sets hidden_act to {shortened(repr(activation))}; supported values: {known}")
    fields = {field.name for field in dataclasses.fields(BertConfig)}
    values = {key: value for key, value in content.items() if key in fields}
    if "vocab_size" not in values:
        raise CheckpointError(f"{path}: vocab_size is missing; copy it again")
    try:
        config = BertConfig(**{**values, "hidden_act": _ACTIVATIONS_READ[activation]})
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error
    name = described.architectures[0] if described.architectures else None
    task = _TASKS.get(name) if name is not None else None
    if name is not None and task is None:
        raise CheckpointError(f"{path} has the unknown class {shortened(name)}; use one of {', '.join(_TASKS)}")
    problem = described.problem_type
    multi_label = task == "classification" and problem == _MULTI_LABEL
    # By default, transformers treats a single class as regression.
    if task == "classification" and (
        problem == "regression" or (labels is not None and len(labels) == 1 and not multi_label)
    ):
        task = "regression"
    # transformers writes LABEL_0, LABEL_1, ... for classes without names.
    if labels == _numbered(len(labels or ())):
        labels = None
    return Description(config, task, labels, multi_label)


def architecture(task: str, tf1_names: Iterable[str]) -> str:
    """Return the class of transformers for a task; for pretraining, the class with the heads that are present.

    Raises:
        CheckpointError: transformers has no class for the task.
    """
    if task == FEATURE_BASED:
        raise CheckpointError(f"transformers has no class for {task} (BERT with a BiLSTM); use --to native or tf1")
    if task == "regression":
        return "BertForSequenceClassification"
    if task != "pretraining":
        return next(name for name, its_task in _TASKS.items() if its_task == task)
    parts = {name.split("/")[1] for name in tf1_names if name.startswith("cls/")}
    masked_lm, next_sentence = "predictions" in parts, "seq_relationship" in parts
    with_masked_lm = "BertForPreTraining" if next_sentence else "BertForMaskedLM"
    return with_masked_lm if masked_lm else "BertForNextSentencePrediction" if next_sentence else "BertModel"


def config_json(
    config: BertConfig,
    kind: str,
    task: str,
    num_labels: int | None,
    labels: Sequence[str] | None,
    multi_label: bool,
) -> dict[str, Any]:
    """Return the content of a `config.json`.

    Args:
        config: configuration of the model.
        kind: class of transformers, from `architecture`.
        task: task of the head.
        num_labels: number of classes; None for a task without classes.
        labels: names of the classes; None for LABEL_0, LABEL_1, ...
        multi_label: whether a text may have several labels.
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
    if task in ("classification", "regression", "token_classification"):
        content["id2label"] = dict(enumerate(labels or _numbered(num_labels or 1)))
        content["label2id"] = {label: number for number, label in content["id2label"].items()}
    if task == "regression":
        content["problem_type"] = "regression"
    if task == "classification":
        content["problem_type"] = _MULTI_LABEL if multi_label else "single_label_classification"
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

"""The JSON files of Hugging Face's transformers beside a model: config.json and tokenizer_config.json.

`hidden_act` "gelu" is the erf form there, where the released BERT's "gelu" is the tanh form ("gelu_new" there).
"""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from beambert_common.typed_json import JsonError, convert, shortened
from beambert_common.typed_json import read as read_json
from bert_model.checkpoints.stored_tensors import CheckpointError
from bert_model.checkpoints.variable_names import FEATURE_BASED
from bert_model.config import BertConfig, ConfigError

CONFIG_FILE_NAME = "config.json"
TOKENIZER_CONFIG_FILE_NAME = "tokenizer_config.json"

# transformers' class, and the task of that head here. A BertModel is a pretraining model whose heads are missing.
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
# Our name of an activation, and theirs.
_ACTIVATIONS = {"gelu": "gelu_new", "gelu_erf": "gelu", "relu": "relu"}
_ACTIVATIONS_READ = {"gelu": "gelu_erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu"}
# Keys that would make the model another one than BERT, at any other value.
_FIXED_KEYS = {"model_type": "bert", "is_decoder": False, "position_embedding_type": "absolute"}

# The `problem_type` of a classifier whose texts may have several labels.
_MULTI_LABEL = "multi_label_classification"


@dataclasses.dataclass(frozen=True)
class _Config:
    """The fields of `config.json` beside those of `BertConfig`."""

    hidden_act: str = "gelu"
    id2label: dict[str, str | int] | None = None
    architectures: list[str] | None = None
    problem_type: str | None = None


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
    """The fields of `tokenizer_config.json` that are read."""

    do_lower_case: bool | None = None


@dataclasses.dataclass(frozen=True)
class Description:
    """The content of a `config.json`.

    Attributes:
        config: shape of the model.
        task: which head, None if the file names no class of transformers.
        labels: names of the classes, None if they have only numbers.
        multi_label: whether a text may have several of them.
    """

    config: BertConfig
    task: str | None
    labels: tuple[str, ...] | None
    multi_label: bool


def describe(directory: Path) -> Description:
    """Read `config.json`.

    Raises:
        CheckpointError: it is missing, no JSON object, or of another architecture than BERT's.
    """
    path = directory / CONFIG_FILE_NAME
    content = _json_object(path)
    content.setdefault("model_type", "bert")
    for key, value in _FIXED_KEYS.items():
        if content.get(key, value) != value:
            raise CheckpointError(
                f"{path} sets {key} to {shortened(repr(content[key]))}, BERT has {value!r}; give a BERT model"
            )
    try:
        described = convert(content, _Config)
        labels = _labels(described.id2label)
    except JsonError as error:
        raise CheckpointError(f"{path}: {error}; copy it again") from error
    activation = described.hidden_act
    if activation not in _ACTIVATIONS_READ:
        known = ", ".join(_ACTIVATIONS_READ)
        raise CheckpointError(f"{path} sets hidden_act to {shortened(repr(activation))}; BERT is known with {known}")
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
        raise CheckpointError(f"{path} names the class {shortened(name)}; give one of {', '.join(_TASKS)}")
    problem = described.problem_type
    multi_label = task == "classification" and problem == _MULTI_LABEL
    # transformers takes a single class for a regression where nothing else is said.
    if task == "classification" and (
        problem == "regression" or (labels is not None and len(labels) == 1 and not multi_label)
    ):
        task = "regression"
    # LABEL_0, LABEL_1, ... are what transformers writes for classes without names.
    if labels == _numbered(len(labels or ())):
        labels = None
    return Description(config, task, labels, multi_label)


def architecture(task: str, tf1_names: Iterable[str]) -> str:
    """Return the class of transformers that has a task's head; for pretraining, one that has the heads present.

    Raises:
        CheckpointError: it has none for the task.
    """
    if task == FEATURE_BASED:
        raise CheckpointError(f"transformers has no class for {task}, BERT under a BiLSTM; give --to native or tf1")
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
        config: shape of the model.
        kind: class of transformers, as `architecture` returns it.
        task: the head.
        num_labels: number of its classes, None where the task has no such number.
        labels: names of the classes, None for LABEL_0, LABEL_1, ...
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
        raise JsonError("the keys of id2label must be the numbers from 0 on")
    return tuple(str(id2label[key]) for key in sorted(id2label, key=int))


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(f"LABEL_{number}" for number in range(count))


def _json_object(path: Path) -> dict[str, Any]:
    try:
        return read_json(path, dict[str, Any])
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing; copy it there too") from error
    except JsonError as error:
        raise CheckpointError(f"{path}: {error}; copy it again") from error


def tokenizer_config(config: BertConfig, do_lower_case: bool) -> str:
    """Return the text of a `tokenizer_config.json` for a `vocab.txt` beside it."""
    tokens = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    content = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": do_lower_case,
        "model_max_length": config.max_position_embeddings,
        **tokens,
    }
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def do_lower_case(directory: Path) -> bool | None:
    """Return whether `tokenizer_config.json` lower-cases text; None if it does not say so.

    Raises:
        CheckpointError: it is no JSON object.
    """
    path = directory / TOKENIZER_CONFIG_FILE_NAME
    try:
        return read_json(path, TokenizerConfig).do_lower_case
    except FileNotFoundError:
        return None
    except JsonError as error:
        raise CheckpointError(f"{path}: {error}; copy it again") from error

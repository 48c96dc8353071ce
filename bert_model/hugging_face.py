"""Models as Hugging Face's transformers keeps them: config.json, model.safetensors or pytorch_model.bin, vocab.txt.

The names and shapes of the variables come from the table in names.py; here is what else differs: matrices called
`kernel` lie transposed, the decoder of the masked-LM head is the word embeddings once more, and `hidden_act` "gelu" is
the erf form, where the released BERT's "gelu" is the tanh form ("gelu_new" there).
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beambert_json import JsonError, convert, shortened
from beambert_json import read as read_json
from bert_model import pytorch_file, safetensors_file
from bert_model.config import BertConfig, ConfigError
from bert_model.names import FEATURE_BASED, VariableName
from bert_model.stored_tensors import CheckpointError, StoredTensor, transposed

CONFIG_FILE_NAME = "config.json"
TOKENIZER_CONFIG_FILE_NAME = "tokenizer_config.json"
WEIGHTS_FILE_NAME = "model.safetensors"
# In the order of preference: safetensors hold numbers and nothing else.
WEIGHTS_FILE_NAMES = (
    WEIGHTS_FILE_NAME,
    f"{WEIGHTS_FILE_NAME}.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)

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
# Classes that transformers builds without a pooler: it would be an unexpected key.
_WITHOUT_POOLER = ("BertForMaskedLM", "BertForQuestionAnswering", "BertForTokenClassification")
# Our name of an activation, and theirs.
_ACTIVATIONS = {"gelu": "gelu_new", "gelu_erf": "gelu", "relu": "relu"}
_ACTIVATIONS_READ = {"gelu": "gelu_erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu"}
# Keys that would make the model another one than BERT, at any other value.
_FIXED_KEYS = {"model_type": "bert", "is_decoder": False, "position_embedding_type": "absolute"}

# The `problem_type` of a classifier whose texts may have several labels.
_MULTI_LABEL = "multi_label_classification"

_DECODER_WEIGHT = "cls.predictions.decoder.weight"
_DECODER_BIAS = "cls.predictions.decoder.bias"
_OUTPUT_BIAS = "cls.predictions.bias"
_WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
_POSITION_IDS = "bert.embeddings.position_ids"


@dataclasses.dataclass(frozen=True)
class _Config:
    """The fields of `config.json` beside those of `BertConfig`."""

    hidden_act: str = "gelu"
    id2label: dict[str, str | int] | None = None
    architectures: list[str] | None = None
    problem_type: str | None = None


@dataclasses.dataclass(frozen=True)
class _Index:
    """The fields of `model.safetensors.index.json`: the file of each tensor by the tensor's name."""

    weight_map: dict[str, str]


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
    """The fields of `tokenizer_config.json` that are read."""

    do_lower_case: bool | None = None


@dataclasses.dataclass(frozen=True)
class Description:
    """What a `config.json` says.

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


def is_model(directory: Path) -> bool:
    """Whether a directory holds weights under Hugging Face's names."""
    return any((directory / name).is_file() for name in WEIGHTS_FILE_NAMES)


def describe(directory: Path) -> Description:
    """Reads `config.json`.

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
    # LABEL_0, LABEL_1, ... are what transformers puts where nobody named the classes.
    if labels == _numbered(len(labels or ())):
        labels = None
    return Description(config, task, labels, multi_label)


def read(directory: Path) -> dict[str, StoredTensor]:
    """Every tensor of a model by the name it has in a model with heads (`bert.encoder...`), aliases resolved.

    Raises:
        CheckpointError: files are missing or damaged, or the decoder is not tied to the word embeddings.
    """
    tensors = {_current_name(name): tensor for name, tensor in _stored(directory).items()}
    if not any(name.startswith("bert.") for name in tensors):
        tensors = {_with_prefix(name): tensor for name, tensor in tensors.items()}
    tensors.pop(_POSITION_IDS, None)
    decoder, bias = tensors.pop(_DECODER_WEIGHT, None), tensors.pop(_DECODER_BIAS, None)
    if bias is not None:
        tensors.setdefault(_OUTPUT_BIAS, bias)
    words = tensors.get(_WORD_EMBEDDINGS)
    if decoder and words and (decoder.shape != words.shape or not np.array_equal(decoder.read(), words.read())):
        raise CheckpointError(
            f"{directory} has a {_DECODER_WEIGHT} of its own; BERT's is the matrix of the word embeddings, give a "
            "model with tied weights"
        )
    return tensors


def by_tf1_name(
    tensors: Mapping[str, StoredTensor], names: Iterable[VariableName]
) -> tuple[dict[str, StoredTensor], list[str]]:
    """Tensors of `read` under their TF1 names and in the shapes they have there, and the names that are left over."""
    found = {name: tensors[name.hugging_face] for name in names if name.hugging_face in tensors}
    renamed = {name.tf1: transposed(value) if _is_kernel(name) else value for name, value in found.items()}
    return renamed, sorted(tensors.keys() - {name.hugging_face for name in found})


def architecture(task: str, tf1_names: Iterable[str]) -> str:
    """The class of transformers that has a task's head; for pretraining, the heads that are there.

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


def write(
    directory: Path,
    config: BertConfig,
    task: str,
    num_labels: int | None,
    labels: Sequence[str] | None,
    tensors: Mapping[str, StoredTensor],
    names: Iterable[VariableName],
    multi_label: bool = False,
) -> list[str]:
    """Writes `config.json` and `model.safetensors`; the decoder, tied to the word embeddings, is left out.

    Args:
        directory: exists.
        config: shape of the model.
        task: the head.
        num_labels: classes that it tells apart, None where the task has no such number.
        labels: names of the classes, None for LABEL_0, LABEL_1, ...
        tensors: by TF1 name.
        names: the table of that task.
        multi_label: whether a text may have several labels.

    Returns:
        The TF1 names that transformers' class has no place for, and which were left out.

    Raises:
        CheckpointError: a tensor cannot be read.
    """
    kind = architecture(task, tensors)
    left_out = [name for name in tensors if kind in _WITHOUT_POOLER and name.startswith("bert/pooler/")]
    state = {}
    for name in names:
        if name.tf1 in tensors and name.tf1 not in left_out:
            key = name.hugging_face.removeprefix("bert.") if kind == "BertModel" else name.hugging_face
            state[key] = transposed(tensors[name.tf1]) if _is_kernel(name) else tensors[name.tf1]
    safetensors_file.write(directory / WEIGHTS_FILE_NAME, state)
    content = _config_json(config, kind, task, num_labels, labels, multi_label)
    (directory / CONFIG_FILE_NAME).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return left_out


def tokenizer_config(config: BertConfig, do_lower_case: bool) -> str:
    """The text of a `tokenizer_config.json` for a `vocab.txt` beside it."""
    tokens = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    content = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": do_lower_case,
        "model_max_length": config.max_position_embeddings,
        **tokens,
    }
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def vocabulary_file(directory: Path) -> Path | None:
    """`vocab.txt`, or `tokenizer.json`, all that newer versions of transformers write; None if there is neither."""
    paths = (directory / name for name in ("vocab.txt", "tokenizer.json"))
    return next((path for path in paths if path.is_file()), None)


def do_lower_case(directory: Path) -> bool | None:
    """Whether `tokenizer_config.json` says that text is lower-cased; None if it does not say.

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


def _stored(directory: Path) -> dict[str, StoredTensor]:
    name = next((name for name in WEIGHTS_FILE_NAMES if (directory / name).is_file()), None)
    if name is None:
        raise CheckpointError(f"{directory} has neither {WEIGHTS_FILE_NAME} nor pytorch_model.bin; copy one there")
    path = directory / name
    if not name.endswith(".index.json"):
        return _reader(name)(path)
    try:
        weight_map = read_json(path, _Index).weight_map
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing; copy it there too") from error
    except JsonError as error:
        raise CheckpointError(f"{path}: {error}; copy it again") from error
    tensors: dict[str, StoredTensor] = {}
    for file in sorted(set(weight_map.values())):
        if Path(file).name != file:
            raise CheckpointError(
                f"{path} points outside its directory, to {shortened(repr(file))}; take the model from its source"
            )
        tensors |= _reader(file)(directory / file)
    missing = sorted(weight_map.keys() - tensors.keys())
    if missing:
        raise CheckpointError(f"{path} promises {shortened(missing[0])}, which no shard holds; copy the model again")
    return tensors


def _reader(name: str) -> Any:
    return safetensors_file.read if ".safetensors" in name else pytorch_file.read


def _current_name(name: str) -> str:
    """Models converted before 2019 have gamma and beta, as in TF1."""
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        if name.endswith(old):
            return name[: -len(old)] + new
    return name


def _with_prefix(name: str) -> str:
    parts = ("embeddings.", "encoder.", "pooler.")
    return f"bert.{name}" if name.startswith(parts) else name


def _is_kernel(name: VariableName) -> bool:
    return name.tf1.endswith("/kernel")


def _config_json(
    config: BertConfig,
    kind: str,
    task: str,
    num_labels: int | None,
    labels: Sequence[str] | None,
    multi_label: bool,
) -> dict[str, Any]:
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

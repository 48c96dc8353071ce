"""Models of Hugging Face's transformers: config.json, model.safetensors or pytorch_model.bin, vocab.txt.

`variable_names.py` has the names and shapes of the variables. Further differences are handled here: `kernel` matrices
are transposed, and the decoder of the masked-LM head is tied to the word embeddings.
"""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beambert.bert_model.checkpoints import pytorch, safetensors
from beambert.bert_model.checkpoints.hugging_face_config import CONFIG_FILE_NAME, architecture, config_json
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError, StoredTensor, transposed
from beambert.bert_model.config import BertConfig
from beambert.bert_model.heads import ALL_HEADS
from beambert.bert_model.heads.head import Head
from beambert.bert_model.variable_names import POOLER, VariableName, encoder_variables
from beambert.common.typed_json import JsonError, shorten
from beambert.common.typed_json import read as read_json

WEIGHTS_FILE_NAME = "model.safetensors"
# In order of preference: safetensors files cannot contain code.
WEIGHTS_FILE_NAMES = (
    WEIGHTS_FILE_NAME,
    f"{WEIGHTS_FILE_NAME}.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)

# Classes of transformers without a pooler, for which its weights would be unexpected keys. BertForMaskedLM has none
# either, but a masked-LM model is where fine-tuning starts: BertForSequenceClassification reads the pooler from it.
_WITHOUT_POOLER = ("BertForQuestionAnswering", "BertForTokenClassification")

_DECODER_WEIGHT = "cls.predictions.decoder.weight"
_DECODER_BIAS = "cls.predictions.decoder.bias"
_OUTPUT_BIAS = "cls.predictions.bias"
_WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
_POSITION_IDS = "bert.embeddings.position_ids"
# Parts of names that wrappers of PyTorch add: data parallelism, torch.compile, FSDP, activation checkpointing.
_WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
# Attributes in which programs keep the whole BERT.
_ATTRIBUTES = {"model", "bert"}


@dataclasses.dataclass(frozen=True)
class _Index:
    """The fields of `model.safetensors.index.json`: the file of each tensor by the tensor's name."""

    weight_map: dict[str, str]


def is_model(directory: Path) -> bool:
    """Return whether a directory contains weight files of a Hugging Face model."""
    return any((directory / name).is_file() for name in WEIGHTS_FILE_NAMES)


def read(directory: Path) -> dict[str, StoredTensor]:
    """Return all tensors of a model by their names in a model with heads (`bert.encoder...`), with aliases resolved.

    Raises:
        CheckpointError: files are missing or corrupt, the names have an unknown prefix, or the decoder is not tied to
            the word embeddings.
    """
    tensors = {_current_name(name): tensor for name, tensor in _stored(directory).items()}
    prefix = _attribute_prefix(directory, tensors)
    tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    if not any(name.startswith("bert.") for name in tensors):
        tensors = {_with_prefix(name): tensor for name, tensor in tensors.items()}
    tensors.pop(_POSITION_IDS, None)
    decoder, bias = tensors.pop(_DECODER_WEIGHT, None), tensors.pop(_DECODER_BIAS, None)
    if bias is not None:
        tensors.setdefault(_OUTPUT_BIAS, bias)
    words = tensors.get(_WORD_EMBEDDINGS)
    if decoder and words and (decoder.shape != words.shape or not np.array_equal(decoder.read(), words.read())):
        raise CheckpointError(
            f"{directory}: {_DECODER_WEIGHT} is not tied to the word embeddings, as in BERT; use a model with tied "
            "weights"
        )
    return tensors


def by_tf1_name(tensors: Mapping[str, StoredTensor], config: BertConfig) -> dict[str, StoredTensor]:
    """Return the tensors of `read` by TF1 name and in TF1 shapes; those of unknown names keep them."""
    heads = (head.own_variables(config, 1) for head in ALL_HEADS.values())
    known = {name.hugging_face: name for name in itertools.chain(encoder_variables(config), *heads)}
    renamed = {}
    for stored_name, tensor in sorted(tensors.items()):
        name = known.get(stored_name)
        renamed[name.tf1 if name else stored_name] = transposed(tensor) if name and _is_kernel(name) else tensor
    return renamed


def write(
    directory: Path,
    config: BertConfig,
    head: Head,
    num_labels: int | None,
    labels: Sequence[str] | None,
    tensors: Mapping[str, StoredTensor],
) -> list[str]:
    """Write `config.json` and `model.safetensors`, without the decoder, which is tied to the word embeddings.

    Args:
        directory: an existing directory.
        config: configuration of the model.
        head: head of the model.
        num_labels: number of classes; None for a head without classes.
        labels: names of the classes; None for LABEL_0, LABEL_1, ...
        tensors: tensors by TF1 name.

    Returns:
        The TF1 names of weights that transformers' class does not have, and which were not written.

    Raises:
        CheckpointError: a tensor cannot be read.
    """
    kind = architecture(head, tensors)
    left_out = [name for name in tensors if kind in _WITHOUT_POOLER and name.startswith(POOLER)]
    state = {}
    for name in head.variable_names(config, num_labels):
        if name.tf1 in tensors and name.tf1 not in left_out:
            key = name.hugging_face.removeprefix("bert.") if kind == "BertModel" else name.hugging_face
            state[key] = transposed(tensors[name.tf1]) if _is_kernel(name) else tensors[name.tf1]
    safetensors.write(directory / WEIGHTS_FILE_NAME, state)
    content = config_json(config, kind, head, num_labels, labels)
    (directory / CONFIG_FILE_NAME).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return left_out


def _stored(directory: Path) -> dict[str, StoredTensor]:
    name = next((name for name in WEIGHTS_FILE_NAMES if (directory / name).is_file()), None)
    if name is None:
        raise CheckpointError(f"{directory} has neither {WEIGHTS_FILE_NAME} nor pytorch_model.bin; add one of them")
    path = directory / name
    if not name.endswith(".index.json"):
        return _reader(name)(path)
    try:
        weight_map = read_json(path, _Index).weight_map
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing; copy it from the model's source") from error
    except JsonError as error:
        raise CheckpointError(f"{path}: {error}; copy it again") from error
    tensors: dict[str, StoredTensor] = {}
    for file in sorted(set(weight_map.values())):
        if Path(file).name != file:
            raise CheckpointError(
                f"{path} refers to {shorten(repr(file))} outside its directory; copy the model from its source"
            )
        tensors |= _reader(file)(directory / file)
    missing = sorted(weight_map.keys() - tensors.keys())
    if missing:
        raise CheckpointError(f"{path} lists {shorten(missing[0])}, which no shard contains; copy the model again")
    return tensors


def _reader(name: str) -> Any:
    return safetensors.read if ".safetensors" in name else pytorch.read


def _current_name(name: str) -> str:
    """Return the name of a tensor in current models without wrappers.

    Models converted before 2019 use gamma and beta, as in TF1.
    """
    name = ".".join(part for part in name.split(".") if part not in _WRAPPERS)
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        if name.endswith(old):
            return name[: -len(old)] + new
    return name


def _attribute_prefix(directory: Path, names: Iterable[str]) -> str:
    """Return the prefix of the names where a BERT is an attribute of another module, such as "model."; usually "".

    Raises:
        CheckpointError: the prefix of the only word embeddings is unknown.
    """
    words = _WORD_EMBEDDINGS.removeprefix("bert.")
    prefixes = sorted(
        {name.removesuffix(words).removesuffix("bert.") for name in names if name.endswith(words)}, key=len
    )
    for prefix in prefixes:
        if _ATTRIBUTES.issuperset(prefix.split(".")[:-1]):
            return prefix
    if prefixes:
        raise CheckpointError(
            f"{directory} has the weights of BERT under the unknown prefix {shorten(repr(prefixes[0]))}; rename the "
            "weights without it, as in bert.embeddings.word_embeddings.weight"
        )
    return ""


def _with_prefix(name: str) -> str:
    parts = ("embeddings.", "encoder.", "pooler.")
    return f"bert.{name}" if name.startswith(parts) else name


def _is_kernel(name: VariableName) -> bool:
    return name.tf1.endswith("/kernel")

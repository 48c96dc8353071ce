"""Preset directories of KerasHub: config.json, model.weights.h5, task.weights.h5 of a masked-LM head, assets.

Names and shapes are those that keras-hub 0.32 writes for `BertBackbone` and `BertMaskedLM`.
"""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from beambert.bert_model.checkpoints.stored_tensors import CheckpointError, StoredTensor, merged_heads
from beambert.bert_model.config import BertConfig, ConfigError
from beambert.common.typed_json import JsonError, Number, Positive, shown
from beambert.common.typed_json import read as read_json

CONFIG_FILE_NAME = "config.json"
WEIGHTS_FILE_NAME = "model.weights.h5"
_TASK_FILE_NAME = "task.weights.h5"
_TOKENIZER_FILE_NAME = "tokenizer.json"
_CLASS_NAME = "BertBackbone"
# Those of Keras are nested five deep.
_DEEPEST_GROUP = 20
# Names of layers in the file, with the TF1 names of their first and second variable.
_EMBEDDINGS = {
    "reversible_embedding": ("bert/embeddings/word_embeddings",),
    "embedding": ("bert/embeddings/token_type_embeddings",),
    "position_embedding": ("bert/embeddings/position_embeddings",),
    "layer_normalization": ("bert/embeddings/LayerNorm/gamma", "bert/embeddings/LayerNorm/beta"),
    "dense": ("bert/pooler/dense/kernel", "bert/pooler/dense/bias"),
}
_LAYER = {
    "_self_attention_layer/query_dense": "attention/self/query",
    "_self_attention_layer/key_dense": "attention/self/key",
    "_self_attention_layer/value_dense": "attention/self/value",
    "_self_attention_layer/output_dense": "attention/output/dense",
    "_self_attention_layer_norm": "attention/output/LayerNorm",
    "_feedforward_intermediate_dense": "intermediate/dense",
    "_feedforward_output_dense": "output/dense",
    "_feedforward_layer_norm": "output/LayerNorm",
}
_MASKED_LM = {
    "masked_lm_head": ("cls/predictions/output_bias",),
    "masked_lm_head/_intermediate_dense": (
        "cls/predictions/transform/dense/kernel",
        "cls/predictions/transform/dense/bias",
    ),
    "masked_lm_head/_intermediate_layer_norm": (
        "cls/predictions/transform/LayerNorm/gamma",
        "cls/predictions/transform/LayerNorm/beta",
    ),
}


@dataclasses.dataclass(frozen=True)
class _Shape:
    """The arguments of a `BertBackbone` in `config.json`."""

    vocabulary_size: Positive
    num_layers: Positive
    num_heads: Positive
    hidden_dim: Positive
    intermediate_dim: Positive
    max_sequence_length: Positive
    num_segments: Positive = 2
    dropout: Number = 0.1


@dataclasses.dataclass(frozen=True)
class _Class:
    """The class of the model in `config.json`."""

    class_name: str = ""


@dataclasses.dataclass(frozen=True)
class _Config:
    """The fields of `config.json` for a BERT."""

    config: _Shape


@dataclasses.dataclass(frozen=True)
class _TokenizerArguments:
    """The argument of a `BertTokenizer` that this project reads."""

    lowercase: bool | None = None


@dataclasses.dataclass(frozen=True)
class _Tokenizer:
    """The fields of `tokenizer.json`."""

    config: _TokenizerArguments


_T = TypeVar("_T")


def is_preset(directory: Path) -> bool:
    """Return whether a directory contains a preset of KerasHub."""
    return (directory / WEIGHTS_FILE_NAME).is_file() and (directory / CONFIG_FILE_NAME).is_file()


def config_of(directory: Path) -> BertConfig:
    """Return the configuration of a preset.

    Raises:
        CheckpointError: the preset is of another model, or its configuration cannot be read.
        ConfigError: the sizes are not those of a BERT.
    """
    path = directory / CONFIG_FILE_NAME
    name = _read(path, _Class).class_name
    if name != _CLASS_NAME:
        raise CheckpointError(f"{path} describes a {name or 'model without class_name'}; use a preset of {_CLASS_NAME}")
    shape = _read(path, _Config).config
    try:
        return BertConfig(
            vocab_size=shape.vocabulary_size,
            hidden_size=shape.hidden_dim,
            num_hidden_layers=shape.num_layers,
            num_attention_heads=shape.num_heads,
            intermediate_size=shape.intermediate_dim,
            hidden_dropout_prob=shape.dropout,
            attention_probs_dropout_prob=shape.dropout,
            max_position_embeddings=shape.max_sequence_length,
            type_vocab_size=shape.num_segments,
        )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def do_lower_case(directory: Path) -> bool | None:
    """Return whether text is lower-cased; None where `tokenizer.json` is missing.

    Raises:
        CheckpointError: the file cannot be read.
    """
    path = directory / _TOKENIZER_FILE_NAME
    return _read(path, _Tokenizer).config.lowercase if path.is_file() else None


def read(directory: Path) -> dict[str, StoredTensor]:
    """Return the variables by TF1 name and in TF1 shapes; others have the names of the file.

    Raises:
        CheckpointError: a file is missing or corrupt.
    """
    tensors = _stored(directory / WEIGHTS_FILE_NAME)
    if (directory / _TASK_FILE_NAME).is_file():
        # The backbone of the task, if it is repeated, is the same.
        tensors = {**_stored(directory / _TASK_FILE_NAME), **tensors}
    # Of all layers in the file: more than the configuration has are an error of the caller.
    names = _names(sum(name.endswith("/_feedforward_output_dense/vars/0") for name in tensors))
    return {names.get(name, name): merged_heads(names.get(name, name), tensor) for name, tensor in tensors.items()}


def _names(num_layers: int) -> dict[str, str]:
    """Return the TF1 names by the names in the file."""
    variables = {**_EMBEDDINGS, **_MASKED_LM}
    for index in range(num_layers):
        layer = f"transformer_encoder_{index}" if index else "transformer_encoder"
        for name, tf1_name in _LAYER.items():
            kinds = ("gamma", "beta") if tf1_name.endswith("LayerNorm") else ("kernel", "bias")
            variables[f"{layer}/{name}"] = tuple(f"bert/encoder/layer_{index}/{tf1_name}/{kind}" for kind in kinds)
    return {f"layers/{name}/vars/{i}": tf1_name for name, pair in variables.items() for i, tf1_name in enumerate(pair)}


def _stored(path: Path) -> dict[str, StoredTensor]:
    """Return the datasets of an HDF5 file, without those of the optimizer."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            tensors = {name: _tensor(path, dataset) for name, dataset in _datasets(file, "", set())}
        sizes = (math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize for tensor in tensors.values())
        if sum(sizes) > path.stat().st_size:
            raise ValueError("its datasets overlap")
        return tensors
    # The library raises almost any exception for a hostile file.
    except Exception as error:
        raise CheckpointError(
            f"{path} is not a complete HDF5 file of weights ({error}); copy the model again"
        ) from error


def _datasets(group: Any, prefix: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield each dataset of a group with its name in the file.

    Args:
        group: group of the file.
        prefix: name of the group in the file, followed by "/"; "" for the file itself.
        seen: addresses of the groups and datasets found so far; of several names of an object, all but one are links.

    Raises:
        ValueError: the group has a link, or is nested deeper than a model.
    """
    import h5py

    if prefix.count("/") > _DEEPEST_GROUP:
        raise ValueError("its groups are nested too deeply")
    for name in group:
        # Before a link is followed.
        entry = group[name] if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
        address = h5py.h5o.get_info(entry.id).addr if entry is not None else None
        if address is None or address in seen:
            raise ValueError(f"{shown(prefix + name)} is a link")
        seen.add(address)
        if isinstance(entry, h5py.Dataset):
            yield prefix + name, entry
        elif isinstance(entry, h5py.Group) and prefix + name != "optimizer":
            yield from _datasets(entry, f"{prefix}{name}/", seen)


def _tensor(path: Path, dataset: Any) -> StoredTensor:
    """Return a dataset, whose numbers are read from the file itself, without following anything in it.

    Raises:
        ValueError: the dataset is not an array of numbers in this file, uncompressed as Keras writes it.
    """
    shape, dtype, offset = tuple(dataset.shape or ()), dataset.dtype, dataset.id.get_offset()
    size = math.prod(shape) * dtype.itemsize
    # The offset is None for data in other files, in chunks, or never written.
    if dtype.kind not in "fiu" or offset is None or dataset.id.get_storage_size() != size:
        raise ValueError(f"{shown(dataset.name)} is not an uncompressed array of numbers in this file")
    if offset + size > path.stat().st_size:
        raise ValueError(f"{shown(dataset.name)} is truncated")

    def value() -> np.ndarray:
        try:
            return np.fromfile(path, dtype, math.prod(shape), offset=offset).reshape(shape)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} cannot be read ({error}); copy the model again") from error

    return StoredTensor(shape, dtype.name, value)


def _read(path: Path, schema: type[_T]) -> _T:
    try:
        return read_json(path, schema)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing; copy it from the model's source") from error
    except JsonError as error:
        raise CheckpointError(f"{path}: {error}; copy it again") from error

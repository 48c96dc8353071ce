"""TensorFlow checkpoints: name-based, as the released code and `beambert pretrain` write them, and object-based.

A checkpoint is `PREFIX.index` and `PREFIX.data-00000-of-00001`. TensorFlow is not needed: `tensor_bundle.py` reads and
writes the files.

An object-based checkpoint stores a variable under a path of Python attributes, which depends on the program that wrote
it. Its object graph (tensorflow/core/protobuf/trackable_object_graph.proto) also has the full name of each variable.
Those of the TensorFlow Model Garden, and of its encoders on TensorFlow Hub from version 3 on, have names of their own.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

from beambert.bert_model.checkpoints import tensor_bundle
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError, StoredTensor, merged_heads, transposed
from beambert.common import file_errors
from beambert.common.wire_format import fields

_STEP = re.compile(r"-(\d+)$")
_T = TypeVar("_T")

_GRAPH_NAME = "_CHECKPOINTABLE_OBJECT_GRAPH"
_OPTIMIZER_SLOT = ".OPTIMIZER_SLOT"
_SAVE_COUNTER = "save_counter"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
# TensorFlow's name of a variable that was created without a name.
_UNNAMED = b"Variable"

# Variable names of `official.nlp.modeling.networks.BertEncoder` and `models.BertPretrainerV2` in the Model Garden.
_NAMES = {
    "word_embeddings/embeddings": "bert/embeddings/word_embeddings",
    "type_embeddings/embeddings": "bert/embeddings/token_type_embeddings",
    "position_embedding/embeddings": "bert/embeddings/position_embeddings",
    "embeddings/layer_norm/gamma": "bert/embeddings/LayerNorm/gamma",
    "embeddings/layer_norm/beta": "bert/embeddings/LayerNorm/beta",
    "pooler_transform/kernel": "bert/pooler/dense/kernel",
    "pooler_transform/bias": "bert/pooler/dense/bias",
    "cls/predictions/output_bias/bias": "cls/predictions/output_bias",
}
_LAYER = re.compile(r"transformer/layer_(\d+)/(\w+(?:/\w+)?)/(kernel|bias|gamma|beta)")
_PARTS = {
    "self_attention/query": "attention/self/query",
    "self_attention/key": "attention/self/key",
    "self_attention/value": "attention/self/value",
    "self_attention/attention_output": "attention/output/dense",
    "self_attention_layer_norm": "attention/output/LayerNorm",
    "intermediate": "intermediate/dense",
    "output": "output/dense",
    "output_layer_norm": "output/LayerNorm",
}
_HEADS = ("cls/predictions/", "next_sentence/")
# The next-sentence head of `BertPretrainerV2` has a pooler of its own, which was trained in place of the encoder's.
_NEXT_SENTENCE = {
    "next_sentence/pooler_dense/kernel": "bert/pooler/dense/kernel",
    "next_sentence/pooler_dense/bias": "bert/pooler/dense/bias",
    "next_sentence/logits/kernel": "cls/seq_relationship/output_weights",
    "next_sentence/logits/bias": "cls/seq_relationship/output_bias",
    # Checkpoints converted from TF1.
    "predictions/transform/logits/kernel": "cls/seq_relationship/output_weights",
    "predictions/transform/logits/bias": "cls/seq_relationship/output_bias",
}


def find(directory: Path) -> Path | None:
    """Return the prefix of a directory's checkpoint: that of the highest step, or one without a step.

    Return None where there is no checkpoint. Of several without a step, `bert_model.ckpt` takes precedence.
    """
    prefixes = [path.with_suffix("") for path in directory.glob("*.ckpt*.index")]

    def rank(prefix: Path) -> tuple[int, bool, str]:
        step = _STEP.search(prefix.name)
        return (int(step[1]) if step else -1, prefix.name == "bert_model.ckpt", prefix.name)

    return max(prefixes, key=rank, default=None)


def read(prefix: Path) -> dict[str, StoredTensor]:
    """Return all variables of a checkpoint; those of the TensorFlow Model Garden by their TF1 names.

    Raises:
        CheckpointError: the checkpoint is missing or corrupt.
    """
    return by_tf1_name(read_variables(prefix))


def read_variables(prefix: Path) -> dict[str, StoredTensor]:
    """Return all variables of a checkpoint by the names that TensorFlow gave them, sorted by key.

    Raises:
        CheckpointError: as `read`.
    """
    stored = _guarded(prefix, lambda: tensor_bundle.read(prefix))
    if _GRAPH_NAME in stored:
        stored = _guarded(prefix, lambda: _by_full_name(prefix, stored))

    def tensor(stored: StoredTensor) -> StoredTensor:
        return stored._replace(read=lambda: _guarded(prefix, stored.read))

    return {name: tensor(variable) for name, variable in stored.items()}


def write(prefix: Path, tensors: Mapping[str, StoredTensor]) -> None:
    """Write a checkpoint, one tensor after the other; tensors keep their bytes and dtypes.

    Args:
        prefix: path without `.index`, in an existing directory.
        tensors: tensors by name.

    Raises:
        CheckpointError: a tensor cannot be read, or the files cannot be written.
    """

    def values() -> Iterator[tuple[str, np.ndarray]]:
        for name in sorted(tensors):
            yield name, tensors[name].read()

    try:
        tensor_bundle.write(prefix, values())
    except tensor_bundle.BundleError as error:
        raise CheckpointError(f"{prefix} cannot be written ({error}); convert the weights to float32") from error
    except file_errors.FileError as error:
        raise CheckpointError(str(error)) from error


def _guarded(prefix: Path, action: Callable[[], _T]) -> _T:
    """Return the result of an action that reads a bundle."""
    try:
        return action()
    except tensor_bundle.UnsupportedTensorError as error:
        raise CheckpointError(
            f"checkpoint {prefix} cannot be read ({error}); save it with whole variables of numbers"
        ) from error
    except tensor_bundle.BundleError as error:
        raise CheckpointError(
            f"checkpoint {prefix} cannot be read ({error}); it is corrupt or incomplete, copy it again"
        ) from error


def _by_full_name(prefix: Path, tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Return the variables of an object-based checkpoint by their full names, without slots and counters.

    Args:
        prefix: path of the checkpoint without `.index`.
        tensors: result of `tensor_bundle.read`.

    Returns:
        Variables by full name, such as "word_embeddings/embeddings"; variables without one by the path of attributes.

    Raises:
        BundleError: the object graph cannot be read.
    """
    try:
        names = _full_names(tensor_bundle.read_bytes(prefix, _GRAPH_NAME))
    except tensor_bundle.BundleError:
        raise
    except ValueError as error:
        raise tensor_bundle.BundleError(f"its object graph: {error}") from error
    variables: dict[str, StoredTensor] = {}
    for key, tensor in tensors.items():
        if key != _GRAPH_NAME and _OPTIMIZER_SLOT not in key and not key.startswith(_SAVE_COUNTER):
            # The first one: later variables of the same name are copies, such as averages of the weights.
            variables.setdefault(names.get(key, key.removesuffix(_SUFFIX)), tensor)
    return variables


def _full_names(graph: bytes) -> dict[str, str]:
    """Return the full names of the variables of a TrackableObjectGraph by their checkpoint keys."""
    names = {}
    for number, node in fields(graph):
        for node_number, attribute in fields(tensor_bundle.message(node)) if number == 1 else ():
            # A SerializedTensor: its full name, and its key in the checkpoint.
            values = dict(fields(tensor_bundle.message(attribute))) if node_number == 2 else {}
            name, key = (values.get(field, b"") for field in (2, 3))
            if isinstance(name, bytes) and isinstance(key, bytes) and name not in (b"", _UNNAMED):
                names[key.decode()] = name.decode()
    return names


def by_tf1_name(variables: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Return variables by TF1 name and in TF1 shapes; those of other models are returned unchanged.

    Args:
        variables: variables by full name (`read_variables`).
    """
    if not _is_encoder(variables):
        return dict(variables)
    renamed: dict[str, StoredTensor] = {}
    for name, tensor in variables.items():
        tf1_name = _tf1_name(name)
        renamed.setdefault(tf1_name, merged_heads(tf1_name, tensor))
    for name, tf1_name in _NEXT_SENTENCE.items():
        if name in renamed:
            tensor = renamed.pop(name)
            renamed[tf1_name] = transposed(tensor) if tf1_name.endswith("output_weights") else tensor
    return renamed


def _is_encoder(variables: Mapping[str, StoredTensor]) -> bool:
    """Return whether variables have the names of a Model Garden encoder."""
    return "word_embeddings/embeddings" in variables


def num_attention_heads(variables: Mapping[str, StoredTensor]) -> int | None:
    """Return the number of heads, a dimension of the projections; None for variables of another kind."""
    query = variables.get("transformer/layer_0/self_attention/query/kernel")
    return query.shape[1] if query is not None and len(query.shape) == 3 else None


def _tf1_name(name: str) -> str:
    if match := _LAYER.fullmatch(name):
        layer, part, variable = match.groups()
        return f"bert/encoder/layer_{layer}/{_PARTS[part]}/{variable}" if part in _PARTS else name
    for head in _HEADS:
        if head in name:
            # In a scope that depends on the model's name.
            name = name[name.index(head) :]
    return _NAMES.get(name, name)

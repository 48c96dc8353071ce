"""Read object-based TensorFlow 2 checkpoints: the variables by the names that TensorFlow gave them.

Such a checkpoint stores a variable under a path of Python attributes, which depends on the program that wrote it. Its
object graph (tensorflow/core/protobuf/trackable_object_graph.proto) also has the full name of each variable.
"""

from collections.abc import Mapping
from pathlib import Path

from beambert.bert_model.checkpoints import tensor_bundle
from beambert.bert_model.checkpoints.stored_tensors import StoredTensor
from beambert.common.wire_format import fields

GRAPH_NAME = "_CHECKPOINTABLE_OBJECT_GRAPH"
_OPTIMIZER_SLOT = ".OPTIMIZER_SLOT"
_SAVE_COUNTER = "save_counter"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
# TensorFlow's name of a variable that was created without a name.
_UNNAMED = b"Variable"


def is_object_based(tensors: Mapping[str, StoredTensor]) -> bool:
    """Return whether the tensors of a bundle are those of an object-based checkpoint."""
    return GRAPH_NAME in tensors


def by_full_name(prefix: Path, tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
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
        names = _full_names(tensor_bundle.read_bytes(prefix, GRAPH_NAME))
    except tensor_bundle.BundleError:
        raise
    except ValueError as error:
        raise tensor_bundle.BundleError(f"its object graph: {error}") from error
    variables: dict[str, StoredTensor] = {}
    for key, tensor in tensors.items():
        if key != GRAPH_NAME and _OPTIMIZER_SLOT not in key and not key.startswith(_SAVE_COUNTER):
            # The first one: later variables of the same name are copies, such as averages of the weights.
            variables.setdefault(names.get(key, key.removesuffix(_SUFFIX)), tensor)
    return variables


def _full_names(graph: bytes) -> dict[str, str]:
    """Return the full names of the variables of a TrackableObjectGraph by their checkpoint keys."""
    names = {}
    for number, node in fields(graph):
        for node_number, attribute in fields(_message(node)) if number == 1 else ():
            # A SerializedTensor: its full name, and its key in the checkpoint.
            values = dict(fields(_message(attribute))) if node_number == 2 else {}
            name, key = (values.get(field, b"") for field in (2, 3))
            if isinstance(name, bytes) and isinstance(key, bytes) and name not in (b"", _UNNAMED):
                names[key.decode()] = name.decode()
    return names


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("an entry has a number in place of a message")
    return value

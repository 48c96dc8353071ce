"""Read `pytorch_model.bin` without PyTorch, and without executing code from a pickle.

Since PyTorch 1.6, torch.save writes a zip archive with `NAME/data.pkl`, a pickle of the dictionary of tensors, and
`NAME/data/KEY`, the data of each storage. This module interprets the few opcodes of such a pickle itself. It imports
and calls nothing that a pickle names, and hashes only strings and 64-bit integers: Python takes exponential time for
the hash of some nested tuples, and crashes on that of others.
"""

import math
import pickletools
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from beambert.bert_model.checkpoints.stored_tensors import CheckpointError, StoredTensor, as_float32, count_elements
from beambert.common.typed_json import shorten

_STORAGES = {
    "torch.DoubleStorage": "float64",
    "torch.FloatStorage": "float32",
    "torch.HalfStorage": "float16",
    "torch.BFloat16Storage": "bfloat16",
    "torch.LongStorage": "int64",
    "torch.IntStorage": "int32",
    "torch.ShortStorage": "int16",
    "torch.CharStorage": "int8",
    "torch.ByteStorage": "uint8",
    "torch.BoolStorage": "bool",
}
_FUNCTIONS = ("collections.OrderedDict", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter")
# Only names, shapes and strides: a few hundred bytes per tensor.
_LONGEST_PICKLE = 8 * 2**20
_MOST_REPEATS = 100
_MARK = object()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "MARK": _MARK}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}


class _Storage(NamedTuple):
    """A storage in the archive."""

    dtype: str
    key: str
    length: int


class _Tensor(NamedTuple):
    """A view of a storage; offset and strides count elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read(path: Path) -> dict[str, StoredTensor]:
    """Return all tensors of a file by name; 16-bit weights are converted to float32.

    Raises:
        CheckpointError: the file is corrupt, has the format before PyTorch 1.6, or contains other objects than named
            tensors.
    """
    try:
        if not zipfile.is_zipfile(path):
            raise CheckpointError(
                f"{path} is truncated, or not in the format of torch.save since PyTorch 1.6; copy it again, or save "
                "the model as model.safetensors"
            )
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: info for info in archive.infolist()}
            pickles = [name for name in members if name == "data.pkl" or name.endswith("/data.pkl")]
            if len(pickles) != 1:
                raise ValueError("data.pkl is missing")
            folder = pickles[0][: -len("data.pkl")]
            if members[pickles[0]].file_size > _LONGEST_PICKLE:
                raise ValueError("data.pkl is too large for names of tensors")
            if f"{folder}byteorder" in members and archive.read(f"{folder}byteorder") != b"little":
                raise ValueError("it is big-endian")
            # Compressed data, or several members in the same bytes, could expand to any size.
            stored_bytes = sum(member.compress_size for member in members.values())
            if any(member.compress_type for member in members.values()) or stored_bytes > path.stat().st_size:
                raise ValueError("its data is compressed, or overlaps")
            content = _load(archive.read(pickles[0]))
        # PyTorch Lightning and similar libraries wrap the weights in a dictionary.
        if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
            content = content["state_dict"]
        if not isinstance(content, dict) or not all(isinstance(value, _Tensor) for value in content.values()):
            raise ValueError("it is not a dictionary of tensors")
        tensors = {str(name): _stored(path, folder, members, tensor) for name, tensor in content.items()}
        # Layers may share their weights.
        if sum(math.prod(tensor.shape) for tensor in tensors.values()) > _MOST_REPEATS * path.stat().st_size:
            raise ValueError("its tensors repeat the same numbers")
        return tensors
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); check its permissions") from error
    except CheckpointError:
        raise
    # A malicious pickle can raise almost any exception; none of its code has run.
    except Exception as error:
        raise CheckpointError(
            f"{path} is not accepted: {error}; copy the model from its source again, as model.safetensors if available"
        ) from error


def _load(pickled: bytes) -> Any:
    """Return the object of a pickle: tensors, dictionaries, lists, tuples, strings and numbers.

    Names of functions and of types of storages are strings here, and attributes of objects are left out.

    Raises:
        ValueError, or almost any other exception: the pickle is corrupt, or has other opcodes or names.
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    argument: Any
    for opcode, argument, _ in pickletools.genops(pickled):
        match opcode.name:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case name if name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            case name if name in _EMPTY:
                stack.append(_EMPTY[name]())
            case "BINUNICODE" | "SHORT_BINUNICODE" | "BINFLOAT" | "BININT" | "BININT1" | "BININT2":
                stack.append(argument)
            case "LONG1" if -(2**63) <= argument < 2**63:
                stack.append(argument)
            case "BINPUT" | "LONG_BINPUT" | "MEMOIZE" as name:
                memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "TUPLE1" | "TUPLE2" | "TUPLE3" as name:
                length = int(name[-1])
                stack[-length:] = [tuple(stack[-length:])]
            case "TUPLE":
                stack.append(tuple(_pop_to_mark(stack)))
            case "APPEND" | "APPENDS" as name:
                values = [stack.pop()] if name == "APPEND" else _pop_to_mark(stack)
                stack[-1].extend(values)
            case "SETITEM" | "SETITEMS" as name:
                items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else _pop_to_mark(stack)
                _set_items(stack[-1], items)
            case "GLOBAL":
                stack.append(_allowed_name(argument.replace(" ", ".", 1)))
            case "STACK_GLOBAL":
                name, module = stack.pop(), stack.pop()
                stack.append(_allowed_name(f"{module}.{name}"))
            case "BINPERSID":
                stack.append(_storage(stack.pop()))
            case "REDUCE":
                arguments, function = stack.pop(), stack.pop()
                stack.append(_called(function, arguments))
            case "BUILD":
                stack.pop()
            case name:
                raise ValueError(f"it has the opcode {name}, which weights do not need")
    return stack.pop()


def _pop_to_mark(stack: list[Any]) -> list[Any]:
    """Remove the last mark and all values after it; return these values."""
    values = []
    while (value := stack.pop()) is not _MARK:
        values.append(value)
    return values[::-1]


def _set_items(target: Any, items: list[Any]) -> None:
    """Set items of a dictionary, given as key, value, key, value, ..."""
    keys = items[::2]
    if not isinstance(target, dict) or not all(isinstance(key, str | int) for key in keys):
        raise ValueError("it has a dictionary with other keys than strings and integers")
    target.update(zip(keys, items[1::2], strict=True))


def _allowed_name(name: str) -> str:
    """Return a name that weights refer to. Raise ValueError for others."""
    if name not in _FUNCTIONS and name not in _STORAGES:
        raise ValueError(f"it refers to {shorten(name)}, which weights do not need")
    return name


def _storage(identifier: Any) -> _Storage:
    """Return the storage of a persistent identifier."""
    match identifier:
        case ("storage", str(kind), str(key), _, int(length)) if kind in _STORAGES:
            return _Storage(_STORAGES[kind], key, length)
    raise ValueError("it refers to an object other than the data of a tensor")


def _called(function: Any, arguments: Any) -> Any:
    """Return the result of a function on its arguments."""
    match function, arguments:
        case "collections.OrderedDict", ():
            return {}
        case "torch._utils._rebuild_tensor_v2", (_Storage() as storage, int(offset), tuple(shape), tuple(strides), *_):
            return _Tensor(storage, offset, shape, strides)
        case "torch._utils._rebuild_parameter", (_Tensor() as tensor, *_):
            return tensor
    raise ValueError("it has a call that weights do not need")


def _stored(path: Path, folder: str, members: dict[str, zipfile.ZipInfo], tensor: _Tensor) -> StoredTensor:
    storage, offset, shape, strides = tensor
    member = members.get(f"{folder}data/{storage.key}")
    stored = np.dtype("<u2") if storage.dtype == "bfloat16" else np.dtype(storage.dtype).newbyteorder("<")
    if member is None or not member.file_size == member.compress_size == storage.length * stored.itemsize:
        raise ValueError(f"the data of storage {shorten(storage.key)} is missing or truncated")
    if len(shape) != len(strides) or not all(isinstance(n, int) and n >= 0 for n in (offset, *shape, *strides)):
        raise ValueError("the shape or strides of a tensor are not integers")
    last = offset + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    # A stride of 0 repeats numbers; more than the storage has could fill the memory.
    if count_elements(shape) and (last >= storage.length or math.prod(shape) > storage.length):
        raise ValueError(f"a tensor of shape {list(shape)} exceeds its storage")

    def value() -> np.ndarray:
        try:
            with zipfile.ZipFile(path) as archive:
                content = archive.read(member)
            # This checks that the view is within the content.
            view = np.ndarray(
                shape, stored, content, offset * stored.itemsize, [stride * stored.itemsize for stride in strides]
            )
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise CheckpointError(f"{path} is corrupt ({error}); copy it again") from error
        return as_float32(np.ascontiguousarray(view), storage.dtype).reshape(shape)

    dtype = "float32" if storage.dtype in ("bfloat16", "float16") else storage.dtype
    return StoredTensor(shape, dtype, value)

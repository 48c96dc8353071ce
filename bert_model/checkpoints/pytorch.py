"""Read `pytorch_model.bin` without PyTorch, and without executing code from a pickle.

Since PyTorch 1.6, torch.save writes a zip archive with `NAME/data.pkl`, a pickle of the dictionary of tensors, and
`NAME/data/KEY`, the data of each storage. The unpickler accepts a few names, for which it returns inert records, and
rejects any other name without importing it.
"""

import io
import math
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from beambert.bert_model.checkpoints.stored_tensors import CheckpointError, StoredTensor, as_float32

_STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}
# Only names, shapes and strides: a few hundred bytes per tensor.
_LONGEST_PICKLE = 64 * 2**20


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


class _StorageType(NamedTuple):
    """Placeholder of a class such as torch.FloatStorage, which a pickle refers to but never calls."""

    dtype: str


class _RebuildTensor:
    """Placeholder of torch._utils._rebuild_tensor_v2, without attributes that a pickle could set."""

    __slots__ = ()

    def __call__(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
        return _Tensor(storage, offset, tuple(shape), tuple(strides))


class _RebuildParameter:
    """Placeholder of torch._utils._rebuild_parameter, whose first argument is the tensor."""

    __slots__ = ()

    def __call__(self, tensor: Any, *_: Any) -> Any:
        return tensor


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _RebuildTensor(),
    ("torch._utils", "_rebuild_parameter"): _RebuildParameter(),
    **{("torch", name): _StorageType(dtype) for name, dtype in _STORAGES.items()},
}


class _Unpickler(pickle.Unpickler):
    """Unpickler that accepts only a dictionary of tensors."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, which weights do not need") from None

    def persistent_load(self, identifier: Any) -> _Storage:
        kind, storage_type, key, _, count = identifier
        if kind != "storage" or not isinstance(storage_type, _StorageType):
            raise pickle.UnpicklingError("it refers to an object other than the data of a tensor")
        return _Storage(storage_type.dtype, str(key), int(count))


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
            content = _Unpickler(io.BytesIO(archive.read(pickles[0])), encoding="utf-8").load()
        # PyTorch Lightning and similar libraries wrap the weights in a dictionary.
        if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
            content = content["state_dict"]
        if not isinstance(content, dict) or not all(isinstance(value, _Tensor) for value in content.values()):
            raise ValueError("it is not a dictionary of tensors")
        return {str(name): _stored(path, folder, members, tensor) for name, tensor in content.items()}
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); check its permissions") from error
    except CheckpointError:
        raise
    # A malicious pickle can raise almost any exception; none of its code has run.
    except Exception as error:
        raise CheckpointError(
            f"{path} is not accepted: {error}; copy the model from its source again, as model.safetensors if available"
        ) from error


def _stored(path: Path, folder: str, members: dict[str, zipfile.ZipInfo], tensor: _Tensor) -> StoredTensor:
    storage, offset, shape, strides = tensor
    member = members.get(f"{folder}data/{storage.key}")
    stored = np.dtype("<u2") if storage.dtype == "bfloat16" else np.dtype(storage.dtype).newbyteorder("<")
    if member is None or member.file_size != storage.length * stored.itemsize:
        raise ValueError(f"the data of storage {storage.key} is missing or truncated")
    if len(shape) != len(strides) or not all(isinstance(n, int) and n >= 0 for n in (offset, *shape, *strides)):
        raise ValueError("the shape or strides of a tensor are not integers")
    last = offset + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    if math.prod(shape) and last >= storage.length:
        raise ValueError(f"a tensor of shape {list(shape)} exceeds its storage")

    def value() -> np.ndarray:
        try:
            with zipfile.ZipFile(path) as archive:
                numbers = np.frombuffer(archive.read(member), stored)
        except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise CheckpointError(f"{path} is corrupt ({error}); copy it again") from error
        window = np.lib.stride_tricks.as_strided(
            numbers[offset:], shape, [stride * stored.itemsize for stride in strides], writeable=False
        )
        return as_float32(np.ascontiguousarray(window), storage.dtype).reshape(shape)

    dtype = "float32" if storage.dtype in ("bfloat16", "float16") else storage.dtype
    return StoredTensor(shape, dtype, value)

import io
import os
import pickle
import zipfile
from collections import OrderedDict
from typing import ClassVar

import numpy as np
import pytest

from beambert.bert_model.checkpoints import pytorch
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from tests.conftest import ROOT

WHOLE = ROOT / "tests" / "fixtures" / "hugging_face" / "pretraining_tanh" / "pytorch_model.bin"


class Global:
    """An object that is pickled as the name of a class of PyTorch, which is not installed here."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class Storage:
    """A storage, which is pickled as a persistent id, as by torch.save."""

    def __init__(self, kind, key, count):
        self.identifier = ("storage", Global("torch", kind), key, "cpu", count)


class Rebuilt:
    """An object that is pickled as a call of a function by name."""

    def __init__(self, module, name, *arguments):
        self.call = (Global(module, name), arguments)

    def __reduce__(self):
        return (_called, ())


def _called():
    raise AssertionError


# The Python pickler can be extended to write names of objects that do not exist here.
class Pickler(pickle._Pickler):
    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def persistent_id(self, value):
        return value.identifier if isinstance(value, Storage) else None

    def save_name(self, value):
        if self.proto < 4:
            self.write(f"c{value.module}\n{value.name}\n".encode())
            return
        self.save(value.module)
        self.save(value.name)
        self.write(pickle.STACK_GLOBAL)

    def save_call(self, value):
        self.save(value.call[0])
        self.save(value.call[1])
        self.write(pickle.REDUCE)

    dispatch[Global] = save_name
    dispatch[Rebuilt] = save_call


def write(path, content, storages=(), pickled=None, protocol=2, **others):
    """Write an archive as torch.save does, and return its path."""
    buffer = io.BytesIO()
    Pickler(buffer, protocol).dump(content)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", buffer.getvalue() if pickled is None else pickled)
        for key, numbers in storages:
            archive.writestr(f"archive/data/{key}", numbers.tobytes())
        for name, value in others.items():
            archive.writestr(f"archive/{name}", value)
    return path


def tensor(kind, key, count, offset, shape, strides):
    return Rebuilt(
        "torch._utils", "_rebuild_tensor_v2", Storage(kind, key, count), offset, shape, strides, False, OrderedDict()
    )


def read_one(path):
    (value,) = pytorch.read(path).values()
    array = value.read()
    assert array.dtype.name == value.dtype
    assert array.shape == value.shape
    return array


def test_a_file_that_pytorch_wrote():
    tensors = pytorch.read(WHOLE)
    assert tensors["bert.encoder.layer.1.output.dense.weight"].shape == (16, 24)
    np.testing.assert_array_equal(
        tensors["cls.predictions.decoder.weight"].read(), tensors["bert.embeddings.word_embeddings.weight"].read()
    )


def test_offsets_and_strides(tmp_path):
    numbers = np.arange(24, dtype="<f4")
    for offset, shape, strides, expected in [
        (0, (4, 6), (6, 1), numbers.reshape(4, 6)),
        (0, (6, 4), (1, 6), numbers.reshape(4, 6).T),
        (7, (2, 3), (6, 2), numbers[[[7, 9, 11], [13, 15, 17]]]),
        (23, (), (), numbers[23]),
        (3, (2, 2), (0, 1), numbers[[[3, 4], [3, 4]]]),
        (24, (0, 5), (5, 1), np.zeros((0, 5), np.float32)),
    ]:
        path = write(tmp_path / "w", {"x": tensor("FloatStorage", "0", 24, offset, shape, strides)}, [("0", numbers)])
        np.testing.assert_array_equal(read_one(path), expected)


def test_dtypes(tmp_path):
    values = np.array([1.5, -2.0, 0.25, 3.0])
    for kind, stored in [
        ("DoubleStorage", values.astype("<f8")),
        ("FloatStorage", values.astype("<f4")),
        ("HalfStorage", values.astype("<f2")),
        ("BFloat16Storage", (values.astype("<f4").view("<u4") >> 16).astype("<u2")),
    ]:
        path = write(tmp_path / "w", OrderedDict(x=tensor(kind, "0", 4, 0, (4,), (1,))), [("0", stored)])
        np.testing.assert_array_equal(read_one(path), values)
    path = write(tmp_path / "w", {"x": tensor("LongStorage", "0", 2, 0, (2,), (1,))}, [("0", np.array([7, -1]))])
    np.testing.assert_array_equal(read_one(path), [7, -1])


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_protocols(tmp_path, protocol):
    names = [f"weight {number}" for number in range(300)]
    content = {name: tensor("FloatStorage", "0", 300, n, (1,), (1,)) for n, name in enumerate(names)}
    # As in the files of PyTorch Lightning.
    others = {"epoch": 2**40, "lr": 0.5, "states": [{0: None}, True, [1, 2]], "end": ()}
    numbers = np.arange(300, dtype="<f4")
    path = write(tmp_path / "w", {"state_dict": content, **others}, [("0", numbers)], protocol=protocol)
    read = pytorch.read(path)
    assert list(read) == names
    assert [value.read().item() for value in read.values()] == list(numbers)


def test_parameters_and_wrapped_dictionaries(tmp_path):
    inner = tensor("FloatStorage", "0", 2, 0, (2,), (1,))
    parameter = Rebuilt("torch._utils", "_rebuild_parameter", inner, True, OrderedDict())
    path = write(tmp_path / "w", {"state_dict": {"x": parameter}}, [("0", np.ones(2, "<f4"))])
    np.testing.assert_array_equal(read_one(path), [1, 1])


class Command:
    """An object of a hostile file, which calls os.system when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (os.system, (f"touch {self.marker}",))


def test_a_hostile_pickle_is_refused_and_does_not_run(tmp_path):
    marker = tmp_path / "marker"
    hostile = pickle.dumps({"x": Command(marker)}, 2)
    path = write(tmp_path / "w", {}, pickled=hostile)
    with pytest.raises(CheckpointError, match=r"it refers to posix.system, which weights do not need") as caught:
        pytorch.read(path)
    assert "\n" not in str(caught.value)
    assert not marker.exists()
    # The same bytes do run with an unrestricted unpickler.
    pickle.loads(hostile)
    assert marker.exists()


@pytest.mark.parametrize(
    "content",
    [
        Global("builtins", "eval"),
        Global("torch", "load"),
        Global("torch.hub", "load"),
        Global("numpy.core.multiarray", "_reconstruct"),
        Rebuilt("builtins", "getattr", OrderedDict(), "__class__"),
        Rebuilt("collections", "OrderedDict.fromkeys", ()),
        Rebuilt("torch", "FloatStorage", 3),
    ],
)
def test_other_globals_and_calls_are_refused(tmp_path, content):
    with pytest.raises(CheckpointError, match="is not accepted: "):
        pytorch.read(write(tmp_path / "w", {"x": content}))


@pytest.mark.parametrize(
    ("content", "storages"),
    [
        ({"x": 1}, []),
        ([1, 2], []),
        ({"x": tensor("FloatStorage", "0", 4, 0, (4,), (1,))}, []),
        ({"x": tensor("FloatStorage", "0", 4, 0, (4,), (1,))}, [("0", np.zeros(3, "<f4"))]),
        ({"x": tensor("FloatStorage", "0", 4, 1, (4,), (1,))}, [("0", np.zeros(4, "<f4"))]),
        ({"x": tensor("FloatStorage", "0", 4, 0, (2, 2), (3, 1))}, [("0", np.zeros(4, "<f4"))]),
        ({"x": tensor("FloatStorage", "0", 4, 0, (4,), (-1,))}, [("0", np.zeros(4, "<f4"))]),
        ({"x": tensor("FloatStorage", "0", 4, -1, (4,), (1,))}, [("0", np.zeros(4, "<f4"))]),
        ({"x": tensor("FloatStorage", "0", 4, 0, (4,), (1, 1))}, [("0", np.zeros(4, "<f4"))]),
        ({"x": tensor("FloatStorage", "0", 4, 0, ("4",), (1,))}, [("0", np.zeros(4, "<f4"))]),
    ],
)
def test_invalid_tensors_and_storages_are_refused(tmp_path, content, storages):
    with pytest.raises(CheckpointError, match="is not accepted: ") as caught:
        pytorch.read(write(tmp_path / "w", content, storages))
    assert "\n" not in str(caught.value)


def test_other_formats_and_damage(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    # Before PyTorch 1.6, the format was a bare pickle that begins with this number.
    path.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, 2))
    with pytest.raises(CheckpointError, match=r"not in the format of torch\.save since PyTorch 1\.6"):
        pytorch.read(path)
    whole = WHOLE.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="is truncated, or"):
        pytorch.read(path)
    with pytest.raises(CheckpointError, match="big-endian"):
        pytorch.read(write(path, {}, byteorder=b"big"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "x")
    with pytest.raises(CheckpointError, match=r"data\.pkl is missing"):
        pytorch.read(path)


def test_a_changed_number_is_noticed(tmp_path):
    content = bytearray(WHOLE.read_bytes())
    with zipfile.ZipFile(WHOLE) as archive:
        member = next(member for member in archive.infolist() if member.filename.endswith("/data/0"))
    content[member.header_offset + 200] ^= 1
    (tmp_path / "w").write_bytes(content)
    words = pytorch.read(tmp_path / "w")["bert.embeddings.word_embeddings.weight"]
    with pytest.raises(CheckpointError, match=r"is corrupt \(.*; copy it again"):
        words.read()

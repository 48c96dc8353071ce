"""Models whose files try to read other files, to fill the memory or to hang: each a small change of a fixture.

A change is a function of the model's directory. `SECRET`, beside the directory, is the file that a model must not read.
"""

import copy
import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np

from beambert.bert_model.checkpoints import sorted_table
from beambert.common.wire_format import bytes_field, varint_field

_FIXTURES = Path(__file__).parent / "fixtures"
SECRET = "secret"
SECRET_CONTENT = b"do not read this file. " * 100
# A title and a color of a terminal, and marks that change the direction of text.
ESCAPES = "\x1b]0;title\x07\x1b[31m\u202ered\u2066"
_HUGE = 2**62
Change = Callable[[Path], None]

# HDF5: model.weights.h5 of KerasHub.
_DATASET = "layers/dense/vars/0"


def _hdf5(edit: Callable[[Any], object], name: str = _DATASET) -> Change:
    """Return a change that deletes a dataset and edits the file."""

    def change(model: Path) -> None:
        with h5py.File(model / "model.weights.h5", "r+") as file:
            if name:
                del file[name]
            edit(file)

    return change


def _external(file: Any) -> None:
    secret = Path(file.filename).parent.parent / SECRET
    file.create_dataset(_DATASET, (16, 16), "<f4", external=[(str(secret), 0, 1024)])


def _virtual(file: Any) -> None:
    layout = h5py.VirtualLayout((16, 16), "<f4")
    layout[:] = h5py.VirtualSource("task.weights.h5", "layers/masked_lm_head/_intermediate_dense/vars/0", (16, 16))
    file.create_virtual_dataset(_DATASET, layout)


def _nested_groups(file: Any) -> None:
    group = file["layers"]
    for _ in range(3000):
        group = group.create_group("g")


_FLOATS = np.ones((16, 16), "<f4")
HDF5: dict[str, Change] = {
    "external storage": _hdf5(_external),
    "a virtual dataset": _hdf5(_virtual),
    "an external link": _hdf5(lambda file: file.__setitem__(_DATASET, h5py.ExternalLink("task.weights.h5", "layers"))),
    "a soft link": _hdf5(lambda file: file.__setitem__(_DATASET, h5py.SoftLink("/layers/dense/vars/1"))),
    "a hard link": _hdf5(lambda file: file.__setitem__(_DATASET, file["layers/dense/vars/1"])),
    "a hard link to a group": _hdf5(lambda file: file.__setitem__("layers/again", file["layers"])),
    "a huge shape in chunks": _hdf5(lambda file: file.create_dataset(_DATASET, (10**12,), "<f4", chunks=(1024,))),
    "a huge shape": _hdf5(lambda file: file.create_dataset(_DATASET, (10**6, 10**6), "<f4")),
    "a huge shape of another variable": _hdf5(lambda file: file.create_dataset("x", (10**12,), "<f4"), ""),
    "compression": _hdf5(lambda file: file.create_dataset(_DATASET, data=_FLOATS, compression="gzip")),
    "text": _hdf5(lambda file: file.create_dataset(_DATASET, data=["a"] * 16)),
    "records": _hdf5(lambda file: file.create_dataset(_DATASET, data=np.zeros((16, 16), "f4,f4"))),
    "opaque bytes": _hdf5(lambda file: file.create_dataset(_DATASET, data=_FLOATS.view("V4"))),
    "references": _hdf5(lambda file: file.create_dataset(_DATASET, data=[file.ref], dtype=h5py.ref_dtype)),
    "no shape": _hdf5(lambda file: file.create_dataset(_DATASET, data=h5py.Empty("<f4"))),
    "nested groups": _hdf5(_nested_groups),
}


# Pickles: pytorch_model.bin.
def _added(opcodes: bytes) -> Change:
    """Return a change that appends opcodes to the pickle, whose last value is the dictionary of tensors."""
    return lambda model: replace_pickle(model, lambda content: content[:-1] + opcodes + content[-1:])


def replace_pickle(model: Path, edit: Callable[[bytes], bytes]) -> None:
    """Edit the pickle in `pytorch_model.bin`."""
    _rewrite(model / "pytorch_model.bin", lambda name, content: edit(content) if name.endswith("data.pkl") else content)


def _rewrite(path: Path, edit: Callable[[str, bytes], bytes], compression: int = zipfile.ZIP_STORED) -> None:
    """Write an archive again, with the content of each member edited."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, edit(name, content))


def _patch_directory(path: Path, suffix: bytes, offset: int, value: bytes) -> None:
    """Change bytes of the entry of a member in the central directory of an archive."""
    content, start = bytearray(path.read_bytes()), 0
    while (start := content.find(b"PK\x01\x02", start)) >= 0:
        (length,) = struct.unpack_from("<H", content, start + 28)
        if content[start + 46 : start + 46 + length].endswith(suffix):
            content[start + offset : start + offset + len(value)] = value
        start += 4
    path.write_bytes(content)


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def _doubled(count: int) -> bytes:
    """Return opcodes that append tuples to a list: each is two references to the one before, the last is `_LAST`."""
    pairs = b"".join(b"h%ch%c\x86q%c" % (number, number, number + 1) for number in range(count))
    return _text("y") + b"](" + b")q\x00" + pairs + b"es"


_DOUBLINGS = 60
_LAST = b"h%c" % _DOUBLINGS
_ROWS = 640


def _storage(key: bytes, length: int = _ROWS) -> bytes:
    return (
        b"("
        + _text("storage")
        + b"ctorch\nFloatStorage\n"
        + key
        + _text("cpu")
        + b"M"
        + struct.pack("<H", length)
        + b"tQ"
    )


def _tensor_opcodes(shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    """Return opcodes of a tensor in the storage of the word embeddings."""

    def sizes(numbers: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", number) for number in numbers) + b"t"

    arguments = _storage(_text("0")) + b"K\x00" + sizes(shape) + sizes(strides)
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR"


def _tensor(shape: tuple[int, ...], strides: tuple[int, ...]) -> Change:
    """Return a change that adds a tensor."""
    return _added(_text("x") + _tensor_opcodes(shape, strides) + b"s")


def _claimed_size(model: Path) -> None:
    """Let the directory of the archive claim more bytes for a weight than the archive has."""
    path = model / "pytorch_model.bin"
    with zipfile.ZipFile(path) as archive:
        size = next(member.file_size for member in archive.infolist() if member.filename.endswith("data/3"))
    _rewrite(path, lambda name, content: content[:4] if name.endswith("data/3") else content)
    _patch_directory(path, b"data/3", 24, struct.pack("<I", size))


def _overlapping(model: Path) -> None:
    """Let many members have the same bytes of the archive."""
    path = model / "pytorch_model.bin"
    _rewrite(path, lambda _, content: content)
    with zipfile.ZipFile(path, "a") as archive:
        first = archive.infolist()[0]
        for number in range(1000):
            member = copy.copy(first)
            member.filename = f"a/{number}"
            archive.filelist.append(member)
        archive._didModify = True


PICKLES: dict[str, Change] = {
    "a tuple that takes years to hash": _added(_doubled(_DOUBLINGS) + _LAST + b"K\x01s"),
    "a tuple that overflows the stack": _added(b")" + b"\x85" * 3_000_000 + b"K\x01s"),
    "a key that takes years to print": _added(_doubled(_DOUBLINGS) + _text("x") + _storage(_LAST) + b"s"),
    "duplicates": _added(b")" + b"2\x86" * _DOUBLINGS + b"K\x01s"),
    "a set": _added(_text("x") + b"\x8fs"),
    "a function": _added(_text("x") + b"cos\nsystem\ns"),
    "a call of an allowed name": _added(_text("x") + b"ccollections\nOrderedDict\n](" + _text("ab") + b"e\x85Rs"),
    "a new object": _added(_text("x") + b"ccollections\nOrderedDict\n)\x81s"),
    "a long number": _added(_text("x") + b"\x8b" + struct.pack("<i", 10**6) + b"\x7f" * 10**6 + b"s"),
    "many sizes": _tensor((_HUGE,) * 200_000, (1,) * 200_000),
    "huge sizes": _tensor((_HUGE, 0, _HUGE), (1, 1, 1)),
    "repeated numbers": _tensor((10**6, 10**6), (0, 0)),
    "a negative size": _tensor((-4,), (1,)),
    "bytes beyond the archive": _claimed_size,
    "overlapping members": _overlapping,
    "compression": lambda model: _rewrite(
        model / "pytorch_model.bin", lambda _, content: content, zipfile.ZIP_DEFLATED
    ),
    "a pickle of 10 MB": _added(_text("x") + b"](" + b"]" * 10_000_000 + b"es"),
}


# safetensors: model.safetensors, and the index of several such files.
def _header(edit: Callable[[dict[str, Any]], object]) -> Change:
    return lambda model: _edit_header(model, edit)


def _edit_header(model: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = min(model.glob("*.safetensors"))
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    edit(header)
    new = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(new)) + new + content[end:])


def _first(header: dict[str, Any]) -> Any:
    return header[min(name for name in header if name != "__metadata__")]


def _index(name: str) -> Change:
    def change(model: Path) -> None:
        path = model / "model.safetensors.index.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        content["weight_map"][min(content["weight_map"])] = name
        path.write_text(json.dumps(content), encoding="utf-8")

    return change


def _config(edit: Callable[[str], str]) -> Change:
    def change(model: Path) -> None:
        path = model / "config.json"
        path.write_text(edit(path.read_text(encoding="utf-8").strip()), encoding="utf-8")

    return change


def _repeated_field(text: str) -> str:
    others = ", ".join(f'"{number}": 1' for number in range(200_000))
    return f'{text[:-1]}, {others}, "199999": 1}}'


def _wrong_label(text: str) -> str:
    others = {str(number): "a" for number in range(100_000)}
    return json.dumps({**others, **json.loads(text), "id2label": {**others, "x": []}})


SAFETENSORS: dict[str, Change] = {
    "many sizes": _header(lambda header: _first(header).update(shape=[_HUGE] * 300_000)),
    "65 sizes": _header(lambda header: _first(header).update(shape=[1] * 65)),
    "huge sizes": _header(
        lambda header: header.update(x={"dtype": "F32", "shape": [_HUGE, 0, _HUGE], "data_offsets": [0, 0]})
    ),
    "a huge shape": _header(lambda header: _first(header).update(shape=[_HUGE])),
    "a negative size": _header(lambda header: _first(header).update(shape=[-1, -4])),
    "a shape of NaN": _header(lambda header: _first(header).update(shape=[float("nan")])),
    "a negative offset": _header(lambda header: _first(header).update(data_offsets=[-4, 0])),
    "a huge offset": _header(lambda header: _first(header).update(data_offsets=[_HUGE, _HUGE + 4])),
    "overlapping tensors": _header(lambda header: header.update(x=_first(header))),
    "text": _header(lambda header: _first(header).update(dtype="STRING")),
    "a file in another directory": _index(f"../{SECRET}"),
    "an absolute path": _index("/proc/self/environ"),
    "the parent directory": _index(".."),
    "a name with escapes": _index(ESCAPES),
    "a long name": _index("x" * 5000),
    "a name with NUL": _index("a\0b"),
    "a field twice among many": _config(_repeated_field),
    "a wrong label among many": _config(_wrong_label),
}


# Tensor bundles: the variables of a SavedModel.
def _entries(edit: Callable[[dict[bytes, bytes]], object]) -> Change:
    def change(model: Path) -> None:
        path = model / "variables" / "variables.index"
        table = sorted_table.decode(path.read_bytes())
        edit(table)
        path.write_bytes(sorted_table.encode(sorted(table.items())))

    return change


def _entry(*sizes: int, shard: int = 0, offset: int = 0, size: int = 4) -> bytes:
    shape = b"".join(bytes_field(2, varint_field(1, number)) for number in sizes)
    fields = varint_field(1, 1) + bytes_field(2, shape)
    return fields + varint_field(3, shard) + varint_field(4, offset) + varint_field(5, size)


_BUNDLE_KEY = b"x"
BUNDLES: dict[str, Change] = {
    "overlapping tensors": _entries(lambda table: table.update({_BUNDLE_KEY: _entry(1)})),
    "a tensor beyond the file": _entries(lambda table: table.update({_BUNDLE_KEY: _entry(1, offset=_HUGE)})),
    "a huge tensor": _entries(lambda table: table.update({_BUNDLE_KEY: _entry(2**50, offset=10**6, size=2**52)})),
    "another data file": _entries(lambda table: table.update({_BUNDLE_KEY: _entry(1, shard=7)})),
    "many sizes": _entries(lambda table: table.update({_BUNDLE_KEY: _entry(*[_HUGE] * 100_000)})),
}


# Archives: a Hugging Face model in a zip file.
def _member(name: str, external_attr: int = 0) -> Change:
    def change(model: Path) -> None:
        with zipfile.ZipFile(model.with_suffix(".zip"), "a") as archive:
            member = zipfile.ZipInfo(name or "empty")
            member.external_attr = external_attr
            archive.writestr(member, "x")
        if not name:
            path = model.with_suffix(".zip")
            path.write_bytes(path.read_bytes().replace(b"empty", b"\0mpty"))

    return change


def _damaged_deflate(model: Path) -> None:
    path = model.with_suffix(".zip")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", Random(1).randbytes(500).hex())
        start = archive.getinfo("x").header_offset
    content = bytearray(path.read_bytes())
    # The first block has an invalid type.
    content[start + 31] = 0xFF
    path.write_bytes(content)


def _name_that_is_not_utf8(model: Path) -> None:
    _member("\xe9")(model)
    _patch_directory(model.with_suffix(".zip"), "\xe9".encode(), 46, b"\xff\xff")


ARCHIVES: dict[str, Change] = {
    "a name of one dot": _member("."),
    "no name": _member(""),
    "a name of two dots": _member(".."),
    "a path to another directory": _member("a/../../x"),
    "an absolute path": _member("/tmp/x"),
    "a long name": _member("x" * 60_000),
    "a link": _member("link", 0o120777 << 16),
    "another compression": lambda model: _rewrite(
        model.with_suffix(".zip"), lambda _, content: content, zipfile.ZIP_LZMA
    ),
    "damaged compression": _damaged_deflate,
    "a name that is not UTF-8": _name_that_is_not_utf8,
}
# By format, its fixture and the changes that a reader must refuse.
REFUSED: dict[str, tuple[str, dict[str, Change]]] = {
    "HDF5": ("layouts/keras_hub", HDF5),
    "pickle": ("hugging_face/pretraining_tanh", PICKLES),
    "safetensors": ("hugging_face/classification", SAFETENSORS),
    "bundle": ("layouts/hub_masked_lm", BUNDLES),
    "archive": ("hugging_face/pretraining_tanh", ARCHIVES),
}


# Changes that have no effect on the weights, by format: a name with escapes.
_NAMES: dict[str, Change] = {
    "HDF5": _hdf5(lambda file: file.create_dataset(ESCAPES, data=_FLOATS), ""),
    "pickle": _added(_text(ESCAPES) + _tensor_opcodes((1,), (1,)) + b"s"),
    "safetensors": _header(
        lambda header: header.update({ESCAPES: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})
    ),
    "bundle": _entries(lambda table: table.update({ESCAPES.encode(): _entry(0, size=0)})),
    "archive": _member(ESCAPES),
}


def _escapes_in_names(random: Random, folder: Path, kind: str) -> None:
    _NAMES[kind](folder / "model")


def _escapes_in_tokens(random: Random, folder: Path, kind: str) -> None:
    """Replace a token of the vocabulary, in the archive too."""
    model = folder / "model"
    if kind == "safetensors":
        path = model / "tokenizer.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        vocabulary = content["model"]["vocab"]
        vocabulary[ESCAPES] = vocabulary.pop(random.choice([token for token in vocabulary if token[0] != "["]))
        path.write_text(json.dumps(content), encoding="utf-8")
        return
    path = next(model.rglob("vocab*.txt"))
    tokens = path.read_text(encoding="utf-8").splitlines()
    tokens[random.choice([number for number, token in enumerate(tokens) if token[0] != "["])] = ESCAPES
    path.write_text("\n".join(tokens) + "\n", encoding="utf-8")
    if kind == "archive":
        _pack(model)


def _escapes_in_labels(random: Random, folder: Path, kind: str) -> None:
    path = folder / "model" / "config.json"
    if path.exists():
        content = json.loads(path.read_text(encoding="utf-8"))
        content.update(
            id2label={"0": ESCAPES, "1": f"b{ESCAPES}", "2": "c"}, architectures=["BertForSequenceClassification"]
        )
        path.write_text(json.dumps(content), encoding="utf-8")


def _link_to_another_file(random: Random, folder: Path, kind: str) -> None:
    path = random.choice(sorted(path for path in (folder / "model").rglob("*") if path.is_file()))
    path.unlink()
    path.symlink_to(folder / SECRET)


# Changes that a reader may ignore, as long as no output has the content of the secret or an escape of a terminal.
TOLERATED: dict[str, Callable[[Random, Path, str], None]] = {
    "escapes in names": _escapes_in_names,
    "escapes in tokens": _escapes_in_tokens,
    "escapes in labels": _escapes_in_labels,
    "a link to another file": _link_to_another_file,
}


def write_model(folder: Path, kind: str) -> Path:
    """Write the intact model of a format, and the secret, into a folder; return its path."""
    (folder / SECRET).write_bytes(SECRET_CONTENT)
    model = folder / "model"
    shutil.copytree(_FIXTURES / REFUSED[kind][0], model, copy_function=shutil.copyfile)
    if kind != "archive":
        return model
    return _pack(model)


def _pack(model: Path) -> Path:
    """Write the archive of a model; return its path."""
    with zipfile.ZipFile(model.with_suffix(".zip"), "w") as archive:
        for path in sorted(model.iterdir()):
            archive.write(path, path.name)
    return model.with_suffix(".zip")


def damage_model(folder: Path, kind: str, change: str) -> None:
    """Apply a change of `REFUSED` to the model in a folder."""
    REFUSED[kind][1][change](folder / "model")

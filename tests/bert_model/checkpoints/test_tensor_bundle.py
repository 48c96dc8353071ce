"""Test tensor bundles against those that TensorFlow writes and reads."""

import itertools
import os
import struct
import threading
import tracemalloc
from pathlib import Path

import google_crc32c
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.bert_model.checkpoints import sorted_table, tensor_bundle, tf1
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.bert_model.checkpoints.tensor_bundle import BundleError, UnsupportedTensorError
from beambert.common.wire_format import masked_crc

DTYPES = sorted(tensor_bundle.DTYPE_NAMES)
FILES = ("index", "data-00000-of-00001")
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)
# As in models, names have few different parts, so that they share prefixes.
PATHS = st.lists(st.sampled_from(["bert", "layer_1", "layer_10", "kernel", "ÿ"]), min_size=1).map("/".join)


def numbers(dtype, shape, seed):
    """Return an array of random bytes, among them NaNs with payloads; those of booleans are 0 and 1."""
    array = np.empty(shape, tensor_bundle.numpy_dtype(dtype))
    content = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 256, array.nbytes, np.uint8)
    return content.view(array.dtype).reshape(shape)


@st.composite
def tensors(draw):
    names = draw(st.sets(NAMES | PATHS, max_size=40))
    shapes = st.lists(st.integers(0, 5), max_size=4)
    return {
        name: numbers(draw(st.sampled_from(DTYPES)), draw(shapes), draw(st.integers(0, 9))) for name in sorted(names)
    }


def write_with_tensorflow(prefix, values, slices=None):
    names = list(values)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=slices or [""] * len(names),
        tensors=list(values.values()),
    )


def assert_same_files(first, second):
    for file in FILES:
        assert Path(f"{first}.{file}").read_bytes() == Path(f"{second}.{file}").read_bytes(), file


def assert_reads(prefix, values):
    stored = tensor_bundle.read(prefix)
    assert list(stored) == sorted(values)
    for name, value in values.items():
        array = stored[name].read()
        assert array.dtype == value.dtype == tensor_bundle.numpy_dtype(stored[name].dtype)
        assert array.shape == value.shape == stored[name].shape
        assert array.tobytes() == value.tobytes()


@given(tensors().filter(bool))
@settings(max_examples=150)
def test_files_are_those_of_tensorflow(tmp_path_factory, values):
    directory = tmp_path_factory.mktemp("bundles")
    tensor_bundle.write(directory / "ours", values.items())
    write_with_tensorflow(directory / "theirs", values)
    assert_same_files(directory / "ours", directory / "theirs")
    assert_reads(directory / "theirs", values)


def test_many_tensors_and_large_ones(tmp_path):
    values = {f"bert/encoder/layer_{number // 9:04}/weight_{number}": np.int64(number) for number in range(12_000)}
    values |= {"c" * 600_000: np.float32(1), "d": numbers("float32", [700, 1000], 1)}
    # With its value, the key is just long enough for a block of its own.
    values |= {"b" * (2 * 262_144 - 8): np.float32(2)}
    tensor_bundle.write(tmp_path / "ours", values.items())
    write_with_tensorflow(tmp_path / "theirs", values)
    assert_same_files(tmp_path / "ours", tmp_path / "theirs")
    # The index has more than one block.
    assert (tmp_path / "ours.index").stat().st_size > 2 * 262_144
    assert_reads(tmp_path / "theirs", values)


def test_the_memory_order_of_an_array_does_not_matter(tmp_path):
    matrix = numbers("float32", [3, 5], 1)
    values = {
        "a": matrix.T,
        "b": matrix[:, 1:4],
        "c": np.arange(3, dtype=">i4"),
        "d": np.broadcast_to(matrix[0], (2, 5)),
    }
    tensor_bundle.write(tmp_path / "ours", values.items())
    reader = tf.train.load_checkpoint(str(tmp_path / "ours"))
    for name, value in values.items():
        np.testing.assert_array_equal(reader.get_tensor(name), value)


def test_one_tensor_is_in_memory_at_a_time(tmp_path):
    tensor = 1 << 20

    def values():
        for number in range(20):
            yield f"{number:02}", np.full(tensor, number, np.uint8)

    tracemalloc.start()
    try:
        tensor_bundle.write(tmp_path / "b", values())
        # The generator makes the next array before the last one is released.
        assert tracemalloc.get_traced_memory()[1] < 3.5 * tensor
        tracemalloc.reset_peak()
        for number, stored in enumerate(tensor_bundle.read(tmp_path / "b").values()):
            assert stored.read()[-1] == number
        assert tracemalloc.get_traced_memory()[1] < 3.5 * tensor
    finally:
        tracemalloc.stop()


def test_several_data_files(tmp_path):
    values = {f"{number:02}": numbers("float32", [number, 3], number) for number in range(20)}
    parts = [{name: value for name, value in values.items() if int(name) % 3 == part} for part in range(3)]
    for part, content in enumerate(parts):
        write_with_tensorflow(tmp_path / f"part{part}", content)
    prefixes = [str(tmp_path / f"part{part}") for part in range(3)]
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=str(tmp_path / "merged"))
    assert (tmp_path / "merged.data-00002-of-00003").is_file()
    assert_reads(tmp_path / "merged", values)
    (tmp_path / "merged.data-00002-of-00003").unlink()
    missing = [name for name, stored in tensor_bundle.read(tmp_path / "merged").items() if not reads(stored)]
    assert missing in [list(part) for part in parts]


def reads(stored):
    try:
        stored.read()
    except BundleError as error:
        assert str(error) == "merged.data-00002-of-00003: no such file or directory"  # noqa: PT017
        return False
    return True


def test_big_endian_numbers(tmp_path):
    values = {name: numbers(name, [3, 2], 1) for name in DTYPES}
    swapped = {
        name: value if value.dtype == bool else value.view("u2" if name == "bfloat16" else value.dtype).byteswap()
        for name, value in values.items()
    }
    tensor_bundle.write(tmp_path / "b", ((name, swapped[name].view(values[name].dtype)) for name in sorted(values)))
    table = sorted_table.decode((tmp_path / "b.index").read_bytes())
    table[b""] += b"\x10\x01"  # endianness: BIG
    (tmp_path / "b.index").write_bytes(sorted_table.encode(table.items()))
    reader = tf.train.load_checkpoint(str(tmp_path / "b"))
    for name, stored in tensor_bundle.read(tmp_path / "b").items():
        assert stored.read().tobytes() == values[name].tobytes(), name
        assert reader.get_tensor(name).tobytes() == values[name].tobytes(), name


def test_strings_are_listed_and_not_read(tmp_path):
    write_with_tensorflow(tmp_path / "b", {"numbers": np.arange(3), "texts": tf.constant(["a", "b"])})
    stored = tensor_bundle.read(tmp_path / "b")
    assert (stored["texts"].shape, stored["texts"].dtype) == ((2,), "string")
    with pytest.raises(UnsupportedTensorError, match=r'^"texts" has the dtype string$'):
        stored["texts"].read()
    assert stored["numbers"].read().tolist() == [0, 1, 2]


def test_partitioned_variables_are_listed_and_not_read(tmp_path):
    halves = {"a": tf.zeros([2, 2]), "b": tf.zeros([1])}
    write_with_tensorflow(tmp_path / "b", halves, ["4 2 0,2:0,2", ""])
    stored = tensor_bundle.read(tmp_path / "b")
    assert {name: variable.shape for name, variable in stored.items()} == {"a": (4, 2), "b": (1,)}
    with pytest.raises(UnsupportedTensorError, match=r'^"a" is a partitioned variable$'):
        stored["a"].read()
    with pytest.raises(CheckpointError, match=r"save it with whole variables of numbers$"):
        tf1.read(tmp_path / "b")["a"].read()


def test_an_unknown_dtype_cannot_be_written(tmp_path):
    with pytest.raises(BundleError, match=r"^a has the dtype datetime64\[s\], which a checkpoint cannot store$"):
        tensor_bundle.write(tmp_path / "b", [("a", np.zeros(1, "datetime64[s]"))])


def test_a_file_that_takes_a_part_at_a_time_gets_all_bytes():
    # A pipe accepts only a part of a write, as does a disk that is almost full.
    content = numbers("uint8", [1_000_000], 1)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    received = []

    def read_all():
        with os.fdopen(reading, "rb") as file:
            received.append(file.read())

    reader = threading.Thread(target=read_all)
    reader.start()
    with os.fdopen(writing, "wb", buffering=0) as file:
        crc = tensor_bundle._write_content(file, content)
    reader.join()
    assert received == [content.tobytes()]
    assert crc == google_crc32c.value(content)


VALUES = {
    "a": np.arange(40, dtype=np.float32).reshape(8, 5),
    "a/adam_m": np.arange(3, dtype=ml_dtypes.bfloat16),
    "b": np.int64(3),
    "empty": np.zeros([0, 2], np.float32),
}


@given(st.data())
@settings(max_examples=400)
def test_changed_files_are_refused_or_read_the_same(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("changed")
    tensor_bundle.write(directory / "b", VALUES.items())
    path = directory / f"b.{data.draw(st.sampled_from(FILES))}"
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    for _ in range(data.draw(st.integers(0, 2)) if content else 0):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        arrays = {name: stored.read() for name, stored in tensor_bundle.read(directory / "b").items()}
    except BundleError as error:
        assert "\n" not in str(error)  # noqa: PT017
        assert path.name in str(error)  # noqa: PT017
        return
    assert arrays.keys() == VALUES.keys()
    for name, value in VALUES.items():
        assert arrays[name].tobytes() == value.tobytes()


def write_entries(prefix, entries, header=b"\x08\x01\x1a\x02\x08\x01"):
    """Write a bundle with 8 bytes of data and an index of the given entries, with correct checksums of the index."""
    content = sorted_table.encode([(b"", header), *sorted(entries.items())])
    Path(f"{prefix}.index").write_bytes(content)
    Path(f"{prefix}.data-00000-of-00001").write_bytes(bytes(8))


@given(
    entries=st.dictionaries(st.binary(min_size=1, max_size=4), st.binary(max_size=20), max_size=3), header=st.binary()
)
@settings(max_examples=300)
def test_an_index_of_random_bytes_is_refused(tmp_path_factory, entries, header):
    prefix = tmp_path_factory.mktemp("random") / "b"
    for first in (header, b"\x08\x01"):
        write_entries(prefix, entries, first)
        try:
            for stored in tensor_bundle.read(prefix).values():
                assert stored.read().nbytes <= 8
        except BundleError as error:
            assert "\n" not in str(error)  # noqa: PT017


def varint(number):
    return sorted_table.varint(number)


def entry_of(*sizes, dtype=1, shard=0, offset=0, size=8, crc=None):
    """Return a serialized BundleEntryProto."""
    shape = b"".join(b"\x12" + varint(len(varint(n)) + 1) + b"\x08" + varint(n) for n in sizes)
    crc = masked_crc(bytes(8)) if crc is None else crc
    fields = ((1, dtype), (3, shard), (4, offset), (5, size))
    return (
        (b"\x12" + varint(len(shape)) + shape + b"".join(varint(field << 3) + varint(n) for field, n in fields))
        + b"\x35"
        + struct.pack("<I", crc)
    )


def test_an_entry_made_here_is_read(tmp_path):
    write_entries(tmp_path / "b", {b"x": entry_of(2)})
    assert tensor_bundle.read(tmp_path / "b")["x"].read().tolist() == [0, 0]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (entry_of(3), "b.index: a tensor has 8 bytes, which do not fit its shape"),
        (entry_of(1 << 62, size=1 << 62), "b.index: a tensor has 4,611,686,018,427,387,904 bytes, which do not fit"),
        (entry_of(1 << 40, size=1 << 42), "b.data-00000-of-00001 is truncated"),
        (entry_of(2, offset=1), "b.data-00000-of-00001 is truncated"),
        (entry_of(2, offset=(1 << 63) - 1), "b.data-00000-of-00001 is truncated"),
        (entry_of(2, offset=1 << 63), "b.index: an entry has a field that is not a non-negative integer"),
        (entry_of((1 << 64) - 1), "b.index: an entry has a field that is not a non-negative integer"),
        (entry_of(2, shard=1), "b.index: a tensor is in data file 1 of 1"),
        (entry_of(2, crc=0), '"x" in b.data-00000-of-00001 does not match its checksum'),
        (entry_of(0, 1 << 62, 1 << 62, size=0, crc=masked_crc(b"")), '"x" has a dimension that is too large'),
        (entry_of(*[1] * 65, size=4), "b.index: a tensor has more than 64 dimensions"),
        (entry_of(2, dtype=21), '"x" has the dtype number 21'),
        (b"\x12\x02\x18\x01", "b.index: a tensor has no shape"),
        (b"\x10\x01", "b.index: an entry has a number in place of a message"),
        (b"\x08", "b.index: the integer at byte 1 is not a varint of 64 bits"),
    ],
    ids=itertools.count(),
)
def test_hostile_entries_are_refused(tmp_path, entry, reason):
    write_entries(tmp_path / "b", {b"x": entry})
    with pytest.raises(BundleError) as caught:
        tensor_bundle.read(tmp_path / "b")["x"].read()
    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize("version", [b"\x10\x02", b"\x18\x01", b"\x1a\x01\x01"])
def test_a_newer_format_is_refused(tmp_path, version):
    write_entries(tmp_path / "b", {}, b"\x08\x01\x1a" + varint(len(version)) + version)
    with pytest.raises(BundleError, match="newer version of TensorFlow"):
        tensor_bundle.read(tmp_path / "b")


def test_missing_files_are_named(tmp_path):
    with pytest.raises(BundleError, match=r"^b\.index: no such file or directory$"):
        tensor_bundle.read(tmp_path / "b")
    (tmp_path / "b.index").mkdir()
    with pytest.raises(BundleError, match=r"^b\.index: is a directory$"):
        tensor_bundle.read(tmp_path / "b")
    with (tmp_path / "c.index").open("wb") as file:
        file.truncate(100_000_001)
    with pytest.raises(BundleError, match=r"^c\.index: file too large$"):
        tensor_bundle.read(tmp_path / "c")
    with pytest.raises(FileNotFoundError):
        tensor_bundle.write(tmp_path / "missing" / "b", VALUES.items())


def test_the_released_base_model(tmp_path):
    if "BEAMBERT_RELEASED_BASE" not in os.environ:
        pytest.skip("BEAMBERT_RELEASED_BASE is not set to the directory of the released BERT base")
    prefix = Path(os.environ["BEAMBERT_RELEASED_BASE"]) / "bert_model.ckpt"
    reader = tf.train.load_checkpoint(str(prefix))
    values = {name: reader.get_tensor(name) for name in sorted(reader.get_variable_to_shape_map())}
    assert len(values) == 204
    assert_reads(prefix, values)
    tensor_bundle.write(tmp_path / "b", values.items())
    assert_same_files(tmp_path / "b", prefix)

"""Tests of parsing records in C and in Python: the same features as TensorFlow's parser, no reads beyond a record."""

import dataclasses
import os

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.trainers.data import parsing
from beambert.trainers.data.parsing import InvalidExampleError, parse_in_python, parser
from tests.trainers.pretraining_shards import OPTIONS, random_features, record, write_dataset

try:
    from beambert.trainers.data._examples import parse as parse_in_c
except ImportError:
    parse_in_c = None

PARSERS = [parse_in_python] if parse_in_c is None else [parse_in_python, parse_in_c]
NAMES = {"input_ids": (5, False), "weights": (3, True), "é": (1, False)}
INT64 = st.integers(-(2**63), 2**63 - 1)
FLOAT32 = st.floats(width=32, allow_nan=False)


def arrays(count):
    return {
        name: np.zeros((count, length), np.float32 if is_float else np.int32)
        for name, (length, is_float) in NAMES.items()
    }


def parse(parse_records, records, ragged=False):
    """Return the arrays of the records, or the first problem."""
    rows = arrays(len(records))
    outputs = [(name.encode(), NAMES[name][1], values) for name, values in rows.items()]
    problem = parse_records(records, outputs, ragged)
    return rows if problem is None else problem


def expected(records, ragged=False):
    """Return the arrays of TensorFlow's parser; None if it raises an error, or if a row has too many values."""
    types = {name: tf.float32 if is_float else tf.int64 for name, (_, is_float) in NAMES.items()}
    for serialized in records:
        # Of too many values, TensorFlow writes floats beyond the end of the row (2.21: memory is corrupted). It
        # truncates integers if lengths may differ.
        features = tf.train.Example.FromString(serialized).features.feature
        for name, (length, _) in NAMES.items():
            if max(len(features[name].float_list.value), len(features[name].int64_list.value)) > length:
                return None
    if ragged:
        spec = {name: tf.io.RaggedFeature(dtype) for name, dtype in types.items()}
    else:
        spec = {name: tf.io.FixedLenFeature([NAMES[name][0]], dtype) for name, dtype in types.items()}
    try:
        parsed = tf.io.parse_example(records, spec)
    except tf.errors.InvalidArgumentError:
        return None
    if ragged:
        parsed = {name: parsed[name].to_tensor(shape=[None, NAMES[name][0]]) for name in NAMES}
    return {
        name: tf.cast(values, tf.int32).numpy() if types[name] == tf.int64 else values.numpy()
        for name, values in parsed.items()
    }


def varint(number):
    number %= 2**64
    encoded = b""
    while number >= 0x80:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def int64_list(values, packed):
    if packed:
        return field(3, field(1, b"".join(map(varint, values))))
    return field(3, b"".join(b"\x08" + varint(value) for value in values))


def float_list(values, packed):
    content = np.array(values, "<f4")
    if packed:
        return field(2, field(1, content.tobytes()))
    return field(2, b"".join(b"\x0d" + value.tobytes() for value in content))


def entry(name, value):
    return field(1, field(1, name.encode()) + field(2, value))


def value_of(kind):
    """Return a strategy for serialized features with the right number of values, or with 0 to `length + 2` values."""
    length, is_float = kind
    sizes = st.one_of(st.just(length), st.integers(0, length + 2))
    numbers = FLOAT32 if is_float else INT64
    lists = sizes.flatmap(lambda size: st.lists(numbers, min_size=size, max_size=size))
    return st.tuples(lists, st.booleans()).map(lambda pair: (float_list if is_float else int64_list)(*pair))


UNKNOWN = st.sampled_from([b"", field(1, field(1, b"text")), float_list([1, 2], True), int64_list([3], False)])
OTHER_ENTRIES = st.tuples(st.sampled_from(["", "input", "input_ids2", "x"]), UNKNOWN)
ENTRIES = st.lists(
    st.one_of(*(st.tuples(st.just(name), value_of(kind)) for name, kind in NAMES.items()), OTHER_ENTRIES), max_size=3
)


@st.composite
def records(draw):
    """Draw an example with all or some of the features, in any order and among other entries."""
    complete = [(name, draw(value_of(kind))) for name, kind in NAMES.items()]
    entries = draw(ENTRIES) + (complete if draw(st.booleans()) else complete[: draw(st.integers(0, 3))])
    order = draw(st.permutations(entries))
    return field(1, b"".join(entry(name, value) for name, value in order))


def equal(first, second):
    if not isinstance(first, dict) or not isinstance(second, dict):
        return first == second
    # A flipped bit can produce a NaN.
    return all(np.array_equal(first[name], second[name], equal_nan=True) for name in NAMES)


@settings(max_examples=100)
@given(st.lists(records(), min_size=1, max_size=3), st.booleans())
def test_the_features_are_those_of_tensorflow(serialized, ragged):
    reference = expected(serialized, ragged)
    results = [parse(parse_records, serialized, ragged) for parse_records in PARSERS]
    for result in results:
        assert equal(result, results[0])
        if reference is None:
            assert isinstance(result, tuple)
        else:
            assert equal(result, reference)


def flawless():
    return field(
        1,
        entry("input_ids", int64_list([1, -1, 300, 2**31, 2**62], True))
        + entry("other", field(1, field(1, b"some text")))
        + entry("weights", float_list([0.5, 1.5, -2.0], False))
        + entry("é", int64_list([7], False)),
    )


@settings(max_examples=500)
@given(st.data())
def test_changed_records_give_the_same_in_c_and_in_python(data):
    # Flip bits, truncate anywhere, insert bytes and repeat parts.
    content = bytearray(flawless())
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["flip", "cut", "insert", "repeat"]))
        if not content:
            break
        at = data.draw(st.integers(0, len(content) - 1))
        if kind == "flip":
            content[at] ^= data.draw(st.integers(1, 255))
        elif kind == "cut":
            del content[at:]
        elif kind == "insert":
            content[at:at] = data.draw(st.binary(max_size=12))
        else:
            content += content[at : at + data.draw(st.integers(1, 40))]
    serialized = [flawless(), bytes(content)]
    for ragged in (False, True):
        results = [parse(parse_records, serialized, ragged) for parse_records in PARSERS]
        assert all(equal(result, results[0]) for result in results)


@pytest.mark.parametrize("parse_records", PARSERS)
def test_every_shortened_record_is_invalid_or_lacks_a_feature(parse_records):
    serialized = flawless()
    assert equal(parse(parse_records, [serialized]), expected([serialized]))
    for end in range(len(serialized)):
        assert isinstance(parse(parse_records, [serialized[:end]]), tuple)


@pytest.mark.parametrize("parse_records", PARSERS)
@pytest.mark.parametrize(
    "content",
    [
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # A length of 2**64 - 1.
        b"\x0a\xff\xff\xff\xff\x07",
        b"\x0b\x00",  # A group.
        b"\x80" * 11,
        b"\x0d\x00\x00\x00",  # A field of four bytes that has only three.
        b"\x09" + b"\x00" * 7,
        field(1, entry("weights", field(2, field(1, b"\x00" * 7)))),
        field(1, entry("input_ids", field(3, field(1, b"\x80")))),
        field(1, entry("input_ids", field(3, field(1, b"\xff" * 11 + b"\x01")))),
    ],
)
def test_malformed_records_are_invalid(parse_records, content):
    for ragged in (False, True):
        assert parse(parse_records, [flawless(), content], ragged) == (parsing._INVALID, 1, 0, 0)


@pytest.mark.parametrize("parse_records", PARSERS)
def test_unknown_fields_of_every_type_are_skipped(parse_records):
    unknown = b"\x70\x05" + b"\x71" + b"\x01" * 8 + b"\x75" + b"\x01" * 4 + field(14, b"text")
    value = unknown + int64_list([1, 2, 3, 4, 5], True) + unknown
    entries = field(1, unknown + field(1, b"input_ids") + field(2, value)) + entry("weights", float_list([1, 2, 3], 1))
    serialized = unknown + field(1, unknown + entries + entry("é", int64_list([1], True)))
    rows = parse(parse_records, [serialized])
    assert rows["input_ids"].tolist() == [[1, 2, 3, 4, 5]]
    # Parts of one list are joined, as the protocol buffer library does.
    halves = int64_list([1, 2], True) + int64_list([3, 4, 5], False)
    serialized = field(1, entry("input_ids", halves) + entry("weights", float_list([1, 2, 3], False)))
    assert parse(parse_records, [serialized], True)["input_ids"].tolist() == [[1, 2, 3, 4, 5]]


@pytest.mark.parametrize("parse_records", PARSERS)
def test_the_first_problem_is_the_result(parse_records):
    def serialized(**changes):
        values = {
            "input_ids": int64_list(range(5), True),
            "weights": float_list([1, 2, 3], True),
            "é": int64_list([1], True),
        } | changes
        return field(1, b"".join(entry(name, value) for name, value in values.items() if value is not None))

    good = serialized()
    short, long = serialized(weights=float_list([1, 2], True)), serialized(weights=float_list([1] * 4, True))
    assert isinstance(parse(parse_records, [good, good]), dict)
    assert isinstance(parse(parse_records, []), dict)
    for content, problem, count in [
        (serialized(weights=None), parsing._MISSING, 0),
        (serialized(weights=b""), parsing._MISSING, 0),
        (serialized(weights=int64_list([1, 2, 3], True)), parsing._WRONG_TYPE, 0),
        (serialized(weights=field(1, field(1, b"a"))), parsing._WRONG_TYPE, 0),
        (short, parsing._WRONG_LENGTH, 2),
        (long, parsing._WRONG_LENGTH, 4),
    ]:
        assert parse(parse_records, [good, content, short]) == (problem, 1, 1, count)
    assert parse(parse_records, [short, serialized(weights=None)], True)["weights"].tolist() == [[1, 2, 0], [0, 0, 0]]
    assert parse(parse_records, [good, long], True) == (parsing._WRONG_LENGTH, 1, 1, 4)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ragged": True},
        {"pack": True, "max_instances_per_row": 3},
        {"feature_names": "model_garden"},
        {"objective": "mlm", "pack": True, "ragged": True, "feature_names": "model_garden"},
    ],
)
def test_a_dataset_is_parsed_with_and_without_a_compiler(tmp_path, monkeypatch, compiled, changes):
    if compiled and parse_in_c is None:
        pytest.skip("beambert.trainers.data._examples was not built: no C compiler when beambert was installed")
    if not compiled:
        monkeypatch.setattr(parsing, "_examples", None)
    options = dataclasses.replace(OPTIONS, **changes)
    dataset = write_dataset(tmp_path, {("train", 0): [1]}, options=options)
    written = random_features(np.random.default_rng(3), 9, instances=options.instances_per_row)
    features = parser(dataset, 32, 4)([record(written, row, options) for row in range(9)])
    assert features.keys() == dataset.features.keys()
    for name, values in features.items():
        np.testing.assert_array_equal(values, written[name], err_msg=name)
    with pytest.raises(InvalidExampleError, match=r"record 1 is not a valid tf\.train\.Example") as raised:
        parser(dataset, 32, 4)([record(written, 0, options), b"x"])
    assert raised.value.record == 1


@pytest.mark.skipif(parse_in_c is None, reason="beambert.trainers.data._examples was not built")
def test_wrong_arguments_are_refused():
    outputs = [(b"a", False, np.zeros((1, 2), np.int32))]
    for wrong in (
        ([b""], [(b"a", False, np.zeros((1, 2), np.int64))], False),
        ([b""], [(b"a", False, np.zeros((2, 2), np.int32))], False),
        ([b""], [(b"a", False, np.zeros(2, np.int32))], False),
        ([b""], [[b"a", False, outputs[0][2]]], False),
        ([b""], outputs * 65, False),
        (["text"], outputs, False),
        (None, outputs, False),
        ([b""], 3, False),
    ):
        with pytest.raises((TypeError, ValueError)):
            parse_in_c(*wrong)
    frozen = np.zeros((1, 2), np.int32)
    frozen.setflags(write=False)
    for array in (frozen, np.zeros((2, 2), np.int32)[:, ::2]):
        with pytest.raises((TypeError, ValueError, BufferError)):
            parse_in_c([b""], [(b"a", False, array)], False)


def test_the_extension_is_built_where_it_must_be():
    assert parse_in_c is not None or os.environ.get("BEAMBERT_REQUIRE_COMPILED") != "1"

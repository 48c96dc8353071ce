"""Test the encoding of protobuf messages against the protobuf library."""

import itertools
import math
import re

import pytest
from google.protobuf import descriptor_pb2, wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st

from beambert.common.wire_format import (
    bytes_field,
    double_field,
    fields,
    fixed32_field,
    read_varint,
    varint,
    varint_field,
)


@given(st.integers(0, 2**64 - 1))
def test_integers_are_encoded_as_by_the_library(number):
    assert varint_field(1, number) == wrappers_pb2.UInt64Value(value=number).SerializeToString()
    assert read_varint(b"x" + varint(number) + b"x", 1) == (number, 1 + len(varint(number)))


@given(st.binary(max_size=300))
def test_bytes_are_encoded_as_by_the_library(content):
    # The library leaves out an empty value; a field that is present and empty reads the same.
    expected = wrappers_pb2.BytesValue(value=content)
    assert wrappers_pb2.BytesValue.FromString(bytes_field(1, content)) == expected
    assert bytes_field(1, content) == (expected.SerializeToString() or b"\x0a\x00")


@given(st.floats(allow_nan=False).filter(lambda number: math.copysign(1, number) * number or number > 0))
def test_doubles_are_encoded_as_by_the_library(number):
    assert double_field(1, number) == wrappers_pb2.DoubleValue(value=number).SerializeToString()


def test_fields_of_every_type_are_decoded():
    uninterpreted = descriptor_pb2.UninterpretedOption(
        identifier_value="x", positive_int_value=300, double_value=1.0, string_value=b"yz"
    )
    assert sorted(fields(uninterpreted.SerializeToString())) == [
        (3, b"x"),
        (4, 300),
        (6, 0x3FF0000000000000),
        (7, b"yz"),
    ]
    assert list(fields(fixed32_field(2, 0xDEADBEEF))) == [(2, 0xDEADBEEF)]
    assert fixed32_field(2, 0) == varint_field(2, 0) == b""


def test_the_upper_bits_of_a_long_integer_are_dropped_as_by_the_library():
    message = b"\x08" + b"\xff" * 9 + b"\x02"
    assert list(fields(message)) == [(1, wrappers_pb2.UInt64Value.FromString(message).value)]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\x80", "the integer at byte 0 is not a varint of 64 bits"),
        (b"\x08" + b"\xff" * 10, "the integer at byte 1 is not a varint of 64 bits"),
        (b"\x0a\x05abcd", "the field at byte 2 is truncated"),
        (b"\x0d\x00\x00\x00", "the field at byte 1 is truncated"),
        (b"\x09" + bytes(7), "the field at byte 1 is truncated"),
        (b"\x0b", "wire type 3 before byte 1 is not valid"),
    ],
    ids=itertools.count(),
)
def test_invalid_messages_are_refused(message, reason):
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        list(fields(message))

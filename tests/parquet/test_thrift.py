"""The decoder of Thrift's compact protocol."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.parquet.thrift import ANY, BINARY, BOOL, INT, MAX_DEPTH, ThriftError, decode, find
from parquet.crafted import I8, encode, varint

SPEC = {1: INT, 2: BINARY, 3: BOOL, 4: [INT], 5: [BINARY], 6: {1: INT}, 7: [{2: BINARY}], 20: INT, 300: BINARY}

numbers = st.integers(-(2**63), 2**63 - 1)
structures = st.fixed_dictionaries(
    {},
    optional={
        1: numbers,
        2: st.binary(max_size=200),
        3: st.booleans(),
        4: st.lists(numbers, max_size=20),
        5: st.lists(st.binary(max_size=5), max_size=20),
        6: st.fixed_dictionaries({1: numbers}),
        7: st.lists(st.fixed_dictionaries({2: st.binary(max_size=5)}), max_size=20),
        20: numbers,
        300: st.binary(max_size=5),
    },
)


@given(structures)
def test_what_is_encoded_is_decoded(fields: dict[int, Any]) -> None:
    """Every kind of value survives, with short and long field headers and list headers."""
    assert decode(encode(fields), SPEC) == fields


@given(structures)
def test_fields_outside_the_spec_are_skipped(fields: dict[int, Any]) -> None:
    """Whatever stands between, the field that is wanted is found."""
    assert decode(encode({**fields, 400: 7}), {400: INT}) == {400: 7}
    assert decode(encode({**fields, 400: 7}), {1: BINARY, 2: INT, 4: BOOL, 7: INT, 400: INT})[400] == 7


@given(structures)
def test_any_value_can_be_read_without_a_spec(fields: dict[int, Any]) -> None:
    """Structures come as dictionaries all the way down; lists stay raw."""
    found = decode(encode({1: fields}), {1: ANY})[1]
    assert {k: v for k, v in found.items() if k not in (4, 5, 7)} == {
        k: v for k, v in fields.items() if k not in (4, 5, 7)
    }


@given(structures, st.data())
def test_every_cut_is_noticed(fields: dict[int, Any], data: st.DataObject) -> None:
    """A structure that ends early is an error, wherever it is cut."""
    raw = encode(fields)
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(ThriftError):
        decode(raw[:cut], SPEC)
    with pytest.raises(ThriftError):
        decode(raw[:cut], {})


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_are_refused(raw: bytes) -> None:
    """Noise ends in a ThriftError, or in a structure; nothing else, with or without a spec."""
    for spec in (SPEC, {}, dict.fromkeys(range(1, 16), ANY)):
        try:
            decode(raw, spec)
        except ThriftError:
            continue


def test_a_list_of_other_elements_is_refused() -> None:
    """What a list holds is not guessed."""
    for fields, kind in (({1: [b"x"]}, INT), ({1: [1]}, BINARY), ({1: [1]}, {1: INT})):
        with pytest.raises(ThriftError):
            decode(encode(fields), {1: [kind]})


def test_small_numbers_are_one_signed_byte() -> None:
    """An i8 is not zigzag."""
    assert decode(encode({1: I8(-3), 20: I8(127)}), SPEC) == {1: -3, 20: 127}


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16" + b"\xff" * 10 + b"\x01\x00",  # a number of 71 bits
        b"\x16" + b"\xff" * 9 + b"\x7f\x00",  # a number of 70 bits
        b"\x28" + varint(1 << 62) + b"\x00",  # a string longer than the data
        b"\x49" + b"\xf6" + varint(1 << 40) + b"\x00",  # a list longer than the data
        b"\x79\xfc" + varint(1000) + bytes(2000),  # more structures than could be written in so few bytes
        b"\x1e\x00",  # wire type 14
        b"\x9b" + varint(1 << 40) + b"\x66\x00",  # a map longer than the data
        b"\x9c" * (MAX_DEPTH + 2) + b"\x00" * (MAX_DEPTH + 3),  # structures in structures
        b"\x99" + b"\x19" * (MAX_DEPTH + 2) + b"\x00",  # lists in lists
    ],
)
def test_hostile_values_are_refused(raw: bytes) -> None:
    """Sizes beyond the data and deep nesting are errors before any work is done on them."""
    with pytest.raises(ThriftError):
        decode(raw, SPEC)


def test_maps_and_uuids_of_newer_versions_are_skipped() -> None:
    """Wire types that Parquet does not use yet do not hide what follows."""
    a_map = b"\x9b\x02\x81" + b"\x01a\x01" + b"\x01b\x02"  # field 9: {"a": true, "b": false}
    an_empty_map = b"\x1b\x00"  # field 10
    a_uuid = b"\x1d" + bytes(16)  # field 11
    assert decode(a_map + an_empty_map + a_uuid + b"\x96\x06\x00", {20: INT}) == {20: 3}


def test_find_gives_the_position_of_a_field() -> None:
    """The position is that of the value; a field of another type, or none, is an error."""
    raw = encode({1: 2, 2: [7, 8], 3: 5})
    assert raw[find(raw, 2, 9) :].startswith(b"\x26")
    for field, wire in ((2, 8), (9, 9)):
        with pytest.raises(ThriftError):
            find(raw, field, wire)

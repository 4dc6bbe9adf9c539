"""Thrift's compact protocol, write side: just what a small Parquet footer needs."""

from __future__ import annotations

from collections.abc import Iterable

_I32 = 5
_I64 = 6
_BINARY = 8
_LIST = 9
_STRUCT = 12

#: A field's wire type and its bytes.
Value = tuple[int, bytes]


def i32(number: int) -> Value:
    """A 32-bit integer."""
    return _I32, _zigzag(number)


def i64(number: int) -> Value:
    """A 64-bit integer."""
    return _I64, _zigzag(number)


def binary(data: bytes) -> Value:
    """Bytes or UTF-8 text."""
    return _BINARY, _varint(len(data)) + data


def structure(fields: dict[int, Value]) -> Value:
    """A structure; fields by id, ascending."""
    out = bytearray()
    last = 0
    for number, (wire, data) in fields.items():
        delta = number - last
        if not 0 < delta < 16:
            raise ValueError("field ids ascend by less than sixteen")
        out.append(delta << 4 | wire)
        out += data
        last = number
    out.append(0)
    return _STRUCT, bytes(out)


def sequence(items: Iterable[Value]) -> Value:
    """A list of values of one wire type; not empty."""
    listed = list(items)
    return raw_sequence(listed[0][0], [data for _, data in listed])


def raw_sequence(wire: int, items: list[bytes]) -> Value:
    """A list of values that are encoded already."""
    count = len(items)
    head = bytes([count << 4 | wire]) if count < 15 else bytes([0xF0 | wire]) + _varint(count)
    return _LIST, head + b"".join(items)


def structures(items: list[bytes]) -> Value:
    """A list of structures that are encoded already."""
    return raw_sequence(_STRUCT, items)


def _zigzag(number: int) -> bytes:
    return _varint((number << 1) ^ (number >> 63))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)

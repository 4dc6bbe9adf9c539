"""Arrow text as the inside of JSON strings."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_FIRST_PLAIN: Final = 0x20


def json_strings(texts: pa.Array) -> pa.Array:
    """The texts as they stand between the quotes of JSON strings; the array itself when none needs an escape.

    Only quotes, backslashes and control characters must be escaped (RFC 8259, section 7); the rest is UTF-8 as it is.
    """
    if not needs_escapes(texts):
        return texts
    return pa.array([msgspec.json.encode(text)[1:-1].decode() for text in texts.to_pylist()], pa.large_string())


def needs_escapes(texts: pa.Array) -> bool:
    """True when a byte of an array of large strings cannot stand in a JSON string as it is."""
    data = bytes_of(texts)
    return bool(((data < _FIRST_PLAIN) | (data == _QUOTE) | (data == _BACKSLASH)).any())


def bytes_of(texts: pa.Array) -> npt.NDArray[np.uint8]:
    """The bytes of all strings of an array without nulls, one after another; a view."""
    if not len(texts):
        return np.zeros(0, dtype=np.uint8)
    offsets = offsets_of(texts)
    data = texts.buffers()[2]
    if data is None:
        return np.zeros(0, dtype=np.uint8)
    return np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]]


def offsets_of(texts: pa.Array) -> npt.NDArray[np.int64]:
    """Where the strings of a non-empty array begin, and where the last one ends; a view."""
    return np.frombuffer(texts.buffers()[1], dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]


def joined(texts: pa.Array, separator: str) -> memoryview:
    """The texts in one, with a separator between them."""
    if not len(texts):
        return memoryview(b"")
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    one = pc.binary_join(whole, pa.scalar(separator, pa.large_string()))
    return bytes_of(one).data

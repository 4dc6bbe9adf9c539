"""A chunk's column as buffers, for a cache on disk that other processes map, and back.

The first buffer says what the others are; they are the arrays themselves, which are used in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.cache import Buffer
from lamella.snapshot.columnar.bytes_keys import BytesKeys, SharedKeys
from lamella.snapshot.columnar.keys import Keys, NumberKeys, WideKeys
from lamella.snapshot.columnar.spans import Spans
from lamella.snapshot.columnar.zones import Zones

#: Of the form of the buffers; part of the keys that they are kept under.
STORED_VERSION = 1

_Form = Literal["number", "wide", "bytes", "shared"]


class _Head(msgspec.Struct, frozen=True):
    """``form`` of the bounds, None: there are none; ``kind`` of their array and of the spans' (NumPy's names)."""

    form: _Form | None
    kind: str = ""
    shared: tuple[bytes, bytes] = (b"", b"")
    spans: str | None = None


#: Made once, here: two threads that decode a struct for the first time at once end the process (msgspec 0.22).
_HEAD = msgspec.msgpack.Decoder(_Head)


def packed(zones: Zones) -> list[Buffer]:
    """The buffers of zone maps without ``fails``."""
    low, high, spans = zones.low, zones.high, zones.spans
    kind = None if spans is None else spans.edges.dtype.str
    head, arrays = _Head(None, spans=kind), [zones.flags]
    if low is not None and high is not None:
        form: _Form = _form_of(low)
        number = low.array.dtype.str if isinstance(low, NumberKeys) else ""
        shared = (low.shared, high.shared) if isinstance(low, BytesKeys) and isinstance(high, BytesKeys) else (b"", b"")
        head = _Head(form, number, shared, kind)
        arrays += [*_arrays_of(low), *_arrays_of(high)]
    if spans is not None:
        arrays += [spans.offsets, spans.edges]
    return [msgspec.msgpack.encode(head), *(np.ascontiguousarray(array) for array in arrays)]


def unpacked(buffers: Sequence[memoryview]) -> Zones:
    """The zone maps that :func:`packed` made the buffers of."""
    head = _HEAD.decode(buffers[0])
    rest = list(buffers[1:])
    flags = _array(rest.pop(0), "u1")
    low: Keys | None = None
    high: Keys | None = None
    if head.form is not None:
        count = _BUFFERS[head.form]
        low = _keys(head.form, head.kind, head.shared[0], rest[:count])
        high = _keys(head.form, head.kind, head.shared[1], rest[count : 2 * count])
        rest = rest[2 * count :]
    zones = Zones(low, high, flags)
    if head.spans is not None:
        zones.spans = Spans(_array(rest[0], "i8"), _array(rest[1], head.spans))
    return zones


_BUFFERS: dict[_Form, int] = {"number": 1, "wide": 2, "bytes": 3, "shared": 4}


def _form_of(keys: Keys) -> _Form:
    if isinstance(keys, NumberKeys):
        return "number"
    if isinstance(keys, WideKeys):
        return "wide"
    return "shared" if isinstance(keys, SharedKeys) else "bytes"


def _arrays_of(keys: Keys) -> list[npt.NDArray[Any]]:
    if isinstance(keys, NumberKeys):
        return [keys.array]
    if isinstance(keys, WideKeys):
        return [keys.high, keys.low]
    if isinstance(keys, BytesKeys):
        data = np.frombuffer(keys.data, dtype=np.uint8)
        words = [keys.words] if isinstance(keys, SharedKeys) else []
        return [keys.prefix, keys.offsets.astype(np.int64, copy=False), data, *words]
    raise TypeError(f"{type(keys).__name__} is no order of bounds")


def _keys(form: _Form, kind: str, shared: bytes, buffers: Sequence[memoryview]) -> Keys:
    if form == "number":
        return NumberKeys(_array(buffers[0], kind))
    if form == "wide":
        return WideKeys(_array(buffers[0], "i8"), _array(buffers[1], "u8"))
    keys = BytesKeys(_array(buffers[0], "u8"), _array(buffers[1], "i8"), buffers[2])
    return keys if form == "bytes" else SharedKeys.of(keys, shared, _array(buffers[3], "u8"))


def _array(buffer: memoryview, kind: str) -> npt.NDArray[Any]:
    return np.frombuffer(buffer, dtype=np.dtype(kind))

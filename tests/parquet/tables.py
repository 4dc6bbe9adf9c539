"""Random tables for pyarrow to write: every type with an order, and the values that statistics get wrong."""

from __future__ import annotations

import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from lamella.snapshot.schema import DataType

_FLOATS = [math.nan, 0.0, -0.0, math.inf, -math.inf, 1.5, -1.5, 65504.0, 5e-324, 1.7e308]
_TEXTS = ["", "a", "Z", "é", "日本", "\U0001f600", "\uffff", "x" * 70, "x" * 63 + "é", "\x00", "\U0010ffff" * 20]
_BYTES = [b"", b"\x00", b"\xff" * 70, b"a" + b"\xff" * 80, b"\x7f", b"\x80", b"a" * 65]


def _integers(kind: pa.DataType) -> st.SearchStrategy[Any]:
    bits, signed = kind.bit_width, not str(kind).startswith("u")
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.sampled_from([low, low + 1, 0, 1, high - 1, high]) | st.integers(low, high)


def _counts(kind: pa.DataType, low: int, high: int) -> st.SearchStrategy[Any]:
    """Values given by their physical integers, since Python's own dates cannot say most of them."""
    physical = pa.int32() if kind.bit_width == 32 else pa.int64()
    numbers = st.sampled_from([low, -1, 0, 1, high]) if low < 0 else st.sampled_from([0, 1, high])
    return (numbers | st.integers(low, high)).map(lambda n: pa.scalar(n, physical).cast(kind))


def _decimals(kind: pa.DataType) -> st.SearchStrategy[Any]:
    top = 10**kind.precision - 1
    digits = st.sampled_from([-top, -1, 0, 1, top]) | st.integers(-top, top)
    return digits.map(lambda n: decimal.Decimal(n).scaleb(-kind.scale, decimal.Context(prec=80)))


_DAY_S = 86_400
#: Types by what makes their values.
_KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **{k: _integers(k) for k in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{k: _integers(k) for k in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    pa.bool_(): st.booleans(),
    pa.float64(): st.sampled_from(_FLOATS) | st.floats(),
    pa.float32(): st.sampled_from([f for f in _FLOATS if not 1e38 < f < math.inf]) | st.floats(width=32),
    pa.float16(): st.sampled_from([f for f in _FLOATS if not 65504 < abs(f) < math.inf]).map(np.float16),
    pa.date32(): _counts(pa.date32(), -800_000, 800_000),
    pa.time32("ms"): _counts(pa.time32("ms"), 0, _DAY_S * 10**3 - 1),
    pa.time64("us"): _counts(pa.time64("us"), 0, _DAY_S * 10**6 - 1),
    pa.time64("ns"): _counts(pa.time64("ns"), 0, _DAY_S * 10**9 - 1),
    **{
        pa.timestamp(unit, tz=tz): _counts(pa.timestamp(unit, tz=tz), -(2**62), 2**62)
        for unit in ("ms", "us", "ns")
        for tz in (None, "UTC")
    },
    **{
        kind: _decimals(kind)
        for kind in (pa.decimal128(1, 0), pa.decimal128(9, 2), pa.decimal128(18, 18), pa.decimal128(38, 10))
    },
    pa.decimal256(76, 3): _decimals(pa.decimal256(76, 3)),
    pa.string(): st.sampled_from(_TEXTS) | st.text(max_size=80),
    pa.large_string(): st.sampled_from(_TEXTS),
    pa.binary(): st.sampled_from(_BYTES) | st.binary(max_size=80),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.binary(70): st.sampled_from([b"\xff" * 70, b"\x00" * 70, b"a" * 69 + b"\xff"]),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from(_TEXTS),
    pa.null(): st.none(),
}


@st.composite
def arrays(draw: st.DrawFn, rows: int) -> pa.Array:
    """A column: of one type, at times without nulls, all null, or within a struct that may be null itself."""
    kind = draw(st.sampled_from(list(_KINDS)))
    if kind == pa.null() or draw(st.integers(0, 9)) == 0:
        values: list[Any] = [None] * rows
    else:
        one = _KINDS[kind] if draw(st.booleans()) else _KINDS[kind] | st.none()
        values = draw(st.lists(one, min_size=rows, max_size=rows))
    if pa.types.is_dictionary(kind):
        array = pa.array(values, pa.string()).dictionary_encode()
    else:
        array = pa.array(values, kind)
    if draw(st.integers(0, 4)) == 0 and rows and kind != pa.null():
        absent = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
        array = pa.StructArray.from_arrays([array], ["x"], mask=pa.array(absent))
    return array


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """A small table of one to five columns."""
    rows = draw(st.integers(0, 12))
    count = draw(st.integers(1, 5))
    return pa.table({f"c{i}": draw(arrays(rows)) for i in range(count)})


@st.composite
def write_options(draw: st.DrawFn) -> dict[str, Any]:
    """Options of ``pyarrow.parquet.write_table`` that change what a footer says."""
    return {
        "row_group_size": draw(st.sampled_from([1, 2, 3, 5, 100])),
        "write_statistics": draw(st.sampled_from([True, True, True, False, ["c0"]])),
        "use_dictionary": draw(st.booleans()),
        "store_decimal_as_integer": draw(st.booleans()),
        "write_page_index": draw(st.booleans()),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "compression": draw(st.sampled_from(["none", "snappy"])),
    }


def wider(dtype: DataType) -> DataType:
    """A type that values of ``dtype`` can be read as, another one if there is one."""
    if dtype.is_integer and dtype.bits < 64:
        return DataType(f"{'u' if dtype.order == 'uint' else ''}int64")
    if dtype.is_float:
        return DataType("float64")
    if dtype.name == "decimal" and dtype.precision <= 33:
        return DataType("decimal", precision=dtype.precision + 5, scale=dtype.scale + 3)
    if dtype.name in ("time", "timestamp", "timestamp_ntz"):
        return DataType(dtype.name, unit={"ms": "ns", "us": "ms", "ns": "us"}[dtype.unit])  # type: ignore[arg-type]  # a unit
    if dtype.name == "fixed":
        return DataType("binary")
    return dtype

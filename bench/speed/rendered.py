"""Bounds of the model as text and as Arrow values, for formats that store them so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from synthetic import TYPES, Array, Model, text

#: A type of the model as Arrow has it.
ARROW = {
    "timestamp(us)": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "int64": pa.int64(),
    "int32": pa.int32(),
    "float64": pa.float64(),
    "decimal(18,2)": pa.decimal128(18, 2),
    "string": pa.string(),
}


def as_text(model: Model, column: str, side: dict[str, Array], start: int, stop: int) -> Any:
    """Bounds of some blocks as text, null where a block has no value: ISO times in UTC without zone, plain numbers."""
    values, kind = side[column][start:stop], TYPES[column]
    if kind == "string":
        return pa.array(text(column, values))
    if kind == "timestamp(us)":
        return pc.cast(pa.array(values).cast(pa.timestamp("ms")), pa.string())
    if kind == "date":
        return pc.cast(pa.array(values.astype(np.int32)).cast(pa.date32()), pa.string())
    if kind == "decimal(18,2)":
        return pa.array(_cents(value) for value in values.tolist())
    empty = model.all_null[start:stop] if column == "error_code" else None
    return pc.cast(pa.array(values, mask=empty), pa.string())


def as_values(model: Model, column: str, side: dict[str, Array], start: int, stop: int) -> Any:
    """Bounds of some blocks as Arrow values of the column's type, null where a block has no value."""
    values, kind = side[column][start:stop], TYPES[column]
    if kind == "timestamp(us)":
        return pa.array(values * 1_000).cast(ARROW[kind])
    if kind in ("string", "decimal(18,2)"):
        return as_text(model, column, side, start, stop).cast(ARROW[kind])
    empty = model.all_null[start:stop] if column == "error_code" else None
    return pa.array(
        values.astype(ARROW[kind].to_pandas_dtype()) if kind != "date" else values.astype(np.int32), mask=empty
    ).cast(ARROW[kind])


def _cents(value: int) -> str:
    return f"{'-' if value < 0 else ''}{abs(value) // 100}.{abs(value) % 100:02d}"

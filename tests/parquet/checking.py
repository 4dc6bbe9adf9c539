"""The oracle for statistics: values read by a full scan with pyarrow, held against what a block claims."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.stats import ColumnStats, from_bound

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def contradictions(table: pa.Table, block: Block, schema: Schema) -> list[str]:
    """Every claim of ``block`` about a flat column that the rows of ``table`` disprove."""
    found: list[str] = []
    if table.num_rows != block.row_count:
        found.append(f"{table.num_rows} rows, not {block.row_count}")
    for leaf in schema.leaves():
        if leaf.repeated:
            continue
        values = column_values(table, leaf)
        if values is not None:
            found += [f"{leaf.name}: {wrong}" for wrong in wrong_claims(values, block.col_stats[leaf.id], leaf.dtype)]
    return found


def wrong_claims(values: list[Any], stats: ColumnStats, dtype: DataType) -> list[str]:
    """What ``stats`` claims and ``values`` (in the domain of the type's order, None for null) disprove."""
    wrong: list[str] = []
    present = [v for v in values if v is not None]
    numbers = [v for v in present if not (isinstance(v, float) and math.isnan(v))]
    if stats.null_count is not None and stats.null_count != len(values) - len(present):
        wrong.append(f"{len(values) - len(present)} nulls, not {stats.null_count}")
    if stats.nan == "none" and len(numbers) != len(present):
        wrong.append("there is NaN")
    if stats.nan == "all" and numbers:
        wrong.append("not every value is NaN")
    if stats.min is not None:
        low = from_bound(dtype, stats.min)
        wrong += [f"{v!r} is below {low!r}" for v in numbers if v < low][:3]
        if stats.min_exact and low not in numbers:
            wrong.append(f"{low!r} does not occur")
    if stats.max is not None:
        high = from_bound(dtype, stats.max)
        wrong += [f"{v!r} is above {high!r}" for v in numbers if v > high][:3]
        if stats.max_exact and high not in numbers:
            wrong.append(f"{high!r} does not occur")
    return wrong


def column_values(table: pa.Table, leaf: Leaf) -> list[Any] | None:
    """A column's values in the domain of the table's type; None for types that have no order."""
    convert = _converter(leaf.dtype)
    if convert is None:
        return None
    values: list[Any] = []
    for batch in table.combine_chunks().to_batches():
        array = batch.column(leaf.path[0])
        for part in leaf.path[1:]:
            array = pc.struct_field(array, part)
        values += convert(array)
    return values


def _converter(dtype: DataType) -> Callable[[pa.Array], list[Any]] | None:
    if dtype.order is None:
        return None
    if dtype.order == "decimal":
        return lambda array: [_unscaled(v, dtype.scale) for v in array.to_pylist()]
    if dtype.order == "bytes":
        return lambda array: array.cast(pa.large_binary()).to_pylist() if _is_text(array.type) else _raw(array)
    if dtype.name in ("time", "timestamp", "timestamp_ntz"):
        return lambda array: _in_unit(array, _PER_SECOND[dtype.unit])
    if dtype.name == "date":
        return lambda array: array.cast(pa.int32()).to_pylist()
    return lambda array: array.to_pylist()


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def _raw(array: pa.Array) -> list[Any]:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return [v.encode("utf-8") if isinstance(v, str) else v for v in array.to_pylist()]


def _unscaled(value: Any, scale: int) -> int | None:
    if value is None:
        return None
    sign, digits, exponent = value.as_tuple()
    number: int = int("".join(map(str, digits))) * 10 ** (scale + exponent)
    return -number if sign else number


def _in_unit(array: pa.Array, per_second: int) -> list[Any]:
    """Counts of the unit, as fractions where the array's own unit is finer."""
    here = _PER_SECOND[array.type.unit]
    width = pa.int32() if array.type.bit_width == 32 else pa.int64()
    counts = array.cast(width).to_pylist()
    if per_second >= here:
        return [None if v is None else v * (per_second // here) for v in counts]
    step = here // per_second
    return [None if v is None else (v // step if v % step == 0 else v / step) for v in counts]

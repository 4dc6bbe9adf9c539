"""Values as a file holds them, brought into the types that the table has now: exactly, or with an error."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.errors import SchemaMismatch
from lamella.snapshot.rows.arrow_types import arrow_field, leaf_type
from lamella.snapshot.schema import Column, DataType, Schema
from lamella.snapshot.schema.arrow import arrow_default, conformed
from lamella.snapshot.schema.types import PER_SECOND


def conform(values: Any, name: str, column: Column, written: Schema, current: Schema) -> Any:
    """A file's column (a struct, list or map) as ``column`` of the table; ``name`` is the file's, which has the schema
    ``written``.

    Raises:
        SchemaMismatch: the values are not of a type that widens to the table's.
    """
    batch = pa.RecordBatch.from_arrays([values], names=[name])
    return conformed(batch, pa.schema([arrow_field(column)]), written, current).column(0)


def conform_leaf(values: Any, dtype: DataType, name: str) -> Any:
    """Values in the Arrow type of ``dtype``; times of a finer unit are cut downwards, as Spark cuts nanoseconds.

    Raises:
        SchemaMismatch: the values are not of a type that widens to the table's.
    """
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    wanted = leaf_type(dtype, name)
    source = values.type
    if source == wanted:
        return values
    try:
        if _is_clock(wanted) and _is_clock(source) and PER_SECOND[source.unit] > PER_SECOND[wanted.unit]:
            return _coarser(values, wanted)
        return values.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatch(f"column {name!r}: {error}", column=name) from error


def absent(column: Column, count: int) -> Any:
    """The values of a column in a file that lacks it: nulls, or the column's default."""
    wanted = arrow_field(column).type
    if column.default is None:
        return pa.nulls(count, wanted)
    return pa.repeat(arrow_default(column.dtype, column.default).cast(wanted), count)


def _is_clock(kind: Any) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_time(kind))


def _coarser(values: Any, wanted: Any) -> Any:
    divisor = PER_SECOND[values.type.unit] // PER_SECOND[wanted.unit]
    numbers = values.view(pa.int64())  # what is finer than milliseconds has 64 bits
    whole = pc.divide(numbers, divisor)  # cut towards zero, so too high where a negative number was cut
    floor = pc.if_else(pc.greater(pc.multiply(whole, divisor), numbers), pc.subtract(whole, 1), whole)
    return floor.cast(pa.int32()).view(wanted) if wanted.bit_width == 32 else floor.view(wanted)

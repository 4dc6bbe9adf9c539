"""Constants of blocks as Iceberg's identity partitions, from which readers take values that files do not hold.

A block's partition spec has its constant columns, and no others: for a column of the spec readers ignore the file. So
blocks with constants in other columns have another spec, and those without constants have the one without fields. Ids
follow from the column ids, so that all exports of a table agree on them.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from lamella.snapshot.errors import NotExpressible
from lamella.snapshot.schema import DataType, Schema
from lamella.snapshot.stats.bound import Value, decimal_text
from lamella.snapshot.stats.constant import Constants, constant_values

#: Iceberg numbers partition fields from 1000 on.
FIRST_FIELD_ID: Final = 1000
_MAX_SPEC_ID: Final = 0x7FFFFFFF

#: A block's constants by column id, ascending, with the types of the schema that the block was written with.
Partition = Mapping[int, tuple[DataType, Value | None]]


def spec_id_of(columns: Sequence[int]) -> int:
    """Returns the id of the spec of these columns, ascending; 0 for none."""
    if not columns:
        return 0
    return zlib.crc32(",".join(map(str, columns)).encode()) % _MAX_SPEC_ID + 1


def spec_json(schema: Schema, columns: Sequence[int]) -> dict[str, Any]:
    """Returns the spec of these columns of a schema, ascending, as in a table's metadata."""
    names = {column.id: column.name for column in schema.columns}
    return {
        "spec-id": spec_id_of(columns),
        "fields": [
            {
                "source-id": column_id,
                "field-id": FIRST_FIELD_ID + column_id,
                "transform": "identity",
                "name": names[column_id],
            }
            for column_id in columns
        ],
    }


def specs_json(schema: Schema, specs: Iterable[tuple[int, ...]]) -> dict[str, Any]:
    """Returns the members of a table's metadata that describe partitions; ``specs``: of columns in the schema."""
    described = [spec_json(schema, columns) for columns in [(), *sorted({each for each in specs if each})]]
    field_ids = [field["field-id"] for spec in described for field in spec["fields"]]
    return {
        "partition-specs": described,
        "default-spec-id": 0,
        "last-partition-id": max(field_ids, default=FIRST_FIELD_ID - 1),
    }


def columns_in(schema: Schema, columns: Iterable[int]) -> tuple[int, ...]:
    """Returns the columns that the schema has at its top, ascending."""
    top = {column.id for column in schema.columns}
    return tuple(sorted(top.intersection(columns)))


def partition_of(constants: Constants, written: Schema, schema: Schema, location: str) -> Partition:
    """Returns a block's constants in columns of ``schema``.

    Raises:
        NotExpressible: Iceberg's readers would not read this value, or not compare it as Spark does.
        ManifestError: a constant does not match its column's type.
    """
    top, leaves = set(columns_in(schema, constants)), written.by_id()
    found: dict[int, tuple[DataType, Value | None]] = {}
    for column_id, value in sorted(constant_values(constants, written).items()):
        if column_id in top:
            # In Spark NaN is greater than all numbers, and -0.0 equals 0.0; readers skip partitions by other rules.
            if isinstance(value, float) and (math.isnan(value) or (value == 0 and math.copysign(1, value) < 0)):
                raise not_read_equally(location, value)
            found[column_id] = leaves[column_id].dtype, value
        elif column_id in schema.by_id():
            raise NotExpressible(
                f"{location} has a constant inside of a struct, which Iceberg cannot express: compact the table",
                location=location,
            )
    return found


def not_read_equally(location: str, value: Value) -> NotExpressible:
    """Returns the error for a value that readers do not read, or compare, as Spark does."""
    return NotExpressible(
        f"{location} has the constant {value!r}, which some of Iceberg's readers read or compare in another way than"
        " Spark: compact the table",
        location=location,
    )


# Values in JSON, as Iceberg's specification writes single values (appendix D), for scan tasks.

_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # times without zone are computed with
_EPOCH_DAY: Final = _EPOCH.date().toordinal()


def partition_json(partition: Partition, location: str) -> bytes:
    """Returns the values as a JSON array. Raises NotExpressible for one that has no form there."""
    try:
        return msgspec.json.encode([_json(dtype, value) for dtype, value in partition.values()])
    except (ValueError, OverflowError) as error:
        raise NotExpressible(
            f"{location} has a constant that Iceberg's JSON has no form for: compact the table", location=location
        ) from error


def is_text_in_json(dtype: DataType) -> bool:
    """Returns whether values that are no text are written as text."""
    return not (dtype.is_text or dtype.is_integer or dtype.is_float or dtype.name == "boolean")


def _json(dtype: DataType, value: Value | None) -> Any:
    if value is None:
        return None
    if isinstance(value, bytes):
        if dtype.name == "uuid":
            return str(uuid.UUID(bytes=value))
        return value.decode() if dtype.is_text else value.hex().upper()
    if isinstance(value, float):
        if math.isinf(value):
            raise ValueError("JSON has no infinity")
        return value
    if dtype.name == "boolean":
        return bool(value)
    if dtype.name == "decimal":
        return decimal_text(value, dtype.scale)
    if dtype.name == "date":
        return dt.date.fromordinal(_EPOCH_DAY + value).isoformat()
    if dtype.name in ("time", "timestamp", "timestamp_ntz"):  # in microseconds: Iceberg's schema has no others
        at = _EPOCH + dt.timedelta(microseconds=value)
        if dtype.name == "time":
            return at.time().isoformat("microseconds")
        return at.isoformat(timespec="microseconds") + ("+00:00" if dtype.name == "timestamp" else "")
    return value

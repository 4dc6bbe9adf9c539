"""Constants of blocks as Iceberg's identity partitions, from which readers take values that files do not hold.

A block's partition spec has its constant columns, and no others: for a column of the spec readers ignore the file. So
blocks with constants in other columns have another spec, and those without constants have the one without fields. Ids
follow from the column ids, so that all exports of a table agree on them.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from lamella.snapshot.errors import NotExpressible
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import DataType, Schema
from lamella.snapshot.stats.bound import Value
from lamella.snapshot.stats.constant import constant_values

#: Iceberg numbers partition fields from 1000 on.
FIRST_FIELD_ID: Final = 1000
_MAX_SPEC_ID: Final = 0x7FFFFFFF


def spec_id_of(columns: Sequence[int]) -> int:
    """Returns the id of the spec of these columns, ascending; 0 for none."""
    if not columns:
        return 0
    return zlib.crc32(",".join(map(str, columns)).encode()) % _MAX_SPEC_ID + 1


def spec_of(schema: Schema, columns: Sequence[int]) -> PartitionSpec:
    """Returns the spec of these columns of a schema, ascending."""
    names = {column.id: column.name for column in schema.columns}
    fields = [
        PartitionField(
            source_id=column_id,
            field_id=FIRST_FIELD_ID + column_id,
            transform=IdentityTransform(),
            name=names[column_id],
        )
        for column_id in columns
    ]
    return PartitionSpec(*fields, spec_id=spec_id_of(columns))


def spec_json(schema: Schema, columns: Sequence[int]) -> dict[str, Any]:
    """Returns the spec as in a table's metadata."""
    return spec_of(schema, columns).model_dump(by_alias=True, mode="json")


def partition_of(block: Block, schemas: Mapping[int, Schema], schema: Schema) -> dict[int, Any]:
    """Returns a block's constants in columns of ``schema``, by column id, ascending, as pyiceberg keeps them.

    ``schemas``: by id, those that blocks were written with.

    Raises:
        NotExpressible: Iceberg's readers would not read this value, or not compare it as Spark does.
    """
    written = schemas[block.written_with]
    leaves, top = written.by_id(), {column.id for column in schema.columns}
    found: dict[int, Any] = {}
    for column_id, value in sorted(constant_values(block.constants, written).items()):
        dtype = leaves[column_id].dtype
        if column_id in top:
            found[column_id] = None if value is None else _value(dtype, value, block)
        elif column_id in schema.by_id():
            raise NotExpressible(
                f"{block.location} has a constant inside of a struct, which Iceberg cannot express: compact the table",
                location=block.location,
            )
    return found


def _value(dtype: DataType, value: Value, block: Block) -> Any:
    if dtype.is_text and isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float):
        if not _is_compared_equally(value):
            raise NotExpressible(
                f"{block.location} has the constant {value!r}, which some of Iceberg's readers read or compare in"
                " another way than Spark: compact the table",
                location=block.location,
            )
        return value
    if dtype.name == "boolean":
        return bool(value)
    if dtype.name == "decimal":
        # The constructor is exact; arithmetic rounds to the precision of a context.
        return Decimal(f"{value!r}E-{dtype.scale}")
    return value


def _is_compared_equally(value: float) -> bool:
    # In Spark NaN is greater than all numbers, and -0.0 equals 0.0; readers skip partitions by other rules. pyiceberg
    # (0.12) reads the doubles of manifests as floats.
    if math.isnan(value) or (value == 0 and math.copysign(1, value) < 0):
        return False
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == value)
    except OverflowError:
        return False

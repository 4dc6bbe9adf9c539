"""The hidden column ``_metadata`` of tables: which file a row comes from, and where in it the row is.

Spark's reader fills it in, as values that are the same for a whole file. It has no place for the position of a row
inside of a struct, so if a query uses ``row_index``, Python workers read the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from lamella.client.spark.gateway import SQL, Gateway
from lamella.client.spark.local_filter import LocalFilter
from lamella.client.spark.python_blocks import spark_arrow_schema
from lamella.snapshot.schema import Column, Schema

NAME: Final = "_metadata"
#: The field that differs between the rows of a file.
ROW_INDEX: Final = "row_index"
#: Fields, with Spark's types. Those that Spark's own files have too, have its names.
FIELDS: Final = {
    "file_path": "string",
    "file_name": "string",
    "file_size": "long",
    "file_block_start": "long",
    "file_block_length": "long",
    ROW_INDEX: "long",
    "snapshot_id": "string",
}
#: Fields by which blocks are left out: those that are known of a block before it is read.
_OF_BLOCKS: Final = ("file_path", "file_name", "file_size", "snapshot_id")
_IN_LAMELLA: Final = {"string": "string", "long": "int64"}


class FilePart(NamedTuple):
    """A part of a block's file that one task reads, as Spark splits it."""

    location: str
    size_bytes: int
    start: int
    length: int


def has_metadata(schema: Schema) -> bool:
    """Whether a table has the hidden column: not if a column of its own has the name."""
    return all(column.name.lower() != NAME for column in schema.columns)


def is_named(gateway: Gateway, schema: Schema) -> bool:
    """Whether a table has the hidden column, and the text of the statement that Spark analyses has its name."""
    if not has_metadata(schema) or not gateway.pins_threads:
        return False
    text = gateway.scala_object(SQL + "catalyst.trees.CurrentOrigin").get().sqlText()
    return bool(text.isDefined()) and NAME in str(text.get()).lower()


def metadata_type() -> dict[str, Any]:
    """Return the column's type in Spark's JSON."""
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in FIELDS.items()]
    return {"type": "struct", "fields": fields}


def metadata_field(schema: Schema, fields: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the hidden column among the requested fields of Spark's JSON, which may have some of its parts only."""
    return next((field for field in fields if field["name"] == NAME), None) if has_metadata(schema) else None


def needs_positions(field: Mapping[str, Any]) -> bool:
    """Whether the requested parts of the column differ between the rows of a file."""
    return any(part["name"] == ROW_INDEX for part in field["type"]["fields"])


def values_of(field: Mapping[str, Any], parts: Sequence[FilePart], snapshot_id: str, positions: Any = None) -> pa.Array:
    """Return the column's value for each part of a file; ``positions``: for each row at these positions of the only
    part instead."""
    (target,) = spark_arrow_schema(json.dumps({"type": "struct", "fields": [field]}))
    columns: dict[str, list[Any]] = {
        "file_path": [part.location for part in parts],
        "file_name": [part.location.rpartition("/")[2] for part in parts],
        "file_size": [part.size_bytes for part in parts],
        "file_block_start": [part.start for part in parts],
        "file_block_length": [part.length for part in parts],
        "snapshot_id": [snapshot_id] * len(parts),
    }
    made = []
    for each in target.type:
        if each.name == ROW_INDEX:
            made.append(pa.array(positions, each.type))
        elif positions is None:
            made.append(pa.array(columns[each.name], each.type))
        else:
            made.append(pa.repeat(pa.scalar(columns[each.name][0], each.type), len(positions)))
    if not made:  # the struct itself is counted, or tested for null
        count = len(parts) if positions is None else len(positions)
        return pa.array([{}] * count, target.type)
    return pa.StructArray.from_arrays(made, fields=list(target.type))


def filter_of_blocks() -> LocalFilter:
    """Return a filter for conditions on what is known of a block before it is read."""
    fields = tuple(Column(name=name, type=_IN_LAMELLA[FIELDS[name]]) for name in _OF_BLOCKS)
    return LocalFilter(Schema.assign([Column(name=NAME, type="struct", fields=fields)]))


def matching_blocks(
    conditions: LocalFilter, locations: Sequence[str], sizes_bytes: Sequence[int], snapshot_id: str
) -> list[int]:
    """Return the numbers of the blocks whose rows may meet the conditions."""
    values = {
        "file_path": pa.array(locations, pa.string()),
        "file_name": pa.array([location.rpartition("/")[2] for location in locations], pa.string()),
        "file_size": pa.array(sizes_bytes, pa.int64()),
        "snapshot_id": pa.repeat(pa.scalar(snapshot_id, pa.string()), len(locations)),
    }
    keep = conditions.keep({f"{NAME}.{name}": values[name] for name in _OF_BLOCKS}, len(locations))
    return [int(number) for number in keep.nonzero()[0]]

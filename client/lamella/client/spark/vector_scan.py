"""Blocks with deleted rows in Spark's own vectorised Parquet reader.

That reader can say the position of each row in its file (the column :data:`ROW_INDEX`), and add values that are the
same for a whole file. So each file gets a bit for each of its rows, 1 for a deleted one, and Spark leaves out the rows
whose bit is 1. The bits travel with the tasks, so this is for a limited number of blocks; beyond that, Python workers
read them.

The condition exists twice. SQL has no function that reads a bit in place: it makes arrays and texts for each row. So
where the scan finds the condition in a filter that Spark passes on, it returns a faster expression instead.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError

from lamella.client.spark.catalyst import kind_of
from lamella.client.spark.file_values import MAX_FILES, file_partitions, file_parts, internal_rows_of, with_file_values
from lamella.client.spark.gateway import SQL, Gateway
from lamella.client.spark.lake import BlockSelection, LakeTable
from lamella.client.spark.python_blocks import spark_arrow_schema
from lamella.client.spark.row_ids import unused_name
from lamella.snapshot.deletes import Positions, Vectors, deleted_rows
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.schema import Schema
from lamella.snapshot.storage import FsspecStore

#: Spark's name for the position of a row in its file.
ROW_INDEX: Final = "_tmp_metadata_row_index"
#: In one scan: the bits are sent from the driver.
_MAX_BYTES: Final = 128 << 20
_EXPRESSIONS: Final = SQL + "catalyst.expressions."

_log = logging.getLogger(__name__)


def deleted_column(schema: Schema) -> str:
    """Return the name of the hidden column with the bits of a row's file."""
    return unused_name(schema, "_lamella_deleted_rows")


def hidden_fields(schema: Schema) -> list[dict[str, Any]]:
    """Return the hidden columns that say which rows of a file are deleted, as fields of Spark's JSON; none, if the
    table has a column of Spark's name.

    The bits are declared as text, whose bytes Spark can read in place. Nothing reads them as characters.
    """
    if any(column.name.lower() == ROW_INDEX for column in schema.columns):
        return []
    return [_field(ROW_INDEX, "long"), _field(deleted_column(schema), "string")]


def live_rows_condition(schema: Schema, quote: Callable[[str], str]) -> str:
    """Return SQL that is true for rows that are not deleted, by the hidden columns. A row that these say nothing about
    stays."""
    index, bits = quote(ROW_INDEX), quote(deleted_column(schema))
    byte = f"CAST(conv(hex(substring(CAST({bits} AS BINARY), CAST({index} DIV 8 AS INT) + 1, 1)), 16, 10) AS INT)"
    return f"NOT getbit({byte}, 7 - CAST({index} % 8 AS INT)) <=> 1Y"


def fast_condition(gateway: Gateway, schema: Schema, condition: Any) -> Any:
    """Return a faster expression for the condition of :func:`live_rows_condition`; anything else is returned
    unchanged."""
    inner = condition
    for kind in ("Not", "EqualNullSafe", "BitwiseGet"):
        if kind_of(inner) != kind:
            return condition
        inner = inner.children().head()
    found = condition.references().toSeq()
    columns = {str(found.apply(at).name()): found.apply(at) for at in range(found.size())}
    if columns.keys() != {ROW_INDEX, deleted_column(schema)}:
        return condition
    try:
        return _is_live(gateway, columns[ROW_INDEX], columns[deleted_column(schema)])
    except (Py4JError, TypeError):
        _log.warning("deleted rows are found slowly: unexpected version of Spark", exc_info=True)
        return condition


def _is_live(gateway: Gateway, index: Any, bits: Any) -> Any:
    """Return the expression; ``index``, ``bits``: the hidden columns."""

    def make(name: str, *arguments: Any) -> Any:
        return gateway.java_class(_EXPRESSIONS + name)(*arguments)

    def literal(value: int | bool) -> Any:
        return gateway.scala_object(_EXPRESSIONS + "Literal").apply(value)

    def to_int(value: Any) -> Any:
        unchecked = gateway.scala_object(_EXPRESSIONS + "EvalMode").LEGACY()
        return make("Cast", value, int_type, gateway.none, unchecked)

    int_type = gateway.constant(SQL + "types.DataTypes", "IntegerType")
    at = to_int(make("ShiftRight", index, literal(3)))
    byte = make(
        "objects.Invoke",
        bits,
        "getByte",
        gateway.constant(SQL + "types.DataTypes", "ByteType"),
        gateway.seq([at]),
        gateway.seq(),  # no conversion of arguments
        False,  # evaluated only where no argument is null
        False,  # not null
        True,  # deterministic
    )
    # Moves the row's bit to the sign. Only the lowest five bits of a distance count, as in Java: 24 plus the position
    # in the byte.
    moved = make("ShiftLeft", to_int(byte), make("BitwiseOr", to_int(index), literal(24)))
    is_known = make("LessThan", at, make("OctetLength", bits))  # getByte does not check it
    return make("Not", make("If", is_known, make("LessThan", moved, literal(0)), literal(False)))


def row_bits(selection: BlockSelection, storage_options: dict[str, dict[str, Any]]) -> list[bytes] | None:
    """Return a bit for each row of each selected block, 1 for a deleted one.

    None: they would be too many, or the driver cannot read the vectors.
    """
    if len(selection.locations) > MAX_FILES or sum(selection.rows) > 8 * _MAX_BYTES:
        return None
    store = FsspecStore(storage_options)
    try:
        vectors = Vectors(store, (entry for entries in selection.deletes for entry in entries or ()))
        return [
            bits_of(deleted_rows(vectors, entries or (), count), count)
            for count, entries in zip(selection.rows, selection.deletes, strict=True)
        ]
    except LamellaError:
        return None  # workers may have access, and report what is wrong


def bits_of(positions: Positions, row_count: int) -> bytes:
    """Return a bit for each row of a file, 1 for those at the positions, from the highest of each byte."""
    marks = np.zeros(row_count, dtype=np.bool_)
    marks[positions] = True
    return np.packbits(marks).tobytes()


def row_bits_partitions(gateway: Gateway, table: LakeTable, selection: BlockSelection, marks: Sequence[bytes]) -> Any:
    """Return ``InputPartition[]`` of the blocks' files, each with its bits as the value of a partition column."""
    field = _field(deleted_column(table.schema), "string")
    target = spark_arrow_schema(json.dumps({"type": "struct", "fields": [field]}))
    bits = pa.table([pa.array(marks, pa.binary()).view(pa.string())], schema=target)
    rows = internal_rows_of(gateway, [field], bits)
    parts = file_parts(gateway, selection)
    return file_partitions(gateway, selection, [part for _, part in parts], [rows[number] for number, _ in parts])


def with_row_bits(gateway: Gateway, factory: Any, schema: Schema) -> Any:
    """Return a reader factory of Spark's Parquet scan that adds the bits of each file as a column."""
    return with_file_values(gateway, factory, [_field(deleted_column(schema), "string")])


def _field(name: str, dtype: str) -> dict[str, Any]:
    return {"name": name, "type": dtype, "nullable": True, "metadata": {}}

"""Rows that this process knows, as a scan of a plan."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from lamella.client.spark.gateway import CONNECTOR, SQL, Gateway
from lamella.client.spark.statement import ReadScan
from lamella.snapshot.counts import counted

_READ: Final = CONNECTOR + "read."

#: Cells that are set one by one; more rows are sent as an Arrow table, which takes 20 ms.
_FEW_CELLS: Final = 32
_SETTERS: Final = {
    "boolean": "setBoolean",
    "byte": "setByte",
    "short": "setShort",
    "integer": "setInt",
    "long": "setLong",
    "float": "setFloat",
    "double": "setDouble",
    "date": "setInt",
    "timestamp": "setLong",
    "timestamp_ntz": "setLong",
}


def internal_rows(gateway: Gateway, schema: str, rows: pa.Table) -> Any:
    """Return a table, in the types of Arrow that Spark accepts, as ``InternalRow[]``; ``schema``: Spark's JSON."""
    types = [field["type"] for field in json.loads(schema)["fields"]]
    if not types:
        return _empty_rows(gateway, rows.num_rows)
    if rows.num_rows * rows.num_columns > _FEW_CELLS or not all(isinstance(kind, str) for kind in types):
        frame = gateway.spark.createDataFrame(rows, StructType.fromJson(json.loads(schema)))
        return frame._jdf.queryExecution().executedPlan().executeCollect()
    made = gateway.new_array(SQL + "catalyst.InternalRow", rows.num_rows)
    struct = gateway.struct_type(schema)
    for number in range(rows.num_rows):
        row = gateway.java_class(SQL + "catalyst.expressions.SpecificInternalRow")(struct)
        for at, kind in enumerate(types):
            _set_cell(gateway, row, at, kind, rows.column(at)[number])
        made[number] = row
    return made


def _empty_rows(gateway: Gateway, count: int) -> Any:
    """Return ``InternalRow[]`` of rows without columns, which are only counted."""
    made = gateway.new_array(SQL + "catalyst.InternalRow", count)
    filled = min(count, 1)
    if count:
        made[0] = gateway.java_class(SQL + "catalyst.InternalRow").empty()
    while filled < count:
        more = min(filled, count - filled)
        gateway.static("java.lang.System", "arraycopy")(made, 0, made, filled, more)
        filled += more
    return made


def _set_cell(gateway: Gateway, row: Any, at: int, kind: str, cell: pa.Scalar) -> None:
    if not cell.is_valid:
        row.setNullAt(at)
    elif kind in _SETTERS:
        number = cell.value if isinstance(cell, pa.TimestampScalar | pa.Date32Scalar) else cell.as_py()
        getattr(row, _SETTERS[kind])(at, number)
    elif kind == "string":
        row.update(at, gateway.static("org.apache.spark.unsafe.types.UTF8String", "fromString")(cell.as_py()))
    elif kind == "binary":
        row.update(at, bytearray(cell.as_py()))
    else:
        row.update(at, gateway.static(SQL + "types.Decimal", "apply")(cell.as_py()))


class LocalRows(ReadScan):
    """A scan of rows that are known; ``schema``: their types, in Spark's JSON."""

    class Java:
        implements = [_READ + "LocalScan", _READ + "SupportsReportStatistics"]  # noqa: RUF012

    def __init__(self, gateway: Gateway, schema: str, rows: pa.Table) -> None:
        super().__init__(gateway)
        self._schema = schema
        self._rows = rows

    def readSchema(self) -> Any:
        return self._gateway.struct_type(self._schema)

    def description(self) -> str:
        return f"Lamella {counted(self._rows.num_rows, 'row')}"

    def rows(self) -> Any:
        return internal_rows(self._gateway, self._schema, self._rows)

    def columnarSupportMode(self) -> Any:
        return self._gateway.constant(_READ + "Scan$ColumnarSupportMode", "UNSUPPORTED")

    def supportedCustomMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomTaskMetric")

    def estimateStatistics(self) -> Any:
        return statistics(self._gateway, max(1, self._rows.nbytes), self._rows.num_rows)

    def estimateSizeInBytes(self) -> Any:
        return self._gateway.optional_long(max(1, self._rows.nbytes))

    def reflectsFullyPushedDownFilters(self) -> bool:
        return True


def statistics(gateway: Gateway, size_bytes: int, row_count: int, columns: Any = None) -> Any:
    """Return the ``Statistics`` of what a scan reads; ``columns``: a ``java.util.Map`` of those of columns, by
    ``NamedReference``."""
    return gateway.classes.scans.statistics(size_bytes, row_count, columns)

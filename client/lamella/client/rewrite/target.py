"""The target of written blocks: a table, the Arrow schema of its files, the sort order, block sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from lamella.client.rewrite.sort import Order
from lamella.snapshot.cluster.extent import BlockTarget
from lamella.snapshot.errors import InvalidRequest, InvalidSchema, SchemaMismatch
from lamella.snapshot.manifest import ClusterStats, TableIndex
from lamella.snapshot.schema import Column, DataType, Schema
from lamella.snapshot.schema.arrow import cast_values, leaf_type
from lamella.snapshot.schema.text_lengths import fitted_text, has_text_length
from lamella.snapshot.storage import FsspecStore, TableLayout

#: Types that a written file describes in the same way as the file it was read from.
_WRITABLE: Final = frozenset(
    {
        *("boolean", "float32", "float64", "date", "string", "enum", "json", "binary", "fixed", "variant"),
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    }
)
_UNWRITABLE: Final = "Lamella's writer cannot write columns of type"


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of a block.

    Raises:
        InvalidSchema: a type that cannot be written (float16, uuid, bson, intervals, ...).
    """
    return pa.schema([_field(column) for column in schema.columns])


def _field(column: Column) -> pa.Field:
    return pa.field(column.name, _type(column), nullable=column.nullable, metadata={"PARQUET:field_id": str(column.id)})


def _type(column: Column) -> Any:
    dtype = column.dtype
    if dtype.name == "struct":
        return pa.struct([_field(part) for part in column.fields])
    if dtype.name == "list":
        return pa.list_(_field(column.fields[0]))
    if dtype.name == "map":
        key, value = column.fields
        return pa.map_(_field(key), _field(value))
    return _leaf(dtype, column.name)


def _leaf(dtype: DataType, name: str) -> Any:
    writable = (
        dtype.name in _WRITABLE
        or (dtype.name == "decimal" and dtype.precision <= 38)
        or dtype.name in ("timestamp", "timestamp_ntz", "time")
    )
    if not writable:
        raise InvalidSchema(f"{_UNWRITABLE} {dtype}: {name!r}", column=name)
    return leaf_type(dtype, name)


_SIZE: Final = BlockTarget()
#: The property that lists columns with Parquet bloom filters: ``id, user=0.05``.
BLOOM_FILTERS: Final = "write.bloom_filters"
_RATE: Final = 0.01
#: Bytes of rows (in Arrow) that one task sorts at a time.
MEMORY_BYTES: Final = 256 << 20


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A table's folder and schemas (the current one last), and how its blocks are written.

    ``cluster``: what blocks written in ``order`` record about it; None: the order is not that of the table's cluster
    key. ``bloom_filters``: columns (dotted paths) whose chunks get Parquet bloom filters, and their false positive
    rates. ``indexes``: those that get entries for the new blocks. ``memory_bytes``: approximate memory for rows per
    task.
    """

    location: str
    history: tuple[Schema, ...]
    order: Order = Order()
    cluster: ClusterStats | None = None
    block_rows: int = _SIZE.rows
    block_bytes: int = _SIZE.size_bytes
    memory_bytes: int = MEMORY_BYTES
    compression: str = "zstd"
    bloom_filters: dict[str, float] = {}
    indexes: tuple[TableIndex, ...] = ()
    storage_options: dict[str, dict[str, Any]] = {}

    def check(self) -> None:
        """Raise InvalidRequest, InvalidSchema or UnknownColumn for targets that can never be written."""
        if self.block_rows < 1 or self.block_bytes < 1 or self.memory_bytes < 1:
            raise InvalidRequest("a block has at least one row and one byte")
        arrow_schema(self.schema)
        self.order.check(self.schema)
        for path, rate in self.bloom_filters.items():
            leaf = self.schema.leaf(path)
            if leaf.repeated or leaf.dtype.name == "boolean" or not 0 < rate < 1:
                raise InvalidRequest(f"no bloom filter of {path!r} ({leaf.dtype}) with a rate of {rate}", column=path)

    @property
    def schema(self) -> Schema:
        """The schema that blocks are written with."""
        return self.history[-1]

    @property
    def written_for(self) -> ClusterStats | None:
        """What blocks record about the order of their rows; None until a curve is known."""
        return None if self.order.needs_curve else self.cluster

    @property
    def layout(self) -> TableLayout:
        """The table's folder."""
        return TableLayout(self.location)

    def store(self) -> FsspecStore:
        """Return a store for the current process."""
        return FsspecStore(self.storage_options)

    def rows_of(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        """Return batches, whose columns are the table's by position, as rows in the table's types.

        Raises:
            SchemaMismatch: a value does not fit its type, a text is too long, or a required column has nulls.
        """
        wanted = arrow_schema(self.schema)
        rows = pa.Table.from_batches(batches)
        try:
            arrays = [
                _fitted(rows.column(at), column, field)
                for at, (column, field) in enumerate(zip(self.schema.columns, wanted, strict=True))
            ]
        except pa.ArrowInvalid as error:
            raise SchemaMismatch(f"a value does not fit the table's type: {error}") from error
        for field, values in zip(wanted, arrays, strict=True):
            if not field.nullable and values.null_count:
                raise SchemaMismatch(f"column {field.name!r} is required and has nulls", column=field.name)
        return pa.table(arrays, schema=wanted)


def _fitted(values: pa.ChunkedArray, column: Column, field: pa.Field) -> pa.ChunkedArray:
    if values.type.equals(field.type, check_metadata=True) and not has_text_length(column):
        return values
    parts = [fitted_text(cast_values(part, field.type), column, column.name) for part in values.chunks]
    return pa.chunked_array(parts, field.type)


def bloom_filters_of(properties: Mapping[str, str]) -> dict[str, float]:
    """Return the filters that a table's properties set; raises InvalidRequest."""
    found = {}
    for part in properties.get(BLOOM_FILTERS, "").split(","):
        path, _, rate = part.partition("=")
        if path.strip():
            try:
                found[path.strip()] = float(rate) if rate.strip() else _RATE
            except ValueError as error:
                raise InvalidRequest(
                    f"{BLOOM_FILTERS}: {rate.strip()!r} is not a rate", property=BLOOM_FILTERS
                ) from error
    return found

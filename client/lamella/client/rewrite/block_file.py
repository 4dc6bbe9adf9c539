"""One block: rows in, a Parquet file in the store and its manifest entry out."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.snapshot.commit import iso
from lamella.snapshot.ids import Ids, unix_ms
from lamella.snapshot.layout import Store, TableLayout
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet import block_of, read_footer
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.sketch import Sketch, Sketcher, estimate, family_of
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.stats.measure import leaf_values, measure

#: Rows of a row group: smaller ones cost 25 % in size, larger ones only memory.
MAX_GROUP_ROWS: Final = 1 << 20
#: Rows of a page, as Spark itself writes them: the grain of page skipping.
MAX_PAGE_ROWS: Final = 20_000
_DICTIONARY_BYTES: Final = 1 << 20
_DELTA: Final = frozenset({"int8", "int16", "int32", "int64", "date", "timestamp", "timestamp_ntz"})
#: What this release of pyarrow can be told.
_SUPPORTED: Final = frozenset(inspect.signature(pq.ParquetWriter.__init__).parameters)


def write_block(
    store: Store,
    layout: TableLayout,
    ids: Ids,
    rows: pa.Table,
    schema: Schema,
    *,
    compression: str = "zstd",
    bloom_filters: Mapping[str, float] | None = None,
) -> Block:
    """Write ``rows`` as one file under a fresh name; the statistics are measured on the rows themselves.

    ``rows`` must have exactly the Arrow schema of the table. ``bloom_filters``: columns (dotted paths) that get one of
    Parquet's own, as large as their number of different values asks for, with that rate of false positives. The file is
    complete or absent, never half there.

    Raises:
        StoreError: the store refused it.
        SchemaMismatch: nulls in a column that the table requires.
    """
    sketches = sketches_of(rows, schema)
    measured = {
        column_id: msgspec.structs.replace(
            stats, distinct_of_values=estimate(sketches[column_id]) if column_id in sketches else None
        )
        for column_id, stats in measure(rows, schema, distinct=False).items()
    }
    data = encode(rows, schema, measured, compression=compression, bloom_filters=bloom_filters)
    stat = store.put(layout.block(ids.new()), data)
    block = block_of(read_footer(store, stat.location, stat), schema)
    stats = {
        column_id: _with_size(measured[column_id], of_footer) if column_id in measured else of_footer
        for column_id, of_footer in block.col_stats.items()
    }
    return msgspec.structs.replace(block, col_stats=stats, sketches=sketches, create_on=iso(unix_ms()))


def sketches_of(rows: pa.Table, schema: Schema) -> dict[int, Sketch]:
    """Sketches of the columns that have an order, by column id."""
    found = {}
    for leaf in schema.leaves():
        if not leaf.repeated and family_of(leaf.dtype) is not None:
            sketcher = Sketcher(leaf.dtype)
            sketcher.add(leaf_values(rows, leaf))
            sketch = sketcher.sketch()
            if sketch is not None:
                found[leaf.id] = sketch
    return found


def encode(
    rows: pa.Table,
    schema: Schema,
    measured: dict[int, ColumnStats],
    *,
    compression: str = "zstd",
    bloom_filters: Mapping[str, float] | None = None,
) -> bytes:
    """The Parquet file of ``rows``.

    Dictionaries only where values repeat: pyarrow keeps one on near-unique columns too, which makes files up to twice
    as large. Integers and times without one are delta-encoded, which Spark's vectorised reader reads.
    """
    dictionary, delta = _encodings(rows, schema, measured)
    options: dict[str, Any] = {"max_rows_per_page": MAX_PAGE_ROWS} if "max_rows_per_page" in _SUPPORTED else {}
    if bloom_filters and "bloom_filter_options" in _SUPPORTED:
        options["bloom_filter_options"] = {
            path: {"ndv": max(1, measured[schema.leaf(path).id].distinct_of_values or rows.num_rows), "fpp": rate}
            for path, rate in bloom_filters.items()
        }
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        compression=compression,
        row_group_size=MAX_GROUP_ROWS,
        use_dictionary=dictionary,
        column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED") or None,
        write_page_index=True,
        store_decimal_as_integer=True,
        store_schema=False,
        dictionary_pagesize_limit=_DICTIONARY_BYTES,
        **options,
    )
    return bytes(sink.getvalue())


def _encodings(rows: pa.Table, schema: Schema, measured: dict[int, ColumnStats]) -> tuple[list[str], list[str]]:
    """Paths of the leaves that get a dictionary, and of those that are delta-encoded."""
    nested = {column.name for column in schema.columns if column.fields}
    leaves = {leaf.path[0]: leaf for leaf in schema.leaves() if len(leaf.path) == 1}
    dictionary, delta = [], []
    for name in rows.column_names:
        if name in nested:
            dictionary += _leaf_paths(name, rows.schema.field(name).type)
            continue
        leaf = leaves[name]
        if _repeats(leaf, measured[leaf.id], rows.column(name)):
            dictionary.append(name)
        elif leaf.dtype.name in _DELTA:
            delta.append(name)
    return dictionary, delta


def _repeats(leaf: Leaf, stats: ColumnStats, values: pa.ChunkedArray) -> bool:
    distinct = stats.distinct_of_values or 0
    if leaf.dtype.name == "boolean":
        return False
    rows = len(values)
    width = values.nbytes / rows if rows else 0
    return distinct * 2 <= rows and distinct * width <= _DICTIONARY_BYTES


def _leaf_paths(path: str, dtype: Any) -> list[str]:
    if pa.types.is_struct(dtype):
        return [leaf for field in dtype for leaf in _leaf_paths(f"{path}.{field.name}", field.type)]
    if pa.types.is_map(dtype):
        return [
            *_leaf_paths(f"{path}.key_value.key", dtype.key_type),
            *_leaf_paths(f"{path}.key_value.value", dtype.item_type),
        ]
    if pa.types.is_list(dtype):
        return _leaf_paths(f"{path}.list.element", dtype.value_type)
    return [path]


def _with_size(measured: ColumnStats, of_footer: ColumnStats) -> ColumnStats:
    return msgspec.structs.replace(measured, in_memory_size=of_footer.in_memory_size)

"""Writes ordered rows as blocks: Parquet files of the target size, their manifest and skip index entries."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.client.rewrite.sort import Scratch
from lamella.client.rewrite.target import Target
from lamella.client.rewrite.variant_file import has_variants, leaf_paths, marked, stored_rows
from lamella.snapshot.commit import iso
from lamella.snapshot.expression.bound import leaves_in
from lamella.snapshot.ids import Ids, unix_ms
from lamella.snapshot.index.building import PART_BLOCKS
from lamella.snapshot.index.definition import term_in
from lamella.snapshot.index.part import Part, PartRef, pack, ref_of
from lamella.snapshot.index.registry import kind_named
from lamella.snapshot.manifest import Block, ClusterStats, TableIndex
from lamella.snapshot.manifest.block_key import block_keys
from lamella.snapshot.parquet import block_of, read_footer
from lamella.snapshot.row_checks import RowChecks
from lamella.snapshot.row_filter import RowTerms
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.schema.arrow import conform_leaf, without_hidden_nulls
from lamella.snapshot.sketch import Sketch, estimate, family_of
from lamella.snapshot.sketch.sketcher import Sketcher
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.stats.measure import find_distinct, leaf_values, measure
from lamella.snapshot.storage import Store, TableLayout
from lamella.snapshot.wire import PartSent

#: Rows per row group: smaller groups make files 25 % larger, larger ones only need more memory.
MAX_GROUP_ROWS: Final = 1 << 20
#: Rows per page, as Spark writes them: the granularity of page skipping.
MAX_PAGE_ROWS: Final = 20_000
_DICTIONARY_BYTES: Final = 1 << 20
_NONE: Final[Mapping[Any, Any]] = {}
_DELTA: Final = frozenset({"int8", "int16", "int32", "int64", "date", "timestamp", "timestamp_ntz"})
#: Options that this release of pyarrow supports.
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
    """Write ``rows`` as one file under a new name; statistics are computed from the rows themselves.

    ``rows`` must have exactly the Arrow schema of the table. ``bloom_filters``: columns (dotted paths) that get a
    Parquet bloom filter, sized for their number of distinct values, and its false positive rate. The file is written
    completely or not at all.

    Raises:
        StoreError: the store refused the file.
        SchemaMismatch: nulls in a required column or field.
    """
    RowChecks(schema).check(rows)
    distinct_values, encoded = _repeated_values(rows, schema)
    sketches = sketches_of(rows, schema, distinct_values)
    measured = {
        column_id: msgspec.structs.replace(
            stats, distinct_of_values=estimate(sketches[column_id]) if column_id in sketches else None
        )
        for column_id, stats in measure(rows, schema, distinct=False, distinct_values=distinct_values).items()
    }
    data = encode(rows, schema, measured, encoded, compression=compression, bloom_filters=bloom_filters)
    stat = store.put(layout.block(ids.new()), data)
    block = block_of(read_footer(store, stat.location, stat), schema)
    stats = {
        column_id: _with_size(measured[column_id], of_footer) if column_id in measured else of_footer
        for column_id, of_footer in block.col_stats.items()
    }
    return msgspec.structs.replace(block, col_stats=stats, sketches=sketches, create_on=iso(unix_ms()))


def _repeated_values(rows: pa.Table, schema: Schema) -> tuple[dict[int, pa.Array], dict[str, pa.ChunkedArray]]:
    """Return the distinct values of leaves whose values repeat, by column id; and columns of repeated text or bytes as
    dictionary arrays, by name.
    """
    distinct_values: dict[int, pa.Array] = {}
    encoded: dict[str, pa.ChunkedArray] = {}
    for leaf in schema.leaves():
        if leaf.repeated:
            continue
        found, dictionaries = find_distinct(leaf, leaf_values(rows, leaf))
        if found is not None:
            distinct_values[leaf.id] = found
        if dictionaries is not None and len(leaf.path) == 1:
            encoded[leaf.path[0]] = dictionaries
    return distinct_values, encoded


def sketches_of(rows: pa.Table, schema: Schema, distinct_values: Mapping[int, pa.Array] = _NONE) -> dict[int, Sketch]:
    """Return sketches of the ordered columns, by column id; ``distinct_values``: those of some columns, if known."""
    found = {}
    for leaf in schema.leaves():
        if not leaf.repeated and family_of(leaf.dtype) is not None:
            sketcher = Sketcher(leaf.dtype)
            sketcher.add(distinct_values[leaf.id] if leaf.id in distinct_values else leaf_values(rows, leaf))
            sketch = sketcher.sketch()
            if sketch is not None:
                found[leaf.id] = sketch
    return found


def encode(
    rows: pa.Table,
    schema: Schema,
    measured: dict[int, ColumnStats],
    encoded: Mapping[str, pa.ChunkedArray] = _NONE,
    *,
    compression: str = "zstd",
    bloom_filters: Mapping[str, float] | None = None,
) -> bytes:
    """Return ``rows`` as a Parquet file. ``encoded``: some columns as dictionary arrays, too.

    Uses dictionaries only where values repeat: pyarrow also keeps them for near-unique columns, which makes files up to
    twice as large. Integers and times without a dictionary are delta-encoded, which Spark's vectorised reader supports.
    """
    variants = has_variants(schema.columns)
    if variants:
        rows = stored_rows(rows, schema)
    dictionary, delta = _encodings(rows, schema, measured)
    options: dict[str, Any] = {"max_rows_per_page": MAX_PAGE_ROWS} if "max_rows_per_page" in _SUPPORTED else {}
    if bloom_filters and "bloom_filter_options" in _SUPPORTED:
        options["bloom_filter_options"] = {
            path: {"ndv": max(1, measured[schema.leaf(path).id].distinct_of_values or rows.num_rows), "fpp": rate}
            for path, rate in bloom_filters.items()
        }
    nested = [at for at, field in enumerate(rows.schema) if pa.types.is_nested(field.type)]
    for at in nested:
        field = rows.schema.field(at)
        chunks = [without_hidden_nulls(values) for values in rows.column(at).chunks]
        rows = rows.set_column(at, field, pa.chunked_array(chunks, field.type))
    for name in encoded.keys() & set(dictionary):  # their values need not be looked up again
        at, field = rows.schema.get_field_index(name), rows.schema.field(name)
        rows = rows.set_column(at, field.with_type(encoded[name].type), encoded[name])
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
    data = bytes(sink.getvalue())
    return marked(data, schema) if variants else data


def _encodings(rows: pa.Table, schema: Schema, measured: dict[int, ColumnStats]) -> tuple[list[str], list[str]]:
    """Return the paths of the leaves with a dictionary, and of those that are delta-encoded."""
    nested = {column.name for column in schema.columns if column.dtype.is_nested}
    leaves = {leaf.path[0]: leaf for leaf in schema.leaves() if len(leaf.path) == 1}
    dictionary, delta = [], []
    for name in rows.column_names:
        if name in nested:
            dictionary += _leaf_paths(name, rows.schema.field(name).type)
            continue
        leaf = leaves[name]
        if leaf.dtype.name == "variant":
            dictionary += leaf_paths(name, rows.schema.field(name).type)
        elif _repeats(leaf, measured[leaf.id], rows.column(name)):
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


# Skip index entries for new blocks, built while their rows are in memory.
#
# Each task writes a small part to scratch space; the committing process joins them (``join_parts``), so that a query
# opens one part for many blocks.

#: Bytes of small parts that are joined at a time, in memory.
_JOINED_BYTES: Final = 256 << 20


class ScratchPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part in scratch space; ``keys``: the concatenated 16-byte keys of its blocks."""

    index_id: str
    ref: PartRef
    keys: bytes


class _History(msgspec.Struct, frozen=True):
    history: tuple[Schema, ...]


class IndexEntries:
    """One index's entries for the blocks of one task."""

    def __init__(self, index: TableIndex, target: Target) -> None:
        self._index = index
        self._term = term_in(index, _History(target.history))
        self._builder = None
        if self._term is not None:  # None: a column of the index was dropped, so no filter can use it
            self._builder = kind_named(index.kind).builder(self._term.dtype, index.options)
        self._done: list[Block] = []

    def add(self, block: Block, rows: pa.Table) -> None:
        """Add the rows of a written block. A block for which the expression fails gets no entry and is always read."""
        if self._term is None or self._builder is None:
            return
        columns = {
            leaf.id: conform_leaf(leaf_values(rows, leaf).combine_chunks(), leaf.dtype, leaf.name)
            for leaf in leaves_in(self._term)
        }
        vector = RowTerms(columns, rows.num_rows).vector(self._term)
        if vector.failed is not None and vector.failed.any():
            return
        self._builder.add(vector)
        self._builder.end_block()
        self._done.append(block)

    def part(self, store: Store, scratch: Scratch, ids: Ids) -> ScratchPart | None:
        """Write the entries to scratch space; None when there are none."""
        if self._term is None or self._builder is None or not self._done:
            return None
        index = self._index
        sections, facts = self._builder.sections()
        data, tail = pack(
            index.kind, str(self._term.dtype), len(self._done), sections, options=index.options, facts=facts
        )
        ref = ref_of(scratch.location(ids, "part"), data, tail, len(self._done))
        store.put(ref.location, data)
        return ScratchPart(index_id=index.index_id, ref=ref, keys=_bytes(block_keys(self._done)))


def join_parts(store: Store, layout: TableLayout, ids: Ids, parts: Iterable[ScratchPart]) -> dict[str, list[PartSent]]:
    """Join parts from scratch space into few large parts in the table's folder, by index."""
    found: dict[str, list[PartSent]] = {}
    by_index: dict[str, list[ScratchPart]] = {}
    for part in parts:
        by_index.setdefault(part.index_id, []).append(part)
    for index_id, mine in by_index.items():
        found[index_id] = [_join_batches(store, layout, ids, some) for some in _batches(mine)]
    return found


def _batches(parts: Sequence[ScratchPart]) -> Iterator[list[ScratchPart]]:
    some: list[ScratchPart] = []
    blocks = size_bytes = 0
    for part in parts:
        full = blocks + part.ref.block_count > PART_BLOCKS or size_bytes + part.ref.size_bytes > _JOINED_BYTES
        if some and full:
            yield some
            some, blocks, size_bytes = [], 0, 0
        some.append(part)
        blocks += part.ref.block_count
        size_bytes += part.ref.size_bytes
    if some:
        yield some


def _join_batches(store: Store, layout: TableLayout, ids: Ids, parts: Sequence[ScratchPart]) -> PartSent:
    opened = [(_open(store, part.ref), np.arange(part.ref.block_count, dtype=np.int64)) for part in parts]
    header = opened[0][0].header
    sections, facts = kind_named(header.kind).taken(opened)
    count = sum(part.ref.block_count for part in parts)
    data, tail = pack(header.kind, header.dtype, count, sections, options=header.options, facts=facts)
    ref = ref_of(layout.index_part(ids.new()), data, tail, count)
    store.put(ref.location, data)
    return PartSent(
        location=ref.location,
        size_bytes=ref.size_bytes,
        tail_bytes=ref.tail_bytes,
        tail_sha256=ref.tail_sha256,
        keys=b"".join(part.keys for part in parts),
    )


def _open(store: Store, ref: PartRef) -> Part:
    data = store.read(ref.location)
    return Part(ref, lambda ranges: [data[start : start + length] for start, length in ranges])


def _bytes(keys: Any) -> bytes:
    return np.ascontiguousarray(keys).astype("<u8").tobytes()


_SAMPLE_ROWS: Final = 20_000
_SAMPLE_SLICES: Final = 4


class WrittenBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks in the table's folder that are not in a snapshot yet, and their index entries."""

    blocks: tuple[Block, ...] = ()
    parts: tuple[ScratchPart, ...] = ()

    @property
    def row_count(self) -> int:
        """Total number of rows."""
        return sum(block.row_count for block in self.blocks)

    @property
    def size_bytes(self) -> int:
        """Total bytes of the files."""
        return sum(block.file_size for block in self.blocks)


class BlockWriter:
    """Writes blocks one after another, for one task."""

    def __init__(self, target: Target, store: Store, scratch: Scratch, ids: Ids) -> None:
        self._target = target
        self._store = store
        self._scratch = scratch
        self._ids = ids
        self._entries = [IndexEntries(index, target) for index in target.indexes]
        self._blocks: list[Block] = []

    def write(self, rows: pa.Table, wanted: int | None = None) -> None:
        """Write all rows, split evenly so that no small block is left.

        ``wanted``: rows per block, when that is known for the target size.
        """
        if rows.num_rows == 0:
            return
        size = block_rows(rows, self._target) if wanted is None else wanted
        count = max(1, round(rows.num_rows / size))
        for part in _evenly(rows, count):
            self.write_one(part, self._target.written_for)

    def write_whole(self, rows: pa.Table) -> pa.Table:
        """Write as many full blocks as there are; returns the remaining rows, fewer than a block's."""
        size = block_rows(rows, self._target) if rows.num_rows else 1
        whole = rows.num_rows // size * size
        for start in range(0, whole, size):
            self.write_one(rows.slice(start, size), self._target.written_for)
        # Batches before the one in which the rest begins can be freed.
        return rows.slice(whole)

    def finish(self) -> WrittenBlocks:
        """Return what was written; index entries are put into scratch space."""
        parts = [entries.part(self._store, self._scratch, self._ids) for entries in self._entries]
        return WrittenBlocks(blocks=tuple(self._blocks), parts=tuple(part for part in parts if part is not None))

    def write_one(self, rows: pa.Table, cluster: ClusterStats | None) -> None:
        """Write one block of any number of rows; ``cluster``: its description of their order."""
        target = self._target
        block = write_block(
            self._store,
            target.layout,
            self._ids,
            rows,
            target.schema,
            compression=target.compression,
            bloom_filters=target.bloom_filters,
        )
        block = msgspec.structs.replace(block, cluster_stats=cluster, schema_id=target.schema.schema_id)
        self._blocks.append(block)
        for entries in self._entries:
            entries.add(block, rows)


def block_rows(rows: pa.Table, target: Target) -> int:
    """Return the number of rows that make a block of the target size, estimated from the file size of a sample."""
    per_slice = _SAMPLE_ROWS // _SAMPLE_SLICES
    if rows.num_rows <= per_slice:
        return target.block_rows
    starts = [(rows.num_rows - per_slice) * at // (_SAMPLE_SLICES - 1) for at in range(_SAMPLE_SLICES)]
    sample = pa.concat_tables([rows.slice(start, per_slice) for start in starts])
    measured = measure(sample, target.schema)
    size_bytes = len(encode(sample, target.schema, measured, compression=target.compression))
    return max(1, min(target.block_rows, target.block_bytes * int(sample.num_rows) // size_bytes))


def _evenly(rows: pa.Table, count: int) -> Iterator[pa.Table]:
    edges = [rows.num_rows * at // count for at in range(count + 1)]
    for start, end in itertools.pairwise(edges):
        yield rows.slice(start, end - start)

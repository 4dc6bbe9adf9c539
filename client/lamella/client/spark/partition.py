"""What one Spark task does when it writes: sort its rows, cut them into blocks, write those, report them.

Runs in Spark's Python workers, through ``mapInArrow``. Only the rows that a successful attempt reports are committed,
so a retry or a speculative twin leaves nothing but unreferenced files.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lamella.client.spark.arrow_types import arrow_schema
from lamella.client.spark.block_file import encode, write_block
from lamella.snapshot.errors import SchemaMismatch
from lamella.snapshot.ids import Ids
from lamella.snapshot.layout import FsspecStore, TableLayout
from lamella.snapshot.schema import Schema
from lamella.snapshot.stats.measure import measure

#: The columns of what a task reports, in Spark's spelling.
REPORT: Final = "block string"
_SAMPLE_ROWS: Final = 20_000
_SAMPLE_SLICES: Final = 4


class WritePartition(msgspec.Struct, frozen=True, kw_only=True):
    """A function from a partition's batches to one row a block: the block's manifest entry as JSON.

    The batches have the table's columns in its order, whatever their names. ``location``: the table's folder.
    ``sort_by``: dotted paths, ascending, nulls last. A block ends at ``block_rows`` rows or about ``block_bytes`` bytes
    of file, whichever comes first, and a partition is cut evenly: no small block is left at its end. At most about
    ``memory_bytes`` of rows are held; a larger partition is sorted and cut in several runs, whose blocks may overlap.
    """

    location: str
    schema: Schema
    sort_by: tuple[str, ...]
    block_rows: int
    block_bytes: int
    memory_bytes: int = 512 << 20
    compression: str = "zstd"
    storage_options: dict[str, dict[str, Any]] = {}

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = _Writer(self)
        for batch in batches:
            yield from writer.add(batch)
        yield from writer.finish()


class _Writer:
    def __init__(self, spec: WritePartition) -> None:
        self._spec = spec
        self._target = arrow_schema(spec.schema)
        self._store = FsspecStore(spec.storage_options)
        self._layout = TableLayout(spec.location)
        self._ids = Ids()
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if batch.num_rows == 0:
            return
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= self._spec.memory_bytes:
            rows = self._take()
            size = self._rows_per_block(rows)
            whole = rows.num_rows // size * size
            for start in range(0, whole, size):
                yield self._block(rows.slice(start, size))
            if whole == 0:
                yield self._block(rows)
            elif whole < rows.num_rows:
                # A copy, so that the written rows are freed.
                rest = rows.slice(whole).take(pa.array(range(rows.num_rows - whole), pa.int64()))
                self._pending = rest.to_batches()
                self._pending_bytes = rest.nbytes

    def finish(self) -> Iterator[pa.RecordBatch]:
        if not self._pending:
            return
        rows = self._take()
        blocks = max(1, round(rows.num_rows / self._rows_per_block(rows)))
        edges = [rows.num_rows * at // blocks for at in range(blocks + 1)]
        for start, end in itertools.pairwise(edges):
            yield self._block(rows.slice(start, end - start))

    def _take(self) -> pa.Table:
        """The pending rows in the table's types, sorted."""
        rows = self._cast(pa.Table.from_batches(self._pending))
        self._pending, self._pending_bytes = [], 0
        if not self._spec.sort_by:
            return rows
        keys = {}
        for at, path in enumerate(self._spec.sort_by):
            names = self._spec.schema.leaf(path).path
            values = rows.column(names[0])
            for name in names[1:]:
                values = pc.struct_field(values, name)
            keys[f"k{at}"] = values
        order = [(name, "ascending") for name in keys]
        return rows.take(pc.sort_indices(pa.table(keys), sort_keys=order))

    def _cast(self, rows: pa.Table) -> pa.Table:
        try:
            arrays = [rows.column(at).cast(field.type, safe=True) for at, field in enumerate(self._target)]
        except pa.ArrowInvalid as error:
            raise SchemaMismatch(f"a value does not fit the table's type: {error}") from error
        for field, values in zip(self._target, arrays, strict=True):
            if not field.nullable and values.null_count:
                raise SchemaMismatch(f"column {field.name!r} is required and has nulls", column=field.name)
        return pa.table(arrays, schema=self._target)

    def _rows_per_block(self, rows: pa.Table) -> int:
        """Rows that make a block of the wanted size, by the bytes that a sample of them takes as a file."""
        spec = self._spec
        per_slice = _SAMPLE_ROWS // _SAMPLE_SLICES
        if rows.num_rows <= per_slice:
            return spec.block_rows
        starts = [(rows.num_rows - per_slice) * at // (_SAMPLE_SLICES - 1) for at in range(_SAMPLE_SLICES)]
        sample = pa.concat_tables([rows.slice(start, per_slice) for start in starts])
        size_bytes = len(encode(sample, spec.schema, measure(sample, spec.schema), compression=spec.compression))
        of_size = spec.block_bytes * int(sample.num_rows) // size_bytes
        return max(1, min(spec.block_rows, of_size))

    def _block(self, rows: pa.Table) -> pa.RecordBatch:
        spec = self._spec
        block = write_block(self._store, self._layout, self._ids, rows, spec.schema, compression=spec.compression)
        text = msgspec.json.encode(block).decode("utf-8")
        return pa.RecordBatch.from_pydict({"block": [text]})

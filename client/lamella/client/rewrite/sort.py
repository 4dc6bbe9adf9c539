"""External sort: the order of a cluster key, sorted runs in scratch space, and ranges of runs that are merged
separately.

Curves through several columns are implemented in :mod:`lamella.snapshot.cluster.curve`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.cluster.curve import CurveKind, bits_for, positions, quantiles, to_arrow, unpacked
from lamella.snapshot.cluster.key import key_terms, key_values
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression.bound import BoundTerm
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.schema import Schema
from lamella.snapshot.storage import Store


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """A space-filling curve, with the quantiles of each of its columns (:class:`Quantiles`, packed)."""

    kind: CurveKind
    quantiles: tuple[bytes, ...]

    @classmethod
    def of(cls, kind: CurveKind, terms: Sequence[BoundTerm], sample: pa.Table) -> Curve:
        """Return a curve fitted to a sample, whose columns are those of ``terms`` in order."""
        bits = bits_for(len(terms))
        packed = (
            quantiles(column, term.dtype, bits).packed() for term, column in zip(terms, sample.columns, strict=True)
        )
        return cls(kind=kind, quantiles=tuple(packed))


def curve_positions(curve: Curve, columns: Sequence[Any]) -> pa.Array:
    """Return the position of each row, as an array that sorts along the curve."""
    found = [unpacked(data) for data in curve.quantiles]
    points = np.column_stack([one.numbers(values) for one, values in zip(found, columns, strict=True)])
    return to_arrow(positions(curve.kind, points, bits_for(len(columns))))


# Rows in the order of a cluster key, and cuts of that order.
#
# The order is Spark's ascending order with nulls last: NaN is above all numbers, -0.0 equals 0.0, text is compared by
# its UTF-8 bytes. Arrow's sort, which orders every type in this way, does all comparisons; this module compares no
# values itself.

_MARK: Final = "mark"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The sort order of rows: ``keys``, dotted paths of columns and expressions (:mod:`lamella.snapshot.cluster.key`),
    compared in order or along a curve of that ``kind``.

    ``curve``: the curve, once it is fitted to a sample; until then rows are sorted column by column. No keys: rows keep
    their order.
    """

    keys: tuple[str, ...] = ()
    kind: ClusterKind = "linear"
    curve: Curve | None = None

    def check(self, schema: Schema) -> None:
        """Raise UnknownColumn or InvalidFilter, or InvalidRequest for a term that rows cannot be sorted by."""
        for key, term in zip(self.keys, key_terms(schema, self.keys), strict=True):
            if term.dtype.name == "float16":
                raise InvalidRequest(f"rows cannot be sorted by {key!r}, which is {term.dtype}", column=key)

    @property
    def needs_curve(self) -> bool:
        """Whether a sample of rows is still needed."""
        return self.kind != "linear" and bool(self.keys) and self.curve is None

    def along(self, sample: pa.Table, schema: Schema) -> Order:
        """Return this order with a curve fitted to ``sample``, key columns as :meth:`columns` returns them."""
        if self.kind == "linear":
            return self
        curve = Curve.of(self.kind, key_terms(schema, self.keys), sample)
        return Order(keys=self.keys, kind=self.kind, curve=curve)

    def columns(self, rows: pa.Table, schema: Schema) -> pa.Table:
        """Return the key columns of rows, in the order of the key."""
        terms = key_terms(schema, self.keys)
        return pa.table({f"k{at}": key_values(rows, term) for at, term in enumerate(terms)})

    def key_rows(self, rows: pa.Table, schema: Schema) -> pa.Table:
        """Return the columns that rows are compared by, in order."""
        if not self.keys:
            return pa.table({"k": pa.nulls(rows.num_rows, pa.int8())})
        columns = self.columns(rows, schema)
        if self.curve is None:
            return columns
        return columns.add_column(0, "place", curve_positions(self.curve, columns.columns))


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """A position in the order of all rows of some runs: before row number ``row`` of run number ``run``.

    ``key``: that row's key, a table of one row as an Arrow stream. Rows with equal keys are ordered by run, then by
    row.
    """

    key: bytes
    run: int
    row: int


def in_order(rows: pa.Table, keys: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows sorted by their keys, and the sorted keys; the sort is stable."""
    indices = _sort_indices(keys)
    return rows.take(indices), keys.take(indices)


def rows_before(keys: pa.Table, cut: Cut, *, run: int, first_row: int) -> int:
    """Return how many rows of a part of one run come before a cut; ``keys``: their sorted keys.

    ``first_row``: the number of the part's first row in the run.
    """
    low, high = _equal(keys, from_stream(cut.key))
    if run != cut.run:
        return high if run < cut.run else low
    return min(max(cut.row - first_row, low), high)


def to_stream(rows: pa.Table) -> bytes:
    """Return a small table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def from_stream(data: bytes) -> pa.Table:
    """Return the table of :func:`to_stream`."""
    return pa.ipc.open_stream(data).read_all()


def _sort_indices(keys: pa.Table) -> Any:
    return pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])


def _equal(keys: pa.Table, key: pa.Table) -> tuple[int, int]:
    """Return where sorted keys stop being below one key, and where they start being above it."""
    count = keys.num_rows
    key = key.cast(keys.schema)
    marks = [pa.array([0], pa.int8()), pa.array([1], pa.int8()).take(pa.array([0] * count)), pa.array([2], pa.int8())]
    marked = pa.concat_tables([key, keys, key]).append_column(_MARK, pa.chunked_array(marks))
    order = _sort_indices(marked)
    return pc.index(order, 0).as_py(), pc.index(order, count + 1).as_py() - 1


# Sorted runs: rows in scratch space between the two passes of an external sort.
#
# A run is one object: Arrow streams one after another, a *chunk* each, so that any sequence of chunks is one range
# read.

#: Maximum rows and approximate maximum bytes of a chunk. At the ends of a range up to one chunk is read unnecessarily.
CHUNK_ROWS: Final = 16_384
_CHUNK_BYTES: Final = 2 << 20
_MIN_ROWS: Final = 256
#: Minimum number of chunks of a run that is not tiny, since ranges can be cut only where a chunk begins.
_MIN_CHUNKS: Final = 32
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Some rows of a run: how many, and their byte range in the object."""

    row_count: int
    offset: int
    size_bytes: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Sorted rows. ``first_keys``: the key of each chunk's first row, a table as an Arrow stream.

    ``memory_bytes``: size of the rows in Arrow. ``block_rows``: number of rows that make a block of the target size.
    """

    location: str
    chunks: tuple[Chunk, ...]
    first_keys: bytes
    memory_bytes: int
    block_rows: int

    @property
    def row_count(self) -> int:
        """Total number of rows."""
        return sum(chunk.row_count for chunk in self.chunks)


class Scratch(msgspec.Struct, frozen=True):
    """A folder for intermediate data of a job."""

    folder: str

    def location(self, ids: Ids, ending: str) -> str:
        """Return a new name, in the form that vacuum recognises."""
        return f"{self.folder}/{ids.new()}_v1.{ending}"


def write_run(store: Store, scratch: Scratch, ids: Ids, rows: pa.Table, keys: pa.Table, *, block_rows: int) -> Run:
    """Write sorted rows, with their keys in the same order; raises StoreError."""
    count = rows.num_rows
    size = max(1, rows.nbytes // max(count, 1))
    step = max(_MIN_ROWS, min(CHUNK_ROWS, _CHUNK_BYTES // size, -(-count // _MIN_CHUNKS)))
    sink = pa.BufferOutputStream()
    chunks: list[Chunk] = []
    starts = list(range(0, count, step))
    for start in starts:
        before = sink.tell()
        part = rows.slice(start, step)
        with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS) as writer:
            writer.write_table(part.combine_chunks())
        chunks.append(Chunk(part.num_rows, before, sink.tell() - before))
    location = scratch.location(ids, "run")
    store.put(location, sink.getvalue().to_pybytes())
    return Run(
        location=location,
        chunks=tuple(chunks),
        first_keys=to_stream(keys.take(pa.array(starts, pa.int64())).combine_chunks()),
        memory_bytes=rows.nbytes,
        block_rows=block_rows,
    )


def read_chunks(store: Store, location: str, chunks: Sequence[Chunk]) -> Iterator[pa.Table]:
    """Read the rows of adjacent chunks, one chunk at a time, with one range read; raises ObjectNotFound, StoreError."""
    start = chunks[0].offset
    length = chunks[-1].offset + chunks[-1].size_bytes - start
    data = pa.py_buffer(store.read_range(location, start, length))
    for chunk in chunks:
        yield pa.ipc.open_stream(data.slice(chunk.offset - start, chunk.size_bytes)).read_all()


# Cutting sorted runs into ranges that can be merged independently, on any machine.
#
# Only the keys of the chunks' first rows are known. They serve as quantiles: the number of rows between two neighbours
# is less than one chunk per run. Every row is in exactly one range, including rows with equal keys, since ties are
# ordered by run and row.

Numbers = npt.NDArray[np.int64]


class RunSlice(msgspec.Struct, frozen=True, kw_only=True):
    """Adjacent chunks of run number ``run``; the first begins with the run's row ``first_row``."""

    run: int
    location: str
    first_row: int
    chunks: tuple[Chunk, ...]


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """The rows from ``low`` up to and excluding ``high`` (None: unbounded); the slices contain them, and some other
    rows."""

    low: Cut | None
    high: Cut | None
    stretches: tuple[RunSlice, ...]
    row_count: int


def cut_ranges(runs: Sequence[Run], range_rows: int) -> list[Range]:
    """Return ranges of about ``range_rows`` rows each, in order; ``row_count`` is an estimate."""
    if not runs:
        return []
    total = sum(run.row_count for run in runs)
    keys = pa.concat_tables([from_stream(run.first_keys) for run in runs])
    owner = np.repeat(np.arange(len(runs)), [len(run.chunks) for run in runs])
    weight = np.array([chunk.row_count for run in runs for chunk in run.chunks], dtype=np.int64)
    first_row = np.concatenate([_starts(run) for run in runs])
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names]).to_numpy()
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    wanted = max(1, round(total / max(range_rows, 1)))
    # On average half of a chunk's rows come before the first row of the next chunk in the order, whichever run has it.
    passed = np.cumsum(weight[order]) - weight[order]
    targets = np.arange(1, wanted) * total // wanted
    edges = np.unique(np.searchsorted(passed, targets)).tolist()
    edges = [edge for edge in edges if 0 < edge < len(order)]
    cuts = [_cut(keys, int(order[edge]), owner, first_row) for edge in edges]
    bounds = [0, *edges, len(order)]
    found = []
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        low = cuts[number - 1] if number else None
        high = cuts[number] if number < len(cuts) else None
        stretches = tuple(_run_slices(runs, ranks, start, stop))
        found.append(Range(low=low, high=high, stretches=stretches, row_count=int(weight[order[start:stop]].sum())))
    return found


def _starts(run: Run) -> Numbers:
    counts = np.array([chunk.row_count for chunk in run.chunks], dtype=np.int64)
    return np.cumsum(counts) - counts


def _cut(keys: pa.Table, at: int, owner: Numbers, first_row: Numbers) -> Cut:
    return Cut(key=to_stream(keys.slice(at, 1).combine_chunks()), run=int(owner[at]), row=int(first_row[at]))


def _run_slices(runs: Sequence[Run], ranks: Numbers, start: int, stop: int) -> list[RunSlice]:
    """Return the chunks that may have rows between the positions ``start`` and ``stop`` in the order of first rows."""
    found = []
    at = 0
    for number, run in enumerate(runs):
        mine = ranks[at : at + len(run.chunks)]  # ascending, since the run is sorted
        at += len(run.chunks)
        first = max(0, int(np.searchsorted(mine, start, side="right")) - 1)
        last = int(np.searchsorted(mine, stop, side="left"))
        if first < last:
            found.append(
                RunSlice(
                    run=number,
                    location=run.location,
                    first_row=int(_starts(run)[first]),
                    chunks=run.chunks[first:last],
                )
            )
    return found

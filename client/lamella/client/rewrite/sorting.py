"""Rows in the order of a cluster key, and where such an order is cut.

The order is Spark's ascending one with nulls at the end: NaN above all numbers, -0.0 equal to 0.0, text by its UTF-8
bytes. All comparing is done by Arrow's sort, which does the same for every type; nothing here compares values itself.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lamella.client.rewrite.curve_keys import Curve, curve_positions
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.schema import Schema
from lamella.snapshot.stats.measure import leaf_values

_MARK: Final = "mark"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What rows are sorted by: ``keys``, dotted paths of columns, one after another or along a curve of that ``kind``.

    ``curve``: the curve, once a sample of rows has said where values stand; until then rows are sorted one column after
    another. No keys: rows keep the order that they have.
    """

    keys: tuple[str, ...] = ()
    kind: ClusterKind = "linear"
    curve: Curve | None = None

    def check(self, schema: Schema) -> None:
        """Raises UnknownColumn, or InvalidRequest for a column that has no order here."""
        for key in self.keys:
            leaf = schema.leaf(key)
            if leaf.dtype.order is None or leaf.repeated or leaf.dtype.name == "float16":
                raise InvalidRequest(f"rows cannot be sorted by {key!r}, which is {leaf.dtype}", column=key)

    @property
    def needs_curve(self) -> bool:
        """Whether a sample of rows is needed yet."""
        return self.kind != "linear" and bool(self.keys) and self.curve is None

    def along(self, sample: pa.Table, schema: Schema) -> Order:
        """The same along its curve; ``sample``: key columns of rows, as :meth:`columns` gives them."""
        if self.kind == "linear":
            return self
        leaves = [schema.leaf(key) for key in self.keys]
        return Order(keys=self.keys, kind=self.kind, curve=Curve.of(self.kind, leaves, sample))

    def columns(self, rows: pa.Table, schema: Schema) -> pa.Table:
        """The key columns of rows, in the key's order."""
        return pa.table({f"k{at}": leaf_values(rows, schema.leaf(key)) for at, key in enumerate(self.keys)})

    def key_rows(self, rows: pa.Table, schema: Schema) -> pa.Table:
        """The columns that rows are compared by, in that order."""
        if not self.keys:
            return pa.table({"k": pa.nulls(rows.num_rows, pa.int8())})
        columns = self.columns(rows, schema)
        if self.curve is None:
            return columns
        return columns.add_column(0, "place", curve_positions(self.curve, columns.columns))


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the order of all rows of some runs: before the row ``row`` of run number ``run``.

    ``key``: that row's key, a table of one row as an Arrow stream. Rows of one key come by run, and then as they stand.
    """

    key: bytes
    run: int
    row: int


def in_order(rows: pa.Table, keys: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows sorted by their keys, and these; rows of equal keys stay as they stand."""
    places = _places(keys)
    return rows.take(places), keys.take(places)


def rows_before(keys: pa.Table, cut: Cut, *, run: int, first_row: int) -> int:
    """How many rows of a stretch of one run come before a cut; ``keys`` are theirs, sorted.

    ``first_row``: the number of the first of them in the run.
    """
    low, high = _equal(keys, from_stream(cut.key))
    if run != cut.run:
        return high if run < cut.run else low
    return min(max(cut.row - first_row, low), high)


def to_stream(rows: pa.Table) -> bytes:
    """A small table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def from_stream(data: bytes) -> pa.Table:
    """The table of :func:`to_stream`."""
    return pa.ipc.open_stream(data).read_all()


def _places(keys: pa.Table) -> Any:
    return pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])


def _equal(keys: pa.Table, key: pa.Table) -> tuple[int, int]:
    """From which row on sorted keys are not below one key, and from which on they are above it."""
    count = keys.num_rows
    key = key.cast(keys.schema)
    marks = [pa.array([0], pa.int8()), pa.array([1], pa.int8()).take(pa.array([0] * count)), pa.array([2], pa.int8())]
    marked = pa.concat_tables([key, keys, key]).append_column(_MARK, pa.chunked_array(marks))
    order = _places(marked)
    return pc.index(order, 0).as_py(), pc.index(order, count + 1).as_py() - 1

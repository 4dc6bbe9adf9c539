"""Which columns a reader may skip by inside the blocks of an answer."""

from __future__ import annotations

import pytest

from lamella.snapshot.errors import UnknownColumn
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import Bound, ColumnStats
from lamella.snapshot.storage import FsspecStore, TableLayout
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest

SCHEMA = Schema.assign(
    [
        Column(name="a", type="int64"),
        Column(name="x", type="float64"),
        Column(name="l", type="list", fields=(Column(name="element", type="int64"),)),
    ]
)
COLUMNS = ("a", "x")
A = ColumnStats(min=Bound(int64=1), max=Bound(int64=9), null_count=0)
X = ColumnStats(min=Bound(float64=1.0), max=Bound(float64=9.0), null_count=1)
NULLS = ColumnStats(null_count=4)
TABLE = "7d8b6f0e-0000-7000-8000-000000000001"


def believed(
    *blocks: tuple[str, dict[int, ColumnStats]], columns: tuple[str, ...] = COLUMNS, sql: str = "true"
) -> object:
    """The answer's ``reader_columns`` over blocks at these places; ``own/`` is the folder of Lamella's own blocks."""
    warehouse = Warehouse(FsspecStore(), "memory://believed", segment_blocks=2)
    own = TableLayout(warehouse.table_location(TABLE)).blocks + "/"
    made = [
        Block(location=location.replace("own/", own), row_count=4, file_size=100, col_stats=stats)
        for location, stats in blocks
    ]
    pointer = warehouse.create(TABLE, SCHEMA, now_ms=1)
    pointer = warehouse.commit(pointer, added=warehouse.prepare(TABLE, SCHEMA, made), now_ms=2).pointer
    return warehouse.prune(pointer, PruneRequest(filter=sql, reader_columns=columns)).reader_columns


def test_columns_with_whole_footers_everywhere_are_named() -> None:
    """Both bounds, the null count and no NaN, in every block, or nothing but nulls."""
    full = {1: A, 2: X}
    assert believed(("memory://f/1", full), ("memory://f/2", full), ("memory://f/3", {1: NULLS, 2: X})) == ("a", "x")


@pytest.mark.parametrize(
    "stats",
    [
        ColumnStats(min=Bound(int64=1), max=Bound(int64=9)),
        ColumnStats(min=Bound(int64=1), null_count=0),
        ColumnStats(max=Bound(int64=9), null_count=0),
        ColumnStats(null_count=1),
        ColumnStats(),
        None,
    ],
)
def test_one_block_without_proof_takes_a_column_out(stats: ColumnStats | None) -> None:
    """A bound or the null count that was not believed is one that the reader may take for the truth."""
    doubtful = {2: X} if stats is None else {1: stats, 2: X}
    assert believed(("memory://f/1", {1: A, 2: X}), ("memory://f/2", {1: A, 2: X}), ("memory://f/3", doubtful)) == (
        "x",
    )


def test_nan_takes_a_column_out() -> None:
    """Writers leave NaN out of bounds, above which Spark orders it."""
    for nan in ("maybe", "all"):
        stats = ColumnStats(min=X.min if nan == "maybe" else None, max=X.max, null_count=0, nan=nan)
        assert believed(("memory://f/1", {1: A, 2: stats})) == ("a",)


def test_only_the_blocks_of_the_answer_count() -> None:
    """A block that is left out by the filter is not read."""
    low = ColumnStats(min=Bound(int64=-9), max=Bound(int64=-1))
    assert believed(("memory://f/1", {1: low, 2: X}), ("memory://f/2", {1: A, 2: X}), sql="a > 0") == ("a", "x")


def test_scanned_values_say_nothing_of_another_writers_footer() -> None:
    """A scan may know what the footer gets wrong; Lamella's own blocks are written from what was scanned."""
    scanned = ColumnStats(min=A.min, max=A.max, null_count=0, source="scan")
    assert believed(("memory://f/1", {1: scanned, 2: X})) == ("x",)
    assert believed(("own/1", {1: scanned, 2: X})) == ("a", "x")
    assert believed(("own/1", {1: scanned, 2: X}), ("memory://f/1", {1: A, 2: X})) == ("a", "x")
    assert believed(("own/1", {1: scanned, 2: X}), ("memory://f/1", {1: scanned, 2: X})) == ("x",)


def test_a_default_value_is_not_in_the_file() -> None:
    """For a reader, a column that the file lacks is null, whatever the table's default."""
    default = ColumnStats(min=A.min, max=A.min, null_count=0, source="schema")
    assert believed(("memory://f/1", {1: default, 2: X})) == ("x",)
    assert believed(("memory://f/1", {1: ColumnStats(null_count=4, source="schema"), 2: X})) == ("a", "x")


def test_lists_and_unknown_names() -> None:
    """Bounds below a list are of elements; a column that is not there is an error; nothing asked, nothing said."""
    assert believed(("memory://f/1", {1: A, 2: X}), columns=("a", "l.element")) == ("a",)
    assert believed(("memory://f/1", {1: A, 2: X}), columns=()) is None
    assert believed(columns=("a",)) == ("a",)
    with pytest.raises(UnknownColumn):
        believed(("memory://f/1", {1: A, 2: X}), columns=("nope",))

"""What a prune may conclude for blocks of an older schema: as sharp as can be, and no sharper."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from evolution.histories import schema_of
from lamella.snapshot.errors import CommitConflict, InvalidSchema, SchemaConflict
from lamella.snapshot.manifest import Block, Snapshot, SnapshotPointer
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import (
    AddColumn,
    DropColumn,
    RenameColumn,
    SchemaChange,
    WidenColumn,
    physical_names,
)
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest

_TICKS = itertools.count(1)
Value = int | float | bytes


class Table:
    """A table with blocks whose columns have given bounds."""

    def __init__(self, schema: Schema, *, segment_blocks: int = 2) -> None:
        self.store = FsspecStore()
        self.warehouse = Warehouse(self.store, "memory://evolution", segment_blocks=segment_blocks)
        self.table_id = f"t{next(_TICKS)}"
        self.pointer = self.warehouse.create(self.table_id, schema, now_ms=1)

    @property
    def head(self) -> Snapshot:
        """The snapshot in force, without its segments."""
        return self.warehouse.head(self.pointer)

    def add(self, name: str, bounds: Mapping[str, tuple[Value, Value]], *, under: Snapshot | None = None) -> None:
        """Append a block of ten rows, prepared under that snapshot's schema (by default the one in force)."""
        table = under or self.head
        stats = {
            leaf.id: ColumnStats(
                min=to_bound(leaf.dtype, bounds[leaf.name][0]),
                max=to_bound(leaf.dtype, bounds[leaf.name][1]),
                null_count=0,
            )
            for leaf in table.schema.leaves()
            if leaf.name in bounds
        }
        block = Block(location=name, row_count=10, file_size=100, col_stats=stats, schema_id=table.schema.schema_id)
        refs = self.warehouse.prepare(self.table_id, table, [block])
        self.pointer = self.warehouse.commit(self.pointer, added=refs, now_ms=2).pointer

    def change(self, *changes: SchemaChange) -> None:
        """Change the schema."""
        self.pointer = self.warehouse.evolve(self.pointer, changes, now_ms=3).pointer

    def remove(self, *names: str) -> None:
        """Remove blocks."""
        self.pointer = self.warehouse.commit(self.pointer, removed=names, operation="delete", now_ms=4).pointer

    def selected(self, filter: str, pointer: SnapshotPointer | None = None) -> dict[str, str]:
        """Verdicts of the blocks that a filter leaves."""
        answer = self.warehouse.prune(pointer or self.pointer, PruneRequest(filter=filter))
        assert answer.blocks is not None
        return {block.location: block.verdict for block in answer.blocks}

    def stages(self, filter: str) -> list[str]:
        """The layers that a prune came to look at."""
        report = self.warehouse.prune(self.pointer, PruneRequest(filter=filter)).report
        return [stage.stage for stage in report.stages]


def test_a_renamed_column_keeps_its_statistics() -> None:
    """Under the new name old blocks are ruled out as before; the old name is gone."""
    table = Table(schema_of(("a", "int64")))
    table.add("low", {"a": (0, 9)})
    table.add("high", {"a": (10, 19)})
    table.change(RenameColumn(column="a", name="b"))
    assert table.selected("b > 9") == {"high": "ALL"}


def test_a_column_added_again_never_sees_the_old_ones_statistics() -> None:
    """Old blocks are all null in the new column, whatever the dropped one of that name held."""
    table = Table(schema_of(("k", "int64"), ("a", "int64")))
    table.add("old", {"k": (0, 0), "a": (5, 5)})
    table.change(DropColumn(column="a"))
    table.change(AddColumn(name="a", type="int64"))
    table.add("new", {"k": (1, 1), "a": (5, 5)})
    assert table.selected("a = 5") == {"new": "ALL"}
    assert table.selected("a IS NULL") == {"old": "ALL"}


def test_names_that_are_swapped_are_not_confused() -> None:
    """Each column keeps its own statistics when two exchange their names."""
    table = Table(schema_of(("a", "int64"), ("b", "int64")))
    table.add("old", {"a": (1, 1), "b": (2, 2)})
    table.change(
        RenameColumn(column="a", name="x"), RenameColumn(column="b", name="a"), RenameColumn(column="x", name="b")
    )
    assert table.selected("a = 2 AND b = 1") == {"old": "ALL"}
    assert table.selected("a = 1 OR b = 2") == {}
    assert physical_names(table.head, 0) == {1: ("a",), 2: ("b",)}


@pytest.mark.parametrize("default", [None, "7"])
def test_a_column_that_is_younger_than_a_block_is_null_or_its_default(default: str | None) -> None:
    """That is proven, so both NONE and ALL follow, and the layers above need no block."""
    table = Table(schema_of(("a", "int64")))
    table.add("old", {"a": (0, 9)})
    table.change(AddColumn(name="b", type="int32", default=default))
    if default is None:
        assert table.selected("b IS NULL") == {"old": "ALL"}
        assert table.stages("b IS NOT NULL") == ["snapshot"]
    else:
        assert table.selected("b = 7") == {"old": "ALL"}
        assert table.stages("b <> 7 OR b IS NULL") == ["snapshot"]
    table.add("new", {"a": (0, 9), "b": (8, 8)})
    assert table.selected("b = 8") == {"new": "ALL"}
    table.change(WidenColumn(column="b", type="int64"))
    assert table.selected("b = 8") == {"new": "ALL"}


def test_a_column_without_statistics_is_not_taken_for_an_absent_one() -> None:
    """A block that says nothing of a column it may have stays unknown, through later changes too."""
    table = Table(schema_of(("a", "int64"), ("b", "int64")))
    table.add("silent", {"a": (0, 9)})
    table.change(AddColumn(name="c", type="int64"), RenameColumn(column="b", name="d"))
    assert table.selected("d = 1") == {"silent": "UNKNOWN"}
    assert table.selected("d IS NULL") == {"silent": "UNKNOWN"}
    assert table.selected("c IS NULL") == {"silent": "ALL"}


@pytest.mark.parametrize(
    ("source", "target", "bounds", "none", "every"),
    [
        ("int32", "int64", (2**31 - 1, 2**31 - 1), "a > 2147483647", "a = 2147483647"),
        ("uint32", "int64", (2**32 - 1, 2**32 - 1), "a < 0", "a > 4000000000"),
        ("float32", "float64", (0.5, 0.5), "a > 0.50000001", "a = 0.5"),
        ("decimal(5,2)", "decimal(10,2)", (150, 150), "a > 1.5", "a = 1.5"),
        ("decimal(5,2)", "decimal(10,4)", (150, 150), "a > 1.5001", "a = 1.5"),
        ("decimal(18,4)", "decimal(38,10)", (-1, -1), "a > -0.0000999999", "a = -0.0001"),
        ("timestamp(ms)", "timestamp(us)", (1000, 1000), "a > TIMESTAMP '1970-01-01 00:00:01'", "a IS NOT NULL"),
        ("fixed(2)", "binary", (b"aa", b"aa"), "a = X'61'", "a = X'6161'"),
        ("enum", "string", (b"x", b"x"), "a = 'y'", "a = 'x'"),
    ],
)
def test_bounds_of_a_narrower_type_are_converted_exactly(
    source: str, target: str, bounds: tuple[Value, Value], none: str, every: str
) -> None:
    """Blocks of both types are decided by the same filter, at the snapshot, the segments and the blocks."""
    table = Table(schema_of(("a", source)), segment_blocks=4)
    table.add("old", {"a": bounds})
    table.change(WidenColumn(column="a", type=target))
    assert table.selected(every) == {"old": "ALL"}
    assert table.stages(none) == ["snapshot"]
    table.change(AddColumn(name="z", type="int8"))
    assert table.selected(every) == {"old": "ALL"}
    assert table.selected(none) == {}


def test_a_bound_that_the_wider_type_cannot_hold_is_unknown() -> None:
    """Milliseconds beyond what 64 bits of nanoseconds hold exclude nothing on that side."""
    table = Table(schema_of(("a", "timestamp(ms)")))
    table.add("far", {"a": (0, 2**62)})
    table.change(WidenColumn(column="a", type="timestamp(ns)"))
    assert table.selected("a > TIMESTAMP '2200-01-01 00:00:00'") == {"far": "UNKNOWN"}
    assert table.selected("a < TIMESTAMP '1969-01-01 00:00:00'") == {}


def test_a_segment_written_again_holds_blocks_of_several_schemas() -> None:
    """A removal rewrites a segment in terms of the schema in force; each block keeps what it was written with."""
    table = Table(schema_of(("a", "int32")), segment_blocks=10)
    prepared = table.warehouse.prepare(
        table.table_id,
        table.head,
        [
            Block(location=name, row_count=1, file_size=1, col_stats={1: _exactly("int32", at)}, schema_id=0)
            for at, name in enumerate(["x", "y", "z"])
        ],
    )
    table.pointer = table.warehouse.commit(table.pointer, added=prepared, now_ms=2).pointer
    before = table.pointer
    table.change(WidenColumn(column="a", type="int64"), RenameColumn(column="a", name="b"))
    table.change(AddColumn(name="a", type="int32", default="9"))
    table.remove("y")
    snapshot = table.warehouse.snapshot(table.pointer)
    (ref,) = snapshot.segments
    assert (ref.schema_id, ref.block_schema_ids, snapshot.schema_ids_in_use) == (2, (0,), (0,))
    assert [block.written_with for block in table.warehouse.segment(ref).blocks] == [0, 0]
    assert table.selected("b = 2 AND a = 9") == {"z": "ALL"}
    assert table.selected("a <> 9") == {}
    table.change(WidenColumn(column="a", type="int64"))
    assert table.selected("b = 0 AND a = 9") == {"x": "ALL"}
    assert table.selected("a > 1", before) == {"z": "ALL"}  # time travel sees the old schema


def test_a_schema_change_writes_no_segment() -> None:
    """The new snapshot refers to the very same segments; only a snapshot and its sidecar are new."""
    table = Table(schema_of(("a", "int64")))
    table.add("x", {"a": (0, 1)})
    before = {stat.location for stat in table.store.list(table.warehouse.table_location(table.table_id))}
    segments = table.warehouse.snapshot(table.pointer).segments
    table.change(AddColumn(name="b", type="int64"))
    after = {stat.location for stat in table.store.list(table.warehouse.table_location(table.table_id))}
    assert table.warehouse.snapshot(table.pointer).segments == segments
    assert {location.rsplit("/", 2)[1] for location in after - before} == {"_ss"}
    assert table.head.operation == "schema"


def test_a_commit_prepared_under_an_older_schema_stays_right() -> None:
    """Blocks keep the schema of their making, whatever was changed before they land."""
    table = Table(schema_of(("a", "int64"), ("b", "int64")))
    old = table.head
    table.change(DropColumn(column="b"), RenameColumn(column="a", name="b"), AddColumn(name="a", type="int64"))
    table.add("late", {"a": (5, 5), "b": (6, 6)}, under=old)
    assert table.selected("b = 5 AND a IS NULL") == {"late": "ALL"}
    assert table.selected("b = 6 OR a = 5") == {}


def test_a_segment_of_an_unknown_schema_is_refused() -> None:
    """A snapshot takes only blocks whose names it can tell."""
    table, other = Table(schema_of(("a", "int64"))), Table(schema_of(("a", "int64")))
    other.change(AddColumn(name="b", type="int64"))
    refs = other.warehouse.prepare(
        other.table_id, other.head, [Block(location="x", row_count=1, file_size=1, schema_id=1)]
    )
    with pytest.raises(SchemaConflict):
        table.warehouse.commit(table.pointer, added=refs, now_ms=2)
    with pytest.raises(InvalidSchema):
        table.warehouse.prepare(
            table.table_id, table.head, [Block(location="x", row_count=1, file_size=1, schema_id=1)]
        )


def test_a_change_for_a_certain_schema_conflicts_when_another_was_first() -> None:
    """With a base schema id the change is made to that schema or not at all."""
    table = Table(schema_of(("a", "int64")))
    table.change(AddColumn(name="b", type="int64"))
    with pytest.raises(SchemaConflict) as caught:
        table.warehouse.evolve(table.pointer, [DropColumn(column="b")], base_schema_id=0, now_ms=5)
    assert caught.value.details["schema_id"] == 1
    assert not isinstance(caught.value, CommitConflict)
    table.warehouse.evolve(table.pointer, [DropColumn(column="b")], base_schema_id=1, now_ms=5)


def test_the_cluster_key_follows_its_columns() -> None:
    """A rename renames it there too; a column of the key cannot be dropped."""
    warehouse = Warehouse(FsspecStore(), "memory://evolution")
    first = warehouse.create("keyed", schema_of(("a", "int64"), ("b", "int64")), cluster_key=("b",), now_ms=1)
    renamed = warehouse.evolve(first, [RenameColumn(column="b", name="c")], now_ms=2)
    assert renamed.snapshot.cluster_key_meta == (0, ("c",))
    with pytest.raises(InvalidSchema, match="cluster key"):
        warehouse.evolve(renamed.pointer, [DropColumn(column="c")], now_ms=3)


def test_a_table_that_never_changed_says_nothing_of_schemas() -> None:
    """Its manifests have no member that older ones lack."""
    table = Table(schema_of(("a", "int64")))
    table.add("x", {"a": (0, 1)})
    data = table.store.read(table.pointer.manifest.location)
    assert b"schemas" not in data
    assert b"schema_ids" not in data
    assert table.head.history == (table.head.schema,)
    assert table.head.schema_ids_in_use == (0,)


def _exactly(dtype: str, value: int) -> ColumnStats:
    bound = to_bound(schema_of(("a", dtype)).leaf("a").dtype, value)
    return ColumnStats(min=bound, max=bound, null_count=0)

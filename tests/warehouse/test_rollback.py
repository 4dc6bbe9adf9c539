"""Rollbacks as values and as snapshots: chains that go on, schemas that are never forgotten."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.commit import empty_snapshot, evolved_snapshot
from lamella.snapshot.commit.snapshots import restored_schema, rolled_back_snapshot
from lamella.snapshot.errors import InvalidSchema, SchemaConflict
from lamella.snapshot.manifest import Block, Snapshot
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import (
    AddColumn,
    DropColumn,
    SchemaChange,
    SetNullable,
    WidenColumn,
    can_read_as,
    evolve,
)
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest

FIRST = Schema.assign([Column(name="a", type="int32", nullable=False), Column(name="b", type="int64")])


def first() -> Snapshot:
    """A table's first snapshot."""
    return empty_snapshot(
        snapshot_id="s0", table_id="t", schema=FIRST, cluster_key=("a",), properties={"k": "old"}, now_ms=1_000
    )


def evolved(base: Snapshot, number: int, *changes: SchemaChange) -> Snapshot:
    """The next snapshot, under other columns."""
    return evolved_snapshot(base, changes, snapshot_id=f"s{number}", now_ms=1_000, base_schema_id=None)


def test_the_chain_goes_on_and_time_with_it() -> None:
    """The new snapshot follows the current one, later than it, whatever the clock says; properties are the current."""
    base = evolved(first(), 1, AddColumn(name="x", type="int64"))
    back = rolled_back_snapshot(base, first(), snapshot_id="s2", now_ms=5)
    assert (back.prev_snapshot_id, back.operation) == ("s1", "rollback")
    assert back.timestamp_ms == base.timestamp_ms + 1
    assert back.timestamp == "1970-01-01T00:00:01.002Z"
    assert back.properties == base.properties
    assert back.cluster_key_meta == (0, ("a",))
    assert back.history[:-1] == base.history
    assert (back.schema.columns, back.schema.schema_id, back.schema.last_column_id) == (FIRST.columns, 2, 3)


def test_equal_columns_need_no_new_schema() -> None:
    """Also when they come from a rollback themselves."""
    start = first()
    base = evolved(start, 1, AddColumn(name="x", type="int64"))
    back = rolled_back_snapshot(base, start, snapshot_id="s2", now_ms=5)
    again = rolled_back_snapshot(back, start, snapshot_id="s3", now_ms=5)
    assert (again.schema, again.schemas) == (back.schema, back.schemas)
    assert restored_schema(start, start) is start.schema


def test_a_snapshot_of_another_chain_is_no_goal() -> None:
    """Its schema would be unknown to readers."""
    with pytest.raises(InvalidSchema):
        restored_schema(first(), evolved(first(), 1, AddColumn(name="x", type="int64")))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=12), st.randoms(use_true_random=False))
def test_ids_are_never_given_twice_whatever_is_rolled_back(steps: list[int], rng: object) -> None:
    """Over any mix of changes and rollbacks: schema ids are distinct, column ids mean one column, histories grow."""
    chain = [first()]
    names = count()
    born: dict[int, str] = {1: "a", 2: "b"}
    for step in steps:
        base, number = chain[-1], len(chain)
        if step < 2:
            following = evolved(base, number, AddColumn(name=f"c{next(names)}", type="int64"))
        elif step == 2 and len(base.schema.columns) > 1:
            droppable = [column.name for column in base.schema.columns if column.name != "a"]
            following = evolved(base, number, DropColumn(column=rng.choice(droppable)))  # type: ignore[attr-defined]  # hypothesis' Random
        else:
            target = rng.choice(chain)  # type: ignore[attr-defined]  # as above
            following = rolled_back_snapshot(base, target, snapshot_id=f"s{number}", now_ms=0)
            assert following.schema.columns == target.schema.columns
        for column in following.schema.columns:
            assert born.setdefault(column.id, column.name) == column.name
        ids = [schema.schema_id for schema in following.history]
        assert len(ids) == len(set(ids))
        assert following.history[: len(base.history)] == base.history or following.history == base.history
        assert following.schema.last_column_id >= base.schema.last_column_id
        assert following.schema.last_column_id >= max(born)
        assert following.timestamp_ms > base.timestamp_ms
        chain.append(following)


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        (AddColumn(name="x", type="int64"), True),
        (WidenColumn(column="a", type="int64"), False),
        (SetNullable(column="a", nullable=True), False),
        (DropColumn(column="b"), False),
    ],
)
def test_which_files_fit_the_columns_of_before(change: SchemaChange, fits: bool) -> None:
    """A file of the older schema always fits the newer; the other way round only where nothing was taken or widened."""
    newer = evolve(FIRST, [change])
    assert can_read_as(FIRST, newer)
    assert can_read_as(newer, FIRST) is fits


def a_block(name: str, rows: int = 1) -> Block:
    """A block of which nothing is known."""
    return Block(location=f"memory://rollback-data/{name}", row_count=rows, file_size=10)


def test_blocks_of_a_schema_that_was_rolled_back_do_not_follow() -> None:
    """A writer that prepared them in between is told; nobody would read them right by the older columns."""
    warehouse = Warehouse(FsspecStore(), "memory://rollback")
    start = warehouse.create("00000000-0000-7000-8000-000000000001", FIRST, now_ms=1)
    widened = warehouse.evolve(start, [WidenColumn(column="a", type="int64")], now_ms=2)
    prepared = warehouse.prepare(widened.snapshot.table_id, widened.snapshot, [a_block("late")])
    old = warehouse.prepare(widened.snapshot.table_id, FIRST, [a_block("old")])
    back = warehouse.rollback(widened.pointer, start, now_ms=3)
    with pytest.raises(SchemaConflict):
        warehouse.commit(back.pointer, added=prepared, now_ms=4)
    done = warehouse.commit(back.pointer, added=old, now_ms=4)
    answer = warehouse.prune(done.pointer, PruneRequest())
    assert [block.schema_id for block in answer.blocks or ()] == [0]


def test_a_rollback_keeps_segments_and_groups_as_they_were() -> None:
    """None is written again, and the snapshot has the rows and the bounds of its goal."""
    store = FsspecStore()
    warehouse = Warehouse(store, "memory://rollback", segment_blocks=2)
    pointer = warehouse.create("00000000-0000-7000-8000-000000000001", FIRST, now_ms=1)
    pointers = [pointer]
    for number in range(90):
        stat = store.put(f"memory://rollback-data/{number}", bytes(10))
        block = Block(
            location=stat.location, row_count=number, file_size=stat.size_bytes, content_id=stat.content_id, schema_id=0
        )
        leaves = warehouse.prepare("00000000-0000-7000-8000-000000000001", FIRST, [block])
        pointers.append(warehouse.commit(pointers[-1], added=leaves, now_ms=1).pointer)
    for at in (0, 1, 40, 89):
        goal = warehouse.snapshot(pointers[at])
        back = warehouse.rollback(pointers[-1], pointers[at], now_ms=1)
        assert list(warehouse.segments(back.pointer)) == list(warehouse.segments(pointers[at]))
        assert (back.snapshot.groups, back.snapshot.summary) == (goal.groups, goal.summary)
        assert (back.added, back.removed) == (0, 90 - at)
        forth = warehouse.rollback(back.pointer, pointers[-1], now_ms=1)
        assert (forth.added, forth.removed) == (90 - at, 0)
        assert set(warehouse.block_locations(forth.pointer)) == set(warehouse.block_locations(pointers[-1]))

"""Several change sets in one snapshot, conflicts that name their winner, and tables of an older format."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from lamella.snapshot.commit import Shape
from lamella.snapshot.errors import CommitConflict, DuplicateBlock, LamellaError, LimitExceeded, SchemaConflict
from lamella.snapshot.manifest import FORMAT_VERSION, Block, SegmentRef, SnapshotPointer
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import AddColumn
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.stats.column import MAX_INT64
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Applied, ChangeSet, Warehouse
from lamella.snapshot.wire import PruneRequest
from support import golden

SCHEMA = Schema.assign([Column(name="a", type="int64")])
TABLE = "many"


def block(number: int, content: str = "first") -> Block:
    dtype = SCHEMA.leaf("a").dtype
    stats = ColumnStats(min=to_bound(dtype, number), max=to_bound(dtype, number), null_count=0)
    return Block(
        location=location(number), row_count=1, file_size=9, col_stats={1: stats}, content_id=content, schema_id=0
    )


def location(number: int) -> str:
    return f"memory://data/{number:04d}.parquet"


@pytest.fixture
def warehouse() -> Warehouse:
    return Warehouse(FsspecStore(), "memory://commit-many", shape=Shape(segment_blocks=4, group_segments=2, fan_in=2))


@pytest.fixture
def table(warehouse: Warehouse) -> SnapshotPointer:
    empty = warehouse.create(TABLE, SCHEMA, now_ms=1)
    return warehouse.commit(empty, added=prepared(warehouse, *range(20)), now_ms=2).pointer


def prepared(warehouse: Warehouse, *numbers: int) -> tuple[SegmentRef, ...]:
    return warehouse.prepare(TABLE, SCHEMA, [block(number) for number in numbers])


def codes(outcomes: tuple[Applied | LamellaError, ...]) -> list[str | None]:
    return [each.code if isinstance(each, LamellaError) else None for each in outcomes]


def test_sizes_beyond_64_bits_stay_readable(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """Sizes that only inform are cut, or unknown, however many blocks claim them, and another process can read them."""
    base = warehouse.snapshot(table).summary
    for number in (100, 101, 102):
        large = msgspec.structs.replace(
            block(number),
            block_size=MAX_INT64,
            bloom_filter_index_size=MAX_INT64,
            col_stats={1: msgspec.structs.replace(block(number).col_stats[1], in_memory_size=MAX_INT64)},
        )
        segments = warehouse.prepare(TABLE, SCHEMA, [large])
        table = warehouse.commit(table, added=segments, now_ms=number).pointer
    fresh = Warehouse(FsspecStore(), "memory://commit-many")
    summary = fresh.snapshot(table).summary
    assert (summary.uncompressed_byte_size, summary.index_size) == (MAX_INT64, MAX_INT64)
    assert summary.col_stats[1].in_memory_size is None
    table = fresh.commit(table, removed=[location(number) for number in (100, 101, 102)], now_ms=200).pointer
    summary = fresh.snapshot(table).summary
    assert (summary.row_count, summary.uncompressed_byte_size) == (base.row_count, base.uncompressed_byte_size)


def test_more_rows_than_64_bits_count_are_refused(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """In one change and over several; rows that are removed in the same change make room."""

    def rows(number: int, count: int) -> Block:
        return msgspec.structs.replace(block(number), row_count=count)

    with pytest.raises(LimitExceeded) as caught:
        warehouse.prepare(TABLE, SCHEMA, [rows(100, MAX_INT64), rows(101, 1)])
    assert caught.value.details == {"limit": "table_rows", "maximum": MAX_INT64}
    first = warehouse.prepare(TABLE, SCHEMA, [rows(100, MAX_INT64 - 20)])
    table = warehouse.commit(table, added=first, now_ms=3).pointer
    with pytest.raises(LimitExceeded):
        warehouse.commit(table, added=prepared(warehouse, 102), now_ms=4)
    table = warehouse.commit(table, added=prepared(warehouse, 102), removed=[location(3)], now_ms=4).pointer
    assert Warehouse(FsspecStore(), "memory://commit-many").snapshot(table).summary.row_count == MAX_INT64


def test_several_callers_share_one_snapshot(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """Each has an outcome of its own; the snapshot has what landed, and nothing of what did not."""
    changes = [
        ChangeSet(added=prepared(warehouse, 100), properties={"by": "first", "one": "1"}),
        ChangeSet(removed=(location(3), location(4)), operation="delete", read_at=table),
        ChangeSet(
            added=prepared(warehouse, 101), removed=(location(5), location(4)), operation="compact", read_at=table
        ),
        ChangeSet(added=prepared(warehouse, 102, 7)),
        ChangeSet(added=prepared(warehouse, 103), properties={"by": "last"}),
    ]
    done = warehouse.commit_many(table, changes, now_ms=3)
    assert codes(done.outcomes) == [None, None, CommitConflict.code, DuplicateBlock.code, None]
    assert done.outcomes[0] == Applied(added=1, removed=0)
    assert (done.applied.added, done.applied.removed) == (2, 2)
    assert done.applied.snapshot.operation == "several"
    assert done.applied.snapshot.properties == {"by": "last", "one": "1"}
    assert done.applied.snapshot.prev_snapshot_id == table.snapshot_id
    expected = sorted({*map(location, range(20)), location(100), location(103)} - {location(3), location(4)})
    assert sorted(warehouse.block_locations(done.applied.pointer)) == expected


def test_nothing_is_written_when_nothing_lands(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """All outcomes are errors, there is no snapshot, and asking for it raises the first of them."""
    changes = [ChangeSet(removed=(location(99),)), ChangeSet(added=prepared(warehouse, 1))]
    before = {stat.location for stat in FsspecStore().list("memory://commit-many")}
    done = warehouse.commit_many(table, changes, now_ms=3)
    assert done.result is None
    assert codes(done.outcomes) == [CommitConflict.code, DuplicateBlock.code]
    assert {stat.location for stat in FsspecStore().list("memory://commit-many")} == before
    with pytest.raises(CommitConflict):
        _ = done.applied


def test_a_segment_of_an_unknown_schema_fails_alone(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """The base's history decides; the other callers' appends land."""
    evolved = warehouse.evolve(table, [AddColumn(name="b", type="int64")], now_ms=3).snapshot
    unknown = warehouse.prepare(TABLE, evolved, [block(200)])
    changes = [ChangeSet(added=unknown), ChangeSet(added=prepared(warehouse, 201))]
    done = warehouse.commit_many(table, changes, now_ms=4)
    assert codes(done.outcomes) == [SchemaConflict.code, None]


def test_compaction_that_lost_the_race_lands_on_the_new_base(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """A rewrite beside appends, deletes of other blocks and other rewrites goes through without being made again."""
    mine = prepared(warehouse, 300)
    base = table
    for number in range(6):
        base = warehouse.commit(base, added=prepared(warehouse, 400 + number), now_ms=3).pointer
    base = warehouse.commit(base, removed=[location(0), location(6)], read_at=table, now_ms=4).pointer
    done = warehouse.commit(
        base, added=mine, removed=[location(1), location(2), location(7)], read_at=table, operation="compact", now_ms=5
    )
    assert (done.added, done.removed) == (1, 3)


def test_a_conflict_names_the_snapshot_that_won(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """Appends came since: the winner is the commit that took the block away, not the newest one."""
    winner = warehouse.commit(table, removed=[location(3)], operation="compact", now_ms=3).pointer
    base = winner
    for number in range(5):
        base = warehouse.commit(base, added=prepared(warehouse, 100 + number), now_ms=4).pointer
    with pytest.raises(CommitConflict) as caught:
        warehouse.commit(base, removed=[location(2), location(3)], read_at=table, now_ms=5)
    assert caught.value.details == {
        "blocks": [location(3)],
        "snapshot_id": winner.snapshot_id,
        "snapshot_is": "winner",
    }
    with pytest.raises(CommitConflict) as caught:
        warehouse.commit(base, removed=["memory://data/never"], now_ms=5)
    assert caught.value.details["snapshot_is"] == "current"
    assert caught.value.details["snapshot_id"] == base.snapshot_id


def test_a_replaced_file_names_the_snapshot_that_replaced_it(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """The location is still there, with another file; moving it to another segment is no replacement."""
    newer = warehouse.prepare(TABLE, SCHEMA, [block(3, "second")])
    winner = warehouse.commit(table, added=newer, removed=[location(3)], now_ms=3).pointer
    base = warehouse.commit(winner, removed=[location(2)], now_ms=4).pointer  # writes their segments again
    with pytest.raises(CommitConflict) as caught:
        warehouse.commit(base, removed=[location(1), location(3)], read_at=table, now_ms=5)
    assert caught.value.details == {
        "blocks": [location(3)],
        "snapshot_id": winner.snapshot_id,
        "snapshot_is": "winner",
    }
    assert warehouse.commit(base, removed=[location(1)], read_at=table, now_ms=5).removed == 1


def test_single_appends_fold_and_stay_in_order(warehouse: Warehouse) -> None:
    """Many one-block appends leave full segments and groups of them, block after block as they came."""
    pointer = warehouse.create("single", SCHEMA, now_ms=1)
    for number in range(70):
        refs = warehouse.prepare("single", SCHEMA, [block(number)])
        pointer = warehouse.commit(pointer, added=refs, now_ms=2).pointer
    snapshot = warehouse.snapshot(pointer)
    assert snapshot.summary.block_count == 70
    assert [ref.summary.block_count for ref in warehouse.segments(pointer)] == [4] * 17 + [2]
    assert [group.segment_count for group in snapshot.groups] == [16]
    assert list(warehouse.block_locations(pointer)) == [location(number) for number in range(70)]
    assert snapshot.timestamp_ms == 71  # the clock stood still, the chain did not


def test_a_table_of_format_one_goes_on_under_the_current_format() -> None:
    """What an older release wrote is read, appended to, grouped, and lost from block by block."""
    store = FsspecStore()
    for old in list(store.list(golden.ROOT)):
        store.delete(old.location)
    folder = Path(golden.FOLDER / "v1")
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "pointer.json":
            store.put(f"{golden.ROOT}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    pointer = msgspec.json.decode((folder / "pointer.json").read_bytes(), type=SnapshotPointer)
    warehouse = Warehouse(store, golden.ROOT, shape=Shape(segment_blocks=2, group_segments=2))
    assert (warehouse.snapshot(pointer).format_version, warehouse.snapshot(pointer).segment_count) == (1, 3)
    (first, *_) = golden.blocks()
    with pytest.raises(DuplicateBlock):
        warehouse.commit(pointer, added=warehouse.prepare(golden.TABLE_ID, golden.SCHEMA, [first]), now_ms=5)
    more = msgspec.structs.replace(first, location="s3://bucket/data/part 9.parquet")
    refs = warehouse.prepare(golden.TABLE_ID, golden.SCHEMA, [more])
    pointer = warehouse.commit(pointer, added=refs, now_ms=5).pointer
    snapshot = warehouse.snapshot(pointer)
    assert (snapshot.format_version, [group.segment_count for group in snapshot.groups]) == (FORMAT_VERSION, [2])
    pointer = warehouse.commit(pointer, removed=["s3://bucket/data/part 1.parquet"], now_ms=6).pointer
    answer = Warehouse(store, golden.ROOT).prune(pointer, PruneRequest(filter="n < 30"))
    assert answer.blocks is not None
    assert sorted(b.location[-9:-8] for b in answer.blocks) == ["0", "2", "9"]

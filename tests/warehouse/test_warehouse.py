"""The warehouse: commits, conflicts, layers read and not read, damage found."""

from __future__ import annotations

import msgspec
import pytest

from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.errors import CommitConflict, DuplicateBlock, HashMismatch, ManifestError, SegmentNotFound
from lamella.snapshot.manifest import Block, Snapshot, SnapshotPointer, decode_snapshot
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore, ObjectStat
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneAnswer, PruneRequest

SCHEMA = Schema.assign([Column(name="a", type="int64"), Column(name="b", type="string")])


class CountingStore(FsspecStore):
    """A store that remembers what was read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def read(self, location: str) -> bytes:
        self.reads.append(location)
        return super().read(location)


def block(index: int) -> Block:
    dtype = SCHEMA.leaf("a").dtype
    stats = ColumnStats(min=to_bound(dtype, index * 10), max=to_bound(dtype, index * 10 + 9), null_count=0)
    return Block(location=f"memory://data/{index}.parquet", row_count=10, file_size=100 + index, col_stats={1: stats})


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def warehouse(store: CountingStore) -> Warehouse:
    return Warehouse(store, "memory://warehouse", segment_blocks=4)


@pytest.fixture
def table(warehouse: Warehouse, request: pytest.FixtureRequest) -> SnapshotPointer:
    table_id = str(abs(hash(request.node.name)))
    empty = warehouse.create(table_id, SCHEMA, cluster_key=("a",), now_ms=1_000)
    refs = warehouse.prepare(table_id, SCHEMA, [block(i) for i in range(12)])
    return warehouse.commit(empty, added=refs, now_ms=2_000).pointer


def block_numbers(answer: PruneAnswer) -> list[int]:
    assert answer.blocks is not None
    return [int(b.location.split("/")[-1].split(".")[0]) for b in answer.blocks]


def prune(warehouse: Warehouse, pointer: SnapshotPointer, text: str | None, **more: object) -> PruneAnswer:
    return warehouse.prune(pointer, PruneRequest(filter=text, **more))  # type: ignore[arg-type]  # options by name


def test_a_filter_keeps_the_blocks_that_may_match(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """Narrow, wide, empty and missing filters, with their verdicts."""
    assert block_numbers(prune(warehouse, table, "a = 55")) == [5]
    assert block_numbers(prune(warehouse, table, "a >= 95 AND a < 120")) == [9, 10, 11]
    assert block_numbers(prune(warehouse, table, "a < 0")) == []
    assert block_numbers(prune(warehouse, table, None)) == list(range(12))
    answer = prune(warehouse, table, "a >= 95")
    assert answer.blocks is not None
    assert [b.verdict for b in answer.blocks] == ["SOME", "ALL", "ALL"]
    assert [b.file_size for b in answer.blocks] == [109, 110, 111]


def test_upper_layers_spare_the_lower_ones(store: CountingStore, table: SnapshotPointer) -> None:
    """Nothing matches: no segment is opened. One segment may match: only that one is opened, and no JSON at all."""
    fresh = Warehouse(store, "memory://warehouse")
    store.reads.clear()
    assert block_numbers(prune(fresh, table, "a > 1000")) == []
    assert store.reads == [table.sidecar.location]
    store.reads.clear()
    answer = prune(fresh, table, "a = 55")
    assert block_numbers(answer) == [5]
    assert len(store.reads) == 1
    assert "/_sg/" in store.reads[0]
    assert store.reads[0].endswith(".arrow")
    assert [(s.stage, s.considered, s.kept, s.bytes) for s in answer.report.stages] == [
        ("snapshot", 1, 1, sum(100 + i for i in range(12))),
        ("segment", 3, 1, 104 + 105 + 106 + 107),
        ("block", 4, 1, 105),
    ]


def test_the_report_says_what_was_not_used(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """An unusable predicate and a column without statistics are named, and the rest still prunes."""
    answer = prune(warehouse, table, "a = 55 AND reverse(b) = 'X' AND b = 'y'", explain=True)
    assert block_numbers(answer) == [5]
    assert answer.blocks is not None
    assert answer.blocks[0].verdict == "UNKNOWN"
    assert {use.predicate for use in answer.report.not_used} == {"reverse(b) = 'X'", "b = 'y'"}
    assert answer.report.predicates is not None
    assert (answer.report.predicates[0].predicate, answer.report.predicates[0].ruled_out) == ("a = 55", 3)


def test_segments_can_be_requested_alone(store: CountingStore, table: SnapshotPointer) -> None:
    """Level "segment" answers segments with their verdicts and opens none."""
    store.reads.clear()
    answer = prune(Warehouse(store, "memory://warehouse"), table, "a >= 30", level="segment")
    assert answer.segments is not None
    assert [(s.block_count, s.verdict) for s in answer.segments] == [(4, "SOME"), (4, "ALL"), (4, "ALL")]
    assert store.reads == [table.sidecar.location]


def test_columns_shape_says_the_same_as_records(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """The two shapes of an answer carry the same blocks."""
    records = prune(warehouse, table, "a > 42", columns=("a",))
    columns = prune(warehouse, table, "a > 42", columns=("a",), shape="columns")
    assert records.blocks is not None
    assert columns.block_columns is not None
    assert [b.location for b in records.blocks] == columns.block_columns.location
    assert [b.verdict for b in records.blocks] == columns.block_columns.verdict
    assert columns.block_columns.column_size_bytes == [0] * len(records.blocks)


def test_appends_merge_and_history_stays(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """A later append adds its blocks; the older snapshot answers as before."""
    table_id = warehouse.snapshot(table).table_id
    more = warehouse.prepare(table_id, SCHEMA, [block(100)])
    result = warehouse.commit(table, added=more, now_ms=5)
    assert (result.added, result.removed) == (1, 0)
    assert block_numbers(prune(warehouse, result.pointer, "a >= 115")) == [11, 100]
    assert block_numbers(prune(warehouse, table, "a >= 115")) == [11]
    assert result.snapshot.prev_snapshot_id == table.snapshot_id
    assert result.pointer.timestamp_ms == table.timestamp_ms + 1, "time does not run backwards with the clock"


def test_leaves_written_once_serve_every_retry(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """After a lost pointer swap the same segments go onto the winner's snapshot."""
    table_id = warehouse.snapshot(table).table_id
    mine = warehouse.prepare(table_id, SCHEMA, [block(100)])
    lost = warehouse.commit(table, added=mine, now_ms=3_000)
    winner = warehouse.commit(table, added=warehouse.prepare(table_id, SCHEMA, [block(200)]), now_ms=3_000)
    again = warehouse.commit(winner.pointer, added=mine, now_ms=3_001)
    assert again.snapshot.segments[-1] == lost.snapshot.segments[-1]
    assert block_numbers(prune(warehouse, again.pointer, "a >= 1000")) == [200, 100]


def test_removed_blocks_are_gone_and_summaries_shrink(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """A removal rewrites only its segments, and the bounds of every layer above shrink to what is left."""
    result = warehouse.commit(table, removed=[f"memory://data/{i}.parquet" for i in range(3, 12)], now_ms=3_000)
    assert block_numbers(prune(warehouse, result.pointer, None)) == [0, 1, 2]
    assert result.snapshot.summary.col_stats[1].max == to_bound(SCHEMA.leaf("a").dtype, 29)
    assert result.snapshot.segment_count == 1
    assert prune(warehouse, result.pointer, "a > 29").report.stages[0].kept == 0


def test_a_block_is_in_a_table_once(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """Adding a block that is there, or one twice, is refused and names it."""
    table_id = warehouse.snapshot(table).table_id
    with pytest.raises(DuplicateBlock) as caught:
        warehouse.commit(table, added=warehouse.prepare(table_id, SCHEMA, [block(5)]), now_ms=1)
    assert caught.value.details["blocks"] == ["memory://data/5.parquet"]
    with pytest.raises(DuplicateBlock):
        warehouse.commit(table, added=warehouse.prepare(table_id, SCHEMA, [block(50), block(50)]), now_ms=1)


def test_removing_what_is_gone_is_a_conflict_that_names_it(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """The loser of two rewrites learns which blocks were taken and by which snapshot."""
    first = warehouse.commit(table, removed=["memory://data/3.parquet"], now_ms=3_000)
    with pytest.raises(CommitConflict) as caught:
        warehouse.commit(first.pointer, removed=["memory://data/3.parquet", "memory://data/4.parquet"], now_ms=3_001)
    assert caught.value.details == {
        "blocks": ["memory://data/3.parquet"],
        "snapshot_id": first.pointer.snapshot_id,
        "snapshot_is": "winner",
    }


def test_a_file_that_was_replaced_since_it_was_read_is_not_removed(
    warehouse: Warehouse, table: SnapshotPointer
) -> None:
    """A compaction that read a file before it was exchanged in place must not drop the new one."""
    table_id = warehouse.snapshot(table).table_id
    location = "memory://data/3.parquet"
    dropped = warehouse.commit(table, removed=[location], now_ms=3_000)
    newer = msgspec.structs.replace(block(3), content_id="another")
    replaced = warehouse.commit(dropped.pointer, added=warehouse.prepare(table_id, SCHEMA, [newer]), now_ms=3_001)
    with pytest.raises(CommitConflict) as caught:
        warehouse.commit(replaced.pointer, removed=[location], read_at=table, now_ms=3_002)
    assert caught.value.details["blocks"] == [location]
    done = warehouse.commit(replaced.pointer, removed=[location], read_at=replaced.pointer, now_ms=3_003)
    assert block_numbers(prune(warehouse, done.pointer, "a >= 30 AND a < 40")) == []
    unchanged = warehouse.commit(replaced.pointer, removed=["memory://data/4.parquet"], read_at=table, now_ms=3_004)
    assert unchanged.removed == 1


def test_a_rewrite_may_replace_old_blocks_by_new(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """Remove and add in one commit: one snapshot, both effects."""
    table_id = warehouse.snapshot(table).table_id
    merged = warehouse.prepare(table_id, SCHEMA, [block(77)])
    old = ["memory://data/0.parquet", "memory://data/1.parquet"]
    result = warehouse.commit(table, added=merged, removed=old, operation="compact", now_ms=3_000)
    assert set(block_numbers(prune(warehouse, result.pointer, None))) == {*range(2, 12), 77}
    assert result.snapshot.operation == "compact"


def test_damage_is_found_before_it_is_believed(store: CountingStore, table: SnapshotPointer) -> None:
    """A sidecar or manifest whose bytes changed is an error, not a wrong answer."""

    def by_sidecar(warehouse: Warehouse) -> object:
        return warehouse.prune(table, PruneRequest(filter="a = 1"))

    def by_manifest(warehouse: Warehouse) -> object:
        return warehouse.snapshot(table)

    for ref, read in ((table.sidecar, by_sidecar), (table.manifest, by_manifest)):
        original = store.read(ref.location)
        store.delete(ref.location)
        store.put(ref.location, original[:-20] + bytes(20))
        with pytest.raises(HashMismatch):
            read(Warehouse(store, "memory://warehouse"))


def test_the_sidecar_holds_the_head_of_its_snapshot(warehouse: Warehouse, table: SnapshotPointer) -> None:
    """Schema, summary and ids in the sidecar are those of the JSON manifest."""
    whole, head = warehouse.snapshot(table), warehouse.head(table)
    assert msgspec.structs.replace(whole, segments=(), sidecar=None) == head
    assert whole.sidecar == table.sidecar


def test_stored_json_is_what_the_api_shows(warehouse: Warehouse, store: CountingStore, table: SnapshotPointer) -> None:
    """A segment's bytes are given as written; an unknown one is named."""
    segment_id = list(warehouse.segments(table))[1].segment_id
    assert b'"memory://data/4.parquet"' in warehouse.segment_bytes(table, segment_id)
    with pytest.raises(SegmentNotFound):
        warehouse.segment_bytes(table, "nosuch")
    assert isinstance(decode_snapshot(store.read(table.manifest.location)), Snapshot)


def test_a_sidecar_that_is_none_is_refused(store: CountingStore, table: SnapshotPointer) -> None:
    """Bytes that are no Arrow file raise a typed error even when the hash agrees."""
    for data in (b"", b"ARROW1", b"x" * 100):
        with pytest.raises(ManifestError):
            Sidecar(data)
    assert isinstance(store.stat(table.sidecar.location), ObjectStat)

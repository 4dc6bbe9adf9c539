"""Deleted rows in commits: merged with those of others, refused where the same rows changed in another way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import msgspec
import numpy as np
import pytest

from lamella.snapshot.commit import Shape
from lamella.snapshot.deletes import VectorFile, deleted_rows
from lamella.snapshot.errors import CommitConflict, InvalidRequest, LamellaError
from lamella.snapshot.manifest import Block, DeleteFile, RowChange, SegmentRef, SnapshotPointer
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Applied, ChangeSet, Warehouse
from lamella.snapshot.wire import BlockDeletes, NoNewMatches, TableRead

SCHEMA = Schema.assign([Column(name="a", type="int64")])
TABLE = "merging"
#: A row: what tells it from others, and how often it was updated.
Row = tuple[int, int]


class World:
    """A table whose files exist only here: by location the row at each position."""

    def __init__(self, name: str, shape: Shape = Shape(segment_blocks=4, group_segments=2, fan_in=2)) -> None:  # noqa: B008  # a frozen value
        self.store = FsspecStore()
        self.root = f"memory://{name}"
        self.warehouse = Warehouse(self.store, self.root, shape=shape)
        self.files: dict[str, tuple[Row, ...]] = {}
        self.now_ms = 1
        self.pointer = self.warehouse.create(TABLE, SCHEMA, now_ms=1)
        self.history = [self.pointer]
        self._next_vectors = 0

    def segments(self, *rows: Sequence[Row]) -> tuple[SegmentRef, ...]:
        """New blocks with these rows, which are in no snapshot."""
        dtype = SCHEMA.leaf("a").dtype
        blocks = []
        for some in rows:
            location = self.at(len(self.files))
            self.files[location] = tuple(some)
            ids = [each[0] for each in some]
            stat = self.store.put(location, b"PAR1-PAR1")
            stats = ColumnStats(min=to_bound(dtype, min(ids)), max=to_bound(dtype, max(ids)), null_count=0)
            blocks.append(
                Block(
                    location=location,
                    row_count=len(some),
                    file_size=stat.size_bytes,
                    col_stats={1: stats},
                    content_id=stat.content_id,
                    schema_id=0,
                )
            )
        return self.warehouse.prepare(TABLE, SCHEMA, blocks)

    def at(self, number: int) -> str:
        """The location of a file."""
        return f"{self.root}/data/{number:05d}.parquet"

    def blocks(self, pointer: SnapshotPointer) -> dict[str, Block]:
        """The blocks of a snapshot."""
        return self.warehouse.entries_at(pointer, list(self.files))

    def positions(self, block: Block) -> list[int]:
        """The rows of a block that are not deleted."""
        deleted = set(deleted_rows(self.store, block.deletes, block.row_count).tolist())
        return [position for position in range(block.row_count) if position not in deleted]

    def rows(self, pointer: SnapshotPointer) -> Counter[Row]:
        """The rows of a snapshot, as a reader of everything finds them."""
        return Counter(
            self.files[block.location][position]
            for block in self.blocks(pointer).values()
            for position in self.positions(block)
        )

    def deletes(self, read_at: SnapshotPointer, rows: dict[str, list[int]]) -> tuple[BlockDeletes, ...]:
        """Vectors with the deleted rows of a snapshot and these positions."""
        blocks = self.blocks(read_at)
        self._next_vectors += 1
        file = VectorFile(f"{self.root}/vectors/{self._next_vectors}.puffin")
        found = []
        for location, more in rows.items():
            block = blocks[location]
            before = deleted_rows(self.store, block.deletes, block.row_count)
            whole = np.union1d(before, np.array(more, dtype=np.int64))
            found.append(BlockDeletes(location=location, deletes=file.add(location, whole)))
        self.store.put(file.location, file.finished())
        return tuple(found)

    def delete(
        self, read_at: SnapshotPointer, rows: dict[str, list[int]], row_change: RowChange = "delete"
    ) -> ChangeSet:
        """A change set that deletes rows at positions."""
        return ChangeSet(
            deletes=self.deletes(read_at, rows), read_at=read_at, operation=row_change, row_change=row_change
        )

    def commit(self, *changes: ChangeSet) -> list[Applied | LamellaError]:
        """Commit change sets as one group."""
        self.now_ms += 1
        done = self.warehouse.commit_many(self.pointer, changes, now_ms=self.now_ms)
        if done.result is not None:
            self.pointer = done.result.pointer
            self.history.append(self.pointer)
        return list(done.outcomes)

    def append(self, *rows: Sequence[Row]) -> None:
        """Append blocks."""
        (outcome,) = self.commit(ChangeSet(added=self.segments(*rows), row_change="append"))
        assert isinstance(outcome, Applied)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    """A table of eight blocks with ten rows each, in two segments."""
    made = World(f"merging/{request.node.name}")
    made.append(*([(number, 0) for number in range(at, at + 10)] for at in range(0, 80, 10)))
    return made


def _ids(world: World) -> list[int]:
    return sorted(row[0] for row in world.rows(world.pointer).elements())


def test_deleting_rows_changes_entries_and_no_other_segment(world: World) -> None:
    """A block keeps its segment's order, other segments are not written, and the summary counts what is left."""
    before = {ref.segment_id for ref in world.warehouse.segments(world.pointer)}
    outcome = world.commit(world.delete(world.pointer, {world.at(1): [0, 9], world.at(2): [4]}))
    assert outcome == [Applied(added=0, removed=0, changed=2)]
    after = world.warehouse.snapshot(world.pointer)
    assert (after.summary.row_count, after.summary.live_row_count, after.summary.deletes_count) == (80, 77, 2)
    assert after.row_changes == ("delete",)
    assert after.required_features == ("deletes",)
    assert len(before.difference(ref.segment_id for ref in world.warehouse.segments(world.pointer))) == 1
    assert sorted(world.blocks(world.pointer)) == [world.at(number) for number in range(8)]
    assert set(_ids(world)) == set(range(80)) - {10, 19, 24}


def test_two_deletes_of_one_block_merge(world: World) -> None:
    """Made on one snapshot, one after the other or in one group; they may have rows in common."""
    base = world.pointer
    first, second = (world.delete(base, {world.at(0): rows}) for rows in ([1, 2], [2, 3]))
    assert [type(each) for each in world.commit(first) + world.commit(second)] == [Applied, Applied]
    third, fourth = (world.delete(base, {world.at(0): rows}) for rows in ([3, 4], [4, 5]))
    assert [type(each) for each in world.commit(third, fourth)] == [Applied, Applied]
    assert set(range(80)) - set(_ids(world)) == {1, 2, 3, 4, 5}
    (entry,) = world.blocks(world.pointer)[world.at(0)].deletes
    assert entry.cardinality == 5


def test_a_block_whose_last_rows_two_deletes_remove_leaves_the_table(world: World) -> None:
    """Neither of them knew that it would be empty."""
    base = world.pointer
    halves = [world.delete(base, {world.at(0): list(rows)}) for rows in (range(5), range(5, 10))]
    assert world.commit(*halves)[1] == Applied(added=0, removed=1, changed=0)
    assert world.at(0) not in world.blocks(world.pointer)
    assert _ids(world) == list(range(10, 80))
    whole = world.delete(world.pointer, {world.at(1): list(range(10))})
    assert world.commit(whole) == [Applied(added=0, removed=1, changed=0)]


@pytest.mark.parametrize("order", ["update first", "delete first"])
def test_an_update_and_a_delete_of_the_same_row_conflict(world: World, order: str) -> None:
    """Otherwise the updated row would remain although it was deleted, or a deleted row would come back."""
    base = world.pointer
    update = ChangeSet(
        added=world.segments([(2, 1)]),
        deletes=world.deletes(base, {world.at(0): [2]}),
        read_at=base,
        operation="update",
        row_change="overwrite",
    )
    delete = world.delete(base, {world.at(0): [2, 3]})
    changes = [update, delete] if order == "update first" else [delete, update]
    assert isinstance(world.commit(changes[0])[0], Applied)
    (refused,) = world.commit(changes[1])
    assert isinstance(refused, CommitConflict)
    assert refused.details["blocks"] == [world.at(0)]


def test_an_update_and_a_delete_of_other_rows_of_a_block_merge(world: World) -> None:
    """Neither saw what the other changed, and need not have."""
    base = world.pointer
    update = ChangeSet(
        added=world.segments([(2, 1)]),
        deletes=world.deletes(base, {world.at(0): [2]}),
        read_at=base,
        row_change="overwrite",
    )
    delete = world.delete(base, {world.at(0): [3]})
    assert [type(each) for each in world.commit(update, delete)] == [Applied, Applied]
    assert world.rows(world.pointer)[2, 1] == 1
    assert set(range(80)) - set(_ids(world)) == {3}


def test_a_removal_of_a_block_that_lost_rows_meanwhile_is_refused(world: World) -> None:
    """A compaction would bring back the deleted row; in one group, too."""
    base = world.pointer
    delete = world.delete(base, {world.at(0): [0]})
    rewrite = ChangeSet(
        added=world.segments([(number, 0) for number in range(10)]),
        removed=(world.at(0),),
        read_at=base,
        operation="compact",
        row_change="replace",
    )
    together = world.commit(delete, rewrite)
    assert isinstance(together[0], Applied)
    assert isinstance(together[1], CommitConflict)
    (after,) = world.commit(rewrite)
    assert isinstance(after, CommitConflict)
    gone = world.commit(
        ChangeSet(removed=(world.at(1),), read_at=base, row_change="delete"), world.delete(base, {world.at(1): [1]})
    )
    assert isinstance(gone[1], CommitConflict)


def test_a_rollback_brings_rows_back_and_a_delete_after_it_takes_only_its_own(world: World) -> None:
    """Made before the rollback, the delete has the other rows in its vector, too."""
    before = world.pointer
    world.commit(world.delete(world.pointer, {world.at(0): [0, 1]}))
    second = world.delete(world.pointer, {world.at(0): [5]})
    update = ChangeSet(deletes=world.deletes(world.pointer, {world.at(0): [6]}), read_at=world.pointer)
    world.now_ms += 1
    world.pointer = world.warehouse.rollback(world.pointer, before, now_ms=world.now_ms).pointer
    assert isinstance(world.commit(second)[0], Applied)
    assert set(range(80)) - set(_ids(world)) == {5}
    (refused,) = world.commit(update)
    assert isinstance(refused, CommitConflict)


def test_a_replacement_with_another_number_of_rows_is_refused(world: World) -> None:
    """It says that the rows are the same, and readers of changes believe it."""
    change = ChangeSet(
        added=world.segments([(number, 0) for number in range(9)]),
        removed=(world.at(0),),
        read_at=world.pointer,
        row_change="replace",
    )
    (refused,) = world.commit(change)
    assert isinstance(refused, InvalidRequest)


def test_deleted_rows_and_compactions_are_no_new_matches(world: World) -> None:
    """Whoever depends on having seen all matching rows has seen them."""
    base = world.pointer
    every_row = NoNewMatches()
    world.commit(world.delete(world.pointer, {world.at(0): [0]}))
    assert world.warehouse.new_matches(base, world.pointer, every_row) is None
    rows = [(number, 0) for number in range(10, 20)]
    rewrite = ChangeSet(
        added=world.segments(rows),
        removed=(world.at(1),),
        read_at=world.pointer,
        operation="compact",
        row_change="replace",
    )
    assert isinstance(world.commit(rewrite)[0], Applied)
    assert world.warehouse.new_matches(base, world.pointer, every_row) is None
    world.append([(100, 0)])
    assert world.warehouse.new_matches(base, world.pointer, every_row) is not None
    assert world.warehouse.new_matches(base, world.pointer, NoNewMatches(filter="a < 50")) is None
    world.now_ms += 1
    world.pointer = world.warehouse.rollback(world.pointer, base, now_ms=world.now_ms).pointer
    after = world.commit(world.delete(world.pointer, {world.at(2): [0]}))
    assert isinstance(after[0], Applied)


def test_rows_that_come_back_are_new_matches(world: World) -> None:
    """A rollback shortens the list of deleted rows of a block."""
    before = world.pointer
    world.commit(world.delete(world.pointer, {world.at(0): [0]}))
    read_at = world.pointer
    world.now_ms += 1
    world.pointer = world.warehouse.rollback(world.pointer, before, now_ms=world.now_ms).pointer
    found = world.warehouse.new_matches(read_at, world.pointer, NoNewMatches(filter="a = 0"))
    assert found is not None
    assert found.details["blocks"] == [world.at(0)]


def test_what_a_change_reads_may_lose_no_row(world: World) -> None:
    """Deleted, added and removed rows count, of other values they do not, and a compaction changes none."""
    base = world.pointer

    def problem(filter: str | None) -> LamellaError | None:
        read = TableRead(table="d.t", snapshot_id=base.snapshot_id, filter=filter)
        return world.warehouse.changed_reads(base, world.pointer, read)

    rewrite = ChangeSet(
        added=world.segments([(number, 0) for number in range(10, 20)]),
        removed=(world.at(1),),
        read_at=world.pointer,
        row_change="replace",
    )
    world.commit(rewrite)
    assert problem(None) is None
    world.commit(world.delete(world.pointer, {world.at(0): [0]}))
    assert (problem("a = 5"), problem("a = 30")) != (None, None)
    assert problem("a = 30") is None
    world.append([(200, 0)])
    assert problem("a > 100") is not None
    world.commit(ChangeSet(removed=(world.at(7),), read_at=world.pointer, row_change="delete"))
    assert problem("a = 75") is not None


def _ledger_after(ledger: Counter[Row], gone: Sequence[Row], fresh: Sequence[Row]) -> Counter[Row]:
    after = ledger.copy()
    after.subtract(gone)
    after.update(fresh)
    return +after


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.few(2)
def test_random_changes_from_older_snapshots_lose_and_resurrect_no_row(seed: int) -> None:
    """Deletes, updates, compactions, appends and rollbacks, several in a group; the table is what a ledger says."""
    random = Random(seed)
    world = World(f"merging/random/{seed}", Shape(segment_blocks=3, group_segments=2, fan_in=2))
    world.append(*([(number, 0) for number in range(at, at + 8)] for at in range(0, 64, 8)))
    ledger = world.rows(world.pointer)
    next_id = 64
    applied = refused = 0
    for _ in range(60):
        if random.random() < 0.06:
            target = random.choice(world.history[1:])
            world.now_ms += 1
            world.pointer = world.warehouse.rollback(world.pointer, target, now_ms=world.now_ms).pointer
            world.history.append(world.pointer)
            ledger = world.rows(target)
            continue
        changes: list[ChangeSet] = []
        effects: list[tuple[list[Row], list[Row]]] = []
        for _ in range(random.choice([1, 1, 2, 3])):
            read_at = random.choice(world.history[-4:])
            blocks = world.blocks(read_at)
            kind = random.choice(["append", "delete", "delete", "update", "replace"])
            if kind == "append" or not blocks:
                rows = [(next_id + at, 0) for at in range(5)]
                next_id += 5
                changes.append(ChangeSet(added=world.segments(rows), row_change="append"))
                effects.append(([], rows))
                continue
            some = random.sample(sorted(blocks), min(len(blocks), random.choice([1, 2, 3])))
            if kind == "replace":
                rows = [world.files[path][at] for path in some for at in world.positions(blocks[path])]
                changes.append(
                    ChangeSet(added=world.segments(rows), removed=tuple(some), read_at=read_at, row_change="replace")
                )
                effects.append(([], []))
                continue
            picked = {}
            for path in some:
                live = world.positions(blocks[path])
                picked[path] = sorted(random.sample(live, random.randint(1, len(live))))
            gone = [world.files[path][at] for path, rows_of in picked.items() for at in rows_of]
            if kind == "delete":
                changes.append(world.delete(read_at, picked))
                effects.append((gone, []))
            else:
                fresh = [(row[0], row[1] + 1) for row in gone]
                changes.append(
                    ChangeSet(
                        added=world.segments(fresh),
                        deletes=world.deletes(read_at, picked),
                        read_at=read_at,
                        row_change="overwrite",
                    )
                )
                effects.append((gone, fresh))
        outcomes = world.commit(*changes)
        for change, (gone, fresh), outcome in zip(changes, effects, outcomes, strict=True):
            if isinstance(outcome, LamellaError):
                assert isinstance(outcome, CommitConflict)
                refused += 1
                continue
            applied += 1
            if change.row_change == "overwrite":
                assert all(ledger[row] for row in gone), "a row that was gone was updated"
            if change.row_change == "delete":
                ids = {row[0] for row in ledger.elements()} & {row[0] for row in gone}
                assert ids <= {row[0] for row in gone if ledger[row]}, (
                    "a row that was updated meanwhile was to be deleted"
                )
            ledger = _ledger_after(ledger, gone, fresh)
        assert world.rows(world.pointer) == ledger
        summary = world.warehouse.snapshot(world.pointer).summary
        assert summary.live_row_count == ledger.total()
        assert max(ledger.values(), default=1) == 1
    assert applied > 20
    assert refused > 3


def test_vectors_of_one_file_are_read_together(world: World) -> None:
    """A commit over many blocks reads a file of vectors once, however many it has."""

    class Counting(FsspecStore):
        reads = 0

        def read_range(self, location: str, start: int, length: int) -> bytes:
            type(self).reads += location.endswith(".puffin")
            return super().read_range(location, start, length)

    base = world.pointer
    world.commit(world.delete(base, {world.at(number): [1] for number in range(8)}))
    second = world.delete(base, {world.at(number): [2] for number in range(8)})
    world.warehouse = Warehouse(Counting(), world.root)
    assert isinstance(world.commit(second)[0], Applied)
    assert Counting.reads == 2
    entries = [entry for block in world.blocks(world.pointer).values() for entry in block.deletes]
    assert len({entry.location for entry in entries}) == 1
    assert isinstance(entries[0], DeleteFile)
    assert msgspec.json.encode(entries[0])

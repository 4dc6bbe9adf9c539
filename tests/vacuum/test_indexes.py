"""Clean-up and skip indexes: what a snapshot's indexes consist of stays, the rest goes, and no take-up is overtaken."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import pytest

from lamella.service.history.history import history_entry
from lamella.snapshot.errors import LamellaError, Unavailable
from lamella.snapshot.index import PartRef
from lamella.snapshot.index.directory import Addition
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.manifest.block_key import BlockKeys
from lamella.snapshot.storage import TableLayout
from lamella.snapshot.warehouse import CommitResult
from lamella.snapshot.wire import VacuumRequest
from vacuum.lake import DAY, MIN_AGE, Lake

Parts = Sequence[tuple[PartRef, BlockKeys]]


def step(
    lake: Lake, table_id: str, change: Callable[[SnapshotPointer], CommitResult], *, takes_up: bool = False
) -> None:
    """A change of indexes, as the service makes it: guard, write, swap."""
    guard = lake.catalog.guard(table_id, (), since_ms=lake.now_ms)
    finish(lake, table_id, change, msgspec.structs.replace(guard, adds_files=takes_up))


def finish(lake: Lake, table_id: str, change: Callable[[SnapshotPointer], CommitResult], guard: object) -> None:
    """The rest of it, with a guard that was made before."""
    record = lake.catalog.table_by_id(table_id)
    result = change(record.pointer)
    entry = history_entry(record.version + 1, result.pointer, result.snapshot)
    if not lake.catalog.advance(table_id, entry, guard=guard):  # type: ignore[arg-type]  # a CommitGuard
        raise Unavailable("another commit came first", retry_after_s=0)


def part(lake: Lake, table_id: str) -> tuple[PartRef, BlockKeys]:
    """A part over one block; nobody looks into it here."""
    location = TableLayout(lake.warehouse.table_location(table_id)).index_part(lake.ids.new())
    lake.store.put(location, b"part")
    keys = np.array([[1, lake.ids.new().int & 0xFFFF]], dtype=np.uint64)
    return PartRef(location=location, size_bytes=4, tail_bytes=1, tail_sha256="", block_count=1), keys


def indexed(lake: Lake) -> tuple[str, str]:
    """A table with an index of one part; the table's id, and the index's."""
    table_id = lake.table(f"t{lake.now_ms}")
    lake.append(table_id)
    step(
        lake,
        table_id,
        lambda base: lake.warehouse.indexing.create(
            base, name="i", kind="value_set", expression="a", now_ms=lake.now_ms
        ),
    )
    index_id = lake.warehouse.snapshot(lake.catalog.table_by_id(table_id).pointer).skip_indexes[0].index_id
    add(lake, table_id, index_id, [part(lake, table_id)])
    return table_id, index_id


def add(lake: Lake, table_id: str, index_id: str, parts: Parts) -> None:
    """Parts for the index."""
    step(lake, table_id, lambda base: adding(lake, index_id, parts)(base), takes_up=True)


def adding(lake: Lake, index_id: str, parts: Parts) -> Callable[[SnapshotPointer], CommitResult]:
    """What adds parts to a base."""
    return lambda base: lake.warehouse.indexing.add_parts(base, index_id, parts, now_ms=lake.now_ms)


def objects(lake: Lake, table_id: str) -> list[str]:
    """What is in the folder of indexes."""
    root = lake.warehouse.table_location(table_id)
    return [found.location for found in lake.store.list(f"{root}/_ix/")]


def clean(lake: Lake, table_id: str) -> None:
    """A whole clean-up, much later."""
    lake.now_ms += 30 * DAY
    lake.cleaner().vacuum(lake.catalog.table_by_id(table_id), VacuumRequest(execute=True))


def test_objects_of_an_index_live_as_long_as_a_snapshot_has_them(lake: Lake) -> None:
    """Also those of a dropped index; once it is removed and the snapshots before have expired, they go."""
    table_id, _ = indexed(lake)
    garbage, _ = part(lake, table_id)
    clean(lake, table_id)
    assert len(objects(lake, table_id)) == 2
    assert garbage.location not in objects(lake, table_id)
    step(lake, table_id, lambda base: lake.warehouse.indexing.drop(base, "i", now_ms=lake.now_ms))
    clean(lake, table_id)
    assert len(objects(lake, table_id)) == 2
    step(lake, table_id, lambda base: lake.warehouse.indexing.restore(base, "i", now_ms=lake.now_ms))
    step(lake, table_id, lambda base: lake.warehouse.indexing.drop(base, "i", now_ms=lake.now_ms))
    step(lake, table_id, lambda base: lake.warehouse.indexing.remove(base, "i", now_ms=lake.now_ms))
    clean(lake, table_id)
    assert objects(lake, table_id) == []


def test_a_tag_keeps_the_objects_of_an_index_that_was_removed(lake: Lake) -> None:
    """Time travel uses the indexes of its snapshot."""
    table_id, _ = indexed(lake)
    lake.tag(table_id, "then", lake.catalog.snapshot(table_id, lake.catalog.table_by_id(table_id).pointer.snapshot_id))
    step(lake, table_id, lambda base: lake.warehouse.indexing.drop(base, "i", now_ms=lake.now_ms))
    step(lake, table_id, lambda base: lake.warehouse.indexing.remove(base, "i", now_ms=lake.now_ms))
    clean(lake, table_id)
    assert len(objects(lake, table_id)) == 2


def committing(lake: Lake, table_id: str, index_id: str, parts: Parts) -> Callable[[SnapshotPointer], CommitResult]:
    """What adds parts to a base together with a new block."""
    block = lake.block(lake.file(table_id))

    def commit(base: SnapshotPointer) -> CommitResult:
        added = lake.warehouse.prepare(table_id, lake.warehouse.snapshot(base), [block])
        additions = [Addition(index_id, tuple(parts))]
        return lake.warehouse.commit(base, added=added, index_parts=additions, now_ms=lake.now_ms)

    return commit


@pytest.mark.parametrize("with_blocks", [False, True])
@pytest.mark.parametrize("at", range(1, 25))
def test_parts_that_are_taken_up_beside_a_clean_up_are_there_or_refused(lake: Lake, at: int, with_blocks: bool) -> None:
    """An old part, built by a job that took very long, is never in a snapshot and deleted."""
    table_id, index_id = indexed(lake)
    old_part = part(lake, table_id)
    change = committing(lake, table_id, index_id, [old_part]) if with_blocks else adding(lake, index_id, [old_part])
    lake.now_ms += MIN_AGE + DAY
    before = lake.catalog.guard(table_id, [old_part[0].location], since_ms=lake.now_ms)
    guard = msgspec.structs.replace(before, adds_files=True)
    outcome: list[str] = []
    left = at

    def hook(done: str, _location: str) -> None:
        nonlocal left
        if done == "put" or outcome:
            return
        left -= 1
        if left == 0:
            lake.store.hook = None
            try:
                finish(lake, table_id, change, guard)
                outcome.append("done")
            except LamellaError as error:
                outcome.append(error.code)

    lake.store.hook = hook
    lake.cleaner().vacuum(lake.catalog.table_by_id(table_id), VacuumRequest(execute=True))
    lake.store.hook = None
    if not outcome:
        with pytest.raises(Unavailable):
            finish(lake, table_id, change, guard)
        return
    taken = outcome == ["done"]
    assert taken or outcome == ["unavailable"]
    needed = lake.fresh_warehouse().objects(lake.catalog.table_by_id(table_id).pointer).locations()
    assert (old_part[0].location in needed) == taken
    there = objects(lake, table_id)
    assert not taken or old_part[0].location in there
    assert {location for location in needed if "/_ix/" in location} <= set(there)

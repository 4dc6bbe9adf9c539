"""Exports beside clean-up, beside each other, and ended in between: whatever the metadata names can be read."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from iceberg.conftest import MakeTable
from iceberg.exporting import exported, opened, rows
from lamella.client.iceberg.export import HOLD
from lamella.client.jobs.rewrite import compact
from lamella.snapshot.errors import Conflict, ObjectNotFound
from lamella.snapshot.ids import Ids
from lamella.snapshot.storage import FsspecStore, ObjectStat
from lamella.snapshot.vacuum import object_name
from support.event_tables import EventTable, events


class Died(Exception):
    """The process ended here."""


class MortalStore(FsspecStore):
    """A store whose user dies before or right after the ``at``-th write."""

    def __init__(self, at: int, *, after: bool) -> None:
        super().__init__()
        self._left = at
        self._after = after

    def _step(self, write: Callable[[], ObjectStat | None]) -> ObjectStat | None:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Died
        done = write()
        if self._left == 0:
            raise Died
        return done

    def put(self, location: str, data: bytes) -> ObjectStat:
        found = self._step(lambda: super(MortalStore, self).put(location, data))
        assert found is not None
        return found

    def replace(self, location: str, data: bytes) -> None:
        self._step(lambda: super(MortalStore, self).replace(location, data))


def add(table: EventTable, seed: int) -> None:
    """One more file."""
    table.add(events(random.Random(seed), 15))


def folder_of(table: EventTable) -> Path:
    """Where the export's files are."""
    return Path(table.handle.info().location.removeprefix("file://")) / "_iceberg" / "metadata"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_killed_export_leaves_what_was_there(make_table: MakeTable, after: bool) -> None:
    """At whichever write it ends, readers see the last export or the new one; the next export finishes it."""
    table = make_table()
    add(table, 1)
    exported(table)
    for step in range(1, 5):  # manifest, list, metadata, hint
        before = table.rows()
        add(table, step + 1)
        now = table.rows()
        with pytest.raises(Died):
            exported(table, MortalStore(step, after=after))
        location = table.handle.info().location + "/_iceberg"
        seen = rows(StaticTable.from_metadata(location))
        assert seen == (now if (step, after) == (4, True) else before)
        done = exported(table)
        assert rows(opened(done)) == now
        assert rows(StaticTable.from_metadata(location)) == now
        assert done.manifests_written == (step == 1 and not after)


def test_exports_at_once_do_each_others_work(make_table: MakeTable) -> None:
    """Both end well or say that others were faster, and the last version has all that was exported."""
    table = make_table()
    barrier = threading.Barrier(4)
    add(table, 1)
    snapshots = []
    for seed in range(4):
        add(table, 10 + seed)
        snapshots.append(table.handle.info().snapshot_id)

    def one(snapshot_id: str) -> bool:
        barrier.wait()
        try:
            exported(table, snapshot=snapshot_id, no_hold=True)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(one, snapshots))
    assert all(ended)
    done = exported(table, snapshot=snapshots[-1], no_hold=True)
    found = opened(done)
    assert done.snapshots == 4
    for snapshot in found.snapshots():
        assert snapshot.summary is not None
        assert rows(found, snapshot.snapshot_id) == table.rows(snapshot.summary["lamella.snapshot-id"])
    assert (folder_of(table) / "version-hint.text").read_text() == Path(done.metadata_location).name.split(".")[0][1:]


def test_what_expired_is_no_longer_named(make_table: MakeTable) -> None:
    """Clean-up takes what snapshots that expired alone had, and the next export forgets them."""
    table = make_table()
    for seed in range(4):
        add(table, seed)
    exported(table)
    old = {path.name for path in folder_of(table).glob("*.avro")}
    compact(table.context(block_rows=500))
    assert exported(table).snapshots == 2
    assert table.handle.vacuum(execute=True).garbage["export"].objects == len(old)
    left = {path.name for path in folder_of(table).glob("*.avro")}
    assert not old & left
    assert len(left) == 2
    done = exported(table)
    assert (done.snapshots, done.forgotten, done.manifests_written) == (1, 1, 0)
    assert rows(opened(done)) == table.rows()


def test_what_is_exported_does_not_expire(make_table: MakeTable) -> None:
    """The tag moves with each export, so the last one can be read however long ago it was."""
    table = make_table()
    add(table, 1)
    add(table, 2)
    done, expected = exported(table), table.rows()
    compact(table.context(block_rows=500))
    add(table, 3)
    cleaned = table.handle.vacuum(execute=True)
    assert cleaned.unknown.objects == 0
    assert rows(opened(done)) == expected
    assert [tag.snapshot_id for tag in table.handle.tags() if tag.name == HOLD] == [done.snapshot_id]
    newer = exported(table)
    table.handle.vacuum(execute=True)
    assert rows(opened(newer)) == table.rows()


def test_without_a_tag_it_expires(make_table: MakeTable) -> None:
    """Then the export names files that are gone, until the next one."""
    table = make_table()
    add(table, 1)
    done = exported(table, no_hold=True)
    add(table, 2)
    assert done.held_by is None
    table.handle.vacuum(execute=True)
    assert not any(name.name.startswith(f"snap-{done.snapshot_id}") for name in folder_of(table).iterdir())
    with pytest.raises((FileNotFoundError, ObjectNotFound)):
        opened(done).scan().to_arrow()
    assert rows(opened(exported(table, no_hold=True))) == table.rows()


def test_an_export_goes_with_its_table(make_table: MakeTable) -> None:
    """Purging a dropped table leaves nothing of the export."""
    table = make_table()
    add(table, 1)
    exported(table)
    folder = folder_of(table)
    assert any(folder.iterdir())
    table.lake.drop_table(table.name, purge=True)
    table.lake.purge_dropped(execute=True)
    assert not any(folder.iterdir())


def test_names_of_exports_are_understood() -> None:
    """Each with what it was made of; what only looks alike is nobody's."""
    root, one = "file:///w/t", str(Ids().new())
    found = object_name(root, f"{root}/_iceberg/metadata/{one}-0123abcd.avro")
    assert found is not None
    assert (found.kind, found.folder, found.id) == ("export", "_sg", one)
    found = object_name(root, f"{root}/_iceberg/metadata/snap-{one}-0123abcd.avro")
    assert found is not None
    assert (found.kind, found.folder, found.id) == ("export", "_ss", one)
    for whole in ("v12.metadata.json", "version-hint.text"):
        found = object_name(root, f"{root}/_iceberg/metadata/{whole}")
        assert found is not None
        assert (found.kind, found.id) == ("export", "")
    torn = object_name(root, f"{root}/_iceberg/metadata/.v1.metadata.json.{'a' * 32}.tmp")
    assert torn is not None
    assert torn.kind == "temporary"
    for strange in ("v0.metadata.json", "v1.json", f"{one}.avro", f"{one}-0123abcd.avro.bak", "x/v1.metadata.json"):
        assert object_name(root, f"{root}/_iceberg/metadata/{strange}") is None

"""Leases, condemned objects and guards, over SQLite and PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lamella.service.catalog import (
    CommitGuard,
    HistoryEntry,
    LeaseRecord,
    SqlCatalog,
    SweepMark,
    TableRecord,
    open_catalog,
)
from lamella.service.catalog.snapshots import LEASE_GRACE_MS
from lamella.snapshot.errors import DeletionPending, LeaseNotFound, SnapshotExpired, TableNotFound, Unavailable
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import ObjectRef, SnapshotPointer
from lamella.snapshot.wire import NamespaceInfo

IDS = Ids()
BACKENDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))


@pytest.fixture(params=BACKENDS)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog with the namespace ``db``."""
    sqlite = request.param == "sqlite"
    url = str(tmp_path / "catalog.db") if sqlite else str(request.getfixturevalue("postgres_database"))
    catalog = open_catalog(url, connections=20)
    catalog.create_namespace(NamespaceInfo(name="db"), now_ms=1)
    yield catalog
    catalog.close()


def entry(seq: int) -> HistoryEntry:
    """A snapshot of a table's history."""
    ref = ObjectRef(location=f"file:///{seq}", size_bytes=seq, sha256="0" * 64)
    pointer = SnapshotPointer(snapshot_id=str(IDS.new()), timestamp_ms=1_000 * seq, manifest=ref, sidecar=ref)
    return HistoryEntry(
        seq=seq,
        pointer=pointer,
        prev_snapshot_id=None,
        operation="append",
        row_count=1,
        block_count=1,
        segment_count=1,
        file_size_bytes=1,
    )


def new_table(catalog: SqlCatalog, name: str = "t", snapshots: int = 3) -> tuple[str, list[HistoryEntry]]:
    """A table with a history, oldest first."""
    history = [entry(seq) for seq in range(1, snapshots + 1)]
    record = TableRecord(
        table_id=str(IDS.new()),
        namespace="db",
        name=name,
        location="file:///w/t",
        version=1,
        pointer=history[0].pointer,
        created_at_ms=5,
    )
    catalog.create_table(record, history[0])
    for one in history[1:]:
        assert catalog.advance(record.table_id, one)
    return record.table_id, history


def lease(table_id: str, snapshot: HistoryEntry, expires_at_ms: int = 10_000) -> LeaseRecord:
    """A lease of a snapshot."""
    return LeaseRecord(
        lease_id=str(IDS.new()),
        table_id=table_id,
        seq=snapshot.seq,
        snapshot_id=snapshot.pointer.snapshot_id,
        owner="reader",
        created_at_ms=1,
        expires_at_ms=expires_at_ms,
    )


def deletion_marks(table_id: str, location: str, kind: str = "block") -> SweepMark:
    """An object that is to be deleted."""
    return SweepMark(location=location, table_id=table_id, kind=kind, size_bytes=7, marked_at_ms=9)


def test_a_lease_holds_its_snapshot_until_it_ends(catalog: SqlCatalog) -> None:
    """It is believed a little longer than it says, and then nothing has to be done for it to end."""
    table_id, history = new_table(catalog)
    taken = lease(table_id, history[0])
    catalog.add_lease(taken)
    assert catalog.leases(table_id, now_ms=9_999) == [taken]
    assert catalog.leases(table_id, now_ms=10_000) == []
    assert catalog.expire_snapshots(table_id, [1, 2, 3], now_ms=9_999 + LEASE_GRACE_MS) == [2]
    assert catalog.expire_snapshots(table_id, [1, 2, 3], now_ms=10_000 + LEASE_GRACE_MS) == [1]
    assert [one.seq for one in catalog.whole_history(table_id)] == [3]


def test_only_what_is_there_can_be_leased_and_only_in_time_renewed(catalog: SqlCatalog) -> None:
    """Expired snapshots, dropped tables and leases that ran out are refused; a release is never an error."""
    table_id, history = new_table(catalog)
    taken = lease(table_id, history[1])
    catalog.add_lease(taken)
    catalog.renew_lease(table_id, taken.lease_id, expires_at_ms=20_000, now_ms=9_000)
    assert catalog.leases(table_id, now_ms=15_000)[0].expires_at_ms == 20_000
    for table, lease_id, now_ms in ((table_id, taken.lease_id, 20_000), (table_id, "x", 1), ("x", taken.lease_id, 1)):
        with pytest.raises(LeaseNotFound):
            catalog.renew_lease(table, lease_id, expires_at_ms=30_000, now_ms=now_ms)
    catalog.release_lease(table_id, taken.lease_id)
    catalog.release_lease(table_id, taken.lease_id)
    assert catalog.expire_snapshots(table_id, [1], now_ms=1) == [1]
    with pytest.raises(SnapshotExpired):
        catalog.add_lease(lease(table_id, history[0]))
    catalog.drop_table("db", "t", now_ms=5)
    with pytest.raises(TableNotFound):
        catalog.add_lease(lease(table_id, history[2]))


def test_marked_objects_are_listed_until_they_are_unmarked(catalog: SqlCatalog) -> None:
    """In pages, by table; condemning twice is condemning once; a forgotten table leaves nothing."""
    table_id, _ = new_table(catalog)
    other, _ = new_table(catalog, "other")
    objects = [deletion_marks(table_id, f"file:///x/{number:04}") for number in range(1_203)]
    for _ in range(2):
        catalog.mark_for_deletion(table_id, objects, watermark_ms=0)
    catalog.mark_for_deletion(other, [deletion_marks(other, "file:///x/0000")], watermark_ms=0)
    first = catalog.deletion_marks(table_id, after="", limit=1_000)
    rest = catalog.deletion_marks(table_id, after=first[-1].location, limit=1_000)
    assert [*first, *rest] == objects
    catalog.unmark(table_id, [one.location for one in objects[1:]])
    assert catalog.deletion_marks(table_id, after="", limit=10) == objects[:1]
    with pytest.raises(TableNotFound):
        catalog.mark_for_deletion("nobody", objects, watermark_ms=0)
    catalog.drop_table("db", "t", now_ms=5, purge=True)
    assert catalog.forget_table(table_id)
    assert catalog.deletion_marks(table_id, after="", limit=10) == []
    assert len(catalog.deletion_marks(other, after="", limit=10)) == 1


def test_a_guard_notices_what_was_marked_since(catalog: SqlCatalog) -> None:
    """Blocks of the table, external files anywhere, and leaves that are older than the watermark; nothing else."""
    table_id, _ = new_table(catalog)
    other, _ = new_table(catalog, "other")

    def lands(guard: CommitGuard) -> bool:
        version = catalog.table_by_id(table_id).version
        try:
            return catalog.advance(table_id, entry(version + 1), guard=guard)
        except Unavailable:
            assert catalog.table_by_id(table_id).version == version
            return False

    def guards() -> tuple[CommitGuard, CommitGuard]:
        return catalog.guard(table_id, ["file:///a"], since_ms=100), catalog.guard(table_id, (), since_ms=100)

    adds, plain = guards()
    assert lands(adds)
    assert lands(plain)
    catalog.mark_for_deletion(other, [deletion_marks(other, "file:///b")], watermark_ms=1_000)
    assert lands(adds)
    catalog.mark_for_deletion(table_id, [deletion_marks(table_id, "file:///s", "segment")], watermark_ms=99)
    assert lands(adds)
    catalog.mark_for_deletion(table_id, [deletion_marks(table_id, "file:///c")], watermark_ms=50)
    assert not lands(adds)
    assert lands(plain)
    adds, plain = guards()
    assert lands(adds)
    catalog.mark_for_deletion(other, [deletion_marks(other, "file:///d", "external")], watermark_ms=0)
    assert not lands(adds)
    assert lands(plain)
    catalog.mark_for_deletion(table_id, [deletion_marks(table_id, "file:///t", "segment")], watermark_ms=100)
    assert not lands(plain)
    with pytest.raises(DeletionPending):
        catalog.guard(table_id, ["file:///a", "file:///d"], since_ms=1_000)
    catalog.unmark(other, ["file:///d"])
    assert lands(catalog.guard(table_id, ["file:///d"], since_ms=1_000))


def commit_beside(catalog: SqlCatalog, table_id: str, guard: CommitGuard, one: SweepMark) -> tuple[bool, bool]:
    """Commit and condemn at once: whether the commit landed, and whether the look behind the condemnation saw it."""
    start = threading.Barrier(2)

    def commit() -> bool:
        start.wait()
        try:
            return catalog.advance(table_id, entry(2), guard=guard)
        except Unavailable:
            return False

    def mark_for_deletion() -> bool:
        start.wait()
        catalog.mark_for_deletion(table_id, [one], watermark_ms=0)
        return any(record.seq == 2 for record in catalog.whole_history(table_id))

    with ThreadPoolExecutor(2) as pool:
        applied, seen = pool.submit(commit), pool.submit(mark_for_deletion)
    return applied.result(), seen.result()


@pytest.mark.parametrize("kind", ["block", "external"])
def test_a_commit_and_a_condemnation_that_meet_never_both_win(catalog: SqlCatalog, kind: str) -> None:
    """Whoever comes second knows of the first: the last look sees the commit, or the commit is refused."""
    for number in range(25):
        table_id, _ = new_table(catalog, f"t{number}", snapshots=1)
        location = f"file:///{kind}/{number}"
        guard = catalog.guard(table_id, [location], since_ms=100)
        applied, seen = commit_beside(catalog, table_id, guard, deletion_marks(table_id, location, kind))
        assert applied == seen
        assert applied == (catalog.table_by_id(table_id).version == 2)

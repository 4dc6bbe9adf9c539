"""Tags, expiry and undropping in the catalog: one behaviour over SQLite and PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from lamella.service.catalog import (
    Catalog,
    HistoryEntry,
    SqlCatalog,
    StoredAnswer,
    TableRecord,
    TagRecord,
    open_catalog,
)
from lamella.snapshot.errors import (
    AlreadyExists,
    CommitConflict,
    IdempotencyMismatch,
    LamellaError,
    NamespaceNotFound,
    QuotaExceeded,
    SnapshotExpired,
    SnapshotNotFound,
    TableNotFound,
    TagNotFound,
)
from lamella.snapshot.ids import Ids, uuid7
from lamella.snapshot.manifest import ObjectRef, SnapshotPointer
from lamella.snapshot.wire import NamespaceInfo

IDS = Ids()
BACKENDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))


@pytest.fixture(params=BACKENDS)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog with the namespace ``db``."""
    if request.param == "sqlite":
        url = str(tmp_path / "catalog.db")
    else:
        url = str(request.getfixturevalue("postgres_database"))
    catalog = open_catalog(url, connections=20)
    catalog.create_namespace(NamespaceInfo(name="db"), now_ms=1)
    yield catalog
    catalog.close()


def entry(seq: int, prev: HistoryEntry | None = None) -> HistoryEntry:
    """The snapshot that was made at ``1000 * seq``, by the clock and by its id."""
    ref = ObjectRef(location=f"file:///{seq}", size_bytes=seq, sha256="0" * 64)
    return HistoryEntry(
        seq=seq,
        pointer=SnapshotPointer(
            snapshot_id=str(uuid7(1_000 * seq, IDS.new().bytes[-10:])),
            timestamp_ms=1_000 * seq,
            manifest=ref,
            sidecar=ref,
        ),
        prev_snapshot_id=None if prev is None else prev.pointer.snapshot_id,
        operation="append",
        row_count=0,
        block_count=0,
        segment_count=0,
        file_size_bytes=0,
    )


def new_table(catalog: Catalog, snapshots: int = 1, name: str = "t", namespace: str = "db") -> list[HistoryEntry]:
    """A table with a history of so many snapshots; ``seq`` 1 first."""
    entries = [entry(1)]
    record = TableRecord(
        table_id=str(IDS.new()),
        namespace=namespace,
        name=name,
        location="file:///w/t",
        version=1,
        pointer=entries[0].pointer,
        created_at_ms=1_000,
    )
    catalog.create_table(record, entries[0])
    for seq in range(2, snapshots + 1):
        entries.append(entry(seq, entries[-1]))
        assert catalog.advance(record.table_id, entries[-1])
    return [
        msgspec.structs.replace(each, table_id=record.table_id, since_ms=each.pointer.timestamp_ms) for each in entries
    ]


def table_id(catalog: Catalog, name: str = "t") -> str:
    """The id of a live table."""
    return catalog.table("db", name).table_id


def tag(catalog: Catalog, name: str, of: HistoryEntry, expires_at_ms: int | None = None) -> TagRecord:
    """A tag to be put onto the table's snapshot."""
    return TagRecord(
        table_id=table_id(catalog),
        name=name,
        seq=of.seq,
        snapshot_id=of.pointer.snapshot_id,
        timestamp_ms=of.pointer.timestamp_ms,
        created_at_ms=7,
        expires_at_ms=expires_at_ms,
    )


def stored(key: str = "k", request_sha256: str = "a") -> StoredAnswer:
    """An answer to be remembered."""
    return StoredAnswer(
        key=key, scope="POST /x", request_sha256=request_sha256, status=201, body=b"{}", created_at_ms=100
    )


def test_a_tag_names_a_snapshot_until_it_is_dropped(catalog: Catalog) -> None:
    """Names are case-sensitive and listed in the order of code points; another table's tags are its own."""
    first, second = new_table(catalog, 2)
    new_table(catalog, name="other")
    made = [tag(catalog, name, of) for name, of in (("a", first), ("B", second))]
    for each in made:
        catalog.put_tag(each, move=False, now_ms=10)
    mine = table_id(catalog)
    assert catalog.tags(mine, now_ms=10) == made[::-1]
    assert catalog.tag(mine, "a", now_ms=10) == made[0]
    assert catalog.tagged(mine, "B", now_ms=10) == second
    for other, name in ((mine, "b"), (mine, "A"), (table_id(catalog, "other"), "a"), (mine, "\0")):
        with pytest.raises(TagNotFound):
            catalog.tagged(other, name, now_ms=10)
    catalog.drop_tag(mine, "a", now_ms=10)
    with pytest.raises(TagNotFound):
        catalog.drop_tag(mine, "a", now_ms=10)
    assert catalog.tags(mine, now_ms=10) == made[1:]


def test_a_snapshot_has_a_number_while_it_is_in_the_history(catalog: Catalog) -> None:
    """Numbers begin at 1; one that expired is said to be expired, and one that never was is not found."""
    entries = new_table(catalog, 3)
    mine = table_id(catalog)
    assert [catalog.numbered(mine, number) for number in (1, 2, 3)] == entries
    assert catalog.expire_snapshots(mine, [2], now_ms=10) == [2]
    with pytest.raises(SnapshotExpired):
        catalog.numbered(mine, 2)
    for number in (0, 4, 10**18 - 1):
        with pytest.raises(SnapshotNotFound) as caught:
            catalog.numbered(mine, number)
        assert not isinstance(caught.value, SnapshotExpired)


def test_a_tag_moves_only_when_that_is_said(catalog: Catalog) -> None:
    """A name that is taken is refused without `move`, and one that is not there with it."""
    first, second = new_table(catalog, 2)
    catalog.put_tag(tag(catalog, "a", first), move=False, now_ms=10)
    with pytest.raises(AlreadyExists):
        catalog.put_tag(tag(catalog, "a", second), move=False, now_ms=10)
    with pytest.raises(TagNotFound):
        catalog.put_tag(tag(catalog, "b", second), move=True, now_ms=10)
    catalog.put_tag(tag(catalog, "a", second, expires_at_ms=50), move=True, now_ms=10)
    assert catalog.tags(table_id(catalog), now_ms=10) == [tag(catalog, "a", second, expires_at_ms=50)]


def test_a_tag_ends_at_its_time(catalog: Catalog) -> None:
    """From that millisecond on it names nothing, cannot be moved or dropped, and its name is free."""
    first, second = new_table(catalog, 2)
    catalog.put_tag(tag(catalog, "a", first, expires_at_ms=20), move=False, now_ms=10)
    mine = table_id(catalog)
    assert catalog.tagged(mine, "a", now_ms=19) == first
    for act in (
        lambda: catalog.tag(mine, "a", now_ms=20),
        lambda: catalog.tagged(mine, "a", now_ms=20),
        lambda: catalog.drop_tag(mine, "a", now_ms=20),
        lambda: catalog.put_tag(tag(catalog, "a", second), move=True, now_ms=20),
    ):
        with pytest.raises(TagNotFound):
            act()
    assert catalog.tags(mine, now_ms=20) == []
    catalog.put_tag(tag(catalog, "a", second), move=False, now_ms=20)
    assert catalog.tagged(mine, "a", now_ms=20) == second


def test_a_tag_needs_a_snapshot_of_a_live_table(catalog: Catalog) -> None:
    """Neither an expired snapshot nor one of a dropped table can be tagged."""
    entries = new_table(catalog, 3)
    gone = tag(catalog, "a", entries[0])
    assert catalog.expire_snapshots(gone.table_id, [1], now_ms=10) == [1]
    with pytest.raises(SnapshotExpired):
        catalog.put_tag(gone, move=False, now_ms=10)
    of_dropped = tag(catalog, "a", entries[2])
    catalog.drop_table("db", "t", now_ms=10)
    with pytest.raises(TableNotFound):
        catalog.put_tag(of_dropped, move=False, now_ms=10)


def test_tagged_and_current_snapshots_do_not_expire(catalog: Catalog) -> None:
    """A living tag holds its snapshot, one whose time is over does not; the current one always stays."""
    entries = new_table(catalog, 5)
    mine = table_id(catalog)
    catalog.put_tag(tag(catalog, "kept", entries[1]), move=False, now_ms=10)
    catalog.put_tag(tag(catalog, "over", entries[2], expires_at_ms=50), move=False, now_ms=10)
    assert catalog.expire_snapshots(mine, [1, 2, 3, 5, 99], now_ms=50) == [1, 3]
    assert [found.seq for found in catalog.history(mine, limit=10)] == [5, 4, 2]
    assert catalog.expire_snapshots(mine, [1, 3], now_ms=50) == []
    assert catalog.expire_snapshots(str(IDS.new()), [1], now_ms=50) == []
    assert catalog.advance(mine, entry(6, entries[-1]))


def test_a_time_in_a_gap_is_expired_and_never_another_snapshot(catalog: Catalog) -> None:
    """What was current then is gone; the one before it would be a wrong answer."""
    entries = new_table(catalog, 6)
    mine = table_id(catalog)
    assert catalog.expire_snapshots(mine, [4], now_ms=10) == [4]
    assert catalog.expire_snapshots(mine, [1, 3], now_ms=10) == [1, 3]
    there = {2_000: 2, 2_999: 2, 5_000: 5, 5_999: 5, 6_000: 6, 99_000: 6}
    assert {at: catalog.snapshot_at(mine, at).seq for at in there} == there
    for at in (1_000, 1_999, 3_000, 3_999, 4_000, 4_999):
        with pytest.raises(SnapshotExpired):
            catalog.snapshot_at(mine, at)
    with pytest.raises(SnapshotNotFound) as caught:
        catalog.snapshot_at(mine, 999)
    assert type(caught.value) is SnapshotNotFound
    assert catalog.snapshot(mine, entries[1].pointer.snapshot_id).until_ms == 3_000


def test_an_id_that_expired_is_distinguished_from_one_that_never_was(catalog: Catalog) -> None:
    """By its time, in a history with gaps; in a whole history an unknown id never was."""
    entries = new_table(catalog, 3)
    mine = table_id(catalog)
    expired = entries[0].pointer.snapshot_id
    strangers = [str(uuid7(1_500, b"\1" * 10)), str(uuid7(999_000_000, b"\1" * 10)), str(UUID(int=5))]

    def kinds(*ids: str) -> list[type[LamellaError]]:
        found: list[type[LamellaError]] = []
        for each in ids:
            with pytest.raises(SnapshotNotFound) as caught:
                catalog.snapshot(mine, each)
            found.append(type(caught.value))
        return found

    assert kinds(*strangers) == [SnapshotNotFound] * 3
    assert catalog.expire_snapshots(mine, [1], now_ms=10) == [1]
    assert kinds(expired, *strangers[1:]) == [SnapshotExpired, SnapshotNotFound, SnapshotNotFound]


def test_the_pointer_does_not_move_to_what_builds_on_an_expired_snapshot(catalog: Catalog) -> None:
    """A rollback whose target expired meanwhile changes nothing."""
    entries = new_table(catalog, 3)
    mine = table_id(catalog)
    assert catalog.expire_snapshots(mine, [1], now_ms=10) == [1]
    back = entry(4, entries[-1])
    with pytest.raises(SnapshotExpired):
        catalog.advance(mine, back, required=entries[0], remember=stored())
    assert catalog.table_by_id(mine).version == 3
    assert catalog.answer("k", "POST /x") is None
    assert catalog.advance(mine, back, required=entries[1])


def test_a_table_is_dropped_only_at_its_current_snapshot(catalog: Catalog) -> None:
    """A commit that comes between is not lost with the table."""
    entries = new_table(catalog, 2)
    before = catalog.table("db", "t")
    with pytest.raises(CommitConflict) as refused:
        catalog.drop_table("db", "t", now_ms=20, base_snapshot_id=entries[0].pointer.snapshot_id)
    assert refused.value.details["snapshot_id"] == entries[1].pointer.snapshot_id
    assert catalog.table("db", "t") == before
    catalog.drop_table("db", "t", now_ms=20, base_snapshot_id=entries[1].pointer.snapshot_id)
    assert catalog.tables("db") == []


def test_a_dropped_table_comes_back_whole(catalog: Catalog) -> None:
    """With its id, history and tags, under its name or another one."""
    entries = new_table(catalog, 2)
    before = catalog.table("db", "t")
    catalog.put_tag(tag(catalog, "a", entries[0]), move=False, now_ms=10)
    catalog.drop_table("db", "t", now_ms=20)
    (dropped,) = catalog.dropped_tables("db")
    assert (dropped.record, dropped.dropped_at_ms, dropped.removal_scheduled) == (before, 20, False)
    catalog.undrop_table(before.table_id, "db", "t")
    assert catalog.table("db", "t") == before
    assert catalog.dropped_tables("db") == []
    assert catalog.tagged(before.table_id, "a", now_ms=10) == entries[0]
    with pytest.raises(TableNotFound):
        catalog.undrop_table(before.table_id, "db", "u")
    catalog.drop_table("db", "t", now_ms=30)
    catalog.undrop_table(before.table_id, "db", "u")
    assert catalog.table("db", "u") == msgspec.structs.replace(before, name="u")
    assert catalog.tables("db") == ["u"]


def test_a_renamed_table_is_the_same_table(catalog: Catalog) -> None:
    """Under its new name it has its id, history and tags, and its version, so that commits go on; the old name is
    free."""
    entries = new_table(catalog, 2)
    before = catalog.table("db", "t")
    catalog.put_tag(tag(catalog, "a", entries[0]), move=False, now_ms=10)
    catalog.create_namespace(NamespaceInfo(name="other"), now_ms=10)
    catalog.rename_table(before, "db", "u")
    moved = catalog.table("db", "u")
    assert moved == msgspec.structs.replace(before, name="u")
    assert catalog.current("db", "t") is None
    catalog.rename_table(moved, "other", "t")
    assert catalog.table("other", "t") == msgspec.structs.replace(before, namespace="other")
    assert catalog.tables("db") == []
    assert catalog.advance(before.table_id, entry(3, entries[-1]))
    assert catalog.tagged(before.table_id, "a", now_ms=10).seq == entries[0].seq
    new_table(catalog)
    assert table_id(catalog) != before.table_id


def test_a_rename_takes_no_name_that_is_taken_and_no_table_that_is_gone(catalog: Catalog) -> None:
    """Each refused one changes nothing; a table of its old name that came later is not renamed."""
    new_table(catalog)
    new_table(catalog, name="u")
    before = catalog.table("db", "t")
    with pytest.raises(AlreadyExists):
        catalog.rename_table(before, "db", "u")
    with pytest.raises(NamespaceNotFound):
        catalog.rename_table(before, "nowhere", "t")
    catalog.rename_table(before, "db", "v")
    new_table(catalog)
    with pytest.raises(TableNotFound):
        catalog.rename_table(before, "db", "w")
    assert catalog.tables("db") == ["t", "u", "v"]
    catalog.drop_table("db", "v", now_ms=20)
    with pytest.raises(TableNotFound):
        catalog.rename_table(msgspec.structs.replace(before, name="v"), "db", "w")


def test_two_renames_at_once_give_one_name(catalog: Catalog) -> None:
    """The second one finds no table of the old name, and says so."""
    new_table(catalog)
    before = catalog.table("db", "t")
    failed = at_once(lambda: catalog.rename_table(before, "db", "x"), lambda: catalog.rename_table(before, "db", "y"))
    assert [type(each) for each in failed if each is not None] == [TableNotFound]
    assert catalog.tables("db") == [["x", "y"][failed.index(None)]]


def test_a_moved_table_counts_for_the_quotas_of_its_new_namespace(catalog: Catalog) -> None:
    """A namespace that is full takes no more; a rename within it is no growth."""
    new_table(catalog)
    new_table(catalog, name="u")
    catalog.create_namespace(NamespaceInfo(name="full", properties={"lamella.quota.tables": "1"}), now_ms=10)
    catalog.rename_table(catalog.table("db", "t"), "full", "t")
    with pytest.raises(QuotaExceeded):
        catalog.rename_table(catalog.table("db", "u"), "full", "u")
    catalog.rename_table(catalog.table("full", "t"), "full", "v")
    assert (catalog.tables("full"), catalog.tables("db")) == (["v"], ["u"])


def test_a_name_that_is_taken_is_not_taken_back(catalog: Catalog) -> None:
    """The new table stays, and the old one can come back under another name."""
    new_table(catalog)
    old = table_id(catalog)
    catalog.drop_table("db", "t", now_ms=20)
    new_table(catalog)
    with pytest.raises(AlreadyExists):
        catalog.undrop_table(old, "db", "t")
    catalog.undrop_table(old, "db", "old")
    assert catalog.tables("db") == ["old", "t"]
    assert table_id(catalog, "old") == old


def test_dropped_tables_outlive_their_namespace(catalog: Catalog) -> None:
    """A namespace of the same name that is made again shows them; newest drop first."""
    for turn in range(3):
        new_table(catalog)
        catalog.drop_table("db", "t", now_ms=20 + turn)
    assert [dropped.dropped_at_ms for dropped in catalog.dropped_tables("db")] == [22, 21, 20]
    catalog.drop_namespace("db", now_ms=30)
    for act in (lambda: catalog.dropped_tables("db"), lambda: catalog.undrop_table("x", "db", "t")):
        with pytest.raises(NamespaceNotFound):
            act()
    catalog.create_namespace(NamespaceInfo(name="db"), now_ms=40)
    found = catalog.dropped_tables("db")
    assert len(found) == 3
    catalog.undrop_table(found[1].record.table_id, "db", "t")
    assert table_id(catalog) == found[1].record.table_id


def test_a_marked_table_cannot_come_back_and_is_forgotten_at_last(catalog: Catalog) -> None:
    """Dooming comes first, so that files are never deleted under a table that was undropped."""
    entries = new_table(catalog, 3)
    mine = table_id(catalog)
    catalog.put_tag(tag(catalog, "a", entries[0]), move=False, now_ms=10)
    assert not catalog.schedule_removal(mine, dropped_before_ms=1_000, now_ms=10)
    assert not catalog.forget_table(mine)
    catalog.drop_table("db", "t", now_ms=20)
    assert catalog.dropped_before(20) == []
    assert [dropped.record.table_id for dropped in catalog.dropped_before(21)] == [mine]
    assert not catalog.schedule_removal(mine, dropped_before_ms=20, now_ms=30)
    assert not catalog.forget_table(mine)
    assert catalog.schedule_removal(mine, dropped_before_ms=21, now_ms=30)
    assert catalog.schedule_removal(mine, dropped_before_ms=0, now_ms=31)
    assert catalog.dropped_tables("db") == []
    with pytest.raises(TableNotFound):
        catalog.undrop_table(mine, "db", "t")
    assert [dropped.removal_scheduled for dropped in catalog.dropped_before(0)] == [True]
    assert [found.seq for found in catalog.history(mine, limit=10)] == [3, 2, 1]
    assert catalog.forget_table(mine)
    assert catalog.history(mine, limit=10) == []
    assert catalog.dropped_before(1_000) == []
    assert not catalog.forget_table(mine)


def test_a_purged_table_is_marked_at_once(catalog: Catalog) -> None:
    """No grace: it is not listed, does not come back, and its files may go now."""
    new_table(catalog)
    mine = table_id(catalog)
    catalog.drop_table("db", "t", now_ms=20, purge=True)
    assert catalog.dropped_tables("db") == []
    with pytest.raises(TableNotFound):
        catalog.undrop_table(mine, "db", "t")
    assert [dropped.record.table_id for dropped in catalog.dropped_before(0)] == [mine]


MUTATIONS: dict[str, Callable[[Catalog, StoredAnswer], object]] = {
    "put_tag": lambda c, answer: c.put_tag(
        tag(c, "new", c.history(table_id(c), limit=1)[0]), move=False, now_ms=10, remember=answer
    ),
    "drop_tag": lambda c, answer: c.drop_tag(table_id(c), "a", now_ms=10, remember=answer),
    "undrop_table": lambda c, answer: c.undrop_table(
        c.dropped_tables("db")[0].record.table_id, "db", "back", remember=answer
    ),
    "rename_table": lambda c, answer: c.rename_table(c.table("db", "old"), "db", "new", remember=answer),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_an_answer_is_remembered_exactly_when_the_change_was_made(catalog: Catalog, mutation: str) -> None:
    """With the change comes the answer; with a key that is taken comes neither."""
    new_table(catalog, name="old")
    new_table(catalog, name="gone")
    catalog.drop_table("db", "gone", now_ms=1)
    (first,) = new_table(catalog)
    catalog.put_tag(tag(catalog, "a", first), move=False, now_ms=10, remember=stored("taken"))

    def state() -> object:
        return catalog.tags(table_id(catalog), now_ms=10), catalog.tables("db"), catalog.dropped_tables("db")

    before = state()
    with pytest.raises(IdempotencyMismatch):
        MUTATIONS[mutation](catalog, stored("taken", "b"))
    assert state() == before
    MUTATIONS[mutation](catalog, stored("new"))
    assert state() != before
    assert catalog.answer("new", "POST /x") == stored("new")


def at_once(*acts: Callable[[], object]) -> list[LamellaError | None]:
    """What became of acts that started together."""
    barrier = threading.Barrier(len(acts))

    def attempt(act: Callable[[], object]) -> LamellaError | None:
        barrier.wait()
        try:
            act()
        except LamellaError as error:
            return error
        return None

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(attempt, acts))


def test_a_snapshot_is_never_tagged_and_expired_both(catalog: Catalog) -> None:
    """Of the two at once one wins, each time: the tag finds no snapshot, or the snapshot stays."""
    entries = new_table(catalog, 21)
    mine = table_id(catalog)
    for old in entries[:-1]:
        name = f"t{old.seq}"
        removed: list[int] = []
        tagging, expiring = at_once(
            lambda name=name, old=old: catalog.put_tag(tag(catalog, name, old), move=False, now_ms=10),  # type: ignore[misc]  # defaults bind the loop's values
            lambda old=old, removed=removed: removed.extend(  # type: ignore[misc]  # as above
                catalog.expire_snapshots(mine, [old.seq], now_ms=10)
            ),
        )
        assert expiring is None
        if tagging is None:
            assert removed == []
            assert catalog.tagged(mine, name, now_ms=10) == msgspec.structs.replace(
                old, until_ms=catalog.snapshot(mine, old.pointer.snapshot_id).until_ms
            )
        else:
            assert isinstance(tagging, SnapshotExpired)
            assert removed == [old.seq]


def test_a_table_is_never_undropped_and_marked_both(catalog: Catalog) -> None:
    """Of the two at once exactly one happens."""
    for turn in range(10):
        new_table(catalog, name=f"t{turn}")
        mine = table_id(catalog, f"t{turn}")
        catalog.drop_table("db", f"t{turn}", now_ms=20)
        removal_scheduled: list[bool] = []
        undropping, dooming = at_once(
            lambda mine=mine, turn=turn: catalog.undrop_table(mine, "db", f"t{turn}"),  # type: ignore[misc]  # as above
            lambda mine=mine, removal_scheduled=removal_scheduled: removal_scheduled.append(  # type: ignore[misc]  # as above
                catalog.schedule_removal(mine, dropped_before_ms=21, now_ms=30)
            ),
        )
        assert dooming is None
        assert removal_scheduled == [undropping is not None]
        assert (f"t{turn}" in catalog.tables("db")) == (undropping is None)

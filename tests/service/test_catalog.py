"""One behaviour over SQLite and PostgreSQL: what the service relies on in a catalog."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from lamella.service.catalog import (
    Catalog,
    HistoryEntry,
    PointerSwap,
    SqlCatalog,
    StoredAnswer,
    TableRecord,
    open_catalog,
)
from lamella.service.catalog.engine import NoListener, catalog_url, open_engine
from lamella.service.catalog.migrate import migrate, migration_config
from lamella.service.catalog.schema import metadata
from lamella.snapshot.errors import (
    AlreadyExists,
    IdempotencyMismatch,
    InvalidRequest,
    LamellaError,
    NamespaceNotEmpty,
    NamespaceNotFound,
    OutcomeUnknown,
    SnapshotExpired,
    SnapshotNotFound,
    TableNotFound,
    Unavailable,
    UnsupportedFormat,
)
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import ObjectRef, SnapshotPointer
from lamella.snapshot.wire import NamespaceInfo

IDS = Ids()
BACKENDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database."""
    if request.param == "sqlite":
        return str(tmp_path / "catalog.db")
    return str(request.getfixturevalue("postgres_database"))


@pytest.fixture
def catalog(url: str) -> Iterator[SqlCatalog]:
    """A catalog with the namespace ``db``."""
    catalog = open_catalog(url, connections=20)
    catalog.create_namespace(NamespaceInfo(name="db"), now_ms=1)
    yield catalog
    catalog.close()


def entry(seq: int, *, timestamp_ms: int | None = None, prev: HistoryEntry | None = None) -> HistoryEntry:
    """A snapshot of a table's history."""
    ref = ObjectRef(location=f"file:///{seq}", size_bytes=seq, sha256="0" * 64)
    return HistoryEntry(
        seq=seq,
        pointer=SnapshotPointer(
            snapshot_id=str(IDS.new()),
            timestamp_ms=1_000 * seq if timestamp_ms is None else timestamp_ms,
            manifest=ref,
            sidecar=ref,
        ),
        prev_snapshot_id=None if prev is None else prev.pointer.snapshot_id,
        operation="append",
        row_count=1 << 40,
        block_count=seq,
        segment_count=1,
        file_size_bytes=1 << 50,
    )


def new_table(catalog: Catalog, name: str = "t", namespace: str = "db") -> tuple[str, HistoryEntry]:
    """A table with its first snapshot."""
    first = entry(1)
    record = TableRecord(
        table_id=str(IDS.new()),
        namespace=namespace,
        name=name,
        location="file:///w/t",
        version=1,
        pointer=first.pointer,
        created_at_ms=5,
    )
    catalog.create_table(record, first)
    assert catalog.table(namespace, name) == record
    return record.table_id, in_history(record.table_id, first)


def in_history(table_id: str, entry: HistoryEntry) -> HistoryEntry:
    """A snapshot as the catalog returns it."""
    return msgspec.structs.replace(entry, table_id=table_id, since_ms=entry.pointer.timestamp_ms)


def stored(key: str = "k", request_sha256: str = "a") -> StoredAnswer:
    """An answer to be remembered."""
    return StoredAnswer(
        key=key, scope="POST /x", request_sha256=request_sha256, status=201, body=b"\x00{}", created_at_ms=100
    )


def test_namespaces_are_unique_sorted_and_keep_their_properties(catalog: Catalog) -> None:
    """A name is taken once; the listing is in the order of code points, whatever the database's collation."""
    properties = {"owner": "\u0000 é '; DROP TABLE tables; --"}
    for name in ("b", "B", "a"):
        catalog.create_namespace(NamespaceInfo(name=name, properties=properties), now_ms=1)
    with pytest.raises(AlreadyExists):
        catalog.create_namespace(NamespaceInfo(name="a"), now_ms=1)
    assert [info.name for info in catalog.namespaces()] == ["B", "a", "b", "db"]
    assert catalog.namespace("a").properties == properties
    with pytest.raises(NamespaceNotFound):
        catalog.namespace("A")


def test_names_that_no_database_could_hold_are_not_found(catalog: Catalog) -> None:
    """A NUL byte in a path is one more name that is not there."""
    for name in ("\0", "d\0b"):
        for look in (catalog.namespace, catalog.tables, partial(catalog.drop_namespace, now_ms=1)):
            with pytest.raises(NamespaceNotFound):
                look(name)
        with pytest.raises(TableNotFound):
            catalog.table("db", name)
        assert catalog.answer(name, name) is None


def test_a_dropped_namespace_is_gone_and_its_name_free(catalog: Catalog) -> None:
    """Only an empty one can be dropped; a namespace of the same name is a new one."""
    new_table(catalog)
    with pytest.raises(NamespaceNotEmpty):
        catalog.drop_namespace("db", now_ms=2)
    catalog.drop_table("db", "t", now_ms=2)
    catalog.drop_namespace("db", now_ms=3)
    for missing in (lambda: catalog.namespace("db"), lambda: catalog.tables("db"), lambda: catalog.table("db", "t")):
        with pytest.raises(NamespaceNotFound):
            missing()
    with pytest.raises(NamespaceNotFound):
        catalog.drop_namespace("db", now_ms=4)
    catalog.create_namespace(NamespaceInfo(name="db"), now_ms=5)
    assert catalog.tables("db") == []


def test_a_dropped_table_is_gone_and_its_name_free(catalog: Catalog) -> None:
    """Neither by name nor by id, nor for a commit that was under way."""
    table_id, first = new_table(catalog)
    with pytest.raises(AlreadyExists):
        new_table(catalog)
    catalog.drop_table("db", "t", now_ms=2)
    with pytest.raises(TableNotFound):
        catalog.table("db", "t")
    with pytest.raises(TableNotFound):
        catalog.table_by_id(table_id)
    with pytest.raises(TableNotFound):
        catalog.drop_table("db", "t", now_ms=3)
    assert not catalog.advance(table_id, entry(2, prev=first))
    new_id, _ = new_table(catalog)
    assert new_id != table_id
    assert catalog.tables("db") == ["t"]


def test_a_table_in_a_namespace_that_is_not_there_is_not_created(catalog: Catalog) -> None:
    """The namespace comes first."""
    with pytest.raises(NamespaceNotFound):
        new_table(catalog, namespace="nope")


def test_the_pointer_moves_only_from_the_version_that_was_read(catalog: Catalog) -> None:
    """Of two commits on one version one wins, and the loser changed nothing."""
    table_id, first = new_table(catalog)
    winner, loser = entry(2, prev=first), entry(2, prev=first)
    assert catalog.advance(table_id, winner)
    assert not catalog.advance(table_id, loser, remember=stored())
    assert catalog.table_by_id(table_id).pointer == winner.pointer
    assert catalog.table_by_id(table_id).version == 2
    assert catalog.history(table_id, limit=10) == [in_history(table_id, winner), first]
    assert catalog.answer("k", "POST /x") is None
    with pytest.raises(SnapshotNotFound):
        catalog.snapshot(table_id, loser.pointer.snapshot_id)


def test_concurrent_swaps_lose_no_commit(catalog: Catalog) -> None:
    """Sixteen threads that try until they win leave sixteen snapshots in one chain without gaps."""
    table_id, _ = new_table(catalog)

    def append(_: int) -> None:
        while True:
            seen = catalog.table_by_id(table_id)
            following = msgspec.structs.replace(entry(seen.version + 1), prev_snapshot_id=seen.pointer.snapshot_id)
            if catalog.advance(table_id, following):
                return

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(append, range(16)))
    history = catalog.history(table_id, limit=100)
    assert [found.seq for found in history] == list(range(17, 0, -1))
    assert [f.prev_snapshot_id for f in history[:-1]] == [f.pointer.snapshot_id for f in history[1:]]


class Counter(NoListener):
    """Counts statements."""

    def __init__(self) -> None:
        self.count = 0

    def catalog_called(self, *_: object) -> None:
        self.count += 1


def test_a_swap_of_many_pointers_makes_no_more_statements(catalog: SqlCatalog) -> None:
    """Nor does a look at many tables: a database elsewhere is asked as often for ten tables as for two."""
    counter = Counter()
    catalog.listen_to(counter)
    found = []
    for count in (2, 10):
        names = [f"t{count}x{number}" for number in range(count)]
        table_ids = [new_table(catalog, name)[0] for name in names]
        before = counter.count
        guards = catalog.guards(table_ids, since_ms=1)
        records = catalog.tables_by_id(table_ids)
        assert catalog.tables_at_once([("db", name) for name in names]) == [records[each] for each in table_ids]
        assert catalog.advance_all(
            [PointerSwap(table_id=each, entry=entry(2), guard=guards[each]) for each in table_ids], remember=stored()
        )
        assert {each.version for each in catalog.tables_by_id(table_ids).values()} == {2}
        found.append(counter.count - before)
        catalog.forget_answers(before_ms=1 << 60)
    assert found[0] == found[1]


def test_several_pointers_move_together_or_not_at_all(catalog: Catalog) -> None:
    """None of them if one table is at another version or was dropped; the answer is stored with them."""
    (one, first), (two, second), (three, _) = (new_table(catalog, name) for name in ("one", "two", "three"))
    swaps = [
        PointerSwap(table_id=one, entry=entry(2, prev=first)),
        PointerSwap(table_id=two, entry=entry(2, prev=second)),
    ]
    assert not catalog.advance_all(swaps, remember=stored(), unchanged={three: 2})
    assert catalog.advance(three, entry(2))
    assert catalog.advance_all(swaps, remember=stored(), unchanged={three: 2})
    assert catalog.answer("k", "POST /x") == stored()
    assert [catalog.table_by_id(each).pointer for each in (one, two)] == [swap.entry.pointer for swap in swaps]
    again = [PointerSwap(table_id=one, entry=entry(3)), PointerSwap(table_id=two, entry=entry(2))]
    assert not catalog.advance_all(again, remember=stored("other"))
    assert catalog.table_by_id(one).version == 2
    assert catalog.answer("other", "POST /x") is None
    catalog.drop_table("db", "two", now_ms=1)
    assert not catalog.advance_all([PointerSwap(table_id=each, entry=entry(3)) for each in (one, two)])
    with pytest.raises(SnapshotExpired):
        catalog.advance_all([PointerSwap(table_id=one, entry=entry(3), required=in_history(one, entry(9)))])
    assert catalog.table_by_id(one).version == 2


def test_concurrent_swaps_of_several_tables_end(catalog: Catalog) -> None:
    """Threads that move pointers of tables in any order, and read others, wait for one another and lose nothing."""
    ids = [new_table(catalog, f"t{number}")[0] for number in range(4)]

    def move(number: int) -> None:
        rng = random.Random(number)
        chosen = rng.sample(ids, 3)
        while True:
            versions = {each: catalog.table_by_id(each).version for each in chosen}
            swaps = [PointerSwap(table_id=each, entry=entry(versions[each] + 1)) for each in chosen[:2]]
            with suppress(Unavailable):  # SQLite's lock, or PostgreSQL's choice of a victim
                if catalog.advance_all(swaps, unchanged={chosen[2]: versions[chosen[2]]}):
                    return

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(move, range(24)))
    assert sum(catalog.table_by_id(each).version - 1 for each in ids) == 48


def test_history_is_read_in_pages_from_the_newest(catalog: Catalog) -> None:
    """`before_seq` continues where a page ended."""
    table_id, first = new_table(catalog)
    entries = [first]
    for seq in range(2, 6):
        entries.append(in_history(table_id, entry(seq, prev=entries[-1])))
        assert catalog.advance(table_id, entries[-1])
    assert catalog.history(table_id, limit=2) == entries[:2:-1]
    assert catalog.history(table_id, before_seq=4, limit=2) == entries[2:0:-1]
    assert catalog.history(table_id, before_seq=1, limit=2) == []
    assert catalog.history("no such table", limit=2) == []


def test_the_snapshot_at_a_time_is_the_last_one_not_after_it(catalog: Catalog) -> None:
    """To the millisecond, and never one before the first."""
    table_id, first = new_table(catalog)
    second = in_history(table_id, entry(2, prev=first))
    assert catalog.advance(table_id, second)
    expected = {1_000: first, 1_999: first, 2_000: second, (1 << 63) - 1: second}
    assert {at: catalog.snapshot_at(table_id, at) for at in expected} == expected
    with pytest.raises(SnapshotNotFound):
        catalog.snapshot_at(table_id, 999)


def test_snapshots_belong_to_their_table(catalog: Catalog) -> None:
    """The id of another table's snapshot finds nothing."""
    one, first = new_table(catalog, "one")
    two, _ = new_table(catalog, "two")
    assert catalog.snapshot(one, first.pointer.snapshot_id) == first
    with pytest.raises(SnapshotNotFound):
        catalog.snapshot(two, first.pointer.snapshot_id)


MUTATIONS: dict[str, Callable[[Catalog, StoredAnswer], object]] = {
    "create_namespace": lambda c, answer: c.create_namespace(NamespaceInfo(name="n"), now_ms=1, remember=answer),
    "drop_namespace": lambda c, answer: c.drop_namespace("empty", now_ms=1, remember=answer),
    "drop_table": lambda c, answer: c.drop_table("db", "t", now_ms=1, remember=answer),
    "advance": lambda c, answer: c.advance(c.table("db", "t").table_id, entry(2), remember=answer),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_an_answer_is_remembered_exactly_when_the_change_was_made(catalog: Catalog, mutation: str) -> None:
    """With the change comes the answer; with a key that is taken comes neither, even under another request."""
    new_table(catalog)
    catalog.create_namespace(NamespaceInfo(name="empty"), now_ms=1)
    catalog.create_namespace(NamespaceInfo(name="other"), now_ms=1, remember=stored("taken"))
    before = (catalog.namespaces(), catalog.tables("db"), catalog.table("db", "t"))
    with pytest.raises(IdempotencyMismatch):
        MUTATIONS[mutation](catalog, stored("taken", "b"))
    assert (catalog.namespaces(), catalog.tables("db"), catalog.table("db", "t")) == before
    assert catalog.answer("taken", "POST /x") == stored("taken")
    MUTATIONS[mutation](catalog, stored("new"))
    assert catalog.answer("new", "POST /x") == stored("new")
    assert catalog.answer("new", "POST /y") is None


def test_a_mutation_that_fails_remembers_nothing(catalog: Catalog) -> None:
    """The key stays free for another try."""
    with pytest.raises(AlreadyExists):
        catalog.create_namespace(NamespaceInfo(name="db"), now_ms=1, remember=stored())
    assert catalog.answer("k", "POST /x") is None


def test_old_answers_are_forgotten(catalog: Catalog) -> None:
    """Those stored before the given time, and no others."""
    catalog.create_namespace(NamespaceInfo(name="a"), now_ms=1, remember=stored("old"))
    recent = msgspec.structs.replace(stored("late"), created_at_ms=200)
    catalog.create_namespace(NamespaceInfo(name="b"), now_ms=1, remember=recent)
    assert catalog.forget_answers(before_ms=200) == 1
    assert catalog.answer("old", "POST /x") is None
    assert catalog.answer("late", "POST /x") == recent


def attempt(barrier: threading.Barrier, act: Callable[[], object]) -> LamellaError | None:
    """Act when all others are ready to; returns what went wrong."""
    barrier.wait()
    try:
        act()
    except LamellaError as error:
        return error
    return None


def test_a_namespace_is_never_dropped_with_a_table_in_it(catalog: Catalog) -> None:
    """Creating a table and dropping its namespace at once: one of the two is refused, each time."""
    for turn in range(20):
        name = f"race{turn}"
        catalog.create_namespace(NamespaceInfo(name=name), now_ms=1)
        barrier = threading.Barrier(2)
        with ThreadPoolExecutor(2) as pool:
            create = pool.submit(attempt, barrier, partial(new_table, catalog, namespace=name))
            drop = pool.submit(attempt, barrier, partial(catalog.drop_namespace, name, now_ms=2))
        created, dropped = create.result(), drop.result()
        if created is None:
            assert isinstance(dropped, NamespaceNotEmpty)
            assert catalog.tables(name) == ["t"]
        else:
            assert isinstance(created, NamespaceNotFound)
            assert dropped is None


def test_the_migrations_make_the_tables_that_the_code_expects(url: str) -> None:
    """Alembic finds no difference between a migrated database and the definitions."""
    open_catalog(url).close()
    engine = open_engine(catalog_url(url), timeout_s=10, connections=1)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_services_that_start_at_once_migrate_once(url: str) -> None:
    """Each finds the database ready, whoever came first."""

    def start(_: int) -> str:
        engine = open_engine(catalog_url(url), timeout_s=30, connections=1)
        try:
            return migrate(engine)
        finally:
            engine.dispose()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(start, range(8))) == {ScriptDirectory.from_config(migration_config()).get_current_head()}


def test_a_catalog_of_a_newer_release_is_refused_untouched(url: str) -> None:
    """An unknown revision is an error with its name, not something to be migrated."""
    open_catalog(url).close()
    engine = open_engine(catalog_url(url), timeout_s=10, connections=1)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(UnsupportedFormat, match="9999"):
        open_catalog(url)
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one() == "9999"
    engine.dispose()


@pytest.mark.parametrize(
    "address", ["mysql://host/db", "sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory", "://"]
)
def test_an_address_that_is_no_catalog_is_refused(address: str) -> None:
    """Other databases, and SQLite that only one connection would see."""
    with pytest.raises(InvalidRequest):
        open_catalog(address)


def test_a_sqlite_catalog_waits_for_its_turn_and_gives_up_in_time(tmp_path: Path) -> None:
    """A transaction that another one holds up for too long certainly did not happen."""
    path = tmp_path / "c.db"
    catalog = open_catalog(str(path), timeout_s=0.2)
    other = open_engine(catalog_url(str(path)), timeout_s=1, connections=1)
    with other.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable) as caught:
            catalog.create_namespace(NamespaceInfo(name="a"), now_ms=1)
        assert not isinstance(caught.value, OutcomeUnknown)
        assert catalog.namespaces() == []
        connection.exec_driver_sql("ROLLBACK")
    catalog.create_namespace(NamespaceInfo(name="a"), now_ms=1)
    other.dispose()
    catalog.close()


def test_a_sqlite_catalog_writes_through_to_the_disk(tmp_path: Path) -> None:
    """Each connection is in WAL mode, syncs on commit and checks foreign keys."""
    engine = open_engine(catalog_url(str(tmp_path / "deep" / "c.db")), timeout_s=1.5, connections=2)
    with engine.connect() as one, engine.connect() as two:
        for connection in (one, two):
            found = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            }
            assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 1500}
    engine.dispose()


@pytest.mark.postgres
def test_a_database_that_goes_away_in_the_commit_leaves_the_outcome_open(postgres_database: str) -> None:
    """A connection that breaks before the commit is `Unavailable`; one that breaks in it is `OutcomeUnknown`."""
    catalog = open_catalog(postgres_database)
    engine = catalog._engine

    def cut(connection: sa.Connection) -> None:
        assert connection.connection.dbapi_connection is not None
        pid = connection.connection.dbapi_connection.info.backend_pid
        other = sa.create_engine(postgres_database, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with other.connect() as admin:
            admin.execute(sa.text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})

    sa.event.listen(engine, "commit", cut)
    with pytest.raises(OutcomeUnknown):
        catalog.create_namespace(NamespaceInfo(name="a"), now_ms=1)
    sa.event.remove(engine, "commit", cut)

    sa.event.listen(engine, "begin", cut)
    with pytest.raises(Unavailable) as caught:
        catalog.create_namespace(NamespaceInfo(name="a"), now_ms=1)
    assert not isinstance(caught.value, OutcomeUnknown)
    sa.event.remove(engine, "begin", cut)

    assert catalog.namespaces() == []
    catalog.create_namespace(NamespaceInfo(name="a"), now_ms=1)
    catalog.close()

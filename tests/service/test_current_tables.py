"""The short way to a table's pointer: as fresh as the database, whoever wrote to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamella.service.catalog import HistoryEntry, SqlCatalog, TableRecord, open_catalog
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
def catalogs(url: str) -> Iterator[tuple[SqlCatalog, SqlCatalog]]:
    """Two services' catalogs on one database, with the namespace ``db``."""
    both = (open_catalog(url), open_catalog(url))
    both[0].create_namespace(NamespaceInfo(name="db"), now_ms=1)
    yield both
    for catalog in both:
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


def new_table(catalog: SqlCatalog, name: str) -> TableRecord:
    """A table with its first snapshot."""
    first = entry(1)
    record = TableRecord(
        table_id=str(IDS.new()),
        namespace="db",
        name=name,
        location="file:///w/t",
        version=1,
        pointer=first.pointer,
        created_at_ms=5,
    )
    catalog.create_table(record, first)
    return record


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_every_look_sees_what_was_acknowledged_before(seed: int, catalogs: tuple[SqlCatalog, SqlCatalog]) -> None:
    """Commits, drops and new tables of one service are seen by the next look of the other, and by its own."""
    rng = Random(seed)
    names = [f"t{seed}_{number}" for number in range(3)]
    alive: dict[str, TableRecord] = {}
    for _ in range(12):
        writer, name = rng.choice(catalogs), rng.choice(names)
        known = alive.get(name)
        if known is None:
            alive[name] = new_table(writer, name)
        elif rng.random() < 0.2:
            writer.drop_table("db", name, now_ms=7)
            del alive[name]
        else:
            following = entry(known.version + 1)
            assert writer.advance(known.table_id, following)
            alive[name] = msgspec.structs.replace(known, version=following.seq, pointer=following.pointer)
        for reader in catalogs:
            assert {each: reader.current("db", each) for each in names} == {each: alive.get(each) for each in names}
    for name in alive:
        catalogs[0].drop_table("db", name, now_ms=8)


def test_looks_of_many_threads_never_go_back(catalogs: tuple[SqlCatalog, SqlCatalog]) -> None:
    """While another service commits, each look is at least as new as any look or acknowledgement before it."""
    writer, reader = catalogs
    record = new_table(writer, "t")
    acknowledged = [1]
    done = threading.Event()

    def write() -> None:
        try:
            for seq in range(2, 60):
                assert writer.advance(record.table_id, entry(seq))
                acknowledged[0] = seq
        finally:
            done.set()

    def look() -> int:
        looks = 0
        while not done.is_set() or not looks:
            before = acknowledged[0]
            found = reader.current("db", "t")
            if found is None:  # more looks at once than connections: that is said, and nothing old is told
                found = reader.table("db", "t")
            assert found.version >= before
            looks += 1
        return looks

    with ThreadPoolExecutor(7) as pool:
        written = pool.submit(write)
        for each in [pool.submit(look) for _ in range(6)]:
            assert each.result() > 0
        written.result()
    assert reader.current("db", "t") == writer.table("db", "t")


def test_what_is_not_there_is_left_to_the_long_way(catalogs: tuple[SqlCatalog, SqlCatalog]) -> None:
    """No such table, no such namespace, a name that no database could hold, a catalog that was closed."""
    catalog = catalogs[0]
    new_table(catalog, "t")
    assert catalog.current("db", "t") is not None
    for namespace, name in (("db", "u"), ("d", "t"), ("db", "T"), ("db", "\0"), ("\0", "t")):
        assert catalog.current(namespace, name) is None
    catalog.close()
    assert catalog.current("db", "t") is None


def test_only_a_catalog_without_a_network_answers_at_once(catalogs: tuple[SqlCatalog, SqlCatalog], url: str) -> None:
    """Looks at SQLite may be made on an event loop."""
    assert catalogs[0].is_instant == ("://" not in url)


def test_a_look_holds_no_snapshot_of_the_database_open(tmp_path: Path) -> None:
    """SQLite's log can be emptied after a look; a reader that stayed in its transaction would keep it growing."""
    catalog = open_catalog(str(tmp_path / "c.db"))
    catalog.create_namespace(NamespaceInfo(name="db"), now_ms=1)
    record = new_table(catalog, "t")
    assert catalog.current("db", "t") == record
    with catalog._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0] == 0
    assert (tmp_path / "c.db-wal").stat().st_size == 0
    catalog.close()

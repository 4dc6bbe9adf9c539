"""Exports as of an instant of the past, held against what was there at that instant."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.service.backup import ExportResult, export_catalog, import_catalog
from lamella.service.catalog import HistoryEntry, LeaseRecord, SqlCatalog, TableRecord, TagRecord, open_catalog
from lamella.service.catalog.engine import catalog_url, open_engine
from lamella.service.catalog.schema import metadata
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import ObjectRef, SnapshotPointer
from lamella.snapshot.wire import NamespaceInfo

IDS = Ids()
SPACES = ("a", "b")
TABLES = ("t", "u")
#: What somebody does, to which namespace and which table.
STEPS = st.tuples(
    st.sampled_from(["namespace", "drop namespace", "table", "commit", "commit", "drop", "expire"]),
    st.sampled_from(SPACES),
    st.sampled_from(TABLES),
)
State = dict[str, dict[str, list[str]]]


def entry(seq: int, at_ms: int) -> HistoryEntry:
    """A snapshot."""
    ref = ObjectRef(location=f"file:///{seq}", size_bytes=seq, sha256="0" * 64)
    pointer = SnapshotPointer(snapshot_id=str(IDS.new()), timestamp_ms=at_ms, manifest=ref, sidecar=ref)
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


def state_of(catalog: SqlCatalog) -> State:
    """Live namespaces, their tables, and of each the snapshots, the current one first."""
    found: State = {}
    for namespace in catalog.namespaces():
        tables = found[namespace.name] = {}
        for name in catalog.tables(namespace.name):
            record = catalog.table(namespace.name, name)
            history = [each.pointer.snapshot_id for each in catalog.history(record.table_id, limit=1000)]
            assert history[0] == record.pointer.snapshot_id
            assert record.version == catalog.history(record.table_id, limit=1)[0].seq
            tables[name] = history
    return found


class Past:
    """A catalog, what was done to it, and what was there after each step."""

    def __init__(self, folder: Path) -> None:
        self.catalog = open_catalog(str(folder / "c.db"))
        self.engine = open_engine(catalog_url(str(folder / "c.db")), timeout_s=10, connections=2)
        self._folder = folder
        self.now_ms = 0
        self.states: dict[int, State] = {0: {}}
        self.expired: set[str] = set()

    def close(self) -> None:
        """Hang up."""
        self.engine.dispose()
        self.catalog.close()

    def do(self, what: str, space: str, name: str) -> None:
        """One step, ten milliseconds after the last; what cannot be done is not."""
        self.now_ms += 10
        with suppress(LamellaError):
            self._do(what, space, name)
        self.states[self.now_ms] = state_of(self.catalog)

    def _do(self, what: str, space: str, name: str) -> None:
        match what:
            case "namespace":
                self.catalog.create_namespace(NamespaceInfo(name=space), now_ms=self.now_ms)
            case "drop namespace":
                self.catalog.drop_namespace(space, now_ms=self.now_ms)
            case "table":
                self.create(space, name)
            case "drop":
                self.catalog.drop_table(space, name, now_ms=self.now_ms)
            case "commit":
                record = self.catalog.table(space, name)
                assert self.catalog.advance(record.table_id, entry(record.version + 1, self.now_ms))
            case "expire":
                record = self.catalog.table(space, name)
                history = self.catalog.history(record.table_id, limit=1000)[1:]
                gone = self.catalog.expire_snapshots(
                    record.table_id, [each.seq for each in history], now_ms=self.now_ms
                )
                self.expired |= {each.pointer.snapshot_id for each in history if each.seq in gone}
            case "undrop":
                for other in SPACES:  # back into this namespace, from wherever it was
                    for dropped in self.catalog.dropped_tables(other)[:1]:
                        self.catalog.undrop_table(dropped.record.table_id, space, name)

    def create(self, space: str, name: str) -> str:
        """A new table; returns its id."""
        first = entry(1, self.now_ms)
        table_id = str(IDS.new())
        record = TableRecord(
            table_id=table_id,
            namespace=space,
            name=name,
            location="file:///w",
            version=1,
            pointer=first.pointer,
            created_at_ms=self.now_ms,
        )
        self.catalog.create_table(record, first)
        return table_id

    @contextmanager
    def as_of(self, at_ms: int) -> Iterator[tuple[ExportResult, SqlCatalog]]:
        """The catalog as it was then, in a database of its own."""
        file = io.BytesIO()
        outcome = export_catalog(self.engine, file, warehouse="w", at_ms=at_ms, leave_lost=True)
        path = self._folder / f"{IDS.new()}.db"
        other = open_engine(catalog_url(str(path)), timeout_s=10, connections=1)
        file.seek(0)
        import_catalog(other, file)
        other.dispose()
        restored = open_catalog(str(path))
        try:
            yield outcome, restored
        finally:
            restored.close()


@pytest.fixture
def past(tmp_path: Path) -> Iterator[Past]:
    """A catalog with nothing in it."""
    made = Past(tmp_path)
    yield made
    made.close()


@settings(max_examples=40)
@given(steps=st.lists(STEPS, max_size=25), data=st.data())
def test_what_was_there_comes_back(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str]], data: st.DataObject
) -> None:
    """Namespaces, tables and the snapshots of each, at any instant; but those whose snapshot has expired since, which
    are named."""
    past = Past(tmp_path_factory.mktemp("past"))
    try:
        past.do("namespace", "a", "")
        past.do("table", "a", "t")
        for step in steps:
            past.do(*step)
        step_ms = data.draw(st.sampled_from(sorted(past.states)))
        then = past.states[step_ms]
        with past.as_of(step_ms + data.draw(st.sampled_from([0, 9]))) as (outcome, restored):
            found = state_of(restored)
        lost = {each.name for each in outcome.lost}
        expected: State = {}
        for space, tables in then.items():
            expected[space] = {}
            for name, history in tables.items():
                if history[0] in past.expired:
                    assert f"{space}.{name}" in lost
                else:
                    expected[space][name] = [each for each in history if each not in past.expired]
        assert found == expected
    finally:
        past.close()


@settings(max_examples=40)
@given(steps=st.lists(st.one_of(STEPS, STEPS.map(lambda s: ("undrop", *s[1:]))), max_size=30), data=st.data())
def test_whatever_was_done_there_is_a_catalog_that_can_be_worked_with(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str]], data: st.DataObject
) -> None:
    """Also where tables were brought back under other names, of which nothing tells when: names are taken once, and the
    next commit lands."""
    past = Past(tmp_path_factory.mktemp("past"))
    try:
        for step in [("namespace", "a", ""), ("namespace", "b", ""), ("table", "a", "t"), *steps]:
            past.do(*step)
        at_ms = data.draw(st.integers(0, past.now_ms + 10))
        with past.as_of(at_ms) as (_, restored):
            for space, tables in state_of(restored).items():
                for name in tables:
                    record = restored.table(space, name)
                    assert record.pointer.timestamp_ms <= at_ms
                    assert restored.advance(record.table_id, entry(record.version + 1, past.now_ms + 100))
    finally:
        past.close()


def test_a_table_that_cannot_be_told_of_stops_the_export(past: Past) -> None:
    """Unless it is to be left out, since a backup that lacks a table is none; each is named with the reason."""
    for step in [("namespace", "a", ""), ("table", "a", "t"), ("table", "a", "u")]:
        past.do(*step)
    for step in [("commit", "a", "t"), ("expire", "a", "t")]:
        past.do(*step)
    past.now_ms += 10
    past.catalog.drop_table("a", "u", now_ms=past.now_ms, purge=True)
    with pytest.raises(InvalidRequest, match="2 tables") as caught:
        export_catalog(past.engine, io.BytesIO(), warehouse="w", at_ms=30)
    assert [(each["name"], each["why"]) for each in caught.value.details["lost"]] == [
        ("a.t", "its snapshot of that time has expired"),
        ("a.u", "it was dropped for good since, and its files may be gone"),
    ]
    with past.as_of(30) as (outcome, restored):
        assert {each.name for each in outcome.lost} == {"a.t", "a.u"}
        assert state_of(restored) == {"a": {}}


def test_what_goes_with_tables_is_cut_with_them(past: Past) -> None:
    """Tags and leases of snapshots that there were not yet, answers and jobs of later, are not in it; keys are as they
    are now, and what was done stays on record."""
    for step in [("namespace", "a", ""), ("table", "a", "t")]:
        past.do(*step)
    catalog, table_id = past.catalog, past.catalog.table("a", "t").table_id

    def tag(name: str, seq: int) -> None:
        pointer = past.catalog.table("a", "t").pointer
        catalog.put_tag(
            TagRecord(
                table_id=table_id,
                name=name,
                seq=seq,
                snapshot_id=pointer.snapshot_id,
                timestamp_ms=pointer.timestamp_ms,
                created_at_ms=past.now_ms,
            ),
            move=False,
            now_ms=past.now_ms,
        )

    def lease(seq: int) -> None:
        pointer = past.catalog.table("a", "t").pointer
        catalog.add_lease(
            LeaseRecord(
                lease_id=str(IDS.new()),
                table_id=table_id,
                seq=seq,
                snapshot_id=pointer.snapshot_id,
                owner="me",
                created_at_ms=past.now_ms,
                expires_at_ms=1 << 60,
            )
        )

    tag("early", 1)
    lease(1)
    at_ms = past.now_ms
    past.do("commit", "a", "t")
    tag("late", 2)
    lease(2)
    with past.engine.begin() as connection:
        answers = [
            {"key": f"k{ms}", "scope": "s", "request_sha256": "x", "status": 200, "body": b"", "created_at_ms": ms}
            for ms in (at_ms, at_ms + 1)
        ]
        connection.execute(metadata.tables["idempotency"].insert(), answers)
        key = {"name": "later", "sha256": "x", "created_ms": at_ms + 1, "created_by": "me"}
        connection.execute(metadata.tables["api_keys"].insert(), key)
    with past.as_of(at_ms) as (outcome, restored):
        assert [each.name for each in restored.tags(table_id, now_ms=0)] == ["early"]
        assert [each.seq for each in restored.leases(table_id, now_ms=0)] == [1]
        # When a request came says nothing of when its commit became current: that may have been after the instant.
        assert restored.answer("k" + str(at_ms), "s") is None
        assert outcome.rows["api_keys"] == 1
        assert set(outcome.left_out) == {"idempotency", "jobs", "job_log"}


@pytest.mark.postgres
def test_postgresql_tells_the_same_of_the_past(past: Past, postgres_database: str) -> None:
    """A catalog that came from SQLite has the same past there."""
    for step in [("namespace", "a", ""), ("table", "a", "t"), ("commit", "a", "t"), ("drop", "a", "t")]:
        past.do(*step)
    file = io.BytesIO()
    export_catalog(past.engine, file, warehouse="w")
    file.seek(0)
    server = open_engine(catalog_url(postgres_database), timeout_s=10, connections=1)
    import_catalog(server, file)
    for at_ms, state in past.states.items():
        file = io.BytesIO()
        export_catalog(server, file, warehouse="w", at_ms=at_ms)
        file.seek(0)
        path = past._folder / f"pg{at_ms}.db"
        other = open_engine(catalog_url(str(path)), timeout_s=10, connections=1)
        import_catalog(other, file)
        other.dispose()
        restored = open_catalog(str(path))
        assert state_of(restored) == state
        restored.close()
    server.dispose()

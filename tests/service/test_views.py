"""Views in the catalog, over SQLite and PostgreSQL, and over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from fixtures_server import ServerProcess, environment_of
from lamella.client.cli.app import cli
from lamella.client.http import Lamella
from lamella.service.catalog import HistoryEntry, SqlCatalog, TableRecord, open_catalog
from lamella.snapshot.errors import (
    AlreadyExists,
    InvalidRequest,
    LamellaError,
    NamespaceNotEmpty,
    NamespaceNotFound,
    TableNotFound,
    ViewNotFound,
)
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import ObjectRef, SnapshotPointer
from lamella.snapshot.schema import Column
from lamella.snapshot.wire import NamespaceInfo, ViewDefinition, ViewInfo
from support.tenants import VIEW_COLUMNS

IDS = Ids()
DEFINITION = ViewDefinition(
    sql="SELECT id FROM t",
    schema_json=VIEW_COLUMNS,
    query_columns=("id",),
    default_namespace=("db",),
    sql_configs={"spark.sql.ansi.enabled": "true"},
    schema_mode="COMPENSATION",
    properties={"team": "one"},
    comment="all",
)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog with the namespace ``db``."""
    is_file = request.param == "sqlite"
    url = str(tmp_path / "catalog.db") if is_file else str(request.getfixturevalue("postgres_database"))
    catalog = open_catalog(url, connections=20)
    catalog.create_namespace(NamespaceInfo(name="db"), now_ms=1)
    yield catalog
    catalog.close()


def new_view(name: str, namespace: str = "db") -> ViewInfo:
    """A view that is not stored yet."""
    return ViewInfo(
        view_id=str(IDS.new()),
        namespace=namespace,
        name=name,
        definition=DEFINITION,
        owner="key:ann",
        version=1,
        created_at_ms=5,
        updated_at_ms=5,
    )


def add_table(catalog: SqlCatalog, name: str) -> TableRecord:
    """Add a table to ``db``."""
    ref = ObjectRef(location="file:///1", size_bytes=1, sha256="0" * 64)
    pointer = SnapshotPointer(snapshot_id=str(IDS.new()), timestamp_ms=1, manifest=ref, sidecar=ref)
    record = TableRecord(
        table_id=str(IDS.new()),
        namespace="db",
        name=name,
        location="file:///t",
        version=1,
        pointer=pointer,
        created_at_ms=1,
    )
    first = HistoryEntry(
        seq=1,
        pointer=pointer,
        prev_snapshot_id=None,
        operation="create",
        row_count=0,
        block_count=0,
        segment_count=0,
        file_size_bytes=0,
    )
    catalog.create_table(record, first)
    return record


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


def test_a_view_is_stored_as_it_was_defined(catalog: SqlCatalog) -> None:
    """With all members, under its name; others are not found."""
    view = new_view("v")
    catalog.create_view(view)
    assert catalog.view("db", "v") == view
    catalog.create_view(new_view("a"))
    assert catalog.views("db") == ["a", "v"]
    assert catalog.tables("db") == []
    with pytest.raises(ViewNotFound):
        catalog.view("db", "w")
    for missing in (lambda: catalog.view("no", "v"), lambda: catalog.views("no")):
        with pytest.raises(NamespaceNotFound):
            missing()
    with pytest.raises(TableNotFound):
        catalog.table("db", "v")


def test_a_change_is_made_to_the_definition_that_was_read(catalog: SqlCatalog) -> None:
    """A second one from the same definition is not made, nor one of a view that was renamed or dropped."""
    before = new_view("v")
    catalog.create_view(before)
    definition = msgspec.structs.replace(DEFINITION, sql="SELECT 1 AS id")
    after = msgspec.structs.replace(before, definition=definition, version=2, updated_at_ms=9)
    assert catalog.replace_view(before, after)
    assert catalog.view("db", "v") == after
    assert not catalog.replace_view(before, after)
    assert not catalog.rename_view(before, "db", "w")
    catalog.create_namespace(NamespaceInfo(name="other"), now_ms=1)
    assert catalog.rename_view(after, "other", "w")
    assert not catalog.replace_view(after, after)
    moved = msgspec.structs.replace(after, namespace="other", name="w")
    assert catalog.view("other", "w") == moved
    catalog.drop_view(moved)
    assert not catalog.rename_view(moved, "db", "x")
    with pytest.raises(ViewNotFound):
        catalog.drop_view(moved)


def test_a_name_is_of_a_table_or_of_a_view(catalog: SqlCatalog) -> None:
    """Whatever comes second is refused: created, renamed or undropped."""
    table = add_table(catalog, "t")
    catalog.create_view(new_view("v"))
    for act in (
        lambda: catalog.create_view(new_view("t")),
        lambda: catalog.create_view(new_view("v")),
        lambda: add_table(catalog, "v"),
        lambda: catalog.rename_table(table, "db", "v"),
        lambda: catalog.rename_view(catalog.view("db", "v"), "db", "t"),
    ):
        with pytest.raises(AlreadyExists):
            act()
    catalog.drop_table("db", "t", now_ms=9)
    catalog.create_view(new_view("t"))
    with pytest.raises(AlreadyExists):
        catalog.undrop_table(table.table_id, "db", "t")
    assert (catalog.tables("db"), catalog.views("db")) == ([], ["t", "v"])


def test_a_table_and_a_view_at_once_give_one_of_them(catalog: SqlCatalog) -> None:
    """Also when the table gets the name by a rename."""
    other = add_table(catalog, "other")
    for number in range(10):
        name = f"x{number}"
        takes: Callable[[], object] = partial(add_table, catalog, name)
        if number % 2 == 0:
            takes = partial(catalog.rename_table, catalog.table("db", "other"), "db", name)
        failed = at_once(takes, partial(catalog.create_view, new_view(name)))
        assert sorted(type(each).__name__ for each in failed) == ["AlreadyExists", "NoneType"], failed
        assert (name in catalog.tables("db")) != (name in catalog.views("db"))
        if number % 2 == 0 and failed[0] is None:
            catalog.rename_table(catalog.table("db", name), "db", "other")
    assert catalog.table("db", "other").table_id == other.table_id


def test_a_namespace_with_a_view_is_not_dropped(catalog: SqlCatalog) -> None:
    """It is not empty; a view is not added while it is dropped."""
    view = new_view("v")
    catalog.create_view(view)
    with pytest.raises(NamespaceNotEmpty, match="1 view"):
        catalog.drop_namespace("db", now_ms=9)
    catalog.drop_view(view)
    catalog.drop_namespace("db", now_ms=9)
    with pytest.raises(NamespaceNotFound):
        catalog.create_view(view)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with the namespace ``db`` and the table ``db.t``."""
    folder = tmp_path_factory.mktemp("views")
    server = ServerProcess(environment_of({"warehouse": folder / "warehouse"}), folder)
    url = server.wait_ready().url
    with Lamella(url) as lake:
        lake.create_namespace("db")
        lake.create_table("db.t", schema=[Column(name="id", type="int64")])
    yield url
    server.stop()


def test_views_over_http(url: str) -> None:
    """Created, listed, replaced, renamed and dropped by the client, with the errors of the catalog, and audited."""
    with Lamella(url) as lake:
        made = lake.create_view("db.v", DEFINITION)
        assert lake.view("db.v") == made
        assert (made.definition, made.version) == (DEFINITION, 1)
        assert lake.views("db") == ("v",)
        changed = lake.replace_view("db.v", msgspec.structs.replace(DEFINITION, comment=None))
        assert (changed.view_id, changed.version, changed.definition.comment) == (made.view_id, 2, None)
        with pytest.raises(AlreadyExists):
            lake.create_view("db.t", DEFINITION)
        with pytest.raises(AlreadyExists):
            lake.create_table("db.v", schema=[Column(name="id", type="int64")])
        assert lake.rename_view("db.v", "db.w").name == "w"
        with pytest.raises(ViewNotFound):
            lake.replace_view("db.v", DEFINITION)
        lake.drop_view("db.w")
        with pytest.raises(ViewNotFound):
            lake.drop_view("db.w")
        done = {(each.operation, each.target) for each in lake.audit()}
        assert {
            ("create_view", "db.v"),
            ("replace_view", "db.v"),
            ("rename_view", "db.v"),
            ("drop_view", "db.w"),
        } <= done


@pytest.mark.parametrize(
    "change",
    [
        {"schema_json": "no JSON"},
        {"schema_json": '{"type":"array"}'},
        {"schema_json": "[1]"},
        {"query_columns": ("a", "b")},
        {"sql": ""},
    ],
)
def test_a_definition_that_no_reader_could_use_is_refused(url: str, change: dict[str, object]) -> None:
    """When it is created and when it is replaced; nothing is stored."""
    with Lamella(url) as lake:
        with pytest.raises(InvalidRequest):
            lake.create_view("db.broken", msgspec.structs.replace(DEFINITION, **change))
        assert "broken" not in lake.views("db")
        with pytest.raises(InvalidRequest):
            lake.create_view("db.no name", DEFINITION)


def test_a_creation_that_is_repeated_with_its_key_is_done_once(url: str) -> None:
    """It gets the first answer."""
    with Lamella(url) as lake:
        first = lake.create_view("db.once", DEFINITION, idempotency_key="once")
        assert lake.create_view("db.once", DEFINITION, idempotency_key="once") == first
        lake.drop_view("db.once")


def test_the_command_lists_shows_and_drops_views(url: str) -> None:
    """For people, and as JSON."""

    def run(*words: str) -> str:
        result = CliRunner().invoke(cli, ["views", *words, "--url", url])
        assert result.exit_code == 0, result.output
        return result.output

    with Lamella(url) as lake:
        lake.create_view("db.shown", DEFINITION)
        assert "db.shown" in run("list", "db")
        assert "SELECT id FROM t" in run("show", "db.shown")
        assert msgspec.json.decode(run("show", "db.shown", "--json"), type=ViewInfo) == lake.view("db.shown")
        run("drop", "db.shown")
        assert lake.views("db") == ()

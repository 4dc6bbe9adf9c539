"""The catalog's schema: who may change it and when, and what a change of it may be."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from fixtures_server import ServerProcess, StartServer
from lamella.service.catalog import open_catalog
from lamella.service.catalog.engine import catalog_url, open_engine
from lamella.service.catalog.migrate import (
    administered,
    look_at_schema,
    migrate,
    migrate_catalog,
    migration_config,
    migration_sql,
    schema_state,
)
from lamella.snapshot.errors import CatalogOutdated, InvalidRequest, UnsupportedFormat
from lamella.snapshot.storage import FsspecStore
from support.service_api import World

REVISIONS = [
    script.revision for script in reversed(list(ScriptDirectory.from_config(migration_config()).walk_revisions()))
]
NEWEST = REVISIONS[-1]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "catalog.db")
    return str(request.getfixturevalue("new_postgres_database")())


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    """Connections to it."""
    made = open_engine(catalog_url(url), timeout_s=10, connections=2)
    yield made
    made.dispose()


def revision(engine: sa.Engine) -> str | None:
    """What the database itself says."""
    with engine.connect() as connection:
        return schema_state(connection).revision


def test_a_new_catalog_is_set_up_whoever_may_migrate(url: str, engine: sa.Engine) -> None:
    """There is nothing in it that could be harmed."""
    open_catalog(url, auto_migrate=False).close()
    assert revision(engine) == NEWEST
    open_catalog(url, auto_migrate=False).close()


def test_an_older_catalog_is_migrated_at_the_start_where_that_is_allowed(url: str, engine: sa.Engine) -> None:
    """Otherwise it is left as it is, and the error names the command."""
    migrate(engine, to="0003")
    with pytest.raises(CatalogOutdated, match="lamella catalog migrate") as caught:
        open_catalog(url, auto_migrate=False)
    assert caught.value.details["revision"] == "0003"
    assert revision(engine) == "0003"
    open_catalog(url, auto_migrate=True).close()
    assert revision(engine) == NEWEST


def test_where_nobody_says_a_file_is_migrated_and_a_server_is_not(url: str, engine: sa.Engine) -> None:
    """A SQLite catalog has one service on one machine; on a PostgreSQL server others may be at work."""
    migrate(engine, to="0003")
    if engine.dialect.name == "sqlite":
        open_catalog(url).close()
        assert revision(engine) == NEWEST
    else:
        with pytest.raises(CatalogOutdated):
            open_catalog(url)
        assert revision(engine) == "0003"


@pytest.mark.parametrize("may", [True, False, None])
def test_a_catalog_of_a_newer_release_is_never_opened(url: str, engine: sa.Engine, may: bool | None) -> None:
    """Whoever may migrate: nothing says what that release means by it."""
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(UnsupportedFormat, match="9999"):
        open_catalog(url, auto_migrate=may)
    with pytest.raises(UnsupportedFormat, match="9999"):
        migrate_catalog(url, to=None, timeout_s=10)


def test_a_database_of_somebody_else_is_left_alone(url: str, engine: sa.Engine) -> None:
    """One that has tables of our names and was never migrated is no catalog."""
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE tables (legs INTEGER)"))
    with pytest.raises(UnsupportedFormat, match="not a Lamella catalog"):
        open_catalog(url)
    assert sa.inspect(engine).get_table_names() == ["tables"]


def test_migrating_goes_step_by_step_and_only_forward(url: str, engine: sa.Engine) -> None:
    """To any later revision; an earlier or unknown one is refused, and nothing is done."""
    assert migrate_catalog(url, to="0002", timeout_s=10) == "0002"
    assert migrate_catalog(url, to="0002", timeout_s=10) == "0002"
    for wrong in ("0001", "9999", ""):
        with pytest.raises(InvalidRequest, match="cannot migrate from schema revision 0002"):
            migrate_catalog(url, to=wrong, timeout_s=10)
    assert [step.revision for step in look_at_schema(url, timeout_s=10).pending] == REVISIONS[2:]
    assert migrate_catalog(url, to=None, timeout_s=10) == NEWEST
    assert look_at_schema(url, timeout_s=10).is_current
    assert revision(engine) == NEWEST


def shape(engine: sa.Engine) -> dict[str, Any]:
    """What is in the database: of each table the columns, the keys and the indexes."""
    found: dict[str, Any] = {}
    inspector = sa.inspect(engine)
    for table in inspector.get_table_names():
        found[table] = {
            "columns": {column["name"]: column for column in inspector.get_columns(table)},
            "primary key": inspector.get_pk_constraint(table)["constrained_columns"],
            "unique": sorted(
                {tuple(each["column_names"]) for each in inspector.get_unique_constraints(table)}
                | {tuple(each["column_names"]) for each in inspector.get_indexes(table) if each["unique"]}
            ),
            "foreign": sorted({tuple(each["constrained_columns"]) for each in inspector.get_foreign_keys(table)}),
            "checks": len(inspector.get_check_constraints(table)),
        }
    return found


@pytest.mark.parametrize("step", range(1, len(REVISIONS)), ids=REVISIONS[1:])
def test_a_revision_only_adds(engine: sa.Engine, step: int) -> None:
    """A service of the release before goes on with the schema of this one: what it reads is there as it was, what it
    writes is accepted without the new columns, and no new rule can refuse it."""
    migrate(engine, to=REVISIONS[step - 1])
    before = shape(engine)
    migrate(engine, to=REVISIONS[step])
    after = shape(engine)
    for table, was in before.items():
        now = after[table]
        for name, column in was["columns"].items():
            assert str(now["columns"][name]["type"]) == str(column["type"])
            assert now["columns"][name]["nullable"] == column["nullable"]
        for name in now["columns"].keys() - was["columns"].keys():
            assert now["columns"][name]["nullable"] or now["columns"][name]["default"] is not None
        for rule in ("primary key", "unique", "foreign", "checks"):
            assert now[rule] == was[rule]


def test_the_statements_of_a_migration_do_what_the_migration_does(
    url: str, engine: sa.Engine, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Whoever may not let Lamella change a schema runs them, and gets the same one, at the same revision."""
    migrate(engine, to="0002")
    with engine.connect() as connection:
        statements = migration_sql(schema_state(connection), None)
    if engine.dialect.name == "sqlite":
        with sqlite3.connect(url) as raw:
            raw.executescript(statements)
        raw.close()
        other = str(tmp_path / "other.db")
    else:
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as server:
            server.execute(statements.encode())
        other = str(request.getfixturevalue("new_postgres_database")())
    assert revision(engine) == NEWEST
    open_catalog(other).close()
    with administered(other, timeout_s=10) as migrated:
        one, two = shape(engine), shape(migrated)
        assert {name: str(one[name]) for name in sorted(one)} == {name: str(two[name]) for name in sorted(two)}
        assert migration_sql(look_at_schema(url, timeout_s=10), None) == ""


def test_a_new_catalogs_statements_begin_with_nothing(engine: sa.Engine) -> None:
    """They set up a catalog in an empty database."""
    with engine.connect() as connection:
        statements = migration_sql(schema_state(connection), None)
    assert "CREATE TABLE namespaces" in statements
    assert sa.inspect(engine).get_table_names() == []


def test_looking_at_a_catalog_makes_none(tmp_path: Path) -> None:
    """A SQLite file that is not there is a new catalog, and is not there afterwards."""
    assert look_at_schema(str(tmp_path / "a" / "c.db"), timeout_s=1).is_new
    with pytest.raises(InvalidRequest, match="there is no catalog"), administered(str(tmp_path / "c.db"), timeout_s=1):
        pass
    assert list(tmp_path.iterdir()) == []


def add_what_a_newer_release_might(url: str) -> None:
    """A revision nobody knows: a column more in every table, a table more, an index more."""
    with administered(url, timeout_s=10) as engine, engine.begin() as connection:
        names = sa.inspect(connection).get_table_names()
        for table in names:
            connection.execute(sa.text(f"ALTER TABLE {table} ADD COLUMN added_later BIGINT"))
        connection.execute(sa.text("CREATE TABLE later (id BIGINT PRIMARY KEY, text TEXT NOT NULL)"))
        connection.execute(sa.text("CREATE INDEX ix_later ON tables (added_later)"))
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))


def test_a_running_service_goes_on_when_a_newer_release_adds_to_the_schema(
    url: str, start_server: StartServer, tmp_path: Path
) -> None:
    """Replicas are replaced one after another: those that run read, commit, drop, and clean up as before. One that is
    started afresh is refused."""
    server: ServerProcess = start_server(warehouse=tmp_path / "warehouse", catalog=url)
    with World(server.url, f"file://{tmp_path}/data", FsspecStore()) as world:
        table = world.table()
        files = world.numbers(world.folder(), 4)
        table.register(*files[:2])
        add_what_a_newer_release_might(url)
        _everything(world, files)
        assert table.info()["block_count"] == 2
        table.register(*files[2:], key="k")
        assert len(table.locations("a < 15")) == 2
        assert [entry["block_count"] for entry in table.history()] == [4, 2, 0]
        world.api.call("POST", f"{table.path}/vacuum", {"execute": True})
        world.api.call("DELETE", table.path, expect=204)
        world.api.call("POST", f"/v1/namespaces/{table.namespace}/undrop", {"name": "t"})
        assert table.info()["block_count"] == 4
        assert world.api.call("GET", "/health/ready") == {"status": "ready"}
    assert server.stop() == 0
    with pytest.raises(UnsupportedFormat):
        open_catalog(url)


def _everything(world: World, files: list[str]) -> None:
    """Ask and change what each part of the catalog keeps."""
    table = world.table()
    calls: list[Callable[[], Any]] = [
        lambda: table.register(files[0]),
        lambda: table.prune("a = 1"),
        lambda: world.api.call("POST", f"{table.path}/tags", {"name": "v1"}, expect=201),
        lambda: world.api.call("GET", f"{table.path}/tags"),
        lambda: world.api.call("POST", f"{table.path}/leases", {"ttl_s": 60, "owner": "t"}, expect=201),
        lambda: world.api.call("GET", f"{table.path}/leases"),
        lambda: world.api.call("POST", "/v1/jobs", {"kind": "verify", "table": f"{table.namespace}.t"}, expect=201),
        lambda: world.api.call("GET", "/v1/jobs"),
        lambda: world.api.call("GET", "/v1/audit"),
    ]
    for call in calls:
        call()

"""What earlier releases left behind, opened, migrated and worked with by this one.

`scripts/upgrade_fixture.py` makes a file for each release, by that release. Files with the name of a schema revision
are of states of the sources before the first release.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from lamella.service.app import create_app
from lamella.service.backup import export_catalog, import_catalog
from lamella.service.catalog import open_catalog
from lamella.service.catalog.engine import catalog_url, open_engine
from lamella.service.catalog.migrate import look_at_schema
from lamella.service.catalog.schema import metadata
from lamella.service.config.settings import Settings
from lamella.snapshot.errors import CatalogOutdated
from support.app_client import AppClient
from support.service_api import parquet_bytes

HERE = Path(__file__).resolve().parent
FILES = sorted(HERE.glob("*.zip"))
CHANGELOG = HERE.parents[1] / "CHANGELOG.md"
ROOT = "memory://lamella-upgrade"
TABLE = "/v1/namespaces/db/tables/numbers"
#: Files of releases are small; nobody wants to fetch megabytes of them.
MAX_BYTES = 200_000
#: Longer than any file of a release gets old.
EVER_S = 10**10
#: The filter of the report that each file has (scripts/upgrade_fixture.py).
REPORTED = "x > 1000"


class Left:
    """What a release left behind: its catalog in a SQLite file, its objects in the store."""

    def __init__(self, file: Path, folder: Path) -> None:
        self.catalog = folder / "catalog.db"
        with zipfile.ZipFile(file) as archive:
            self.made: dict[str, Any] = json.loads(archive.read("made.json"))
            connection = sqlite3.connect(self.catalog)
            connection.executescript(archive.read("catalog.sql").decode())
            connection.close()
            for name in archive.namelist():
                if name.startswith("objects/"):
                    self._put(name.removeprefix("objects/"), archive.read(name))

    def _put(self, name: str, data: bytes) -> None:
        store = fsspec.filesystem("memory")
        path = f"/lamella-upgrade/{name}"
        store.pipe_file(path, data)
        # What a file was registered as is known by when it was written, too.
        store.store[path].modified = dt.datetime.fromtimestamp(self.made["modified_s"][name], dt.UTC)

    def has(self, step: str) -> bool:
        """Whether that release knew it."""
        return step not in self.made["missing"]


@pytest.fixture(params=FILES, ids=[file.stem for file in FILES])
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Left]:
    """What a release left behind."""
    yield Left(request.param, tmp_path)
    store = fsspec.filesystem("memory")
    for path in [path for path in store.store if path.startswith("/lamella-upgrade/")]:
        del store.store[path]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def catalog(request: pytest.FixtureRequest, left: Left) -> str:
    """Its catalog, of either kind; into PostgreSQL by an export that this release makes of the older schema."""
    if request.param == "sqlite":
        return str(left.catalog)
    address = str(request.getfixturevalue("new_postgres_database")())
    engines = [open_engine(catalog_url(url), timeout_s=10, connections=1) for url in (str(left.catalog), address)]
    file = io.BytesIO()
    export_catalog(engines[0], file, warehouse=f"{ROOT}/warehouse")
    file.seek(0)
    import_catalog(engines[1], file)
    for engine in engines:
        engine.dispose()
    return address


class Now:
    """This release over what was left."""

    def __init__(self, client: AppClient) -> None:
        self._client = client

    def call(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> Any:
        """The answer to a request that must be answered well."""
        headers = {} if key is None else {"Idempotency-Key": key}
        response = self._client.request(method, path, json=body, headers=headers)
        assert response.status_code < 300, response.text
        return response.json() if response.content else None

    def blocks(self, filter: str | None, snapshot_id: str | None = None) -> list[list[Any]]:
        """As the release before wrote it down."""
        found = self.call("POST", f"{TABLE}/prune", {"filter": filter, "snapshot_id": snapshot_id})["blocks"]
        return sorted([block["location"], block["row_count"], block["verdict"]] for block in found)

    def findings(self) -> list[dict[str, Any]]:
        """What a verification of the table finds."""
        body: dict[str, Any] = {"deep": True, "sample": 1.0, "seed": 1}
        found: list[dict[str, Any]] = []
        while True:
            answer = self.call("POST", f"{TABLE}/verify", body)
            found += [finding for finding in answer["findings"] if finding["severity"] != "info"]
            if answer["next_page_token"] is None:
                return found
            body["page_token"] = answer["next_page_token"]


@contextmanager
def opened(catalog: str, **settings: Any) -> Iterator[Now]:
    """A service of this release."""
    made = Settings(
        warehouse=f"{ROOT}/warehouse",
        catalog=catalog,
        idempotency_ttl_s=EVER_S,
        drop_grace_s=EVER_S,
        log_level="error",
        **settings,
    )
    with AppClient(create_app(made), client=("127.0.0.1", 50_000)) as client:
        yield Now(client)


def test_every_release_left_a_file() -> None:
    """Whoever makes a release runs the script; its file is small and whole."""
    released = re.findall(r"^## \[(\d[^\]]*)\]", CHANGELOG.read_text(), re.MULTILINE)
    assert set(released) <= {file.stem for file in FILES}
    assert FILES
    for file in FILES:
        assert file.stat().st_size < MAX_BYTES
        with zipfile.ZipFile(file) as archive:
            assert archive.testzip() is None


def test_an_older_catalog_waits_until_it_may_be_migrated(left: Left) -> None:
    """Its schema is one that this release knows; without leave nothing of it is changed."""
    state = look_at_schema(str(left.catalog), timeout_s=10)
    assert state.is_known
    if state.pending:
        before = left.catalog.read_bytes()
        with pytest.raises(CatalogOutdated):
            open_catalog(str(left.catalog), auto_migrate=False)
        assert left.catalog.read_bytes() == before
    open_catalog(str(left.catalog), auto_migrate=True).close()
    assert look_at_schema(str(left.catalog), timeout_s=10).is_current


def test_everything_is_answered_as_it_was(left: Left, catalog: str) -> None:
    """Prunes of current and past snapshots, the table, its history and tags: no row less, and nothing wrong found.

    The block that a reader reported as empty is back: prunes no longer use reports.
    """
    reported = left.made["first_request"]["paths"][0]
    with opened(catalog, feedback=True) as now:
        for answer in left.made["answers"]:
            found, before = now.blocks(answer["filter"], answer["snapshot_id"]), answer["blocks"]
            if answer["filter"] == REPORTED and reported not in {block[0] for block in before}:
                before = sorted([*before, *(block for block in found if block[0] == reported)])
                assert len(before) == len(answer["blocks"]) + left.has("feedback")
            assert found == before, answer["filter"]
        info = now.call("GET", TABLE)
        assert left.made["info"].items() <= info.items()
        listed = [each["snapshot_id"] for each in now.call("GET", f"{TABLE}/snapshots")["snapshots"]]
        assert listed == left.made["snapshots"]
        if left.has("tag"):
            tags = now.call("GET", f"{TABLE}/tags")["tags"]
            assert [(tag["name"], tag["snapshot_id"]) for tag in tags] == [("v1", left.made["first_snapshot_id"])]
        assert now.findings() == []


def test_what_was_stored_beside_tables_is_there(left: Left, catalog: str) -> None:
    """Answers by their idempotency key, jobs, schedules, policies, keys and grants, as far as the release knew them."""
    with opened(catalog, feedback=True) as now:
        again = now.call("POST", f"{TABLE}/register", left.made["first_request"], key="first")
        assert again["snapshot_id"] == left.made["first_snapshot_id"]
        jobs = now.call("GET", "/v1/jobs")["jobs"]
        assert [job["kind"] for job in jobs] == (["verify"] if left.has("job") else [])
        if left.has("schedule"):
            assert now.call("GET", f"{TABLE}/schedules/nightly")["cron"] == "30 3 * * *"
        if left.has("policy"):
            assert now.call("GET", f"{TABLE}/policy")["policy"]["compact"]["small_blocks"] == 200
        if left.has("index"):
            (index,) = now.call("GET", f"{TABLE}/indexes")["indexes"]
            assert (index["name"], index["coverage"]["not_indexed"]) == ("by_s", 0)
        if left.has("keys"):
            (key,) = now.call("GET", "/v1/keys")["keys"]
            assert (key["name"], key["grants"][0]["namespace"]) == ("reader", "db")
        if left.has("grants"):
            assert "user:ann" in {grant["principal"] for grant in now.call("GET", "/v1/grants")["grants"]}


@pytest.mark.slow
def test_work_goes_on(left: Left, catalog: str) -> None:
    """New blocks, removed ones, a dropped table brought back, a roll back, and a clean-up after all that; what is left
    is verified, and what the new rows need is found."""
    file = f"{ROOT}/data/new.parquet"
    fsspec.filesystem("memory").pipe_file("/lamella-upgrade/data/new.parquet", parquet_bytes({"a": [7, 10**6]}))
    with opened(catalog, retention_max_age_s=0, vacuum_min_age_s=0) as now:
        before = now.blocks(None)
        assert now.call("POST", f"{TABLE}/register", {"paths": [file]})["registered"] == 1
        assert [block[0] for block in now.blocks("a = 1000000")] == [file]
        assert len(now.blocks(None)) == len(before) + 1
        removed = {"removed": [before[0][0]], "base_snapshot_id": now.call("GET", TABLE)["snapshot_id"]}
        now.call("POST", f"{TABLE}/commits", removed)
        assert len(now.blocks(None)) == len(before)
        now.call("POST", "/v1/namespaces/db/undrop", {"name": "gone"})
        assert now.call("GET", "/v1/namespaces/db/tables/gone")["block_count"] == 1
        now.call("POST", f"{TABLE}/rollback", {"snapshot_id": left.made["first_snapshot_id"]})
        first = [each for each in left.made["answers"] if each["snapshot_id"] == left.made["first_snapshot_id"]]
        for answer in first:
            assert now.blocks(answer["filter"]) == answer["blocks"]
        cleaned = now.call("POST", f"{TABLE}/vacuum", {"execute": True})
        assert cleaned["left"] == []
        assert cleaned["garbage"]["snapshot"]["objects"] >= 1
        for answer in first:
            assert now.blocks(answer["filter"]) == answer["blocks"]
        assert now.findings() == []
    with opened(catalog) as now:
        assert now.blocks(None) == first[0]["blocks"]


def test_a_migrated_catalog_has_the_schema_of_a_new_one(left: Left) -> None:
    """Alembic finds no difference between it and the definitions of this release."""
    open_catalog(str(left.catalog)).close()
    engine = open_engine(catalog_url(str(left.catalog)), timeout_s=10, connections=1)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()

"""The drill: a catalog is exported, restored elsewhere, verified, and asked the same questions as the running one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures_server import ServerProcess, StartServer
from lamella.client.http import Lamella
from lamella.snapshot.schema import Column
from lamella.snapshot.storage import FsspecStore
from support.service_api import World, parquet_bytes
from support.tenants import ROOT_KEY, ROOT_SHA256

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "backup_drill.py"


@pytest.fixture
def new_catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, str], str]:
    """The address of a new database of a kind."""

    def make(kind: str, name: str) -> str:
        if kind == "sqlite":
            return str(tmp_path / f"{name}.db")
        return str(request.getfixturevalue("new_postgres_database")())

    return make


def drill(server: ServerProcess, *words: str) -> tuple[int, dict[str, Any]]:
    """Run it as the settings of that service say; its exit status and outcome."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAMELLA_")}
    done = subprocess.run(
        [sys.executable, SCRIPT, "--url", server.url, "--json", *words],
        check=False,
        env={**inherited, **server.environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("kind", "scratch"),
    [("sqlite", "postgresql"), pytest.param("postgresql", "sqlite", marks=pytest.mark.soak)],
)
@pytest.mark.few(1)
def test_a_catalog_that_is_whole_passes(
    start_server: StartServer, tmp_path: Path, new_catalog: Callable[[str, str], str], kind: str, scratch: str
) -> None:
    """From either kind of database to the other every table answers alike, and what runs is untouched."""
    server = start_server(warehouse=tmp_path / "warehouse", catalog=new_catalog(kind, "catalog"))
    with World(server.url, f"file://{tmp_path}/data", FsspecStore()) as world:
        tables = [world.table() for _ in range(2)]
        for table in tables:
            table.register(*world.numbers(world.folder(), 4))
        before = [table.info() for table in tables]
        status, outcome = drill(server, "--scratch-catalog", new_catalog(scratch, "scratch"))
        assert (status, outcome["failures"]) == (0, [])
        assert outcome["counts"]["tables"] == 2
        assert outcome["counts"]["snapshots"] == 4
        assert outcome["counts"]["questions"] == 2 * (1 + 2 * 3)
        assert outcome["counts"]["not asked"] == 0
        assert set(outcome["seconds"]) == {"export", "import", "verify", "compare"}
        assert [table.info() for table in tables] == before
        table.register(*world.numbers(world.folder(), 1))


def test_what_is_damaged_or_gone_fails_the_drill(start_server: StartServer, tmp_path: Path) -> None:
    """A block that was cut, and a manifest that was deleted, are told by table; the status says so."""
    server = start_server(warehouse=tmp_path / "warehouse")
    with World(server.url, f"file://{tmp_path}/data", FsspecStore()) as world:
        cut, gone = world.table(), world.table()
        files = world.numbers(world.folder(), 2)
        cut.register(*files)
        gone.register(*world.numbers(world.folder(), 2))
        path = Path(files[0].removeprefix("file://"))
        path.write_bytes(path.read_bytes()[:100])
        first = gone.history()[-1]["snapshot_id"]
        (tmp_path / "warehouse" / gone.info()["table_id"] / "_ss" / f"{first}_v3.json").unlink()
        status, outcome = drill(server)
        assert status == 1
        failures = " ".join(outcome["failures"])
        assert f"{gone.namespace}.t: snapshots are gone" in failures
        assert f"{cut.namespace}.t: block_size" in failures


def test_a_catalog_that_cannot_be_exported_fails_the_drill(start_server: StartServer, tmp_path: Path) -> None:
    """Settings that name no catalog are the first thing that one notices."""
    server = start_server(warehouse=tmp_path / "warehouse")
    server.environment["LAMELLA_CATALOG"] = str(tmp_path / "elsewhere.db")
    status, outcome = drill(server)
    assert status == 1
    assert "there is no catalog" in outcome["failures"][0]


@pytest.mark.soak
def test_the_drill_asks_a_service_that_wants_a_key(start_server: StartServer, tmp_path: Path) -> None:
    """With the key of LAMELLA_TOKEN_FILE, for both; HTTPS and the file of the catalog's address are the live one's."""
    warehouse, catalog, key = tmp_path / "warehouse", tmp_path / "catalog.db", tmp_path / "key"
    address = tmp_path / "catalog_url"
    address.write_text(str(catalog), "utf-8")
    key.write_text(ROOT_KEY, "utf-8")
    server = start_server(
        warehouse=warehouse,
        catalog_file=address,
        auth="true",
        root_key_sha256=ROOT_SHA256,
        allowed_locations=json.dumps({"*": [f"file://{tmp_path}/data/"]}),
    )
    (tmp_path / "data").mkdir()
    files = [str(tmp_path / "data" / f"{number}.parquet") for number in range(2)]
    for number, file in enumerate(files):
        Path(file).write_bytes(parquet_bytes({"n": [number]}))
    with Lamella(server.url, token=ROOT_KEY) as lake:
        lake.create_namespace("db")
        lake.create_table("db.t", schema=[Column(name="n", type="int64")])
        lake.table("db.t").register(files)
    status, outcome = drill(server)
    assert status == 1
    assert "compare: unauthenticated" in outcome["failures"][0]
    # a proxy before the service, or the service itself, may speak HTTPS: the second one has no business with that
    nonsense = tmp_path / "certificate"
    nonsense.write_text("no certificate", "utf-8")
    server.environment |= {
        "LAMELLA_TOKEN_FILE": str(key),
        "LAMELLA_TLS_CERT_FILE": str(nonsense),
        "LAMELLA_TLS_KEY_FILE": str(nonsense),
        "LAMELLA_CACHE_DIR": str(tmp_path / "cache"),
    }
    status, outcome = drill(server)
    assert (status, outcome["failures"]) == (0, [])
    assert outcome["counts"]["tables"] == 1
    assert not (tmp_path / "cache").exists()

"""Each kind of stored object and catalog row damaged: answers are right, or errors with a code of their own."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.index.directory import Directory
from support.app_client import AppClient
from support.service_api import parquet_bytes, read_problem

TABLE = "/v1/namespaces/n/tables/t"
BLOCKS = 40
#: Block 16 has such a row; the index rules out the others that may, by their bounds.
FILTER = "a = 165"
#: Questions that the undamaged table, too, refuses: it has no cluster key, Delta Sharing signs what is on S3,
#: a file is registered once, and nobody exported the table for Iceberg clients.
REFUSED = 5

Damage = Callable[[bytes], bytes | None]

DAMAGES: dict[str, Damage] = {
    "a bit": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 16]) + data[len(data) // 2 + 1 :],
    "its end": lambda data: data[:-9] + bytes(9),
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda _: b"",
    "gone": lambda _: None,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with a table that has every kind of object, and rows of every kind in its catalog."""
    folder = tmp_path_factory.mktemp("made")
    with served(folder) as client:
        ask(client, "POST", "/v1/namespaces", {"name": "n"}, 201)
        columns = [{"name": "a", "type": "int64"}, {"name": "s", "type": "string"}]
        ask(client, "POST", "/v1/namespaces/n/tables", {"name": "t", "schema": columns}, 201)
        files = []
        for number in range(BLOCKS):
            file = folder / f"{number}.parquet"
            values = list(range(0, 1000, 7)) if number % 2 else list(range(number * 10, number * 10 + 10))
            file.write_bytes(parquet_bytes({"a": values, "s": [str(value) for value in values]}))
            files.append(f"file://{file}")
        for number in range(0, BLOCKS, 2):
            ask(client, "POST", f"{TABLE}/register", {"paths": files[number : number + 2]}, key=f"key-{number}")
        ask(client, "POST", f"{TABLE}/indexes", {"name": "i", "expression": "a", "kind": "value_set"})
        ask(client, "POST", f"{TABLE}/indexes/i/refresh", {"max_blocks": 10})
        ask(client, "POST", f"{TABLE}/indexes/i/refresh", {})
        ask(client, "POST", f"{TABLE}/tags", {"name": "tagged"})
        ask(client, "POST", "/v1/jobs", {"kind": "verify", "table": "n.t"}, 201)
        ask(client, "PUT", f"{TABLE}/policy", {})
        ask(client, "POST", f"{TABLE}/vacuum", {})
    return folder


@contextmanager
def served(folder: Path) -> Iterator[AppClient]:
    """A new process, as far as its memory goes; whatever a handler raises is answered."""
    settings = Settings(
        warehouse=str(folder / "w"), catalog=str(folder / "catalog.db"), page_sidecars=True, log_requests=False
    )
    with AppClient(create_app(settings), base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


def ask(
    client: AppClient, method: str, path: str, body: Any = None, status: int | None = None, key: str | None = None
) -> Any:
    """An answer that must be good."""
    headers = {} if key is None else {"Idempotency-Key": key}
    answer = client.request(method, path, json=body, headers=headers)
    assert answer.status_code == status if status else answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


def questions(client: AppClient, folder: Path) -> Iterator[httpx2.Response]:
    """The answers of every route that only reads a table, and of those that ask about it by POST."""
    ids = json.loads((folder / "ids.json").read_text())
    document = client.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        if "{table}" in path and "get" in methods:
            filled = path
            for name, value in ids.items():
                filled = filled.replace(f"{{{name}}}", value)
            if "{" not in filled:
                yield client.get(filled + ("?since=tagged" if path.endswith("/changes") else ""))
    for body in ({"filter": FILTER}, {"filter": FILTER, "level": "page"}, {"filter": FILTER, "explain": True}, {}):
        yield client.post(f"{TABLE}/prune", json=body)
    yield client.post(f"{TABLE}/aggregate", json={"aggregates": ["max(a)"]})
    yield client.post(f"{TABLE}/verify", json={})
    yield client.post(f"{TABLE}/vacuum", json={})
    yield client.post("/iceberg/v1/namespaces/n/tables/t/plan", json={})
    yield client.post("/delta-sharing/shares/lamella/schemas/n/tables/t/query", json={})
    yield client.post(f"{TABLE}/register", json={"paths": [f"file://{folder}/0.parquet"]})
    yield client.post(f"{TABLE}/indexes/i/refresh", json={"mode": "full", "max_blocks": 1})
    yield client.get("/v1/jobs")
    yield client.get("/v1/audit")
    yield client.get("/v1/namespaces")
    yield client.get("/ui/tables/n/t")


def check(answers: Iterator[httpx2.Response], needed: set[str]) -> int:
    """Every answer is typed, and no prune leaves a block out; how many were not good."""
    bad = 0
    for answer in answers:
        request = f"{answer.request.method} {answer.request.url}"
        if answer.status_code >= 400:
            bad += 1
            assert '"lamella_error"' not in answer.text, f"{request}: {answer.text}"
            assert "the service failed" not in answer.text, f"{request}: {answer.text}"
        elif answer.request.url.path == f"{TABLE}/prune":
            assert needed <= {block["location"] for block in answer.json()["blocks"]}, request
    return bad


@pytest.fixture(scope="module")
def needed(made: Path) -> set[str]:
    """What a full scan finds for the filter; and the ids for the paths, which the undamaged table gives."""
    with served(made) as client:
        info = ask(client, "GET", TABLE)
        snapshot = ask(client, "GET", f"{TABLE}/snapshots/{info['snapshot_id']}")
        groups = [ref["segment_id"] for ref in snapshot["segments"]]
        ids = {"namespace": "n", "table": "t", "snapshot": info["snapshot_id"], "index": "i", "share": "lamella"}
        if groups:
            ids["segment"] = groups[0]
        (made / "ids.json").write_text(json.dumps(ids))
        found = {block["location"] for block in ask(client, "POST", f"{TABLE}/prune", {"filter": FILTER})["blocks"]}
        assert check(questions(client, made), found) == REFUSED
    return found


def kinds_of_objects(folder: Path) -> Mapping[str, list[Path]]:
    """The objects below the table's folder, by their kind."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted((folder / "w").rglob("*")):
        if path.is_file() and path.parent.name.startswith("_") and path.parent.name != "_probe":
            kinds.setdefault(f"{path.parent.name}{path.suffix}", []).append(path)
    return kinds


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.few(1)
def test_damaged_objects_are_typed_errors_or_more_blocks(made: Path, needed: set[str], damage: str) -> None:
    """Each kind in turn, all objects of it at once: snapshots, segments, groups, sidecars, pages, indexes."""
    kinds = kinds_of_objects(made)
    assert len(kinds) >= 6
    for kind, paths in kinds.items():
        originals = {path: path.read_bytes() for path in paths}
        try:
            for path, data in originals.items():
                changed = DAMAGES[damage](data)
                path.unlink()
                if changed is not None:
                    path.write_bytes(changed)
            with served(made) as client:
                bad = check(questions(client, made), needed)
                if kind.startswith("_ss"):
                    assert bad > REFUSED
        finally:
            for path, data in originals.items():
                path.write_bytes(data)


def test_a_damaged_index_directory_keeps_blocks_and_says_so(made: Path, needed: set[str]) -> None:
    """The prune is answered without the index, the report and a metric tell of it, and a verification finds it."""
    directories = [path for path in (made / "w").rglob("_ix/*") if is_directory(path)]
    assert directories
    originals = {path: path.read_bytes() for path in directories}
    with served(made) as client:
        (use,) = ask(client, "POST", f"{TABLE}/prune", {"filter": FILTER})["report"]["indexes"]
        assert use["ruled_out"] > 0
        assert "failure" not in use
    try:
        for path, data in originals.items():
            path.write_bytes(DAMAGES["a bit"](data) or b"")
        with served(made) as client:
            for _ in range(2):
                answer = ask(client, "POST", f"{TABLE}/prune", {"filter": FILTER})
                (use,) = answer["report"]["indexes"]
                assert (use["ruled_out"], use["considered"]) == (0, 0)
                assert use["not_indexed"] > 0
                assert "has changed since it was written" in use["failure"]
                assert needed < {block["location"] for block in answer["blocks"]}
            assert "lamella_prune_index_failures_total 2.0" in client.get("/metrics").text
            assert ask(client, "POST", f"{TABLE}/verify", {})["findings"]
    finally:
        for path, data in originals.items():
            path.write_bytes(data)
    with served(made) as client:
        (use,) = ask(client, "POST", f"{TABLE}/prune", {"filter": FILTER})["report"]["indexes"]
        assert use["ruled_out"] > 0


def is_directory(path: Path) -> bool:
    """Whether an object of an index is a directory."""
    try:
        Directory.read(path.read_bytes())
    except LamellaError:
        return False
    return True


#: What the catalog keeps as JSON, or as bytes that are answered as they are.
COLUMNS = {"pointer", "properties", "arguments", "progress", "error", "result", "policy", "findings", "fired", "body"}


@contextmanager
def own_catalog(made: Path, folder: Path) -> Iterator[sqlite3.Connection]:
    """The catalog, which may be damaged until the end; then it is as before."""
    database, backup = made / "catalog.db", folder / "kept.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(database, backup)
        yield connection
    for more in ("catalog.db-wal", "catalog.db-shm"):
        (made / more).unlink(missing_ok=True)
    shutil.copy(backup, database)


def text_columns(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """The columns of :data:`COLUMNS`, each with its table."""
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return [
        (table, column[1])
        for table in tables
        for column in connection.execute(f"PRAGMA table_info({table})")
        if column[1] in COLUMNS
    ]


@pytest.mark.slow
@pytest.mark.parametrize("value", ["{", "[1, 2]", b"\xff"])
@pytest.mark.few(1)
def test_damaged_rows_are_typed_errors(made: Path, needed: set[str], tmp_path: Path, value: str | bytes) -> None:
    """Each column in turn, in all rows: pointers, properties, jobs, policies, answers that are replayed."""
    with own_catalog(made, tmp_path) as connection:
        columns = text_columns(connection)
    assert {column for _, column in columns} >= {"pointer", "properties", "body", "arguments", "policy"}
    body = {"paths": [f"file://{made}/0.parquet", f"file://{made}/1.parquet"]}
    for table, column in columns:
        with own_catalog(made, tmp_path) as connection:
            damage = f"UPDATE {table} SET {column} = ? WHERE {column} IS NOT NULL"  # noqa: S608  # of the schema
            connection.execute(damage, (value,))
            with served(made) as client:
                check(questions(client, made), needed)
                again = client.post(f"{TABLE}/register", json=body, headers={"Idempotency-Key": "key-0"})
                check(iter([again]), needed)
                if (table, column) == ("idempotency", "body") and value in ("{", b"\xff"):
                    assert read_problem(again).code == "catalog_damaged"
                if (table, column) == ("tables", "pointer"):
                    assert read_problem(client.get(TABLE)).code == "catalog_damaged"


def test_a_damaged_database_is_a_typed_error(made: Path, needed: set[str], tmp_path: Path) -> None:
    """While the service runs, its file is overwritten from the second page on."""
    with own_catalog(made, tmp_path), served(made) as client:
        with closing(sqlite3.connect(made / "catalog.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size_bytes = (made / "catalog.db").stat().st_size
        with (made / "catalog.db").open("r+b") as file:
            file.seek(4096)
            file.write(b"x" * (size_bytes - 4096))
        answers = [client.get(path) for path in (TABLE, f"{TABLE}/snapshots", "/v1/jobs", "/v1/namespaces")]
        assert check(iter(answers), needed) > 0
        check(questions(client, made), needed)

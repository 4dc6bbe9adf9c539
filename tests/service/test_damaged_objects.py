"""Each kind of stored object and catalog row damaged: answers are right, or errors with a code of their own."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from lamella.service.app import create_app
from lamella.service.settings import Settings
from lamella.snapshot.index.directory import Directory
from support.service_api import parquet_bytes

TABLE = "/v1/namespaces/n/tables/t"
BLOCKS = 40
#: Block 16 has such a row; the index rules out the others that may, by their bounds.
FILTER = "a = 165"
#: Questions that the undamaged table, too, refuses: it has no cluster key, and Delta Sharing signs what is on S3.
REFUSED = 3

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
def served(folder: Path) -> Iterator[TestClient]:
    """A new process, as far as its memory goes; whatever a handler raises is answered."""
    settings = Settings(
        warehouse=str(folder / "w"), catalog=str(folder / "catalog.db"), page_companions=True, log_requests=False
    )
    with TestClient(create_app(settings), base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


def ask(
    client: TestClient, method: str, path: str, body: Any = None, status: int | None = None, key: str | None = None
) -> Any:
    """An answer that must be good."""
    headers = {} if key is None else {"Idempotency-Key": key}
    answer = client.request(method, path, json=body, headers=headers)
    assert answer.status_code == status if status else answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


def questions(client: TestClient, folder: Path) -> Iterator[httpx2.Response]:
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
    yield client.post(f"/iceberg/v1/namespaces/n/tables/t/plan", json={})
    yield client.post(f"/delta-sharing/shares/lamella/schemas/n/tables/t/query", json={})
    yield client.get("/v1/jobs")
    yield client.get("/ui/tables/n/t")


def check(answers: Iterator[httpx2.Response], needed: set[str]) -> int:
    """Every answer is typed, and no prune leaves a block out; how many were not good."""
    bad = 0
    for answer in answers:
        asked = f"{answer.request.method} {answer.request.url}"
        if answer.status_code >= 400:
            bad += 1
            print(asked, answer.text[:300])
            assert '"lamella_error"' not in answer.text, f"{asked}: {answer.text}"
            assert "the service failed" not in answer.text, f"{asked}: {answer.text}"
        elif answer.request.url.path == f"{TABLE}/prune":
            assert needed <= {block["location"] for block in answer.json()["blocks"]}, asked
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


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_objects_are_typed_errors_or_more_blocks(
    made: Path, needed: set[str], tmp_path: Path, damage: str
) -> None:
    """Each kind in turn, all objects of it at once."""
    kinds = kinds_of_objects(made)
    assert len(kinds) >= 6
    for kind, paths in kinds.items():
        kept = {path: path.read_bytes() for path in paths}
        try:
            for path, data in kept.items():
                changed = DAMAGES[damage](data)
                path.unlink()
                if changed is not None:
                    path.write_bytes(changed)
            with served(made) as client:
                bad = check(questions(client, made), needed)
                if kind.startswith("_ss"):
                    assert bad > REFUSED
        finally:
            for path, data in kept.items():
                path.write_bytes(data)

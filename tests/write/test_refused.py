"""Writes of callers who may only read: they are refused before a file is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fixtures_server import StartServer
from lamella.client import Lamella
from lamella.client.http import Table
from lamella.client.jobs.analyze import analyze
from lamella.client.jobs.context import JobContext
from lamella.client.rewrite.engine import ThreadEngine
from lamella.client.rewrite.target import Target
from lamella.snapshot.errors import InvalidRequest, PermissionDenied, TableNotFound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.tokens import key_sha256, key_text
from lamella.snapshot.wire import Grant

ROOT_KEY = key_text(b"w" * 32)
ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def root(start_server: StartServer, tmp_path: Path) -> Iterator[Lamella]:
    """The administrator of a service that asks for keys, with the table ``db.t`` of three rows."""
    server = start_server(warehouse=tmp_path / "warehouse", auth=True, root_key_sha256=key_sha256(ROOT_KEY))
    with Lamella(server.url, token=ROOT_KEY) as lake:
        lake.create_namespace("db")
        lake.table("db.t").append(ROWS, create=True)
        yield lake


@pytest.fixture
def client_of(root: Lamella) -> Iterator[Callable[..., Lamella]]:
    """Make a client with a key of these grants."""
    made: list[Lamella] = []

    def make(*grants: Grant) -> Lamella:
        key = root.keys.create(f"key{len(made)}", grants).key
        made.append(Lamella(root.url, token=key))
        return made[-1]

    yield make
    for each in made:
        each.close()


def files_below(folder: Path) -> list[Path]:
    """All files of the warehouse."""
    return sorted(each for each in folder.rglob("*") if each.is_file())


WRITES: dict[str, Callable[[Table], Any]] = {
    "append": lambda table: table.append(ROWS),
    "append once": lambda table: table.append(ROWS, idempotency_key="load-1"),
    "append to a new table if missing": lambda table: table.append(ROWS, create=True),
    "overwrite": lambda table: table.overwrite(ROWS),
    "overwrite some": lambda table: table.overwrite(ROWS, where="id = 1"),
    "upsert": lambda table: table.upsert(ROWS, on=["id"]),
    "delete": lambda table: table.delete("id = 1"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_reader_writes_no_file(
    root: Lamella,
    client_of: Callable[..., Lamella],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Table], Any],
) -> None:
    """The refusal names the role, no store was opened for it, and the warehouse has the files that it had."""
    reader = client_of(Grant(role="read", namespace="db"))
    before = files_below(tmp_path / "warehouse")
    opened: list[Target] = []
    original = Target.store

    def store_of(target: Target) -> FsspecStore:
        opened.append(target)
        return original(target)

    monkeypatch.setattr(Target, "store", store_of)
    with pytest.raises(PermissionDenied) as refused:
        write(reader.table("db.t"))
    assert refused.value.details["role"] == "write"
    assert not opened
    assert files_below(tmp_path / "warehouse") == before
    write(root.table("db.t"))
    assert opened


def test_a_reader_analyzes_nothing(client_of: Callable[..., Lamella]) -> None:
    """The job commits statistics, so it is refused at its beginning."""
    reader = client_of(Grant(role="read", namespace="db"))
    with pytest.raises(PermissionDenied):
        analyze(JobContext(lake=reader, table="db.t", engine=ThreadEngine(1)))


def test_a_request_for_a_table_can_require_a_role(root: Lamella, client_of: Callable[..., Lamella]) -> None:
    """Each role includes those below it; a table that the caller may not see does not exist for it."""
    writer = client_of(Grant(role="write", namespace="db", table="t")).table("db.t")
    assert writer.info() == writer.info(role="read") == writer.info(role="write")
    with pytest.raises(PermissionDenied, match="maintain"):
        writer.info(role="maintain")
    with pytest.raises(PermissionDenied, match="admin"):
        writer.info(role="admin")
    assert root.table("db.t").info(role="admin").row_count == 3
    stranger = client_of(Grant(role="read", namespace="db", table="other")).table("db.t")
    with pytest.raises(TableNotFound):
        stranger.info(role="write")
    with pytest.raises(InvalidRequest, match="role is one of read, write, maintain, admin, not 'owner'"):
        root.table("db.t").info(role="owner")  # type: ignore[arg-type]  # what the service says to it

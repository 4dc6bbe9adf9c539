"""Under a key an append happens once: repeated, with lost answers, in two programs at once, after a crash."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fixtures_server import ServerProcess, StartServer
from lamella.client import Lamella
from lamella.client.http import NO_RETRY, Table
from lamella.client.http.fake_transport import FakeTransport
from lamella.client.http.transport import HttpRequest, HttpResponse, PooledTransport, TransportFailure
from lamella.client.write.once import SentCommit
from lamella.snapshot.errors import IdempotencyMismatch, InvalidRequest, OutcomeUnknown, SchemaMismatch, Unavailable
from write.conftest import MakeTable

ROWS = {"id": [1, 2, 3]}
#: Decides what becomes of a commit: "send" it, send it but "lose" the answer, or "drop" it unsent.
Decide = Callable[[int], str]


def with_faults(server: ServerProcess, decide: Decide) -> tuple[Lamella, list[str | None]]:
    """A client without retries of its own, and the keys of the commits that it tried."""
    keys: list[str | None] = []
    service = PooledTransport(server.url, timeout_s=60)

    def handle(request: HttpRequest) -> HttpResponse | TransportFailure:
        if not request.path.endswith("/commits"):
            return service.send(request)
        keys.append(request.header("Idempotency-Key"))
        decision = decide(len(keys))
        if decision == "drop":
            return TransportFailure("the connection was cut", sent=True)
        answer = service.send(request)
        return TransportFailure("the connection was cut", sent=True) if decision == "lose" else answer

    return Lamella(server.url, transport=FakeTransport(handle), policy=NO_RETRY), keys


def sent_commits(table: Table) -> list[Path]:
    """The stored requests of appends with a key."""
    return list(Path(table.info().location.removeprefix("file://")).glob("_tmp/*.commit"))


def appends(table: Table) -> int:
    """How many appends were committed."""
    return sum(entry.operation == "append" for entry in table.snapshots())


def test_of_two_appends_with_one_key_one_happens(make_table: MakeTable) -> None:
    """The second one has other files, and returns the first one's result; another key is another append."""
    table = make_table(id="int64")
    first = table.append(ROWS, idempotency_key="once")
    assert table.append(ROWS, idempotency_key="once") == first
    assert (appends(table), table.info().row_count, first.rows) == (1, 3, 3)
    table.append(ROWS, idempotency_key="twice")
    assert (appends(table), table.info().row_count) == (2, 6)


def test_rows_are_not_read_again_for_a_key_that_was_used(make_table: MakeTable) -> None:
    """A job that runs again does not pay for its input."""
    table = make_table(id="int64")
    table.append(ROWS, idempotency_key="once")
    rows = iter([{"id": 4}])
    table.append(rows, idempotency_key="once")
    assert list(rows) == [{"id": 4}]


@pytest.mark.parametrize("key", ["", "with space", "ä", "k" * 256])
def test_an_impossible_key_is_refused_before_rows_are_read(make_table: MakeTable, key: str) -> None:
    """And leaves nothing behind under its name."""
    table = make_table(id="int64")
    rows = iter([{"id": 1}])
    with pytest.raises(InvalidRequest):
        table.append(rows, idempotency_key=key)
    assert (list(rows), sent_commits(table)) == ([{"id": 1}], [])


def test_a_key_belongs_to_one_table(make_table: MakeTable) -> None:
    """The same key at another table is another append."""
    first, second = make_table(id="int64"), make_table(id="int64")
    assert first.append(ROWS, idempotency_key="once").rows == second.append(ROWS, idempotency_key="once").rows == 3
    assert second.info().row_count == 3


def test_a_key_holds_when_the_rows_were_rewritten_since(make_table: MakeTable) -> None:
    """Nothing comes back: not deleted rows, and not those that a compaction has moved."""
    table = make_table(id="int64")
    table.append(ROWS, idempotency_key="once")
    table.delete("id = 2")
    again = table.append(ROWS, idempotency_key="once")
    assert (again.rows, table.info().row_count) == (3, 2)


@pytest.mark.parametrize("key", [None, "once"])
def test_a_lost_answer_is_found_again(shared_server: ServerProcess, make_table: MakeTable, key: str | None) -> None:
    """The commit is sent again as it was, and the service repeats its answer."""
    table = make_table(id="int64")
    lake, keys = with_faults(shared_server, lambda attempt: "lose" if attempt < 3 else "send")
    result = lake.table(str(table)).append(ROWS, idempotency_key=key)
    assert (result.rows, result.snapshot_id) == (3, table.info().snapshot_id)
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert (appends(table), table.info().row_count) == (1, 3)


@pytest.mark.parametrize("decision", ["lose", "drop"])
def test_what_stays_unknown_is_found_out_by_a_repeated_append(
    shared_server: ServerProcess, make_table: MakeTable, decision: str
) -> None:
    """Whether the commit had happened or not; also from another program, which writes its rows anew."""
    table = make_table(id="int64")
    lake, keys = with_faults(shared_server, lambda _attempt: decision)
    with pytest.raises(OutcomeUnknown):
        lake.table(str(table)).append(ROWS, idempotency_key="once")
    assert len(keys) == 4
    assert table.info().row_count == (3 if decision == "lose" else 0)
    assert table.append(ROWS, idempotency_key="once").snapshot_id == table.info().snapshot_id
    assert (appends(table), table.info().row_count) == (1, 3)


def test_two_programs_with_one_key_append_once(shared_server: ServerProcess, make_table: MakeTable) -> None:
    """Both return the result of the one that was committed."""
    table = make_table(id="int64")
    barrier = threading.Barrier(2)
    results: list[Any] = []

    def rows() -> Any:
        barrier.wait()  # both have found no earlier append
        yield {"id": 1}

    def run() -> None:
        with Lamella(shared_server.url) as lake:
            results.append(lake.table(str(table)).append(rows(), idempotency_key="once"))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert results[0] == results[1]
    assert (appends(table), table.info().row_count) == (1, 1)


def test_a_key_whose_stored_request_is_gone_is_refused(make_table: MakeTable) -> None:
    """A vacuum removes stored requests after a while; then the service alone remembers the key."""
    table = make_table(id="int64")
    table.append(ROWS, idempotency_key="once")
    for path in sent_commits(table):
        path.unlink()
    with pytest.raises(IdempotencyMismatch):
        table.append(ROWS, idempotency_key="once")
    assert table.info().row_count == 3


def test_a_stored_request_is_not_sent_when_its_answer_may_be_forgotten(make_table: MakeTable) -> None:
    """It would be another commit then. The service still refuses the key, so nothing is added twice."""
    table = make_table(id="int64")
    table.append(ROWS, idempotency_key="once")
    (path,) = sent_commits(table)
    sent = msgspec.json.decode(path.read_bytes(), type=SentCommit)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(sent, created_ms=0)))
    with pytest.raises(IdempotencyMismatch):
        table.append(ROWS, idempotency_key="once")
    assert (appends(table), table.info().row_count) == (1, 3)


def test_a_failed_append_does_not_use_up_its_key(shared_server: ServerProcess, make_table: MakeTable) -> None:
    """Rows that do not fit, and a service that cannot be reached, leave the table and the key as they were."""
    table = make_table(id="int64")
    before = table.info()
    with pytest.raises(SchemaMismatch):
        table.append(iter([{"id": 1}, {"id": "x"}]), idempotency_key="once")
    away = Lamella(
        shared_server.url, transport=FakeTransport(lambda _: TransportFailure("refused", sent=False)), policy=NO_RETRY
    )
    with pytest.raises(Unavailable):
        away.table(str(table)).append(ROWS, idempotency_key="once")
    assert table.info() == before
    assert table.append(ROWS, idempotency_key="once").rows == 3


_PROGRAM = """
import os, signal, sys
from lamella.client import Lamella
from lamella.client.http.fake_transport import FakeTransport
from lamella.client.http.transport import PooledTransport

url, table, moment = sys.argv[1:]
service = PooledTransport(url, timeout_s=60)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def handle(request):
    is_commit = request.path.endswith("/commits")
    if is_commit and moment == "before the commit":
        die()
    answer = service.send(request)
    if is_commit:
        die()
    return answer

def rows():
    yield {"id": 1}
    yield {"id": 2}
    if moment == "while reading":
        die()
    yield {"id": 3}

lake = Lamella(url, transport=FakeTransport(handle))
lake.table(table).append(rows(), idempotency_key="once", target_block_rows=1)
"""


@pytest.mark.parametrize("moment", ["while reading", "before the commit", "after the commit"])
def test_a_killed_append_is_finished_by_the_next(
    shared_server: ServerProcess, make_table: MakeTable, tmp_path: Path, moment: str
) -> None:
    """A killed program leaves the table as it was or with all rows; the same append again gives all rows once."""
    table = make_table(id="int64")
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    done = subprocess.run([sys.executable, program, shared_server.url, str(table), moment], check=False)
    assert done.returncode == -9
    assert table.info().row_count == (3 if moment == "after the commit" else 0)
    assert table.append(ROWS, idempotency_key="once").rows == 3
    assert (appends(table), table.info().row_count) == (1, 3)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert table.verify(deep=True, sample=1.0).is_clean


def test_a_commit_beyond_one_request_happens_once(start_server: StartServer, tmp_path: Path) -> None:
    """Its blocks are in lists, which are gone when the stored request is sent again; and stay while it is unknown."""
    server = start_server(warehouse=tmp_path / "warehouse", max_body_bytes=40_000)
    with Lamella(server.url) as lake:
        table = lake.table("db.t")
        rows = {"id": range(60)}
        first = table.append(rows, create=True, target_block_rows=1, idempotency_key="once")
        assert first.blocks == 60
        assert table.append(rows, target_block_rows=1, idempotency_key="once") == first
        faulty, _ = with_faults(server, lambda _attempt: "drop")
        with pytest.raises(OutcomeUnknown):
            faulty.table("db.t").append(rows, target_block_rows=1, idempotency_key="twice")
        assert table.append(rows, target_block_rows=1, idempotency_key="twice").blocks == 60
        assert (appends(table), table.info().row_count) == (2, 120)

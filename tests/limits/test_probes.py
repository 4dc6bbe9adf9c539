"""Probes, which anybody may ask: they cost what one that asks every second costs, and are answered in bounded time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lamella.service.app import create_app
from lamella.service.catalog import open_catalog
from lamella.service.config.settings import Settings
from lamella.service.process import health
from lamella.service.process.health import PATHS, RESULT_TTL_S, Probe, in_own_thread
from lamella.snapshot.errors import StoreError, Unavailable
from lamella.snapshot.storage import FsspecStore, ObjectStat
from support.app_client import AppClient
from support.faulty_catalog import CatalogFaults
from support.faulty_store import Fault, FaultyStore, Script
from support.operations import CountedStore
from support.postgres_server import PostgresServer
from support.service_api import read_problem


class Parts:
    """What is looked at; ``goes`` lets a look come to its end."""

    def __init__(self) -> None:
        self.looks = 0
        self.error: Exception | None = None
        self.goes = asyncio.Event()
        self.now_s = 100.0
        self.findings = Probe(self._look, lambda: self.now_s)

    async def _look(self) -> None:
        self.looks += 1
        await self.goes.wait()
        if self.error is not None:
            raise self.error


def test_the_error_of_a_check_keeps_its_cause() -> None:
    """The log of a failed probe names the cause, also where the probe waited for the check."""

    async def failing() -> None:
        raise StoreError("cannot stat") from OSError("the host is down")

    async def causes() -> list[BaseException | None]:
        probe, found = Probe(failing), []
        for _ in range(2):
            with pytest.raises(StoreError) as failed:
                await probe.check()
            found.append(failed.value.__cause__)
        return found

    assert [type(cause) for cause in asyncio.run(causes())] == [OSError, OSError]


def test_those_who_ask_at_once_have_one_look() -> None:
    """One of them that goes away takes nobody's answer along."""

    async def go() -> None:
        parts = Parts()
        asking = [asyncio.ensure_future(parts.findings.check()) for _ in range(100)]
        await asyncio.sleep(0)
        asking[0].cancel()
        await asyncio.sleep(0)
        parts.goes.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*asking[1:])
        assert parts.looks == 1

    asyncio.run(go())


@pytest.mark.parametrize("error", [None, StoreError("away")])
def test_what_was_found_holds_for_a_moment(error: Exception | None) -> None:
    """Good or bad; then it is looked at anew."""

    async def go() -> None:
        parts = Parts()
        parts.goes.set()
        parts.error = error

        async def is_well() -> bool:
            try:
                await parts.findings.check()
            except StoreError:
                return False
            return True

        assert await is_well() == (error is None)
        parts.error = StoreError("away") if error is None else None
        parts.now_s += RESULT_TTL_S / 2
        assert await is_well() == (error is None)
        assert parts.looks == 1
        parts.now_s += RESULT_TTL_S / 2
        assert await is_well() == (error is not None)
        assert parts.looks == 2

    asyncio.run(go())


def test_readiness_that_is_probed_all_the_time_does_not_ask_the_store_as_often(tmp_path: Path) -> None:
    """Anybody may ask, without saying who they are."""
    store = CountedStore(FsspecStore())
    with AppClient(create_app(Settings(warehouse=str(tmp_path)), store=store)) as client:
        assert client.get("/health/startup").status_code == 200
        store.reset()
        for _ in range(200):
            assert client.get("/health/ready").status_code == 200
    assert store.others < 100


def test_the_paths_of_probes_are_those_of_the_routes(tmp_path: Path) -> None:
    """A misspelt one would be refused when it matters."""
    with AppClient(create_app(Settings(warehouse=str(tmp_path)))) as client:
        assert [client.get(path).status_code for path in sorted(PATHS)] == [200] * len(PATHS)


class HangingStore(FsspecStore):
    """A store of which one operation does not come back while ``hangs`` is set."""

    def __init__(self, operation: str) -> None:
        super().__init__()
        self.hangs = threading.Event()
        self.goes = threading.Event()
        self.begun = 0
        self._operation = operation

    def _wait(self, operation: str) -> None:
        if self.hangs.is_set() and operation == self._operation:
            self.begun += 1
            assert self.goes.wait(60)

    def stat(self, location: str) -> ObjectStat:
        """As the store does, some time."""
        self._wait("stat")
        return super().stat(location)

    def put(self, location: str, data: bytes) -> ObjectStat:
        """As the store does, some time."""
        self._wait("put")
        return super().put(location, data)


@contextmanager
def served(folder: Path, **parts: Any) -> Iterator[AppClient]:
    """A service that looks at everything anew for each probe."""
    chosen = Settings(warehouse=str(folder / "warehouse"), catalog=str(folder / "catalog.db"), **parts.pop("chosen"))
    with AppClient(create_app(chosen, **parts), raise_server_exceptions=False) as client:
        assert client.get("/health/ready").status_code == 200
        yield client


EACH_TIME: dict[str, Any] = {"ready_timeout_s": 0.2, "ready_write_interval_s": 1e-9}


@pytest.mark.parametrize("operation", ["stat", "put"])
def test_a_store_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    """Readiness is 503 in time, one thread waits however many ask, all else answers, and it is ready again after."""
    monkeypatch.setattr(health, "RESULT_TTL_S", 0.0)
    store = HangingStore(operation)
    # Two seconds: a busy machine must not take the catalog for the part that hangs.
    with served(tmp_path, store=store, chosen={**EACH_TIME, "ready_timeout_s": 2.0}) as client:
        store.hangs.set()
        for _ in range(5):
            problem = read_problem(client.get("/health/ready"))
            assert (problem.status, problem.code, problem.details["reason"]) == (503, "unavailable", "no_answer")
            assert "warehouse did not answer within 2 s" in problem.detail
        assert store.begun == 1
        for path in ("/health/live", "/health/startup", "/metrics", "/v1/namespaces"):
            assert client.get(path).status_code == 200
        store.hangs.clear()
        store.goes.set()
        for _ in range(1_000):
            if client.get("/health/ready").status_code == 200:
                break
        assert client.get("/health/ready").status_code == 200


@pytest.mark.postgres
def test_a_frozen_database_is_not_waited_for(
    own_postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes take connections and answer nothing: 503 in time, and no thread more with each probe."""
    monkeypatch.setattr(health, "RESULT_TTL_S", 0.0)
    catalog = open_catalog(own_postgres.url, connections=8, auto_migrate=True)
    with served(tmp_path, catalog=catalog, chosen={**EACH_TIME, "ready_timeout_s": 1.0}) as client:
        with frozen(own_postgres):
            problem = read_problem(client.get("/health/ready"))
            assert (problem.status, problem.code, problem.details["reason"]) == (503, "unavailable", "no_answer")
            before = threading.active_count()
            for _ in range(40):
                assert client.get("/health/ready").status_code == 503
            assert threading.active_count() < before + 20  # pools begin a few threads, whenever they like
            waiting = [thread for thread in threading.enumerate() if thread.name == "lamella-probe"]
            assert len(waiting) <= 4  # the parts that readiness checks; those that answer are soon gone
            assert [client.get(path).status_code for path in ("/health/live", "/metrics")] == [200, 200]
        for _ in range(1_000):
            if client.get("/health/ready").status_code == 200:
                break
        assert client.get("/health/ready").status_code == 200


@contextmanager
def frozen(server: PostgresServer) -> Iterator[None]:
    """Stop all processes of a server, as SIGSTOP does, and let them go on."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        row = connection.execute("SELECT pg_read_file('postmaster.pid')").fetchone()
    assert row is not None
    parent = int(row[0].split()[0])
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=True)
    pids = [parent, *map(int, found.stdout.split())]
    try:
        for pid in pids:
            with suppress(ProcessLookupError):  # that of the connection above ends about now
                os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_a_service_that_cannot_write_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: commits would fail. Startup and liveness are as before, and it is ready again with space."""
    monkeypatch.setattr(health, "RESULT_TTL_S", 0.0)
    store = FaultyStore(FsspecStore())
    with served(tmp_path, store=store, chosen=EACH_TIME) as client:
        store.faults = Script([Fault(how="full", operation="put", times=1_000)])
        problem = read_problem(client.get("/health/ready"))
        assert (problem.status, problem.code) == (502, "store_error")
        assert "No space left on device" in problem.detail
        assert [client.get(f"/health/{name}").status_code for name in ("live", "startup")] == [200, 200]
        store.faults = Script()
        assert client.get("/health/ready").status_code == 200


def test_a_catalog_that_takes_no_writes_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers questions, and its COMMITs fail."""
    monkeypatch.setattr(health, "RESULT_TTL_S", 0.0)
    catalog = open_catalog(str(tmp_path / "catalog.db"))
    faults = CatalogFaults(catalog)
    with served(tmp_path, catalog=catalog, chosen=EACH_TIME) as client:
        faults.arm("before commit")
        problem = read_problem(client.get("/health/ready"))
        assert (problem.status, problem.code) == (503, "unavailable")
        assert client.get("/health/ready").status_code == 200


@pytest.mark.postgres
def test_a_database_that_takes_no_writes_is_not_ready(
    postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a failover to a standby: 503 from readiness, and from a change that is tried all the same."""
    monkeypatch.setattr(health, "RESULT_TTL_S", 0.0)
    catalog = open_catalog(postgres_database, auto_migrate=True)
    with served(tmp_path, catalog=catalog, chosen=EACH_TIME) as client:
        name = postgres_database.rpartition("/")[2]
        with psycopg.connect(postgres_database.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        catalog._engine.dispose()
        assert read_problem(client.get("/health/ready")).code == "unavailable"
        assert read_problem(client.post("/v1/namespaces", json={"name": "n"})).code == "unavailable"
        assert client.get("/v1/namespaces").status_code == 200


def test_readiness_writes_no_more_often_than_settings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask; with 0, never. Nothing of it is left behind."""
    monkeypatch.setattr(health, "RESULT_TTL_S", 0.0)
    for interval_s, puts in ((3_600.0, 1), (0.0, 0)):
        store = CountedStore(FsspecStore())
        folder = tmp_path / str(puts)
        chosen = Settings(warehouse=str(folder), ready_write_interval_s=interval_s)
        with AppClient(create_app(chosen, store=store)) as client:
            assert client.get("/health/startup").status_code == 200
            store.reset()
            for _ in range(50):
                assert client.get("/health/ready").status_code == 200
        assert store.puts == puts
        assert not list((folder / "_probe").iterdir())


def test_a_check_that_takes_too_long_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who ask while it goes on are told at once when its time is over; its late result counts for the next."""
    monkeypatch.setattr(health, "RESULT_TTL_S", 3.0)

    async def go() -> None:
        parts = Parts()
        parts.findings = Probe(parts._look, lambda: parts.now_s, what="a part", timeout_s=0.05)
        with pytest.raises(Unavailable, match=r"a part did not answer within 0\.05 s"):
            await parts.findings.check()
        parts.now_s += 1.0
        for _ in range(100):
            with pytest.raises(Unavailable):
                await parts.findings.check()
        assert parts.looks == 1
        parts.goes.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await parts.findings.check()
        assert parts.looks == 1

    asyncio.run(go())


def test_a_check_that_nobody_waits_for_any_more_ends_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the service stops while the store hangs: its thread raises nothing."""
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    goes = threading.Event()
    threads: list[threading.Thread] = []

    def work() -> None:
        threads.append(threading.current_thread())
        goes.wait(60)
        raise StoreError("away")

    async def go() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(in_own_thread(work), 0.05)

    asyncio.run(go())
    goes.set()
    threads[0].join(60)
    assert raised == []

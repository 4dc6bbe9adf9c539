"""A busy process: what it takes on, whom it refuses, and that it is still seen to be alive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import httpx2
import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from lamella.service.http.admission import BodyReader
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import BodyTooLarge, Overloaded
from support.pausable_service import TABLE, PausableService
from support.service_api import read_problem
from support.stalled_reads import StalledReads
from support.tenants import ROOT_KEY, ROOT_SHA256


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[StalledReads]:
    """An app that takes on two reads and lets three wait."""
    app = StalledReads(tmp_path, requests_at_once=2, requests_waiting=3)
    yield app
    app.close()


def fill(app: StalledReads, paths: Sequence[str], key: str | None = None) -> list[Future[httpx2.Response]]:
    """Prunes of these tables, two of which are at work, while the others wait."""
    sent: list[Future[httpx2.Response]] = []
    for path in paths:
        sent.append(app.send(path, key))
        wanted = min(len(sent), 2), max(len(sent) - 2, 0)
        app.until(lambda wanted=wanted: busy_with(app) == wanted)  # type: ignore[misc]  # a default
    return sent


def busy_with(app: StalledReads) -> tuple[int, int]:
    """Reads at work, and those that wait for a place."""
    return app.store.waiting, int(app.metric('lamella_requests_waiting{kind="read"}'))


def test_more_than_are_at_work_and_wait_are_refused_at_once(busy: StalledReads) -> None:
    """429 with a time to come back, and the reason; those who wait are answered later."""
    paths = [busy.table(f"t{number}") for number in range(6)]
    busy.hold()
    sent = fill(busy, paths[:5])
    answer = busy.send(paths[5]).result(60)
    problem = read_problem(answer)
    assert (problem.status, problem.code, problem.details["limit"]) == (429, "overloaded", "requests")
    assert answer.headers["retry-after"] == "1"
    assert not any(each.done() for each in sent)
    busy.let_go()
    assert [each.result(60).status_code for each in sent] == [200] * 5
    assert busy.metric('lamella_requests_refused_total{kind="read",limit="requests"}') == 1
    assert busy.send(paths[5]).result(60).status_code == 200


def test_a_full_process_is_seen_to_be_alive_and_takes_changes(busy: StalledReads) -> None:
    """Probes and metrics are answered whatever waits, and reads take no place of changes."""
    paths = [busy.table(f"t{number}") for number in range(5)]
    busy.hold()
    sent = fill(busy, paths)
    for probe in ("/health/live", "/health/ready", "/health/startup", "/metrics"):
        assert busy.app.get(probe).status_code == 200
    assert busy.app.post("/v1/namespaces", json={"name": "other"}).status_code == 201
    assert read_problem(busy.app.get("/v1/namespaces")).status == 429
    busy.let_go()
    assert [each.result(60).status_code for each in sent] == [200] * 5


def test_one_principal_leaves_capacity_for_others(tmp_path: Path) -> None:
    """It has half of the places and of the line; another one's request is served meanwhile."""
    root = {"Authorization": f"Bearer {ROOT_KEY}"}
    app = StalledReads(
        tmp_path, headers=root, auth=True, root_key_sha256=ROOT_SHA256, requests_at_once=4, requests_waiting=4
    )
    paths = [app.table(f"t{number}") for number in range(6)]
    body = {"name": "reader", "grants": [{"role": "read", "namespace": "n"}]}
    key = app.app.post("/v1/keys", json=body).json()["key"]
    assert app.send(paths[5], key).result(60).status_code == 200
    app.hold()
    sent = fill(app, paths[:4], ROOT_KEY)
    problem = read_problem(app.send(paths[4], ROOT_KEY).result(60))
    assert (problem.status, problem.details["limit"]) == (429, "share")
    other = app.send(paths[5], key)
    app.until(lambda: app.store.waiting == 3)
    app.let_go()
    assert [each.result(60).status_code for each in [*sent, other]] == [200] * 5
    app.close()


def test_more_changes_than_a_process_takes_on_are_refused(tmp_path: Path) -> None:
    """Before they are looked at; the others are made."""
    pausable = PausableService(tmp_path, changes_at_once=3)
    first = pausable.hold()
    waiting = [pausable.send("register", {"paths": [pausable.file(f"f{number}")]}) for number in range(2)]
    pausable.queued(2)
    problem = read_problem(pausable.app.post(f"{TABLE}/register", json={"paths": ["/nowhere"]}))
    assert (problem.status, problem.code, problem.details["limit"]) == (429, "overloaded", "requests")
    pausable.go.set()
    assert [each.result(60).status_code for each in (first, *waiting)] == [200] * 3
    pausable.opened.close()


class _Sender:
    """A request whose body comes in parts, when it is told to go on."""

    def __init__(self, *parts: bytes) -> None:
        self._messages: list[Message] = [
            {"type": "http.request", "body": part, "more_body": index + 1 < len(parts)}
            for index, part in enumerate(parts)
        ]
        self.goes = asyncio.Event()
        self.request = Request({"type": "http", "method": "POST", "path": "/", "headers": []}, self._receive)

    async def _receive(self) -> Message:
        if len(self._messages) == 1:
            await self.goes.wait()
        return self._messages.pop(0) if self._messages else {"type": "http.disconnect"}


def bodies(max_bytes: int, *, shared: bool = True) -> BodyReader:
    """A memory for bodies."""
    return BodyReader(max_bytes=max_bytes, shared=shared, metrics=Metrics())


def test_bodies_together_have_so_much_memory() -> None:
    """What would be more is refused in the middle; memory is free again once a request is over."""

    async def test() -> None:
        own = bodies(100, shared=False)
        first, second = _Sender(b"x" * 60, b"y" * 10), _Sender(b"x" * 30, b"y" * 10)
        reading = asyncio.ensure_future(own.read(first.request, "a", 1000))
        await asyncio.sleep(0)
        second.goes.set()
        assert await own.read(second.request, "a", 1000) == 40
        first.goes.set()
        with pytest.raises(Overloaded) as refused:
            await reading
        assert refused.value.details["limit"] == "bytes"
        own.forget("a", 40)
        alone = _Sender(b"x" * 90, b"y" * 90)
        alone.goes.set()
        assert await own.read(alone.request, "a", 1000) == 180
        assert await alone.request.body() == b"x" * 90 + b"y" * 90

    asyncio.run(test())


def test_the_first_part_of_a_body_counts_as_any_other() -> None:
    """It may be the largest of them: what does not fit is refused before more of it is awaited."""

    async def test() -> None:
        own = bodies(100, shared=False)
        first, second = _Sender(b"x" * 60, b"y"), _Sender(b"x" * 60, b"y")
        reading = asyncio.ensure_future(own.read(first.request, "a", 1000))
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            with pytest.raises(Overloaded) as refused:
                await own.read(second.request, "b", 1000)
        assert refused.value.details["limit"] == "bytes"
        first.goes.set()
        assert await reading == 61
        assert own._bytes_by_owner == {"a": 61}

    asyncio.run(test())


def test_bodies_of_one_principal_have_half_of_it() -> None:
    """Another one's still fits."""

    async def test() -> None:
        own = bodies(100)
        first, second, other = (_Sender(b"x" * 30, b"y" * 10) for _ in range(3))
        for sender in (first, second, other):
            sender.goes.set()
        assert await own.read(first.request, "a", 1000) == 40
        with pytest.raises(Overloaded):
            await own.read(second.request, "a", 1000)
        assert await own.read(other.request, "b", 1000) == 40

    asyncio.run(test())


def test_a_body_that_ends_early_or_is_too_large_is_no_body() -> None:
    """Neither leaves anything behind."""

    async def test() -> None:
        own = bodies(100)
        cut = _Sender(b"x" * 10, b"y")
        cut._messages[-1] = {"type": "http.disconnect"}
        cut.goes.set()
        with pytest.raises(ClientDisconnect):
            await own.read(cut.request, "a", 1000)
        large = _Sender(b"x" * 10, b"y" * 10)
        large.goes.set()
        with pytest.raises(BodyTooLarge):
            await own.read(large.request, "a", 15)
        small = _Sender(b"x" * 20)
        small.goes.set()
        with pytest.raises(BodyTooLarge):
            await own.read(small.request, "a", 15)
        assert await own.read(_all_at_once(b"x" * 15), "a", 15) == 0
        assert not own._bytes_by_owner

    asyncio.run(test())


def _all_at_once(body: bytes) -> Request:
    sender = _Sender(body)
    sender.goes.set()
    return sender.request

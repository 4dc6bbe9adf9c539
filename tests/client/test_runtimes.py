"""What the two clients do differently, by the same names: sleep, and work in the background."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from lamella.client import Lamella
from lamella.client.http import async_runtime, runtime
from lamella.client.http.fake_transport import FakeTransport, json_response
from lamella.client.http.transport import HttpRequest, HttpResponse
from lamella.snapshot.wire import RefreshProgress, RefreshTableAnswer


def test_work_in_the_background_is_repeated_until_the_block_ends() -> None:
    """In another thread; when the block has ended, there is no such thread any more."""
    threads: list[threading.Thread] = []
    twice = threading.Event()

    def work() -> None:
        threads.append(threading.current_thread())
        if len(threads) == 2:
            twice.set()

    with runtime.in_background(work, every_s=0.001):
        assert twice.wait(60)
    assert threading.current_thread() not in threads
    assert not any(thread.is_alive() for thread in threads)


def test_an_error_in_the_background_does_not_end_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the repetition, and is told as errors of threads are."""
    errors: list[object] = []
    failed = threading.Event()

    def hook(arguments: Any) -> None:
        errors.append(arguments.exc_value)
        failed.set()

    error = ValueError("no")

    def work() -> None:
        raise error

    monkeypatch.setattr(threading, "excepthook", hook)
    with runtime.in_background(work, every_s=0.001):
        assert failed.wait(60)
    assert errors == [error]


def test_work_in_the_event_loop_is_repeated_until_the_block_ends() -> None:
    """In the same thread; when the block has ended, its task has ended, too."""
    threads: list[threading.Thread] = []

    async def go() -> None:
        twice = asyncio.Event()

        async def work() -> None:
            threads.append(threading.current_thread())
            if len(threads) == 2:
                twice.set()

        async with async_runtime.in_background(work, every_s=0.001):
            await asyncio.wait_for(twice.wait(), 60)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(go())
    assert set(threads) == {threading.current_thread()}


def test_an_error_in_the_event_loop_does_not_end_the_block() -> None:
    """It ends the repetition, and the loop tells of it."""
    errors: list[object] = []
    error = ValueError("no")

    async def go() -> None:
        failed = asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context.get("exception")))

        async def work() -> None:
            failed.set()
            raise error

        async with async_runtime.in_background(work, every_s=0.001):
            await asyncio.wait_for(failed.wait(), 60)

    asyncio.run(go())
    assert errors == [error]


def test_a_refresh_reports_its_progress_from_a_thread() -> None:
    """While the service has not answered yet, the client asks how far it is."""
    reported = threading.Event()
    threads: list[threading.Thread] = []

    def handler(request: HttpRequest) -> HttpResponse:
        if request.method == "GET":
            return json_response(RefreshProgress(running=True, phase="reading", files_done=1, files_total=3))
        assert reported.wait(60)
        return json_response(
            RefreshTableAnswer(
                snapshot_id="s", mode="incremental", changed=True, added=3, removed=0, replaced=0, unchanged=0
            )
        )

    def report(progress: RefreshProgress) -> None:
        assert progress.files_total == 3
        threads.append(threading.current_thread())
        reported.set()

    with Lamella("http://lake.test", transport=FakeTransport(handler)) as lake:
        assert lake.table("db.t").refresh(on_progress=report).added == 3
    assert threading.current_thread() not in threads
    assert not any(thread.is_alive() for thread in threads)

"""Probes, which anybody may ask: they cost what one that asks every second costs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lamella.service.app import create_app
from lamella.service.probes import HOLDS_S, PATHS, Findings
from lamella.service.settings import Settings
from lamella.snapshot.errors import StoreError
from lamella.snapshot.layout import FsspecStore
from support.operations import CountedStore


class Parts:
    """What is looked at; ``goes`` lets a look come to its end."""

    def __init__(self) -> None:
        self.looks = 0
        self.error: Exception | None = None
        self.goes = asyncio.Event()
        self.now_s = 100.0
        self.findings = Findings(self._look, lambda: self.now_s)

    async def _look(self) -> None:
        self.looks += 1
        await self.goes.wait()
        if self.error is not None:
            raise self.error


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
        parts.now_s += HOLDS_S / 2
        assert await is_well() == (error is None)
        assert parts.looks == 1
        parts.now_s += HOLDS_S / 2
        assert await is_well() == (error is not None)
        assert parts.looks == 2

    asyncio.run(go())


def test_readiness_that_is_asked_all_the_time_does_not_ask_the_store_as_often(tmp_path: Path) -> None:
    """Anybody may ask, without saying who they are."""
    store = CountedStore(FsspecStore())
    with TestClient(create_app(Settings(warehouse=str(tmp_path)), store=store)) as client:
        assert client.get("/health/startup").status_code == 200
        store.reset()
        for _ in range(200):
            assert client.get("/health/ready").status_code == 200
    assert store.others < 100


def test_the_paths_of_probes_are_those_of_the_routes(tmp_path: Path) -> None:
    """A misspelt one would be refused when it matters."""
    with TestClient(create_app(Settings(warehouse=str(tmp_path)))) as client:
        assert [client.get(path).status_code for path in sorted(PATHS)] == [200] * len(PATHS)

"""What runs on the event loop does not grow with the work: whoever waits for a small answer waits for no large request.

Counted are the calls of the loop's own thread, while one request is answered; threads do the rest.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from starlette.types import ASGIApp

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from support.asgi import ask
from support.operations import Meter

TABLES: Final = "/v1/namespaces/n/tables"
#: How much a request ten times as large may do on the event loop, and what it may do more whatever it is.
SHARE: Final = 1.25
MORE: Final = 120
SMALL, LARGE = 60, 600
_FILTER: Final = {"filter": "id >= 3 AND id < 5", "shape": "ranges"}


def block(folder: Path, number: int) -> dict[str, Any]:
    """A block whose file is there."""
    file = folder / f"{number:06}.parquet"
    file.touch()
    stats = {"1": {"min": {"Int64": number}, "max": {"Int64": number}, "null_count": 0}}
    return {"location": f"file://{file}", "row_count": 1, "file_size": 0, "col_stats": stats}


class Service:
    """An application over a folder, whose event loop is watched."""

    def __init__(self, folder: Path, app: ASGIApp, meter: Meter) -> None:
        self._folder = folder
        self._app = app
        self._meter = meter

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer; it must be one."""
        data = b"" if body is None else msgspec.json.encode(body)
        status, answer = await ask(self._app, method, path, data)
        assert status in (200, 201, 204), answer
        return msgspec.json.decode(answer) if answer.startswith((b"{", b"[")) else answer

    async def table(self, name: str, blocks: int = 0) -> str:
        """The path of a new table, with so many blocks."""
        columns = [{"name": "id", "type": "bigint"}, {"name": "text", "type": "string"}]
        await self.ask("POST", TABLES, {"name": name, "schema": columns})
        if blocks:
            await self.ask("POST", f"{TABLES}/{name}/commits", self.commit(blocks))
        return f"{TABLES}/{name}"

    def commit(self, blocks: int) -> dict[str, object]:
        """A commit of new blocks."""
        folder = self._folder / f"files-{len(list(self._folder.iterdir()))}"
        folder.mkdir()
        return {"added": [block(folder, number) for number in range(blocks)], "operation": "append"}

    async def calls(self, method: str, path: str, body: object = None) -> int:
        """How many calls the event loop's thread makes until the answer is there."""
        self._meter.start()
        await self.ask(method, path, body)
        done = self._meter.stop(threading.get_ident())
        return done.python_calls + done.c_calls


async def of_commit(service: Service, blocks: int) -> int:
    """A commit of so many blocks."""
    table = await service.table(f"commit{blocks}", 1)
    return await service.calls("POST", f"{table}/commits", service.commit(blocks))


async def of_prune(service: Service, blocks: int) -> int:
    """A narrow prune of a table of so many blocks, asked before with other literals."""
    table = await service.table(f"prune{blocks}", blocks)
    for first in range(3):
        await service.ask("POST", f"{table}/prune", {"filter": f"id >= {first} AND id < 50", "shape": "ranges"})
    return await service.calls("POST", f"{table}/prune", _FILTER)


async def of_wide_prune(service: Service, blocks: int) -> int:
    """A prune that tests and lists every block."""
    table = await service.table(f"wide{blocks}", blocks * 10)
    return await service.calls("POST", f"{table}/prune", {"filter": "text LIKE '%x%'", "shape": "columns"})


async def of_page(service: Service, blocks: int) -> int:
    """A page of the console about a table."""
    await service.table(f"page{blocks}", blocks)
    await service.ask("GET", f"/ui/tables/n/page{blocks}")
    return await service.calls("GET", f"/ui/tables/n/page{blocks}")


async def of_history(service: Service, commits: int) -> int:
    """A listing of so many snapshots."""
    table = await service.table(f"history{commits}")
    for _ in range(commits // 10):
        await service.ask("POST", f"{table}/commits", service.commit(1))
    return await service.calls("GET", f"{table}/snapshots")


async def of_vacuum(service: Service, commits: int) -> int:
    """A clean-up of a table with so many snapshots."""
    table = await service.table(f"vacuum{commits}")
    for _ in range(commits // 10):
        await service.ask("POST", f"{table}/commits", service.commit(1))
    return await service.calls("POST", f"{table}/vacuum", {"execute": False, "older_than": "1s"})


async def of_listing(service: Service, tables: int) -> int:
    """A listing of so many tables."""
    namespace = f"listing{tables}"
    await service.ask("POST", "/v1/namespaces", {"name": namespace})
    path = f"/v1/namespaces/{namespace}/tables"
    for number in range(tables // 4):
        await service.ask("POST", path, {"name": f"t{number}", "schema": [{"name": "id", "type": "bigint"}]})
    return await service.calls("GET", path)


@pytest.mark.parametrize("request_of", [of_commit, of_prune, of_wide_prune, of_page, of_history, of_vacuum, of_listing])
def test_ten_times_the_work_is_no_more_on_the_event_loop(tmp_path: Path, request_of: Callable[..., Any]) -> None:
    """A commit, a prune, a page, a listing and a clean-up: threads do what grows."""
    meter = Meter()

    async def counted() -> list[int]:
        app = create_app(Settings(warehouse=str(tmp_path / "warehouse"), log_requests=False, log_level="error"))
        (tmp_path / "files").mkdir()
        service = Service(tmp_path / "files", app, meter)  # not started: nothing is done on the loop by the clock
        await service.ask("POST", "/v1/namespaces", {"name": "n"})
        await request_of(service, SMALL + 1)  # what is loaded or made once
        return [await request_of(service, size) for size in (SMALL, LARGE)]

    with meter.installed():
        small, large = asyncio.run(counted())
    assert large <= SHARE * small + MORE, f"{small:,} calls become {large:,}"

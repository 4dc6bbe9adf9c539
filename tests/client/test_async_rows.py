"""Rows for asyncio: the same as those of the synchronous client, over the event loop's connections."""

from __future__ import annotations

import asyncio
import datetime as dt
import pickle
import threading
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fixtures_server import ServerProcess
from lamella.client import AsyncLamella, Lamella, col
from lamella.client.http.async_rows import LoopTransport
from lamella.client.http.transport import HttpRequest, HttpResponse
from lamella.client.scan import AsyncScan
from lamella.client.scan.async_scan import each
from lamella.snapshot.errors import AlreadyExists, CheckViolation, InvalidFilter, UnknownColumn

ROWS = pa.table({"id": range(1, 8), "s": ["a", "b", None, "a", "c", "", "b"]})
Work = Callable[[AsyncLamella], Coroutine[Any, Any, None]]


@pytest.fixture(params=["served", "embedded"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Work], None]:
    """Runs work with an asynchronous client of a service, and of an embedded lake."""

    def served(work: Work) -> None:
        server: ServerProcess = request.getfixturevalue("server")

        async def main() -> None:
            async with AsyncLamella(server.url) as lake:
                await work(lake)

        asyncio.run(main())

    def embedded(work: Work) -> None:
        async def main() -> None:
            async with await AsyncLamella.embedded(tmp_path / "lake") as lake:
                await work(lake)

        asyncio.run(main())

    return served if request.param == "served" else embedded


def test_rows_are_written_and_read(run: Callable[[Work], None]) -> None:
    """Every way to write and to read gives what the synchronous client gives."""

    async def work(lake: AsyncLamella) -> None:
        table = lake.table("db.t")
        assert (await table.append(ROWS, create=True, cluster_by=["id"])).rows == 7
        scan = table.scan(col("id") > 3, columns=["id", "s"])
        expected = ROWS.slice(3)
        assert (await scan.to_arrow()).sort_by("id") == expected
        assert (await scan.schema()).names == ["id", "s"]
        assert pa.Table.from_batches([batch async for batch in scan]).sort_by("id") == expected
        assert sorted([row async for row in scan.to_json_rows()])[0] == [4, "a"]
        assert (await scan.to_pandas())["id"].tolist() == [4, 5, 6, 7]
        assert (await scan.to_polars())["id"].to_list() == [4, 5, 6, 7]
        assert await scan.count() == 4
        assert (await scan.plan()).report.blocks_total == 1
        assert (await scan.aggregate(["count(*)", "max(s)"])).to_pylist() == [{"count(*)": 4, "max(s)": "c"}]
        assert sum(part.to_arrow().num_rows for part in await scan.fragments()) == 4

        before = (await table.info()).snapshot_id
        await table.upsert([{"id": 7, "s": "z"}, {"id": 8, "s": "new"}], ["id"])
        await table.delete("id <= 2")
        changed = await table.row_changes(before, keys=["id"]).to_arrow()
        kinds = sorted(changed["_change_type"].to_pylist())
        assert kinds == ["delete", "delete", "insert", "update_postimage", "update_preimage"]
        await table.overwrite(pa.table({"id": [1], "s": ["only"]}))
        assert (await table.scan().to_arrow()).to_pylist() == [{"id": 1, "s": "only"}]

    run(work)


def test_errors_are_those_of_the_synchronous_client(run: Callable[[Work], None]) -> None:
    """The same classes, from the thread that does the work."""

    async def work(lake: AsyncLamella) -> None:
        table = lake.table("db.e")
        await table.append(ROWS, create=True)
        with pytest.raises(UnknownColumn):
            await table.scan("nothing = 1").to_arrow()
        with pytest.raises(InvalidFilter):
            _ = [batch async for batch in table.scan("id >")]
        await table.add_check("positive", "id > 0")
        with pytest.raises(CheckViolation):
            await table.append([{"id": -1, "s": "x"}])
        await table.drop_check("positive")
        assert (await table.append([{"id": -1, "s": "x"}])).rows == 1
        with pytest.raises(AlreadyExists):
            await lake.create_namespace("db")

    run(work)


def test_the_event_loop_goes_on_while_rows_are_read(run: Callable[[Work], None]) -> None:
    """Reads run side by side, and requests of the loop between them."""

    async def work(lake: AsyncLamella) -> None:
        table = lake.table("db.many")
        await table.append(pa.table({"id": range(200_000)}), create=True, target_block_rows=20_000)
        here, threads = threading.get_ident(), set()

        async def read(minimum: int) -> int:
            rows = 0
            async for batch in table.scan(col("id") >= minimum):
                threads.add(threading.get_ident())
                rows += batch.num_rows
                await table.info()
            return rows

        assert await asyncio.gather(*(read(minimum) for minimum in (0, 50_000, 199_999))) == [200_000, 150_000, 1]
        assert threads == {here}

    run(work)


def test_a_reader_that_stops_gives_back_its_threads(run: Callable[[Work], None]) -> None:
    """Whether it leaves the loop, or its task is cancelled while it waits for rows."""

    async def work(lake: AsyncLamella) -> None:
        table = lake.table("db.left")
        await table.append(pa.table({"id": range(100_000)}), create=True, target_block_rows=5_000)

        async def first() -> int:
            async with aclosing(table.scan().to_batches()) as batches:
                async for batch in batches:
                    return int(batch.num_rows)
            return 0

        assert await first() > 0

        async def forever() -> None:
            while True:
                async for _ in table.scan():
                    pass

        task = asyncio.create_task(forever())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await table.scan().count() == 100_000
        for _ in range(200):
            if not [thread for thread in threading.enumerate() if thread.name.startswith("lamella-rows")]:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("a reader's thread is still there")

    run(work)


def test_the_context_of_the_caller_is_that_of_the_reading_thread(run: Callable[[Work], None]) -> None:
    """One context for all of an iteration, so that a span that begins in it also ends in it."""
    variable: ContextVar[str] = ContextVar("variable", default="none")

    async def work(lake: AsyncLamella) -> None:
        table = lake.table("db.c")
        await table.append(pa.table({"id": range(10)}), create=True)
        variable.set("mine")
        seen: list[str] = []

        def pages() -> Any:
            for number in range(3):
                token = variable.set(f"{variable.get()}{number}")
                yield number
                seen.append(variable.get())
                variable.reset(token)

        assert [number async for number in each(pages)] == [0, 1, 2]
        assert seen == ["mine0", "mine1", "mine2"]

    run(work)


def test_a_scan_can_be_pickled_and_reads_by_itself(server: ServerProcess) -> None:
    """The copy connects as a synchronous client does, in any process, without an event loop of ours."""

    async def main() -> bytes:
        async with AsyncLamella(server.url) as lake:
            await lake.table("db.p").append(ROWS, create=True)
            return pickle.dumps(lake.table("db.p").scan("id > 5"))

    again = pickle.loads(asyncio.run(main()))  # noqa: S301  # our own bytes
    assert isinstance(again, AsyncScan)
    assert asyncio.run(again.to_arrow()).num_rows == 2


def test_a_scan_needs_an_event_loop(server: ServerProcess) -> None:
    """Outside of one there is nothing that could send its requests."""
    lake = AsyncLamella(server.url)
    with pytest.raises(RuntimeError, match="no running event loop"):
        lake.table("db.t").scan()
    asyncio.run(lake.close())


def test_a_request_in_the_thread_of_the_loop_is_refused() -> None:
    """It would wait for itself, forever."""

    class Never:
        async def send(self, request: HttpRequest) -> HttpResponse:
            raise AssertionError(request)

        async def close(self) -> None:
            pass

    async def main() -> None:
        transport = LoopTransport(Never(), asyncio.get_running_loop())
        with pytest.raises(RuntimeError, match="would block the event loop"):
            transport.send(HttpRequest(method="GET", target="/"))

    asyncio.run(main())


def test_times_and_versions_are_those_of_the_table(server: ServerProcess) -> None:
    """The arguments of a scan reach the service."""

    async def main() -> None:
        async with AsyncLamella(server.url) as lake:
            table = lake.table("db.h")
            first = await table.append([{"id": 1}], create=True)
            await table.append([{"id": 2}])
            assert await table.scan(snapshot_id=first.snapshot_id).count() == 1
            assert await table.scan(timestamp=dt.datetime.now(dt.UTC)).count() == 2
            assert (await table.scan(order_by="id DESC", limit=1).to_arrow())["id"].to_pylist() == [2]

    asyncio.run(main())
    with Lamella(server.url) as lake:
        assert lake.table("db.h").scan().count() == 2

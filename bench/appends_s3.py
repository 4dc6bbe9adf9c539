"""Appends to one table in an S3 server: rate, latency, requests and processor time, beside a compaction job.

64 clients append small Parquet files that are there already, each its next one when the one before was answered:
``register`` names the file, ``commits`` sends the block with its statistics. Meanwhile another process compacts the
table, again and again. The server is versitygw (Go, over a folder; ``go install``) or moto (Python, in memory). The
processor time is printed for each process, and so are the server's requests for each append.

    python bench/appends_s3.py [--server versitygw] [--appends 2000]
    python bench/appends_s3.py --server moto --appends 1000
    python bench/appends_s3.py --latency-ms 20      every answer of the server comes so much later, as over a network
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop
from appends import CLIENTS, COLUMNS, TABLE, write_files
from loopback import Service
from speed.clock import cpu_s
from steady.caller import Caller
from steady.phases import latency_ms

from lamella.client import Lamella
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.rewrite import compact
from lamella.client.rewrite.engine import LocalEngine
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.parquet import ingest
from lamella.snapshot.schema import Schema
from lamella.snapshot.storage import FsspecStore

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

_TIMEOUT_S: Final = 120.0
_UPLOADS: Final = 16


@contextmanager
def s3_server(kind: str, folder: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """A server while the block runs: the options of fsspec for it, and its process's id."""
    from fixtures_real_s3 import real_s3_server
    from fixtures_s3 import s3_server as moto_server

    with (real_s3_server if kind == "versitygw" else moto_server)(folder) as server:
        server.bucket("bench")
        yield server.storage_options, server.pid


class _Delayed(asyncio.Protocol):
    """Passes bytes between a client and the server; those to the client come ``delay_s`` later."""

    def __init__(self, port: int, delay_s: float) -> None:
        self._port, self._delay_s = port, delay_s
        self._other: asyncio.Transport | None = None
        self._early: list[bytes] = []
        self._opening: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self._own = transport
        self._opening = asyncio.ensure_future(self._open())

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: _Back(self._own, self._delay_s), "127.0.0.1", self._port)
        self._other = transport
        for data in self._early:
            transport.write(data)

    def data_received(self, data: bytes) -> None:
        if self._other is None:
            self._early.append(data)
        else:
            self._other.write(data)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._other is not None:
            self._other.close()


class _Back(asyncio.Protocol):
    """What the server sends."""

    def __init__(self, client: asyncio.Transport, delay_s: float) -> None:
        self._client, self._delay_s = client, delay_s

    def data_received(self, data: bytes) -> None:
        asyncio.get_running_loop().call_later(self._delay_s, self._client.write, data)

    def connection_lost(self, _error: Exception | None) -> None:
        asyncio.get_running_loop().call_later(self._delay_s, self._client.close)


def _delay(port: int, delay_s: float, ready: Any) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(lambda: _Delayed(port, delay_s), "127.0.0.1", 0)
        ready.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(serve())


@contextmanager
def delayed(options: dict[str, Any], latency_ms: float) -> Iterator[dict[str, Any]]:
    """Options for a proxy of the server, whose answers come later."""
    if not latency_ms:
        yield options
        return
    ready: multiprocessing.Queue[int] = multiprocessing.Queue()
    port = int(options["endpoint_url"].rpartition(":")[2])
    process = multiprocessing.Process(target=_delay, args=(port, latency_ms / 1e3, ready), daemon=True)
    process.start()
    try:
        yield {**options, "endpoint_url": f"http://127.0.0.1:{ready.get()}"}
    finally:
        process.terminate()
        process.join()


def compact_repeatedly(url: str, table: str, options: dict[str, Any], stop: Event, done: Any) -> None:
    """Compact a table until ``stop``; puts the number of runs, of replaced blocks and of failures into ``done``."""
    found: Counter[str] = Counter()
    with Lamella(url, timeout_s=_TIMEOUT_S) as lake, LocalEngine(1) as engine:
        context = JobContext(lake=lake, table=table, engine=engine, storage_options=options)
        while not stop.is_set():
            try:
                result = compact(context)
            except LamellaError as error:
                found[error.code] += 1
            else:
                found["runs"] += 1
                found["blocks replaced"] += result.blocks_before
            stop.wait(0.5)
    done.put(dict(found))


def requests_of(service: Service) -> Counter[str]:
    """The service's calls of the store so far, by operation."""
    found: Counter[str] = Counter()
    for line in service.text("/metrics").splitlines():
        if line.startswith("lamella_store_seconds_count{"):
            found[line.partition('operation="')[2].partition('"')[0]] += int(float(line.rpartition(" ")[2]))
    return found


async def append_all(port: int, path: str, bodies: list[bytes]) -> tuple[list[float], Counter[str]]:
    """Append everything; the seconds of each answered request, and the failures."""
    caller = Caller(port, _TIMEOUT_S)
    waiting = iter(bodies)
    took: list[float] = []
    errors: Counter[str] = Counter()

    async def client() -> None:
        for body in waiting:
            head = (
                f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                f"idempotency-key: {uuid.uuid4()}\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            begun_s = time.perf_counter()
            answer = await caller.send(head.encode() + body)
            if answer.status == 200:
                took.append(time.perf_counter() - begun_s)
            else:
                errors[answer.failure or str(answer.status)] += 1

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    caller.close()
    return took, errors


def measured(
    service: Service, way: str, bodies: list[bytes], server: int, options: dict[str, Any], *, compacts: bool
) -> dict[str, Any]:
    """Append to a new table; the figures."""
    name = f"{way}_compacted" if compacts else way
    service.send("POST", TABLE.rstrip("/"), msgspec.json.encode({"name": name, "schema": msgspec.to_builtins(COLUMNS)}))
    service.hang_up()
    context = multiprocessing.get_context("spawn")
    stop, done = context.Event(), context.Queue()
    job = context.Process(
        target=compact_repeatedly,
        args=(f"http://127.0.0.1:{service.port}", f"bench.{name}", {"s3": options}, stop, done),
    )
    if compacts:
        job.start()
        time.sleep(2.0)  # it has read its modules
    pids = {"service": service.pid, "S3 server": server, "clients": os.getpid()}
    if compacts and job.pid is not None:
        pids["compaction"] = job.pid
    snapshots, requests = service.metric("lamella_commits_total"), requests_of(service)
    cpu = {each: cpu_s(pid) for each, pid in pids.items()}
    began_s = time.perf_counter()
    took, errors = uvloop.run(append_all(service.port, f"{TABLE}{name}/{way}", bodies))
    seconds = time.perf_counter() - began_s
    cpu = {each: round(cpu_s(pid) - cpu[each], 2) for each, pid in pids.items()}
    snapshots, requests = service.metric("lamella_commits_total") - snapshots, requests_of(service) - requests
    compaction = {}
    if compacts:
        stop.set()
        compaction = done.get(timeout=_TIMEOUT_S)
        job.join()
    rows = service.send("GET", f"{TABLE}{name}")["row_count"]
    service.hang_up()
    return {
        "appends": len(bodies),
        "per_second": round(len(took) / seconds, 1),
        "latency_ms": latency_ms(took),
        "errors": dict(errors),
        "rows": rows,
        "snapshots": int(snapshots),
        "store_requests_per_append": {each: round(n / len(bodies), 2) for each, n in sorted(requests.items())},
        "cpu_s": cpu,
        "service_cpu_ms_per_append": round(1e3 * cpu["service"] / len(bodies), 2),
        "compaction": compaction,
    }


def run(given: argparse.Namespace) -> dict[str, Any]:
    """Everything, with a server and a service of its own."""
    results: dict[str, Any] = {"clients": CLIENTS, "server": given.server, "latency_ms": given.latency_ms}
    with tempfile.TemporaryDirectory(prefix="lamella-bench-", dir=given.folder) as name, ExitStack() as opened:
        folder = Path(name)
        files = write_files(folder / "files", given.appends)
        (folder / "s3").mkdir()
        options, pid = opened.enter_context(s3_server(given.server, folder / "s3"))
        store = FsspecStore({"s3": options})
        locations = [f"s3://bench/files/{file.name}" for file in files]
        with ThreadPoolExecutor(_UPLOADS) as pool:
            list(pool.map(lambda each: store.put(each[0], each[1].read_bytes()), zip(locations, files, strict=True)))
        blocks, refused = ingest(store, locations, Schema.assign(COLUMNS), workers=_UPLOADS)
        if refused:
            raise RuntimeError(refused[0].reason)
        ways = {
            "register": [msgspec.json.encode({"paths": [location]}) for location in locations],
            "commits": [msgspec.json.encode({"added": [block]}) for block in blocks],
        }
        options = opened.enter_context(delayed(options, given.latency_ms))
        settings = {
            "warehouse": "s3://bench/warehouse",
            "catalog": given.catalog or f"sqlite:///{folder}/catalog.db",
            "store_options": json.dumps({"s3": options}),
        }
        service = opened.enter_context(Service(folder, settings))
        service.send("POST", "/v1/namespaces", b'{"name":"bench"}')
        for compacts in (False, True):
            for way, bodies in ways.items():
                key = f"{way}, beside a compaction" if compacts else way
                results[key] = measured(service, way, bodies, pid, options, compacts=compacts)
                print(key, json.dumps(results[key]), file=sys.stderr, flush=True)
    return results


def main() -> None:
    """Run, print and keep."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--server", choices=("versitygw", "moto"), default="versitygw")
    made.add_argument("--appends", type=int, default=2_000)
    made.add_argument("--latency-ms", type=float, default=0.0)
    made.add_argument("--catalog", help="the service's catalog (default: SQLite)")
    made.add_argument("--folder", help="where the files go (default: the system's temporary folder)")
    made.add_argument("--out", type=Path, default=Path("build/appends_s3.json"))
    given = made.parse_args()
    results = run(given)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()

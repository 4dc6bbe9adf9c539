"""What a transaction of several tables costs, beside the commits that it is made of.

``python bench/transactions.py`` appends one block to each of ten tables: by a commit to each, one after another, and by
one transaction. It prints the median of the slowest commit of each round, of all ten together, and of the transaction,
how many times the slowest commit a transaction takes, and the requests to the store that each makes. First on the local
disk, then in a store in memory whose every request takes so many milliseconds longer (``--latency-ms``). The service
runs in this process, over loopback.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.storage import FsspecStore, ListedObject, ObjectStat

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

_COLUMNS = 20


class DelayedStore:
    """A store whose requests take ``delay_s`` longer, and are counted."""

    def __init__(self, delay_s: float) -> None:
        self._store = FsspecStore()
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self.requests = 0

    def _wait(self) -> FsspecStore:
        with self._lock:
            self.requests += 1
        if self._delay_s:
            time.sleep(self._delay_s)
        return self._store

    def read(self, location: str) -> bytes:
        """All bytes of an object."""
        return self._wait().read(location)

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Some bytes of an object."""
        return self._wait().read_range(location, start, length)

    def stat(self, location: str) -> ObjectStat:
        """Size and content id of an object."""
        return self._wait().stat(location)

    def put(self, location: str, data: bytes) -> ObjectStat:
        """Create an object."""
        return self._wait().put(location, data)

    def replace(self, location: str, data: bytes) -> None:
        """Create or replace an object."""
        self._wait().replace(location, data)

    def expand(self, url: str, *, plain: bool = False) -> list[str]:
        """The data files that a URL names."""
        return self._wait().expand(url, plain=plain)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:
        """Every object below a folder."""
        return self._wait().list(prefix, start_after=start_after)

    def delete(self, location: str) -> None:
        """Remove an object."""
        self._wait().delete(location)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Remove objects."""
        return self._wait().delete_many(locations)


def main() -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--blocks", type=int, default=200, help="blocks of each table at the begin")
    parser.add_argument("--latency-ms", type=int, nargs="*", default=(10, 30))
    given = parser.parse_args()
    found = {}
    for latency_ms in (None, *given.latency_ms):
        with tempfile.TemporaryDirectory() as name:
            found["local disk" if latency_ms is None else f"{latency_ms} ms"] = measure(
                Path(name), latency_ms, given.tables, given.rounds, given.blocks
            )
    print(json.dumps(found, indent=1))
    return 0


@contextmanager
def serving(folder: Path, latency_ms: int | None) -> Iterator[tuple[DelayedStore, str, Callable[..., Any]]]:
    """A service with a store, its folder for data files, and what sends it a request."""
    from support.loopback import on_loopback

    store = DelayedStore((latency_ms or 0) / 1e3)
    root = f"file://{folder}" if latency_ms is None else f"memory://bench-{latency_ms}"
    settings = Settings(warehouse=f"{root}/warehouse", catalog=str(folder / "catalog.db"), log_level="error")
    # Without a store of the caller's, the service maps local files.
    app = create_app(settings, store=FsspecStore() if latency_ms is None else store)
    with on_loopback(app) as url:
        connection = http.client.HTTPConnection("127.0.0.1", int(url.rpartition(":")[2]), timeout=600)

        def send(path: str, body: dict[str, Any]) -> None:
            connection.request("POST", path, json.dumps(body).encode(), {"content-type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
            if answer.status >= 400:
                raise RuntimeError(f"{path}: {answer.status} {data[:500]!r}")

        yield store, f"{root}/data", send
        connection.close()


def measure(folder: Path, latency_ms: int | None, tables: int, rounds: int, blocks: int) -> dict[str, float]:
    """Return the medians in milliseconds, and the ratio of each round's transaction to its slowest commit."""
    rows = pa.table({f"c{number}": list(range(100)) for number in range(_COLUMNS)})
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    data = sink.getvalue().to_pybytes()
    files = FsspecStore()
    slowest, together, transactions, requests = [], [], [], []
    with serving(folder, latency_ms) as (store, root, send):
        send("/v1/namespaces", {"name": "n"})
        names = [f"t{number}" for number in range(tables)]
        for name in names:
            for number in range(blocks):
                files.put(f"{root}/{name}/{number}.parquet", data)
            send("/v1/namespaces/n/tables", {"name": name, "schema_from": f"{root}/{name}/0.parquet"})
            send(f"/v1/namespaces/n/tables/{name}/register", {"paths": [f"{root}/{name}"], "strict": True})

        def commit(name: str, what: str) -> dict[str, object]:
            location = f"{root}/{name}/{what}.parquet"
            files.put(location, data)
            return {"added": [{"location": location, "row_count": 100, "file_size": 0}]}

        for number in range(rounds):
            bodies = [commit(name, f"single-{number}") for name in names]
            both = [{"table": f"n.{name}", "commit": commit(name, f"together-{number}")} for name in names]
            times, before = [], store.requests
            for name, body in zip(names, bodies, strict=True):
                times.append(timed(lambda: send(f"/v1/namespaces/n/tables/{name}/commits", body)))  # noqa: B023
            middle = store.requests
            transactions.append(timed(lambda: send("/v1/transactions", {"tables": both})))  # noqa: B023
            requests.append((middle - before, store.requests - middle))
            slowest.append(max(times))
            together.append(sum(times))
    return {
        "slowest_commit_ms": statistics.median(slowest),
        "commits_ms": statistics.median(together),
        "transaction_ms": statistics.median(transactions),
        "to_slowest": statistics.median(one / other for one, other in zip(transactions, slowest, strict=True)),
        "to_all": statistics.median(one / other for one, other in zip(transactions, together, strict=True)),
        "store_requests_of_commits": statistics.median(each[0] for each in requests),
        "store_requests_of_transaction": statistics.median(each[1] for each in requests),
    }


def timed(call: Callable[[], None]) -> float:
    """Make a call; returns its milliseconds."""
    began_s = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - began_s)


if __name__ == "__main__":
    raise SystemExit(main())

"""The load: tables with blocks, keys of several principals, and an endless mix of requests to them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

import msgspec

from lamella.client import Lamella
from lamella.snapshot.schema import Column
from lamella.snapshot.wire import Grant

NAMESPACE: Final = "load"
ROWS: Final = 1_000
_COLUMNS: Final = (Column(name="id", type="bigint"), Column(name="name", type="string"))
#: Percentage of each kind of request.
SHARES: Final = {"prune": 80, "get": 8, "list": 8, "commit": 4}


#: Blocks added to a table before they are removed again, so that tables keep their size.
_ADDED: Final = 100


class Request(msgspec.Struct, frozen=True):
    """One request as it goes over a connection. ``added``, ``removed``: locations of a commit to ``table``."""

    kind: str
    data: bytes
    table: str = ""
    added: str = ""
    removed: str = ""


class Mix:
    """Makes the tables and keys, and then requests from a fixed seed. ``lake`` may do everything."""

    def __init__(self, lake: Lamella, *, tables: int, blocks: int, keys: int) -> None:
        self._blocks = blocks
        self._rng = random.Random(1)
        lake.create_namespace(NAMESPACE)
        self._folders = {}
        for number in range(tables):
            table = lake.create_table(f"{NAMESPACE}.t{number}", schema=_COLUMNS)
            folder = Path(url2pathname(urlsplit(table.location).path)) / "_b"
            folder.mkdir(parents=True, exist_ok=True)
            self._folders[table.name] = (table.location + "/_b", folder)
            added = [self._block(table.name, number, f"{number:06}") for number in range(blocks)]
            lake.table(f"{NAMESPACE}.{table.name}").commit(added=added)
        self._keys = [_new_key(lake, f"load-{number}") for number in range(keys)]
        self._added: dict[str, deque[str]] = {name: deque() for name in self._folders}
        self._fresh = 0

    def requests(self) -> Iterator[Request]:
        """One after another, for ever."""
        rng, names = self._rng, list(self._folders)
        kinds = [kind for kind, share in SHARES.items() for _ in range(share)]
        while True:
            kind, name, key = rng.choice(kinds), rng.choice(names), rng.choice(self._keys)
            table = f"/v1/namespaces/{NAMESPACE}/tables/{name}"
            if kind == "prune":
                first = rng.randrange(self._blocks * ROWS)
                body = {"filter": f"id >= {first} AND id < {first + 2 * ROWS}", "shape": "ranges"}
                yield Request(kind, _http("POST", f"{table}/prune", key, msgspec.json.encode(body)))
            elif kind == "get":
                yield Request(kind, _http("GET", table, key))
            elif kind == "list":
                path = rng.choice([f"/v1/namespaces/{NAMESPACE}/tables", f"{table}/snapshots?page_size=20"])
                yield Request(kind, _http("GET", path, key))
            else:
                yield self._commit(name, f"{table}/commits", key)

    def record(self, request: Request, status: int) -> None:
        """Record the outcome of a commit."""
        if request.kind == "commit":
            here = request.added if status == 200 else request.removed
            if here:
                self._added[request.table].append(here)

    def _commit(self, table: str, path: str, key: str) -> Request:
        self._fresh += 1
        block = self._block(table, self._rng.randrange(self._blocks), f"n{self._fresh:08}")
        added = self._added[table]
        removed = added.popleft() if len(added) > _ADDED else ""
        body = {"added": [block], "removed": [removed] if removed else [], "operation": "append"}
        location = str(block["location"])
        return Request("commit", _http("POST", path, key, msgspec.json.encode(body)), table, location, removed)

    def _block(self, table: str, number: int, name: str) -> dict[str, object]:
        """A block whose file is there; its statistics are made up."""
        location, folder = self._folders[table]
        (folder / f"{name}.parquet").write_bytes(b"x")
        low, high = number * ROWS, (number + 1) * ROWS - 1
        stats = {"1": {"min": {"Int64": low}, "max": {"Int64": high}, "null_count": 0}}
        return {"location": f"{location}/{name}.parquet", "row_count": ROWS, "file_size": 1, "col_stats": stats}


def _new_key(lake: Lamella, name: str) -> str:
    return lake.keys.create(name, [Grant(role="write", namespace=NAMESPACE)]).key


def _http(method: str, path: str, key: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body

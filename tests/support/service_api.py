"""Plain HTTP to a running service, and Parquet files where it can find them."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.snapshot.storage import Store
from lamella.snapshot.wire import Problem
from support.kept_connections import LIMITS

_PROBLEM = msgspec.json.Decoder(Problem)
_NUMBERS = itertools.count()


def fresh_name(prefix: str = "n") -> str:
    """A name that no other test of this run has."""
    return f"{prefix}{next(_NUMBERS)}"


def parquet_bytes(columns: Mapping[str, Sequence[Any]] | pa.Table, **options: Any) -> bytes:
    """A Parquet file of these columns."""
    table = columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


class Api:
    """One service. Every answer's status is checked, so that a test cannot overlook one."""

    def __init__(self, url: str) -> None:
        self.http = httpx2.Client(base_url=url, timeout=120, limits=LIMITS)

    def close(self) -> None:
        """Hang up."""
        self.http.close()

    def send(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> httpx2.Response:
        """The answer, whatever it is."""
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.http.request(method, path, json=body, headers=headers)

    def call(self, method: str, path: str, body: Any = None, *, key: str | None = None, expect: int = 200) -> Any:
        """The answer's JSON (None: no body), after a check of its status."""
        response = self.send(method, path, body, key=key)
        assert response.status_code == expect, response.text
        return response.json() if response.content else None

    def problem(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> Problem:
        """The problem document of a request that must fail."""
        return read_problem(self.send(method, path, body, key=key))


def read_problem(response: httpx2.Response) -> Problem:
    """The problem document that an answer must be."""
    assert response.status_code >= 400, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = _PROBLEM.decode(response.content)
    assert problem.status == response.status_code
    assert problem.type == f"urn:lamella:error:{problem.code}"
    assert problem.title
    assert problem.detail
    assert problem.instance == response.request.url.path
    return problem


@dataclass
class TableApi:
    """One table of a service."""

    api: Api
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """Its path in the API."""
        return f"/v1/namespaces/{self.namespace}/tables/{self.name}"

    def info(self) -> dict[str, Any]:
        """The table as it stands."""
        return dict(self.api.call("GET", self.path))

    def register(self, *paths: str, key: str | None = None, **body: Any) -> dict[str, Any]:
        """Append files."""
        return dict(self.api.call("POST", f"{self.path}/register", {"paths": paths, **body}, key=key))

    def commit(self, *, key: str | None = None, **body: Any) -> dict[str, Any]:
        """Add and remove blocks."""
        return dict(self.api.call("POST", f"{self.path}/commits", body, key=key))

    def prune(self, filter: Any = None, **body: Any) -> dict[str, Any]:
        """The answer to a prune."""
        return dict(self.api.call("POST", f"{self.path}/prune", {"filter": filter, **body}))

    def locations(self, filter: Any = None, **body: Any) -> list[str]:
        """Where the blocks that a filter leaves are."""
        return [block["location"] for block in self.prune(filter, **body)["blocks"]]

    def snapshot(self, snapshot_id: str | None = None) -> dict[str, Any]:
        """A snapshot's manifest."""
        return dict(self.api.call("GET", f"{self.path}/snapshots/{snapshot_id or self.info()['snapshot_id']}"))

    def blocks(self) -> list[dict[str, Any]]:
        """The manifests of all blocks."""
        found: list[dict[str, Any]] = []
        for ref in self.snapshot()["segments"]:
            found += self.api.call("GET", f"{self.path}/segments/{ref['segment_id']}")["blocks"]
        return found

    def history(self, page_size: int = 100) -> list[dict[str, Any]]:
        """All snapshots, newest first."""
        found: list[dict[str, Any]] = []
        token: str | None = None
        while True:
            query = f"page_size={page_size}" + (f"&page_token={token}" if token else "")
            page = self.api.call("GET", f"{self.path}/snapshots?{query}")
            found += page["snapshots"]
            token = page["next_page_token"]
            if token is None:
                return found


@dataclass
class World:
    """A service, and a folder in its store that tests put files into."""

    url: str
    root: str
    store: Store
    api: Api = field(init=False)

    def __post_init__(self) -> None:
        self.api = Api(self.url)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.api.close()

    def folder(self) -> str:
        """A folder that no other test uses."""
        return f"{self.root}/{fresh_name('f')}"

    def put(self, location: str, data: bytes | None = None, **columns: Sequence[Any]) -> str:
        """A file there: the bytes, or a Parquet file of the columns."""
        self.store.put(location, parquet_bytes(columns) if data is None else data)
        return location

    def numbers(self, folder: str, count: int, rows: int = 10) -> list[str]:
        """Files of a column ``a`` that counts on from file to file, and ``s`` with its text."""
        locations = []
        for i in range(count):
            values = list(range(i * rows, (i + 1) * rows))
            locations.append(self.put(f"{folder}/{i:04}.parquet", a=values, s=[f"v{value:06}" for value in values]))
        return locations

    def table(self, schema: Sequence[Mapping[str, Any]] | None = None, **body: Any) -> TableApi:
        """A new table of columns ``a`` (int64) and ``s`` (string), or of those given."""
        columns = schema if schema is not None else [{"name": "a", "type": "int64"}, {"name": "s", "type": "string"}]
        namespace = fresh_name("ns")
        self.api.call("POST", "/v1/namespaces", {"name": namespace}, expect=201)
        table = TableApi(self.api, namespace, "t")
        source = {} if "schema_from" in body else {"schema": columns}
        self.api.call("POST", f"/v1/namespaces/{namespace}/tables", {"name": "t", **source, **body}, expect=201)
        return table

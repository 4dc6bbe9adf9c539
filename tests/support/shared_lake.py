"""A service over a bucket that wants signatures, with keys, and the real Delta Sharing client as its recipient."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pandas as pd
import pyarrow as pa
import pytest

from fixtures_s3 import S3Server
from fixtures_server import ServerProcess, start_shared
from lamella.client import Lamella
from lamella.client.http import Table
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import Grant
from support import sharing_client
from support.service_api import parquet_bytes
from support.signature_proxy import SignatureProxy, signature_proxy
from support.tenants import ROOT_KEY, ROOT_SHA256

FILES, ROWS = 6, 50
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def rows(number: int) -> pa.Table:
    """One file's: ``id`` counts on from file to file."""
    ids = range(number * ROWS, (number + 1) * ROWS)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [None if each % 17 == 0 else f"n{each % 7}é" for each in ids],
            "price": pa.array([each / 4 for each in ids], pa.float64()),
            "at": pa.array([START + dt.timedelta(minutes=each) for each in ids], pa.timestamp("us", "UTC")),
            "day": pa.array([(START + dt.timedelta(days=number)).date()] * ROWS),
            "tags": [[f"t{each}"] for each in ids],
        }
    )


class Recipient:
    """Somebody with a profile file, and nothing else."""

    def __init__(self, url: str, token: str, folder: Path, pool: ProcessPoolExecutor) -> None:
        self._pool = pool
        self.profile = folder / f"{uuid.uuid4().hex}.share"
        self.profile.write_text(
            json.dumps({"shareCredentialsVersion": 1, "endpoint": f"{url}/delta-sharing/", "bearerToken": token})
        )
        self.http = httpx2.Client(
            base_url=f"{url}/delta-sharing", headers={"Authorization": f"Bearer {token}"}, timeout=120
        )

    def load(self, table: str, **options: Any) -> pd.DataFrame:
        """A table as the client reads it; raises Refused."""
        return self.call(sharing_client.load, table, **options)

    def ids(self, table: str, **options: Any) -> list[int]:
        """The ids that the client reads, ascending."""
        return sorted(self.load(table, **options)["id"].tolist())

    def version(self, table: str, starting: str | None = None) -> int:
        """A table's version as the client asks for it."""
        return int(self.call(sharing_client.version, table, starting))

    def names(self) -> list[str]:
        """Every table that the client lists."""
        return list(self._pool.submit(sharing_client.run, sharing_client.names, str(self.profile)).result(300))

    def call(self, work: Callable[..., Any], table: str, *args: Any, **options: Any) -> Any:
        """What the client answers about a table; raises Refused."""
        url = f"{self.profile}#lamella.{table}"
        return self._pool.submit(sharing_client.run, work, url, *args, **options).result(300)

    def query(self, table: str, action: str = "query", **body: Any) -> httpx2.Response:
        """The answer to a query, whatever it is."""
        schema, _, name = table.partition(".")
        headers = {"delta-sharing-capabilities": body.pop("able")} if "able" in body else {}
        return self.http.post(f"/shares/lamella/schemas/{schema}/tables/{name}/{action}", json=body, headers=headers)

    def lines(self, table: str, **body: Any) -> list[dict[str, Any]]:
        """The lines of a query that is answered."""
        answer = self.query(table, **body)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.content.splitlines()]

    def got(self, path: str, **query: Any) -> Any:
        """The JSON of a GET, with its status."""
        answer = self.http.get(path, params=query)
        return answer.status_code, answer.json()


class SharedLake:
    """The service, its operator, and tables in its bucket."""

    def __init__(
        self,
        server: ServerProcess,
        store: FsspecStore,
        proxy: SignatureProxy,
        data: str,
        folder: Path,
        pool: ProcessPoolExecutor,
    ) -> None:
        self.server, self.store, self.proxy, self.data = server, store, proxy, data
        self._folder, self._pool = folder, pool
        self._recipients: list[Recipient] = []
        self.operator = Lamella(server.url, token=ROOT_KEY)
        for namespace in ("sales", "other"):
            self.operator.create_namespace(namespace)
        self.recipient = self.invite(Grant(role="read", namespace="sales"))
        self.table("sales.orders", [rows(number) for number in range(FILES)])
        self.table("other.secret", [rows(0)])

    def invite(self, *grants: Grant) -> Recipient:
        """A recipient with a key of its own."""
        made = self.operator.keys.create(f"key-{uuid.uuid4().hex[:8]}", grants)
        self._recipients.append(Recipient(self.server.url, made.key, self._folder, self._pool))
        return self._recipients[-1]

    def close(self) -> None:
        """Hang up."""
        for recipient in self._recipients:
            recipient.http.close()
        self.operator.close()

    def put(self, frame: pa.Table | Mapping[str, Sequence[Any]], **options: Any) -> str:
        """A file in the bucket, under a name that must be quoted in URLs."""
        location = f"{self.data}/a file +{uuid.uuid4().hex}=é.parquet"
        self.store.put(location, parquet_bytes(frame, **options))
        return location

    def table(self, name: str, files: Sequence[pa.Table]) -> Table:
        """A table, with one version for each file."""
        locations = [self.put(each) for each in files]
        self.operator.create_table(name, schema_from=locations[0])
        table = self.operator.table(name)
        for location in locations:
            table.register([location])
        return table


@contextmanager
def shared_lake(config: pytest.Config, s3: S3Server, folder: Path, *, needs_login: bool = True) -> Iterator[SharedLake]:
    """A running one; not ``needs_login``: the server itself demands signatures."""
    bucket = s3.bucket(f"shared-{uuid.uuid4().hex[:8]}")
    with signature_proxy(s3.endpoint_url) as proxy, sharing_client.pool() as pool:
        signing = {"signed_endpoint_url": proxy.url} if needs_login else {}
        settings = {
            "warehouse": f"{bucket}/warehouse",
            "catalog": folder / "catalog.db",
            "store_options": json.dumps({"s3": {**s3.storage_options, **signing}}),
            "allowed_locations": json.dumps({"*": [f"{bucket}/data"]}),
            "auth": "true",
            "root_key_sha256": ROOT_SHA256,
            "vacuum_min_age_s": "0",  # so that snapshots can expire at once
        }
        server = start_shared(config, folder, settings)
        lake = SharedLake(server, FsspecStore({"s3": s3.storage_options}), proxy, f"{bucket}/data", folder, pool)
        yield lake
        lake.close()
        assert server.stop() == 0, server.log_text()

"""Iceberg tables of a catalog that speaks Iceberg's REST protocol."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table as IcebergTable

from fixtures_server import start_shared
from lamella.client import Lamella
from lamella.snapshot.errors import ObjectNotFound
from support.sources import same_as

ROWS = pa.table({"a": pa.array(range(6), pa.int64()), "s": ["x", "y", None, "z", "x", "y"]})


class Catalog:
    """A catalog over HTTP with one table, ``n.t``. ``tokens``: of the requests that it had."""

    def __init__(self, table: IcebergTable) -> None:
        self.tokens: set[str | None] = set()
        catalog = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                catalog.tokens.add(self.headers.get("Authorization"))
                status = 404
                body: dict[str, Any] = {"error": {"message": "none", "type": "NoSuchTableException", "code": 404}}
                if self.path.startswith("/v1/config"):
                    status, body = 200, {"defaults": {}, "overrides": {}}
                elif self.path == "/v1/namespaces/n/tables/t":
                    location = table.refresh().metadata_location
                    metadata = json.loads(Path(location.removeprefix("file://")).read_bytes())
                    status, body = 200, {"metadata-location": location, "metadata": metadata, "config": {}}
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def source(tmp_path: Path) -> IcebergTable:
    """A table."""
    own = SqlCatalog("own", uri=f"sqlite:///{tmp_path}/own.db", warehouse=f"file://{tmp_path}/source")
    own.create_namespace("n")
    made = own.create_table("n.t", schema=ROWS.schema)
    made.append(ROWS)
    return made


@pytest.fixture
def served(source: IcebergTable) -> Iterator[Catalog]:
    """Its catalog."""
    catalog = Catalog(source)
    yield catalog
    catalog.server.shutdown()
    catalog.server.server_close()


def test_a_rest_catalog_says_which_metadata_is_the_current_one(
    source: IcebergTable, served: Catalog, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """With pyiceberg's properties of it, a token among them; a table that it does not have is not there."""
    catalogs = {"rest": {"type": "rest", "uri": served.url, "token": "secret"}}
    settings = {"warehouse": tmp_path / "warehouse", "iceberg_catalogs": json.dumps(catalogs)}
    server = start_shared(pytestconfig, tmp_path, settings)
    try:
        with Lamella(server.url) as lake:
            lake.create_namespace("x")
            lake.create_external("x.t", {"kind": "iceberg", "catalog": "rest", "table": "n.t"})
            table = lake.table("x.t")
            assert table.refresh().added == 1
            same_as(table, source.scan().to_arrow())
            source.append(ROWS)
            assert table.refresh().added == 1
            same_as(table, source.scan().to_arrow())
            assert served.tokens == {"Bearer secret"}
            with pytest.raises(ObjectNotFound):
                lake.create_external("x.u", {"kind": "iceberg", "catalog": "rest", "table": "n.u"})
    finally:
        server.stop()

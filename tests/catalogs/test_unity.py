"""Tables of Unity Catalog, by its documented interface: the open-source server's program is not among our packages, so
a server of ours answers as its description says (``GET /api/2.1/unity-catalog/{catalogs,schemas,tables}``)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from lamella.client import Lamella
from lamella.client.catalogs.unity import UnityCatalog
from lamella.client.cli.app import cli
from lamella.snapshot.errors import InvalidRequest, StoreError

TOKEN = "an access token"
PREFIX = "/api/2.1/unity-catalog/"
#: Entries of a page.
PAGE = 2
ROWS = pa.table({"Id": pa.array([1, 2, 3], pa.int64()), "s": ["x", None, "z"]})


def column(name: str, kind: str, position: int, **others: Any) -> dict[str, Any]:
    """A column as the interface has it."""
    field = {"name": name, "type": kind, "nullable": True, "metadata": {}}
    return {"name": name, "type_json": json.dumps(field), "position": position, "nullable": True, **others}


COLUMNS = [column("Id", "long", 0), column("s", "string", 1)]


class Unity:
    """A running server with the catalog ``main``. ``tables``: of its schema ``sales``."""

    def __init__(self) -> None:
        self.tables: list[dict[str, Any]] = []
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
                status, body = served.answer(self.path) if is_known else (401, {"error_code": "UNAUTHENTICATED"})
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return the status and body for a request."""
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if not parts.path.startswith(PREFIX):
            return 404, {"error_code": "NOT_FOUND"}
        member = parts.path.removeprefix(PREFIX)
        found: list[dict[str, Any]] = {"catalogs": [{"name": "main"}], "tables": []}.get(member, [])
        if member == "schemas" and query["catalog_name"] == "main":
            found = [{"name": name} for name in ("default", "sales", "temp")]
        elif member == "tables" and (query["catalog_name"], query["schema_name"]) == ("main", "sales"):
            found = self.tables
        start = int(query.get("page_token", 0))
        following = str(start + PAGE) if start + PAGE < len(found) else None
        return 200, {member: found[start : start + PAGE], "next_page_token": following}

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def unity() -> Iterator[Unity]:
    """A server."""
    served = Unity()
    yield served
    served.close()


def table(name: str, data_format: str, location: str | None, **others: Any) -> dict[str, Any]:
    """A table as the interface has it."""
    given = {"name": name, "table_type": "EXTERNAL", "data_source_format": data_format, "columns": COLUMNS}
    return {**given, "storage_location": location, **others}


def test_tables_of_unity_catalog_are_imported(lake: Lamella, unity: Unity, name: str, tmp_path: Path) -> None:
    """Delta and plain Parquet tables; what the catalog hides or manages itself is refused."""
    write_deltalake(str(tmp_path / "delta"), ROWS)
    (tmp_path / "plain").mkdir()
    pq.write_table(ROWS, tmp_path / "plain" / "0.parquet")
    delta, plain = (tmp_path / "delta").as_uri(), (tmp_path / "plain").as_uri()
    managed = {"delta.feature.catalogManaged": "supported"}
    masked = [*COLUMNS[:1], {**COLUMNS[1], "mask": {"function_name": "f"}}]
    unity.tables = [
        table("delta", "DELTA", delta, table_type="MANAGED"),
        table("plain", "PARQUET", plain),
        table("managed", "DELTA", delta, properties=managed),
        table("masked", "DELTA", delta, columns=masked),
        table("filtered", "DELTA", delta, row_filter={"function_name": "f"}),
        table("parts", "PARQUET", plain, columns=[COLUMNS[0], {**COLUMNS[1], "partition_index": 0}]),
        table("csv", "CSV", plain),
        table("ice", "ICEBERG", plain),
        table("seen", "DELTA", None, table_type="VIEW"),
        table("streamed", "DELTA", None, table_type="STREAMING_TABLE"),
        table("lost", "DELTA", None),
        table("odd", "PARQUET", plain, columns=[column("a", "interval", 0)]),
    ]
    into = f"{name}_unity"

    def run(*patterns: str) -> Any:
        arguments = ["import", "unity", unity.url, *patterns, "--into", into, "--url", lake.url, "-o", "json"]
        return CliRunner().invoke(cli, arguments, env={"LAMELLA_UNITY_TOKEN": TOKEN})

    done = run("main.sales")
    assert done.exit_code == 1, done.output
    found = {each["source"]: each["code"] or each["action"] for each in json.loads(done.stdout)["tables"]}
    assert {each.removeprefix("main.sales."): action for each, action in found.items()} == {
        "csv": "not_parquet",
        "delta": "created",
        "filtered": "invalid_request",
        "ice": "other_table_format",
        "lost": "invalid_request",
        "managed": "invalid_request",
        "masked": "invalid_request",
        "odd": "invalid_schema",
        "parts": "invalid_request",
        "plain": "created",
        "seen": "invalid_request",
        "streamed": "invalid_request",
    }
    for each in ("delta", "plain"):
        assert lake.table(f"{into}.{each}").scan("Id > 1").to_arrow().num_rows == 2
    pq.write_table(ROWS, tmp_path / "plain" / "1.parquet")
    done = run("main.sales.plain")
    assert (done.exit_code, json.loads(done.stdout)["tables"][0]["action"]) == (0, "refreshed")
    assert lake.table(f"{into}.plain").info().row_count == 6


def test_a_server_that_refuses_is_named(unity: Unity) -> None:
    """With its status, and without the token."""
    with pytest.raises(StoreError, match="answers 401") as caught:
        UnityCatalog(unity.url, token="wrong").databases()
    assert "wrong" not in str(caught.value)
    with pytest.raises(StoreError, match="cannot be read"):
        UnityCatalog("http://127.0.0.1:1").databases()
    for text in ("ftp://x", "host", "https://user:secret@host"):
        with pytest.raises(InvalidRequest):
            UnityCatalog(text)
    assert UnityCatalog(f"{unity.url}{PREFIX}", token=TOKEN).databases() == ["main.default", "main.sales", "main.temp"]

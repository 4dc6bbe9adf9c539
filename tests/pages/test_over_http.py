"""The page level through the service and its client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fixtures_server import ServerProcess, environment_of
from lamella.client.http import Lamella
from support.service_api import Api


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A service that builds page sidecars with new blocks."""
    server = ServerProcess(environment_of({"warehouse": tmp_path / "warehouse", "page_sidecars": "true"}), tmp_path)
    yield server.wait_ready().url
    server.stop()


def test_row_ranges_travel(url: str, tmp_path: Path) -> None:
    """As records and as columns; a lookup of one row is one page."""
    path = tmp_path / "f.parquet"
    table = pa.table({"k": range(1_000), "s": [f"s{k:04d}" for k in range(1_000)]})
    pq.write_table(table, path, write_page_index=True, max_rows_per_page=100)
    with Lamella(url) as client:
        client.create_namespace("db")
    api = Api(url)
    api.call("POST", "/v1/namespaces/db/tables", {"name": "t", "schema_from": str(path)}, expect=201)
    api.call("POST", "/v1/namespaces/db/tables/t/register", {"paths": [str(path)]})
    body = {"filter": "k = 345", "level": "page", "columns": ["s"]}
    answer = api.call("POST", "/v1/namespaces/db/tables/t/prune", body)
    (block,) = answer["blocks"]
    pages = block["pages"]
    assert (pages["row_group"], pages["first_row"], pages["row_count"], pages["file_row"]) == ([0], [300], [100], [300])
    assert [column["column"] for column in pages["columns"]] == ["s"]
    assert answer["report"]["pages"] == {
        "cells_cached": 0,
        "cells_from_sidecars": 2,
        "files_read": 0,
        "reasons": {},
    }
    columns = api.call("POST", "/v1/namespaces/db/tables/t/prune", {**body, "shape": "columns"})
    assert columns["block_columns"]["pages"] == [pages]
    plain = api.call("POST", "/v1/namespaces/db/tables/t/prune", {"filter": "k = 345"})
    assert "pages" not in plain["blocks"][0]
    api.close()

"""Samples of rows over HTTP: who may have them, their bounds, and requests that are not right."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lamella.client.http import AsyncLamella, Lamella
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.errors import InvalidRequest, UnknownColumn
from support.app_client import AppClient
from support.service_api import World, parquet_bytes
from support.tenants import Tenants


def test_samples_need_the_right_to_read_and_can_be_switched_off(tmp_path: Path) -> None:
    """Without `read` the table is as if it were not there; with the setting off nobody gets rows."""
    path = "/v1/namespaces/north/tables/{}/sample"
    with Tenants(tmp_path / "on") as tenants:
        table = tenants.resources("north")
        grant = {"role": "read", "namespace": "north", "table": table.table}
        answer = tenants.asker(grant).call("POST", path.format(table.table), {"columns": [table.column]})
        assert answer["complete"]
        assert answer["rows"]
        assert {row[0] for row in answer["rows"]} == {table.value}
        for asker in (tenants.asker(), tenants.asker({**grant, "table": "another"})):
            assert asker.send("POST", path.format(table.table), {}).status_code == 404
    with Tenants(tmp_path / "off", sample_rows=False) as tenants:
        table = tenants.resources("north")
        refused = tenants.root.send("POST", path.format(table.table), {})
        assert (refused.status_code, refused.json()["details"]) == (403, {"setting": "sample_rows"})


def test_the_service_reads_no_more_than_its_setting_allows(tmp_path: Path) -> None:
    """Whatever the request says; the answer names the bound."""
    (tmp_path / "0.parquet").write_bytes(parquet_bytes({"s": [f"{each:0100}" for each in range(5_000)]}))
    with AppClient(create_app(Settings(warehouse=str(tmp_path / "w"), sample_bytes_max=30_000))) as app:
        app.post("/v1/namespaces", json={"name": "db"})
        app.post("/v1/namespaces/db/tables", json={"name": "t", "schema_from": f"file://{tmp_path}/0.parquet"})
        app.post("/v1/namespaces/db/tables/t/register", json={"paths": [f"{tmp_path}/0.parquet"]})
        answer = app.post("/v1/namespaces/db/tables/t/sample", json={"max_bytes": 1 << 40})
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert (found["stopped"], found["complete"], found["rows"]) == ("bytes", False, [])
        assert found["bytes_read"] <= 30_000


def test_both_clients_and_wrong_requests(local: World) -> None:
    """The same rows by both; more rows than there may be, and unknown members and columns, are refused."""
    location = local.put(f"{local.folder()}/0.parquet", a=[1, 2, 3], b=["x", None, "z"])
    made = local.table(schema=[{"name": "a", "type": "int64"}, {"name": "b", "type": "string"}])
    name = f"{made.namespace}.{made.name}"
    with Lamella(local.url) as lake:
        table = lake.table(name)
        table.register([location])
        found = table.sample("a > 1", ["b", "a"], rows=5, max_blocks=1, max_bytes=1 << 20, max_ms=2_000)
        assert found.rows == [[None, 2], ["z", 3]]
        assert found.complete
        with pytest.raises(UnknownColumn):
            table.sample("c > 1")
        with pytest.raises(InvalidRequest, match="max_ms"):
            table.sample(max_ms=0)
        with pytest.raises(InvalidRequest):
            table.sample(rows=1_001)

    async def rows() -> Any:
        async with AsyncLamella(local.url) as lake:
            return (await lake.table(name).sample("a > 1", ["b", "a"])).rows

    assert asyncio.run(rows()) == found.rows
    path = f"/v1/namespaces/{made.namespace}/tables/{made.name}/sample"
    for body in ({"row": 1}, {"rows": 0}, {"max_blocks": 0}, {"snapshot_id": "x", "timestamp": 1}):
        assert local.api.send("POST", path, body).status_code in (400, 404), body

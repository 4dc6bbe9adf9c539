"""Writing to an object store: the client's own options, and requests that are stored beside the blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures_s3 import S3Server
from fixtures_server import StartServer
from lamella.client import Lamella

pytestmark = pytest.mark.s3


def test_rows_are_written_to_an_object_store(s3: S3Server, start_server: StartServer, tmp_path: Path) -> None:
    """Appended once under a key, overwritten, upserted and deleted, with scratch space in the store or here."""
    options: dict[str, dict[str, Any]] = {"s3": s3.storage_options}
    server = start_server(
        warehouse=s3.bucket("written"), store_options=json.dumps(options), catalog=tmp_path / "catalog.db"
    )
    with Lamella(server.url) as lake:
        table = lake.table("db.t")
        rows = {"id": range(100), "v": [0] * 100}
        first = table.append(
            rows, create=True, cluster_by=["id"], target_block_rows=10, idempotency_key="k", storage_options=options
        )
        assert table.append(rows, idempotency_key="k", storage_options=options) == first
        scratch = f"{s3.bucket('scratch')}/rows"
        table.overwrite([{"id": 1, "v": 1}], "id < 5", storage_options=options, scratch=scratch)
        table.upsert([{"id": 50, "v": 2}, {"id": 200, "v": 2}], ["id"], storage_options=options, memory_bytes=1)
        table.delete("id >= 90 AND id < 100", storage_options=options)
        found = table.scan(storage_options=options).to_arrow().sort_by("id").to_pydict()
        assert found["id"] == [1, *range(5, 90), 200]
        assert [id for id, v in zip(found["id"], found["v"], strict=True) if v] == [1, 50, 200]
        assert table.verify(deep=True, sample=1.0).is_clean

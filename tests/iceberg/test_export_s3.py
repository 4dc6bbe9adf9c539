"""An export in S3: everything lies there, and pyiceberg reads it from there."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from fixtures_s3 import S3Server
from fixtures_server import start_shared
from lamella.client.http import Lamella
from lamella.client.iceberg.export import export_iceberg
from lamella.snapshot.source.options import iceberg_properties
from lamella.snapshot.storage import FsspecStore

pytestmark = pytest.mark.s3

ROWS = pa.table({"a": pa.array([1, 2, 3], pa.int64()), "s": ["x", None, "z"]})


def test_an_export_lies_in_s3(s3: S3Server, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """With the store's own options; the version that readers follow is replaced, and odd names are read as they are."""
    bucket = s3.bucket("exports")
    options = {"s3": s3.storage_options}
    store = FsspecStore(options)
    data = io.BytesIO()
    pq.write_table(ROWS, data)
    settings = {
        "warehouse": f"{bucket}/warehouse",
        "catalog": f"{tmp_path}/catalog.db",
        "store_options": json.dumps(options),
    }
    server = start_shared(pytestconfig, tmp_path, settings)
    try:
        with Lamella(server.url) as lake:
            lake.create_namespace("x")
            for number in range(1, 3):
                location = f"{bucket}/data/{number} a b.parquet"
                store.put(location, data.getvalue())
                if number == 1:
                    lake.create_table("x.t", schema_from=location)
                lake.table("x.t").register([location])
                done = export_iceberg(lake, "x.t", store)
                assert done.location.startswith(f"{bucket}/warehouse/")
                assert store.read(f"{done.location}/metadata/version-hint.text") == str(number).encode()
                found = StaticTable.from_metadata(done.location, iceberg_properties(options))
                assert sorted(found.scan("a >= 2").to_arrow()["a"].to_pylist()) == sorted([2, 3] * number)
    finally:
        server.stop()

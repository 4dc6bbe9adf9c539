"""Sources in S3, read with the service's own storage options."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from fixtures_s3 import S3Server
from lamella.snapshot.source import Reader
from lamella.snapshot.source.options import delta_options, iceberg_properties
from lamella.snapshot.storage import FsspecStore, ObjectStat
from lamella.snapshot.wire import ExternalSource

pytestmark = pytest.mark.s3

ROWS = pa.table({"a": [1, 2, 3]})


@pytest.fixture
def store(s3: S3Server) -> FsspecStore:
    """The store with the server's options."""
    return FsspecStore({"s3": s3.storage_options})


def test_all_three_kinds_are_read_from_s3(s3: S3Server, store: FsspecStore, tmp_path: Path) -> None:
    """Locations are those that the store knows, sizes are its own, and a directory has etags."""
    bucket = s3.bucket("external")
    options = {"s3": s3.storage_options}
    reader = Reader(store, options=options)
    write_deltalake(f"{bucket}/delta", ROWS, storage_options=delta_options("s3", options))
    properties = iceberg_properties(options)
    uri = f"sqlite:///{tmp_path}/c.db"
    catalog = SqlCatalog("c", uri=uri, warehouse=f"{bucket}/iceberg", **properties)
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=ROWS.schema)
    table.append(ROWS)
    data = io.BytesIO()
    pq.write_table(ROWS, data)
    store.put(f"{bucket}/plain/x y%20z.parquet", data.getvalue())
    sources = {
        "delta": ExternalSource(kind="delta", location=f"{bucket}/delta"),
        "iceberg": ExternalSource(kind="iceberg", location=table.metadata_location),
        "directory": ExternalSource(kind="directory", location=f"{bucket}/plain"),
    }
    for kind, source in sources.items():
        (file,) = reader.read(source, {}).files
        found: ObjectStat = store.stat(file.location)
        assert file.size_bytes == found.size_bytes
        assert file.content_id == (found.content_id if kind == "directory" else None)

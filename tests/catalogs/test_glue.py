"""Tables of a Glue Data Catalog, moto's, with files in its S3."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from deltalake import write_deltalake
from pyiceberg.catalog.glue import GlueCatalog as IcebergGlue

from fixtures_s3 import S3Server
from fixtures_server import start_shared
from lamella.client import Lamella
from lamella.client.catalogs.glue import GlueCatalog
from lamella.client.cli.app import cli
from lamella.snapshot.errors import StoreError
from lamella.snapshot.source.options import delta_options, iceberg_properties
from lamella.snapshot.storage import FsspecStore
from support.sources import rows_of

pytestmark = pytest.mark.s3

PARQUET = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"
SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
REGION = "us-east-1"


@pytest.fixture
def glue(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Any:
    """boto3's client, with which tables are made."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    return boto3.client("glue", region_name=REGION, endpoint_url=s3.endpoint_url)


@pytest.fixture
def s3_lake(s3: S3Server, pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[Lamella]:
    """A service that reads that S3."""
    settings = {"warehouse": tmp_path / "warehouse", "store_options": json.dumps({"s3": s3.storage_options})}
    server = start_shared(pytestconfig, tmp_path, settings)
    with Lamella(server.url) as lake:
        yield lake
    server.stop()


def storage(location: str, input_format: str = PARQUET, **others: Any) -> dict[str, Any]:
    """A storage descriptor."""
    serde = {"SerializationLibrary": SERDE, "Parameters": {"serialization.format": "1"}}
    return {"Location": location, "InputFormat": input_format, "SerdeInfo": serde, **others}


def put(store: FsspecStore, location: str, rows: Mapping[str, Any]) -> None:
    """A file."""
    data = io.BytesIO()
    pq.write_table(pa.table(dict(rows)), data)
    store.put(location, data.getvalue())


def run(lake: Lamella, s3: S3Server, *arguments: str) -> Result:
    """Import."""
    base = ["import", "glue", "--region", REGION, "--endpoint-url", s3.endpoint_url, "--url", lake.url]
    return CliRunner().invoke(cli, [*base, *arguments], env={"COLUMNS": "250"})


def test_tables_of_glue_are_imported_and_refreshed(s3: S3Server, s3_lake: Lamella, glue: Any, name: str) -> None:
    """Parquet with partitions anywhere in S3, on many pages; Delta and Iceberg; others are refused."""
    bucket = s3.bucket(f"glue-{name}")
    options = {"s3": s3.storage_options}
    store = FsspecStore(options)
    database = f"glue_{name}"
    glue.create_database(DatabaseInput={"Name": database})

    def make(table: str, described: dict[str, Any], **others: Any) -> None:
        glue.create_table(
            DatabaseName=database,
            TableInput={"Name": table, "TableType": "EXTERNAL_TABLE", "StorageDescriptor": described, **others},
        )

    columns = [{"Name": "id", "Type": "bigint"}, {"Name": "s", "Type": "string"}]
    keys = [{"Name": "day", "Type": "date"}, {"Name": "region", "Type": "string"}]
    make("events", storage(f"s3a://{bucket[5:]}/events", Columns=columns), PartitionKeys=keys)

    def add(day: str, region: str, location: str) -> None:
        described = storage(location)
        glue.create_partition(
            DatabaseName=database,
            TableName="events",
            PartitionInput={"Values": [day, region], "StorageDescriptor": described},
        )

    for number in range(120):
        day = f"2024-{number % 12 + 1:02}-{number % 28 + 1:02}"
        folder = f"{bucket}/{'events' if number % 3 else 'moved'}/{number}"
        region = "__HIVE_DEFAULT_PARTITION__" if number == 7 else f"r/{number}"
        add(day, region, folder.replace("s3://", "s3n://"))
        put(store, f"{folder}/000000_0", {"id": pa.array([number], pa.int64()), "s": [f"s{number}"]})
    put(store, f"{bucket}/events/stray/f.parquet", {"id": [1000], "s": ["none"]})
    rows = pa.table({"a": [1, 2, 3]})
    write_deltalake(f"{bucket}/delta", rows, storage_options=delta_options("s3", options))
    make("delta", storage(f"{bucket}/delta"), Parameters={"table_type": "DELTA"})
    properties = {"glue.endpoint": s3.endpoint_url, "glue.region": REGION, **iceberg_properties(options)}
    iceberg = IcebergGlue("glue", **properties, warehouse=f"{bucket}/iceberg")
    followed = iceberg.create_table((database, "ice"), schema=rows.schema)
    followed.append(rows)
    make("csv", storage(f"{bucket}/csv", "org.apache.hadoop.mapred.TextInputFormat", Columns=columns))
    make("linked", storage(f"{bucket}/x"), TargetTable={"DatabaseName": "other", "Name": "t"})
    glue.create_table(
        DatabaseName=database,
        TableInput={"Name": "shown", "TableType": "VIRTUAL_VIEW", "StorageDescriptor": storage("")},
    )

    done = run(s3_lake, s3, database, "--into", "imported", "-o", "json")
    assert done.exit_code == 1, done.output
    found = {each["source"].partition(".")[2]: each for each in json.loads(done.stdout)["tables"]}
    assert {table: each["code"] or each["action"] for table, each in found.items()} == {
        "csv": "not_parquet",
        "delta": "created",
        "events": "created",
        "ice": "created",
        "linked": "invalid_request",
        "shown": "invalid_request",
    }
    events = s3_lake.table("imported.events")
    scanned = rows_of(events.scan(storage_options=options).to_arrow())
    assert sorted(row["id"] for row in scanned) == [*range(120)]
    assert {row["region"] for row in scanned} == {None, *(f"r/{at}" for at in range(120) if at != 7)}
    assert events.prune("region = 'r/5'", reader_features=["constants"]).block_count == 1
    account = glue.get_databases()["DatabaseList"][0]["CatalogId"]
    assert events.info().properties["lamella.import.catalog"] == f"glue {REGION} {account}"
    for table in ("delta", "ice"):
        assert s3_lake.table(f"imported.{table}").scan(storage_options=options).to_arrow().num_rows == 3

    followed.append(rows)
    write_deltalake(f"{bucket}/delta", rows, mode="append", storage_options=delta_options("s3", options))
    glue.delete_partition(DatabaseName=database, TableName="events", PartitionValues=["2024-01-01", "r/0"])
    done = run(s3_lake, s3, f"{database}.events", f"{database}.delta", f"{database}.ice", "--into", "imported")
    assert done.exit_code == 0, done.output
    assert s3_lake.table("imported.ice").scan(storage_options=options).to_arrow().num_rows == 6
    assert s3_lake.table("imported.delta").scan(storage_options=options).to_arrow().num_rows == 6
    assert sorted(row["id"] for row in rows_of(events.scan(storage_options=options).to_arrow())) == [*range(1, 120)]


def test_what_glue_refuses_is_said(s3: S3Server, s3_lake: Lamella, glue: Any) -> None:
    """A server that does not answer, and a database that does not exist."""
    assert glue is not None
    with pytest.raises(StoreError, match="Glue cannot be read"):
        GlueCatalog(REGION, endpoint_url="http://127.0.0.1:1").databases()
    done = run(s3_lake, s3, "no_such_database")
    assert done.exit_code == 1
    assert "no_such_database" in done.stderr

"""Pages about commits, indexes, jobs and what keeps tables in shape."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from deltalake import write_deltalake
from hive_metastore.ttypes import Database, FieldSchema, SerDeInfo, StorageDescriptor
from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog

from catalogs.hive_server import Metastore
from catalogs.iceberg_rest import RestCatalog
from conftest import path_from_script
from docs.fenced import ROOT
from docs.scene import as_type, reads, scene
from docs.scenes.rows import events, orders
from docs.stage import Stage
from lamella.client.jobs.report import read_event
from lamella.client.spark import attach
from lamella.snapshot.schema import Column
from lamella.snapshot.wire import (
    AuditList,
    CommitRequest,
    CreateTable,
    Policy,
    Problem,
    RefreshTable,
    VacuumRequest,
)


def _events(_stage: Stage, text: str) -> None:
    for line in text.splitlines():
        assert read_event(line.encode()) is not None, line


@scene("docs/commits.md", data=[as_type(CommitRequest)] * 6)
def commits(_stage: Stage) -> None:
    """Only requests are shown."""


@scene("docs/errors.md", data=[as_type(Problem)])
def errors(_stage: Stage) -> None:
    """Only an answer is shown."""


@scene("docs/audit.md", data=[as_type(AuditList)])
def audit(stage: Stage) -> None:
    """A table with something in its trail."""
    stage.table("sales.orders", orders())
    stage.names["lake"] = stage.lake


@scene("docs/jobs.md", data=[as_type(Policy)], texts=[_events])
def jobs(stage: Stage) -> None:
    """Orders in many files, and a program of one's own."""
    stage.table("sales.orders", orders(), count=6)
    stage.names |= {"total": 3, "step": lambda done: done + 1}


@scene("docs/auto.md")
def auto(stage: Stage) -> None:
    """Orders in many files."""
    stage.table("sales.orders", orders(), count=6)
    stage.names["lake"] = stage.lake


@scene("docs/vacuum.md", data=[as_type(VacuumRequest)])
def vacuum(stage: Stage) -> None:
    """A table with two snapshots of its own."""
    table = stage.table("sales.orders", orders())
    stage.names |= {"table": table, "old": table.info().snapshot_id, "spark_job": lambda table: table.prune()}
    table.commit(properties={"a": "b"}, operation="set")


@scene("docs/verify.md")
def verify(stage: Stage) -> None:
    """Orders."""
    stage.table("shop.orders", orders())
    stage.names["lake"] = stage.lake


@scene("docs/indexes.md", data=[reads], spark=True)
def indexes(stage: Stage) -> None:
    """Orders, and events with documents."""
    stage.table("shop.orders", orders())
    stage.table("shop.events", {"payload": [f'{{"user": {{"id": {n}}}}}' for n in range(100)]})
    stage.names["lake"] = stage.lake


def iceberg_settings(folder: Path) -> dict[str, str]:
    """Settings of a service that knows an Iceberg catalog, which is a file."""
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/iceberg.db", "warehouse": f"file://{folder}/iceberg"}
    return {"iceberg_catalogs": json.dumps({"prod": properties})}


def make_iceberg_items(stage: Stage) -> None:
    """The table `shop.items` in that catalog."""
    rows = pa.table({"id": list(range(100))})
    uri, warehouse = f"sqlite:///{stage.folder}/iceberg.db", f"file://{stage.folder}/iceberg"
    with contextlib.closing(SqlCatalog("prod", uri=uri, warehouse=warehouse)) as catalog:
        catalog.create_namespace("shop")
        catalog.create_table("shop.items", rows.schema).append(rows)


@scene(
    "docs/external.md",
    data=[as_type(CreateTable), as_type(RefreshTable)],
    settings=iceberg_settings,
)
def external(stage: Stage) -> None:
    """A directory, two Delta tables and an Iceberg table."""
    stage.namespace("sales")
    stage.files("events", {"a": list(range(100))})
    rows = pa.table({"id": list(range(100))})
    for name in ("orders", "returns"):
        for _ in range(2):
            write_deltalake(str(stage.folder / "data" / name), rows, mode="append")
    make_iceberg_items(stage)
    stage.names["lake"] = stage.lake


_PARQUET_INPUT: Final = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"


def _read_with_pyiceberg(stage: Stage, text: str) -> None:
    """The source's table and the imported one, by the catalogs of the file, have the same rows."""
    entries = yaml.safe_load(stage.meant(text))["catalog"]
    counts = []
    for name, table in (("prod", "shop.items"), ("lake", "lake.items")):
        with contextlib.closing(load_catalog(name, **entries[name])) as catalog:
            counts.append(catalog.load_table(table).scan().to_arrow().num_rows)
    assert counts == [100, 100]


@scene("docs/import.md", data=[_read_with_pyiceberg, as_type(RefreshTable)], settings=iceberg_settings)
def imports(stage: Stage) -> None:
    """A metastore with two tables, one of them empty, and an Iceberg catalog over REST."""
    folder = stage.folder / "metastore"
    folder.mkdir()
    metastore = Metastore(path_from_script("java_home.py"), folder)
    stage.clean_up.append(metastore.stop)
    metastore.wait_ready()
    with metastore.client() as client:
        client.create_database(Database(name="sales", locationUri=(folder / "sales").as_uri()))
        for name, columns in (("orders", [FieldSchema("id", "bigint")]), ("clicks", [FieldSchema("line", "string")])):
            location = (folder / "sales" / name).as_uri()
            serde = SerDeInfo(serializationLib="org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe")
            storage = StorageDescriptor(
                cols=columns, location=location, inputFormat=_PARQUET_INPUT, serdeInfo=serde, parameters={}
            )
            described = {"dbName": "sales", "tableName": name, "tableType": "EXTERNAL_TABLE", "sd": storage}
            client.create_table(HiveTable(**described, partitionKeys=[], parameters={"EXTERNAL": "TRUE"}))
    (folder / "sales" / "orders").mkdir(parents=True, exist_ok=True)
    for number in range(3):
        pq.write_table(pa.table({"id": list(range(100))}), folder / "sales" / "orders" / f"00000{number}_0")
    stage.swaps["thrift://metastore:9083"] = metastore.uri
    make_iceberg_items(stage)
    uri, warehouse = f"sqlite:///{stage.folder}/iceberg.db", f"file://{stage.folder}/iceberg"
    catalog = SqlCatalog("prod", uri=uri, warehouse=warehouse)
    stage.clean_up.append(catalog.close)
    served = RestCatalog(catalog)
    stage.clean_up.append(served.close)
    stage.swaps["http://catalog:8181"] = served.url
    stage.names["lake"] = stage.lake


@scene("docs/export.md")
def export(stage: Stage) -> None:
    """Orders in a few files."""
    stage.table("sales.orders", orders(), count=3)
    stage.names["lake"] = stage.lake


@scene("docs/iceberg.md")
def iceberg(stage: Stage) -> None:
    """Orders in a few files."""
    export(stage)


@scene("docs/trino-flink-snowflake.md", texts=[reads] * 4)
def engines_with_exports(stage: Stage) -> None:
    """Orders in a few files."""
    export(stage)


def profile_of_the_example(_stage: Stage, text: str) -> None:
    """What the project in examples/dbt has, with its default for the address."""
    example = (ROOT / "examples" / "dbt" / "profiles.yml").read_text("utf-8")
    example = re.sub(r"\"\{\{ env_var\('\w+', '(\S+)'\) \}\}\"", r"\1", example)
    assert yaml.safe_load(text) == yaml.safe_load(example)


@scene("docs/dbt.md", data=[profile_of_the_example])
def dbt(_stage: Stage) -> None:
    """A profile, and commands of dbt."""


@scene("docs/orchestration.md")
def orchestration(_stage: Stage) -> None:
    """A command of Dagster."""


@scene("docs/schema.md", spark=True)
def schema(stage: Stage) -> None:
    """Events with more columns, and orders, attached to Spark."""
    count = 100
    more = {
        "note": ["n"] * count,
        "city": ["Ulm"] * count,
        "visits": pa.array(range(count), pa.int32()),
    }
    columns = {name: values for name, values in events(count).items() if name not in ("country", "region")}
    table = stage.table("db.events", {**columns, **more})
    stage.lake.create_table("db.documents", schema=[Column(name="id", type="int32"), Column(name="v", type="variant")])
    stage.table("shop.orders", {"id": [1, 2], "country": ["DE", "FR"], "amount": [10, 20]})
    attach(stage.names["spark"], "lake", stage.lake)
    block = table.segment(table.snapshot(table.info().snapshot_id).segments[0].segment_id).blocks[0]
    stage.names |= {"lake": stage.lake, "table": table, "block": block}

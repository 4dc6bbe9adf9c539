"""Files as Spark writes them: verification finds nothing wrong with them, and what is wrong it finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lamella.snapshot.parquet import ingest, read_footer, schema_of
from lamella.snapshot.schema.evolution import AddColumn, RenameColumn, SchemaChange
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.verify import Deep, Options, Verification
from lamella.snapshot.warehouse import Warehouse

pytestmark = pytest.mark.spark

COLUMNS = (
    "id AS k",
    "CAST(id % 100 AS TINYINT) AS small",
    "IF(id % 7 = 0, NULL, CAST(id AS DOUBLE) / 8) AS x",
    "IF(id % 11 = 0, DOUBLE('NaN'), CAST(id AS DOUBLE)) AS mixed",
    "concat(repeat('long-', 20), lpad(id, 8, '0')) AS t",
    "CAST(id AS DECIMAL(9, 2)) AS d9",
    "CAST(id AS DECIMAL(30, 4)) AS d30",
    "DATE_ADD(DATE'2000-01-01', CAST(id % 9000 AS INT)) AS day",
    "TIMESTAMP_MICROS(id * 1000003) AS at",
    "CAST(TIMESTAMP_MICROS(id * 1000003) AS TIMESTAMP_NTZ) AS wall",
    "id % 2 = 0 AS flag",
    "CAST(CAST(id AS STRING) AS BINARY) AS raw",
    "named_struct('a', id DIV 100, 'b', array(id)) AS s",
    "map('k', id) AS m",
    "CAST(NULL AS INT) AS nothing",
)


@pytest.fixture(scope="module")
def session(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session of this run's tests, or a small one."""
    assert java_home
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("spark")))
        .getOrCreate()
    )


@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("timestamps", ["INT96", "TIMESTAMP_MICROS"])
def test_sparks_files_are_clean(session: SparkSession, tmp_path: Path, scanned: bool, timestamps: str) -> None:
    """Every type that Spark writes, several row groups and pages, then a schema that has changed and blocks removed."""
    before = str(session.conf.get("spark.sql.parquet.outputTimestampType"))
    session.conf.set("spark.sql.parquet.outputTimestampType", timestamps)
    try:
        frame = session.range(0, 9_000, 1, 3).selectExpr(*COLUMNS)
        frame.write.option("parquet.page.row.count.limit", 500).parquet(str(tmp_path / "files"))
    finally:
        session.conf.set("spark.sql.parquet.outputTimestampType", before)
    store = FsspecStore()
    locations = store.expand(f"file://{tmp_path}/files")
    schema = schema_of(read_footer(store, locations[0]))
    blocks, refused = ingest(store, locations, schema, verify=scanned)
    assert not refused
    root = f"file://{tmp_path}/warehouse"
    warehouse = Warehouse(store, root, segment_blocks=2, prepare_pages=True)
    pointer = warehouse.create("t", schema, now_ms=1)
    pointer = warehouse.commit(pointer, added=warehouse.prepare("t", schema, blocks), now_ms=2).pointer
    changes: list[SchemaChange] = [
        AddColumn(name="extra", type="int64", default="7"),
        RenameColumn(column=("k",), name="key"),
    ]
    evolved = warehouse.evolve(pointer, changes, now_ms=3).pointer
    fewer = warehouse.commit(evolved, removed=locations[:1], now_ms=4).pointer
    for at in (pointer, evolved, fewer):
        answer = Verification(
            store, root, "t", at, Options(pages=at is pointer, deep=Deep(sample=1.0, filters=25))
        ).run()
        assert answer.findings == ()
        assert answer.checked.values > 9_000
        assert answer.checked.filters > answer.checked.filters_left_out

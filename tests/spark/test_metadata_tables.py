"""``lake.db.`t$snapshots` `` and the other tables about a table."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Row, SparkSession

from lamella.client.spark.metadata_tables import METADATA_TABLES
from spark.lakes import CATALOG, Lakes, LakeTable, fresh, numbers
from support.deleted_rows import blocks_of

pytestmark = pytest.mark.spark


def about(table: LakeTable, kind: str) -> str:
    """The name of a metadata table in SQL."""
    namespace, name = table.name.split(".")
    return f"{CATALOG}.{namespace}.`{name}${kind}`"


def rows(spark: SparkSession, table: LakeTable, kind: str) -> list[Row]:
    """Its rows."""
    return spark.sql(f"SELECT * FROM {about(table, kind)}").collect()


def test_snapshots_are_those_of_the_history(spark: SparkSession, lakes: Lakes) -> None:
    """Newest first, with what was done, and tags; those of the past end at the snapshot that is read."""
    table = lakes.of(*numbers(2))
    handle = table.lake.table(table.name)
    handle.tag("first")
    table.add(*numbers(1))
    listed = list(handle.snapshots())
    found = rows(spark, table, "snapshots")
    assert [row.snapshot_id for row in found] == [each.snapshot_id for each in listed]
    assert [(row.operation, row.row_count, row.block_count) for row in found] == [
        (each.operation, each.row_count, each.block_count) for each in listed
    ]
    assert [list(row.tags) for row in found] == [list(each.tags) for each in listed]
    assert round(found[0].committed_at.timestamp() * 1_000) == listed[0].timestamp_ms
    past = spark.sql(f"SELECT row_count FROM {about(table, 'snapshots')} VERSION AS OF 'first'").collect()
    assert [row.row_count for row in past] == [200, 0]
    assert [row.name for row in rows(spark, table, "tags")] == ["first"]


def test_blocks_have_their_rows_and_deleted_rows(spark: SparkSession, lakes: Lakes) -> None:
    """At the snapshot that is read."""
    table = lakes.of(*numbers(3))
    before = table.snapshot_id()
    spark.sql(f"DELETE FROM {table.sql} WHERE a IN (5, 6, 250)")
    wanted = {
        location: (block.row_count, sum(each.cardinality or 0 for each in block.deletes), block.file_size)
        for location, block in blocks_of(table.lake.table(table.name)).items()
    }
    found = {
        row.location: (row.row_count, row.deleted_row_count, row.file_size_bytes)
        for row in rows(spark, table, "blocks")
    }
    assert found == wanted
    assert sorted(deleted for _, deleted, _ in found.values()) == [0, 1, 2]
    clean = spark.sql(f"SELECT sum(deleted_row_count) FROM {about(table, 'blocks')} VERSION AS OF '{before}'")
    assert clean.collect()[0][0] == 0
    some = spark.sql(f"SELECT location FROM {about(table, 'blocks')} WHERE deleted_row_count = 2").collect()
    assert len(some) == 1


def test_partitions_have_the_totals_of_their_blocks(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """By the values of columns that files do not hold."""
    for day in ("a", "b"):
        for number in range(2):
            folder = tmp_path / f"day={day}"
            folder.mkdir(exist_ok=True)
            pq.write_table(pa.table({"n": list(range(10 + number))}), folder / f"{number}.parquet")
    namespace = fresh("parts")
    lakes.lake.create_namespace(namespace)
    lakes.lake.create_external(f"{namespace}.t", {"kind": "directory", "location": str(tmp_path)})
    lakes.lake.table(f"{namespace}.t").refresh()
    table = LakeTable(lakes.lake, f"{namespace}.t", tmp_path)
    found = {tuple(row.constants.items()): (row.block_count, row.row_count) for row in rows(spark, table, "partitions")}
    assert found == {(("day", "a"),): (2, 21), (("day", "b"),): (2, 21)}
    constants = {row.location.split("/")[-2]: row.constants for row in rows(spark, table, "blocks")}
    assert constants == {"day=a": {"day": "a"}, "day=b": {"day": "b"}}


def test_the_history_has_what_was_requested(spark: SparkSession, lakes: Lakes) -> None:
    """Changes of the table, the newest first, with who asked for them and what became of them."""
    table = lakes.of(*numbers(2))
    found = rows(spark, table, "history")
    assert "create_table" in {row["operation"] for row in found}
    assert [row["requested_at"] for row in found] == sorted((row["requested_at"] for row in found), reverse=True)
    assert all(200 <= row["status"] < 300 and row["code"] is None for row in found)


def test_indexes_say_what_they_cover(spark: SparkSession, lakes: Lakes) -> None:
    """Before and after they are built."""
    table = lakes.of(*numbers(2))
    handle = table.lake.table(table.name)
    handle.create_index("of_s", "bloom", "s")
    (row,) = rows(spark, table, "indexes")
    assert (row.name, row.kind, row.expression, row.blocks_covered, row.blocks_total) == ("of_s", "bloom", "s", 0, 2)
    handle.refresh_index("of_s")
    (row,) = rows(spark, table, "indexes")
    assert (row.blocks_covered, row.size_bytes > 0) == (2, True)


def test_they_are_joined_grouped_and_described_like_other_tables(spark: SparkSession, lakes: Lakes) -> None:
    """With any of their columns."""
    table = lakes.of(*numbers(3))
    query = (
        f"SELECT s.operation, count(*) FROM {about(table, 'snapshots')} s JOIN {about(table, 'blocks')} b GROUP BY 1"
    )
    assert {tuple(row) for row in spark.sql(query).collect()} == {("create", 3), ("append", 3)}
    assert spark.sql(f"SELECT count(*) FROM {about(table, 'blocks')}").collect()[0][0] == 3
    for kind, made in METADATA_TABLES.items():
        described = spark.sql(f"DESCRIBE {about(table, kind[1:])}").collect()
        assert [row.col_name for row in described] == list(made.columns)
        assert rows(spark, lakes.empty(numbers(1)[0].schema), kind[1:]) is not None


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO {} VALUES ('a', 'b', NULL, NULL)",
        "DELETE FROM {}",
        "UPDATE {} SET name = 'x'",
        "DROP TABLE {}",
        "ALTER TABLE {} ADD COLUMN x INT",
        "TRUNCATE TABLE {}",
        "CREATE TABLE {} (a INT)",
        "REPLACE TABLE {} AS SELECT * FROM {t}",
        "CREATE OR REPLACE TABLE {} AS SELECT * FROM {t}",
        "REPLACE TABLE {rows} AS SELECT * FROM {t}",
    ],
)
def test_they_cannot_be_changed(spark: SparkSession, lakes: Lakes, statement: str) -> None:
    """Each statement fails, and the table itself does not change."""
    table = lakes.of(*numbers(1))
    before = table.lake.table(table.name).info()
    with pytest.raises(PySparkException) as raised:
        spark.sql(statement.format(about(table, "tags"), t=table.sql, rows=about(table, "rows")))
    assert "Traceback" not in str(raised.value)
    assert table.lake.table(table.name).info() == before


def test_other_names_are_not_found(spark: SparkSession, lakes: Lakes) -> None:
    """Neither another word behind the sign, nor another table before it."""
    table = lakes.of(*numbers(1))
    for name in (about(table, "what"), f"{CATALOG}.{table.name.split('.')[0]}.`none$tags`"):
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            spark.sql(f"SELECT * FROM {name}")

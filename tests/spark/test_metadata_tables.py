"""``lake.db.`t$snapshots` `` and the other tables about a table."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from lamella.client.spark import block_list
from lamella.client.spark.block_list import filter_schema, struct_of
from lamella.client.spark.local_filter import Condition, LazyColumns, LocalFilter
from lamella.client.spark.metadata_tables import METADATA_TABLES
from lamella.client.spark.python_blocks import spark_arrow_schema
from spark.lakes import CATALOG, Lakes, LakeTable, fresh, numbers, plan
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


def sent(frame: DataFrame) -> int:
    """How many rows of a metadata table were made for Spark."""
    leaves = frame._jdf.queryExecution().sparkPlan().collectLeaves()
    (scan,) = (leaves.apply(at) for at in range(leaves.size()))
    assert scan.nodeName() == "LocalTableScan", plan(frame)
    return int(scan.rows().size())


def test_segments_have_the_totals_of_their_blocks(spark: SparkSession, lakes: Lakes) -> None:
    """A row for each, with its manifest."""
    table = lakes.of(*numbers(2))
    table.add(*numbers(1))
    manifests = {each.segment_id: each for each in table.lake.table(table.name).snapshot(table.snapshot_id()).segments}
    found = {row.segment_id: row for row in rows(spark, table, "segments")}
    assert found.keys() == manifests.keys()
    for segment_id, row in found.items():
        summary = manifests[segment_id].summary
        assert row.location == manifests[segment_id].manifest.location
        assert (row.block_count, row.row_count) == (summary.block_count, summary.row_count)
    assert sum(row.file_size_bytes for row in found.values()) == table.lake.table(table.name).info().file_size_bytes


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("location LIKE '%/{name}'", 1),
        ("row_count > 100", 0),
        ("row_count >= 100 AND deleted_row_count > 0", 1),
        ("file_size_bytes + 1 > 0 AND location IN ('{path}', 'x')", 1),
        ("schema_id IS NULL", 0),
        ("size(constants) > 0", 4),  # decided by Spark only
        ("size(constants) = 0 AND location = '{path}'", 1),
    ],
)
@pytest.mark.few(4)
def test_conditions_are_evaluated_before_rows_are_sent(
    spark: SparkSession, lakes: Lakes, condition: str, left: int
) -> None:
    """So that only rows that may meet them are made; the result is that of Spark's own evaluation."""
    table = lakes.of(*numbers(4))
    spark.sql(f"DELETE FROM {table.sql} WHERE a = 5")
    (path, *_) = blocks_of(table.lake.table(table.name))
    where = condition.format(path=path, name=path.rpartition("/")[2])
    frame = spark.sql(f"SELECT location FROM {about(table, 'blocks')} WHERE {where}")
    found = frame.collect()
    assert sent(frame) == left
    everything = spark.createDataFrame(rows(spark, table, "blocks"), spark.table(about(table, "blocks")).schema)
    assert sorted(found) == sorted(everything.where(where).select("location").collect())


def test_times_and_names_of_snapshots_are_pushed_down(spark: SparkSession, lakes: Lakes) -> None:
    """In the time zone of the session."""
    table = lakes.of(*numbers(1))
    table.add(*numbers(1))
    moment = spark.sql(f"SELECT CAST(max(committed_at) AS STRING) FROM {about(table, 'snapshots')}").collect()[0][0]
    frame = spark.sql(f"SELECT number FROM {about(table, 'snapshots')} WHERE committed_at >= TIMESTAMP '{moment}'")
    assert [row.number for row in frame.collect()] == [3]
    assert sent(frame) == 1
    frame = spark.sql(f"SELECT count(*) FROM {about(table, 'snapshots')} WHERE operation = 'append'")
    assert frame.collect()[0][0] == 2
    assert sent(frame) == 2


def test_only_columns_that_are_used_are_made() -> None:
    """Those of conditions for all rows, the others for rows that are left, and none besides."""
    made: list[tuple[str, int]] = []

    def column(name: str) -> Callable[[Sequence[int]], list[int]]:
        def values(numbers: Sequence[int]) -> list[int]:
            made.append((name, len(numbers)))
            return [number * 10 for number in numbers]

        return values

    types = {"a": "long", "b": "long", "c": "long"}
    columns = LazyColumns(100, {name: column(name) for name in types})
    tree = {"type": "lt", "term": "a", "value": {"type": "literal", "data-type": "long", "value": 30}}
    conditions = LocalFilter(filter_schema(types), [Condition(tree, "UTC")])
    found = columns.table(spark_arrow_schema(struct_of(types)), ["b"], conditions)
    assert found.to_pylist() == [{"b": 0}, {"b": 10}, {"b": 20}]
    assert made == [("a", 100), ("b", 3)]
    assert columns.table(spark_arrow_schema(struct_of(types)), [], conditions).num_rows == 3


def test_workers_make_the_rows_of_many_blocks(
    spark: SparkSession, lakes: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the manifests of segments, with the same rows and conditions as the driver; it makes none itself."""
    table = lakes.of(*numbers(3))
    table.add(*numbers(2))
    spark.sql(f"DELETE FROM {table.sql} WHERE a IN (5, 6)")
    by_driver = rows(spark, table, "blocks")
    monkeypatch.setattr(block_list, "MAX_BLOCKS_ON_DRIVER", 4)
    frame = spark.sql(f"SELECT * FROM {about(table, 'blocks')}")
    assert sorted(frame.collect(), key=str) == sorted(by_driver, key=str)
    assert "LocalTableScan" not in plan(frame)
    assert "BatchScan" in plan(frame)
    some = spark.sql(f"SELECT location, deleted_row_count FROM {about(table, 'blocks')} WHERE deleted_row_count > 0")
    assert sorted(some.collect()) == sorted(
        (row.location, row.deleted_row_count) for row in by_driver if row.deleted_row_count
    )
    assert spark.sql(f"SELECT count(*) FROM {about(table, 'blocks')}").collect()[0][0] == 5
    monkeypatch.setattr(block_list, "MAX_BLOCKS_ON_DRIVER", 5)
    frame = spark.sql(f"SELECT * FROM {about(table, 'blocks')}")
    assert sorted(frame.collect(), key=str) == sorted(by_driver, key=str)
    assert "LocalTableScan" in plan(frame)


def test_partitions_have_the_totals_of_their_blocks(
    spark: SparkSession, lakes: Lakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the values of columns that files do not hold; the same if the driver sums many blocks segment by segment."""
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
    for maximum in (block_list.MAX_BLOCKS_ON_DRIVER, 1):
        monkeypatch.setattr(block_list, "MAX_BLOCKS_ON_DRIVER", maximum)
        listed = rows(spark, table, "partitions")
        found = {tuple(row.constants.items()): (row.block_count, row.row_count) for row in listed}
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

"""Changed rows in Spark: those of the change feed, by SQL, by Spark's reader and as a frame."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import datetime as dt
import random
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from lamella.client.spark import Attached, delete
from lamella.snapshot.errors import InvalidRequest, SnapshotNotFound
from lamella.snapshot.schema.evolution import AddColumn, RenameColumn
from spark.lakes import CATALOG, Lakes, LakeTable, numbers, plan

pytestmark = pytest.mark.spark


def shown(rows: Iterable[Iterable[Any]]) -> Counter[str]:
    """Rows that can be compared, in no order; times in milliseconds."""
    return Counter(
        repr([round(1000 * each.timestamp()) if isinstance(each, dt.datetime) else each for each in row])
        for row in rows
    )


def of_feed(table: LakeTable, since: str, until: str | None = None, **options: Any) -> Counter[str]:
    """What the change feed of the client says."""
    found = table.lake.table(table.name).row_changes(since, until, **options).to_arrow()
    return shown(row.values() for row in found.to_pylist())


def of_spark(frame: DataFrame) -> Counter[str]:
    """What a frame has."""
    return shown(frame.collect())


@pytest.fixture(scope="module")
def changed(spark: SparkSession, lakes: Lakes) -> LakeTable:
    """A table with a commit of each kind; the first is number 1."""
    table = lakes.of(*numbers(2, rows=20))  # 1: create, 2: append
    table.add(*(pa.table({"a": [n], "b": [n % 3], "s": [f"v{n}"]}) for n in (100, 101)))  # 3
    delete(spark, table.name, "a = 7", client=lakes.lake)  # 4, by a vector
    spark.sql(f"UPDATE {table.sql} SET s = upper(s) WHERE a IN (3, 30, 101)")  # 5
    spark.sql(f"CALL {CATALOG}.system.compact('{table.name}')").collect()  # 6
    spark.sql(f"DELETE FROM {table.sql} WHERE a < 5 AND b = (SELECT 0)")  # 7
    spark.sql(f"INSERT OVERWRITE {table.sql} SELECT a, b, s FROM {table.sql} WHERE a > 10")  # 8
    return table


def test_sql_has_the_rows_of_the_change_feed(spark: SparkSession, attached: Attached, changed: LakeTable) -> None:
    """All kinds of commits, any part of the history; versions are numbers of snapshots, ids and tags."""
    handle = changed.lake.table(changed.name)
    ids = [entry.snapshot_id for entry in handle.snapshots()][::-1]
    assert len(ids) == 8
    handle.tag("here", ids[3])
    every = f"SELECT * FROM {changed.sql} CHANGES"
    assert of_spark(spark.sql(f"{every} FROM VERSION 1")) == of_feed(changed, ids[0])
    for first, last in ((2, 8), (4, 4), (4, 6), (5, 7), (8, 8)):
        expected = of_feed(changed, ids[first - 2], ids[last - 1])
        assert of_spark(spark.sql(f"{every} FROM VERSION {first} TO VERSION {last}")) == expected
        text = f"{every} FROM VERSION '{ids[first - 1]}' TO VERSION '{ids[last - 1]}'"
        assert of_spark(spark.sql(text)) == expected
        assert of_spark(attached.changes(changed.name, first - 1, ids[last - 1])) == expected
    assert of_spark(spark.sql(f"{every} FROM VERSION 'here' EXCLUSIVE")) == of_feed(changed, ids[3])
    assert of_spark(spark.sql(f"{every} FROM VERSION 4 TO VERSION 'here' EXCLUSIVE")) == Counter()
    reader = spark.read.option("startingVersion", 3).option("endingVersion", ids[4])
    assert of_spark(reader.changes(changed.sql)) == of_feed(changed, ids[1], ids[4])
    assert of_spark(attached.changes(changed.name, "here")) == of_feed(changed, ids[3])


def test_times_are_ends_of_a_range(spark: SparkSession, attached: Attached, changed: LakeTable) -> None:
    """Of commits at these times or between them."""
    entries = list(changed.lake.table(changed.name).snapshots())[::-1]
    at = [dt.datetime.fromtimestamp(entry.timestamp_ms / 1000, dt.UTC) for entry in entries]
    ids = [entry.snapshot_id for entry in entries]
    every = f"SELECT * FROM {changed.sql} CHANGES"
    text = f"FROM TIMESTAMP '{at[3].isoformat()}' TO TIMESTAMP '{at[5].isoformat()}'"
    assert of_spark(spark.sql(f"{every} {text}")) == of_feed(changed, ids[2], ids[5])
    text = f"FROM TIMESTAMP '{at[3].isoformat()}' EXCLUSIVE TO TIMESTAMP '{at[5].isoformat()}' EXCLUSIVE"
    assert of_spark(spark.sql(f"{every} {text}")) == of_feed(changed, ids[3], ids[4])
    assert of_spark(spark.sql(f"{every} FROM TIMESTAMP '1999-01-01'")) == of_feed(changed, ids[0])
    frame = attached.changes(changed.name, since_timestamp=at[3], until_timestamp=entries[5].timestamp_ms)
    assert of_spark(frame) == of_feed(changed, ids[3], ids[5])
    assert of_spark(attached.changes(changed.name, ids[3], until_timestamp=at[5])) == of_feed(changed, ids[3], ids[5])


def test_keys_make_updates_and_net_leaves_out_what_is_between(
    spark: SparkSession, attached: Attached, changed: LakeTable
) -> None:
    """As in the change feed; without keys Spark's ``computeUpdates`` is refused."""
    ids = [entry.snapshot_id for entry in changed.lake.table(changed.name).snapshots()][::-1]
    expected = of_feed(changed, ids[1], keys=("a",))
    assert sum("update_postimage" in row for row in expected) == 3
    assert of_spark(attached.changes(changed.name, 2, keys=["A"])) == expected
    updates = {"startingVersion": "3", "computeUpdates": "true"}
    assert of_spark(spark.read.options(**updates, keys="a").changes(changed.sql)) == expected
    with pytest.raises(PySparkException, match=r"\[lamella.invalid_request\].*keys"):
        spark.read.options(**updates).changes(changed.sql)
    net = of_feed(changed, ids[1], net=True)
    assert of_spark(attached.changes(changed.name, 2, net=True)) == net
    assert len(net) < len(of_feed(changed, ids[1]))


def test_conditions_and_columns_are_those_of_any_table(attached: Attached, changed: LakeTable) -> None:
    """Conditions leave out blocks, and Spark evaluates them; counts, groups and joins have the right rows."""
    changes = attached.changes(changed.name, 1)
    every = changes.collect()
    for condition in (
        "a >= 100",
        "s LIKE 'V%'",
        "_change_type = 'delete' AND a < 50",
        "_commit_version = 5",
        "b % 2 = 1",
    ):
        expected = changes.sparkSession.createDataFrame(every, changes.schema).where(condition)
        assert of_spark(changes.where(condition)) == of_spark(expected), condition
    narrow = changes.where("a >= 100").select("a")
    assert narrow.count() > 0
    assert "filter=[(a >= 100)]" in plan(narrow) or "a >= 100" in plan(narrow)
    assert changes.count() == len(every)
    counted = changes.groupBy("_commit_version", "_change_type").count().collect()
    assert Counter({(row[0], row[1]): row[2] for row in counted}) == Counter((row[4], row[3]) for row in every)


def test_changes_have_the_columns_of_the_last_snapshot(spark: SparkSession, lakes: Lakes, attached: Attached) -> None:
    """Rows that came before a column have nulls, or the name it has now; a rewrite of old rows is no change."""
    table = lakes.of(*numbers(1, rows=5))
    handle = lakes.lake.table(table.name)
    handle.evolve([RenameColumn(column="s", name="t"), AddColumn(name="c", type="int32")])
    spark.sql(f"INSERT INTO {table.sql} VALUES (9, 9, 'x', 9)")
    spark.sql(f"CALL {CATALOG}.system.compact('{table.name}')").collect()
    ids = [entry.snapshot_id for entry in handle.snapshots()][::-1]
    frame = attached.changes(table.name, 1)
    assert frame.columns == ["a", "b", "t", "c", "_change_type", "_commit_version", "_commit_timestamp"]
    assert of_spark(frame) == of_feed(table, ids[0])
    assert frame.count() == 6


def test_random_histories_have_the_rows_of_the_change_feed(
    spark: SparkSession, lakes: Lakes, attached: Attached
) -> None:
    """Rows that are equal, updates that change nothing, deletes by vectors and by rewrites."""
    rng = random.Random(5)
    table = lakes.of(pa.table({"a": [n // 3 for n in range(60)], "b": [n % 2 for n in range(60)], "s": ["x"] * 60}))
    first = table.snapshot_id()
    for _ in range(8):
        low = rng.randrange(20)
        statement = rng.choice(
            (
                "INSERT INTO {t} SELECT a, b, s FROM {t} WHERE a = {n}",
                "DELETE FROM {t} WHERE a = {n} AND b = 1",
                "UPDATE {t} SET b = 1 - b WHERE a = {n}",
                "UPDATE {t} SET s = s WHERE a < {n}",
                "CALL lake.system.compact('{t}')",
            )
        )
        spark.sql(statement.replace("{t}", table.sql).replace("{n}", str(low))).collect()
    assert of_spark(attached.changes(table.name, first)) == of_feed(table, first)


def test_what_changes_cannot_do_is_refused(spark: SparkSession, attached: Attached, changed: LakeTable) -> None:
    """With a code and the reason."""
    every = f"SELECT * FROM {changed.sql} CHANGES"
    for text, code, reason in (
        ("FROM VERSION 99", "snapshot_not_found", "no snapshot 99"),
        ("FROM VERSION 0", "snapshot_not_found", "no snapshot 0"),
        ("FROM VERSION 'nowhere'", "snapshot_not_found", "nowhere"),
        ("FROM VERSION 6 TO VERSION 3", "invalid_request", "ends at snapshot 3"),
    ):
        with pytest.raises(PySparkException, match=rf"\[lamella.{code}\].*{reason}"):
            spark.sql(f"{every} {text}").collect()
    with pytest.raises(PySparkException, match="need a start"):
        spark.read.changes(changed.sql)
    with pytest.raises(PySparkException, match="unknown option 'colour'"):
        spark.read.option("startingVersion", 1).option("colour", "blue").changes(changed.sql).collect()
    with pytest.raises(PySparkException, match=r"\[lamella.unknown_column\]"):
        attached.changes(changed.name, 1, keys=["nope"])
    with pytest.raises(InvalidRequest, match="one start"):
        attached.changes(changed.name)
    with pytest.raises(InvalidRequest, match="one start"):
        attached.changes(changed.name, 1, since_timestamp=0)
    with pytest.raises(SnapshotNotFound):
        attached.changes(changed.name, "nowhere")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql(f"SELECT * FROM {CATALOG}.nowhere.t CHANGES FROM VERSION 1")
    writer = spark.readStream.option("startingVersion", 1).changes(changed.sql).writeStream.format("noop")
    with pytest.raises(StreamingQueryException, match="changes are no stream"):
        writer.option("checkpointLocation", str(changed.folder / "c")).start().awaitTermination()
    assert re.search(r"Lamella \S+ changes of \d+ snapshots", plan(attached.changes(changed.name, 1)))

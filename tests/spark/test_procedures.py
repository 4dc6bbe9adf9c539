"""``CALL lake.system.<procedure>(...)``: what each procedure does, and what it says when it cannot."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PySparkException, SparkRuntimeException
from pyspark.sql import SparkSession

from lamella.client.spark.procedures import PROCEDURES
from lamella.snapshot.errors import LamellaError
from spark.lakes import CATALOG, Lakes, LakeTable, fresh, numbers

pytestmark = pytest.mark.spark


def call(spark: SparkSession, text: str) -> list[dict[str, Any]]:
    """Call a procedure; returns the rows of its result."""
    return [row.asDict() for row in spark.sql(f"CALL {CATALOG}.system.{text}").collect()]


def written(spark: SparkSession, lakes: Lakes, inserts: int = 4) -> LakeTable:
    """A table of Lamella's own blocks, one for each insert, which overlap on the cluster key."""
    name = f"{fresh('called')}.t"
    lakes.lake.create_namespace(name.split(".")[0])
    spark.sql(f"CREATE TABLE {CATALOG}.{name} (id BIGINT, g INT) CLUSTER BY (id)")
    for at in range(inserts):
        spark.sql(f"INSERT INTO {CATALOG}.{name} SELECT id * {inserts} + {at}, CAST(id % 3 AS INT) FROM range(100)")
    return LakeTable(lakes.lake, name, Path("/"))


def block_count(table: LakeTable) -> int:
    """The number of blocks."""
    return table.lake.table(table.name).info().block_count


def test_blocks_are_compacted_on_executors(spark: SparkSession, lakes: Lakes) -> None:
    """By a name with the catalog's or without; the result says what was done, and why no more."""
    table = written(spark, lakes)
    (done,) = call(spark, f"compact('{table.name}')")
    assert (done["blocks_before"], done["blocks_after"], done["rows"]) == (4, 1, 400)
    assert done["snapshot_id"] == table.snapshot_id()
    assert block_count(table) == 1
    (again,) = call(spark, f"compact(table => '{table.sql}')")
    assert (again["tasks"], again["snapshot_id"]) == (0, None)
    assert again["reason"]
    assert spark.sql(f"SELECT count(*), sum(id) FROM {table.sql}").collect()[0][:] == (400, sum(range(400)))


def test_blocks_are_analyzed_on_executors(spark: SparkSession, lakes: Lakes) -> None:
    """Registered files without statistics get those of their values; Spark's own statement says that it is not for
    tables of other catalogs."""
    table = lakes.empty(numbers(1)[0].schema).add(*numbers(3), write_statistics=False)
    (part,) = call(spark, f"analyze('{table.name}', columns => 'a, s', max_blocks => 1)")
    assert (part["blocks"], part["rows"], part["remaining_blocks"]) == (1, 100, 2)
    (done,) = call(spark, f"analyze(table => '{table.sql}')")
    assert (done["blocks"], done["failures"], done["remaining_blocks"], done["reason"]) == (3, 0, 0, None)
    assert done["snapshot_id"] == table.snapshot_id()
    assert table.lake.table(table.name).info().distinct_of_values["b"] == 3
    (nothing,) = call(spark, f"analyze('{table.name}')")
    assert (nothing["blocks"], nothing["snapshot_id"]) == (0, None)
    with pytest.raises(AnalysisException, match="NOT_SUPPORTED_COMMAND_FOR_V2_TABLE"):
        spark.sql(f"ANALYZE TABLE {table.sql} COMPUTE STATISTICS FOR ALL COLUMNS")


def test_advice_is_given_by_column(spark: SparkSession, lakes: Lakes) -> None:
    """A row for each score: by bounds, and by each kind of index; unknown names are refused."""
    table = written(spark, lakes)
    found = call(spark, f"advise('{table.name}', columns => 'id, g', kinds => 'bloom')")
    assert {(row["column"], row["kind"]) for row in found} >= {("id", None), ("id", "bloom"), ("g", None)}
    scored = [row for row in found if row["score"] is not None]
    assert scored
    assert all(0 <= row["min_score"] <= row["score"] <= row["max_score"] <= 100 for row in scored)
    with pytest.raises(PySparkException, match="nosuch"):
        call(spark, f"advise('{table.name}', columns => 'nosuch')")


def test_arguments_are_those_of_the_job(spark: SparkSession, lakes: Lakes) -> None:
    """By name, in any order; null stands for the default."""
    table = written(spark, lakes)
    (done,) = call(spark, f"compact(max_blocks => 2, table => '{table.name}', target_rows => NULL)")
    assert (done["blocks_before"], done["blocks_after"]) == (2, 1)
    (none,) = call(spark, f"compact('{table.name}', where => 'id > 1000000')")
    assert none["tasks"] == 0
    described = {procedure.name: [name for name, _, _ in procedure.parameters()] for procedure in PROCEDURES}
    assert described["recluster"][:4] == ["table", "where", "max_bytes", "max_blocks"]
    assert not {"processes", "memory_mib", "scratch"} & {name for names in described.values() for name in names}


def test_blocks_are_reclustered(spark: SparkSession, lakes: Lakes) -> None:
    """Afterwards a range of the key is in fewer blocks."""
    table = written(spark, lakes)
    (done,) = call(spark, f"recluster('{table.name}', target_rows => 100, repeat => 2)")
    assert done["blocks_after"] == 4
    prune = table.lake.table(table.name).prune("id BETWEEN 10 AND 20")
    assert len(prune.locations) == 1


def test_deleted_rows_are_purged(spark: SparkSession, lakes: Lakes) -> None:
    """Blocks without deletion vectors take their place."""
    table = written(spark, lakes, inserts=1)
    spark.sql(f"DELETE FROM {table.sql} WHERE id IN (3, 50)")
    assert table.lake.table(table.name).info().required_features
    (done,) = call(spark, f"purge('{table.name}', min_deleted_share => 0)")
    assert done["rows"] == 98
    assert not table.lake.table(table.name).info().required_features


def test_tags_and_rollbacks(spark: SparkSession, lakes: Lakes) -> None:
    """A tagged snapshot comes back, by its name and by a time."""
    table = written(spark, lakes, inserts=1)
    before = table.snapshot_id()
    assert call(spark, f"tag('{table.name}', 'good')") == [{"name": "good", "snapshot_id": before}]
    spark.sql(f"TRUNCATE TABLE {table.sql}")
    (done,) = call(spark, f"rollback('{table.name}', 'good')")
    assert (done["restored_snapshot_id"], done["row_count"], done["block_count"]) == (before, 100, 1)
    assert spark.table(table.sql).count() == 100
    assert call(spark, f"tag('{table.name}', 'good', move => true)")[0]["snapshot_id"] == table.snapshot_id()
    assert call(spark, f"drop_tag('{table.name}', 'good')") == [{"name": "good"}]
    with pytest.raises(SparkRuntimeException, match=r"tag_not_found|snapshot_not_found"):
        call(spark, f"rollback('{table.name}', 'good')")
    spark.sql(f"TRUNCATE TABLE {table.sql}")
    first = next(each for each in table.lake.table(table.name).snapshots() if each.snapshot_id == before)
    moment = dt.datetime.fromtimestamp(first.timestamp_ms / 1_000, dt.UTC).isoformat()
    (back,) = call(spark, f"rollback('{table.name}', timestamp => '{moment}')")
    assert (back["restored_snapshot_id"], back["row_count"]) == (before, 100)


def test_files_are_registered_and_cleaned_up(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """Without `execute`, a vacuum only lists what it would delete."""
    table = lakes.empty(numbers(1)[0].schema)
    for at, block in enumerate(numbers(2)):
        pq.write_table(block, tmp_path / f"{at}.parquet")
    (done,) = call(spark, f"register('{table.name}', '{tmp_path}/*.parquet', strict => true)")
    assert (done["registered"], done["row_count"], done["refused"]) == (2, 200, 0)
    assert spark.table(table.sql).count() == 200
    assert all(not row["executed"] for row in call(spark, f"vacuum('{table.name}')"))
    assert all(row["executed"] for row in call(spark, f"vacuum('{table.name}', execute => true)"))


def test_an_index_is_built_on_executors(spark: SparkSession, lakes: Lakes) -> None:
    """Of the blocks that it does not cover."""
    table = lakes.of(*numbers(2))
    table.lake.table(table.name).create_index("of_s", "bloom", "s")
    (done,) = call(spark, f"build_index('{table.name}', 'of_s')")
    assert (done["indexed"], done["row_count"], done["left_out"]) == (2, 200, 0)
    assert call(spark, f"build_index('{table.name}', 'of_s')")[0]["indexed"] == 0


def test_an_external_table_is_refreshed(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """New files of its folder are found."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "0.parquet")
    namespace = fresh("outside")
    lakes.lake.create_namespace(namespace)
    lakes.lake.create_external(f"{namespace}.t", {"kind": "directory", "location": str(tmp_path)})
    pq.write_table(pa.table({"a": [2]}), tmp_path / "1.parquet")
    (done,) = call(spark, f"refresh('{namespace}.t')")
    assert (done["changed"], done["added"], done["removed"]) == (True, 2, 0)
    assert spark.table(f"{CATALOG}.{namespace}.t").count() == 2


def test_segments_are_regrouped(spark: SparkSession, lakes: Lakes) -> None:
    """Or it says why there is nothing to do."""
    table = written(spark, lakes, inserts=2)
    (done,) = call(spark, f"regroup('{table.name}')")
    assert (done["replaced"], done["snapshot_id"]) == (0, table.snapshot_id())
    assert done["reason"]


def test_procedures_are_listed_and_described(spark: SparkSession) -> None:
    """By Spark's own statements."""
    names = {procedure.name for procedure in PROCEDURES}
    for scope in (CATALOG, f"{CATALOG}.system"):
        assert {row["procedure_name"] for row in spark.sql(f"SHOW PROCEDURES FROM {scope}").collect()} == names
    assert spark.sql(f"SHOW PROCEDURES FROM {CATALOG}.db").collect() == []
    described = str(spark.sql(f"DESCRIBE PROCEDURE {CATALOG}.system.compact").collect())
    assert "Merge small blocks into larger ones." in described


def test_an_explained_call_does_nothing(spark: SparkSession, lakes: Lakes) -> None:
    """It shows the arguments."""
    table = written(spark, lakes, inserts=2)
    assert "compact" in spark.sql(f"EXPLAIN CALL {CATALOG}.system.compact('{table.name}')").collect()[0][0]
    assert block_count(table) == 2


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("nothing('a.b')", SparkRuntimeException, "lamella.invalid_request.*there is no procedure 'nothing'"),
        ("compact('a.nowhere')", SparkRuntimeException, "lamella.(namespace|table)_not_found"),
        ("compact()", AnalysisException, "REQUIRED_PARAMETER_NOT_FOUND.*`table`"),
        ("compact('{t}', colour => 1)", AnalysisException, "UNRECOGNIZED_PARAMETER_NAME.*colour"),
        ("compact('{t}', max_blocks => 0)", SparkRuntimeException, "lamella.invalid_request.*max_blocks"),
        ("compact('{t}', where => 'id <')", SparkRuntimeException, "lamella.invalid_filter.*offset"),
        ("compact(NULL)", SparkRuntimeException, "needs the name of a table"),
        ("rollback('{t}')", SparkRuntimeException, "exactly one of snapshot and timestamp"),
        ("rollback('{t}', 'no such')", SparkRuntimeException, "snapshot_not_found|tag_not_found"),
        ("build_index('{t}', 'none')", SparkRuntimeException, "lamella.index_not_found"),
        ("refresh('{t}')", SparkRuntimeException, "lamella.invalid_request.*no source"),
        ("register('{t}', '/nowhere/*.parquet')", SparkRuntimeException, "lamella.blocks_refused"),
    ],
)
def test_what_cannot_be_done_is_an_error_with_a_code(
    spark: SparkSession, lakes: Lakes, text: str, error: type[PySparkException], message: str
) -> None:
    """Spark's own for arguments that do not exist, the service's for what it refuses."""
    table = lakes.of(*numbers(1))
    with pytest.raises(error, match=message) as raised:
        call(spark, text.replace("{t}", table.name))
    assert "Traceback" not in str(raised.value)
    assert LamellaError.code not in str(raised.value)


def test_other_namespaces_have_no_procedures(spark: SparkSession) -> None:
    """The error says where they are."""
    with pytest.raises(SparkRuntimeException, match=f"{CATALOG}.system.<procedure>"):
        spark.sql(f"CALL {CATALOG}.db.compact('a.b')")

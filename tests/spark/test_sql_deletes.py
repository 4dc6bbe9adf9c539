"""DELETE by SQL: exactly the rows for which the condition is true."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession

from lamella.client.spark import delete
from lamella.snapshot.errors import FilterNotEvaluable
from spark.lakes import CATALOG, Lakes, fresh, setting

pytestmark = pytest.mark.spark

#: What Spark hands over as predicates.
CONDITIONS = [
    "3 < id AND id <= 5",
    "id IN (1, 3, NULL) OR s IS NULL",
    "NOT (i > 2 OR s = 'a%') AND id NOT IN (2, 6)",
    "s LIKE 'a%'",
    "s LIKE '%b' OR contains(s, '_')",
    "f > 0.1",
    "x = double('NaN') OR x = 0",
    "x >= 1",
    "e < 2.25 AND e <> 1",
    "ok OR (NOT ok AND id = 6)",
    "ok <=> NULL",
    "bin = X'0102' OR bin = X''",
    "st.a = 1 AND st.b IS NOT NULL",
    "ts >= '2024-10-27 02:00:00'",
    "CAST(ts AS DATE) = DATE '2024-10-27'",
    "n < TIMESTAMP_NTZ '2024-10-27 02:30:00'",
    "hour(n) = 2 AND minute(n) = 30",
    "year(day) = 2024 AND quarter(day) = 4 OR dayofyear(day) < 5",
    "date_add(day, 5) > DATE '2024-11-01' OR datediff(day, DATE '2024-01-01') < 10",
    "trunc(day, 'MONTH') = DATE '2024-10-01'",
    "id = i AND id + i * 2 < 9 AND -i < abs(i - 3)",
    "i / 2 = 1.5 OR coalesce(i, 0) = 0",
    "upper(s) = 'AB' OR length(s) > 3",
    "CAST(id AS DOUBLE) < x",
    "true",
    "1 = 0",
    *(
        f"{column} IN ({', '.join([*values, *(more.format(at) for at in range(12))])})"
        for column, values, more in (
            ("id", ["2", "5", "-9223372036854775808", "NULL"], "1{}00"),
            ("i", ["CAST('4' AS INT)", "NULL"], "-{}"),
            ("s", ["'a%b'", "'a_ß'", "''", "'it''s; \\\\'", "NULL"], "'x{};'"),
            ("f", ["0.2f", "float('NaN')"], "{}.125f"),
            ("x", ["0D", "double('-Infinity')"], "{}.5D"),
            ("e", ["-3.00", "99.99"], "1{}.01"),
            ("bin", ["X'00'", "X''"], "X'0A0{0}'"),
            ("st.a", ["7"], "2{}"),
            ("day", ["DATE '9999-12-31'", "DATE '1600-02-29'"], "DATE '20{:02}-01-01'"),
            ("ts", ["TIMESTAMP '2024-10-27 02:30:00+01:00'"], "TIMESTAMP '20{:02}-01-01 00:00:00.000001'"),
            ("n", ["TIMESTAMP_NTZ '2024-10-27 02:29:59.999999'"], "TIMESTAMP_NTZ '20{:02}-01-01 00:00:00'"),
            ("id + 1", ["2", "5"], "1{}00"),
        )
    ),
]

ROWS = """
SELECT * FROM VALUES
 (1L, 1, 'a%b', 0.1f, double('NaN'), 1.50, true, X'0102', named_struct('a', 1, 'b', 'z'), DATE '2024-10-27',
  TIMESTAMP '2024-10-27 02:30:00+02:00', TIMESTAMP_NTZ '2024-10-27 02:30:00'),
 (2L, 2, 'ab', 0.5f, -0.0D, 2.25, false, X'', named_struct('a', 1, 'b', NULL), DATE '2024-10-28',
  TIMESTAMP '2024-10-27 02:30:00+01:00', TIMESTAMP_NTZ '2024-10-27 02:29:59.999999'),
 (3L, 3, 'Abcd', -1f, 1D, 1.00, NULL, X'01', NULL, DATE '2024-01-03',
  TIMESTAMP '2024-10-26 22:00:00Z', TIMESTAMP_NTZ '2024-01-01 00:00:00'),
 (4L, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
 (5L, 4, '', float('NaN'), 7D, -3.00, true, X'00', named_struct('a', 2, 'b', 'y'), DATE '1600-02-29',
  TIMESTAMP '1600-01-01 00:00:00Z', TIMESTAMP_NTZ '1600-01-01 02:30:00'),
 (6L, 6, 'a_ß', 0.2f, double('-Infinity'), 99.99, false, NULL, named_struct('a', 7, 'b', 'x'), DATE '9999-12-31',
  TIMESTAMP '2024-03-31 01:00:00Z', TIMESTAMP_NTZ '9999-12-31 23:59:59')
AS t(id, i, s, f, x, e, ok, bin, st, day, ts, n)
"""


def new_table(spark: SparkSession, lakes: Lakes) -> str:
    """A table of these rows in three blocks."""
    name = f"{fresh('deleted')}.t"
    lakes.lake.create_namespace(name.split(".")[0])
    spark.sql(ROWS).writeTo(f"{CATALOG}.{name}").clusterBy("id").option("target_block_rows", 2).create()
    return name


def left(lakes: Lakes, name: str) -> set[int]:
    """The ids that are there, by a full scan of the files."""
    table = lakes.lake.table(name)
    segments = [table.segment(ref.segment_id) for ref in table.snapshot(table.info().snapshot_id).segments]
    files = [block.location.removeprefix("file://") for segment in segments for block in segment.blocks]
    return {row["id"] for file in files for row in pq.read_table(file, columns=["id"]).to_pylist()}


@pytest.mark.parametrize("conditions", [CONDITIONS[::6], pytest.param(CONDITIONS, marks=pytest.mark.soak)])
def test_rows_go_for_which_spark_finds_the_condition_true(
    spark: SparkSession, lakes: Lakes, conditions: Sequence[str]
) -> None:
    """Each condition takes exactly those rows away that Spark's own evaluation says."""
    name = new_table(spark, lakes)
    handle = lakes.lake.table(name)
    whole = handle.info().snapshot_id
    truths = [f"({condition}) IS TRUE AS c{at}" for at, condition in enumerate(conditions)]
    rows = spark.sql(ROWS).selectExpr("id", *truths).collect()
    for at, condition in enumerate(conditions):
        spark.sql(f"DELETE FROM {CATALOG}.{name} WHERE {condition}")
        assert left(lakes, name) == {row["id"] for row in rows if not row[f"c{at}"]}, condition
        if handle.info().snapshot_id != whole:
            handle.rollback(whole)


@pytest.mark.parametrize(
    "condition",
    [
        "id % 2 = 0",
        "st = named_struct('a', 1, 'b', 'z')",
        "s = 'AB' COLLATE UTF8_LCASE",
        "CAST(i AS STRING) = '4'",
        "s LIKE 'a_b' AND id = 1",
        "id IN (SELECT 1L AS i UNION ALL SELECT 5L)",
        "isnan(x) OR CASE WHEN ok THEN i = 4 ELSE id = 3 END",
    ],
)
@pytest.mark.few(2)
def test_spark_finds_the_rows_for_conditions_that_cannot_be_passed_on(
    spark: SparkSession, lakes: Lakes, condition: str
) -> None:
    """No condition is refused that Spark itself can evaluate."""
    name = new_table(spark, lakes)
    spark.sql(f"DELETE FROM {CATALOG}.{name} WHERE {condition}")
    gone = {row["id"] for row in spark.sql(f"SELECT id FROM ({ROWS}) WHERE {condition}").collect()}
    assert gone
    assert {row["id"] for row in spark.table(f"{CATALOG}.{name}").collect()} == {1, 2, 3, 4, 5, 6} - gone


def test_the_function_knows_more_conditions(spark: SparkSession, lakes: Lakes) -> None:
    """Patterns and tests that Spark does not hand over; text, in the session's time zone."""
    name = new_table(spark, lakes)
    done = delete(spark, name, "s LIKE 'a_b' OR isnan(x)", client=lakes.lake)
    assert (done.rows, left(lakes, name)) == (1, {2, 3, 4, 5, 6})
    delete(spark, name, "ts = '2024-10-27 02:30:00'", client=lakes.lake)
    assert left(lakes, name) == {2, 3, 4, 5, 6}  # in Berlin that is the first of two such moments, of row 1
    with setting(spark, spark__sql__session__timeZone="UTC"):
        delete(spark, name, "ts = '2024-10-27 01:30:00'", client=lakes.lake)
    assert left(lakes, name) == {3, 4, 5, 6}
    with pytest.raises(FilterNotEvaluable):
        delete(spark, name, "s RLIKE 'x.'", client=lakes.lake)


def test_all_rows_can_go(spark: SparkSession, lakes: Lakes) -> None:
    """DELETE without a condition and TRUNCATE empty the table, by metadata alone; the table stays."""
    for statement in ("DELETE FROM {}", "TRUNCATE TABLE {}"):
        name = new_table(spark, lakes)
        spark.sql(statement.format(f"{CATALOG}.{name}"))
        assert spark.table(f"{CATALOG}.{name}").collect() == []
        assert lakes.lake.table(name).info().row_count == 0
        spark.sql(f"INSERT INTO {CATALOG}.{name} (id) VALUES (9)")
        assert spark.table(f"{CATALOG}.{name}").select("id").collect() == [Row(id=9)]

"""What planning a query takes: calls between Spark's JVM and Python, and requests to the service; and what it reads."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from py4j.clientserver import ClientServerConnection, JavaClient
from pyspark.sql import SparkSession

from lamella.client.http import Lamella
from lamella.client.http.transport import PooledTransport
from lamella.client.spark.catalyst import FilterWalker
from lamella.client.spark.gateway import Gateway
from lamella.client.spark.read_expression import ReadExpression, read_expressions
from spark.lakes import Lakes, LakeTable, numbers, plan, setting

pytestmark = pytest.mark.spark

#: py4j's command that releases an object of the JVM: Python sends it whenever it collects garbage.
_RELEASE = "m"
#: What planning takes for each table of a join, once the table has been planned before.
CALLBACKS = 6
JVM_CALLS = 13
REQUESTS = 3


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count callbacks of the JVM, calls of the JVM and requests meanwhile."""
    counts: Counter[str] = Counter()
    with monkeypatch.context() as patch:
        for owner, member, name in (
            (ClientServerConnection, "_call_proxy", "callbacks"),
            (JavaClient, "send_command", "JVM calls"),
            (PooledTransport, "send", "requests"),
        ):
            patch.setattr(owner, member, _counting(counts, name, getattr(owner, member)))
        yield counts


def _counting(counts: Counter[str], name: str, method: Any) -> Any:
    def call(owner: Any, first: Any, *arguments: Any, **named: Any) -> Any:
        counts[name] += not (isinstance(first, str) and first.startswith(_RELEASE) and name == "JVM calls")
        return method(owner, first, *arguments, **named)

    return call


def test_a_join_is_planned_with_few_calls_for_each_table(
    spark: SparkSession, lakes: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often Spark compares the scans and asks what they are, Python is asked once."""
    tables = [lakes.of(*numbers(2)).sql for _ in range(8)]
    joins = " ".join(
        f"JOIN {name} t{at} ON t{at}.a = t0.a AND t{at}.b < {at + 2}" for at, name in enumerate(tables) if at
    )
    text = f"SELECT count(*), max(t7.s) FROM {tables[0]} t0 {joins} WHERE t0.s > 'v000100' GROUP BY t0.b"
    for _ in range(2):
        spark.sql(text)._jdf.queryExecution().executedPlan()
    with counted(monkeypatch) as counts:
        spark.sql(text)._jdf.queryExecution().executedPlan()
    allowed = {"callbacks": CALLBACKS * 8, "JVM calls": JVM_CALLS * 8, "requests": REQUESTS * 8}
    assert all(counts[name] <= maximum for name, maximum in allowed.items()), (counts, allowed)


def next_broadcast(spark: SparkSession) -> int:
    """The number of a broadcast that is made now; they count on."""
    return int(spark.sparkContext._jsc.broadcast("").id())


def test_planning_makes_no_broadcasts(spark: SparkSession, lakes: Lakes) -> None:
    """Whether a scan returns columns is known without a reader factory, which sends Hadoop's settings to executors."""
    name = lakes.of(*numbers(2)).sql
    before = next_broadcast(spark)
    made = spark.sql(f"SELECT max(s) FROM {name} WHERE a > 150")._jdf.queryExecution().executedPlan()
    assert next_broadcast(spark) == before + 1
    scan = made.initialPlan().collectLeaves().apply(0).scan()
    assert scan.columnarSupportMode().toString() == "SUPPORTED"


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_scans_return_columns_if_the_reader_does(spark: SparkSession, lakes: Lakes, vectorized: str) -> None:
    """The answer is the one that Spark's own reader factory gives."""
    name = lakes.of(*numbers(2)).sql
    with setting(spark, spark__sql__parquet__enableVectorizedReader=vectorized):
        frame = spark.sql(f"SELECT s FROM {name} WHERE a > 150")
        leaf = frame._jdf.queryExecution().sparkPlan().collectLeaves().apply(0)
        mode = leaf.scan().columnarSupportMode().toString()
        batch = leaf.scan().toBatch()
        reads_columns = batch.createReaderFactory().supportColumnarReads(batch.planInputPartitions()[0])
        assert (mode == "SUPPORTED") == reads_columns == (vectorized == "true")
        assert frame.count() == 49


def test_a_table_that_is_remembered_is_seen_as_it_is_now(spark: SparkSession, lake: Lamella, lakes: Lakes) -> None:
    """Rows, columns and properties of the last commit are there, whoever made it."""
    table = lakes.of(*numbers(1))
    text = f"SELECT * FROM {table.sql}"
    assert spark.sql(text).count() == 100
    table.add(*numbers(1))
    assert spark.sql(text).count() == 200
    lake.table(table.name).commit(operation="alter", properties={"color": "red"})
    assert ("color", "red") in [tuple(row) for row in spark.sql(f"SHOW TBLPROPERTIES {table.sql}").collect()]
    spark.sql(f"ALTER TABLE {table.sql} RENAME COLUMN s TO t")
    assert spark.sql(text).columns == ["a", "b", "t"]
    lake.drop_table(table.name)
    lake.create_table(table.name, schema_from=str(table.folder / "_schema.parquet"))
    assert spark.sql(text).columns == ["a", "b", "s"]
    assert spark.sql(text).count() == 0


def test_commands_get_their_own_answers_from_a_table_that_queries_know(spark: SparkSession, lakes: Lakes) -> None:
    """The answers of columns, transforms and hidden columns differ between queries, SHOW CREATE TABLE and DESCRIBE."""
    name = f"{lakes.empty(pa.schema([('x', pa.int64())])).sql}2"
    spark.sql(f"CREATE TABLE {name} (a BIGINT NOT NULL, b STRING) CLUSTER BY (a)")
    for _ in range(2):
        spark.sql(f"INSERT INTO {name} VALUES (1, 'x')")
        for _ in range(2):
            assert spark.sql(f"SELECT a FROM {name} WHERE b = 'x'").schema["a"].nullable
            (row,) = spark.sql(f"SHOW CREATE TABLE {name}").collect()
            assert "a BIGINT NOT NULL" in row[0]
            assert "cluster_by(a)" in row[0]
            described = [each["col_name"] for each in spark.sql(f"DESCRIBE EXTENDED {name}").collect()]
            assert not [each for each in described if each.startswith("_lamella")]


CONDITIONS = [
    "a = 5 AND NOT (b >= 2)",
    "a IN (1, 2, 3) OR a IS NULL",
    f"a IN ({', '.join(map(str, range(40)))}, NULL)",
    "b + 1 > 3 AND abs(a) < 7Y AND -a <= 9223372036854775807",
    "x = 0.1F OR x <> CAST('NaN' AS FLOAT) OR x > CAST('-Infinity' AS FLOAT)",
    "y = -0.0D OR y <=> CAST('NaN' AS DOUBLE) OR y IN (1e300D, 5e-324D)",
    "d = 1.25 OR d IN (-0.01, 0.00) OR d > 99999999.99",
    "day = DATE '0001-01-01' OR day > DATE '2024-02-29' + INTERVAL 1 MONTH",
    "ts > TIMESTAMP '2024-03-31 02:30:00' OR hour(ts) = 3 OR ts = TIMESTAMP '2024-10-27 02:30:00'",
    "date_trunc('month', ts) = TIMESTAMP '2024-05-01' AND ts + INTERVAL 5 MINUTES < TIMESTAMP '2024-06-01'",
    "z = X'00FF' OR z IS NOT NULL",
    r"s = 'quote '' and \\ and \" and \u0001 and \n' OR s > 'äß€😀'",
    "s = CAST(X'FF41' AS STRING)",
    r"s LIKE 'a\\_b%' AND s LIKE '%c' AND s LIKE '%d%' AND s LIKE 'e%' AND s LIKE 'f/%_g' ESCAPE '/'",
    "s RLIKE '^abc' OR substring(s, 1, 2) = 'ab' OR upper(s) = 'X'",
    "CASE WHEN a > 1 THEN b = 1 WHEN a IS NULL THEN flag ELSE s = 'x' END",
    "IF(flag, a, b) = 3 AND (a > 1) <=> (b > 1)",
    "(a, b) IN ((1L, 2), (3L, 4)) OR n.c = 7 OR n.e.f IS NULL",
    "struct(a, s) >= struct(1L, 'x')",
    "flag AND NOT flag IS NULL AND isnan(y)",
    "datediff(day, DATE '2024-01-01') > 3 AND CAST(ts AS DATE) = DATE '2024-01-01' AND CAST(a AS STRING) = '7'",
    " OR ".join(f"a = {at} AND b = {at}" for at in range(60)),
    " OR ".join(f"(a = {at} AND b = {at})" for at in range(600)),
    "exists(l, e -> e > 1) OR l[0] = 5 OR m['k'] = 1",
]


@pytest.fixture(scope="module")
def typed(lakes: Lakes) -> LakeTable:
    """A row of many types."""
    when = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    row = {
        **{
            "a": 1,
            "b": 2,
            "x": 0.5,
            "y": 0.5,
            "d": Decimal("1.25"),
            "day": when.date(),
            "ts": when,
            "z": b"z",
            "s": "s",
        },
        **{"flag": True, "n": {"c": 1, "e": {"f": 2}}, "l": [1], "m": [("k", 1)]},
    }
    schema = pa.schema(
        [
            *(("a", pa.int64()), ("b", pa.int32()), ("x", pa.float32()), ("y", pa.float64())),
            *(("d", pa.decimal128(10, 2)), ("day", pa.date32()), ("ts", pa.timestamp("us", "UTC")), ("z", pa.binary())),
            *(
                ("s", pa.string()),
                ("flag", pa.bool_()),
                ("l", pa.list_(pa.int64())),
                ("m", pa.map_(pa.string(), pa.int64())),
            ),
            ("n", pa.struct([("c", pa.int64()), ("e", pa.struct([("f", pa.int32())]))])),
        ]
    )
    return lakes.of(pa.Table.from_pylist([row], schema=schema))


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.few(12)
def test_conditions_read_at_once_are_those_read_one_by_one(
    spark: SparkSession, lake: Lamella, typed: LakeTable, condition: str, ansi: str
) -> None:
    """The text of an expression has exactly what the expression in the JVM tells; what it lacks is asked there."""
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        gateway, schema = Gateway(spark), lake.table(typed.name).info().schema
        frame = typed.full_scan(spark).where(condition)
        node = frame._jdf.queryExecution().optimizedPlan()
        while str(node.getClass().getSimpleName()) != "Filter":
            node = node.children().head()
        filters = gateway.seq([node.condition()])
        (expression,), time_zone = read_expressions(gateway, filters)
        assert time_zone == gateway.time_zone()
        at_once, one_by_one = (FilterWalker(schema, time_zone=time_zone) for _ in range(2))
        assert at_once.tree(expression) == one_by_one.tree(filters.apply(0))
        assert at_once.time_zone == one_by_one.time_zone
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_large_conditions_are_read_one_by_one(spark: SparkSession, typed: LakeTable) -> None:
    """A condition of thousands of parts is left in the JVM, and prunes as ever."""
    gateway = Gateway(spark)
    condition = " OR ".join(f"(a = {at} AND b = {at})" for at in range(600))
    made = typed.full_scan(spark).where(condition)._jdf.queryExecution().optimizedPlan()
    (expression,), _ = read_expressions(gateway, gateway.seq([made.condition()]))
    assert not isinstance(expression, ReadExpression)
    frame = spark.table(typed.sql).where(condition)
    assert frame.count() == 0
    assert "Lamella" in plan(frame) or "LocalTableScan" in plan(frame)

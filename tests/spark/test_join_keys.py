"""Joins: the keys of the small side prune the blocks of the large one, over HTTP again, while the query runs."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from lamella.client.http import Lamella
from lamella.client.spark import attach
from lamella.client.spark.gateway import Gateway
from lamella.client.spark.literal import Inexpressible
from lamella.client.spark.v2_predicates import constants_of
from spark.lakes import CATALOG, Lakes, LakeTable, blocks_after_join, fresh, no_pushdown, plan, sorted_rows

pytestmark = pytest.mark.spark

MIDNIGHT = dt.datetime(2024, 3, 31, tzinfo=dt.UTC)  # the day clocks go forward in Berlin


@pytest.fixture(scope="module")
def facts(lakes: Lakes) -> LakeTable:
    """Twelve blocks of rows with keys of several types, all rising with ``i``."""
    blocks = []
    for at in range(12):
        ids = list(range(at * 40, at * 40 + 40))
        blocks.append(
            pa.table(
                {
                    "i": pa.array(ids, pa.int64()),
                    "small": pa.array([i % 100 for i in ids], pa.int16()),
                    "u32": pa.array([i + 4_000_000_000 for i in ids], pa.uint32()),
                    "day": pa.array([dt.date(1500, 1, 1) + dt.timedelta(days=i * 500) for i in ids]),
                    "ts": pa.array([MIDNIGHT + dt.timedelta(minutes=i) for i in ids]),
                    "ntz": pa.array([dt.datetime(2024, 3, 31) + dt.timedelta(minutes=i) for i in ids]),  # noqa: DTZ001
                    "d": pa.array([Decimal(i - 200) / 1000 for i in ids], pa.decimal128(25, 3)),
                    "s": pa.array([f"k;'\"é-{i:05}" for i in ids]),
                    "x": pa.array([float(i) for i in ids]),
                    "raw": pa.array([i.to_bytes(2, "big") for i in ids], pa.binary()),
                }
            )
        )
    return lakes.of(*blocks)


def joined(spark: SparkSession, facts: LakeTable, key: str, catalog: str = CATALOG) -> DataFrame:
    """The facts joined with three of their own rows, which a filter that blocks know nothing of picks out."""
    name = facts.name
    return spark.sql(
        f"SELECT f.i FROM {catalog}.{name} f JOIN (SELECT /*+ BROADCAST */ {key} AS k FROM {catalog}.{name}"
        f" WHERE reverse(cast(i AS string)) IN ('7', '11', '004')) d ON f.{key} = d.k"
    )


@pytest.mark.parametrize(
    ("key", "block_count"),
    [("i", 2), ("u32", 2), ("day", 2), ("ts", 2), ("ntz", 2), ("d", 2), ("s", 2), ("small", 5)],
)
@pytest.mark.few(4)
def test_keys_of_a_join_prune_the_other_side(spark: SparkSession, facts: LakeTable, key: str, block_count: int) -> None:
    """Only the blocks that can hold one of the keys are read, for every type that can be sent exactly."""
    frame = joined(spark, facts, key)
    through = sorted_rows(frame)
    facts.full_scan(spark).createOrReplaceTempView("facts")
    with no_pushdown(spark):
        truth = sorted_rows(
            spark.sql(
                f"SELECT f.i FROM facts f JOIN (SELECT {key} AS k FROM facts WHERE i IN (7, 11, 400)) d"
                f" ON f.{key} = d.k"
            )
        )
    assert through == truth
    assert blocks_after_join(frame) == block_count, plan(frame)


@pytest.mark.parametrize("key", ["x", "raw"])
def test_keys_that_cannot_be_sent_exactly_are_not_used(spark: SparkSession, facts: LakeTable, key: str) -> None:
    """Floats (NaN, zeros of both signs) and binary keys prune nothing, and lose nothing."""
    frame = joined(spark, facts, key)
    assert sorted(row.i for row in frame.collect()) == [7, 11, 400]
    assert blocks_after_join(frame) is None


def test_too_many_keys_are_sent_as_their_range(spark: SparkSession, facts: LakeTable, lake: Lamella) -> None:
    """Beyond the limit the smallest and the largest key stand for all."""
    name = fresh("few")
    attach(spark, name, lake, max_join_keys=2)
    frame = spark.sql(
        f"SELECT f.i FROM {name}.{facts.name} f JOIN (SELECT i AS k FROM {name}.{facts.name}"
        " WHERE cast(i AS string) IN ('45', '46', '47')) d ON f.i = d.k"
    )
    assert sorted(row.i for row in frame.collect()) == [45, 46, 47]
    assert blocks_after_join(frame) == 1


@pytest.mark.parametrize("key", ["i", "u32", "day", "ts", "ntz", "d", "s"])
def test_the_range_of_keys_of_each_type_loses_no_row(
    spark: SparkSession, facts: LakeTable, lake: Lamella, key: str
) -> None:
    """The block after the largest key is left out, and every row with a key is found."""
    name = fresh("ranges")
    attach(spark, name, lake, max_join_keys=2)
    frame = joined(spark, facts, key, name)
    assert sorted(row.i for row in frame.collect()) == [7, 11, 400]
    assert blocks_after_join(frame) == 11


def test_more_keys_than_blocks_are_sent_as_ranges(spark: SparkSession, lakes: Lakes) -> None:
    """Blocks in a wide gap between many keys are left out, although no key is sent by itself."""
    lake = lakes.of(*(pa.table({"i": range(at * 400, at * 400 + 400)}) for at in range(8)))
    frame = spark.sql(
        f"SELECT f.i FROM {lake.sql} f JOIN (SELECT /*+ BROADCAST */ i AS k FROM {lake.sql}"
        " WHERE i % 1200 < 700 AND reverse(cast(i AS string)) != '1') d ON f.i = d.k"
    )
    assert sorted(row.i for row in frame.collect()) == [i for i in range(3200) if i % 1200 < 700 and i != 1]
    assert blocks_after_join(frame) == 6


@pytest.mark.few(10)
@given(
    st.one_of(
        st.lists(st.integers(-(2**31), 2**31 - 1).map(lambda i: ("integer", str(i))), min_size=1, max_size=60),
        st.lists(st.integers(-(2**63), 2**63 - 1).map(lambda i: ("long", str(i))), min_size=1, max_size=60),
        st.lists(st.text(max_size=3).map(lambda text: ("string", text)), min_size=1, max_size=60),
        st.lists(
            st.decimals(-(10**14), 10**14, places=3).map(lambda d: ("decimal(18,3)", str(d))), min_size=1, max_size=60
        ),
    ),
    st.booleans(),
    st.integers(1, 70),
    st.integers(1, 70),
    st.integers(1, 8),
)
def test_ranges_of_keys_hold_every_key(
    spark: SparkSession,
    constants: list[tuple[str, str]],
    has_null: bool,
    max_distinct: int,
    max_listed: int,
    max_ranges: int,
) -> None:
    """They are disjoint, ascending and as few as allowed, and begin and end with a key. A null is reported."""
    kind = constants[0][0]
    texts = [text for _, text in constants]
    predicate = _in_list(spark, kind, [*texts, *([None] * has_null)])
    found = constants_of(
        Gateway(spark), predicate, kind, max_distinct=max_distinct, max_listed=max_listed, max_ranges=max_ranges
    )

    def key(text: str) -> Any:
        return text.encode() if kind == "string" else Decimal(text)

    keys = sorted({key(text) for text in texts})
    ranges = [[key(end) for end in each] for each in found.ranges]
    ends = [end for each in ranges for end in each]
    assert found.has_null == has_null
    assert ends == sorted(set(ends))
    assert set(ends) <= set(keys)
    if len(keys) <= min(max_distinct, max_listed):
        assert ranges == [[each] for each in keys]
    elif len(keys) > max_distinct:
        assert ranges == [[keys[0], keys[-1]]]
    else:
        assert len(ranges) <= max_ranges
        assert all(any(each[0] <= one <= each[-1] for each in ranges) for one in keys)


def test_ranges_of_keys_leave_out_the_widest_gaps(spark: SparkSession) -> None:
    """What no key is near is outside; of text, whose distances have no meaning, only the ends are known."""
    keys = [*range(10), *range(1000, 1010), 5000]
    for kind, expected in (
        ("long", [("0", "9"), ("1000", "1009"), ("5000",)]),
        ("decimal(18,3)", [("0.000", "9.000"), ("1000.000", "1009.000"), ("5000.000",)]),
        ("string", [("0", "9")]),
    ):
        predicate = _in_list(spark, kind, [str(each) for each in keys])
        found = constants_of(Gateway(spark), predicate, kind, max_listed=20, max_ranges=3)
        assert list(found.ranges) == expected


def test_a_list_of_something_else_has_no_constants(spark: SparkSession) -> None:
    """Constants of two types, of floats and of another type than the column, a column, and no constant are refused."""
    gateway = Gateway(spark)
    connector = "org.apache.spark.sql.connector.expressions."
    column = gateway.java_class(connector + "Expressions").column("c")
    of_ints, of_longs, of_doubles = (
        _in_list(spark, kind, [text]).children()[1] for kind, text in (("int", "1"), ("long", "2"), ("double", "1"))
    )
    for listed in ([of_longs, of_ints], [of_ints], [of_doubles], [of_longs, column], []):
        children = gateway.array(connector + "Expression", [column, *listed])
        predicate = gateway.java_class(connector + "filter.Predicate")("IN", children)
        with pytest.raises(Inexpressible):
            constants_of(gateway, predicate, "long")


def test_an_empty_small_side_reads_nothing(spark: SparkSession, facts: LakeTable) -> None:
    """No key, no block."""
    frame = spark.sql(
        f"SELECT f.i FROM {facts.sql} f JOIN (SELECT i AS k FROM {facts.sql} WHERE upper(s) = 'NONE') d ON f.i = d.k"
    )
    assert frame.collect() == []
    assert blocks_after_join(frame) in (0, None)  # adaptive execution may drop the scan altogether


def test_null_keys_join_nothing_and_break_nothing(spark: SparkSession, lakes: Lakes, facts: LakeTable) -> None:
    """A null among the keys is left out of the list."""
    small = lakes.of(pa.table({"k": pa.array([None, 100, None], pa.int64()), "tag": ["x", "x", "x"]}))
    frame = spark.sql(
        f"SELECT f.i FROM {facts.sql} f JOIN {small.sql} d ON f.i = d.k AND upper(d.tag) = 'X' AND d.tag = 'x'"
    )
    assert [row.i for row in frame.collect()] == [100]
    assert blocks_after_join(frame) == 1


def test_two_joins_narrow_one_scan_together(spark: SparkSession, facts: LakeTable) -> None:
    """Keys of several joins all hold."""
    frame = spark.sql(
        f"SELECT f.i FROM {facts.sql} f"
        f" JOIN (SELECT i AS k FROM {facts.sql} WHERE cast(i AS string) IN ('10', '50', '90')) d ON f.i = d.k"
        f" JOIN (SELECT day AS k FROM {facts.sql} WHERE cast(i AS string) IN ('50', '400')) e ON f.day = e.k"
    )
    assert [row.i for row in frame.collect()] == [50]
    assert blocks_after_join(frame) == 1


def test_executions_of_one_scan_do_not_see_each_others_keys(spark: SparkSession, facts: LakeTable) -> None:
    """Spark hands the keys to an object that several executions may share; each must get its own blocks only."""
    frame = joined(spark, facts, "i")
    scan = _narrowed_scan(frame)
    everything = len(scan.toBatch().planInputPartitions())
    frame.collect()
    assert len(scan.toBatch().planInputPartitions()) == everything
    predicates = _predicates(spark, _in_list(spark, "long", ["3"], "i"))
    scan.filter(predicates)
    narrowed = scan.toBatch()
    after = scan.toBatch()
    assert len(_files(narrowed)) == 1
    assert len(_files(after)) == 12
    assert not narrowed.equals(after)


def test_without_pinned_threads_no_keys_are_taken(
    spark: SparkSession, facts: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With PYSPARK_PIN_THREAD=false callbacks cannot tell executions apart: joins prune nothing, and lose nothing."""
    assert Gateway(spark).pins_threads
    monkeypatch.setattr(Gateway, "pins_threads", False)
    frame = joined(spark, facts, "i")
    assert sorted(row.i for row in frame.collect()) == [7, 11, 400]
    assert blocks_after_join(frame) is None


def _narrowed_scan(frame: DataFrame):  # type: ignore[no-untyped-def]  # py4j objects have no types
    leaves = frame._jdf.queryExecution().sparkPlan().collectLeaves()
    for at in range(leaves.size()):
        if "RuntimeFilters: [dynamicpruning" in leaves.apply(at).toString():
            return leaves.apply(at).scan()
    raise AssertionError("no scan with join keys")


def _in_list(spark: SparkSession, kind: str, constants: Sequence[str | None], column: str = "c") -> Any:
    """``column IN (constants)``, as Spark passes it to connectors."""
    gateway = Gateway(spark)
    listed = ", ".join(
        "NULL" if text is None else f"CAST(CAST(X'{text.encode().hex()}' AS STRING) AS {kind})" for text in constants
    )
    frame = spark.sql(f"SELECT * FROM VALUES (CAST(NULL AS {kind})) AS t({column}) WHERE {column} IN ({listed})")
    folding = gateway.scala_object("org.apache.spark.sql.catalyst.optimizer.ConstantFolding")
    condition = folding.apply(frame._jdf.queryExecution().analyzed()).children().apply(0).condition()
    builder = gateway.java_class("org.apache.spark.sql.catalyst.util.V2ExpressionBuilder")
    return builder(condition, True).build().get()


def _predicates(spark: SparkSession, *predicates: Any) -> Any:
    kind = "org.apache.spark.sql.connector.expressions.filter.Predicate"
    return Gateway(spark).array(kind, list(predicates))


def _files(batch) -> set[str]:  # type: ignore[no-untyped-def]
    found = set()
    for partition in batch.planInputPartitions():
        for file in partition.files():
            found.add(file.filePath().toString())
    return found

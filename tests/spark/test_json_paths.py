"""JSON paths through Spark: filters on them prune by an index that Spark's executors built, and lose no row."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lamella.client.http import Lamella
from lamella.client.spark import build_index
from spark.lakes import Lakes, LakeTable, assert_same_rows, blocks_read, no_pushdown, plan, setting
from support.json_documents import random_document

pytestmark = pytest.mark.spark

BLOCKS = 8
USER = "get_json_object(j, '$.user.id')"
#: Conditions, and how many blocks are read at most.
CONDITIONS = [
    (f"{USER} = '305'", 1),
    (f"{USER} IN ('u12', '205', 'none')", 2),
    (f"{USER} <=> 'u12'", 1),
    ("get_json_object(j, \"$['user']['id']\") = '305'", 1),
    (f"upper({USER}) = 'U12'", BLOCKS),  # no index is over that
    (f"{USER} = '305' AND n < 3", 1),
    (f"{USER} = '305' OR {USER} = 'u701'", 2),
    (f"NOT ({USER} <> '305')", 1),
    (f"{USER} = 'none'", 0),
    ("get_json_object(j, '$.user.name[0]') = 'None'", BLOCKS),
    ("get_json_object(j, '$.user.*') = '305'", BLOCKS),
]


@pytest.fixture(scope="module")
def users(lakes: Lakes, spark: SparkSession) -> LakeTable:
    """Eight blocks with a hundred users each, and an index over them that Spark built."""
    made = []
    for at in range(BLOCKS):
        ids = range(at * 100, at * 100 + 100)
        texts = [f'{{"n":{i}, "user":{{"id":{i if i % 2 else chr(34) + f"u{i}" + chr(34)}}}}}' for i in ids]
        texts[7] = texts[7][:-3]
        made.append(pa.table({"j": pa.array([*texts, None, "", "{}"], pa.string()), "n": list(range(103))}))
    table = lakes.of(*made)
    lakes.lake.table(table.name).create_index("users", "bloom", USER)
    result = build_index(spark, lakes.lake, table.name, "users")
    assert (result.indexed, result.left_out) == (BLOCKS, ())
    return table


@pytest.mark.parametrize(("condition", "max_blocks"), CONDITIONS)
@pytest.mark.few(5)
def test_a_path_in_the_where_clause_skips_blocks_and_loses_no_row(
    spark: SparkSession, users: LakeTable, condition: str, max_blocks: int
) -> None:
    """The rows are a full scan's; where the index knows the path, however it is spelled, few blocks are read."""
    assert_same_rows(spark, users, condition)
    selected, total = blocks_read(spark.table(users.sql).where(condition))
    assert total == BLOCKS
    assert selected <= max_blocks, plan(spark.table(users.sql).where(condition))


def test_a_projected_path_skips_blocks_as_well(spark: SparkSession, users: LakeTable) -> None:
    """A filter on a column of a subquery that is a path; also where Spark reads a document once for all paths."""
    inner = spark.table(users.sql).selectExpr("get_json_object(j, '$.user.id') AS u", "get_json_object(j, '$.n') AS n")
    for shared in ("false", "true"):
        with setting(spark, spark__sql__optimizer__getJsonObjectSharedParsing__enabled=shared):
            found = inner.where("u = '305'")
            assert [row.n for row in found.collect()] == ["305"]
            assert blocks_read(found) == (1, BLOCKS)


def test_random_documents_lose_no_row(spark: SparkSession, lake: Lamella, lakes: Lakes) -> None:
    """Blocks of any documents, indexed by Spark: every value that Spark itself finds is found through the index too."""
    rng = Random(5)
    table = lakes.of(*(pa.table({"j": [random_document(rng) for _ in range(4)]}) for _ in range(40)))
    path = "get_json_object(j, '$.a')"
    lake.table(table.name).create_index("a", "value_set", path)
    result = build_index(spark, lake, table.name, "a")
    assert 0 < result.indexed < 40
    assert result.indexed + len(result.left_out) == 40
    assert all("fails for a row" in left.reason for left in result.left_out)
    with no_pushdown(spark):
        grouped = table.full_scan(spark).groupBy(F.expr(path).alias("v")).agg(F.count("*").alias("rows"))
        counts = {row.v: row.rows for row in grouped.collect()}
    assert len(counts) > 10
    through = spark.table(table.sql)
    values = sorted(value for value in counts if value is not None)
    for value in rng.sample(values, 10):
        assert through.where(F.expr(path) == value).count() == counts[value], value
    assert through.where(f"{path} IS NULL").count() == counts[None]
    assert through.where(f"{path} IS NOT NULL").count() == sum(counts[value] for value in values)
    assert lake.table(table.name).verify(deep=True).is_clean

"""What Lamella hands to Spark's Parquet reader: filters where they are sound for the blocks at hand, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lamella.client.http import Lamella
from lamella.client.spark import attach, write
from spark.lakes import fresh
from wrong_results import cases_nulls, cases_order, cases_text
from wrong_results.case import Case, CaseWriter, table
from wrong_results.engines import CATALOG
from wrong_results.test_wrong_results import registered

pytestmark = pytest.mark.spark

FOREIGN = [*cases_nulls.CASES, *cases_order.CASES, *cases_text.CASES]


def handed_over(spark: SparkSession, name: str, condition: str) -> str:
    """The filters that Spark's reader gets, as text."""
    frame = spark.table(f"{CATALOG}.{name}").where(condition)
    scan = frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
    return " ".join(str(item) for item in scan.readerFactory().filters())


def test_float_filters_are_handed_over_for_blocks_without_nan(spark: SparkSession, judged: Lamella) -> None:
    """Lamella's own writer counts NaN, so its blocks are skipped inside by DOUBLE columns, but for zeros and NaN."""
    name = f"{fresh('own')}.t"
    write(
        spark.range(100).selectExpr("CAST(id AS DOUBLE) AS x", "IF(id = 7, double('NaN'), id) AS y"),
        name,
        client=judged,
    )
    assert "GreaterThan(x,5.0)" in handed_over(spark, name, "x > 5")
    for condition in ("x = 0", "x <= -0.0D", "x = double('NaN')", "x IN (0D, 1D)", "y > 5"):
        assert not re.search(r"\((x|y),[^)]", handed_over(spark, name, condition)), condition
    assert spark.table(f"{CATALOG}.{name}").where("x > 5 AND y > 5").count() == 94


@pytest.mark.parametrize(
    ("case", "condition", "column", "honest"),
    [
        ("column-orders-absent", "s = 'B'", "s", False),  # of no column
        ("max-cut-not-rounded", "s > 'key-0001'", "s", True),
        ("null-count-too-low", "a IS NULL", "a", True),
        ("decimal-negative-unsigned", "d = 5.00", "d", True),
    ],
)
def test_filters_on_footers_that_are_not_believed_stay_out(
    spark: SparkSession, judged: Lamella, tmp_path: Path, case: str, condition: str, column: str, honest: bool
) -> None:
    """A filter beside it, on a column with an honest footer, still goes in."""
    chosen = _case(case)
    name = registered(judged, chosen, chosen.make(CaseWriter(tmp_path, spark)), tmp_path)
    text = handed_over(spark, name, f"{condition} AND id < 10")
    assert ("LessThan(id,10)" in text) == honest
    assert f"({column}" not in text


def test_honest_footers_of_other_writers_are_skipped_by(spark: SparkSession, judged: Lamella, tmp_path: Path) -> None:
    """Integers and text of pyarrow have whole footers."""
    path = CaseWriter(tmp_path, spark).arrow(table(a=pa.array([1, None, 3]), s=["x", "y", "z"]))
    name = f"{fresh('honest')}.t"
    judged.create_namespace(name.partition(".")[0])
    judged.create_table(name, schema_from=path)
    judged.table(name).register([path], strict=True)
    text = handed_over(spark, name, "a > 1 AND s = 'z'")
    assert "GreaterThan(a,1)" in text
    assert "EqualTo(s,z)" in text


@pytest.mark.soak
@pytest.mark.parametrize("case", FOREIGN, ids=[case.id for case in FOREIGN])
def test_relations_without_a_catalog_give_the_right_rows(
    spark: SparkSession, judged: Lamella, tmp_path: Path, case: Case
) -> None:
    """The way for Spark versions without what a catalog needs hands filters over unseen, so it believes nothing."""
    name = registered(judged, case, case.make(CaseWriter(tmp_path, spark)), tmp_path)
    attached = attach(spark, fresh("views"), judged, mode="views")
    frame = attached.table(name)
    for query in case.queries:
        assert sorted(row.id for row in frame.where(query.sql).collect()) == case.truth(query), query.sql
    attached.detach()


def _case(name: str) -> Case:
    return next(case for case in FOREIGN if case.id == name)

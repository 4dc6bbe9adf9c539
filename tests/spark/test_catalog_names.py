"""Names in SQL: catalogs, namespaces, tables, and what the catalog refuses."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from lamella.client.http import Lamella
from lamella.client.spark import Attached, attach
from lamella.snapshot.errors import InvalidRequest
from spark.lakes import CATALOG, Lakes, fresh, numbers

pytestmark = pytest.mark.spark


def test_a_table_is_found_by_its_three_part_name(spark: SparkSession, lakes: Lakes) -> None:
    """SQL, the reader and the catalog API know the table by catalog, namespace and name."""
    table = lakes.of(*numbers(2))
    assert spark.sql(f"SELECT count(*) FROM {table.sql}").first()[0] == 200  # type: ignore[index]
    assert spark.table(table.sql).count() == 200
    assert spark.read.table(table.sql).count() == 200
    assert spark.catalog.tableExists(table.sql)
    assert not spark.catalog.tableExists(f"{CATALOG}.{table.name}x")


def test_use_makes_short_names_work(spark: SparkSession, lakes: Lakes) -> None:
    """After USE, the namespace and the catalog can be left out."""
    table = lakes.of(*numbers(1))
    spark.sql(f"USE {CATALOG}.{table.name.split('.')[0]}")
    try:
        assert spark.sql("SELECT max(a) FROM t").collect()[0][0] == 99
    finally:
        spark.sql("USE spark_catalog.default")


def test_show_lists_namespaces_tables_and_the_catalog(spark: SparkSession, lakes: Lakes) -> None:
    """SHOW CATALOGS, NAMESPACES and TABLES name what is there."""
    table = lakes.of(*numbers(1))
    namespace = table.name.split(".")[0]
    assert CATALOG in [row[0] for row in spark.sql("SHOW CATALOGS").collect()]
    assert namespace in [row[0] for row in spark.sql(f"SHOW NAMESPACES IN {CATALOG}").collect()]
    shown = spark.sql(f"SHOW TABLES IN {CATALOG}.{namespace}").collect()
    assert [(row["namespace"], row["tableName"]) for row in shown] == [(namespace, "t")]


def test_namespaces_of_several_parts_are_reached_part_by_part(spark: SparkSession, lakes: Lakes, lake: Lamella) -> None:
    """A namespace `a.b` is written a.b in SQL, and listed below a."""
    top = fresh("top")
    lake.create_namespace(f"{top}.inner")
    example = lakes.of(*numbers(1))
    lake.create_table(f"{top}.inner.t", schema_from=example.paths[0])
    lake.table(f"{top}.inner.t").register(example.paths)
    assert spark.table(f"{CATALOG}.{top}.inner.t").count() == 100
    assert [row[0] for row in spark.sql(f"SHOW NAMESPACES IN {CATALOG}.{top}").collect()] == [f"{top}.inner"]


def test_describe_shows_columns_and_the_snapshot(spark: SparkSession, lakes: Lakes) -> None:
    """DESCRIBE gives Spark's types; EXTENDED also says which snapshot is read."""
    table = lakes.of(*numbers(1))
    described = [(row["col_name"], row["data_type"]) for row in spark.sql(f"DESCRIBE {table.sql}").collect()]
    assert described[:3] == [("a", "bigint"), ("b", "bigint"), ("s", "string")]
    extended = str(spark.sql(f"DESCRIBE EXTENDED {table.sql}").collect())
    assert table.snapshot_id() in extended


def test_a_missing_table_is_an_ordinary_analysis_error(spark: SparkSession, lakes: Lakes) -> None:
    """A table or namespace that is not there is reported as for any other catalog."""
    table = lakes.of(*numbers(1))
    for name in (f"{table.sql}x", f"{CATALOG}.nowhere.t", f"{CATALOG}.t"):
        with pytest.raises(AnalysisException) as caught:
            spark.table(name).collect()
        assert caught.value.getCondition() == "TABLE_OR_VIEW_NOT_FOUND"
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        spark.sql(f"SHOW TABLES IN {CATALOG}.nowhere").collect()


def test_a_view_over_the_table_prunes(spark: SparkSession, lakes: Lakes) -> None:
    """A temporary view keeps the name's behaviour."""
    table = lakes.of(*numbers(4))
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW over_lake AS SELECT * FROM {table.sql} WHERE a >= 100")
    assert spark.sql("SELECT count(*) FROM over_lake WHERE a < 150").collect()[0][0] == 50


def test_a_new_session_needs_its_own_attach(spark: SparkSession, lakes: Lakes, lake: Lamella) -> None:
    """Catalogs belong to one session: another one does not know the name until it is attached there too."""
    table = lakes.of(*numbers(1))
    other = spark.newSession()
    with pytest.raises(AnalysisException):
        other.table(table.sql).collect()
    attach(other, CATALOG, lake)
    assert other.table(table.sql).count() == 100


def test_attaching_again_replaces_and_detaching_removes(spark: SparkSession, lakes: Lakes, lake: Lamella) -> None:
    """A name stands for the last service attached, until it is detached."""
    table = lakes.of(*numbers(1))
    session = spark.newSession()
    attach(session, "other", "http://127.0.0.1:9")
    attached = attach(session, "other", lake)
    assert session.table(f"other.{table.name}").count() == 100
    attached.detach()
    with pytest.raises(AnalysisException):
        session.table(f"other.{table.name}").collect()


def test_a_reserved_name_is_refused(spark: SparkSession, attached: Attached, lake: Lamella) -> None:
    """Spark's own catalog cannot be replaced by accident."""
    assert attached.name == CATALOG
    with pytest.raises(InvalidRequest):
        attach(spark, "spark_catalog", lake)

"""What Spark itself writes of collated text, and why it cannot be taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lamella.client.http import Lamella
from lamella.snapshot.errors import InvalidSchema, SchemaMismatch
from spark.lakes import fresh

pytestmark = pytest.mark.spark


def written(spark: SparkSession, folder: Path, *columns: str) -> list[str]:
    """Files of two rows, by Spark."""
    frame = spark.createDataFrame([("ABC",), ("abc",)], "s string").selectExpr(*columns)
    frame.coalesce(1).write.parquet(str(folder))
    return sorted(map(str, folder.glob("*.parquet")))


@pytest.mark.parametrize(
    "column",
    [
        "s COLLATE UTF8_LCASE AS s",
        "s COLLATE UNICODE_CI AS s",
        "s COLLATE UTF8_BINARY_RTRIM AS s",
        "array(s COLLATE UTF8_LCASE) AS s",
        "map('k', s COLLATE UNICODE_AI) AS s",
        "named_struct('t', s COLLATE UTF8_LCASE, 'u', 1) AS s",
    ],
)
@pytest.mark.few(3)
def test_no_table_is_made_of_columns_that_spark_compares_by_a_collation(
    spark: SparkSession, lake: Lamella, tmp_path: Path, column: str
) -> None:
    """In a column, a list, a map or a struct: Spark's own schema in the footer tells."""
    (collated,) = written(spark, tmp_path / "c", column)
    namespace = fresh("ns")
    lake.create_namespace(namespace)
    with pytest.raises(InvalidSchema, match="collations"):
        lake.create_table(f"{namespace}.t", schema_from=collated)


def test_spark_and_bytes_disagree_on_collated_text(spark: SparkSession, lake: Lamella, tmp_path: Path) -> None:
    """Spark finds both spellings in the file that it wrote; a table of plain text does not take it."""
    (collated,) = written(spark, tmp_path / "c", "s COLLATE UTF8_LCASE AS s")
    (plain,) = written(spark, tmp_path / "p", "s")
    (explicit,) = written(spark, tmp_path / "e", "s COLLATE UTF8_BINARY AS s")
    assert spark.read.parquet(collated).where("s = 'abc'").count() == 2
    assert spark.read.parquet(plain).where("s = 'abc'").count() == 1
    namespace = fresh("ns")
    lake.create_namespace(namespace)
    lake.create_table(f"{namespace}.t", schema_from=plain)
    answer = lake.table(f"{namespace}.t").register([plain, collated, explicit], strict=False)
    assert answer.registered == 2
    assert [left.code for left in answer.refused] == [SchemaMismatch.code]

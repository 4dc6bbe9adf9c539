"""Directories whose folders name columns (``year=2020``): the rows, types and plans of Spark's own reader."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from lamella.client.http import Lamella
from lamella.snapshot.errors import BlocksRefused
from lamella.snapshot.source.path_values import inferred_type
from spark.lakes import CATALOG, Lakes, blocks_read, fresh, plan

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

#: Texts that a folder cannot have as they are, or that look like something else.
AWKWARD = [
    "plain",
    "a b",
    "a/b",
    "a=b",
    "50%",
    "100%25",
    "ä ö",
    "日本",
    "x:y",
    "q'q",
    'd"d',
    "tab\there",
    "*",
    "{x}",
    None,
]


def followed(lake: Lamella, spark: SparkSession, folder: Path) -> str:
    """A table of all files of a folder, with the columns that Lamella infers."""
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    namespace = fresh("hive")
    lake.create_namespace(namespace)
    lake.create_table(f"{namespace}.t", schema_from=f"{folder}/")
    answer = lake.table(f"{namespace}.t").register([f"{folder}/"], strict=True, time_zone=zone)
    assert answer.refused == ()
    return f"{CATALOG}.{namespace}.t"


def rows(frame: DataFrame) -> list[str]:
    """The rows in a comparable form, in no order."""
    return sorted(repr(tuple(row)) for row in frame.collect())


def same(spark: SparkSession, table: str, folder: Path) -> None:
    """Compare a table with what Spark reads from the folder."""
    ours, theirs = spark.table(table), spark.read.parquet(str(folder))
    # A table has no type for nothing but nulls.
    assert dict(ours.dtypes) == {name: "string" if kind == "void" else kind for name, kind in theirs.dtypes}
    assert rows(ours.select(*theirs.columns)) == rows(theirs)


def test_a_directory_of_spark_has_its_rows_and_types(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """Values that folders cannot hold as they are, of several levels and types, and null."""
    days = [dt.date(2024, 2, 29), dt.date(1999, 12, 31), None]
    data = [(number, text, days[number % 3], number % 2) for number, text in enumerate(AWKWARD)]
    frame = spark.createDataFrame(data, "id BIGINT, s STRING, d DATE, n INT")
    folder = tmp_path / "t"
    frame.write.partitionBy("s", "d", "n").parquet(str(folder))
    table = followed(lakes.lake, spark, folder)
    same(spark, table, folder)
    assert rows(spark.table(table).select("id", "s", "d", "n")) == rows(frame)
    for text in (each for each in AWKWARD if each is not None):
        literal = text.replace("\\", "\\\\").replace("'", "\\'")
        found = spark.sql(f"SELECT id FROM {table} WHERE s = '{literal}'")
        assert [row.id for row in found.collect()] == [AWKWARD.index(text)]
        assert blocks_read(found) == (1, len(AWKWARD))
    null = spark.sql(f"SELECT id FROM {table} WHERE s IS NULL")
    assert [row.id for row in null.collect()] == [len(AWKWARD) - 1]


@pytest.mark.parametrize(
    "texts",
    [
        ["1", "2"],
        ["01", "2"],
        ["2147483648", "1"],
        ["9223372036854775808", "1"],
        ["9" * 38, "1"],
        ["9" * 39, "1"],
        ["1.5", "2"],
        ["1.5", "2147483648"],
        ["1e3", "2"],
        ["NaN", "1.0"],
        ["2024-02-29", "2023-01-01"],
        ["2024-02-30"],
        ["2024-1-1"],
        ["2024-02-29 12%3A30%3A00", "2023-01-01 00%3A00%3A00"],
        ["2024-02-29 12%3A30%3A00.5"],
        ["2024-02-29 12%3A30%3A00.123"],
        ["2024-02-29", "2023-01-01 00%3A00%3A00"],
        ["2024-02-29", "1"],
        ["true", "false"],
        ["a", "1"],
        ["1", "__HIVE_DEFAULT_PARTITION__"],
        ["__HIVE_DEFAULT_PARTITION__"],
        ["+5", "-5"],
        ["1d", "2f"],
    ],
    ids=repr,
)
@pytest.mark.few(10)
def test_types_are_inferred_as_spark_infers_them(
    spark: SparkSession, lakes: Lakes, tmp_path: Path, texts: list[str]
) -> None:
    """From one value or several, with the values that Spark then reads."""
    for number, text in enumerate(texts):
        path = tmp_path / f"p={text}" / "x.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table({"id": [number]}), path)
    same(spark, followed(lakes.lake, spark, tmp_path), tmp_path)


def _pyarrow(table: pa.Table, folder: Path, column: str) -> None:
    kind = pa.schema([table.schema.field(column)])
    ds.write_dataset(table, folder, format="parquet", partitioning=ds.partitioning(kind, flavor="hive"))


def _polars(table: pa.Table, folder: Path, column: str) -> None:
    pl.LazyFrame(pl.from_arrow(table)).sink_parquet(pl.PartitionBy(folder, key=column, include_key=False), mkdir=True)


def _duckdb(table: pa.Table, folder: Path, column: str) -> None:
    with duckdb.connect() as connection:
        connection.register("rows", table)
        connection.execute(f"COPY rows TO '{folder}' (FORMAT parquet, PARTITION_BY ({column}))")


def _spark(spark: SparkSession) -> Callable[[pa.Table, Path, str], None]:
    def write(table: pa.Table, folder: Path, column: str) -> None:
        spark.createDataFrame(table).write.partitionBy(column).parquet(str(folder))

    return write


VALUES: dict[str, pa.Array] = {
    "text": pa.array(["a b", "a/b", "a=b", "50%", "ä", None]),
    "int": pa.array([1, -2, None], pa.int32()),
    "long": pa.array([1 << 40, 2], pa.int64()),
    "double": pa.array([1.5, -2.25]),
    "decimal": pa.array([Decimal("1.50"), Decimal("-2.25")], pa.decimal128(5, 2)),
    "date": pa.array([dt.date(2024, 2, 29), dt.date(1, 1, 1)]),
    "timestamp": pa.array([dt.datetime(2024, 2, 29, 12, 30), dt.datetime(2024, 1, 1)], pa.timestamp("us")),  # noqa: DTZ001
    "boolean": pa.array([True, False]),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("writer", ["spark", "pyarrow", "polars", "duckdb"])
@pytest.mark.few(11)
def test_directories_of_other_writers_read_as_spark_reads_them(
    spark: SparkSession, lakes: Lakes, tmp_path: Path, writer: str, kind: str
) -> None:
    """Each writer escapes and spells values in its own way; Spark's reading of them counts."""
    values = VALUES[kind]
    table = pa.table({"id": list(range(len(values))), "p": values})
    folder = tmp_path / "t"
    writers: dict[str, Any] = {"spark": _spark(spark), "pyarrow": _pyarrow, "polars": _polars, "duckdb": _duckdb}
    writers[writer](table, folder, "p")
    same(spark, followed(lakes.lake, spark, folder), folder)


def test_a_file_that_holds_the_column_too_must_have_the_folders_value(
    spark: SparkSession, lakes: Lakes, tmp_path: Path
) -> None:
    """Polars writes it, and spells other than ASCII in a way that Spark does not undo: the two then differ."""
    pl.DataFrame({"id": [0, 1], "p": ["a", "b"]}).write_parquet(tmp_path / "good", partition_by="p")
    same(spark, followed(lakes.lake, spark, tmp_path / "good"), tmp_path / "good")
    pl.DataFrame({"id": [0, 1], "p": ["ä", "b"]}).write_parquet(tmp_path / "bad", partition_by="p")
    with pytest.raises(BlocksRefused, match="may have other values"):
        followed(lakes.lake, spark, tmp_path / "bad")


def test_sparks_own_reader_supplies_the_values(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """Its vectorised reader reads the files, and only those of the folders that match."""
    spark.range(300).selectExpr("id", "id % 30 AS p", "CAST(id AS STRING) s").repartition(4).write.partitionBy(
        "p"
    ).parquet(str(tmp_path / "t"))
    table = followed(lakes.lake, spark, tmp_path / "t")
    blocks = len(list((tmp_path / "t").glob("p=*/*.parquet")))
    mine = len(list((tmp_path / "t").glob("p=7/*.parquet")))
    few = f"SELECT count(*) c, min(p) low, max(p) high, sum(id * 2) total FROM {table} WHERE p = 7"
    frame = spark.sql(few)
    assert [tuple(row) for row in frame.collect()] == [(10, 7, 7, 2 * sum(range(7, 300, 30)))]
    assert blocks_read(frame) == (mine, blocks)
    assert "READ IN PYTHON" not in plan(frame)
    known = spark.sql(few.replace("id * 2", "id"))
    assert [tuple(row) for row in known.collect()] == [(10, 7, 7, sum(range(7, 300, 30)))]
    assert "BatchScan" not in plan(known)
    grouped = spark.sql(f"SELECT p, count(*) c FROM {table} GROUP BY p")
    assert {tuple(row) for row in grouped.collect()} == {(number, 10) for number in range(30)}
    joined = spark.sql(f"SELECT t.id FROM {table} t JOIN (SELECT 3 AS k) x ON t.p = x.k WHERE s > '2'")
    assert {row.id for row in joined.collect()} == {n for n in range(3, 300, 30) if str(n) > "2"}


def test_files_of_one_folder_may_have_different_constants(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """As in logs of other formats; then Python workers read the blocks."""
    for number in range(3):
        pq.write_table(pa.table({"id": [number]}), tmp_path / f"{number}.parquet")
    namespace = fresh("hive")
    lakes.lake.create_namespace(namespace)
    columns = [{"name": "id", "type": "int64"}, {"name": "p", "type": "string"}]
    made = lakes.lake.create_table(f"{namespace}.t", schema_from=str(tmp_path / "0.parquet"))
    from lamella.snapshot.schema.evolution import AddColumn

    handle = lakes.lake.table(f"{namespace}.t")
    handle.evolve([AddColumn(name=columns[1]["name"], type="string")])
    column_id = handle.info().schema.leaf("p").id
    del made
    added = [
        {
            "location": f"file://{tmp_path}/{number}.parquet",
            "row_count": 1,
            "file_size": 0,
            "constants": {column_id: value},
        }
        for number, value in enumerate(({"String": "x"}, {"String": "y"}, None))
    ]
    handle.commit(added)
    frame = spark.sql(f"SELECT id, p FROM {CATALOG}.{namespace}.t")
    assert rows(frame) == ["(0, 'x')", "(1, 'y')", "(2, None)"]
    assert "READ IN PYTHON" in plan(frame)
    found = spark.sql(f"SELECT id FROM {CATALOG}.{namespace}.t WHERE p = 'y'")
    assert [row.id for row in found.collect()] == [1]
    assert blocks_read(found) == (1, 3)


def test_texts_without_values_are_text() -> None:
    """A column that is null in every folder."""
    assert inferred_type([]) == "string"

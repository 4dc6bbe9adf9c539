"""Delta tables whose columns have other names in the files, read by Spark through the catalog."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark.lakes import CATALOG, Lakes, blocks_read, fresh, plan
from support.delta_logs import MappedTable

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_spark_reads_mapped_columns_with_its_own_reader(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """Names that are swapped, contain dots, or are those of a dropped column; partition values beside them."""
    made = MappedTable(tmp_path, "name", "p")
    mapping = {"delta.columnMapping.id": 11, "delta.columnMapping.physicalName": "x"}
    field = {"name": "u v", "type": "long", "nullable": True, "metadata": mapping}
    inner = {"type": "struct", "fields": [field]}
    added = "col-5875387c-c6b2-499c-9b5b-8124597b17d4"
    first = [("a", "long", 1, "s"), ("s", "string", 2, "a"), ("n", inner, 10, "col-10"), ("p", "integer", 5, "col-5")]
    made.columns(*first, ("x", "long", 3, "x"))
    nested = pa.array([{"x": 7}, None])
    made.add(
        "0.parquet",
        pa.table({"s": [1, 2], "a": ["p", None], "col-10": nested, "x": [10, 20]}),
        partition={"col-5": "1"},
    )
    made.columns(*first, ("x", "string", 4, added))
    made.add("1.parquet", pa.table({"s": [3], "a": ["q"], added: ["new"]}), partition={"col-5": None})
    namespace = fresh("mapped")
    lakes.lake.create_namespace(namespace)
    lakes.lake.create_external(f"{namespace}.t", {"kind": "delta", "location": str(tmp_path)})
    lakes.lake.table(f"{namespace}.t").refresh()
    table = f"{CATALOG}.{namespace}.t"

    # One folder, in which blocks have different values: Spark's own reader knows values by folder.
    every = spark.sql(f"SELECT a, s, n.`u v`, p, x FROM {table} ORDER BY a")
    assert [tuple(row) for row in every.collect()] == [
        (1, "p", 7, 1, None),
        (2, None, None, 1, None),
        (3, "q", None, None, "new"),
    ]
    for where, ids, blocks in (
        ("s = 'q'", [3], 1),
        ("a = 1 AND p = 1", [1], 1),
        ("p IS NULL", [3], 1),
        ("x = 'new'", [3], 1),
        ("n.`u v` = 7", [1], 1),
        ("x IS NULL", [1, 2], 1),
    ):
        found = spark.sql(f"SELECT a FROM {table} WHERE {where} ORDER BY a")
        assert [row.a for row in found.collect()] == ids, where
        assert blocks_read(found) == (blocks, 2), where
        assert "columns by their names in the files" in plan(found), where

"""Definitions of tables as metastores have them: what they are, and why some cannot be imported. No server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from lamella.client.catalogs.hive_types import hive_columns, spark_columns
from lamella.client.catalogs.metastore import MetastoreTable, Partition, Storage, source_table
from lamella.client.catalogs.tables import Selection, SourceTable
from lamella.snapshot.errors import InvalidRequest, InvalidSchema, LamellaError

PARQUET = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"
SPARK = {
    "spark.sql.sources.provider": "parquet",
    "spark.sql.partitionProvider": "catalog",
    "spark.sql.sources.schema.numPartCols": "1",
    "spark.sql.sources.schema.partCol.0": "Day",
    "spark.sql.sources.schema": json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": "Day", "type": "date", "nullable": True, "metadata": {}},
                {"name": "Id", "type": "long", "nullable": True, "metadata": {}},
            ],
        }
    ),
}


def table(
    parameters: Mapping[str, str] | None = None,
    *,
    location: str | None = "file:/w/t",
    serde: Mapping[str, str] | None = None,
    partitions: tuple[Partition, ...] = (),
    input_format: str = PARQUET,
    **others: Any,
) -> SourceTable:
    """What a definition is for an import."""
    given: dict[str, Any] = {"kind": "EXTERNAL_TABLE", "columns": (("id", "bigint"),), "keys": (("day", "date"),)}
    storage = Storage(location=location, input_format=input_format, serde="x.ParquetHiveSerDe", parameters=serde or {})
    made = MetastoreTable(database="d", name="t", storage=storage, parameters=parameters or {}, **{**given, **others})
    return source_table(made, lambda: [*partitions])


def part(*values: str, input_format: str = PARQUET) -> Partition:
    """A partition."""
    return Partition(values=values, storage=Storage(location="file:/w/p", input_format=input_format))


def names(found: SourceTable) -> list[tuple[str, str]]:
    """Columns with their types."""
    assert found.hive is not None, found.refused
    return [(column.name, column.type) for column in found.hive.columns]


def test_hives_columns_count_unless_sparks_are_the_same() -> None:
    """Spark knows the case of names; a table that Hive changed since has the columns of Hive."""
    hive = {name: text for name, text in SPARK.items() if "provider" not in name.lower()}
    assert names(table()) == [("id", "int64"), ("day", "date")]
    assert names(table(hive)) == [("Id", "int64"), ("Day", "date")]
    assert names(table(hive, columns=(("id", "bigint"), ("x", "int")))) == [
        ("id", "int64"),
        ("x", "int32"),
        ("day", "date"),
    ]
    assert names(table(hive, columns=(("id", "string"),))) == [("id", "string"), ("day", "date")]
    assert table(hive).location == "file:/w/t"


def test_sparks_own_tables_are_as_spark_defines_them() -> None:
    """Their columns and location are in properties; partition columns come last."""
    found = table(SPARK, location="file:/w/t-__PLACEHOLDER__", serde={"path": "file:/w/t"}, columns=(("col", "x"),))
    assert found.location == "file:/w/t"
    assert names(found) == [("Id", "int64"), ("Day", "date")]
    assert found.hive is not None
    assert found.hive.partitioned_by == ("Day",)
    text = SPARK["spark.sql.sources.schema"]
    pieces = {f"spark.sql.sources.schema.part.{at}": text[40 * at : 40 * at + 40] for at in range(len(text) // 40 + 1)}
    others = {name: value for name, value in SPARK.items() if name != "spark.sql.sources.schema"}
    split = {**others, **pieces, "spark.sql.sources.schema.numParts": str(len(pieces))}
    assert names(table(split, serde={"path": "file:/w/t"})) == names(found)
    del split["spark.sql.sources.schema.part.1"]
    assert code(table(split, serde={"path": "file:/w/t"})) == "invalid_schema"


def test_partitions_have_the_metastores_values() -> None:
    """The default partition is null; a partition of another format, or with other values, refuses the table."""
    found = table(partitions=(part("2024-01-01"), part("__HIVE_DEFAULT_PARTITION__")))
    assert found.partitions is not None
    assert [each.values for each in found.partitions()] == [("2024-01-01",), (None,)]
    for bad in (part("1", input_format="org.apache.hadoop.hive.ql.io.orc.OrcInputFormat"), part("1", "2")):
        refused = table(partitions=(bad,))
        assert refused.partitions is not None
        with pytest.raises(LamellaError):
            refused.partitions()


def code(found: SourceTable) -> str | None:
    """Why a table cannot be imported."""
    return None if found.refused is None else found.refused.code


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"kind": "VIRTUAL_VIEW"}, "invalid_request"),
        ({"kind": "MATERIALIZED_VIEW"}, "invalid_request"),
        ({"parameters": {"transactional": "TRUE"}}, "other_table_format"),
        ({"parameters": {"hoodie.datasource.x": "1"}}, "other_table_format"),
        ({"parameters": {"spark.sql.sources.provider": "hudi"}}, "other_table_format"),
        ({"input_format": "org.apache.hudi.hadoop.HoodieParquetInputFormat"}, "other_table_format"),
        ({"input_format": "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat"}, "other_table_format"),
        ({"parameters": {"storage_handler": "org.apache.hadoop.hive.hbase.HBaseStorageHandler"}}, "invalid_request"),
        ({"input_format": "org.apache.hadoop.mapred.TextInputFormat"}, "not_parquet"),
        ({"parameters": {**SPARK, "spark.sql.sources.provider": "json"}}, "not_parquet"),
        ({"in_skewed_folders": True}, "invalid_request"),
        ({"parameters": {"projection.enabled": "true"}}, "invalid_request"),
        ({"serde": {"parquet.column.index.access": "true"}}, "invalid_request"),
        ({"parameters": SPARK, "serde": {"path": "/x", "recursiveFileLookup": "true"}}, "invalid_request"),
        ({"parameters": SPARK, "serde": {"path": "/x", "pathGlobFilter": "*.parquet"}}, "invalid_request"),
        ({"parameters": {**SPARK, "spark.sql.partitionProvider": "filesystem"}}, "invalid_request"),
        ({"parameters": {**SPARK, "spark.sql.sources.schema.partCol.0": "Id"}}, "invalid_schema"),
        ({"parameters": {**SPARK, "spark.sql.sources.schema": "{"}}, "invalid_schema"),
        ({"columns": (("a", "uniontype<int,string>"),)}, "invalid_schema"),
        ({"columns": (("a", "timestamp with local time zone"),)}, "invalid_schema"),
        ({"columns": (("a", "struct<a:int"),)}, "invalid_schema"),
        ({"columns": (("a", "array<char(2)>"),)}, "invalid_schema"),
        ({"location": None}, "invalid_request"),
        ({"parameters": {"table_type": "ICEBERG"}}, "invalid_request"),
    ],
)
def test_what_is_not_plain_parquet_is_refused(given: dict[str, Any], wanted: str) -> None:
    """Each with a code and a reason."""
    found = table(**given)
    assert (code(found), found.kind) == (wanted, None)
    assert found.refused is not None
    assert found.refused.message


def test_tables_of_other_formats_are_followed_as_such() -> None:
    """Whatever input format they claim to have."""
    delta = table({"spark.sql.sources.provider": "DELTA"}, location="file:/placeholder", serde={"path": "s3://b/t"})
    assert (delta.kind, delta.location) == ("delta", "s3://b/t")
    iceberg = table({"table_type": "ICEBERG", "metadata_location": "s3://b/m.json", "storage_handler": "x"})
    assert (iceberg.kind, iceberg.location) == ("iceberg", "s3://b/m.json")


def test_types_of_hive_are_columns() -> None:
    """Nested ones too, with the case of their fields; varchar is text."""
    nested = "struct<X:int,y:array<map<string,decimal(5,2)>>,`a:b c`:varchar(3),z:struct<q:decimal(7)>>"
    (column,) = hive_columns([("C", nested)])
    assert [field.name for field in column.fields] == ["X", "y", "a:b c", "z"]
    assert column.fields[1].fields[0].fields[1].type == "decimal(5,2)"
    assert column.fields[2].type == "string"
    assert column.fields[3].fields[0].type == "decimal(7,0)"
    plain = {
        "boolean": "boolean",
        "TINYINT": "int8",
        "smallint": "int16",
        "int": "int32",
        "BigInt": "int64",
        "float": "float32",
        "double": "float64",
        "string": "string",
        "binary": "binary",
        "date": "date",
        "timestamp": "timestamp(us)",
        "decimal": "decimal(10,0)",
    }
    assert [column.type for column in hive_columns([("a", kind) for kind in plain])] == [*plain.values()]
    for text in ("", "void", "array<int>>", "map<int>", "struct<>", "array<int", "interval_day_time", "int int"):
        with pytest.raises(InvalidSchema):
            hive_columns([("a", text)])


def test_a_default_of_rows_that_files_lack_is_refused() -> None:
    """Spark reads it in place of null."""
    field = {"name": "a", "type": "integer", "nullable": True, "metadata": {"EXISTS_DEFAULT": "5"}}
    for wrapped in (field, {"name": "s", "type": {"type": "struct", "fields": [field]}, "nullable": True}):
        with pytest.raises(InvalidSchema, match="default"):
            spark_columns(json.dumps({"type": "struct", "fields": [wrapped]}))


def test_patterns_select_tables() -> None:
    """Databases and tables, with wildcards, less what is left out; a plain name that selects nothing is known."""
    chosen = Selection(["sales", "h*.order?"], ["sales.tmp_*", "hr2"])
    assert chosen.has("sales", "a")
    assert not chosen.has("sales", "tmp_a")
    assert chosen.has("hr", "orders")
    assert not chosen.has("hr", "orderss")
    assert not chosen.may_have("hr2")
    assert not chosen.may_have("other")
    assert Selection().has("any", "thing")
    assert Selection(["a.b"], ["*.b"]).has("a", "b") is False
    assert Selection(["a", "b.c", "x*.y", "d"]).without_match(["a", "d"], [("a", "t")]) == ["b.c"]
    assert Selection(["a.b"]).has("a.b", "c")  # a database with a dot in its name
    assert Selection(["a.b"]).may_have("a")
    assert not Selection(["a.b"]).has("a", "c")
    for text in ("", ".", "a.", ".a"):
        with pytest.raises(InvalidRequest):
            Selection([text])

"""Tables of a real Hive Metastore that Spark writes: what is imported is what Spark reads, now and after changes."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from catalogs.hive_server import HiveSpark, Metastore
from lamella.client import Lamella
from lamella.client.catalogs.hive import HiveMetastore
from lamella.client.catalogs.importing import ImportedTable, ImportOptions, import_tables
from lamella.client.cli.app import cli
from lamella.snapshot.errors import InvalidRequest, StoreError
from lamella.snapshot.schema import Column
from support.sources import rows_of

pytestmark = pytest.mark.spark


def imported(
    lake: Lamella, metastore: Metastore, *include: str, exclude: tuple[str, ...] = (), **options: Any
) -> dict[str, ImportedTable]:
    """Import, and return the results by the names of the tables in the metastore."""
    with HiveMetastore(metastore.uri) as catalog:
        found = import_tables(lake, catalog, include, exclude, ImportOptions(**options))
        return {each.source.rpartition(".")[2]: each for each in found}


def same_rows(lake: Lamella, spark: HiveSpark, table: str) -> None:
    """Assert that a table has the rows and column names that Spark reads, and that its statistics are sound."""
    wanted = spark.rows(table)
    own = lake.table(table)
    found = own.scan().to_arrow()
    assert found.column_names == wanted.column_names
    assert [*map(repr, rows_of(found))] == [*map(repr, rows_of(in_utc(wanted, found.schema)))]
    assert own.verify(deep=True, sample=1.0, pages=False).findings == ()


def in_utc(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with instants where the schema has them: a file of Spark's says nothing about UTC when it is an INT96."""
    for at, field in enumerate(schema):
        if pa.types.is_timestamp(field.type) and rows.schema.field(at).type != field.type:
            rows = rows.set_column(at, field.name, rows.column(at).cast(field.type))
    return rows


def test_the_metastore_alone_says_which_rows_a_table_has(
    lake: Lamella, metastore: Metastore, hive_spark: HiveSpark, name: str, tmp_path: Path
) -> None:
    """Partitions elsewhere, folders that are none, null and escaped values, names with case; and changes of all."""
    table = f"{name}.t"
    hive_spark.run(
        f"CREATE DATABASE {name}",
        f"CREATE EXTERNAL TABLE {table} (Id BIGINT, s STRING) PARTITIONED BY (P STRING, d DATE) STORED AS PARQUET "
        f"LOCATION '{(tmp_path / 'table').as_uri()}'",
        f"INSERT INTO {table} VALUES (1, 'x', 'a/b c%=', DATE '2024-01-01'), (2, 'y', 'Straße', DATE '2024-02-29'), "
        "(3, 'z', null, DATE '0999-12-31'), (4, null, 'null', null)",
        f"ALTER TABLE {table} ADD PARTITION (P = 'far', d = '2025-01-01') LOCATION '{(tmp_path / 'P=no').as_uri()}'",
        f"INSERT INTO {table} VALUES (5, 'far away', 'far', DATE '2025-01-01')",
    )
    folder = tmp_path / "table"
    (stray,) = [*folder.glob("P=Stra*/*/*.parquet")]
    (folder / "P=none" / "d=2024-01-01").mkdir(parents=True)
    shutil.copy(stray, folder / "P=none" / "d=2024-01-01")  # a folder that the metastore does not know
    (stray.parent / "below").mkdir()
    shutil.copy(stray, stray.parent / "below")  # Spark does not read below the folder of a partition
    shutil.copy(stray, stray.parent / "_hidden")
    shutil.copy(stray, stray.parent / "000000_0")  # as Hive names its files
    (stray.parent / "empty").touch()
    first = imported(lake, metastore, name)["t"]
    assert (first.action, first.blocks, first.kind) == ("created", 6, "hive")
    same_rows(lake, hive_spark, table)
    again = imported(lake, metastore, name)["t"]
    assert (again.action, again.blocks) == ("unchanged", 6)
    # Filters on partition columns are decided by the metastore's values.
    assert lake.table(table).prune("P = 'far'", reader_features=["constants"]).block_count == 1
    assert lake.table(table).prune("P IS NULL", reader_features=["constants"]).block_count == 1
    assert lake.table(table).prune("d < DATE '2000-01-01'", reader_features=["constants"]).block_count == 1
    assert lake.table(table).prune("P = 'none'", reader_features=["constants"]).block_count == 0

    hive_spark.run(
        f"ALTER TABLE {table} DROP PARTITION (P = 'a/b c%=')",  # its folder remains
        f"ALTER TABLE {table} PARTITION (P = 'far', d = '2025-01-01') "
        "RENAME TO PARTITION (P = 'Near', d = '2025-01-02')",
        f"INSERT INTO {table} VALUES (6, 'new', 'far', DATE '2025-01-01')",
    )
    assert [*folder.glob("P=a%2F*/*/*.parquet")]
    second = imported(lake, metastore, name)["t"]
    assert second.action == "refreshed"
    same_rows(lake, hive_spark, table)
    assert lake.table(table).prune("P = 'Near'", reader_features=["constants"]).block_count == 1
    # One refresh is one snapshot.
    assert len([*lake.table(table).snapshots()]) == 3


def test_columns_are_those_of_the_metastore(
    lake: Lamella, metastore: Metastore, hive_spark: HiveSpark, name: str
) -> None:
    """Added, renamed, dropped by Hive, and widened columns are read by name, as Spark reads them."""
    table = f"{name}.t"
    hive_spark.run(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {table} (a INT, B STRING, m MAP<STRING, DECIMAL(5, 2)>, v VARCHAR(3)) PARTITIONED BY (p INT) "
        "STORED AS PARQUET",
        f"INSERT INTO {table} VALUES (1, 'one', map('k', 1.25), 'abc', 1), (2, null, null, null, null)",
    )
    assert imported(lake, metastore, name)["t"].action == "created"
    same_rows(lake, hive_spark, table)
    hive_spark.run(
        f"ALTER TABLE {table} ADD COLUMNS (c STRUCT<X: INT, y: ARRAY<STRING>>)",
        f"INSERT INTO {table} VALUES (3, 'three', map(), 'x', struct(7, array('q', null)), 2)",
    )
    assert imported(lake, metastore, name)["t"].action == "refreshed"
    same_rows(lake, hive_spark, table)


def test_every_partition_type_has_its_own_values(
    lake: Lamella, metastore: Metastore, hive_spark: HiveSpark, name: str
) -> None:
    """The text of the metastore is cast as Spark casts it, to the type that the metastore has."""
    values = {
        "BOOLEAN": ["true", "false"],
        "TINYINT": ["-128", "7"],
        "INT": ["0", "-5", "2147483647"],
        "BIGINT": ["9223372036854775807", "12"],
        "DECIMAL(9, 3)": ["1.5", "-0.001", "123456.789"],
        "DATE": ["DATE '2024-02-29'", "DATE '1582-10-15'"],
        "TIMESTAMP": ["TIMESTAMP '2024-03-31 02:30:00'", "TIMESTAMP '1970-01-01 00:00:00.000001'"],
        "STRING": ["'1'", "'01'", "' '", "'ä\\u0001:'", "'__x'", "'%2F'"],
    }
    hive_spark.run(f"CREATE DATABASE {name}")
    for number, (kind, texts) in enumerate(values.items()):
        rows = ", ".join(f"({at}, {text})" for at, text in enumerate(["NULL", *texts]))
        hive_spark.run(
            f"CREATE TABLE {name}.t{number} (a INT) PARTITIONED BY (P {kind}) STORED AS PARQUET",
            f"INSERT INTO {name}.t{number} VALUES {rows}",
        )
    results = imported(lake, metastore, f"{name}.*")
    for number, (kind, texts) in enumerate(values.items()):
        assert (results[f"t{number}"].action, results[f"t{number}"].reason) == ("created", None), kind
        same_rows(lake, hive_spark, f"{name}.t{number}")
        own = lake.table(f"{name}.t{number}")
        for at, text in enumerate(texts, 1):
            pruned = own.prune(f"P = {text}", reader_features=["constants"])
            assert pruned.block_count == 1, (kind, text)
            assert own.scan(f"P = {text}").to_arrow().column("a").to_pylist() == [at]
        assert own.scan("P IS NULL").to_arrow().column("a").to_pylist() == [0]


def test_sparks_own_tables_have_sparks_columns(
    lake: Lamella, metastore: Metastore, hive_spark: HiveSpark, name: str, tmp_path: Path
) -> None:
    """Schema, partition columns and location are in properties, in several pieces if they are long."""
    many = ", ".join(f"`Column With A Long Name {number}` INT" for number in range(100))
    hive_spark.run(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.t (Id BIGINT, n TIMESTAMP_NTZ, P INT) USING parquet PARTITIONED BY (P)",
        f"INSERT INTO {name}.t VALUES (1, TIMESTAMP_NTZ '2024-01-01 00:00:00', 5), (2, null, null)",
        f"CREATE TABLE {name}.u (Key STRING, {many}) USING parquet LOCATION '{(tmp_path / 'a b').as_uri()}'",
        f"INSERT INTO {name}.u (Key) VALUES ('k')",
        f"CREATE TABLE {name}.b (a INT, b INT) USING parquet CLUSTERED BY (a) INTO 3 BUCKETS",
        f"INSERT INTO {name}.b VALUES (1, 2), (2, 3)",
        "SET spark.sql.parquet.outputTimestampType = INT96",  # as Hive writes timestamps
        f"CREATE TABLE {name}.i (t TIMESTAMP) STORED AS PARQUET",
        f"INSERT INTO {name}.i VALUES (TIMESTAMP '2024-03-31 02:30:00.123456'), (null)",
        "SET spark.sql.parquet.outputTimestampType = TIMESTAMP_MICROS",
    )
    results = imported(lake, metastore, name)
    assert {each.action for each in results.values()} == {"created"}, results
    for table in results:
        same_rows(lake, hive_spark, f"{name}.{table}")


def test_a_table_that_cannot_be_imported_does_not_stop_the_others(
    lake: Lamella, metastore: Metastore, hive_spark: HiveSpark, name: str, tmp_path: Path
) -> None:
    """Each kind has its reason; the command lists all of them and exits with 1."""
    hive_spark.run(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.good (a INT) STORED AS PARQUET",
        f"INSERT INTO {name}.good VALUES (1)",
        f"CREATE TABLE {name}.orc (a INT) STORED AS ORC",
        f"CREATE TABLE {name}.avro (a INT) STORED AS AVRO",
        f"CREATE TABLE {name}.text (a INT) STORED AS TEXTFILE",
        f"CREATE TABLE {name}.csv (a INT) USING csv",
        f"CREATE TABLE {name}.padded (a CHAR(3)) STORED AS PARQUET",
        f"CREATE TABLE {name}.defaults (a INT) USING parquet",
        f"ALTER TABLE {name}.defaults ADD COLUMN b INT DEFAULT 5",
        f"CREATE VIEW {name}.view AS SELECT * FROM {name}.good",
        f"CREATE TABLE {name}.hudi (a INT) STORED AS PARQUET TBLPROPERTIES ('hoodie.table.name' = 'x')",
        f"CREATE TABLE {name}.mixed (a INT) PARTITIONED BY (p INT) STORED AS PARQUET",
        f"ALTER TABLE {name}.mixed ADD PARTITION (p = 1)",
        f"CREATE TABLE {name}.types (a INT) STORED AS PARQUET LOCATION '{(tmp_path / 'types').as_uri()}'",
        f"CREATE TABLE {name}.column (a INT) PARTITIONED BY (p INT) STORED AS PARQUET",
        f"ALTER TABLE {name}.column ADD PARTITION (p = 1) LOCATION '{(tmp_path / 'column').as_uri()}'",
    )
    change_format(metastore, name, "mixed")
    one = pa.array([2], pa.int32())
    for folder, rows in (("types", {"a": ["text"]}), ("column", {"a": one, "p": one})):
        (tmp_path / folder).mkdir(exist_ok=True)
        pq.write_table(pa.table(rows), tmp_path / folder / "f.parquet")
    results = imported(lake, metastore, name)
    codes = {table: each.code or each.action for table, each in results.items()}
    assert codes == {
        "avro": "not_parquet",
        "column": "blocks_refused",
        "csv": "not_parquet",
        "defaults": "invalid_schema",
        "good": "created",
        "hudi": "other_table_format",
        "mixed": "not_parquet",
        "orc": "not_parquet",
        "padded": "invalid_schema",
        "text": "not_parquet",
        "types": "blocks_refused",
        "view": "invalid_request",
    }
    assert [file.code for file in results["types"].files] == ["schema_mismatch"]
    assert [file.code for file in results["column"].files] == ["value_outside_file"]
    assert "partition {'p': '1'}" in (results["mixed"].reason or "")
    assert [*lake.tables(name)] == ["good"]  # what was refused is not there as a table without rows
    done = CliRunner().invoke(
        cli, ["import", "hive", metastore.uri, name, "--exclude", f"{name}.m*", "--url", lake.url, "-o", "csv"]
    )
    assert done.exit_code == 1
    assert f"{name}.good,hive,{name}.good,unchanged,1,0,0,,,[]" in done.stdout.splitlines()
    assert len(done.stdout.splitlines()) == 12


def change_format(metastore: Metastore, database: str, table: str) -> None:
    """Make the partitions of a table ORC, as ALTER TABLE ... PARTITION ... SET FILEFORMAT does in Hive."""
    with metastore.client() as client:
        for partition in client.get_partitions(database, table, -1):
            partition.sd.inputFormat = "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat"
            client.alter_partition(database, table, partition)


def test_the_same_command_again_adds_refreshes_and_reports(
    lake: Lamella, metastore: Metastore, hive_spark: HiveSpark, name: str
) -> None:
    """New tables come, those that exist are refreshed, those that are gone are reported, and dropped when told."""
    into = f"{name}_here"
    hive_spark.run(
        f"CREATE DATABASE {name}",
        *(f"CREATE TABLE {name}.{table} (a INT) STORED AS PARQUET" for table in ("one", "two")),
        f"INSERT INTO {name}.one VALUES (1)",
    )

    def run(*options: str) -> tuple[int, str, str]:
        base = ["import", "hive", metastore.uri, name, "--into", into, "--url", lake.url]
        done = CliRunner().invoke(cli, [*base, *options], env={"COLUMNS": "200"})
        return done.exit_code, done.stdout, done.stderr

    code, out, _ = run("--dry-run")
    assert code == 0
    assert "would be" in out
    assert into not in [each.name for each in lake.namespaces()]
    assert run()[0] == 0
    assert lake.table(f"{into}.one").info().row_count == 1
    assert lake.table(f"{into}.one").info().properties["lamella.import.table"] == f"{name}.one"
    hive_spark.run(
        f"INSERT INTO {name}.one VALUES (2)",
        f"DROP TABLE {name}.two",
        f"CREATE TABLE {name}.three (a INT) STORED AS PARQUET",
    )
    code, out, _ = run("--dry-run", "-o", "json")
    assert (code, lake.table(f"{into}.one").info().row_count) == (0, 1)
    for action in ('"refreshed","blocks":2', '"created"', '"missing"'):
        assert f'"action":{action}' in out
    code, out, err = run()
    assert code == 0
    assert f"{into}.two: the catalog no longer has {name}.two; --drop-missing drops it" in err
    assert lake.table(f"{into}.one").info().row_count == 2
    assert sorted(lake.tables(into)) == ["one", "three", "two"]
    assert run("--drop-missing")[0] == 0
    assert sorted(lake.tables(into)) == ["one", "three"]

    # A table of that name which was not imported stays as it is.
    lake.drop_table(f"{into}.three")
    lake.create_table(f"{into}.three", schema=[Column(name="z", type="int64")])
    code, _, err = run()
    assert code == 1
    assert f"{into}.three exists and was not imported [already_exists]" in err
    code, _, err = run("nothing_of_this_name")
    assert code == 1
    assert "nothing_of_this_name" in err
    assert "[invalid_request]" in err


def test_a_refresh_needs_the_metastores_list(
    lake: Lamella, metastore: Metastore, hive_spark: HiveSpark, name: str
) -> None:
    """Without it nothing is refreshed, and a folder that is empty at once is taken for a disk that is not mounted."""
    hive_spark.run(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.t (a INT) STORED AS PARQUET",
        f"INSERT INTO {name}.t VALUES (1)",
        f"CREATE TABLE {name}.u (a INT) PARTITIONED BY (p INT) STORED AS PARQUET",
        f"INSERT INTO {name}.u VALUES (1, 1)",
    )
    imported(lake, metastore, name)
    with pytest.raises(InvalidRequest, match="run lamella import again"):
        lake.table(f"{name}.t").refresh()
    for file in (metastore.warehouse / f"{name}.db").glob("*/**/*.parquet"):
        file.unlink()
    refused = imported(lake, metastore, name)
    assert {each.code for each in refused.values()} == {"invalid_request"}
    assert "allow_empty" in (refused["u"].reason or "")
    hive_spark.run(f"ALTER TABLE {name}.u DROP PARTITION (p = 1)")  # this says it
    assert imported(lake, metastore, f"{name}.u")["u"].action == "refreshed"
    assert imported(lake, metastore, name, allow_empty=True)["t"].action == "refreshed"
    assert lake.table(f"{name}.t").info().row_count == 0


def test_a_metastore_that_is_not_there_is_named(lake: Lamella) -> None:
    """One line with the address; nothing was changed."""
    with pytest.raises(StoreError, match="cannot be reached"):
        [*import_tables(lake, HiveMetastore("thrift://127.0.0.1:1"))]
    done = CliRunner().invoke(cli, ["import", "hive", "http://x", "--url", lake.url])
    assert done.exit_code == 1
    assert "thrift://host:9083" in done.stderr

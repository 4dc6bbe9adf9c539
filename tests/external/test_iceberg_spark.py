"""Iceberg tables that Iceberg's own writer makes: after each step the rows are those that Spark reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from external.spark_writer import SparkWriter, check_followed, in_utc
from lamella.client import Lamella

pytestmark = [pytest.mark.soak, pytest.mark.spark]

_ON_READ: Final = ", ".join(f"'write.{verb}.mode' = 'merge-on-read'" for verb in ("delete", "update", "merge"))

#: Statements by table; the rows are compared after each tuple. Braces are the table.
STEPS: Final[Mapping[str, Sequence[Sequence[str]]]] = {
    "deletes": (
        (
            f"CREATE TABLE {{}} (a BIGINT, s STRING, p STRING) USING iceberg TBLPROPERTIES ({_ON_READ})",
            "INSERT INTO {} SELECT id, IF(id % 4 = 3, null, concat('s', id)), concat('p/', id % 3) FROM range(3000)",
        ),
        ("DELETE FROM {} WHERE a % 7 = 1",),
        ("DELETE FROM {} WHERE a % 11 = 1", "INSERT INTO {} VALUES (5000, 'later', null)"),
        ("UPDATE {} SET s = 'new' WHERE a BETWEEN 100 AND 120 OR s IS NULL AND a < 50",),
        (
            "MERGE INTO {} t USING (SELECT id FROM range(50, 60) UNION ALL SELECT id FROM range(4000, 4005)) u "
            "ON t.a = u.id WHEN MATCHED AND t.a < 55 THEN DELETE WHEN MATCHED THEN UPDATE SET s = 'merged' "
            "WHEN NOT MATCHED THEN INSERT (a, s, p) VALUES (id, 'x', null)",
        ),
        ("CALL ice.system.rewrite_position_delete_files('db.{name}')", "DELETE FROM {} WHERE a % 5 = 0"),
        ("CALL ice.system.rewrite_data_files('db.{name}', 'sort', 'a')",),
        ("DELETE FROM {} WHERE p = 'p/1'",),
        ("DELETE FROM {}",),
    ),
    "partitions": (
        (
            "CREATE TABLE {} (a BIGINT, s STRING, d DATE, t TIMESTAMP, n DECIMAL(5, 2), x DOUBLE) USING iceberg "
            f"PARTITIONED BY (s, d, t, n, x) TBLPROPERTIES ({_ON_READ})",
            "INSERT INTO {} VALUES (1, 'x/y z%', DATE '2024-01-01', TIMESTAMP '2024-01-01 12:00:00.000005', 1.5, 0d),"
            "(2, null, null, null, null, null), "
            "(3, '', DATE '0001-01-01', TIMESTAMP '1969-12-31 23:59:59', -0.01, double('NaN')), "
            "(4, 'q', null, null, 0, -1d)",
        ),
        ("INSERT INTO {} SELECT a + 10, s, d, t, n, x FROM {}", "DELETE FROM {} WHERE a IN (1, 12, 13)"),
        ("ALTER TABLE {} DROP PARTITION FIELD t", "INSERT INTO {} SELECT a + 20, s, d, t, n, x FROM {}"),
        ("ALTER TABLE {} RENAME COLUMN s TO q", "DELETE FROM {} WHERE a IN (3, 22)"),
        ("ALTER TABLE {} ADD PARTITION FIELD bucket(4, a)", "INSERT INTO {} VALUES (9, 'q', null, null, 7, null)"),
        ("DELETE FROM {} WHERE q = 'q'",),
    ),
    "transforms": (
        (
            "CREATE TABLE {} (a BIGINT, s STRING, t TIMESTAMP) USING iceberg "
            f"PARTITIONED BY (days(t), truncate(2, s), bucket(3, a)) TBLPROPERTIES ({_ON_READ})",
            "INSERT INTO {} SELECT id, IF(id % 5 = 0, null, concat('k', id)), "
            "TIMESTAMP '2024-01-01 00:00:00' + make_interval(0, 0, 0, 0, id * 7) FROM range(60)",
        ),
        ("DELETE FROM {} WHERE a % 9 = 4",),
        ("ALTER TABLE {} REPLACE PARTITION FIELD days(t) WITH months(t)", "INSERT INTO {} VALUES (100, 'm', null)"),
        ("UPDATE {} SET s = 'z' WHERE a < 10",),
    ),
    "columns": (
        (
            "CREATE TABLE {} (a INT, n STRUCT<x: INT, y: ARRAY<STRUCT<z: STRING>>>, m MAP<STRING, STRUCT<q: FLOAT>>, "
            f"f FLOAT, d DECIMAL(5, 2)) USING iceberg TBLPROPERTIES ({_ON_READ})",
            "INSERT INTO {} VALUES (1, named_struct('x', 1, 'y', array(named_struct('z', 'zz'))), "
            "map('k', struct(1.5f)), 1.1f, 2.5)",
        ),
        (
            "ALTER TABLE {} ALTER COLUMN a TYPE BIGINT",
            "ALTER TABLE {} ALTER COLUMN f TYPE DOUBLE",
            "ALTER TABLE {} ALTER COLUMN d TYPE DECIMAL(9, 2)",
            "ALTER TABLE {} RENAME COLUMN n.x TO w",
            "INSERT INTO {} VALUES (12345678901, named_struct('w', 2, 'y', null), null, 2.2d, 1234567.25)",
        ),
        ("ALTER TABLE {} ADD COLUMN n.v BIGINT AFTER w", "ALTER TABLE {} ADD COLUMN b STRING FIRST"),
        ("INSERT INTO {} VALUES ('b', 3, named_struct('w', 3, 'v', 4L, 'y', array()), map(), null, null)",),
        ("ALTER TABLE {} DROP COLUMN f", "ALTER TABLE {} RENAME COLUMN b TO f", "DELETE FROM {} WHERE a = 1"),
        ("ALTER TABLE {} DROP COLUMN n.w", "INSERT INTO {} VALUES ('g', 5, null, null, 1)"),
    ),
}


@pytest.fixture(scope="module")
def writer(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkWriter]:
    """One for all tables."""
    assert java_home
    made = SparkWriter("iceberg", tmp_path_factory.mktemp("iceberg"))
    yield made
    made.close()


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("title", STEPS)
def test_each_step_of_a_table_is_followed(
    lake: Lamella, name: str, tmp_path: Path, writer: SparkWriter, title: str, version: int
) -> None:
    """Refreshed after each step, and followed from the end only: rows, types and names are those that Spark reads."""
    table = f"{title}{version}"
    # Version 1 has no delete files, so rows are deleted by rewriting.
    properties = f"'format-version' = '{version}'" + (f", {_ON_READ}" if version > 1 else "")
    folder = str(writer.warehouse / "db" / table)
    for number, steps in enumerate(STEPS[title]):
        statements = [each.replace(_ON_READ, properties).replace("{name}", table) for each in steps]
        wanted = in_utc(writer.write(table, tmp_path / f"rows{number}", statements), "t")
        check_followed(lake, name, number, {"kind": "iceberg", "location": folder}, wanted)

"""Delta tables that Delta's own writer makes: after each step the rows are those that Spark reads."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from external.spark_writer import SparkWriter, check_followed, in_utc
from lamella.client import Lamella

pytestmark = [pytest.mark.soak, pytest.mark.spark]

_PLAIN: Final = "'delta.enableDeletionVectors' = 'false'"
_VECTORS: Final = "'delta.enableDeletionVectors' = 'true'"
_MAPPED: Final = f"{_PLAIN}, 'delta.columnMapping.mode' = '%s'"

#: Statements by table; the rows are compared after each tuple. A braces pair is the table.
STEPS: Final[Mapping[str, Sequence[Sequence[str]]]] = {
    f"{name} by {mode}": steps
    for mode in ("name", "id")
    for name, steps in {
        "nested": (
            (
                "CREATE TABLE {} (a BIGINT, n STRUCT<x: INT, y: ARRAY<STRUCT<z: STRING>>>, m MAP<STRING, STRUCT<q: "
                f"DOUBLE>>, l ARRAY<ARRAY<INT>>) USING delta TBLPROPERTIES ({_MAPPED % mode})",
                "INSERT INTO {} VALUES (1, named_struct('x', 1, 'y', array(named_struct('z', 'zz'))), "
                "map('k', struct(1.5d)), array(array(1, null)))",
                "INSERT INTO {} VALUES (2, null, null, array()), (3, named_struct('x', null, 'y', array(null)), "
                "map(), array(null))",
            ),
            (
                "ALTER TABLE {} RENAME COLUMN n.x TO w",
                "ALTER TABLE {} RENAME COLUMN n TO a1",
                "ALTER TABLE {} ADD COLUMN a1.v BIGINT",
                "INSERT INTO {} VALUES (4, named_struct('w', 2, 'y', null, 'v', 7), null, null)",
            ),
            ("ALTER TABLE {} DROP COLUMN a1.w", "ALTER TABLE {} RENAME COLUMN m.value.q TO r"),
            ("UPDATE {} SET a = a + 10 WHERE a < 3",),
        ),
        "names": (
            (
                f"CREATE TABLE {{}} (a BIGINT, s STRING, c INT) USING delta TBLPROPERTIES ({_MAPPED % mode})",
                "INSERT INTO {} VALUES (1, 'a', 10)",
            ),
            ("ALTER TABLE {} RENAME COLUMN a TO b", "ALTER TABLE {} RENAME COLUMN s TO a"),
            ("INSERT INTO {} VALUES (2, 'bb', 20)", "ALTER TABLE {} DROP COLUMN c"),
            ("INSERT INTO {} VALUES (3, 'cc')", "ALTER TABLE {} ADD COLUMNS (c STRING FIRST)"),
            ("INSERT INTO {} VALUES ('ee', 4, 'dd')", "ALTER TABLE {} RENAME COLUMN c TO `a,b; c`"),
            ("OPTIMIZE {}",),
        ),
        "partitions": (
            (
                "CREATE TABLE {} (a BIGINT, p STRING, d DATE, t TIMESTAMP, n DECIMAL(5, 2)) USING delta "
                f"PARTITIONED BY (p, d, t, n) TBLPROPERTIES ({_MAPPED % mode})",
                "INSERT INTO {} VALUES (1, 'x/y z%', DATE '2024-01-01', TIMESTAMP '2024-01-01 12:00:00.000005', 1.5),"
                "(2, null, null, null, null), (3, '', DATE '0001-01-01', TIMESTAMP '1969-12-31 23:59:59', -0.01)",
            ),
            ("ALTER TABLE {} RENAME COLUMN p TO q", "ALTER TABLE {} RENAME COLUMN a TO p"),
            ("INSERT INTO {} VALUES (4, 'q', DATE '2024-05-05', TIMESTAMP '2024-05-05 00:00:00', 0)",),
            ("DELETE FROM {} WHERE q IS NULL",),
        ),
        "wider": (
            (
                "CREATE TABLE {} (a SMALLINT, f FLOAT, d DECIMAL(6, 2), e BYTE) USING delta TBLPROPERTIES "
                f"('delta.enableTypeWidening' = 'true', {_MAPPED % mode})",
                "INSERT INTO {} VALUES (1, 1.1, 2.25, 1)",
            ),
            (
                "ALTER TABLE {} ALTER COLUMN a TYPE BIGINT",
                "ALTER TABLE {} ALTER COLUMN f TYPE DOUBLE",
                "ALTER TABLE {} ALTER COLUMN d TYPE DECIMAL(12, 4)",
                "ALTER TABLE {} ALTER COLUMN e TYPE INT",
            ),
            ("INSERT INTO {} VALUES (1234567890123, 2.5, 33.1234, 1000)", "ALTER TABLE {} RENAME COLUMN a TO aa"),
        ),
    }.items()
} | {
    "mapped later": (
        (
            f"CREATE TABLE {{}} (a BIGINT, b STRING, s STRUCT<u: INT, v: INT>) USING delta TBLPROPERTIES ({_PLAIN})",
            "INSERT INTO {} VALUES (1, 'one', struct(1, 2))",
        ),
        (
            "ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', "
            "'delta.minWriterVersion' = '5')",
        ),
        ("ALTER TABLE {} DROP COLUMN b", "INSERT INTO {} VALUES (2, struct(3, 4))"),
        ("ALTER TABLE {} ADD COLUMNS (b STRING)",),
        ("INSERT INTO {} VALUES (3, struct(5, 6), 'three')", "ALTER TABLE {} RENAME COLUMN s.u TO `w x`"),
        ("ALTER TABLE {} DROP COLUMN s.v", "ALTER TABLE {} RENAME COLUMN a TO `a,b c`"),
        ("INSERT INTO {} VALUES (4, named_struct('w x', 7), 'four')",),
        (
            "ALTER TABLE {} RENAME COLUMN `a,b c` TO a",
            "ALTER TABLE {} RENAME COLUMN s.`w x` TO w",
            "ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')",
            "INSERT INTO {} VALUES (5, named_struct('w', 8), 'five')",
        ),
    ),
    "features": (
        (
            "CREATE TABLE {} (a BIGINT, n TIMESTAMP_NTZ, i INT GENERATED ALWAYS AS (CAST(a AS INT))) USING delta "
            f"CLUSTER BY (a) TBLPROPERTIES ('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2', "
            f"'delta.appendOnly' = 'false', 'delta.enableInCommitTimestamps' = 'true', {_PLAIN})",
            "INSERT INTO {} (a, n) VALUES (1, TIMESTAMP_NTZ '2024-01-01 00:00:00')",
        ),
        *[(f"INSERT INTO {{}} (a, n) VALUES ({at}, null)",) for at in range(2, 5)],
        ("OPTIMIZE {} FULL", "DELETE FROM {} WHERE a = 2"),
        ("ALTER TABLE {} ADD CONSTRAINT positive CHECK (a > 0)", "INSERT INTO {} (a) VALUES (9)"),
        ("RESTORE TABLE {} TO VERSION AS OF 2",),
    ),
    "deletes": (
        (
            f"CREATE TABLE {{}} (a BIGINT, s STRING, p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES ({_PLAIN})",
            "INSERT INTO {} SELECT id, IF(id % 4 = 3, null, concat('s', id)), concat('p/', id % 3) FROM range(3000)",
        ),
        ("DELETE FROM {} WHERE a % 7 = 1",),
        ("DELETE FROM {} WHERE a % 11 = 1", "ALTER TABLE {} SET TBLPROPERTIES ('delta.checkpointInterval' = '3')"),
        ("UPDATE {} SET s = 'new' WHERE a BETWEEN 100 AND 120 OR s IS NULL AND a < 50",),
        (
            "MERGE INTO {} t USING (SELECT id FROM range(50, 60) UNION ALL SELECT id FROM range(4000, 4005)) u "
            "ON t.a = u.id WHEN MATCHED AND t.a < 55 THEN DELETE WHEN MATCHED THEN UPDATE SET s = 'merged' "
            "WHEN NOT MATCHED THEN INSERT (a, s, p) VALUES (id, 'x', null)",
        ),
        ("RESTORE TABLE {} TO VERSION AS OF 3",),
        ("DELETE FROM {} WHERE a % 5 = 0", "DELETE FROM {} WHERE p = 'p/1'"),
        ("REORG TABLE {} APPLY (PURGE)", "DELETE FROM {} WHERE a = 2"),
        ("DELETE FROM {} WHERE a % 2 = 0", "OPTIMIZE {}"),
        ("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')", "DELETE FROM {} WHERE a < 30"),
        ("DELETE FROM {}",),
    ),
}


@pytest.fixture(scope="module")
def writer(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkWriter]:
    """One for all tables."""
    assert java_home
    made = SparkWriter("delta", tmp_path_factory.mktemp("delta"))
    yield made
    made.close()


@pytest.mark.parametrize("vectors", [False, True], ids=["rewritten", "vectors"])
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS.keys())
def test_each_step_of_a_table_is_followed(
    lake: Lamella, name: str, tmp_path: Path, writer: SparkWriter, steps: Sequence[Sequence[str]], vectors: bool
) -> None:
    """Refreshed after each step, and followed from the end only: rows, types and names are those that Spark reads.

    ``vectors``: rows are deleted by deletion vectors.
    """
    folder = str(tmp_path / "table")
    for number, statements in enumerate(steps):
        with_vectors = [each.replace(_PLAIN, _VECTORS) if vectors else each for each in statements]
        wanted = in_utc(writer.write(folder, tmp_path / f"rows{number}", with_vectors), "t")
        check_followed(lake, name, number, {"kind": "delta", "location": folder}, wanted)

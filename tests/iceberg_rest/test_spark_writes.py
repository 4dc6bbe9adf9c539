"""Iceberg's own Spark runtime writes tables here; Lamella reads the rows that Spark reads, after every statement."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from conftest import path_from_script
from lamella.client.http import Lamella
from support.spark_environment import spark_environment

pytestmark = [pytest.mark.soak, pytest.mark.spark]

PROGRAM: Final = Path(__file__).with_name("spark_program.py")
IVY: Final = Path(__file__).resolve().parent.parent.parent / "build" / "ivy"
_ROWS: Final = "SELECT id, name, day, price FROM {} ORDER BY id, name"
_HEAD: Final = "SELECT snapshot_id FROM {}.refs WHERE name = 'main'"
_MAKE: Final = """
CREATE TABLE {} USING iceberg PARTITIONED BY (days(day), bucket(4, id))
TBLPROPERTIES ('format-version'='{}', 'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read',
'write.merge.mode'='merge-on-read')
AS SELECT id, concat('n', id) AS name, timestamp '2024-01-01 00:00:00' + make_interval(0, 0, 0, id % 3) AS day,
cast(id AS decimal(10, 2)) AS price FROM range(0, 40)
"""
#: What changes a table; {} is its name.
_STATEMENTS: Final = (
    "INSERT INTO {} VALUES (100, 'x', timestamp '2024-02-01 10:00:00', 1.25), (101, NULL, NULL, NULL)",
    "DELETE FROM {} WHERE id < 5",
    "DELETE FROM {} WHERE id BETWEEN 10 AND 12 OR name = 'x'",
    "UPDATE {} SET name = 'updated', price = price + 1 WHERE id % 7 = 0",
    "MERGE INTO {0} t USING (SELECT id, 'merged' AS name FROM range(30, 50)) s ON t.id = s.id"
    " WHEN MATCHED THEN UPDATE SET t.name = s.name"
    " WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)",
    "ALTER TABLE {} ADD PARTITION FIELD truncate(2, name)",
    "INSERT INTO {} VALUES (200, 'after', timestamp '2024-03-01 00:00:00', 2.5)",
    "ALTER TABLE {} DROP PARTITION FIELD days(day)",
    "INSERT OVERWRITE {} SELECT id, name, day, price FROM {} WHERE id > 20",
    "CALL ice.system.rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))",
    "CALL ice.system.rewrite_position_delete_files(table => '{}', options => map('rewrite-all', 'true'))",
    "CALL ice.system.rewrite_manifests('{}')",
    "ALTER TABLE {} CREATE BRANCH audit",
    "INSERT INTO {}.branch_audit VALUES (300, 'audited', NULL, 1.0)",
    "CALL ice.system.fast_forward('{}', 'main', 'audit')",
    "ALTER TABLE {} CREATE TAG v1 RETAIN 30 DAYS",
    "TRUNCATE TABLE {}",
    "INSERT INTO {} VALUES (400, 'last', NULL, 3.0)",
)


@pytest.mark.parametrize("version", [2, 3])
def test_lamella_reads_what_spark_writes(
    java_home: Path, rest_url: str, lake: Lamella, tmp_path: Path, version: int
) -> None:
    """Appends, row deltas, overwrites, compaction, branches and tags, in format versions 2 and 3."""
    assert java_home
    python = path_from_script("environment.py", "iceberg-spark")
    table, name = f"ice.written{version}.t", f"written{version}.t"
    lake.create_namespace(f"written{version}")
    statements = [
        _MAKE.replace("{}", table, 1).replace("{}", str(version)),
        *(s.format(table, table) for s in _STATEMENTS),
    ]
    back = f"CALL ice.system.rollback_to_snapshot('{table}', {{}})"
    queries = [each for text in statements for each in (text, _HEAD.format(table), _ROWS.format(table))]
    found = requested(python, rest_url, queries, tmp_path)
    heads: dict[int, list[Any]] = {}
    for text, done, head, rows in zip(statements, found[::3], found[1::3], found[2::3], strict=True):
        assert isinstance(done, list), (text, done)
        assert isinstance(rows, list), (text, rows)
        heads[int(head[0][0])] = rows
    checked = 0
    lamella = lake.table(name)
    for snapshot in lamella.snapshots():
        properties = lamella.snapshot(snapshot.snapshot_id).properties
        number = properties.get("lamella.source.version", "").rpartition("#")[2]
        if not number.isdigit() or int(number) not in heads:
            continue
        assert not properties.get("lamella.source.unread"), properties["lamella.source.unread"]
        read = lamella.scan("true", columns=["id", "name", "day", "price"], snapshot_id=snapshot.snapshot_id).to_arrow()
        assert _texts(read.to_pylist()) == sorted(map(repr, heads[int(number)])), snapshot.operation
        checked += 1
    assert checked >= len(heads)
    earliest = min(heads, key=lambda each: list(heads).index(each))
    again = requested(python, rest_url, [back.format(earliest), _ROWS.format(table)], tmp_path)
    assert again[1] == heads[earliest]
    read = lamella.scan("true", columns=["id", "name", "day", "price"]).to_arrow()
    assert _texts(read.to_pylist()) == sorted(map(repr, heads[earliest]))
    some = lamella.scan("id BETWEEN 13 AND 15 AND price > 13", columns=["id"]).to_arrow()
    assert sorted(some["id"].to_pylist()) == [14, 15]


def _texts(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as the program writes them."""
    made = []
    for row in rows:
        day = row["day"]
        cells = [row["id"], row["name"], None if day is None else day.replace(tzinfo=None), row["price"]]
        made.append([None if cell is None else str(cell) for cell in cells])
    return sorted(map(repr, made))


def requested(python: Path, rest_url: str, queries: list[str], folder: Path, **more: Any) -> list[Any]:
    """What Spark answers to each query."""
    given = {"uri": f"{rest_url}/iceberg", "ivy": str(IVY), "files": {}, "queries": queries, **more}
    done = subprocess.run(
        [python, str(PROGRAM)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        env=spark_environment(),
        cwd=folder,
        timeout=560,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    found: list[Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found

"""Trino writes tables through the service's Iceberg catalog; Lamella reads the same rows after every statement."""

# ruff: noqa: S608  # names of the tests' own tables in SQL
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from iceberg_rest.test_trino import shown
from lamella.client.http import Lamella
from support.trino import Trino, trino

pytestmark = [pytest.mark.soak, pytest.mark.process]

_COLUMNS: Final = ("id", "name", "day", "at", "price")
_MAKE: Final = """
CREATE TABLE lake.trino.t (id bigint, name varchar, day date, at timestamp(6), price decimal(10, 2))
WITH (format_version = 2, partitioning = ARRAY['month(day)', 'bucket(id, 2)'], sorted_by = ARRAY['id'])
"""
#: What changes the table.
_STATEMENTS: Final = (
    "INSERT INTO {} SELECT i, 'n' || CAST(i AS varchar), DATE '2024-01-30' + i % 3 * INTERVAL '1' DAY,"
    " TIMESTAMP '2024-01-01 00:00:00.000001', i FROM UNNEST(sequence(0, 39)) AS s(i)",
    "INSERT INTO {} VALUES (100, NULL, NULL, NULL, NULL), (101, 'ü', DATE '1969-12-31', NULL, -1.25)",
    "DELETE FROM {} WHERE id < 5",
    "DELETE FROM {} WHERE id % 10 = 7 OR name = 'ü'",
    "UPDATE {} SET name = 'updated', price = price + 1 WHERE id % 9 = 0",
    "MERGE INTO {} t USING (SELECT i FROM UNNEST(sequence(30, 49)) AS s(i)) s ON t.id = s.i"
    " WHEN MATCHED AND t.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET name = 'merged'"
    " WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.i, 'new')",
    "ALTER TABLE {} SET PROPERTIES partitioning = ARRAY['truncate(name, 2)']",
    "INSERT INTO {} VALUES (200, 'after', DATE '2024-03-01', TIMESTAMP '2024-03-01 01:02:03.5', 2.5)",
    "ALTER TABLE {} EXECUTE optimize",
    "ALTER TABLE {} EXECUTE optimize_manifests",
    "ALTER TABLE {} ADD COLUMN extra integer",
    "UPDATE {} SET extra = 7 WHERE id > 40",
    "ALTER TABLE {} DROP COLUMN extra",
    "ALTER TABLE {} EXECUTE expire_snapshots(retention_threshold => '0d')",
    "TRUNCATE TABLE {}",
    "INSERT INTO {} (id, name) VALUES (400, 'last')",
)


@pytest.fixture(scope="module")
def engine(rest_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    """A Trino with the service's tables as ``lake``."""
    lake = {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": f"{rest_url}/iceberg",
        "iceberg.rest-catalog.nested-namespace-enabled": "true",
        "iceberg.expire-snapshots.min-retention": "0d",
        "fs.native-local.enabled": "true",
        "local.location": "/",
    }
    with trino(tmp_path_factory.mktemp("trino"), lake=lake) as started:
        yield started


def rows_of(lake: Lamella, name: str, columns: tuple[str, ...]) -> list[list[Any]]:
    """All rows as Lamella's scan reads them, by id."""
    rows = lake.table(name).scan(columns=list(columns)).to_arrow().sort_by("id").to_pylist()
    return [[shown(row[each]) for each in columns] for row in rows]


def test_lamella_reads_what_trino_writes(engine: Trino, lake: Lamella, tmp_path: Path) -> None:
    """Inserts, row deltas, merges, changed columns and partitions, and maintenance."""
    engine.rows(f"CREATE SCHEMA lake.trino WITH (location = 'file://{tmp_path}')")
    engine.rows(_MAKE)
    query = f"SELECT {', '.join(_COLUMNS)} FROM lake.trino.t ORDER BY id"
    for statement in _STATEMENTS:
        engine.rows(statement.format("lake.trino.t"))
        table = lake.table("trino.t")
        properties = table.snapshot(next(iter(table.snapshots())).snapshot_id).properties
        assert not properties.get("lamella.source.unread"), (statement, properties)
        assert rows_of(lake, "trino.t", _COLUMNS) == engine.rows(query), statement
    table.append({"id": [401], "name": ["by lamella"]})
    assert engine.rows("SELECT id, name FROM lake.trino.t ORDER BY id") == [[400, "last"], [401, "by lamella"]]


def test_trino_makes_tables_from_queries_and_views(engine: Trino, lake: Lamella, tmp_path: Path) -> None:
    """Tables from queries, replaced and renamed ones; views; a namespace is dropped when it is empty."""
    engine.rows(f"CREATE SCHEMA lake.\"made.inner\" WITH (location = 'file://{tmp_path}')")
    name = 'lake."made.inner"'
    engine.rows(f"CREATE TABLE {name}.a AS SELECT 1 AS id, 'x' AS text")
    engine.rows(f"CREATE OR REPLACE TABLE {name}.a AS SELECT 2 AS id, CAST(ROW(1) AS ROW(a integer)) AS nested")
    engine.rows(f"ALTER TABLE {name}.a RENAME TO {name}.b")
    engine.rows(f"COMMENT ON TABLE {name}.b IS 'made by Trino'")
    engine.rows(f"CREATE VIEW {name}.v AS SELECT id + 1 AS next FROM {name}.b")
    assert engine.rows(f"SELECT next FROM {name}.v") == [[3]]
    assert engine.rows(f"SHOW TABLES FROM {name}") == [["b"], ["v"]]
    assert rows_of(lake, "made.inner.b", ("id",)) == [[2]]
    engine.rows(f"DROP VIEW {name}.v")
    engine.rows(f"DROP TABLE {name}.b")
    engine.rows(f"DROP SCHEMA {name}")
    assert "made.inner" not in [each.name for each in lake.namespaces()]


def test_trino_needs_a_namespace_with_a_location(engine: Trino) -> None:
    """Else it creates a table and then finds its metadata file where it expects nothing; a location is what helps."""
    engine.rows("CREATE SCHEMA lake.nowhere")
    with pytest.raises(RuntimeError, match="non-empty location"):
        engine.rows("CREATE TABLE lake.nowhere.t (id bigint)")

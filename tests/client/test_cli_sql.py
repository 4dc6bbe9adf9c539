"""``lamella sql``: the same answers as DuckDB over all rows, from the blocks and columns that its plan needs."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from lamella.client import Lamella
from lamella.client.cli.app import cli
from lamella.client.cli.sql import needs_of
from lamella.snapshot.schema import Column

LOTS = random.Random(5)
ROWS = [
    {
        "id": n,
        "k": LOTS.choice([None, 1, 2, 3, -(2**31)]),
        "s": LOTS.choice([None, "", "a", "B", "it's", "ü", "a\\b", "%"]),
        "x": LOTS.choice([None, 0.5, -0.0, float("nan")]),
    }
    for n in range(120)
]
TYPES = pa.schema([("id", pa.int64()), ("k", pa.int32()), ("s", pa.string()), ("x", pa.float64())])
OTHERS = pa.table({"id": range(0, 120, 7), "name": [f"n{n}" for n in range(0, 120, 7)]})
Run = Callable[..., Result]

QUERIES = [
    "SELECT * FROM db.t",
    "SELECT count(*) AS n FROM db.t",
    "SELECT count(k) AS n, sum(k) AS s FROM db.t WHERE id >= 40 AND id < 60",
    "SELECT id FROM db.t WHERE id BETWEEN 30 AND 33 OR k = 2",
    "SELECT id FROM db.t WHERE id IN (1, 50, 119)",
    "SELECT id, s FROM db.t WHERE s = 'a' AND id > 60",
    "SELECT id FROM db.t WHERE s = 'it''s'",
    "SELECT id FROM db.t WHERE s = 'a\\b'",
    "SELECT id FROM db.t WHERE s > 'B' AND s < 'z'",
    "SELECT id FROM db.t WHERE s LIKE 'a%'",
    "SELECT id FROM db.t WHERE s <> 'a' AND k IS NOT NULL AND id < 20",
    "SELECT id FROM db.t WHERE k IS NULL AND id > 100",
    "SELECT id FROM db.t WHERE x > 0.1",
    "SELECT id FROM db.t WHERE NOT (id > 5)",
    "SELECT id FROM db.t WHERE id + 1 > 118",
    "SELECT id FROM db.t WHERE k = -2147483648",
    "SELECT id FROM db.t ORDER BY id DESC LIMIT 3",
    "SELECT t.id, u.name FROM db.t JOIN db.u AS u ON t.id = u.id WHERE u.id > 90",
    "SELECT u.id, t.k FROM db.u LEFT JOIN db.t ON t.id = u.id AND t.k = 2",
    "SELECT a.id FROM db.t AS a, db.t AS b WHERE a.id = b.id + 1 AND a.id > 100 AND b.id > 110",
    "SELECT id FROM db.t WHERE id > 110 UNION ALL SELECT id FROM db.t WHERE id < 3",
    "SELECT id FROM db.t WHERE id > (SELECT max(id) FROM db.u) - 2",
    "SELECT id FROM db.t WHERE NOT EXISTS (SELECT 1 FROM db.u AS u WHERE u.id = t.id) AND id < 9",
    "WITH w AS (SELECT * FROM db.t WHERE id < 10) SELECT count(*) AS n FROM w WHERE k = 1",
    "SELECT s, count(*) AS n, max(id) AS m FROM db.t GROUP BY s HAVING count(*) > 3",
    "SELECT k, row_number() OVER (PARTITION BY k ORDER BY id) AS r FROM db.t WHERE k = 1",
    "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS r FROM db.t) WHERE r = 5 AND id > 0",
    'SELECT "id" FROM "db"."t" WHERE "id" = 7',
    "SELECT ID FROM db.t WHERE ID = 7",
    "SELECT 1 AS one",
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lamella]:
    """The tables db.t, of six blocks, and db.u."""
    with Lamella.embedded(tmp_path_factory.mktemp("lake")) as opened:
        for first in range(0, 120, 20):
            opened.table("db.t").append(pa.Table.from_pylist(ROWS[first : first + 20], schema=TYPES), create=True)
        opened.table("db.u").append(OTHERS, create=True)
        yield opened


@pytest.fixture
def run(lake: Lamella) -> Run:
    """A command against the lake."""

    def invoke(*words: str, status: int = 0) -> Result:
        result = CliRunner().invoke(cli, [*words, "--url", lake.url])
        assert result.exit_code == status, (result.output, result.exception)
        return result

    return invoke


def _whole(query: str) -> list[str]:
    """The rows of a query over all rows, in DuckDB alone."""
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA db")
        for name, rows in (("t", pa.Table.from_pylist(ROWS, schema=TYPES)), ("u", OTHERS)):
            connection.register("source", rows)
            connection.execute(f"CREATE TABLE db.{name} AS SELECT * FROM source")  # noqa: S608
            connection.unregister("source")
        found = connection.sql(query).to_arrow_table().to_pylist()
    return sorted(map(repr, (tuple(map(_comparable, row.values())) for row in found)))


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value if value is None or isinstance(value, int | str) else str(value)


@pytest.mark.parametrize("query", QUERIES)
def test_the_rows_are_those_of_a_full_scan(run: Run, query: str) -> None:
    """Whatever is left out of the reading."""
    rows = [json.loads(line) for line in run("sql", query, "-o", "json").stdout.splitlines()]
    assert sorted(map(repr, (tuple(map(_comparable, row.values())) for row in rows))) == _whole(query)


@pytest.mark.parametrize(
    ("query", "columns", "filter", "blocks"),
    [
        ("SELECT s FROM db.t WHERE id > 110", "id, s", "`id` > 110", 1),
        ("SELECT count(*) FROM db.t", "id", None, 6),
        ("SELECT id FROM db.t WHERE id BETWEEN 30 AND 45", "id", "`id` <= 45 AND `id` >= 30", 2),
        ("SELECT k FROM db.t JOIN db.u USING (id) WHERE u.id >= 100", "id, k", "`id` >= 100", 1),
        ("SELECT id FROM db.t WHERE x > 0.5", "id, x", None, 6),
        ("SELECT id FROM db.t WHERE s LIKE 'a%b' AND id < 20", "id, s", "`id` < 20", 1),
        ("SELECT id FROM db.t WHERE id > 110 UNION ALL SELECT k FROM db.t WHERE id > 90", "id, k", None, 6),
    ],
)
def test_columns_and_filters_reach_the_plan(
    run: Run, query: str, columns: str, filter: str | None, blocks: int
) -> None:
    """What DuckDB pushes down to a table, and this reader understands; of several scans what all ask for."""
    shown = [json.loads(line) for line in run("sql", query, "--explain", "-o", "json").stdout.splitlines()]
    found = {row["table"]: row for row in shown}["db.t"]
    assert (found["columns"], found["blocks"], found["of"]) == (columns, blocks, 6)
    assert filter is None or filter in found["filter"]
    assert filter is not None or found["filter"] is None


def test_filters_that_mean_something_else_are_left_to_duckdb() -> None:
    """Of types whose order or literals differ, and of text that could be read in another way."""
    schema = pa.schema(
        [("a", pa.float64()), ("u", pa.uint8()), ("s", pa.string()), ("d", pa.date32()), ("a b", pa.int8())]
    )
    for condition in (
        "a > 1",
        "u > 1",
        "s = 'x\\y'",
        "s = 'it''s'",
        "d > DATE '2026-01-01'",
        '"a b" > 1',
        "s LIKE '%x'",
    ):
        need = needs_of(f"SELECT * FROM db.t WHERE {condition}", {"db.t": schema})["db.t"]  # noqa: S608
        assert need.filter in (None, "`s` IS NOT NULL"), condition


def test_text_of_limited_length_is_left_to_duckdb(tmp_path: Path) -> None:
    """``char`` compares padded in Spark's dialect and as it is stored in DuckDB: only DuckDB decides."""
    with Lamella.embedded(tmp_path) as lake:
        lake.create_namespace("db")
        lake.create_table("db.t", schema=[Column(name="c", type="char(3)"), Column(name="v", type="varchar(3)")])
        lake.table("db.t").append(pa.table({"c": ["a", "b"], "v": ["a", "b"]}))
        for condition in ("c = 'a'", "c = 'a  '", "v = 'a'"):
            query = f"SELECT v FROM db.t WHERE {condition}"  # noqa: S608
            words = ["sql", query, "-o", "json", "--url", lake.url]
            shown = CliRunner().invoke(cli, [*words, "--explain"])
            assert json.loads(shown.stdout)["filter"] is None, shown.output
            stored = lake.table("db.t").scan().to_arrow()
            with duckdb.connect() as connection:
                connection.register("stored", stored)
                whole = connection.sql(query.replace("db.t", "stored")).fetchall()
            found = CliRunner().invoke(cli, words).stdout.splitlines()
            assert [tuple(json.loads(line).values()) for line in found] == whole


def test_errors_are_one_line(run: Run) -> None:
    """Of DuckDB, for a table that is not there, for a statement that it cannot read."""
    for query in ("SELECT * FROM db.missing", "SELECT nope FROM db.t", "SELEC 1"):
        result = run("sql", query, status=1)
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert len(result.stderr.splitlines()) == 1


def test_a_misspelt_table_is_named_with_a_similar_one(run: Run) -> None:
    """By the service; a name in the query that is no table is left to DuckDB."""
    assert "there is no table db.tt" in run("sql", "SELECT 1 FROM db.tt", status=1).stderr
    assert "did you mean db" in run("sql", "SELECT 1 FROM dbb.t", status=1).stderr
    assert "namespace" in run("sql", 'SELECT 1 FROM db.t JOIN "nowhere".t USING (id)', status=1).stderr
    assert "Binder Error" in run("sql", "SELECT x.id FROM db.t AS y", status=1).stderr


def test_messages_of_duckdb_show_no_other_query(run: Run) -> None:
    """They are those of the query that was given, and say what to do with words of SQL."""
    shown = run("sql", "SELECT max(at) FROM db.t", status=1).stderr
    assert (
        shown
        == 'error: Parser Error: syntax error at or near ")"; names that are words of SQL need quotes, such as "at"\n'
    )
    assert "EXPLAIN" not in run("sql", "SELECT idd FROM db.t", status=1).stderr


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_are_shown_in_any_unit(run: Run, unit: str) -> None:
    """Of a query's own types, and inside of others."""
    name = {"s": "TIMESTAMP_S", "ms": "TIMESTAMP_MS", "us": "TIMESTAMP", "ns": "TIMESTAMP_NS"}[unit]
    at = f"'2025-01-01 00:55:00'::{name}"
    query = f"SELECT {at} AS one, [{at}] AS several, {{'a': {at}}} AS part"
    shown = "2025-01-01T00:55:00"
    assert json.loads(run("sql", query, "-o", "json").stdout) == {
        "one": shown,
        "several": [shown],
        "part": {"a": shown},
    }


def test_times_of_tables_are_shown_in_any_unit(tmp_path: Path) -> None:
    """Also those that a file has in nanoseconds, as pandas writes them."""
    with Lamella.embedded(tmp_path / "lake") as opened:
        units = ("ms", "us", "ns")
        at = datetime(2025, 1, 1, 0, 55)  # noqa: DTZ001  # a time without a zone
        rows = pa.table({unit: pa.array([at], pa.timestamp(unit)) for unit in units} | {"id": [1]})
        opened.create_namespace("db")
        columns = {unit: f"timestamp_ntz({unit})" for unit in units} | {"id": "int64"}
        opened.create_table("db.t", schema=columns)
        pq.write_table(rows, tmp_path / "a.parquet", version="2.6")
        opened.table("db.t").register([f"file://{tmp_path}/a.parquet"])
        for words in (["sql", "SELECT * FROM db.t"], ["scan", "db.t"]):
            result = CliRunner().invoke(cli, [*words, "-o", "json", "--url", opened.url])
            assert json.loads(result.stdout) == {**dict.fromkeys(units, "2025-01-01T00:55:00"), "id": 1}, result.output


def test_without_duckdb_the_error_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line."""
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    assert "pip install 'lamella[duckdb]'" in run("sql", "SELECT 1", status=1).stderr

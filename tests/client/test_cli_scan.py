"""``lamella scan`` and the other commands and names that came with it, over an embedded lake."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import lamella.client
from lamella.client import Lamella
from lamella.client.cli.app import cli

ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": 'say "a,b"', "price": Decimal("1.50"), "day": dt.date(2026, 1, 31), "x": 0.5, "tags": ["a"]},
    {"id": 2, "name": "", "price": None, "day": None, "x": float("nan"), "tags": []},
    {"id": 3, "name": None, "price": Decimal("-0.01"), "day": dt.date(1, 1, 1), "x": float("-inf"), "tags": None},
    {"id": 4, "name": "two\nlines", "price": Decimal("2.00"), "day": None, "x": None, "tags": [None, "ü"]},
]
TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("x", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lamella]:
    """The tables db.items, of two blocks, and db.many, of more rows than a table shows."""
    with Lamella.embedded(tmp_path_factory.mktemp("lake")) as opened:
        items = opened.table("db.items")
        items.append(pa.Table.from_pylist(ROWS[:2], schema=TYPES), create=True)
        items.append(pa.Table.from_pylist(ROWS[2:], schema=TYPES))
        opened.table("db.many").append(pa.table({"n": range(150)}), create=True)
        yield opened


@pytest.fixture
def run(lake: Lamella) -> Run:
    """A command against the lake."""

    def invoke(*words: str, status: int = 0) -> Result:
        result = CliRunner().invoke(cli, [*words, "--url", lake.url], obj=lambda _target: Lamella.embedded(lake.url))
        assert result.exit_code == status, (result.output, result.exception)
        return result

    return invoke


def test_json_has_an_object_for_each_row_with_exact_values(run: Run) -> None:
    """In the order of the columns; numbers that JSON does not have are text."""
    shown = [json.loads(line) for line in run("scan", "db.items", "-o", "json").stdout.splitlines()]
    assert sorted(shown, key=lambda row: row["id"]) == [
        {"id": 1, "name": 'say "a,b"', "price": "1.50", "day": "2026-01-31", "x": 0.5, "tags": ["a"]},
        {"id": 2, "name": "", "price": None, "day": None, "x": "NaN", "tags": []},
        {"id": 3, "name": None, "price": "-0.01", "day": "0001-01-01", "x": "-Infinity", "tags": None},
        {"id": 4, "name": "two\nlines", "price": "2.00", "day": None, "x": None, "tags": [None, "ü"]},
    ]
    assert run("scan", "db.items", "--json").stdout == run("scan", "db.items", "-o", "json").stdout


def test_csv_can_be_read_again_and_keeps_nulls_from_empty_text(run: Run) -> None:
    """A null is an empty field; empty text is quoted."""
    text = run("scan", "db.items", "-o", "csv", "--columns", "id,name,tags").stdout
    head, *rows = csv.reader(io.StringIO(text))
    assert head == ["id", "name", "tags"]
    assert sorted(rows) == [
        ["1", 'say "a,b"', '["a"]'],
        ["2", "", "[]"],
        ["3", "", ""],
        ["4", "two\nlines", '[null,"ü"]'],
    ]
    assert '2,"",[]' in text.splitlines()
    assert "3,," in text.splitlines()


def test_filters_columns_order_and_limit_select_rows(run: Run) -> None:
    """As in Python."""
    assert run("scan", "db.many", "n >= 148", "-o", "csv").stdout.split() == ["n", "148", "149"]
    words = ("scan", "db.many", "--order-by", "n DESC", "--limit", "2", "-o", "csv")
    assert run(*words).stdout.split() == ["n", "149", "148"]
    assert run("scan", "db.many", "n < 0", "-o", "csv").stdout == "n\n"
    assert run("scan", "db.many", "n < 0", "-o", "json").stdout == ""
    assert "1.50" in run("scan", "db.items", "id = 1", "--columns", "price").stdout


def test_a_table_says_when_it_is_not_all(run: Run) -> None:
    """On stderr; other forms have all rows, and so has a table with a limit."""
    cut = run("scan", "db.many")
    assert len(cut.stdout.split()) == 102  # with the heading and its line
    assert "there are more" in cut.stderr
    for words, count in ((("--limit", "120"), 122), (("-o", "csv"), 151)):
        whole = run("scan", "db.many", *words)
        assert len(whole.stdout.split()) == count
        assert whole.stderr == ""
    assert run("scan", "db.many", "n < 100").stderr == ""


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("scan", "db.item"), 1, "did you mean db.items?"),
        (("prune", "db.mnay"), 1, "did you mean db.many?"),
        (("scan", "db.nothing_like_it"), 1, "[table_not_found]\n"),
        (("scan", "other.items"), 1, "error: "),
        (("scan", "db.items", "naem = 'a'"), 1, "did you mean name?"),
        (("scan", "db.items", "--columns", "idd"), 1, "did you mean id?"),
        (("scan", "db.items", "id = "), 1, "^"),
        (("scan", "db.items", "-o", "xml"), 2, "[usage]"),
        (("scan", "db.items", "--json", "-o", "csv"), 2, "give one of --json and -o csv"),
        (("scan", "db.items", "--order-by", "id"), 2, "--order-by needs --limit"),
        (("delete", "db.items"), 2, "give exactly one of --where SQL and --all"),
        (("delete", "db.items", "--all", "--where", "true"), 2, "give exactly one of --where SQL and --all"),
        (("update", "db.items", "--set", "id=1"), 2, "give exactly one of --where SQL and --all"),
        (("scna", "db.items"), 2, "did you mean"),
        (("scan", "db.items", "--limt", "1"), 2, "did you mean"),
    ],
)
def test_an_error_is_one_line_with_what_may_be_meant(run: Run, words: tuple[str, ...], status: int, said: str) -> None:
    """On stderr, in one form; nothing is written to stdout."""
    result = run(*words, status=status)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert said.lower() in result.stderr.lower()


def test_delete_all_deletes_every_row(tmp_path: Path) -> None:
    """Nulls, too; the table stays."""
    with Lamella.embedded(tmp_path) as lake:
        lake.table("db.t").append(pa.table({"a": [1, None]}), create=True)
        words = ["delete", "db.t", "--all", "--url", lake.url]
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, result.output
        assert "2 rows deleted" in result.stdout
        assert lake.table("db.t").scan().count() == 0


def test_the_version_is_that_of_the_distribution() -> None:
    """For programs and as a module."""
    assert lamella.client.__version__ == version("lamella")
    assert "__version__" in dir(lamella.client)
    done = subprocess.run(
        [sys.executable, "-m", "lamella", "--version"], check=True, capture_output=True, text=True, timeout=300
    )
    assert done.stdout == f"lamella, version {version('lamella')}\n"

"""``-o`` of all commands: the answer as JSON, or its list as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from lamella.client import Lamella
from lamella.client.cli.app import cli
from lamella.client.cli.rows import DataWriter
from lamella.snapshot import wire

Run = Callable[..., Result]
#: Commands that have no result of their own form.
WITHOUT = {"lamella serve", "lamella worker", "lamella completion"}
#: Commands that list something, and where JSON has the list.
LISTS = {
    "namespaces list": "namespaces",
    "tables list db": "tables",
    "tables dropped db": "tables",
    "schema show db.t": "schema.columns",
    "snapshots db.t": "snapshots",
    "tag list db.t": "tags",
    "index kinds": "kinds",
    "index list db.t": "indexes",
    "job list": "jobs",
    "job kinds": "kinds",
    "schedule list db.t": "schedules",
    "views list db": "views",
    "recorded list db.t": "filters",
    "advise db.t": "scores",
    "why-not db.t a=3": "answers",
    "auto ledger db.t": "actions",
    "prune-rates db.t": "series",
    "service-rates": "series",
    "audit": "entries",
    "keys list": "keys",
    "grants list": "grants",
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lamella]:
    """A lake with a table of two blocks, a tag, an index and a dropped table."""
    with Lamella.embedded(tmp_path_factory.mktemp("lake")) as opened:
        table = opened.table("db.t")
        table.append(pa.table({"a": [1, 2, 3], "s": ["x", 'a "b", c', None]}), create=True)
        table.append(pa.table({"a": [7, 8], "s": ["y", ""]}))
        table.tag("first")
        table.create_index("by_s", "bloom", "s")
        opened.table("db.gone").append(pa.table({"a": [1]}), create=True)
        opened.drop_table("db.gone")
        yield opened


@pytest.fixture
def run(lake: Lamella) -> Run:
    """A command against the lake."""

    def invoke(*words: str, status: int = 0) -> Result:
        result = CliRunner().invoke(cli, [*words, "--url", lake.url], obj=lambda _target: Lamella.embedded(lake.url))
        assert result.exit_code == status, (result.output, result.exception)
        return result

    return invoke


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something itself, by its full name."""
    if isinstance(command, click.Group):
        for sub, below in command.commands.items():
            yield from commands(below, f"{name} {sub}")
    else:
        yield name, command


def records(text: str) -> list[dict[str, str]]:
    """The rows of CSV by the names in its first line."""
    return list(csv.DictReader(io.StringIO(text), strict=True))


def test_every_command_has_the_option() -> None:
    """``-o`` and ``--json`` are there wherever a command has a result, and nothing else is called ``-o``."""
    lacking = {
        name
        for name, command in commands(cli, "lamella")
        if not {("--output", "-o"), ("--json",)} <= {tuple(p.opts) for p in command.params}
    }
    assert lacking == WITHOUT


@pytest.mark.parametrize("words", LISTS)
def test_csv_has_a_line_for_each_item_of_the_list(words: str, run: Run) -> None:
    """With the members of JSON as columns, and the same values."""
    found: Any = json.loads(run(*words.split(), "-o", "json").stdout)
    for part in LISTS[words].split("."):
        found = found[part]
    text = run(*words.split(), "-o", "csv").stdout
    rows = records(text)
    assert len(rows) == len(found)
    for row, item in zip(rows, found, strict=True):
        members = item if isinstance(item, dict) else {LISTS[words]: item}
        assert set(members) <= set(row)
        for name, value in members.items():
            if isinstance(value, str):
                assert row[name] == value
            elif isinstance(value, list | dict):
                assert json.loads(row[name]) == value
            elif value is None:
                assert row[name] == ""


def test_lists_without_items_still_name_their_columns(run: Run) -> None:
    """A program finds the columns that it expects."""
    assert run("job", "list", "-o", "csv").stdout.startswith("job_id,")
    assert run("keys", "list", "-o", "csv").stdout.startswith("name,")


def test_an_answer_without_a_list_is_one_line(run: Run) -> None:
    """What JSON has nested is JSON in its field."""
    (row,) = records(run("tables", "show", "db.t", "-o", "csv").stdout)
    shown = json.loads(run("tables", "show", "db.t", "--json").stdout)
    assert row["name"] == "t"
    assert row["row_count"] == "5"
    assert json.loads(row["schema"])["columns"][0]["name"] == shown["schema"]["columns"][0]["name"] == "a"


def test_an_answer_without_members_has_no_line(run: Run, lake: Lamella) -> None:
    """As ``{}`` in JSON."""
    lake.create_namespace("empty")
    assert run("namespaces", "drop", "empty", "-o", "csv").stdout == ""


def test_prune_and_diff_have_a_line_for_each_block(run: Run, lake: Lamella) -> None:
    """The blocks of a prune; those of a difference with what became of them."""
    table = lake.table("db.t")
    (selected,) = records(run("prune", "db.t", "a > 6", "-o", "csv").stdout)
    assert selected["location"] == next(iter(table.prune("a > 6"))).location
    assert selected["verdict"] == "ALL"
    segments = records(run("prune", "db.t", "a > 6", "--level", "segment", "-o", "csv").stdout)
    assert [row["block_count"] for row in segments] == ["1"]
    second, first, *_ = table.snapshots()
    added = records(run("diff", "db.t", first.snapshot_id, second.snapshot_id, "-o", "csv").stdout)
    assert [(row["change"], row["location"]) for row in added] == [("added", selected["location"])] or added == []


def test_aggregates_are_rows_and_bounds_have_names_of_their_own(run: Run) -> None:
    """A bound must not look like a result."""
    exact = run("aggregate", "db.t", "count(*)", "max(a)", "max(s)", "-o", "csv").stdout
    assert exact.splitlines() == ["count(*),max(a),max(s)", "5,8,y"]
    bounds = run("aggregate", "db.t", "count(*)", "--where", "a > 1 AND a < 8", "--no-scan", "-o", "csv", status=1)
    assert bounds.stdout.splitlines()[0] == "count(*) lower,count(*) upper"
    low, high = (int(value) for value in bounds.stdout.splitlines()[1].split(","))
    assert low <= 3 <= high


def test_samples_and_rows_are_the_rows_themselves(run: Run) -> None:
    """With the columns of the table, not with the members of the answer."""
    text = run("sample", "db.t", "a <= 3", "-o", "csv").stdout
    assert sorted(row["s"] for row in records(text)) == ["", 'a "b", c', "x"]
    assert sorted(text.splitlines()) == sorted(run("scan", "db.t", "a <= 3", "-o", "csv").stdout.splitlines())


def test_another_list_after_the_first_names_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that writes answers one by one names the columns once, unless they change."""
    writer = DataWriter("csv")
    writer.write(wire.RecordedCleared(filters=1))
    writer.write(wire.RecordedCleared(filters=2))
    writer.write({"name": "a,b", "none": None, "some": ["x"]})
    assert capsys.readouterr().out.splitlines() == ["filters", "1", "2", "name,none,some", '"a,b",,"[""x""]"']


def test_an_interrupted_command_says_so_with_the_status_of_shells() -> None:
    """A pipeline can tell Ctrl-C from a failure."""

    def interrupted(_target: object) -> Lamella:
        raise KeyboardInterrupt

    result = CliRunner().invoke(cli, ["whoami"], obj=interrupted)
    assert (result.exit_code, result.stderr) == (130, "\nerror: interrupted\n")


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("--cluster-by", "a,s"), ["a", "s"]),
        (("--cluster-by", "a", "--cluster-by", "s"), ["a", "s"]),
        (("--cluster-by", "left(s, 2), a"), ["left(s, 2)", "a"]),
    ],
)
def test_a_cluster_key_is_a_list_or_an_option_given_again(
    words: tuple[str, ...], key: list[str], run: Run, lake: Lamella
) -> None:
    """The same wherever a command takes a key; commas inside parentheses belong to their term."""
    made = json.loads(
        run("tables", "create", "db.keyed", "--column", "a:int64", "--column", "s:string", *words, "--json").stdout
    )
    lake.drop_table("db.keyed", purge=True)
    assert made["cluster_key"] == key


@pytest.mark.parametrize(("age", "status"), [("90s", 0), ("2d", 0), ("3600", 0), ("0s", 2), ("soon", 2)])
def test_since_is_an_age(age: str, status: int, run: Run) -> None:
    """As for all durations; no time at all cannot be meant."""
    assert ("--since" in run("prune-rates", "db.t", "--since", age, status=status).output) == (status == 2)


def test_json_and_another_form_contradict_each_other(run: Run) -> None:
    """One of two options would be ignored."""
    assert (
        "give one of --json and -o csv [usage]" in run("tables", "list", "db", "--json", "-o", "csv", status=2).output
    )

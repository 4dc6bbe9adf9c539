"""`aggregate` through the clients, the command and a running service."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fixtures_server import ServerProcess
from lamella.client import AsyncLamella, Lamella
from lamella.client.cli.app import cli
from lamella.client.http.results import python_value
from lamella.client.scan.aggregates import complete, completed_answer
from lamella.snapshot.errors import InvalidRequest, UnknownColumn
from lamella.snapshot.schema import parse_type
from lamella.snapshot.stats import Bound, to_bound


@pytest.fixture
def lake(server: ServerProcess, tmp_path: Path) -> Iterator[Lamella]:
    """A service with the table `db.t`: four blocks of ten rows, one for each value of `day`."""
    with Lamella(server.url) as lake:
        lake.create_namespace("db")
        files = []
        for n in range(4):
            path = tmp_path / f"{n}.parquet"
            day = dt.date(2026, 1, 1 + n)
            pq.write_table(pa.table({"a": range(n * 10, n * 10 + 10), "day": [day] * 10}), path)
            files.append(f"file://{path}")
        lake.create_table("db.t", schema_from=files[0])
        lake.table("db.t").register(files)
        yield lake


def test_the_clients_give_python_values(lake: Lamella) -> None:
    """What statistics decide comes back as values; what they do not is an error until the blocks are scanned."""
    table = lake.table("db.t")
    answer = table.aggregate(["count(*)", "max(a)", "min(day)"], "a >= 20")
    assert answer.records() == [{"count(*)": 20, "max(a)": 39, "min(day)": dt.date(2026, 1, 3)}]
    grouped = table.aggregate(["count(*)"], group_by=["day"]).records()
    assert [(row["day"].day, row["count(*)"]) for row in grouped] == [(1, 10), (2, 10), (3, 10), (4, 10)]
    part = table.aggregate(["count(*)"], "a > 12")
    assert [block.verdict for block in part.scan] == ["SOME"]
    with pytest.raises(InvalidRequest):
        part.records()
    with pytest.raises(UnknownColumn):
        table.aggregate(["max(b)"])

    async def same() -> object:
        async with AsyncLamella(lake.url) as other:
            return await other.table("db.t").aggregate(["count(*)", "max(a)", "min(day)"], "a >= 20")

    assert asyncio.run(same()).groups == answer.groups  # type: ignore[attr-defined]  # an Aggregated


def test_the_command_shows_results_limits_and_what_is_missing(lake: Lamella) -> None:
    """Values for people; with --json the service's answer."""

    def run(*args: str, exit_code: int = 0) -> str:
        result = CliRunner().invoke(cli, ["aggregate", "db.t", *args, "--url", lake.url])
        assert result.exit_code == exit_code, result.output
        return result.output

    assert "2026-01-02" in run("count(*)", "--group-by", "day")
    assert "exact, from statistics\n" in run("count(*)")
    assert "20 to 30" in run("count(*)", "--where", "a > 12", "--mode", "bounded")
    answer = json.loads(run("count(*)", "max(a)", "--json"))
    assert answer["groups"][0]["values"] == [{"value": {"Int64": 40}}, {"value": {"Int64": 39}}]
    both = ["aggregate", "db.t", "count(*)", "--snapshot", "x", "--timestamp", "1"]
    assert CliRunner().invoke(cli, both).exit_code == 2


def test_a_result_that_the_statistics_do_not_decide_is_never_shown_as_one(lake: Lamella) -> None:
    """Limits and exit status 1 in the command; ``exact`` is false for each value that a scan may change."""

    def run(*args: str) -> str:
        result = CliRunner().invoke(cli, ["aggregate", "db.t", *args, "--no-scan", "--url", lake.url])
        assert result.exit_code == 1, result.output
        return result.output

    shown = run("count(*)", "max(a)", "--where", "a > 12")
    assert "20 to 30" in shown
    assert "39" in shown
    assert "bounds of the result" in shown
    assert "the rows of 1 block" in shown
    assert "exact" not in shown
    as_json = ["aggregate", "db.t", "count(*)", "--where", "a > 12", "--no-scan", "--json", "--url", lake.url]
    result = CliRunner().invoke(cli, as_json)
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["complete"] is False
    assert answer["groups"][0]["values"] == [{"exact": False, "value": {"Int64": 20}}]
    groups = lake.table("db.t").aggregate(["count(*)"], "a > 12", group_by=["day"]).groups
    assert [group.values[0].exact for group in groups] == [True, True]  # the day that a scan decides is not listed
    assert "there may be other groups" not in run("count(*)", "--where", "a > 12", "--group-by", "day")
    for impossible in ("day = '2026-13-45'", "day < 3", "a < X'00'", "day IN ('2026-01-01', true)"):
        assert "^" in run("count(*)", "--where", f"a > 12 AND {impossible}"), impossible


def test_the_command_reads_the_rows_that_statistics_leave(lake: Lamella) -> None:
    """So its result is exact, in text and in JSON, with groups, and says how many blocks were read."""

    def run(*args: str) -> str:
        result = CliRunner().invoke(cli, ["aggregate", "db.t", *args, "--url", lake.url])
        assert result.exit_code == 0, result.output
        return result.output

    for number in range(40):
        shown = run("count(*)", "max(a)", "--where", f"a > {number}").splitlines()
        assert shown[-1].split() == [str(39 - number), "39" if number < 39 else "null"]
        assert ("rows of 1 block" in shown[1]) == (number % 10 != 9)
    assert run("sum(a)", "--where", "a > 12").split()[-1] == str(sum(range(13, 40)))
    answer = json.loads(run("count(*)", "min(a)", "--where", "a > 12", "--group-by", "day", "--json"))
    assert (answer["complete"], answer["scan"], answer["scan_blocks"], answer["other_groups"]) == (True, [], 0, False)
    groups = {
        group["key"][0]["Date"]: [value["value"]["Int64"] for value in group["values"]] for group in answer["groups"]
    }
    assert [groups[day] for day in sorted(groups)] == [[7, 13], [10, 20], [10, 30]]
    assert "exact, from statistics\n" in run("count(*)", "--where", "a >= 20")
    assert "20 to 30" in run("count(*)", "--where", "a > 12", "--mode", "bounded")


def test_values_that_python_cannot_hold_are_shown_as_text(tmp_path: Path) -> None:
    """Nanoseconds, as SQL writes them, in tables and in CSV."""
    with Lamella.embedded(tmp_path / "lake") as lake:
        lake.create_namespace("n")
        lake.create_table("n.t", schema={"at": "timestamp_ntz(ns)", "clock": "time(ns)"})
        rows = {
            "at": pa.array([1_735_692_900_000_000_001], pa.timestamp("ns")),
            "clock": pa.array([1], pa.time64("ns")),
        }
        pq.write_table(pa.table(rows), tmp_path / "a.parquet")
        lake.table("n.t").register([f"file://{tmp_path}/a.parquet"])
        for form in ("table", "csv"):
            words = ["aggregate", "n.t", "max(at)", "min(clock)", "--url", lake.url, "-o", form]
            shown = CliRunner().invoke(cli, words).stdout
            assert "2025-01-01 00:55:00.000000001" in shown
            assert "00:00:00.000000001" in shown
            assert "Nanos" not in shown


def test_a_completed_answer_has_the_values_of_statistics(tmp_path: Path) -> None:
    """Of each type, as keys and as results: what the service says, read into Arrow and back, is the same."""
    rows = pa.table(
        {
            "b": pa.array([True, False, None]),
            "i": pa.array([-(2**63), 2**63 - 1, None]),
            "u": pa.array([0, 2**64 - 1, None], pa.uint64()),
            "f": pa.array([float("nan"), -0.0, None]),
            "g": pa.array([float("-inf"), 1.5, None], pa.float32()),
            "d": pa.array([Decimal("-0.01"), Decimal("9" * 36 + ".99"), None], pa.decimal128(38, 2)),
            "s": pa.array(["", "ü", None]),
            "x": pa.array([b"", b"\xff\x00", None]),
            "day": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
            "t": pa.array([-1, 10**17, None], pa.timestamp("us", "UTC")),
            "n": pa.array([-1, 10**17, None], pa.timestamp("us")),
        }
    )
    with Lamella.embedded(tmp_path) as lake:
        table = lake.table("db.t")
        table.append(rows, create=True)
        names = rows.column_names
        for name in names:
            answer = table.aggregate([f"count({name})", f"min({name})", f"max({name})"])
            assert answer.complete or name == "f"  # of NaN there are no statistics in a file
            assert completed_answer(answer, complete(answer)).groups == answer.groups or name == "f"
            some = table.scan(f"{name} IS NULL OR i IS NOT NULL")
            whole, read = some.aggregate_answer([f"max({name})", "sum(i)"], group_by=[name])
            assert len(read) == 1
            keys = {group.key[0] for group in whole.groups}
            assert len(keys) == 3
            assert all(group.values[0].value == group.key[0] for group in whole.groups)


def test_the_services_clock_decides_what_now_is(lake: Lamella) -> None:
    """Filters relative to the time prune over HTTP, each request by its own moment; pages do not use them."""
    table = lake.table("db.t")
    for text in (
        "day >= current_date() - interval 1 day",
        "CAST(day AS TIMESTAMP_NTZ) > localtimestamp() - INTERVAL '12' HOURS",
        "day > date_sub(current_date, 7)",
    ):
        assert table.prune(text, time_zone="Pacific/Kiritimati").block_count == 0, text
    assert {block.verdict for block in table.prune("day < current_date()").records()} == {"ALL"}
    assert table.aggregate(["count(*)"], "day <= current_date - INTERVAL 1 DAY").records() == [{"count(*)": 40}]
    paged = table.prune("day > current_date()", page_size=2)
    assert paged.block_count == 4
    assert table.prune("day > current_date()", level="segment").segments != ()
    assert [each.predicate for each in paged.report.not_used] == ["day > current_date()"]


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("int64", -5, -5),
        ("uint64", 2**64 - 1, 2**64 - 1),
        ("float64", float("inf"), float("inf")),
        ("boolean", 1, True),
        ("string", "ä".encode(), "ä"),
        ("binary", b"\xff", b"\xff"),
        ("decimal(38,10)", -(10**37) - 1, Decimal("-1000000000000000000000000000.0000000001")),
        ("date", 20_454, dt.date(2026, 1, 1)),
        ("time(us)", 1, dt.time(0, 0, 0, 1)),
        ("timestamp(ms)", 1, dt.datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=dt.UTC)),
        ("timestamp_ntz(us)", 1, dt.datetime(1970, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001  # wall clock
    ],
)
def test_tagged_values_become_pythons_own(kind: str, value: int | float | bytes, wanted: object) -> None:
    """Nothing is rounded on the way."""
    assert python_value(kind, to_bound(parse_type(kind), value)) == wanted


@pytest.mark.parametrize(
    ("kind", "bound"),
    [
        ("date", Bound(date=10**7)),
        ("timestamp(us)", Bound(timestamp_micros=2**63 - 1)),
        ("timestamp(ns)", Bound(timestamp_nanos=1)),
        ("string", Bound(bytes="ff")),
    ],
)
def test_what_python_cannot_hold_stays_tagged(kind: str, bound: Bound) -> None:
    """A value is never bent to fit."""
    assert python_value(kind, bound) == bound
    assert python_value(kind, None) is None


def test_nan_comes_back_as_nan() -> None:
    """JSON has no NaN; the client does."""
    assert str(python_value("float64", Bound(float64="NaN"))) == "nan"

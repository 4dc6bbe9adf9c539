"""``lamella append``: files of several formats in one commit."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from fixtures_server import ServerProcess
from lamella.client import Lamella
from lamella.client.cli.app import cli
from lamella.client.http import Table
from lamella.snapshot.schema import Column
from support.service_api import fresh_name
from write.conftest import MakeTable


class Command:
    """Runs ``lamella append`` against the service."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, table: object, *args: object, stdin: bytes | None = None) -> Result:
        texts = ["append", str(table), *map(str, args), "--url", self._url]
        return CliRunner().invoke(cli, texts, input=stdin)


@pytest.fixture
def append(shared_server: ServerProcess) -> Command:
    """The command."""
    return Command(shared_server.url)


def rows_of(table: Table) -> list[dict[str, Any]]:
    """All rows, by id."""
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def stream_of(table: pa.Table) -> bytes:
    """An Arrow stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_files_of_all_formats_make_one_commit(append: Command, make_table: MakeTable, tmp_path: Path) -> None:
    """By their names, in blocks sorted by the cluster key."""
    table = make_table(id="int64", t="string", cluster_key=["id"])
    files = [
        tmp_path / f"f.{ending}"
        for ending in ("parquet", "csv", "tsv", "jsonl", "arrow", "arrows", "csv.gz", "json.gz")
    ]
    parts = [pa.table({"id": [n, 10 + n], "t": [f"t{n}", None]}) for n in range(len(files) + 1)]
    pq.write_table(parts[0], files[0])
    files[1].write_text("id,t\n1,t1\n11,\n")
    files[2].write_text("t\tID\nt2\t2\n\t12\n")
    files[3].write_text('{"id": 3, "t": "t3"}\n\n{"ID": 13, "t": null}\n')
    pyarrow.feather.write_feather(parts[4], files[4])
    files[5].write_bytes(stream_of(parts[5]))
    files[6].write_bytes(gzip.compress(b"id,t\n6,t6\n16,\n"))
    files[7].write_bytes(gzip.compress(b'{"id": 7, "t": "t7"}\n{"id": 17}'))
    done = append(table, *files, "-", "--target-rows", "4", "--json", stdin=stream_of(parts[8]))
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert (result["rows"], result["snapshot_id"], result["committed"]) == (18, table.info().snapshot_id, True)
    assert rows_of(table) == [
        *({"id": n, "t": f"t{n}"} for n in range(9)),
        *({"id": 10 + n, "t": None} for n in range(9)),
    ]
    assert [entry.operation for entry in table.snapshots()] == ["append", "create"]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arrow"])
def test_rows_come_from_standard_input(append: Command, make_table: MakeTable, kind: str) -> None:
    """In each format, also many; text with line ends and a header of several lines are read as from a file."""
    rows = pa.table({"id": range(50_000), "a\nb": [f"t{n}\n{n}" for n in range(50_000)]})
    table = make_table(**{"id": "int64", "a\nb": "string"})
    sink = io.BytesIO()
    if kind == "csv":
        pyarrow.csv.write_csv(rows, sink)
    elif kind == "parquet":
        pq.write_table(rows, sink)
    elif kind == "jsonl":
        sink.write("".join(json.dumps(row) + "\n" for row in rows.to_pylist()).encode())
    else:
        sink.write(stream_of(rows))
    done = append(table, "-", "--format", kind, stdin=sink.getvalue())
    assert done.exit_code == 0, done.output
    assert rows_of(table) == rows.to_pylist()


def test_standard_input_that_is_not_of_the_format_is_refused(append: Command, make_table: MakeTable) -> None:
    """With what is wrong; nothing is appended."""
    table = make_table(id="int64")
    for kind in ("csv", "jsonl", "parquet", "arrow"):
        done = append(table, "-", "--format", kind, stdin=b"id\nx\xff\n")
        assert done.exit_code == 1
        assert done.stderr.startswith("error: -"), done.stderr
    assert table.info().row_count == 0


def test_texts_are_read_as_what_the_columns_hold(append: Command, make_table: MakeTable, tmp_path: Path) -> None:
    """Exactly: decimals have all digits, times their zone, and what looks like a number stays text in a text column."""
    parts = (Column(name="a", type="decimal(9,2)"), Column(name="at", type="date"))
    table = make_table(
        Column(name="st", type="struct", fields=parts),
        Column(
            name="m",
            type="map",
            fields=(Column(name="key", type="date", nullable=False), Column(name="value", type="int8")),
        ),
        **{"id": "int64", "d": "decimal(38,18)", "x": "float64", "t": "string", "r": "binary", "flag": "boolean"},
        **{"day": "date", "ts": "timestamp(us)", "n": "timestamp_ntz(us)", "clock": "time(us)"},
    )
    line = {
        "id": 2**62 + 1,
        "x": "NaN",
        "t": "007",
        "r": "00ff",
        "flag": True,
        "day": "0001-01-01",
        "ts": "2024-07-01T12:00:00.000001+02:00",
        "n": "2024-07-01T12:00:00",
        "clock": "23:59:59.5",
        "st": {"a": 1.25, "AT": "2024-02-29"},
        "m": {"2024-01-01": 5},
    }
    text = json.dumps(line)[:-1] + ', "d": 12345678901234567890.123456789012345678}\n'
    (tmp_path / "rows.jsonl").write_text(text + '{"id": 0, "x": 1, "d": "0.5", "st": null}\n')
    done = append(table, tmp_path / "rows.jsonl")
    assert done.exit_code == 0, done.output
    assert "2 rows in 1 block" in done.stdout
    second, first = rows_of(table)
    assert math.isnan(first.pop("x"))
    berlin = dt.timezone(dt.timedelta(hours=2))
    assert first == {
        "st": {"a": Decimal("1.25"), "at": dt.date(2024, 2, 29)},
        "m": [(dt.date(2024, 1, 1), 5)],
        "id": 2**62 + 1,
        "d": Decimal("12345678901234567890.123456789012345678"),
        "t": "007",
        "r": b"\x00\xff",
        "flag": True,
        "day": dt.date(1, 1, 1),
        "ts": dt.datetime(2024, 7, 1, 12, 0, 0, 1, tzinfo=berlin),
        "n": dt.datetime(2024, 7, 1, 12),  # noqa: DTZ001  # a column without zone
        "clock": dt.time(23, 59, 59, 500_000),
    }
    assert (second["x"], second["d"], second["st"]) == (1.0, Decimal("0.5"), None)


def test_fields_of_csv_are_read_as_what_the_columns_hold(
    append: Command, make_table: MakeTable, tmp_path: Path
) -> None:
    """An empty field is null, one in quotes is empty text; nothing else is null."""
    table = make_table(id="int64", d="decimal(20,4)", x="float64", t="string", day="date", ts="timestamp(us)")
    (tmp_path / "rows.csv").write_text(
        "id;d;x;T;day;ts\n"
        '1;1234567890123456.0001;NaN;"a;\nb";2024-02-29;2024-01-01 00:00:00Z\n'
        '2;;;"";;\n'
        "3;0;1e300;NA;;\n"
        "4;;;;;\n"
    )
    done = append(table, tmp_path / "rows.csv", "--delimiter", ";")
    assert done.exit_code == 0, done.output
    first, *others = rows_of(table)
    assert math.isnan(first["x"])
    assert (first["d"], first["t"], first["day"]) == (Decimal("1234567890123456.0001"), "a;\nb", dt.date(2024, 2, 29))
    assert first["ts"] == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert [row["t"] for row in others] == ["", "NA", None]
    assert [row["x"] for row in others] == [None, 1e300, None]


def test_a_table_is_created_on_request(append: Command, lake: Lamella, tmp_path: Path) -> None:
    """From the first file's columns; a key makes the same command safe to repeat."""
    name = f"{fresh_name('made')}.t"
    (tmp_path / "a.csv").write_text("id,x\n1,0.5\n")
    (tmp_path / "b.json").write_text('{"id": 2, "x": 1.5}\n')
    files = [tmp_path / "a.csv", tmp_path / "b.json"]
    assert append(name, *files).exit_code == 1
    options = ["--create", "--cluster-by", "id", "--cluster-by", "x", "--cluster-kind", "zorder"]
    for _ in range(2):
        done = append(name, *files, *options, "--idempotency-key", "first")
        assert done.exit_code == 0, done.output
    assert rows_of(lake.table(name)) == [{"id": 1, "x": 0.5}, {"id": 2, "x": 1.5}]
    info = lake.table(name).info()
    assert (info.cluster_key, info.cluster_kind) == (("id", "x"), "zorder")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "id\n1\n", "does not tell its format"),
        ("a.csv", "id,z\n1,2\n", "a.csv: the table has no column 'z'; it has 'id', 'n', 'day', 'ts'"),
        ("a.csv", "id,n\nx,1\n", "a.csv"),
        ("a.csv", "id,n\n1,200\n", "a.csv"),
        ("a.jsonl", '{"id": 1}\n{"id": \n', "a.jsonl, line 2"),
        ("a.jsonl", "[1]\n", "a.jsonl, line 1: a line is not an object"),
        ("a.jsonl", '{"id": 1.5}\n', "a.jsonl: column 'id' is float64"),
        ("a.jsonl", '{"day": "2024-02-30"}\n', "a.jsonl, line 1"),
        ("a.jsonl", '{"ts": "2024-01-01T00:00:00"}\n', "a.jsonl, line 1"),
        ("a.parquet", "no Parquet", "a.parquet"),
        ("a.arrow", "no Arrow", "a.arrow"),
    ],
)
def test_a_file_that_does_not_fit_changes_nothing(
    append: Command, make_table: MakeTable, tmp_path: Path, name: str, text: str, message: str
) -> None:
    """Also not the rows of the files before it; the message names the file."""
    table = make_table(id="int64", n="int8", day="date", ts="timestamp(us)")
    (tmp_path / "good.jsonl").write_text('{"id": 1}\n')
    (tmp_path / name).write_text(text)
    done = append(table, tmp_path / "good.jsonl", tmp_path / name)
    assert done.exit_code == 1
    assert message in done.stderr
    assert table.info().row_count == 0


def test_a_delimiter_is_one_character(append: Command, make_table: MakeTable, tmp_path: Path) -> None:
    """Anything else is refused before a file is read."""
    done = append(make_table(id="int64"), tmp_path / "none.csv", "--delimiter", "ab")
    assert done.exit_code == 1
    assert "one character" in done.stderr


def test_a_missing_file_is_named(append: Command, make_table: MakeTable, tmp_path: Path) -> None:
    """And nothing is appended."""
    done = append(make_table(id="int64"), tmp_path / "none.parquet")
    assert done.exit_code == 1
    assert "none.parquet" in done.stderr


def test_files_without_rows_commit_nothing(append: Command, make_table: MakeTable, tmp_path: Path) -> None:
    """And the command says so."""
    table = make_table(id="int64")
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text("")
    done = append(table, tmp_path / "a.parquet", tmp_path / "b.jsonl")
    assert (done.exit_code, done.stdout) == (0, f"no rows; {table} is unchanged\n")

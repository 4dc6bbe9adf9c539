"""Samples of rows: against a decision row by row, within their bounds, and in JSON without a loss."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures_server import ServerProcess
from lamella.client.http import Lamella
from lamella.snapshot.errors import BlockReplaced, FilterNotEvaluable, InvalidRequest, LocationRefused, UnknownColumn
from lamella.snapshot.expression import read_filter, text_of
from lamella.snapshot.expression.text import tree_of
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.rows.columns import read_columns
from lamella.snapshot.rows.json_values import json_rows
from lamella.snapshot.schema import Schema
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.row_sample import MAX_ANSWER_BYTES
from lamella.snapshot.wire import SampleAnswer, SampleRequest
from pages.page_tables import PageTable, forget_files, page_table
from scan.files import written
from scan.planning import WarehouseTable
from scan.test_rows_found import expected
from scan.test_schemas import evolved
from support import generate
from support.folder_tables import FolderTable
from support.oracle import Oracle

SEEDS = st.integers(0, 2**48)


def sampled(
    warehouse: Warehouse,
    pointer: SnapshotPointer,
    *,
    max_bytes: int = 1 << 30,
    is_over: Any = lambda: False,
    require: Any = len,
    **request: Any,
) -> SampleAnswer:
    """A sample without a service."""
    return warehouse.row_samples.read(
        pointer, SampleRequest(**request), max_bytes=max_bytes, is_over=is_over, require=require
    )


def lines(schema: Schema, names: list[str], rows: pa.Table) -> list[str]:
    """Rows of Arrow in the form of a sample, in no order."""
    columns = read_columns(schema, names, case_sensitive=True)
    return sorted(map(repr, json_rows(rows.select(names), columns)))


def check_samples(seed: int, folder: Path, filters: int) -> int:
    """Sample one random table with random filters and bounds; returns how many filters were decided."""
    rng = Random(seed)
    table: PageTable = page_table(rng, folder)
    oracle = Oracle(table.schema)
    names = [column.name for column in table.schema.columns]
    decided = 0
    for _ in range(filters):
        predicate = generate.predicate(rng, table.schema, table.seen)
        case = f"seed {seed}: {text_of(predicate)}"
        matching = [row for rows in table.rows.values() for row in rows if oracle.decide(predicate, row) is True]
        chosen = rng.sample(names, rng.randint(1, len(names)))
        wanted = lines(table.schema, chosen, expected(table, matching))
        try:
            found = sampled(
                table.warehouse,
                table.pointer,
                filter=tree_of(predicate),
                columns=tuple(chosen),
                rows=1_000,
                case_sensitive=True,
            )
        except FilterNotEvaluable:
            continue
        decided += 1
        assert found.complete, case
        assert found.stopped is None, case
        assert found.blocks_read == found.blocks_selected <= found.blocks_total == len(table.rows), case
        assert sorted(map(repr, found.rows)) == wanted, case
        assert [each.name for each in found.columns] == chosen, case
        counted = table.warehouse.row_samples.count(
            table.pointer, predicate, time_zone="UTC", max_blocks=10, max_bytes=1 << 30, is_over=bool, require=len
        )
        assert (counted.rows, counted.stopped) == (len(matching), None), case
        few, blocks = rng.randint(1, len(matching) + 2), rng.randint(1, 3)
        some = sampled(
            table.warehouse,
            table.pointer,
            filter=tree_of(predicate),
            columns=tuple(chosen),
            rows=few,
            max_blocks=blocks,
            max_bytes=rng.choice([1, 2_000, 1 << 30]),
            case_sensitive=True,
        )
        left = list(wanted)
        for row in map(repr, some.rows):
            left.remove(row)  # each row that is shown matches, and is shown once
        assert len(some.rows) <= few, case
        assert some.blocks_read <= blocks, case
        assert some.complete == (some.stopped is None), case
        assert not (some.complete and left), f"an answer that pretends to be complete, {case}"
        assert some.stopped != "rows" or left, case
    forget_files(table)
    return decided


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_a_sample_has_rows_that_match_and_says_whether_it_has_all(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Over random types, page sizes, row groups and codecs, with random bounds."""
    check_samples(seed, tmp_path_factory.getbasetemp(), filters=6)


@pytest.mark.soak
def test_thousands_of_samples_are_exact(tmp_path: Path) -> None:
    """The same at length."""
    assert sum(check_samples(seed, tmp_path, filters=20) for seed in range(1_000)) > 1_000


def test_columns_are_those_of_the_snapshot_by_their_ids(tmp_path: Path) -> None:
    """Renamed, dropped, added with a default and added again under an old name; an older snapshot has its own."""
    table, before = evolved(tmp_path)
    warehouse, now = table._warehouse, table._current
    found = sampled(warehouse, now)
    assert [(each.name, each.type) for each in found.columns] == [
        ("id", "int64"),
        ("b", "string"),
        ("s", "struct<wide: int64, y: string, z: int32>"),
        ("a", "int64"),
        ("gone", "int32"),
    ]
    assert found.complete
    assert found.rows == [
        [1, "one", {"wide": 1, "y": "p", "z": None}, None, 7],
        [2, "two", None, None, 7],
        [3, None, {"wide": None, "y": "q", "z": None}, None, 7],
        [4, "four", {"wide": 4, "y": "r", "z": 1}, 40, 8],
        [2**40, "big", {"wide": 2**41, "y": None, "z": None}, None, 7],
    ]
    assert sampled(warehouse, now, filter="gone = 8", columns=("s.z", "b")).rows == [[1, "four"]]
    assert sampled(warehouse, before, filter="gone > 1", columns=("a",)).rows == [["two"], [None]]
    with pytest.raises(UnknownColumn):
        sampled(warehouse, before, filter="b = 'two'")


def test_values_keep_all_their_digits(tmp_path: Path) -> None:
    """Numbers beyond 53 bits, decimals, times of all kinds and years, bytes, NaN, nested values and nulls."""
    instant = dt.datetime(2026, 1, 31, 10, 0, 0, 500_000, tzinfo=dt.UTC)
    far = 253_402_300_800_000_000  # the first microsecond of the year 10000
    columns: dict[str, tuple[Any, list[Any], list[Any]]] = {
        "i": (pa.int64(), [2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
        "u": (pa.uint64(), [2**64 - 1, 0], [2**64 - 1, 0]),
        "f": (pa.float64(), [float("nan"), float("-inf")], ["NaN", "-Infinity"]),
        "g": (pa.float32(), [0.1, float("inf")], [0.1, "Infinity"]),
        "d": (pa.decimal128(38, 2), [Decimal("-0.10"), Decimal(10) ** 35], ["-0.10", "1" + "0" * 35 + ".00"]),
        "day": (pa.date32(), [-719_529, 2_932_897], ["-0001-12-31", "+10000-01-01"]),
        "z": (pa.timestamp("us", "UTC"), [instant, None], ["2026-01-31T10:00:00.5Z", None]),
        "w": (pa.timestamp("ms"), [0, -1], ["1970-01-01T00:00:00", "1969-12-31T23:59:59.999"]),
        "y": (pa.timestamp("us"), [far, -(2**63)], ["+10000-01-01T00:00:00", "-290308-12-21T19:59:05.224192"]),
        "t": (pa.time64("us"), [3_600_000_001, 0], ["01:00:00.000001", "00:00:00"]),
        "b": (pa.binary(), [b"\x00\xff", b""], ["00ff", ""]),
        "s": (pa.string(), ["é\n", ""], ["é\n", ""]),
        "l": (pa.list_(pa.int32()), [[1, None], None], [[1, None], None]),
        "m": (pa.map_(pa.string(), pa.float64()), [[("a", float("nan"))], []], [[["a", "NaN"]], []]),
        "n": (
            pa.struct([("x", pa.list_(pa.struct([("d", pa.date32())])))]),
            [{"x": [{"d": 0}, None]}, {"x": None}],
            [{"x": [{"d": "1970-01-01"}, None]}, {"x": None}],
        ),
    }
    table = pa.table({name: pa.array(values, kind) for name, (kind, values, _) in columns.items()})
    made = written(tmp_path, table)
    found = sampled(made._warehouse, made._current)
    assert {one.name: [row[at] for row in found.rows] for at, one in enumerate(found.columns)} == {
        name: wanted for name, (_, _, wanted) in columns.items()
    }
    assert msgspec.json.decode(msgspec.json.encode(found))["rows"] == found.rows


def test_text_that_is_not_utf8_is_shown(tmp_path: Path) -> None:
    """As Spark shows it: bytes that are no character are the replacement character."""
    text = pa.array([b"a\xffb"], pa.binary()).view(pa.string())
    made = written(tmp_path, pa.table({"s": text}))
    assert sampled(made._warehouse, made._current).rows == [["a�b"]]


def many(folder: Path, files: int = 6, rows: int = 1_000) -> WarehouseTable:
    """Files of ascending numbers and a wide text."""
    return written(
        folder,
        *(
            pa.table({"i": range(at * rows, at * rows + rows), "w": [f"{at}-{each}" * 20 for each in range(rows)]})
            for at in range(files)
        ),
        row_group_size=100,
        compression="none",
        use_dictionary=False,
    )


def test_each_bound_ends_the_reading_and_is_named(tmp_path: Path) -> None:
    """Rows, blocks, bytes and time; what was read until then is shown, and is never called complete."""
    made = many(tmp_path)
    warehouse, now = made._warehouse, made._current
    rows = sampled(warehouse, now, rows=7)
    assert (rows.stopped, len(rows.rows), rows.blocks_read, rows.blocks_selected) == ("rows", 7, 1, 6)
    assert rows.bytes_read < 300_000
    exactly = sampled(warehouse, now, filter="i < 7", rows=7)
    assert (exactly.complete, len(exactly.rows), exactly.blocks_selected) == (True, 7, 1)
    blocks = sampled(warehouse, now, filter="i % 1000 = 999", max_blocks=2)
    assert (blocks.stopped, [row[0] for row in blocks.rows], blocks.blocks_read) == ("blocks", [999, 1999], 2)
    bounded = sampled(warehouse, now, filter="i % 1000 = 999", max_bytes=250_000)
    assert bounded.stopped == "bytes"
    assert bounded.bytes_read <= 250_000
    assert 0 < len(bounded.rows) < 6
    calls = iter(range(10_000))
    timed = sampled(warehouse, now, filter="i % 1000 = 999", is_over=lambda: next(calls) > 30)
    assert timed.stopped == "time"
    assert len(timed.rows) < 6
    nothing = sampled(warehouse, now, is_over=lambda: True)
    assert (nothing.stopped, nothing.rows, nothing.complete) == ("time", [], False)


def test_rows_are_counted_or_not_at_all(tmp_path: Path) -> None:
    """Blocks that match as a whole are not read; where a bound is reached there is no number."""
    made = many(tmp_path)

    def counted(text: str, **bounds: Any) -> tuple[int | None, int, str | None]:
        given = {"max_blocks": 10, "max_bytes": 1 << 30, "is_over": bool, **bounds}
        found = made._warehouse.row_samples.count(
            made._current, read_filter(text), time_zone="UTC", require=len, **given
        )
        return found.rows, found.blocks_read, found.stopped

    assert counted("i >= 1500") == (4_500, 1, None)
    assert counted("i < 2000") == (2_000, 0, None)
    assert counted("i < 0") == (0, 0, None)
    assert counted("i % 1000 = 999", max_blocks=5) == (None, 0, "blocks")
    assert counted("i % 1000 = 999", max_bytes=100_000)[::2] == (None, "bytes")
    assert counted("i % 1000 = 999", is_over=lambda: True) == (None, 0, "time")


def test_an_answer_has_a_largest_size(tmp_path: Path) -> None:
    """Rows of a megabyte each end before the bound on rows."""
    table = pa.table({"s": ["x" * (1 << 20)] * 20})
    made = written(tmp_path, table)
    found = sampled(made._warehouse, made._current)
    assert found.stopped == "answer_bytes"
    assert 0 < len(found.rows) < 20
    assert len(msgspec.json.encode(found.rows)) <= MAX_ANSWER_BYTES + 100


def test_blocks_that_match_as_a_whole_are_read_first(tmp_path: Path) -> None:
    """They give a row for each row that is read."""
    made = many(tmp_path)
    found = sampled(made._warehouse, made._current, filter="i >= 999", columns=("i",), rows=3)
    assert [row[0] for row in found.rows] == [1000, 1001, 1002]


def test_a_file_that_is_another_one_is_an_error(tmp_path: Path) -> None:
    """Its rows are not those of the snapshot."""
    made = many(tmp_path, files=1)
    pq.write_table(pa.table({"i": [1], "w": ["other"]}), tmp_path / "0.parquet")
    with pytest.raises(BlockReplaced):
        sampled(made._warehouse, made._current)


def test_no_file_is_opened_where_the_table_may_have_none(tmp_path: Path) -> None:
    """The rule is asked before each file."""
    made = many(tmp_path, files=2)

    def refuse(location: str) -> None:
        raise LocationRefused(location)

    with pytest.raises(LocationRefused, match=r"0\.parquet"):
        sampled(made._warehouse, made._current, require=refuse)


def test_deleted_rows_and_constants(server: ServerProcess, tmp_path: Path) -> None:
    """Rows that are deleted are not shown; columns of folders and the null folder have the folders' values."""
    with Lamella(server.url) as lake:
        lake.create_namespace("ice")
        folders = FolderTable(lake, tmp_path, ("n", "price", "d"))
        folders.add({"n": "1", "price": "-0.05", "d": "2024-02-29"}, {"n": "-7", "price": "1.00", "d": "1969-12-31"})
        before = folders.table.sample()
        folders.delete({0: [1], 1: [0]})
        found = folders.table.sample()
        assert [row[1:] for row in found.rows] == [[1, "-0.05", "2024-02-29"], [-7, "1.00", "1969-12-31"]]
        assert [row[0] for row in found.rows] == [before.rows[0][0], before.rows[3][0]]
        assert found.complete
        assert folders.table.sample("n = 1 AND price < 0").rows == [found.rows[0]]
        assert folders.table.sample(f"id = {before.rows[1][0]}").rows == []
        assert folders.table.sample(snapshot_id=before.snapshot_id).rows == before.rows


def test_requests_are_checked(tmp_path: Path) -> None:
    """Columns twice, none, or unknown; a filter that cannot be decided."""
    made = many(tmp_path, files=1)
    for columns in (("i", "i"), ()):
        with pytest.raises(InvalidRequest):
            sampled(made._warehouse, made._current, columns=columns)
    with pytest.raises(UnknownColumn):
        sampled(made._warehouse, made._current, columns=("nope",))
    with pytest.raises(FilterNotEvaluable):
        sampled(made._warehouse, made._current, filter="w RLIKE 'a.'")

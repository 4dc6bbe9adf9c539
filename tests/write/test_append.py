"""Appending from Python: whatever holds rows is written, in sorted blocks, by one commit."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from lamella.client import Lamella
from lamella.client.http import Table
from lamella.snapshot.errors import (
    InvalidRequest,
    InvalidSchema,
    NamespaceNotFound,
    SchemaMismatch,
    TableNotFound,
    UnknownColumn,
)
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Column
from support.service_api import fresh_name
from write.conftest import MakeTable

PLAIN = pa.table({"id": [1, 2, 3], "s": ["a", None, "ä"]})


class Capsule:
    """An object that only has Arrow's PyCapsule interface."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def blocks_of(table: Table) -> list[Block]:
    """The blocks of the current snapshot."""
    snapshot = table.snapshot(table.info().snapshot_id)
    return [block for ref in snapshot.segments for block in table.segment(ref.segment_id).blocks]


def rows_of(table: Table) -> list[dict[str, Any]]:
    """All rows, by their number."""
    rows: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row.get("id", row.get("k")) or 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PLAIN,
        lambda: PLAIN.to_batches()[0],
        lambda: pa.RecordBatchReader.from_batches(PLAIN.schema, PLAIN.to_batches()),
        lambda: PLAIN.to_pandas(),
        lambda: PLAIN.to_pandas().set_index("id"),
        lambda: pl.DataFrame(PLAIN),
        lambda: pl.DataFrame(PLAIN).lazy(),
        lambda: pl.DataFrame(PLAIN).with_columns(pl.col("s").cast(pl.Categorical)),
        lambda: ds.dataset(PLAIN),
        lambda: ds.dataset(PLAIN).scanner(),
        lambda: Capsule(PLAIN),
        lambda: duckdb.from_arrow(PLAIN),
        lambda: PLAIN.to_pylist(),
        lambda: iter(PLAIN.to_pylist()),
        lambda: PLAIN.to_pydict(),
        lambda: iter([PLAIN.slice(0, 1), PLAIN.slice(1, 1).to_pylist(), pl.DataFrame(PLAIN.slice(2))]),
        lambda: (batch for batch in PLAIN.to_batches(max_chunksize=1)),
    ],
    ids=[
        *("table", "batch", "reader", "pandas", "pandas-index", "polars", "lazy", "categorical", "dataset", "scanner"),
        *("capsule", "duckdb", "dictionaries", "iterator", "columns", "mixed", "generator"),
    ],
)
def test_whatever_holds_rows_is_appended(make_table: MakeTable, make: Any) -> None:
    """The rows are those of the data, in one commit."""
    table = make_table(id="int64", s="string")
    result = table.append(make())
    assert (result.blocks, result.rows, result.committed) == (1, 3, True)
    assert result.snapshot_id == table.info().snapshot_id
    assert rows_of(table) == PLAIN.to_pylist()
    assert [entry.operation for entry in table.snapshots()] == ["append", "create"]


def test_a_scan_of_another_table_is_appended(make_table: MakeTable) -> None:
    """Rows go from table to table without being held as a whole."""
    first, second = make_table(id="int64", s="string"), make_table(id="int64", s="string")
    first.append(PLAIN)
    assert second.append(first.scan("id > 1")).rows == 2
    assert [row["id"] for row in rows_of(second)] == [2, 3]


@pytest.mark.parametrize("data", ["text", b"bytes", 5, [5], [[5]], pd.Series([1])])
def test_what_holds_no_rows_is_refused(make_table: MakeTable, data: Any) -> None:
    """With an error that says what is expected."""
    with pytest.raises(InvalidRequest):
        make_table(id="int64").append(data)


def test_an_empty_append_commits_nothing_and_says_so(make_table: MakeTable) -> None:
    """Its columns are checked all the same."""
    table = make_table(id="int64", s="string")
    before = table.info().snapshot_id
    empty: list[Any] = [PLAIN.slice(0, 0), [], iter([]), PLAIN.schema.empty_table()]
    for data in empty:
        result = table.append(data)
        assert (result.blocks, result.rows, result.committed, result.snapshot_id) == (0, 0, False, before)
    assert table.info().snapshot_id == before
    with pytest.raises(SchemaMismatch, match="no column 'z'"):
        table.append(pa.table({"id": [1], "s": ["x"], "z": [1]}).slice(0, 0))


@pytest.mark.parametrize("kind", ["linear", "zorder", "hilbert"])
def test_blocks_are_sorted_even_and_described_exactly(make_table: MakeTable, kind: str) -> None:
    """With memory for a part of the rows only: their ranges hardly overlap, and verification agrees."""
    table = make_table(k="int64", x="float64", s="string", cluster_key=["k", "x"], cluster_kind=kind)
    count = 40_000
    rng = np.random.default_rng(1)
    rows = pa.table(
        {
            "k": rng.permutation(count),
            "x": np.where(rng.random(count) < 0.1, math.nan, rng.random(count)),
            "s": [None if n % 10 == 0 else f"user {n % 100}" for n in range(count)],
        }
    )
    batches = rows.to_batches(max_chunksize=500)
    result = table.append(iter(batches), target_block_rows=4_000, memory_bytes=600_000)
    blocks = blocks_of(table)
    assert result.rows == sum(block.row_count for block in blocks) == count
    assert result.size_bytes == sum(block.file_size for block in blocks)
    assert all(2_500 <= block.row_count <= 6_000 for block in blocks), [block.row_count for block in blocks]
    key = table.snapshot(table.info().snapshot_id).cluster_key
    assert key is not None
    assert {block.cluster_stats.key_id for block in blocks if block.cluster_stats} == {key.key_id}
    assert all(block.cluster_stats is not None for block in blocks)
    assert table.verify(deep=True, sample=1.0, filters=3).is_clean
    order = [("k", "ascending")]
    assert table.scan().to_arrow().sort_by(order).drop_columns("x").equals(rows.sort_by(order).drop_columns("x"))
    assert len(table.prune("k = 4321").locations) <= (1 if kind == "linear" else len(blocks) // 2)
    if kind == "linear":
        ranges = sorted(
            (keys[0], keys[-1], keys == sorted(keys))
            for keys in (pq.read_table(block.location.removeprefix("file://"))["k"].to_pylist() for block in blocks)
        )
        assert all(is_sorted for _, _, is_sorted in ranges)
        assert all(before[1] < after[0] for before, after in itertools.pairwise(ranges))


def test_without_a_key_rows_keep_their_order(make_table: MakeTable) -> None:
    """Blocks end at the table's own target."""
    table = make_table(id="int64", properties={"target_block_rows": "100"})
    ids = list(range(1_000, 0, -1))
    assert table.append({"id": ids}).blocks == 10
    assert [id for block in blocks_of(table) for id in pq.read_table(block.location[7:])["id"].to_pylist()] == ids


def test_columns_are_matched_by_name_and_defaults_fill_in(make_table: MakeTable) -> None:
    """Without regard to case; narrower types widen."""
    table = make_table(
        Column(name="id", type="int64"), Column(name="S", type="string"), Column(name="n", type="int32", default="7")
    )
    table.append(pa.table({"s": pa.array(["x"]).dictionary_encode(), "ID": pa.array([1], pa.uint8())}))
    table.append([{"Id": np.int64(2)}, {"id": 3, "N": pd.NA, "s": "y"}])
    assert rows_of(table) == [
        {"id": 1, "S": "x", "n": 7},
        {"id": 2, "S": None, "n": 7},
        {"id": 3, "S": "y", "n": None},
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"d": [Decimal(1)]}, "column 'id' is required and missing in the data"),
        ({"id": [1], "d": [Decimal(1)], "s": ["x"], "more": [1]}, "no column 'more'; it has 'id', 'd', 's'"),
        ({"id": ["1"], "d": [Decimal(1)], "s": ["x"]}, "'id' is string in the data and int32 in the table"),
        ({"id": [1.0], "d": [Decimal(1)], "s": ["x"]}, "'id' is float64"),
        ({"id": [2**31], "d": [Decimal(1)], "s": ["x"]}, "'id': a value does not fit"),
        ({"id": [1], "d": [Decimal("0.001")], "s": ["x"]}, "'d': a value does not fit"),
        ({"id": [1], "d": [0.5], "s": ["x"]}, "'d' is float64"),
        ({"id": [None], "d": [Decimal(1)], "s": ["x"]}, "'id' is required"),
        ([{"id": 1, "more": 1}], "no column 'more'; it has 'id', 'd', 's'"),
        ([{"id": 1, "ID": 2}], "two columns"),
        ([{"s": "x"}], "column 'id' is required"),
    ],
)
def test_rows_that_do_not_fit_change_nothing(make_table: MakeTable, data: Any, message: str) -> None:
    """Columns that are missing, unknown or of another type are named, also when they come late."""
    table = make_table(Column(name="id", type="int32", nullable=False), d="decimal(5,2)", s="string")
    before = table.info()
    for given in (
        data,
        iter([{"id": 1, "d": Decimal("1.5"), "s": "x"}, *([data] if isinstance(data, dict) else data)]),
    ):
        if isinstance(data, dict) and not isinstance(given, dict):
            given = iter([pa.table({"id": [1], "d": [Decimal("1.5")], "s": ["x"]}), pa.table(data)])
        with pytest.raises(SchemaMismatch, match=message):
            table.append(given)
    assert table.info() == before


def test_values_of_every_type_come_back_equal(make_table: MakeTable) -> None:
    """Extremes, nulls, NaN, old dates, other scripts and nested values."""
    element = Column(name="element", type="int64")
    nested = [
        Column(name="st", type="struct", fields=(Column(name="a", type="int32"), Column(name="t", type="string"))),
        Column(name="l", type="list", fields=(element,)),
        Column(
            name="m",
            type="map",
            fields=(
                Column(name="key", type="string", nullable=False),
                Column(name="value", type="list", fields=(element,)),
            ),
        ),
    ]
    types = {
        **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
        **{"b": "boolean", "f": "float32", "x": "float64", "d": "decimal(38,10)", "t": "string", "r": "binary"},
        **{"day": "date", "ts": "timestamp(us)", "n": "timestamp_ntz(us)", "fine": "timestamp(ns)", "at": "time(us)"},
        "fix": "fixed(2)",
    }
    table = make_table(*nested, id="int32", **types)
    extremes = {
        f"{sign}int{bits}": 2**bits - 1 if sign else -(2 ** (bits - 1))
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    }
    first = {
        **extremes,
        "id": 1,
        "b": True,
        "f": 0.5,
        "x": -math.inf,
        "d": Decimal("-12345678901234567890.0123456789"),
        "t": "käse 日本",
        "r": b"\x00\xff",
        "day": dt.date(1, 1, 1),
        "ts": dt.datetime(1500, 1, 1, tzinfo=dt.UTC),
        "n": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001  # a column without zone
        "fine": pd.Timestamp(1_700_000_000_000_000_001, unit="ns", tz="UTC"),
        "at": dt.time(23, 59, 59, 999999),
        "fix": b"ab",
        "st": {"a": 1, "t": None},
        "l": [1, None],
        "m": [("k", [1]), ("", None)],
    }
    empty = dict.fromkeys(first) | {"id": 2}
    odd = empty | {"id": 3, "x": math.nan, "f": -0.0, "t": "", "r": b"", "st": {"a": None, "t": ""}, "l": [], "m": []}
    table.append([first, empty, odd])
    rows = rows_of(table)
    assert rows[:2] == [{name: row[name] for name in rows[0]} for row in (first, empty)]
    assert math.isnan(rows[2]["x"])
    assert {**rows[2], "x": None} == {**{name: odd[name] for name in rows[0]}, "x": None}
    assert table.verify(deep=True, sample=1.0).is_clean


def test_times_with_and_without_zone_stay_apart(make_table: MakeTable) -> None:
    """An instant is the same in any zone; a time without zone is none, and finer units are refused, not cut."""
    table = make_table(ts="timestamp(us)", n="timestamp_ntz(us)")
    berlin = dt.timezone(dt.timedelta(hours=2))
    at, wall = dt.datetime(2024, 7, 1, 12, tzinfo=berlin), dt.datetime(2024, 7, 1, 12)  # noqa: DTZ001
    table.append([{"ts": at, "n": wall}])
    table.append(pd.DataFrame({"ts": [pd.Timestamp(at)], "n": [pd.Timestamp(wall)]}))
    assert {(row["ts"], row["n"]) for row in rows_of(table)} == {(at, wall)}
    nanosecond = pd.DataFrame({"ts": [pd.Timestamp(1, unit="ns", tz="UTC")], "n": [pd.Timestamp(wall)]})
    for row in ([{"ts": wall}], [{"n": at}], [{"n": wall}, {"n": wall.date()}], [{"ts": "2024-07-01"}], nanosecond):
        with pytest.raises(SchemaMismatch):
            table.append(row)


def test_a_missing_table_is_created_on_request(lake: Lamella) -> None:
    """With its namespace, the data's columns and the cluster key; without the request it is an error."""
    name = f"{fresh_name('made')}.t"
    rows = pa.table(
        {
            "k": pa.array([3, 1, 2], pa.uint16()),
            "ts": pa.array([0, 1, 2], pa.timestamp("ns", "Europe/Berlin")),
            "c": pa.array(["a", "b", "a"]).dictionary_encode(),
            "st": pa.array([{"x": 1}, None, {"x": None}]),
            "l": pa.array([[1], [], None], pa.large_list(pa.float16())),
        }
    )
    with pytest.raises((TableNotFound, NamespaceNotFound)):
        lake.table(name).append(rows.drop_columns("ts"))
    options: dict[str, Any] = {"create": True, "cluster_by": ["k"], "properties": {"target_block_rows": "2"}}
    result = lake.table(name).append(rows.drop_columns("ts"), **options)
    info = lake.table(name).info()
    assert (result.rows, info.cluster_key, info.properties["target_block_rows"]) == (3, ("k",), "2")
    types = {column.name: column.type for column in info.schema.columns}
    assert types == {"k": "uint16", "c": "string", "st": "struct", "l": "list"}
    assert [row["k"] for row in rows_of(lake.table(name))] == [1, 2, 3]
    assert lake.table(name).append([{"k": 4}], create=True).rows == 1


@pytest.mark.parametrize(
    ("data", "options", "error"),
    [
        ({"a": [None]}, {}, InvalidSchema),
        ({"a": pa.array([1], pa.duration("s"))}, {}, InvalidSchema),
        ({"a": [1], "A": [2]}, {}, InvalidSchema),
        ({"a": [1]}, {"cluster_by": ["b"]}, UnknownColumn),
        ([], {}, InvalidRequest),
        (iter([{"a": 1}, {"a": "x"}]), {}, SchemaMismatch),
        (iter([pa.table({"a": [1]}), pa.table({"a": ["x"]})]), {}, SchemaMismatch),
    ],
)
def test_a_table_for_rows_that_fail_is_not_left_behind(
    lake: Lamella, data: Any, options: dict[str, Any], error: type[Exception]
) -> None:
    """Neither when its columns are impossible, nor when a later row does not fit."""
    name = f"{fresh_name('made')}.t"
    with pytest.raises(error):
        lake.table(name).append(data, create=True, **options)
    with pytest.raises((TableNotFound, NamespaceNotFound)):
        lake.table(name).info()


def test_skip_indexes_and_bloom_filters_cover_appended_rows(make_table: MakeTable) -> None:
    """The commit brings the entries, so the index excludes new blocks at once."""
    table = make_table(id="int64", t="string", properties={"write.bloom_filters": "t"})
    table.create_index("by_t", "bloom", "t")
    table.append({"id": range(100), "t": [f"a{n}" for n in range(100)]}, target_block_rows=10)
    assert table.prune("t = 'a55x'").locations == []
    assert len(table.prune("t = 'a55'").locations) == 1
    table.append({"id": [100], "t": ["b"]}, indexes=False)
    assert len(table.prune("t = 'a55x'").locations) <= 1
    assert table.verify(deep=True, sample=1.0).is_clean


def test_the_progress_bar_goes_to_standard_error(make_table: MakeTable, capfd: pytest.CaptureFixture[str]) -> None:
    """Standard output belongs to the program."""
    table = make_table(id="int64", cluster_key=["id"])
    table.append({"id": range(10)}, progress=True, set_properties={"loaded": "yes"})
    assert capfd.readouterr().out == ""
    assert table.info().properties["loaded"] == "yes"


@pytest.mark.parametrize(
    "options", [{"target_block_rows": 0}, {"target_block_bytes": 0}, {"memory_bytes": 0}, {"workers": 0}]
)
def test_impossible_numbers_are_refused(make_table: MakeTable, options: dict[str, int]) -> None:
    """Before anything is read."""
    with pytest.raises(InvalidRequest):
        make_table(id="int64").append(iter([{"id": 1}]), **options)  # type: ignore[arg-type]


def test_intermediate_rows_leave_the_scratch_folder(make_table: MakeTable, tmp_path: Path) -> None:
    """A folder of the user's own is used and left empty."""
    table = make_table(id="int64", cluster_key=["id"])
    table.append({"id": range(1_000)}, scratch=f"file://{tmp_path}/scratch", memory_bytes=2_000, target_block_rows=100)
    assert [path for path in (tmp_path / "scratch").rglob("*") if path.is_file()] == []
    assert table.info().row_count == 1_000

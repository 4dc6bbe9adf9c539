"""Blocks as writers send them: what the core makes of a file always passes, and what cannot be true does not."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from lamella.service.commits.blocks import check_block, read_blocks
from lamella.snapshot.errors import InvalidRequest, SchemaMismatch
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet import block_of, read_footer, schema_of
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import Bound, ColumnStats
from lamella.snapshot.storage import FsspecStore
from support.service_api import parquet_bytes

NOW = dt.datetime(2026, 1, 31, 12, 30, 1, 123456)  # noqa: DTZ001  # a wall clock time on purpose
EVERY_TYPE = {
    "boolean": pa.array([True, None, False]),
    "int8": pa.array([-128, None, 127], pa.int8()),
    "int64": pa.array([-(1 << 63), None, (1 << 63) - 1]),
    "uint64": pa.array([0, None, (1 << 64) - 1], pa.uint64()),
    "float32": pa.array([-math.inf, math.nan, 1.5], pa.float32()),
    "float64": pa.array([math.nan, None, -0.0]),
    "only_nan": pa.array([math.nan] * 3),
    "decimal": pa.array([Decimal("-12.50"), None, Decimal("99999999999999999999.99")], pa.decimal128(38, 2)),
    "string": pa.array(["", None, "zß日本\U0001f600" * 40]),
    "binary": pa.array([b"", None, b"\xff" * 200]),
    "fixed": pa.array([b"\x00\x01", None, b"\xff\xff"], pa.binary(2)),
    "date": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "time": pa.array([dt.time(0), None, dt.time(23, 59, 59, 999999)]),
    "timestamp": pa.array([NOW, None, NOW], pa.timestamp("us", "UTC")),
    "timestamp_ntz": pa.array([NOW, None, NOW], pa.timestamp("ns")),
    "all_null": pa.array([None] * 3, pa.string()),
    "struct": pa.array([{"a": 1, "b": {"c": "x"}}, None, {"a": None, "b": None}]),
    "list": pa.array([[1, 2], None, []], pa.list_(pa.int64())),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
}


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("row_group_size", [1, 3])
def test_every_block_that_comes_from_a_footer_passes(rows: int, row_group_size: int) -> None:
    """Over every type, with nulls, NaN, long and empty values, through JSON as a writer sends it."""
    store = FsspecStore()
    table = pa.table(EVERY_TYPE).slice(0, rows)
    location = f"memory://blocks/{rows}-{row_group_size}.parquet"
    store.put(location, parquet_bytes(table, row_group_size=row_group_size))
    footer = read_footer(store, location)
    schema = schema_of(footer)
    block = block_of(footer, schema)
    store.delete(location)
    (sent,) = read_blocks([msgspec.Raw(msgspec.json.encode(block))])
    assert check_block(sent, schema.by_id()) == block
    assert block.row_count == rows


def test_a_location_is_brought_to_its_one_spelling() -> None:
    """Otherwise one file could be in a table twice."""
    block = Block(location="/a//b/../c.parquet", row_count=1, file_size=1)
    assert check_block(block, {}).location == "file:///a/c.parquet"


def schema_with(type: str) -> Schema:
    """One column, number 1; the element of a list is number 2."""
    fields = (Column(name="element", type="int64"),) if type == "list" else ()
    return Schema.assign([Column(name="x", type=type, fields=fields)])


@pytest.mark.parametrize(
    ("type", "stats"),
    [
        ("int64", ColumnStats(min=Bound(int64=2), max=Bound(int64=1))),
        ("uint8", ColumnStats(min=Bound(uint64=256))),
        ("int8", ColumnStats(max=Bound(int64=128))),
        ("float64", ColumnStats(min=Bound(float64="NaN"))),
        ("float64", ColumnStats(min=Bound(float64="Infinity"), max=Bound(float64=1.0))),
        ("float64", ColumnStats(min=Bound(float64=1.0), max=Bound(float64=1.0), nan="all")),
        ("decimal(5,2)", ColumnStats(min=Bound(decimal=("100000", 5, 2)))),
        ("decimal(5,2)", ColumnStats(min=Bound(decimal=("1", 5, 3)))),
        ("decimal(5,2)", ColumnStats(min=Bound(decimal=("one", 5, 2)))),
        ("decimal(38,2)", ColumnStats(min=Bound(decimal=("9" * 5_000, 38, 2)))),
        ("binary", ColumnStats(min=Bound(bytes="xyz"))),
        ("string", ColumnStats(min=Bound(string="b"), max=Bound(string="a"))),
        ("date", ColumnStats(min=Bound(timestamp_micros=1))),
        ("timestamp(us)", ColumnStats(min=Bound(timestamp_millis=1))),
        ("interval", ColumnStats(min=Bound(bytes="00"))),
        ("int64", ColumnStats(distinct_of_values=-1)),
        ("int64", ColumnStats(in_memory_size=-1)),
        ("int64", ColumnStats(nan="maybe")),
    ],
)
def test_statistics_that_cannot_be_true_are_refused(type: str, stats: ColumnStats) -> None:
    """Bounds of another type or out of range or order, counts below zero or above the rows, NaN where there is none."""
    block = Block(location="/x", row_count=10, file_size=1, col_stats={1: stats})
    with pytest.raises(SchemaMismatch, match="'x'"):
        check_block(block, schema_with(type).by_id())


def test_bounds_of_what_repeats_within_a_row_are_refused() -> None:
    """A list's element has no bounds that hold for rows."""
    block = Block(location="/x", row_count=10, file_size=1, col_stats={2: ColumnStats(min=Bound(int64=1))})
    with pytest.raises(SchemaMismatch, match="element"):
        check_block(block, schema_with("list").by_id())


@pytest.mark.parametrize(
    "changes",
    [
        {"row_count": -1},
        {"file_size": -1},
        {"block_size": -1},
        {"bloom_filter_index_size": -1},
        {"row_group_row_counts": (11, -1)},
        {"row_group_row_counts": (9,)},
        {"format": "avro"},
        {"location": "s3:x"},
    ],
)
def test_members_that_cannot_be_are_refused(changes: dict[str, Any]) -> None:
    """Counts below zero, row groups that do not add up, other formats, and what is no location."""
    block = msgspec.structs.replace(Block(location="/x", row_count=10, file_size=1), **changes)
    with pytest.raises(InvalidRequest):
        check_block(block, {})

"""Whatever a block claims holds for every value that a full scan of the file reads."""

from __future__ import annotations

import decimal
import io
import math
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet import block_of, read_footer, schema_of
from lamella.snapshot.schema import Column, Schema
from parquet.checking import contradictions
from parquet.crafted import stored
from parquet.tables import tables, wider, write_options


def written(table: pa.Table, **options: Any) -> tuple[pa.Table, Block, Schema]:
    """The table as pyarrow reads it back, and its block in a table of its own schema."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    footer = read_footer(*stored(buffer.getvalue()))
    schema = schema_of(footer)
    return pq.read_table(io.BytesIO(buffer.getvalue())), block_of(footer, schema), schema


def widened(column: Column) -> Column:
    """The column with wider types in all leaves."""
    if column.fields:
        return msgspec.structs.replace(column, fields=tuple(map(widened, column.fields)))
    return msgspec.structs.replace(column, type=str(wider(column.dtype)))


@given(tables(), write_options())
def test_claims_hold_for_random_tables(table: pa.Table, options: dict[str, Any]) -> None:
    """Random types, values, nulls, row groups and writer's options, in the file's own types and in wider ones."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    read = pq.read_table(io.BytesIO(buffer.getvalue()))
    footer = read_footer(*stored(buffer.getvalue()))
    own = schema_of(footer)
    wide = Schema.assign(map(widened, own.columns))
    for schema in (own, wide):
        block = block_of(footer, schema)
        assert contradictions(read, block, schema) == []
        assert msgspec.json.decode(msgspec.json.encode(block), type=Block) == block


def special(values: list[Any], kind: pa.DataType) -> pa.Table:
    """A table of one column."""
    return pa.table({"c": pa.array(values, kind)})


D = decimal.Decimal


@pytest.mark.parametrize(
    ("table", "bounded"),
    [
        (special([-(2**63), 2**63 - 1, None], pa.int64()), True),
        (special([0, 2**64 - 1], pa.uint64()), True),
        (special([D("-9" * 1 + "9" * 37), D("9" * 38), None], pa.decimal128(38, 0)), True),
        (special([D("-0.01"), D("0.01")], pa.decimal128(38, 2)), True),
        (special([1.0, None, -0.0], pa.float64()), True),
        (special([math.nan, math.nan], pa.float64()), False),
        (special([-0.0, 0.0], pa.float32()), True),
        (special([None, None], pa.int32()), False),
        (special([], pa.int32()), False),
        (special(["\U0001f600", "\uffff", "é", "z"], pa.string()), True),
        (special(["ÿ" * 100, "z" * 100], pa.string()), True),
        (special([b"\xff" * 200, b"\xff" * 100], pa.binary()), True),
        (special([-141_428, -200_000, 0], pa.int32()).cast(pa.schema([("c", pa.date32())])), True),
        (special([True, None, False], pa.bool_()), True),
    ],
)
def test_claims_hold_for_what_goes_wrong_elsewhere(table: pa.Table, bounded: bool) -> None:
    """The classic cases one by one, in one row group and in many; bounds are given where there is a value to bound."""
    for size in (1, 2, 100):
        read, block, schema = written(table, row_group_size=size)
        assert contradictions(read, block, schema) == []
        assert (block.col_stats[1].min is not None and block.col_stats[1].max is not None) == bounded


def test_nan_among_numbers_leaves_the_numbers_bounds() -> None:
    """pyarrow leaves NaN out of the bounds and does not count it, so it may be there."""
    read, block, schema = written(special([1.0, math.nan, -0.0], pa.float64()))
    assert contradictions(read, block, schema) == []
    stats = block.col_stats[1]
    assert (stats.min and stats.min.float64, stats.max and stats.max.float64, stats.nan) == (-0.0, 1.0, "maybe")
    read, block, schema = written(special([1.0, math.nan, -0.0], pa.float64()), row_group_size=1)
    assert contradictions(read, block, schema) == []
    assert (block.col_stats[1].min, block.col_stats[1].max) == (None, None)


def test_without_statistics_nothing_is_claimed() -> None:
    """A file that says nothing is taken at its word."""
    read, block, schema = written(special([1, None, 3], pa.int64()), write_statistics=False)
    stats = block.col_stats[1]
    assert (stats.min, stats.max, stats.null_count) == (None, None, None)
    assert contradictions(read, block, schema) == []


def test_the_oracle_finds_wrong_claims() -> None:
    """A block with the statistics of other rows does not pass."""
    _, block, schema = written(special([5, 6], pa.int64()))
    for values in ([4, 6], [5, 7], [5, None], [5, 6, 6], [6, 6]):
        assert contradictions(special(values, pa.int64()), block, schema) != []


def test_int96_has_no_bounds() -> None:
    """Old timestamps are readable, and unknown."""
    table = special([0, 10**6], pa.timestamp("us", tz="UTC"))
    read, block, schema = written(table, use_deprecated_int96_timestamps=True)
    assert schema.columns[0].type == "timestamp(us)"
    assert block.col_stats[1].min is None
    assert block.col_stats[1].null_count in (None, 0)
    assert contradictions(read, block, schema) == []

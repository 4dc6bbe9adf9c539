"""Exact sums: measured from values, seen from later schemas, over deleted rows, and those that cannot be meant."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.columnar.sidecar import build_blocks
from lamella.snapshot.errors import ManifestError
from lamella.snapshot.manifest import Block, DeleteFile
from lamella.snapshot.schema import Column, Schema, parse_type
from lamella.snapshot.schema.arrow import leaf_type
from lamella.snapshot.stats import Bound, ColumnStats, to_bound
from lamella.snapshot.stats.column import (
    seen_with,
    sum_of,
    sum_problem,
    sum_text,
    sum_values,
    widened,
    with_deleted_rows,
)
from lamella.snapshot.stats.measure import leaf_stats
from support.arrow_files import arrow_array
from support.generate import exact_stats

TYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("decimal(5,2)", "decimal(18,0)", "decimal(38,10)"),
)


def leaf_of(type_text: str) -> Any:
    """The only column of a table."""
    return Schema.assign([Column(name="c", type=type_text)]).leaf("c")


def chunks(type_text: str, cells: Sequence[int | None], at: int) -> pa.ChunkedArray:
    """Values in two chunks."""
    dtype = parse_type(type_text)
    parts = [arrow_array(dtype, list(part)).cast(leaf_type(dtype, "c")) for part in (cells[:at], cells[at:])]
    return pa.chunked_array(parts, leaf_type(dtype, "c"))


@settings(max_examples=300)
@given(st.integers(0, 2**48))
def test_a_measured_sum_is_that_of_the_values(seed: int) -> None:
    """Of every type, with nulls and values at the ends of the type, where sums of 64 bits overflow."""
    rng = Random(seed)
    text = rng.choice(TYPES)
    low, high = parse_type(text).int_range
    kinds = (lambda: None, lambda: low, lambda: high, lambda: rng.randint(low, high), lambda: rng.randint(0, 9))
    cells = [rng.choice(kinds)() for _ in range(rng.randint(0, 40))]
    stats = leaf_stats(leaf_of(text), chunks(text, cells, rng.randint(0, len(cells))))
    total = sum(cell for cell in cells if cell is not None)
    fits = (
        text != "decimal(38,10)" or max([abs(cell) for cell in cells if cell is not None] or [0]) * len(cells) < 10**38
    )
    assert sum_of(parse_type(text), stats) == (total if fits else None)
    assert sum_problem(leaf_of(text), stats, len(cells)) is None


@pytest.mark.parametrize("text", ["float64", "string", "boolean", "date", "timestamp(us)", "decimal(50,2)"])
def test_other_types_have_no_sum(text: str) -> None:
    """That of floats depends on the order of the rows; that of dates means nothing."""
    dtype = parse_type(text)
    assert sum_text(dtype, 5) is None
    with pytest.raises(ManifestError):
        sum_values(dtype, ["5"])


@pytest.mark.parametrize(
    ("source", "target", "before", "after"),
    [
        ("int8", "int64", "-7", "-7"),
        ("uint8", "int32", "7", "7"),
        ("int32", "decimal(12,2)", "5", "5.00"),
        ("decimal(5,2)", "decimal(10,4)", "-0.05", "-0.0500"),
        ("int32", "float64", "5", None),
        ("int32", "string", "5", None),
    ],
)
def test_a_sum_is_converted_with_its_column(source: str, target: str, before: str, after: str | None) -> None:
    """By the factor between both types, or it is unknown."""
    stats = ColumnStats(sum=before, null_count=0)
    assert widened(stats, parse_type(source), parse_type(target)).sum == after


def test_sidecars_have_the_sums_of_their_blocks_under_every_schema() -> None:
    """Widened columns, columns that a block lacks and those that it never had; deleted rows have no default either."""
    written = Schema.assign([Column(name="a", type="int32"), Column(name="b", type="decimal(5,2)")])
    a, b = written.leaves()
    stats = {a.id: exact_stats(a.dtype, [1, 2, None]), b.id: exact_stats(b.dtype, [-5, 5, 500])}
    gone = DeleteFile(kind="deletion_vector", location="memory://v", offset=0, length=9, cardinality=1, sha256="0" * 64)
    blocks = [
        Block(location="memory://0", row_count=3, file_size=1, col_stats=stats),
        Block(location="memory://1", row_count=3, file_size=1, col_stats={a.id: exact_stats(a.dtype, [7, 7, 7])}),
        Block(location="memory://2", row_count=3, file_size=1, col_stats=stats, deletes=(gone,)),
        Block(
            location="memory://3",
            row_count=3,
            file_size=1,
            col_stats={a.id: exact_stats(a.dtype, [7, 7, 7])},
            deletes=(gone,),
        ),
    ]
    sidecar = Sidecar(build_blocks(written, blocks))
    assert sidecar.sums(a.id, a.dtype) == [3, 21, None, 14]
    assert sidecar.sums(b.id, b.dtype) == [500, None, None, None]
    wanted = Schema(
        columns=(
            Column(id=a.id, name="a", type="decimal(12,1)"),
            Column(id=b.id, name="b", type="decimal(7,2)"),
            Column(id=3, name="c", type="int64", default="5"),
            Column(id=4, name="d", type="int64"),
        ),
        schema_id=written.schema_id + 1,
        last_column_id=4,
    )
    view = sidecar.seen_from(written, wanted)
    for leaf in wanted.leaves():
        expected = []
        for block in blocks:
            found = seen_with(written, wanted, block.row_count, block.col_stats).get(leaf.id)
            if found is not None and block.deletes:
                found = with_deleted_rows(found, block.live_row_count)
            expected.append(sum_of(leaf.dtype, found))
        assert view.sums(leaf.id, leaf.dtype) == expected, leaf.name
    assert view.sums(a.id, wanted.leaves()[0].dtype) == [30, 210, None, 140]
    assert view.sums(3, parse_type("int64")) == [15, 15, 10, 10]


def test_deleted_rows_leave_a_sum_only_of_equal_values() -> None:
    """Which values are left is unknown, unless all rows have one; nor is it known if their number is not."""
    dtype = parse_type("decimal(5,2)")
    one, many = exact_stats(dtype, [250, 250, 250]), exact_stats(dtype, [250, 250, None])
    assert with_deleted_rows(one, 2).sum == "5.00"
    assert with_deleted_rows(one, None).sum is None
    assert with_deleted_rows(many, 2).sum is None


@pytest.mark.parametrize(
    ("type_text", "stats"),
    [
        ("int64", ColumnStats(sum="1.0")),
        ("int64", ColumnStats(sum="+1")),
        ("int64", ColumnStats(sum="01")),
        ("int64", ColumnStats(sum="-0")),
        ("int64", ColumnStats(sum="1\n2")),
        ("int64", ColumnStats(sum="")),
        ("int64", ColumnStats(sum="9" * 39)),
        ("decimal(5,2)", ColumnStats(sum="1.5")),
        ("float64", ColumnStats(sum="1")),
        ("int64", ColumnStats(sum="1", null_count=10)),
        ("int64", ColumnStats(sum="101", max=Bound(int64=10))),
        ("int64", ColumnStats(sum="-101", min=Bound(int64=-10))),
        ("int64", ColumnStats(sum="9", min=Bound(int64=1), null_count=0)),
        ("int64", ColumnStats(sum="1", max=Bound(int64=-1), null_count=0)),
    ],
)
def test_a_sum_that_cannot_be_meant_is_a_problem(type_text: str, stats: ColumnStats) -> None:
    """Another form than that of the type, or more or less than ten rows can have."""
    assert sum_problem(leaf_of(type_text), stats, 10) is not None


def test_a_sum_of_fewer_rows_than_those_with_bounds_is_no_problem_where_rows_are_deleted() -> None:
    """Nulls and bounds of a layer are those of all rows."""
    leaf = leaf_of("int64")
    stats = ColumnStats(min=to_bound(leaf.dtype, 5), max=to_bound(leaf.dtype, 5), null_count=0, sum="35")
    assert sum_problem(leaf, stats, 10) is not None
    assert sum_problem(leaf, stats, 10, has_deletes=True) is None

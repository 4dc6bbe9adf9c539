"""Columns whose values repeat: their distinct values are found once, and tell as much as all values do."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamella.client.rewrite.block_writer import encode, write_block
from lamella.client.rewrite.target import arrow_schema
from lamella.snapshot.ids import Ids
from lamella.snapshot.parquet import read_footer
from lamella.snapshot.parquet.page_index import read_page_index
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.arrow import decimals_of
from lamella.snapshot.sketch.sketcher import Sketcher
from lamella.snapshot.stats.measure import find_distinct, leaf_values, measure
from lamella.snapshot.storage import FsspecStore, TableLayout

ROWS = 50_000
#: A few values of each type, with some at its ends.
VALUES: dict[str, list[Any]] = {
    "string": ["", "a", "käse 日本", "zz" * 40],
    "binary": [b"", b"\x00", b"\xff" * 70],
    "int64": [-(2**63), -1, 0, 7, 2**63 - 1],
    "int32": [-5, 3, 10_000],
    "date": [dt.date(1, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    "timestamp(us)": [dt.datetime(1500, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)],
    "decimal(9,2)": [Decimal("-1.10"), Decimal("0.00"), Decimal("9999999.99")],
    "decimal(38,4)": [Decimal("-3.0001"), Decimal("12345678901234567890123.4567")],
    "float64": [-0.5, 0.0, float("nan"), 1e300],
    "boolean": [True, False],
}


def rows_of(kind: str, *, repeats: bool) -> tuple[pa.Table, Schema]:
    """Rows of one column in chunks, every seventh null; its values repeat, or hardly do."""
    schema = Schema.assign([Column(name="c", type=kind)])
    field = arrow_schema(schema).field(0)
    some = pa.array(VALUES[kind], field.type)
    rng = np.random.default_rng(len(kind))
    chunks = []
    for start in range(0, ROWS, 7_000):
        count = min(7_000, ROWS - start)
        if repeats:
            chunk = some.take(pa.array(rng.integers(0, len(some), count)))
        else:
            numbers = rng.integers(-(10**6), 10**6, count)
            chunk = decimals_of(pa.array(numbers), field.type) if "decimal" in kind else pa.array(numbers)
            chunk = chunk.cast(field.type)
        nulls = pa.array((np.arange(start, start + count) % 7) == 0)
        chunks.append(pa.compute.if_else(nulls, pa.scalar(None, chunk.type), chunk))
    return pa.table([pa.chunked_array(chunks, field.type)], schema=pa.schema([field])), schema


@pytest.mark.parametrize("kind", VALUES)
def test_statistics_and_sketches_are_those_of_all_values(tmp_path: Path, kind: str) -> None:
    """Whether the distinct values were looked for or not."""
    rows, schema = rows_of(kind, repeats=True)
    (leaf,) = schema.leaves()
    values = leaf_values(rows, leaf)
    distinct, _ = find_distinct(leaf, values)
    assert (distinct is None) is (kind in ("float64", "boolean"))
    block = write_block(FsspecStore(), TableLayout(f"file://{tmp_path}"), Ids(), rows, schema)
    expected = measure(rows, schema, distinct=False)[leaf.id]
    found = block.col_stats[leaf.id]
    assert msgspec.structs.replace(found, distinct_of_values=None, in_memory_size=None) == expected
    assert found.null_count == values.null_count > 0
    sketcher = Sketcher(leaf.dtype)
    sketcher.add(values)
    assert block.sketches[leaf.id] == sketcher.sketch()


@pytest.mark.parametrize("kind", ["string", "int64"])
def test_values_of_every_chunk_are_found(kind: str) -> None:
    """Bounds come from them, so one that is only in the last chunk, or behind an empty one, must not be missed."""
    schema = Schema.assign([Column(name="c", type=kind)])
    (leaf,) = schema.leaves()
    field = arrow_schema(schema).field(0)
    chunks = [pa.array([], pa.int64()), *(pa.array([number] * 2_000 + [None]) for number in (5, 9, 7)), pa.array([1])]
    values = pa.chunked_array([chunk.cast(field.type) for chunk in chunks])
    distinct, _ = find_distinct(leaf, values)
    assert distinct is not None
    assert sorted(distinct.to_pylist()) == sorted(values.unique().drop_null().to_pylist())
    rows = pa.table([values], schema=pa.schema([field]))
    assert measure(rows, schema, distinct_values={leaf.id: distinct}) == measure(rows, schema)


@pytest.mark.parametrize("kind", ["string", "int64", "decimal(9,2)"])
def test_values_that_hardly_repeat_are_not_collected(kind: str) -> None:
    """Looking for their distinct values would take longer than looking at all of them."""
    rows, schema = rows_of(kind, repeats=False)
    (leaf,) = schema.leaves()
    assert find_distinct(leaf, leaf_values(rows, leaf)) == (None, None)


@pytest.mark.parametrize("kind", ["string", "binary"])
@pytest.mark.parametrize("chunked", [True, False])
def test_a_file_of_dictionary_arrays_says_what_the_file_of_plain_ones_says(
    tmp_path: Path, kind: str, chunked: bool
) -> None:
    """The same rows, and the same statistics of chunks and of pages."""
    rows, schema = rows_of(kind, repeats=True)
    rows = rows if chunked else rows.combine_chunks()
    (leaf,) = schema.leaves()
    _, encoded = find_distinct(leaf, leaf_values(rows, leaf))
    assert encoded is not None
    measured = measure(rows, schema)
    found = []
    for number, arrays in enumerate(({}, {"c": encoded})):
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(encode(rows, schema, measured, arrays))
        footer = read_footer(FsspecStore(), f"file://{path}")
        chunk = pq.read_metadata(path).row_group(0).column(0)
        index = read_page_index(FsspecStore(), footer, [0], bounds=[0])
        of_pages = (index.pages[0, 0].row_counts.tolist(), index.column_indexes)
        found.append((pq.read_table(path), chunk.statistics, chunk.encodings, of_pages))
    plain, encoded_file = found
    assert plain == encoded_file
    assert len(plain[3][0]) > 1
    assert plain[3][1][0, 0]
    assert plain[0].column("c").to_pylist() == rows.column("c").to_pylist()


def test_decimals_are_what_their_integers_stand_for() -> None:
    """Negative ones, nulls, the longest of 64 bits, and slices."""
    numbers = [0, -1, 1, None, 10**18 - 1, -(10**18) + 1, -(2**63), 2**63 - 1, None, 5]
    dtype = pa.decimal128(38, 2)
    expected = [None if each is None else Decimal(each).scaleb(-2) for each in numbers]
    with_nulls = pa.array(numbers, pa.int64())
    assert decimals_of(with_nulls, dtype).to_pylist() == expected
    assert decimals_of(with_nulls[3:9], dtype).to_pylist() == expected[3:9]
    assert decimals_of(with_nulls[4:8], pa.decimal128(19, 2)).to_pylist() == expected[4:8]
    assert decimals_of(with_nulls[:0], dtype).to_pylist() == []
    assert decimals_of(with_nulls, dtype).validate(full=True) is None

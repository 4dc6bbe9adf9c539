"""Cells as bytes: nothing is lost, and damage is an error."""

from __future__ import annotations

import io
from contextlib import suppress
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.columnar.keys import BytesKeys, NumberKeys, WideKeys
from lamella.snapshot.errors import ManifestError
from lamella.snapshot.pages.build import KnownBlock, read_cells
from lamella.snapshot.pages.cell import Cell, decode, encode, pack, unpack
from lamella.snapshot.parquet import block_of, read_footer, schema_of
from lamella.snapshot.schema import Column, Leaf, Schema
from parquet.crafted import stored
from support import generate
from support.arrow_files import arrow_table

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT64 | st.integers(-3, 300)))
def test_signed_numbers_come_back(values: list[int]) -> None:
    """Whatever they span."""
    array = np.array(values, dtype=np.int64)
    assert unpack(pack(array), len(values)).tolist() == values


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_unsigned_numbers_come_back(values: list[int]) -> None:
    """Up to 2^64 - 1."""
    array = np.array(values, dtype=np.uint64)
    assert unpack(pack(array), len(values), unsigned=True).tolist() == values


def test_packed_numbers_are_small() -> None:
    """A byte each where they lie within 256 of each other, none where they are all alike."""
    assert len(pack(np.arange(10**12, 10**12 + 200))) == 9 + 200
    assert len(pack(np.full(1000, -7))) == 9


@given(st.binary(max_size=40), st.integers(0, 5))
def test_bytes_that_are_no_packed_numbers_are_an_error(data: bytes, count: int) -> None:
    """Or numbers; nothing else."""
    with suppress(ManifestError):
        assert len(unpack(data, count)) == count


def cells_of(table: pa.Table, **options: object) -> list[tuple[Leaf, Cell]]:
    """The cells of a file that pyarrow writes."""
    sink = io.BytesIO()
    pq.write_table(table, sink, write_page_index=True, max_rows_per_page=2, row_group_size=5, **options)
    store, location = stored(sink.getvalue())
    footer = read_footer(store, location)
    schema = schema_of(footer)
    found = read_cells(store, KnownBlock.of(block_of(footer, schema)), footer, schema.leaves())
    return [(leaf, found[leaf.id]) for leaf in schema.leaves()]


@pytest.mark.parametrize("kind", generate.TYPES)
def test_cells_of_every_type_come_back(kind: str) -> None:
    """Places, bounds, flags and null counts."""
    rng = Random(kind)
    schema = Schema.assign([Column(name="c", type=kind)])
    leaf = schema.leaves()[0]
    values = [generate.value(rng, leaf.dtype) if rng.random() < 0.8 else None for _ in range(12)]
    ((leaf, cell),) = cells_of(arrow_table(schema, {"c": values}))
    back = decode(encode(cell), leaf.dtype)
    for name in ("group_rows", "offsets", "sizes", "dictionary_sizes", "page_counts", "page_rows", "page_sizes"):
        assert getattr(back, name).tolist() == getattr(cell, name).tolist()
    assert back.zoned.tolist() == cell.zoned.tolist()
    assert back.null_counts.tolist() == cell.null_counts.tolist()
    assert back.reason == cell.reason
    assert back.zones is not None
    assert cell.zones is not None
    assert back.zones.flags.tolist() == cell.zones.flags.tolist()
    for one, other in ((back.zones.low, cell.zones.low), (back.zones.high, cell.zones.high)):
        if isinstance(one, BytesKeys) and isinstance(other, BytesKeys):
            assert [one.at(at) for at in range(len(back.zones))] == [other.at(at) for at in range(len(back.zones))]
            assert one.prefix.tolist() == other.prefix.tolist()
        elif isinstance(one, WideKeys) and isinstance(other, WideKeys):
            assert (one.high.tolist(), one.low.tolist()) == (other.high.tolist(), other.low.tolist())
        else:
            assert isinstance(one, NumberKeys)
            assert isinstance(other, NumberKeys)
            assert one.array.tobytes() == other.array.tobytes()
            assert one.array.dtype == other.array.dtype


def test_lists_have_one_location_per_row_group() -> None:
    """Their pages need not begin with a row; their chunks do (G9)."""
    table = pa.table({"l": [[1, 2], [], None, [3], [4, 5, 6], [7]]})
    ((_, cell),) = cells_of(table)
    assert cell.page_counts.tolist() == [0, 0]
    assert cell.units.sizes.tolist() == cell.sizes.tolist()
    assert (cell.units.starts.tolist(), cell.units.rows.tolist()) == ([0, 5], [5, 1])


@given(st.data())
def test_a_damaged_cell_is_an_error_of_ours(data: st.DataObject) -> None:
    """Or a cell; checksums come before this, so it only must not fail in another way."""
    ((leaf, cell),) = cells_of(pa.table({"c": ["a", None, "bcd", "e", "f" * 70, "g"]}))
    raw = bytearray(encode(cell))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ManifestError):
        decode(bytes(raw), leaf.dtype)

"""Damaged and hostile page indexes: pages, or a reason why there are none; never another error, and no wrong places."""

from __future__ import annotations

import io
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.errors import LamellaError
from lamella.snapshot.pages.build import KnownBlock, read_cells
from lamella.snapshot.parquet import block_of, read_footer, schema_of, thrift
from lamella.snapshot.parquet.page_index import MAX_REQUESTS, read_page_index
from lamella.snapshot.parquet.thrift import BOOL, ThriftError
from pages.page_files import ROWS, column_index, page_file
from pages.reads_counted import ReadsCounted
from parquet.crafted import BYTE_ARRAY, chunk, element, file_bytes, metadata, stored
from parquet.leaves import INT, NUMBER, TEXT, i64


@cache
def real_file() -> tuple[bytes, int, int]:
    """A file of many types, and where its page indexes begin and end."""
    table = pa.table(
        {
            "a": pa.array([*range(30), None, None], pa.int64()),
            "f": [1.5, float("nan"), -0.0, None] * 8,
            "g": [1.5, 2.5, -0.0, None] * 8,
            "s": ["x", "y" * 100, None, ""] * 8,
            "d": pa.array([1, 2, 3, None] * 8, pa.decimal128(20, 3)),
            "l": [[1], [], None, [1, 2]] * 8,
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, write_page_index=True, max_rows_per_page=3, row_group_size=16)
    data = sink.getvalue()
    store, location = stored(data)
    footer = read_footer(store, location)
    index_location = block_of(footer, schema_of(footer)).page_index_location
    assert index_location is not None
    return data, index_location[0], sum(index_location)


def check(data: bytes) -> None:
    """Read every cell; its parts must fit each other."""
    store, location = stored(data)
    try:
        footer = read_footer(store, location)
        schema = schema_of(footer)
        block = block_of(footer, schema)
    except LamellaError:
        return
    cells = read_cells(store, KnownBlock.of(block), footer, schema.leaves())
    for column_id, cell in cells.items():
        units = cell.units
        assert (units.sizes > 0).all() or not units.sizes.sum()
        assert (units.offsets + units.sizes <= len(data)).all()
        assert units.rows.sum() == block.row_count
        starts, entries = cell.zone_starts
        assert cell.zones is not None
        assert len(starts) == len(entries)
        assert not len(entries) or entries.max() < len(cell.zones), column_id


@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=6))
def test_changed_bytes_of_an_index(changes: list[tuple[float, int]]) -> None:
    """Anywhere in the column and offset indexes."""
    data, start, end = real_file()
    raw = bytearray(data)
    for at, byte in changes:
        raw[start + int(at * (end - start))] = byte
    check(bytes(raw))


@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_of_the_footer(changes: list[tuple[float, int]]) -> None:
    """Places and lengths of indexes and chunks among them."""
    data, _, end = real_file()
    raw = bytearray(data)
    for at, byte in changes:
        raw[end + int(at * (len(raw) - 8 - end))] = byte
    check(bytes(raw))


@given(st.binary(max_size=60), st.binary(max_size=60), st.sampled_from([INT, NUMBER, TEXT]))
def test_any_bytes_as_indexes(column: bytes, offsets: bytes, leaf: dict[int, object]) -> None:
    """Whatever stands where an index should."""
    file = page_file(leaf, column or None, locations=offsets + b"\x00")
    assert file.cell().group_rows.tolist() == [sum(ROWS)]
    file = page_file(leaf, column or None)
    assert file.cell().page_counts.tolist() == [3]


@given(st.data())
def test_any_lists_as_a_column_index(data: st.DataObject) -> None:
    """Lists of any length and content: pages are told apart by three zones, or not at all."""
    numbers = st.lists(st.integers(-3, 12) | st.sampled_from([2**62, -(2**63)]), max_size=5)
    values = st.lists(st.sampled_from([b"", b"\0" * 8, i64(3), i64(-1), b"x"]), max_size=5)
    index = {
        1: data.draw(st.lists(st.booleans(), max_size=5)),
        2: data.draw(values),
        3: data.draw(values),
        5: data.draw(numbers | st.none()),
        7: data.draw(numbers | st.none()),
        8: data.draw(numbers | st.none()),
    }
    file = page_file(data.draw(st.sampled_from([INT, NUMBER, TEXT])), index)
    assert len(file.pages()) in (0, 3)


def test_a_file_that_ends_within_its_index_has_no_pages() -> None:
    """The store gave fewer bytes than the footer promised."""

    class Short(ReadsCounted):
        def read_range(self, location: str, start: int, length: int) -> bytes:
            return super().read_range(location, start, length)[: length // 2]

    file = page_file(INT, column_index([(i64(1), i64(2))] * 3))
    index = read_page_index(Short(file.store), file.footer, bounds={0})
    assert index.at(0, 0) is None
    assert "cannot be decoded" in index.reasons[0, 0]


def test_indexes_all_over_a_file_take_few_requests() -> None:
    """A footer may name a thousand places far from each other; not all are read."""
    leaves = [element(f"c{at}", BYTE_ARRAY) for at in range(200)]
    chunks = [chunk([leaf[4]], BYTE_ARRAY, None, outer={4: 100 + at * 70_000, 5: 9}) for at, leaf in enumerate(leaves)]
    store, location = stored(file_bytes(metadata(leaves, [(10, chunks)]), body_bytes=200 * 70_000 + 1000))
    counted = ReadsCounted(store)
    footer = read_footer(store, location)
    index = read_page_index(counted, footer)
    assert len(index.reasons) == 200
    assert counted.requests <= MAX_REQUESTS


@pytest.mark.parametrize(("data", "values"), [(b"\x31\x01\x02\x00", [True, False, False]), (b"\x12\x01", [True])])
def test_lists_of_booleans_are_read_as_writers_write_them(data: bytes, values: list[bool]) -> None:
    """A byte each; false is 2 by the standard, and 0 by some writers."""
    assert thrift.decode(b"\x19" + data + b"\x00", {1: [BOOL]}) == {1: values}


@pytest.mark.parametrize("data", [b"\x31\x01\x02", b"\x11\x03", b"\x16\x02", b"\xf1\xff\xff\x01"])
def test_lists_of_something_else_are_no_booleans(data: bytes) -> None:
    """Neither are lists that end early, or numbers."""
    with pytest.raises(ThriftError):
        thrift.decode(b"\x19" + data + b"\x00", {1: [BOOL]})

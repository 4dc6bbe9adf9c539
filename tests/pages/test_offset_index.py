"""Where pages are (rules G7, G9 and G11): every contradiction leaves the whole chunk, with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from lamella.snapshot.parquet import read_footer
from lamella.snapshot.parquet.page_index import MAX_INDEX_BYTES, read_page_index
from pages.page_files import PAGE_BYTES, ROWS, column_index, offset_index, page_file
from parquet.crafted import BYTE_ARRAY, INT64, OPTIONAL, REPEATED, chunk, element, encode, file_bytes, metadata, stored
from parquet.leaves import INT, i64

HONEST = offset_index([PAGE_BYTES] * 3, ROWS)


def changed(page: int, field: int, value: Any) -> list[dict[int, Any]]:
    """The honest index with one field of one page replaced."""
    return [{**each, field: value} if at == page else each for at, each in enumerate(HONEST)]


def test_pages_have_locations_and_first_rows() -> None:
    """An honest index gives each page's bytes and rows, and which pages hold a range of rows."""
    pages = page_file(INT, None).index().at(0, 0)
    assert pages is not None
    assert pages.offsets.tolist() == [4, 24, 44]
    assert pages.sizes.tolist() == [20, 20, 20]
    assert (pages.first_rows.tolist(), pages.row_counts.tolist()) == ([0, 3, 7], [3, 4, 3])
    assert pages.dictionary is None
    assert [pages.holding(*rows) for rows in ((0, 1), (2, 4), (3, 7), (6, 8), (9, 10))] == [
        (0, 1),
        (0, 2),
        (1, 2),
        (1, 3),
        (2, 3),
    ]


def test_the_gap_before_the_first_page_is_the_dictionary() -> None:
    """Writers may leave dictionary_page_offset out, or write 0; the chunk's first bytes are it then (G11)."""
    for meta in ({}, {11: 0}, {9: 4}, {9: 34, 11: 4}):
        pages = page_file(INT, None, dictionary_bytes=30, meta={9: 4, **meta}).index().at(0, 0)
        assert pages is not None
        assert pages.dictionary == (4, 30)


@pytest.mark.parametrize(
    ("locations", "reason"),
    [
        (changed(0, 3, 1), "first rows"),
        (changed(2, 3, 3), "first rows"),
        (changed(2, 3, 2), "first rows"),
        (changed(2, 3, 10), "first rows"),
        (changed(1, 3, -3), "first rows"),
        (changed(2, 3, 1 << 62), "first rows"),
        (changed(1, 1, 25), "fill"),
        (changed(1, 1, 44), "fill"),
        (changed(0, 1, 0), "outside"),
        (changed(0, 1, -4), "outside"),
        (changed(2, 1, 1 << 62), "outside"),
        (changed(1, 2, 0), "outside"),
        (changed(1, 2, -20), "outside"),
        (changed(1, 2, 1 << 40), "outside"),
        (changed(2, 2, 21), "fill"),
        (changed(2, 2, 19), "fill"),
        (HONEST[:2], "fill"),
        (HONEST[1:], "first rows"),
        ([HONEST[0], HONEST[2]], "fill"),
        (list(reversed(HONEST)), "first rows"),
        ([], "no pages"),
        ([{1: 4, 2: 20, 5: b"instead"}], "is missing a field"),
        (b"\x19", "cannot be decoded"),
        (b"\x19\xfc\xff\xff\xff\xff\x0f\x00", "cannot be decoded"),
        (b"\x00", "cannot be decoded"),
        (encode({1: [1, 2, 3]}), "not structures"),
        (encode({1: 7}), "wire type"),
    ],
)
def test_a_contradictory_offset_index_is_not_believed(locations: Any, reason: str) -> None:
    """First rows ascend from 0 below the row count, and the pages fill the chunk without a gap (G7)."""
    index = page_file(INT, column_index([(i64(1), i64(2))] * 3), locations=locations).index()
    assert index.at(0, 0) is None
    assert reason in index.reasons[0, 0]


def test_unusual_spellings_of_an_index_are_read() -> None:
    """Fields that are not known, and in another order, are what Thrift allows."""
    odd = [{1: each[1], 2: each[2], 3: each[3], 9: b"later"} for each in HONEST]
    assert page_file(INT, None, locations=odd).index().at(0, 0) is not None
    with_sizes = encode({1: HONEST, 2: [1, 2, 3]})
    assert page_file(INT, None, locations=with_sizes).index().at(0, 0) is not None


@pytest.mark.parametrize("location", [(None, None), (0, 10), (-1, 5), (40, 1 << 40), (40, 0), (1 << 50, 4)])
def test_an_index_outside_the_file_is_none(location: tuple[int | None, int | None]) -> None:
    """The footer may name any place; only one within the file is read."""
    index = page_file(INT, None, index_location=location).index()
    assert index.at(0, 0) is None
    assert index.reasons[0, 0] == "the file has no offset index"


def test_repeated_leaves_have_no_pages() -> None:
    """Version 1 pages may begin inside a row, so that only the whole chunk is safe to read (G9)."""
    repeated = element("c", INT64, repetition=REPEATED)
    index = page_file(repeated, None).index()
    assert index.at(0, 0) is None
    assert "list or map" in index.reasons[0, 0]


def test_another_number_of_values_than_rows_leaves_the_chunk_whole() -> None:
    """Then rows of pages cannot be those of the row group (A6)."""
    index = page_file(INT, None, meta={5: 11}).index()
    assert index.reasons[0, 0] == "the number of values differs from the number of rows"


def test_many_chunks_that_share_one_index_are_bounded() -> None:
    """A small file cannot make a reader decode the same megabytes again and again."""
    leaves = [element(f"c{at}", BYTE_ARRAY, repetition=OPTIONAL) for at in range(50)]
    length = 1 << 20
    chunks = [chunk([leaf[4]], BYTE_ARRAY, None, outer={4: 100, 5: length}) for leaf in leaves]
    store, location = stored(file_bytes(metadata(leaves, [(10, chunks)]), body_bytes=length + 200))
    footer = read_footer(store, location)
    reasons = list(read_page_index(store, footer).reasons.values())
    assert len(reasons) == 50
    assert sum("longer than" in reason for reason in reasons) == 50 - MAX_INDEX_BYTES // length

"""What page statistics may be believed (rules G1 to G5, with B to F): crafted indexes, one lie at a time."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pages.page_files import column_index, page_file
from parquet.crafted import INT96, REQUIRED, element, encode, statistics
from parquet.leaves import BINARY, DATE, INT, NUMBER, PLAIN_FIXED, TEXT, UINT64, f64, i32, i64

REQUIRED_INT = element("c", 2, repetition=REQUIRED)
BOUNDS = [(i64(1), i64(3)), (i64(4), i64(6)), (i64(7), i64(9))]
CHUNK = statistics(i64(1), i64(9), nulls=0)


def test_an_honest_index_tells_pages_apart() -> None:
    """Bounds and null counts of each page."""
    file = page_file(INT, column_index(BOUNDS, nulls=[0, 0, 0]), stats=CHUNK)
    assert file.pages() == [(1, 3, "v"), (4, 6, "v"), (7, 9, "v")]
    assert file.cell().null_counts.tolist() == [0, 0, 0, 0]
    assert file.cell().reason is None


def test_the_boundary_order_is_not_believed() -> None:
    """Pages in any sequence under any claimed order are what their own bounds say (G5)."""
    shuffled = [BOUNDS[1], BOUNDS[2], BOUNDS[0]]
    for order in (0, 1, 2, 7):
        file = page_file(INT, column_index(shuffled, nulls=[0] * 3, order=order), stats=CHUNK)
        assert file.pages() == [(4, 6, "v"), (7, 9, "v"), (1, 3, "v")]


def test_a_page_of_nulls_is_one_when_everything_agrees() -> None:
    """null_pages, the null count and empty bounds (G2); also where null counts are left out."""
    with_null = [BOUNDS[0], None, BOUNDS[2]]
    for nulls in ([0, 4, 0], None):
        file = page_file(INT, column_index(with_null, nulls=nulls), stats=statistics(i64(1), i64(9), nulls=4))
        assert [each[2][:1] for each in file.pages()][1] == "0"
        assert file.pages()[1] == (None, None, "0")


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (column_index(BOUNDS, f1=[False] * 2), "number of pages"),
        (column_index(BOUNDS, f2=[i64(1)] * 4), "number of pages"),
        (column_index(BOUNDS, f3=[]), "number of pages"),
        (column_index(BOUNDS, f5=[0]), "different number of pages"),
        (column_index(BOUNDS, f1=None), "missing a required list"),
        (column_index(BOUNDS, f2=None), "missing a required list"),
        (column_index(BOUNDS, f1=[1, 2, 3]), "cannot be decoded"),
        (column_index(BOUNDS, f2=[1, 2, 3]), "cannot be decoded"),
        (encode(column_index(BOUNDS))[:-9], "cannot be decoded"),
        (column_index(BOUNDS, nulls=[-1, 0, 0]), "impossible"),
        (column_index(BOUNDS, nulls=[4, 0, 0]), "impossible"),
        (column_index(BOUNDS, nulls=[1, 0, 0]), "add up"),
        (column_index(BOUNDS, nulls=[3, 0, 0]), "add up"),
        (column_index(BOUNDS, nulls=[0, 0, 0], f1=[False, True, False]), "has bounds"),
        (column_index([BOUNDS[0], None, BOUNDS[2]], nulls=[0, 0, 0]), "a null count that is not its number of rows"),
        (column_index([BOUNDS[0], None, BOUNDS[2]]), "a null count that is not its number of rows"),
        (column_index([BOUNDS[0], (i64(6), i64(4)), BOUNDS[2]]), "minimum of a page is greater than its maximum"),
        (column_index([BOUNDS[0], (i64(100), i64(200)), BOUNDS[2]]), "outside the bounds of the chunk"),
        (column_index([BOUNDS[0], (i64(-9), i64(-8)), BOUNDS[2]]), "outside the bounds of the chunk"),
        (column_index(BOUNDS, levels=[1, 2, 0, 4, 0, 3]), "contradict the definition levels"),
        (column_index(BOUNDS, levels=[0, 2, 0, 4, 0, 3]), "number of rows"),
        (column_index(BOUNDS, levels=[0, 9, 0, 4, 0, 3]), "impossible"),
    ],
)
def test_a_contradiction_discredits_the_whole_index(index: Any, reason: str) -> None:
    """Lengths, counts that cannot be, pages of nulls with values, bounds outside the chunk's (G1, G2, G4)."""
    if isinstance(index, dict) and index.get(7):
        index = {**index, 5: [0, 0, 0]}
    file = page_file(INT, index, stats=CHUNK)
    assert file.pages() == []
    assert reason in (file.cell().reason or "")
    assert file.cell().page_counts.tolist() == [3], "places do not depend on statistics"


def test_null_counts_of_a_writer_that_counts_wrong_are_not_used() -> None:
    """Neither they nor its pages of nulls (E6)."""
    old = "parquet-mr version 1.9.0 (build x)"
    with_null = [BOUNDS[0], None, BOUNDS[2]]
    file = page_file(INT, column_index(with_null, nulls=[0, 4, 0]), stats=statistics(nulls=4), created_by=old)
    assert file.pages() == [(1, 3, "0v"), (None, None, "0v"), (7, 9, "0v")]


@pytest.mark.parametrize("nulls", [None, [0, 0, 0]])
def test_a_required_column_has_no_page_of_nulls(nulls: list[int] | None) -> None:
    """parquet-java once wrote such pages where statistics were off (null_pages against null_counts of -1)."""
    file = page_file(REQUIRED_INT, column_index([None] * 3, nulls=nulls))
    assert file.pages() == []
    assert "required column has a page of nulls" in (file.cell().reason or "")
    file = page_file(REQUIRED_INT, column_index([None] * 3, nulls=[-1] * 3))
    assert "impossible" in (file.cell().reason or "")


def test_missing_null_counts_are_unknown_unless_the_chunk_has_none() -> None:
    """A null count that is not there is not zero (F1)."""
    index = column_index(BOUNDS)
    assert {may for _, _, may in page_file(INT, index, stats=statistics(i64(1), i64(9))).pages()} == {"0v"}
    assert {may for _, _, may in page_file(INT, index, stats=CHUNK).pages()} == {"v"}
    assert {may for _, _, may in page_file(REQUIRED_INT, index).pages()} == {"v"}


def test_bounds_that_are_no_values_leave_their_page_unknown() -> None:
    """The others keep theirs (G3)."""
    file = page_file(INT, column_index([BOUNDS[0], (b"", b""), (b"\1\2", i64(9))], nulls=[0] * 3), stats=CHUNK)
    assert file.pages() == [(1, 3, "v"), (None, None, "v"), (None, None, "v")]


def test_empty_text_is_a_bound_only_where_the_chunk_has_it_too() -> None:
    """Empty bounds of text are the empty text, or a writer's way to say nothing (G3)."""
    index = column_index([(b"", b""), (b"", b"x"), (b"a", b"b")], nulls=[0] * 3)
    with_empty = page_file(TEXT, index, stats=statistics(b"", b"x", nulls=0))
    assert with_empty.pages() == [(b"", b"", "v"), (b"", b"x", "v"), (b"a", b"b", "v")]
    for stats in (statistics(nulls=0), statistics(b"a", b"x", nulls=0)):
        assert page_file(TEXT, index, stats=stats).pages()[0] == (None, None, "v")


@pytest.mark.parametrize("orders", [None, [{1: {}}, {1: {}}], [{3: {}}], [{9: {}}]])
def test_bounds_need_an_order_that_is_known(orders: Any) -> None:
    """Undefined or unknown column orders leave null counts only (B1)."""
    file = page_file(INT, column_index(BOUNDS, nulls=[0] * 3), orders=orders)
    assert file.pages() == [(None, None, "v")] * 3


def test_unsigned_numbers_compare_as_such() -> None:
    """A page beyond 2^63 is the greatest, not the least (B2)."""
    file = page_file(UINT64, column_index([(i64(1), i64(2)), (i64(2**63), i64(2**64 - 1)), (i64(5), i64(5))]))
    assert file.pages()[1][:2] == (2**63, 2**64 - 1)


def test_int96_has_no_bounds() -> None:
    """Their order is not known (B7)."""
    file = page_file(element("c", INT96), column_index([(bytes(12), bytes(12))] * 3, nulls=[0] * 3))
    assert {each[:2] for each in file.pages()} == {(None, None)}


def test_nan_in_a_bound_drops_both_bounds_of_its_page() -> None:
    """Whatever was compared with it is not known (C1)."""
    index = column_index([(f64(1), f64(2)), (f64(math.nan), f64(2)), (f64(1), f64(math.nan))], nulls=[0] * 3)
    assert page_file(NUMBER, index).pages() == [(1.0, 2.0, "vn"), (None, None, "vn"), (None, None, "vn")]


def test_nan_counts_say_where_nan_may_be() -> None:
    """Absent they say nothing (C2); a page of NaN only holds no number (C4); zeros widen (C5)."""
    index = [(f64(0.0), f64(0.0)), (f64(1), f64(2)), (f64(math.nan), f64(math.nan))]
    pages = page_file(NUMBER, column_index(index, nulls=[0] * 3, nans=[0, 1, 3])).pages()
    assert [may for _, _, may in pages] == ["v", "vn", "n"]
    assert [math.copysign(1, bound) for bound in pages[0][:2]] == [-1.0, 1.0]
    none = statistics(f64(0), f64(2), nulls=0, nans=0)
    assert {may for _, _, may in page_file(NUMBER, column_index(index[:2] + index[:1]), stats=none).pages()} == {"v"}


@pytest.mark.parametrize(
    ("nans", "chunk_nans", "reason"),
    [
        ([0, 1], None, "different number of pages"),
        ([-1, 0, 0], None, "impossible"),
        ([4, 0, 0], None, "impossible"),
        ([1, 0, 0], 0, "add up"),
        ([3, 0, 0], None, "every value is NaN"),
    ],
)
def test_nan_counts_that_cannot_be_discredit_the_index(nans: list[int], chunk_nans: int | None, reason: str) -> None:
    """They are held against rows, the chunk and the bounds."""
    stats = statistics(nulls=0, nans=chunk_nans)
    file = page_file(NUMBER, column_index([(f64(1), f64(2))] * 3, nulls=[0] * 3, nans=nans), stats=stats)
    assert file.pages() == []
    assert reason in (file.cell().reason or "")


def test_truncated_bounds_hold() -> None:
    """A prefix is a lower bound; our own cut of a long upper bound is rounded up (D2, D4)."""
    long = b"a" * 63 + b"\xff" * 40
    pages = page_file(TEXT, column_index([(b"ab", b"b"), (long, long), (b"\xff" * 99, b"\xff" * 99)])).pages()
    assert pages[0][:2] == (b"ab", b"b")
    assert pages[1][0] == long[:64]
    assert pages[1][1] == b"a" * 62 + b"b"
    assert pages[2][1] == b"\xff" * 99
    assert page_file(PLAIN_FIXED, column_index([(b"a", b"b")] * 3)).pages()[0][:2] == (b"a", b"b")


def test_a_writer_whose_bounds_are_denied_has_none() -> None:
    """What is known to be wrong in footers is in page indexes too (E3, E6)."""
    index = column_index([(b"a", b"b")] * 3, nulls=[0] * 3)
    assert page_file(BINARY, index, created_by="hyparquet").pages() == [(None, None, "v")] * 3


def test_days_of_the_old_calendar_are_no_bounds() -> None:
    """Before 1582 they mean other days (B12)."""
    index = column_index([(i32(-200_000), i32(-190_000)), (i32(-200_000), i32(10)), (i32(5), i32(10))], nulls=[0] * 3)
    old = page_file(DATE, index, properties={"org.apache.spark.legacyDateTime": ""})
    assert old.pages() == [(None, None, "v"), (None, 10, "v"), (5, 10, "v")]


def test_a_chunk_whose_statistics_contradict_themselves_has_no_page_statistics() -> None:
    """What wrote the one wrote the other."""
    file = page_file(INT, column_index(BOUNDS, nulls=[0] * 3), stats=statistics(i64(1), i64(9), nulls=11))
    assert file.pages() == []
    assert file.cell().reason == "the null count is impossible"


def test_no_column_index_still_gives_locations() -> None:
    """A chunk with NaN has none, by many writers (C6)."""
    cell = page_file(INT, None).cell()
    assert (cell.zoned.tolist(), cell.page_counts.tolist()) == ([False], [3])
    assert cell.reason == "the file has no column index"

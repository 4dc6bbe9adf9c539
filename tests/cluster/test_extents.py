"""Where blocks lie by their zone maps, on one column, on several, and as boxes."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.cluster.depth import interval_depths
from lamella.snapshot.cluster.extent import Boxes, Intervals, extents
from lamella.snapshot.columnar.points import ranked, spread
from lamella.snapshot.columnar.zones import Zones, keys_of, nothing_known, zones_of
from lamella.snapshot.schema import Leaf, parse_type
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.stats.measure import leaf_stats
from support.clustered import ClusteredTable, cut

LONG = "a long beginning that all of them have, longer than what a bound may be, and then "
#: Arrow type, type, ascending values.
COLUMNS: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "boolean": (pa.bool_(), "boolean", [False, True]),
    "int8": (pa.int8(), "int8", [-128, -1, 0, 5, 127]),
    "int64": (pa.int64(), "int64", [-(1 << 63), -(1 << 53) - 1, -(1 << 53), 0, (1 << 63) - 2, (1 << 63) - 1]),
    "uint64": (pa.uint64(), "uint64", [0, 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1]),
    "float64": (pa.float64(), "float64", [-math.inf, -1.5, 0.0, 5e-324, 1e300, math.inf]),
    "float32": (pa.float32(), "float32", [-math.inf, -1.5, 0.0, 2.0, math.inf]),
    "decimal": (pa.decimal128(9, 2), "decimal(9,2)", [Decimal("-5.00"), Decimal("0.01"), Decimal("1.10")]),
    "wide": (
        pa.decimal128(38, 0),
        "decimal(38,0)",
        [Decimal(v) for v in (1 - 10**38, -(2**64), -1, 0, 2**64 - 1, 2**64, 10**37, 10**37 + 1, 10**38 - 1)],
    ),
    "string": (
        pa.string(),
        "string",
        ["", "\0", "a", "a\0", "aa", "abcdefgh", "abcdefgh\0", "abcdefghi", "é", "\U0001f600"],
    ),
    "binary": (pa.binary(), "binary", [b"", b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]),
    "date": (pa.date32(), "date", [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        "timestamp(us)",
        [dt.datetime(y, 1, 1, tzinfo=dt.UTC) for y in (1, 1969, 1970, 9999)],
    ),
}


def zone_maps(name: str, blocks: Sequence[Sequence[Any]]) -> Zones:
    """The zone maps of blocks of values, by the statistics that a writer records."""
    arrow, text, _ = COLUMNS[name]
    leaf = Leaf(1, ("c",), parse_type(text), True, False)
    return zones_of(
        leaf.dtype, [(len(rows), leaf_stats(leaf, pa.chunked_array([pa.array(rows, arrow)]))) for rows in blocks]
    )


def one_column(zones: Zones) -> Intervals:
    """Where blocks lie on a column."""
    found = extents("linear", [zones])
    assert isinstance(found, Intervals)
    return found


@pytest.mark.parametrize("name", list(COLUMNS))
@given(data=st.data())
def test_points_are_in_the_order_of_the_column(name: str, data: st.DataObject) -> None:
    """Values ascending, NaN above all numbers, nulls last: two bounds compare as their points do."""
    values = COLUMNS[name][2]
    nan, null = len(values), len(values) + 1
    positions = st.integers(0, null) if name.startswith("float") else st.integers(0, null).filter(lambda at: at != nan)
    blocks = data.draw(st.lists(st.lists(positions, min_size=1, max_size=4), min_size=1, max_size=8))
    rows = [[values[at] if at < nan else math.nan if at == nan else None for at in block] for block in blocks]
    found = one_column(zone_maps(name, rows))
    low, high = np.array([min(block) for block in blocks]), np.array([max(block) for block in blocks])
    # Whether floats hold NaN beside numbers is known, so the upper end is, too.
    wanted, points = np.concatenate([low, high]), np.concatenate([found.first, found.last])
    for left, right in itertools.combinations(range(len(wanted)), 2):
        assert np.sign(wanted[left] - wanted[right]) == np.sign(points[left] - points[right])
    assert found.is_constant.tolist() == (low == high).tolist()
    assert not found.is_unknown.any()
    assert int(points.max()) < found.count


def test_zeros_are_one_value() -> None:
    """A block of -0.0 and one of 0.0 hold one and the same value."""
    dtype = parse_type("float64")
    bounds = [to_bound(dtype, value) for value in (-0.0, 0.0)]
    stats = [ColumnStats(min=bound, max=bound, null_count=0) for bound in bounds]
    found = one_column(zones_of(dtype, [(1, each) for each in stats]))
    assert found.first.tolist() == found.last.tolist() == [found.first[0]] * 2


def test_a_block_with_unknown_bounds_reaches_to_the_ends() -> None:
    """Below and above all that is known, and up to the nulls where there may be some; without statistics likewise."""
    dtype = parse_type("int64")
    low, high = to_bound(dtype, 5), to_bound(dtype, 7)
    stats = [
        ColumnStats(min=low, max=high, null_count=0),
        ColumnStats(max=high, null_count=0),
        ColumnStats(min=low, null_count=0),
        ColumnStats(null_count=0),
        ColumnStats(min=low, max=high, null_count=2),
        ColumnStats(null_count=9),
        ColumnStats(),
        None,
    ]
    found = one_column(zones_of(dtype, [(9, each) for each in stats]))
    five, seven, null = int(found.first[0]), int(found.last[0]), int(found.first[5])
    below, above = int(found.first[1]), int(found.last[2])
    assert below < five < seven < above < null
    assert found.first.tolist() == [five, below, five, below, five, null, below, below]
    assert found.last.tolist() == [seven, seven, above, above, null, null, null, null]
    assert found.is_unknown.tolist() == [False, True, True, True, False, False, True, True]
    assert one_column(nothing_known(3)).is_unknown.all()


@pytest.mark.parametrize("missing", ["min", "max"])
def test_more_bounds_may_be_known_of_one_side_than_of_the_other(missing: str) -> None:
    """Blocks whose minimum (or maximum) is not known do not move the known bounds of the others."""
    dtype = parse_type("int64")
    low, high = to_bound(dtype, 5), to_bound(dtype, 7)
    whole = ColumnStats(min=low, max=high, null_count=0)
    partial = ColumnStats(max=high, null_count=0) if missing == "min" else ColumnStats(min=low, null_count=0)
    found = one_column(zones_of(dtype, [(9, each) for each in (whole, partial, partial, whole)]))
    both = one_column(zones_of(dtype, [(9, whole)]))
    assert found.first[[0, 3]].tolist() == [both.first[0]] * 2
    assert found.last[[0, 3]].tolist() == [both.last[0]] * 2
    below, above = 0, found.count - 3
    assert found.first[1:3].tolist() == [below if missing == "min" else both.first[0]] * 2
    assert found.last[1:3].tolist() == [both.last[0] if missing == "min" else above] * 2


def test_cut_bounds_are_bounds() -> None:
    """Long texts have bounds that are cut: blocks lie at least where their values are, and are not constant."""
    found = one_column(zone_maps("string", [[LONG + "b"], [LONG + "c", LONG + "d"], ["a"], ["b"]]))
    assert found.first[0] == found.first[1]
    assert found.last[0] == found.last[1]
    assert not found.is_constant[:2].any()
    assert found.last[2] < found.first[0]
    assert found.last[0] < found.first[3]


def test_numbers_of_points_are_exact_for_wide_decimals() -> None:
    """Decimals that are the same as floats are told apart."""
    dtype = parse_type("decimal(38,0)")
    low, high = keys_of(dtype, [10**37, 10**37 + 1]), keys_of(dtype, [10**37 + 2, 10**37 + 1])
    assert low is not None
    assert high is not None
    points, lows, highs = ranked(low, high)
    assert (len(points), lows.tolist(), highs.tolist()) == (3, [0, 1], [2, 1])


@given(st.integers(1, 12), st.data())
def test_weights_of_ranges_are_added_up(elements: int, data: st.DataObject) -> None:
    """As adding them up range by range."""
    ends = st.tuples(st.integers(0, elements - 1), st.integers(0, elements - 1)).map(sorted)
    ranges = data.draw(st.lists(ends, max_size=6))
    weight = np.arange(1, len(ranges) + 1, dtype=np.float64)
    first, last = (np.array([pair[at] for pair in ranges], dtype=np.int64) for at in (0, 1))
    wanted = [sum(w for w, (a, b) in zip(weight, ranges, strict=True) if a <= at <= b) for at in range(elements)]
    assert spread(elements, first, last, weight).tolist() == wanted


ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60)


@given(ROWS, st.integers(1, 3), st.integers(1, 12))
def test_blocks_of_a_sorted_table_do_not_overlap(rows: list[tuple[int, ...]], columns: int, size: int) -> None:
    """For any number of columns, however many ties: cut anywhere, sorted rows make blocks of depth 1."""
    table = np.array(sorted(row[:columns] for row in rows), dtype=np.int64)
    blocks = [table[at : at + size] for at in range(0, len(table), size)]
    found = ClusteredTable(blocks).extents()
    assert isinstance(found, Intervals)
    assert interval_depths(found).depth.tolist() == [1] * len(blocks)
    assert interval_depths(found).overlaps.tolist() == [0] * len(blocks)


@given(ROWS, st.integers(2, 3), st.integers(1, 6), st.randoms())
def test_blocks_that_lie_apart_are_in_order(rows: list[tuple[int, ...]], columns: int, size: int, random: Any) -> None:
    """Where one block lies before another, no row of it has a greater first column, nor, where that is one value in
    both, a greater second one, and so on.
    """
    random.shuffle(rows)
    table = np.array([row[:columns] for row in rows], dtype=np.int64)
    blocks = [table[at : at + size] for at in range(0, len(table), size)]
    found = ClusteredTable(blocks).extents()
    assert isinstance(found, Intervals)
    for left, right in itertools.permutations(range(len(blocks)), 2):
        if found.high[left] >= found.low[right]:
            continue
        for column in range(columns):
            mine, other = blocks[left][:, column], blocks[right][:, column]
            assert mine.max() <= other.min()
            if len(set(mine.tolist() + other.tolist())) > 1:
                break


def test_the_second_column_tells_blocks_of_one_first_value_apart() -> None:
    """Blocks of tenant 5 lie by time; their neighbours, that only begin or end with tenant 5, touch them all."""
    five = [[(5, at), (5, at + 9)] for at in (0, 10, 20, 25)]
    table = ClusteredTable(
        [np.array(rows) for rows in ([(3, 7), (5, 50)], *five, [(5, 0), (7, 9)], [(5, 15), (5, 15)])]
    )
    found = table.extents()
    assert isinstance(found, Intervals)
    assert interval_depths(found).depth.tolist() == [1, 1, 2, 2, 2, 1, 2]
    assert interval_depths(found).overlaps.tolist() == [0, 0, 1, 1, 1, 0, 1]


def test_keys_of_several_columns_are_boxes_along_a_curve() -> None:
    """z-order and Hilbert: an interval for each column; with one column there is nothing to curve through."""
    rows = [np.array([[0, 0], [4, 9]]), np.array([[2, 10], [9, 10]])]
    for kind in ("zorder", "hilbert"):
        found = ClusteredTable(rows, kind=kind).extents()
        assert isinstance(found, Boxes)
        assert [len(found), len(found.sides), found.kind] == [2, 2, kind]
        assert found.sides[1].is_constant.tolist() == [False, True]
        assert not found.is_constant.any()
    assert isinstance(ClusteredTable(cut(np.arange(9), 3), kind="zorder").extents(), Intervals)


def test_columns_of_other_blocks_are_refused() -> None:
    """A key has a column, and its columns are of the same blocks."""
    with pytest.raises(ValueError, match="at least one column"):
        extents("linear", [])
    with pytest.raises(ValueError, match="every block"):
        extents("linear", [nothing_known(2), nothing_known(3)])


def test_a_table_without_blocks_lies_nowhere() -> None:
    """Nothing in, nothing out."""
    for kind in ("linear", "zorder"):
        found = extents(kind, [nothing_known(0), nothing_known(0)])
        assert len(found) == 0
        assert len(found.is_constant) == len(found.is_unknown) == 0

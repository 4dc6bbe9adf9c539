"""Where blocks lie on the values of a column, beside a scan of their bounds one by one."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustering.test_layouts import Table
from lamella.snapshot.columnar.zones import zones_of
from lamella.snapshot.errors import InvalidRequest, UnknownColumn
from lamella.snapshot.schema import Leaf, parse_type
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.warehouse.key_axis import KeyAxis, Window, axis_of, counts_of

#: Type and ascending values of it.
VALUES: dict[str, list[Any]] = {
    "int64": [-(1 << 63), -5, 0, 7, (1 << 53) + 1, (1 << 63) - 1],
    "uint64": [0, 3, (1 << 63) + 1, (1 << 64) - 1],
    "float64": [-math.inf, -1.5, 0.0, 2.5, math.inf],
    "decimal(38,2)": [-(10**30), -1, 0, 2**64, 2**64 + 1],
    "date": [-719_162, 0, 9_131, 20_000],
    "string": [b"", b"a", b"a\0", b"ab", b"abcdefgh", b"abcdefghi", "é".encode()],
}

Bounds = tuple[int | None, int | None, bool, int]


def random_blocks(data: st.DataObject, count: int) -> list[Bounds]:
    """Bounds of blocks as positions among the values (None: unknown), whether all is null, and the number of rows."""
    position = st.integers(0, count - 1)
    one = st.tuples(position, position, st.integers(0, 9), st.integers(0, 9), st.sampled_from([0, 5, 5, 5]))
    found = []
    for left, right, hidden, nulls, rows in data.draw(st.lists(one, max_size=12)):
        low, high = min(left, right), max(left, right)
        found.append((None if hidden == 0 else low, None if hidden == 1 else high, nulls == 0, rows))
    return found


def axis(name: str, blocks: list[Bounds]) -> KeyAxis:
    """The axis of such blocks."""
    dtype, values = parse_type(name), VALUES[name]
    entries = []
    for low, high, is_null, rows in blocks:
        stats = ColumnStats(
            min=None if low is None or is_null else to_bound(dtype, values[low]),
            max=None if high is None or is_null else to_bound(dtype, values[high]),
            null_count=rows if is_null else 0,
            nan="none",
        )
        entries.append((rows, stats))
    row_count = np.array([rows for *_, rows in blocks], dtype=np.int64)
    return axis_of(Leaf(1, ("c",), dtype, True, False), zones_of(dtype, entries), row_count)


def reaches(block: Bounds, low: int, high: int) -> bool:
    """Whether a block may have a value from one position to another, both included; by its bounds."""
    minimum, maximum, is_null, rows = block
    return rows > 0 and not is_null and (minimum is None or minimum <= high) and (maximum is None or maximum >= low)


@pytest.mark.parametrize("name", list(VALUES))
@given(data=st.data())
def test_blocks_are_where_their_bounds_say(name: str, data: st.DataObject) -> None:
    """In any part of the axis and in any bins of it, blocks are those that a scan of all bounds finds there."""
    values = VALUES[name]
    blocks = random_blocks(data, len(values))
    found = axis(name, blocks)
    low, high = sorted(data.draw(st.tuples(*[st.integers(0, len(values) - 1)] * 2)))
    window = Window(values[low], values[high])
    inside = found.blocks_in(window)
    assert inside.tolist() == [reaches(block, low, high) for block in blocks]
    inner = sorted(data.draw(st.sets(st.integers(low + 1, high), max_size=4))) if low < high else []
    edges = [low, *inner, high]
    chosen = np.flatnonzero(inside)
    first, last = found.crossed([values[edge] for edge in edges], chosen)
    ends = [*[edge - 1 for edge in inner], high]
    rng = Random(len(blocks))
    classes = np.array([rng.randint(0, 2) for _ in blocks], dtype=np.int64)
    counts = counts_of(classes[chosen], 3, first, last, len(ends))
    for row in range(3):
        for number, (start, end) in enumerate(zip([low, *inner], ends, strict=True)):
            expected = sum(1 for at in chosen.tolist() if classes[at] == row and reaches(blocks[at], start, end))
            assert counts[row, number] == expected


def test_unknown_bounds_extend_to_the_ends_and_nulls_are_nowhere() -> None:
    """A block without statistics may have any value; one of nulls only, or without rows, has none."""
    blocks: list[Bounds] = [
        (1, 2, False, 5),
        (None, 2, False, 5),
        (1, None, False, 5),
        (0, 3, True, 5),
        (0, 3, False, 0),
    ]
    found = axis("int64", [*blocks, (None, None, False, 5)])
    assert found.whole == Window(VALUES["int64"][1], VALUES["int64"][2])
    assert found.low.tolist() == [0, -1, 0, 0, 0, -1]
    assert found.high.tolist() == [1, 1, 2, -1, -1, 2]
    below, above = Window(-100, -90), Window(100, 200)
    assert found.blocks_in(below).tolist() == [False, True, False, False, False, True]
    assert found.blocks_in(above).tolist() == [False, False, True, False, False, True]


def test_a_gap_between_bounds_has_the_blocks_that_extend_over_it() -> None:
    """A part without any bound is in the blocks that begin before it and end after it."""
    found = axis("int64", [(1, 4, False, 5), (1, 2, False, 5)])
    assert found.blocks_in(Window(100, 200)).tolist() == [True, False]


def test_an_axis_without_bounds_is_empty() -> None:
    """Without statistics there is no value to begin with."""
    found = axis("string", [(None, None, False, 5)])
    assert (found.whole, found.point_count) == (None, 0)
    assert axis("int64", []).whole is None


def test_axes_are_of_columns_of_a_key_and_made_once() -> None:
    """By default of the cluster key; other columns by name; read-only, because requests share them."""
    table = Table("axes")
    table.append((1, 5), (3, 9))
    axes = table.warehouse.key_axes
    found = axes.of(table.pointer)
    assert (found.column, found.whole) == ("a", Window(1, 9))
    assert axes.of(table.pointer) is found
    assert axes.of(table.pointer, ["b", "a"], 1) is found
    assert axes.of(table.pointer, ["b"]).whole == Window(-9, -1)
    with pytest.raises(ValueError, match="read-only"):
        found.low[0] = 3
    with pytest.raises(InvalidRequest, match="number 2"):
        axes.of(table.pointer, (), 1)
    with pytest.raises(UnknownColumn):
        axes.of(table.pointer, ["z"])
    before = table.pointer
    table.append((4, 60))
    assert axes.of(table.pointer).whole == Window(1, 60)
    assert axes.of(before) is found


def test_counts_are_made_once_for_a_name() -> None:
    """A second request for the same name makes nothing."""
    table = Table("counts")
    axes = table.warehouse.key_axes
    made = []

    def make() -> Any:
        made.append(1)
        return np.array([[1, 2]])

    assert axes.counts("n", make) is axes.counts("n", make)
    assert len(made) == 1

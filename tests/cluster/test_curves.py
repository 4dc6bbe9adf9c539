"""Positions along curves: every point once, and in the order that a curve has."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.cluster.curve import MAX_BITS, CurveKind, Points, bits_for, order, positions, to_arrow

KINDS: tuple[CurveKind, ...] = ("zorder", "hilbert")
SMALL = [(1, 6), (2, 1), (2, 4), (3, 1), (3, 3), (4, 2), (5, 2), (6, 1)]


def grid(columns: int, bits: int) -> Points:
    """Every point there is."""
    return np.array(list(itertools.product(range(1 << bits), repeat=columns)), dtype=np.uint64)


def numbers(kind: CurveKind, points: Points, bits: int) -> list[int]:
    """Positions as integers."""
    found = []
    for words in positions(kind, points, bits).tolist():
        number = 0
        for word in words:
            number = number << 64 | word
        found.append(number)
    return found


def interleaved(point: list[int], bits: int) -> int:
    """z-order, bit by bit."""
    number = 0
    for level in reversed(range(bits)):
        for value in point:
            number = number << 1 | (value >> level & 1)
    return number


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("columns", "bits"), SMALL)
def test_each_position_is_that_of_one_point(kind: CurveKind, columns: int, bits: int) -> None:
    """The points of a grid have the positions from 0 on, each once."""
    points = grid(columns, bits)
    assert sorted(numbers(kind, points, bits)) == list(range(len(points)))


@pytest.mark.parametrize(("columns", "bits"), SMALL)
def test_neighbours_along_a_hilbert_curve_are_neighbours(columns: int, bits: int) -> None:
    """From one position to the next, one column changes by one."""
    points = grid(columns, bits)
    along = points[np.argsort(numbers("hilbert", points, bits))].astype(np.int64)
    assert (np.abs(np.diff(along, axis=0)).sum(axis=1) == 1).all()


@given(st.integers(1, 9), st.integers(1, 64), st.data())
def test_z_order_takes_bits_by_turns(columns: int, bits: int, data: st.DataObject) -> None:
    """For any number of columns and bits, also where positions have several words."""
    points = data.draw(
        st.lists(st.lists(st.integers(0, (1 << bits) - 1), min_size=columns, max_size=columns), max_size=5)
    )
    given_points = np.array(points, dtype=np.uint64).reshape(-1, columns)
    assert numbers("zorder", given_points, bits) == [interleaved(point, bits) for point in points]


@given(st.integers(2, 7), st.integers(1, 30), st.integers(0, 2**32))
def test_a_finer_hilbert_curve_goes_through_the_same_cells(columns: int, bits: int, seed: int) -> None:
    """Points in one cell of a coarse grid come together on the fine curve: their first bits are the cell's position,
    of the curve that begins along the same column.
    """
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 1 << bits, (6, columns)).astype(np.uint64)
    fine = (coarse << np.uint64(columns)) | rng.integers(0, 1 << columns, (6, columns)).astype(np.uint64)
    # A curve turns by one column with each level, so it is the same one again after as many as there are columns.
    shifted = [number >> (columns * columns) for number in numbers("hilbert", fine, bits + columns)]
    assert shifted == numbers("hilbert", coarse, bits)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("columns", "bits"), [(1, 16), (2, 16), (4, 16), (5, 16), (9, 16), (3, 64)])
def test_arrow_sorts_positions_along_the_curve(kind: CurveKind, columns: int, bits: int) -> None:
    """As one word or as bytes, Arrow's order is that of the numbers, and so is ours; equal points keep their places."""
    rng = np.random.default_rng(columns)
    points = rng.integers(0, 1 << min(bits, 62), (300, columns)).astype(np.uint64)
    points[100:120] = points[:20]
    found = positions(kind, points, bits)
    wanted = np.argsort(np.array(numbers(kind, points, bits), dtype=object), kind="stable").tolist()
    assert order(found).tolist() == wanted
    assert pc.sort_indices(to_arrow(found)).to_pylist() == wanted
    assert to_arrow(found).type == (pa.uint64() if columns * bits <= 64 else pa.binary(-(-columns * bits // 64) * 8))


def test_one_column_is_its_own_curve() -> None:
    """Either curve through one column is the column."""
    points = grid(1, 5)
    assert numbers("zorder", points, 5) == numbers("hilbert", points, 5) == list(range(32))


def test_what_is_no_point_is_refused() -> None:
    """Too many bits, no columns, no such curve."""
    points = np.array([[3, 4]], dtype=np.uint64)
    with pytest.raises(ValueError, match="more than 2 bits"):
        positions("zorder", points, 2)
    with pytest.raises(ValueError, match="at least one column"):
        positions("zorder", points[:, :0], 2)
    with pytest.raises(ValueError, match="1 to 64 bits"):
        positions("zorder", points, 65)
    with pytest.raises(ValueError, match="no curve"):
        positions("peano", points, 8)  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize("columns", [1, 2, 4, 5, 16, 64, 100])
def test_positions_fit_one_word_where_they_can(columns: int) -> None:
    """As many bits as that allows, and at least one."""
    bits = bits_for(columns)
    assert 1 <= bits <= MAX_BITS
    assert columns * bits <= 64 or bits == 1
    assert columns * (bits + 1) > 64 or bits == MAX_BITS


@pytest.mark.parametrize("kind", KINDS)
def test_no_points_have_no_positions(kind: CurveKind) -> None:
    """Nothing in, nothing out."""
    found = positions(kind, np.zeros((0, 3), dtype=np.uint64), 16)
    assert found.shape == (0, 1)
    assert len(order(found)) == len(to_arrow(found)) == 0

"""From row ranges to the bytes of a column that hold them: stretches of adjacent pages, and dictionaries."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lamella.snapshot.pages import Cell
from lamella.snapshot.wire import ColumnRanges

Numbers = npt.NDArray[np.int64]


def column_ranges(name: str, cell: Cell, starts: Numbers, rows: Numbers) -> ColumnRanges:
    """The bytes of a column that hold the rows of some ranges (first rows relative to the block, ascending)."""
    units = cell.units
    first = np.searchsorted(units.starts, starts, side="right") - 1
    last = np.searchsorted(units.starts, starts + rows, side="left")
    # +1 where a range's pages begin, -1 behind them: the running sum says which pages are wanted.
    count = len(units.starts)
    steps = np.bincount(first, minlength=count + 1) - np.bincount(last, minlength=count + 1)
    wanted = np.cumsum(steps[:-1]) > 0
    meet = wanted[1:] & wanted[:-1] & (units.groups[1:] == units.groups[:-1])
    heads, tails = wanted.copy(), wanted.copy()
    heads[1:] &= ~meet
    tails[:-1] &= ~meet
    groups = units.groups[heads]
    offsets = units.offsets[heads]
    once = groups[np.flatnonzero(np.diff(groups, prepend=-1))]
    with_dictionary = once[(cell.dictionary_sizes[once] > 0) & (cell.page_counts[once] > 0)]
    return ColumnRanges(
        column=name,
        row_group=groups.tolist(),
        first_row=units.first_rows[heads].tolist(),
        row_count=(units.starts[tails] + units.rows[tails] - units.starts[heads]).tolist(),
        offset=offsets.tolist(),
        size_bytes=(units.offsets[tails] + units.sizes[tails] - offsets).tolist(),
        dictionary=[
            (int(group), int(cell.offsets[group]), int(cell.dictionary_sizes[group])) for group in with_dictionary
        ],
    )


def size_bytes(ranges: ColumnRanges) -> int:
    """All bytes to read of a column, its dictionaries included."""
    return sum(ranges.size_bytes) + sum(size for _, _, size in ranges.dictionary)

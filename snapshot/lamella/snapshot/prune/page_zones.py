"""Zone maps of many blocks' pages on one axis of rows, and what a filter says of the ranges between their boundaries.

Every column has its own pages. The boundaries of all columns that a filter names cut the rows into ranges within which
each column is described by one of its zones; the filter is evaluated once, over those ranges. Row groups always end a
range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar import Companion
from lamella.snapshot.columnar.keys import BytesKeys, Keys, NumberKeys, WideKeys
from lamella.snapshot.columnar.zones import Zones, keys_of
from lamella.snapshot.expression.bound import BoundPredicate, columns_of
from lamella.snapshot.pages import BlockPages, Cell
from lamella.snapshot.prune.evaluate import evaluate
from lamella.snapshot.prune.verdict import ALL, NONE, UNKNOWN, verdicts
from lamella.snapshot.schema import DataType, Leaf

Numbers = npt.NDArray[np.int64]


class Axis(msgspec.Struct, frozen=True):
    """The rows of some blocks one after another. Per row group that has rows: ``starts``, ``rows``, its block's place
    in the list (``blocks``) and its ``number`` in the block. ``bases``: where each block begins. A block whose row
    groups are not known counts as one row group.
    """

    starts: Numbers
    rows: Numbers
    blocks: Numbers
    number: Numbers
    bases: Numbers
    total: int


class Ranges(msgspec.Struct, frozen=True):
    """Ranges of rows that are not ruled out: row group (a place in the axis), first row on the axis, rows, verdict."""

    groups: Numbers
    starts: Numbers
    rows: Numbers
    codes: npt.NDArray[np.uint8]


def axis_of(pages: Sequence[BlockPages], row_counts: Numbers) -> Axis:
    """The axis of blocks of ``row_counts`` rows."""
    rows: list[int] = []
    blocks: list[int] = []
    number: list[int] = []
    for block, (given, count) in enumerate(zip(pages, row_counts.tolist(), strict=True)):
        for group, group_rows in enumerate(given.group_rows or (count,)):
            if group_rows:
                rows.append(group_rows)
                blocks.append(block)
                number.append(group)
    sizes = np.array(rows, dtype=np.int64)
    return Axis(
        starts=np.cumsum(sizes) - sizes,
        rows=sizes,
        blocks=np.array(blocks, dtype=np.int64),
        number=np.array(number, dtype=np.int64),
        bases=np.cumsum(row_counts) - row_counts,
        total=int(row_counts.sum()),
    )


def page_ranges(
    bound: BoundPredicate, axis: Axis, pages: Sequence[BlockPages], companion: Companion, rows: Numbers
) -> Ranges:
    """The ranges that may hold matching rows; ``rows`` are the blocks' in ``companion``."""
    columns = {leaf.id: _Column(leaf, axis, pages, companion, rows) for leaf in columns_of(bound)}
    starts = np.unique(np.concatenate([axis.starts, *(column.starts for column in columns.values())]))
    groups = np.searchsorted(axis.starts, starts, side="right") - 1
    lengths = np.diff(starts, append=axis.total)
    codes = _codes(bound, columns, starts, lengths)
    if len(axis.starts) > len(pages):
        of_groups = _codes(bound, columns, axis.starts, axis.rows, groups=True)[groups]
        impossible = (of_groups == ALL) & (codes == NONE)  # statistics that contradict each other prove nothing
        codes = np.where(of_groups == NONE, NONE, np.where(of_groups == ALL, ALL, codes)).astype(np.uint8)
        codes[impossible] = UNKNOWN
    return merged(groups, starts, lengths, codes)


def merged(groups: Numbers, starts: Numbers, lengths: Numbers, codes: npt.NDArray[np.uint8]) -> Ranges:
    """Ranges that are kept, those that meet in one row group joined; whether all rows match still parts them."""
    kept = codes != NONE
    alike = (groups[1:] == groups[:-1]) & ((codes[1:] == ALL) == (codes[:-1] == ALL)) & kept[1:] & kept[:-1]
    first = kept.copy()
    first[1:] &= ~alike
    run = np.cumsum(first)[kept] - 1
    rows = np.zeros(int(first.sum()), dtype=np.int64)
    np.add.at(rows, run, lengths[kept])
    return Ranges(groups[first], starts[first], rows, codes[first])


def _codes(
    bound: BoundPredicate, columns: dict[int, _Column], starts: Numbers, lengths: Numbers, *, groups: bool = False
) -> npt.NDArray[np.uint8]:
    known: dict[int, Zones] = {}

    def lookup(leaf: Leaf) -> Zones:
        found = known.get(leaf.id)
        if found is None:
            column = columns[leaf.id]
            found = known[leaf.id] = column.of_groups() if groups else column.at(starts)
        return found

    return verdicts(evaluate(bound, lookup, len(starts)), lengths)


class _Column:
    """One column's zones over an axis: entries gathered from all blocks, and where each holds."""

    def __init__(
        self, leaf: Leaf, axis: Axis, pages: Sequence[BlockPages], companion: Companion, rows: Numbers
    ) -> None:
        cells: list[Cell] = []
        parts: list[Zones] = []
        starts: list[Numbers] = []
        entries: list[Numbers] = []
        group_entries = np.empty(len(axis.starts), dtype=np.int64)
        # What the segment's companion says of a whole block stands in for its pages where there are none.
        parts.append(companion.zones(leaf.id, leaf.dtype).take(rows))
        count = len(rows)
        ends = np.searchsorted(axis.blocks, np.arange(len(rows) + 1))
        for block, given in enumerate(pages):
            cell = given.cells.get(leaf.id)
            groups = slice(ends[block], ends[block + 1])
            if cell is None or cell.zones is None:
                starts.append(axis.bases[block : block + 1])
                entries.append(np.array([block], dtype=np.int64))
                group_entries[groups] = block
                continue
            own_starts, own_entries = cell.zone_starts
            starts.append(axis.bases[block] + own_starts)
            entries.append(count + own_entries)
            group_entries[groups] = count + axis.number[groups]
            parts.append(cell.zones)
            cells.append(cell)
            count += len(cell.zones)
        self._pool = joined(leaf.dtype, parts)
        self.starts = np.concatenate(starts)
        self._entries = np.concatenate(entries)
        self._group_entries = group_entries

    def at(self, rows: Numbers) -> Zones:
        """The zones that hold at some rows of the axis."""
        return gathered(self._pool, self._entries[np.searchsorted(self.starts, rows, side="right") - 1])

    def of_groups(self) -> Zones:
        """The zones of the row groups, from the chunks' own statistics."""
        return gathered(self._pool, self._group_entries)


def joined(dtype: DataType, parts: Sequence[Zones]) -> Zones:
    """Zones of one column one after another."""
    flags = np.concatenate([part.flags for part in parts])
    if dtype.order is None:
        return Zones(None, None, flags)
    lows = [part.low if part.low is not None else _zeros(dtype, len(part)) for part in parts]
    highs = [part.high if part.high is not None else _zeros(dtype, len(part)) for part in parts]
    return Zones(_joined_keys(lows), _joined_keys(highs), flags)


def gathered(zones: Zones, entries: Numbers) -> Zones:
    """Some entries of zones, in that order."""
    if len(entries) == len(zones) and bool((entries == np.arange(len(entries))).all()):
        return zones
    low, high = (_gathered_keys(keys, entries) if keys is not None else None for keys in (zones.low, zones.high))
    return Zones(low, high, zones.flags[entries])


def _zeros(dtype: DataType, count: int) -> Keys:
    zero: Any = b"" if dtype.order == "bytes" else 0.0 if dtype.order == "float" else 0
    keys = keys_of(dtype, [zero] * count)
    if keys is None:
        raise ValueError(f"{dtype} has no order")
    return keys


def _joined_keys(parts: Sequence[Keys]) -> Keys:
    numbers = [part for part in parts if isinstance(part, NumberKeys)]
    if len(numbers) == len(parts):
        return NumberKeys(np.concatenate([part.array for part in numbers]))
    wide = [part for part in parts if isinstance(part, WideKeys)]
    if len(wide) == len(parts):
        return WideKeys(np.concatenate([part.high for part in wide]), np.concatenate([part.low for part in wide]))
    strings = [part for part in parts if isinstance(part, BytesKeys)]
    if len(strings) != len(parts):
        raise TypeError("bounds of several orders in one column")
    lengths = [np.diff(part.offsets) for part in strings]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths))])
    data = b"".join(bytes(part.data[part.offsets[0] : part.offsets[-1]]) for part in strings)
    return BytesKeys(np.concatenate([part.prefix for part in strings]), offsets, memoryview(data))


def _gathered_keys(keys: Keys, entries: Numbers) -> Keys:
    if not isinstance(keys, BytesKeys):
        return keys.take(entries)
    begins, lengths = keys.offsets[:-1][entries], np.diff(keys.offsets)[entries]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    places = np.repeat(begins - offsets[:-1], lengths) + np.arange(offsets[-1])
    data = np.frombuffer(keys.data, dtype=np.uint8)[places].tobytes()
    return BytesKeys(keys.prefix[entries], offsets, memoryview(data))

"""The page layer: which rows of each selected block may match, and which bytes hold them.

It comes last, on blocks that every other layer left, and only when it is asked for. A block of which every row matches
(ALL) is answered with all its rows; one whose pages are not known with all rows of those row groups that are not ruled
out, or as a whole; one without a range left is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.columnar.keys import BytesKeys, Keys, NumberKeys, WideKeys
from lamella.snapshot.columnar.zones import Zones, keys_of
from lamella.snapshot.expression.bound import BoundPredicate, columns_of
from lamella.snapshot.manifest import ObjectRef
from lamella.snapshot.pages import BlockPages, Cell, PageSource, SegmentPages
from lamella.snapshot.pages.source import Usage
from lamella.snapshot.prune.evaluate import evaluate
from lamella.snapshot.prune.outcome import ALL, NONE, UNKNOWN, verdicts
from lamella.snapshot.prune.result import PruneResult, SegmentSelection, chosen_parts
from lamella.snapshot.schema import DataType, Leaf
from lamella.snapshot.wire import ColumnRanges, PageUse, PrunedPages, Stage

# Zone maps of many blocks' pages on one axis of rows, and what a filter says of the ranges between their boundaries.
#
# Every column has its own pages. The boundaries of all columns that a filter names cut the rows into ranges within
# which each column is described by one of its zones; the filter is evaluated once, over those ranges. Row groups
# always end a range.

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


class Axis(msgspec.Struct, frozen=True):
    """The rows of some blocks one after another. Per row group that has rows: ``starts``, ``rows``, its block's
    position in the list (``blocks``) and its ``number`` in the block. ``bases``: where each block begins. A block whose
    row groups are not known counts as one row group.
    """

    starts: Numbers
    rows: Numbers
    blocks: Numbers
    number: Numbers
    bases: Numbers
    total: int


class Ranges(msgspec.Struct, frozen=True):
    """Ranges of rows that are not ruled out: row group (index on the axis), first row on the axis, rows, verdict."""

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
    bound: BoundPredicate, axis: Axis, pages: Sequence[BlockPages], sidecar: Sidecar, rows: Numbers
) -> Ranges:
    """The ranges that may hold matching rows; ``rows`` are the blocks' in ``sidecar``."""
    columns = {leaf.id: _Column(leaf, axis, pages, sidecar, rows) for leaf in columns_of(bound)}
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
    selected = codes != NONE
    continues = (groups[1:] == groups[:-1]) & ((codes[1:] == ALL) == (codes[:-1] == ALL)) & selected[1:] & selected[:-1]
    first = selected.copy()
    first[1:] &= ~continues
    run = np.cumsum(first)[selected] - 1
    rows = np.zeros(int(first.sum()), dtype=np.int64)
    np.add.at(rows, run, lengths[selected])
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

    def __init__(self, leaf: Leaf, axis: Axis, pages: Sequence[BlockPages], sidecar: Sidecar, rows: Numbers) -> None:
        cells: list[Cell] = []
        parts: list[Zones] = []
        starts: list[Numbers] = []
        entries: list[Numbers] = []
        group_entries = np.empty(len(axis.starts), dtype=np.int64)
        # What the segment's sidecar says of a whole block stands in for its pages where there are none.
        parts.append(sidecar.zones(leaf.id, leaf.dtype).take(rows))
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
    indexes = np.repeat(begins - offsets[:-1], lengths) + np.arange(offsets[-1])
    data = np.frombuffer(keys.data, dtype=np.uint8)[indexes].tobytes()
    return BytesKeys(keys.prefix[entries], offsets, memoryview(data))


class PageLayer(msgspec.Struct, frozen=True):
    """What the page layer found.

    ``pages``: of the blocks of all parts one after another, None for those without a matching row; ``stage`` counts
    rows.
    """

    pages: tuple[PrunedPages | None, ...]
    stage: Stage
    use: PageUse


def page_segments(segments: Sidecar) -> Callable[[int], SegmentPages]:
    """The segments of a snapshot by their row in its sidecar."""

    def segment(row: int) -> SegmentPages:
        one = np.array([row])
        manifest = ObjectRef(
            location=segments.texts("manifest.location", one)[0],
            size_bytes=int(segments.numbers("manifest.size_bytes")[row]),
            sha256=segments.texts("manifest.sha256", one)[0],
        )
        return SegmentPages(segments.texts("segment_id", one)[0], manifest)

    return segment


def page_layer(
    bound: BoundPredicate,
    parts: Sequence[SegmentSelection],
    source: PageSource,
    segment: Callable[[int], SegmentPages],
    columns: Sequence[Leaf] | None,
    timer: Callable[[], float],
) -> PageLayer:
    """Look at the pages of kept blocks; ``segment`` gives a segment by its row, ``columns`` will be read (None: not
    said, so no bytes are answered).

    Raises:
        StoreError, ManifestError: a segment's manifest or a page sidecar cannot be reached.
    """
    started = timer()
    usage = Usage()
    found: list[PrunedPages | None] = []
    considered = selected_rows = selected_bytes = 0
    for part in parts:
        rows = part.numbers("row_count")
        given = _pages(bound, part, source, segment(part.segment), columns or (), usage)
        given = [checked_pages(each, count, usage) for each, count in zip(given, rows.tolist(), strict=True)]
        made = _Part(bound, part, given, rows, columns)
        considered += int(rows.sum())
        selected_rows += made.selected_rows
        selected_bytes += made.selected_bytes
        found.extend(made.answers)
    return PageLayer(
        tuple(found),
        Stage(
            stage="page", considered=considered, kept=selected_rows, bytes=selected_bytes, ms=(timer() - started) * 1e3
        ),
        PageUse(
            cells_cached=usage.cached,
            cells_from_sidecars=usage.from_sidecars,
            files_read=usage.files_read,
            reasons=dict(usage.reasons),
        ),
    )


def with_pages(
    result: PruneResult,
    bound: BoundPredicate,
    source: PageSource,
    segment: Callable[[int], SegmentPages],
    columns: Sequence[Leaf] | None,
    timer: Callable[[], float],
) -> PruneResult:
    """A result with the page layer behind it; blocks of which no range is left are gone. As :func:`page_layer`."""
    if result.selection is None:
        return result
    parts = tuple(result.parts())
    layer = page_layer(bound, parts, source, segment, columns, timer)
    left = np.array([pages is not None for pages in layer.pages], dtype=bool)
    positions = np.arange(len(left)) if result.order is None else result.order
    selected, order = chosen_parts(parts, positions[left[positions]])
    bounds = result.bounds
    if bounds is not None:
        bounds = tuple(bound for bound, stays in zip(bounds, left[positions].tolist(), strict=True) if stays)
    report = result.answer.report
    report = msgspec.structs.replace(report, stages=(*report.stages, layer.stage), pages=layer.use)
    return msgspec.structs.replace(
        result,
        answer=msgspec.structs.replace(result.answer, report=report),
        selection=result.only(selected),
        order=order,
        bounds=bounds,
        pages=tuple(pages for pages in layer.pages if pages is not None),
    )


def _pages(
    bound: BoundPredicate,
    part: SegmentSelection,
    source: PageSource,
    segment: SegmentPages,
    columns: Sequence[Leaf],
    usage: Usage,
) -> list[BlockPages]:
    """The pages of a part's blocks; statistics only where they may still decide something."""
    whole = part.codes == ALL
    by_row: dict[int, BlockPages] = {}
    for chosen, zoned in ((part.rows[whole], ()), (part.rows[~whole], columns_of(bound))):
        rows: list[int] = chosen.tolist()
        if rows:
            known = source.pages(segment, rows, zoned=zoned, placed=columns, usage=usage)
            by_row.update(zip(rows, known, strict=True))
    return [by_row[row] for row in part.rows.tolist()]


def checked_pages(pages: BlockPages, row_count: int, usage: Usage) -> BlockPages:
    """Pages that are of the block that the sidecar counts the rows of."""
    if not pages.group_rows or sum(pages.group_rows) == row_count:
        return pages
    reason = "the row groups and the block have different numbers of rows"
    usage.reasons[reason] += 1
    return BlockPages(content_id=pages.content_id, reason=reason)


class _Part:
    """The answers for the kept blocks of one segment."""

    def __init__(
        self,
        bound: BoundPredicate,
        part: SegmentSelection,
        pages: Sequence[BlockPages],
        row_counts: Numbers,
        columns: Sequence[Leaf] | None,
    ) -> None:
        self._part = part
        self._pages = pages
        self._columns = columns
        self._axis = axis_of(pages, row_counts)
        self.selected_rows = self.selected_bytes = 0
        ranges = self._ranges(bound)
        blocks = self._axis.blocks[ranges.groups]
        ends = np.searchsorted(blocks, np.arange(len(pages) + 1)).tolist()
        self.answers = [
            self._answer(block, ranges, slice(ends[block], ends[block + 1])) if ends[block] < ends[block + 1] else None
            for block in range(len(pages))
        ]

    def _ranges(self, bound: BoundPredicate) -> Ranges:
        """The ranges of all blocks, in the order of the axis."""
        part, axis = self._part, self._axis
        some = np.flatnonzero(part.codes != ALL)
        if not len(some):
            return _everything(axis)
        if len(some) == len(part.codes):
            return page_ranges(bound, axis, self._pages, part.sidecar, part.rows)
        row_counts = part.numbers("row_count")[some]
        pages = [self._pages[block] for block in some.tolist()]
        small = axis_of(pages, row_counts)
        tested = page_ranges(bound, small, pages, part.sidecar, part.rows[some])
        # From the axis of the tested blocks back to the axis of all.
        own_groups = np.flatnonzero(np.isin(axis.blocks, some))
        shift = axis.starts[own_groups] - small.starts
        whole = _everything(axis)
        others = ~np.isin(axis.blocks, some)
        groups = np.concatenate([own_groups[tested.groups], whole.groups[others]])
        starts = np.concatenate([tested.starts + shift[tested.groups], whole.starts[others]])
        order = np.argsort(starts, kind="stable")
        return Ranges(
            groups[order],
            starts[order],
            np.concatenate([tested.rows, whole.rows[others]])[order],
            np.concatenate([tested.codes, whole.codes[others]])[order],
        )

    def _answer(self, block: int, ranges: Ranges, mine: slice) -> PrunedPages:
        axis, pages = self._axis, self._pages[block]
        rows = ranges.rows[mine]
        in_block = ranges.starts[mine] - axis.bases[block]
        self.selected_rows += int(rows.sum())
        columns, unplaced = self._bytes(block, in_block, rows)
        if not pages.group_rows:
            return PrunedPages(whole=True, reason=pages.reason, content_id=pages.content_id, unplaced=unplaced)
        groups = ranges.groups[mine]
        matching = ranges.codes[mine] == ALL
        return PrunedPages(
            row_group=axis.number[groups].tolist(),
            first_row=(ranges.starts[mine] - axis.starts[groups]).tolist(),
            row_count=rows.tolist(),
            file_row=in_block.tolist(),
            all_match=matching.tolist() if bool(matching.any()) else None,
            columns=columns,
            unplaced=unplaced,
            content_id=pages.content_id,
            reason=pages.reason,
        )

    def _bytes(self, block: int, starts: Numbers, rows: Numbers) -> tuple[list[ColumnRanges] | None, list[str]]:
        """The bytes to read of a block's columns, and the columns whose page locations are not known."""
        part = self._part
        if self._columns is None:
            self.selected_bytes += int(part.sidecar.numbers("file_size")[part.rows[block]])
            return None, []
        found: list[ColumnRanges] = []
        unplaced: list[Leaf] = []
        for leaf in self._columns:
            cell = self._pages[block].cells.get(leaf.id)
            if cell is None:
                unplaced.append(leaf)
            else:
                found.append(column_ranges(leaf.name, cell, starts, rows))
        self.selected_bytes += sum(map(size_bytes, found))
        if unplaced:
            of_chunks = part.sidecar.column_size_bytes([leaf.id for leaf in unplaced])
            self.selected_bytes += int(of_chunks[part.rows[block]])
        return found, [leaf.name for leaf in unplaced]


def _everything(axis: Axis) -> Ranges:
    codes = np.full(len(axis.starts), ALL, dtype=np.uint8)
    return merged(np.arange(len(axis.starts)), axis.starts, axis.rows, codes)

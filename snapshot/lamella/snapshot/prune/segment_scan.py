"""Ordered scan of surviving segments for LIMIT, top-k, join keys, paging and time budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.concurrency import time_left_s
from lamella.snapshot.errors import SegmentNotFound
from lamella.snapshot.prune.options import Options
from lamella.snapshot.prune.outcome import ALL, NONE, SOME
from lamella.snapshot.prune.paging import Position
from lamella.snapshot.prune.result import (
    BlockSelection,
    Codes,
    Indexes,
    SegmentSelection,
    chosen_parts,
    joined_numbers,
    totals,
)
from lamella.snapshot.prune.top_k import Entries, SortKey, order_bound, rank
from lamella.snapshot.wire import LimitUse, OrderBound, Stage

_Counts = npt.NDArray[np.int64]


class Limited(msgspec.Struct, frozen=True, kw_only=True):
    """``order``: the blocks to read, in that order; ``decided``: the others are not needed for the limit."""

    order: _Counts
    certain_rows: int
    decided: bool


def limited(limit: int, row_counts: _Counts, sizes_bytes: _Counts, whole: Mask) -> Limited:
    """The blocks that give ``limit`` matching rows; ``whole`` marks those of which every row is proven to match.
    ``row_counts`` are those of rows that are certainly
    not deleted.

    Without that proof for enough rows all blocks stay, the proven ones first, so that a reader may stop early. With it
    the one that is smallest in bytes is taken if it suffices, else those with most rows a byte.
    """
    certain = np.flatnonzero(whole & (row_counts > 0))
    certain_rows = int(row_counts[certain].sum())
    if limit > certain_rows:
        return Limited(order=np.argsort(~whole, kind="stable"), certain_rows=certain_rows, decided=False)
    return Limited(
        order=_fewest_bytes(limit, certain, row_counts, sizes_bytes), certain_rows=certain_rows, decided=True
    )


def _fewest_bytes(limit: int, certain: _Counts, row_counts: _Counts, sizes_bytes: _Counts) -> _Counts:
    if limit == 0:
        return certain[:0]
    dense = certain[np.argsort(sizes_bytes[certain] / np.maximum(row_counts[certain], 1), kind="stable")]
    before = np.cumsum(row_counts[dense]) - row_counts[dense]
    chosen = [int(row) for row in dense[before < limit]]
    # the last one may be larger than what is still missing needs
    missing = limit - int(row_counts[chosen[:-1]].sum())
    enough = dense[np.isin(dense, chosen[:-1], invert=True) & (row_counts[dense] >= missing)]
    last = int(enough[np.argmin(sizes_bytes[enough])])
    alone = certain[row_counts[certain] >= limit]
    if len(alone):
        single = int(alone[np.argmin(sizes_bytes[alone])])
        if sizes_bytes[single] <= int(sizes_bytes[chosen[:-1]].sum() + sizes_bytes[last]):
            return np.array([single], dtype=np.int64)
    return np.array([*chosen[:-1], last], dtype=np.int64)


# The way through the segments that a filter left: in which sequence they are opened, how far, and what is kept.
#
# Without options that is every segment in the snapshot's order. Join keys and an order drop segments before they are
# opened. An order opens the most promising ones first and drops more on the way; a limit opens those first that match
# as a whole, and stops when they are enough; a page stops when it is full; a time budget stops where it is.

#: The part of the time that somebody waits in which segments are opened.
_WORKED: Final = 0.8


class SegmentScan:
    """One scan. ``codes``: the verdicts of the segments; ``open``: opens a segment and tests its blocks.

    ``refine``: takes those away that skip indexes rule out.
    """

    def __init__(
        self,
        options: Options,
        segments: Sidecar,
        codes: Codes,
        open: Callable[[int], SegmentSelection],
        timer: Callable[[], float],
        refine: Callable[[SegmentSelection], SegmentSelection] | None = None,
    ) -> None:
        self._options = options
        self._refine = refine
        self._segments = segments
        self._open = open
        self._timer = timer
        self._started = timer()
        self._budget_ms = _budget_ms(options.max_ms)
        self._codes = codes
        self._alive: Mask = codes != NONE
        self._whole: Mask = codes == ALL
        self._selected: dict[int, SegmentSelection] = {}
        #: What has been done so far, step by step.
        self.stages: list[Stage] = []
        #: The sidecars looked into, by the segments' rows.
        self.opened: dict[int, Sidecar] = {}
        #: Rows of segments that were not looked into, for want of time.
        self.unresolved: tuple[int, ...] = ()
        #: The sequence of the blocks in the answer, as positions in the selection; None for that very sequence.
        self.order: Indexes | None = None
        #: The bounds that go with an order.
        self.bounds: tuple[OrderBound, ...] | None = None
        #: Where the next page begins.
        self.next_position: Position | None = None
        #: What a limit did.
        self.limit: LimitUse | None = None
        self._considered = self._tested = self._tested_bytes = self._answered = self._certain_rows = 0
        self._refined_count = self._refined_bytes = 0
        self._join_ms = self._refine_ms = 0.0

    def segments(self) -> Codes:
        """Drop segments unopened; the verdicts that are left."""
        options = self._options
        if options.segments is not None:
            self._restrict(options.segments)
        if options.joins:
            began, before = self._timer(), int(self._alive.sum())
            for join in options.joins:
                self._alive &= join.keeps(self._segments.zones(join.leaf.id, join.leaf.dtype), self._alive)
            self._whole[:] = False
            self._segment_stage("segment-join", before, began)
        if options.key is not None and options.limit is not None:
            began, before = self._timer(), int(self._alive.sum())
            rows = np.flatnonzero(self._alive)
            ranking = rank(options.key, [self._segment_entries(options.key, rows)], options.limit, strict=True)
            self._alive[:] = False
            self._alive[rows[ranking.order]] = True
            self._segment_stage("segment-top-k", before, began)
        codes = np.where((self._codes == ALL) & ~self._whole, SOME, self._codes)
        return np.where(self._alive, codes, NONE).astype(np.uint8)

    def blocks(self) -> BlockSelection:
        """Open what is left, as far as it is needed; the blocks of the answer."""
        began = self._timer()
        for row in self._steps():
            self._visit(row)
            if self.next_position is not None or self._has_enough() or self._out_of_time():
                break
        self.unresolved = self._unresolved()
        spent_ms = (self._timer() - began) * 1e3 - self._join_ms - self._refine_ms
        self.stages.append(
            Stage(stage="block", considered=self._considered, kept=self._tested, bytes=self._tested_bytes, ms=spent_ms)
        )
        count = self._tested
        if self._refine is not None:
            size_bytes, ms = self._refined_bytes, self._refine_ms
            self.stages.append(
                Stage(stage="index", considered=count, kept=self._refined_count, bytes=size_bytes, ms=ms)
            )
            count = self._refined_count
        parts = tuple(self._selected[row] for row in sorted(self._selected))
        if self._options.joins:
            selected, selected_bytes = totals(parts)
            self.stages.append(
                Stage(stage="join", considered=count, kept=selected, bytes=selected_bytes, ms=self._join_ms)
            )
        return BlockSelection.of_parts(self._ranked(parts), self._segments.numbers("block_count"))

    def _restrict(self, segment_ids: Sequence[str]) -> None:
        rows = {segment_id: row for row, segment_id in enumerate(self._segments.texts("segment_id"))}
        missing = [segment_id for segment_id in segment_ids if segment_id not in rows]
        if missing:
            raise SegmentNotFound(f"the snapshot has no segment {missing[0]!r}", segment_id=missing[0])
        requested = np.zeros(len(self._alive), dtype=bool)
        requested[[rows[segment_id] for segment_id in segment_ids]] = True
        self._alive &= requested

    def _steps(self) -> Iterator[int]:
        """The segments to open, one at a time; what was kept of the earlier ones decides on the later ones."""
        options = self._options
        rows = np.flatnonzero(self._alive)
        if options.key is not None:
            yield from self._best_first(options.key, rows)
        elif options.limit is not None:
            yield from rows[np.argsort(~self._whole[rows], kind="stable")].tolist()
        else:
            first = options.start.segment if options.start is not None else 0
            yield from rows[rows >= first].tolist()

    def _best_first(self, key: SortKey, rows: Indexes) -> Iterator[int]:
        left = rows[rank(key, [self._segment_entries(key, rows)], None).order]
        batch = 1
        while len(left):
            yield from left[:batch].tolist()
            left = self._still_needed(key, left[batch:])
            batch *= 2  # so that ranking again costs little beside opening

    def _still_needed(self, key: SortKey, rows: Indexes) -> Indexes:
        """Those segments, not opened yet, that may hold one of the first rows all the same."""
        if self._options.limit is None or not len(rows):
            return rows
        parts = [self._block_entries(key, self._selected[row]) for row in sorted(self._selected)]
        before = sum(len(part.row_counts) for part in parts)
        ranking = rank(key, [*parts, self._segment_entries(key, rows)], self._options.limit, strict=True)
        return rows[ranking.order[ranking.order >= before] - before]

    def _visit(self, row: int) -> None:
        part, options = self._open(row), self._options
        paged = options.page_size is not None and not options.ranked
        first = options.start.row if paged and options.start is not None and options.start.segment == row else 0
        end = len(part.sidecar)
        tested = part.where(part.rows >= first)
        refined = self._refined(tested)
        selected = self._joined(refined)
        if paged and options.page_size is not None:
            remaining = options.page_size - self._answered
            if len(selected.rows) > remaining:
                end = int(selected.rows[remaining])
                self.next_position = Position(row, end)
                tested, refined, selected = (each.where(each.rows < end) for each in (tested, refined, selected))
            elif len(selected.rows) == remaining and self._alive[row + 1 :].any():
                self.next_position = Position(row + 1, 0)
        count, size_bytes = totals([tested])
        self._considered += end - first
        self._tested += count
        self._tested_bytes += size_bytes
        if self._refine is not None:
            count, size_bytes = totals([refined])
            self._refined_count += count
            self._refined_bytes += size_bytes
        self._answered += len(selected.rows)
        self._certain_rows += int(_live_rows(selected)[selected.codes == ALL].sum())
        self.opened[row] = part.sidecar
        self._selected[row] = selected

    def _refined(self, part: SegmentSelection) -> SegmentSelection:
        if self._refine is None:
            return part
        began = self._timer()
        found = self._refine(part)
        self._refine_ms += (self._timer() - began) * 1e3
        return found

    def _joined(self, part: SegmentSelection) -> SegmentSelection:
        if not self._options.joins:
            return part
        began = self._timer()
        mask = np.zeros(len(part.sidecar), dtype=bool)
        mask[part.rows] = True
        for join in self._options.joins:
            mask = join.keeps(part.sidecar.zones(join.leaf.id, join.leaf.dtype), mask)
        codes = np.where(part.codes == ALL, SOME, part.codes).astype(np.uint8)
        self._join_ms += (self._timer() - began) * 1e3
        return SegmentSelection(part.segment, part.sidecar, part.rows, codes).where(mask[part.rows])

    def _has_enough(self) -> bool:
        """True when a limit without an order needs no further block."""
        limit = self._options.limit
        return limit is not None and not self._options.ordered and self._certain_rows >= limit

    def _out_of_time(self) -> bool:
        return self._budget_ms is not None and (self._timer() - self._started) * 1e3 >= self._budget_ms

    def _unresolved(self) -> tuple[int, ...]:
        if self._options.max_ms is None or self.next_position is not None or self._has_enough():
            return ()
        rows = np.array([row for row in np.flatnonzero(self._alive) if row not in self._selected], dtype=np.int64)
        if self._options.key is not None:
            rows = np.sort(self._still_needed(self._options.key, rows))
        return tuple(rows.tolist())

    def _ranked(self, parts: tuple[SegmentSelection, ...]) -> tuple[SegmentSelection, ...]:
        """The kept blocks without those that an order or a limit makes needless; notes their order in the answer."""
        options = self._options
        if not options.ranked:
            return parts
        began, before = self._timer(), sum(len(part.rows) for part in parts)
        if options.key is not None:
            name = "top-k"
            ranking = rank(options.key, [self._block_entries(options.key, part) for part in parts], options.limit)
            selected, decided, certain_rows = ranking.order, ranking.guaranteed, self._certain_rows
        else:
            name = "limit"
            limit = options.limit or 0
            rows = np.concatenate([np.zeros(0, dtype=np.int64), *map(_live_rows, parts)])
            whole = np.concatenate([np.zeros(0, dtype=bool), *(part.codes == ALL for part in parts)])
            found = limited(limit, rows, joined_numbers(parts, "file_size"), whole)
            selected, decided, certain_rows = found.order, found.decided, found.certain_rows
        selected_bytes = int(joined_numbers(parts, "file_size")[selected].sum())
        selected_count = len(selected)
        if options.page_size is not None:
            first = options.start.row if options.start is not None else 0
            selected = selected[first : first + options.page_size]
            if first + options.page_size < selected_count:
                self.next_position = Position(0, first + options.page_size)
        if options.key is not None:
            self.bounds = self._bounds(options.key, parts, selected, ranking.first)
        left, self.order = chosen_parts(parts, selected)
        if options.limit is not None:
            self._stage(name, before, selected_count, selected_bytes, began)
            self.limit = LimitUse(limit=options.limit, certain_rows=certain_rows, decided=decided)
        return left

    def _bounds(
        self, key: SortKey, parts: Sequence[SegmentSelection], selected: Indexes, first: Codes
    ) -> tuple[OrderBound, ...]:
        ends = np.cumsum([len(part.rows) for part in parts])
        owners = np.searchsorted(ends, selected, side="right")
        found = []
        for position, owner in zip(selected.tolist(), owners.tolist(), strict=True):
            part = parts[owner]
            row = int(part.rows[position - (int(ends[owner]) - len(part.rows))])
            zones = part.sidecar.zones(key.leaf.id, key.leaf.dtype)
            found.append(order_bound(key, zones, row, int(first[position])))
        return tuple(found)

    def _segment_entries(self, key: SortKey, rows: Indexes) -> Entries:
        return self._entries(key, self._segments, rows, self._whole[rows])

    def _block_entries(self, key: SortKey, part: SegmentSelection) -> Entries:
        return self._entries(key, part.sidecar, part.rows, part.codes == ALL)

    def _entries(self, key: SortKey, sidecar: Sidecar, rows: Indexes, whole: Mask) -> Entries:
        leaf = key.leaf
        return Entries(
            zones=sidecar.zones(leaf.id, leaf.dtype).take(rows),
            row_counts=sidecar.numbers("row_count")[rows],
            live_row_counts=sidecar.live_row_counts()[rows],
            null_counts=sidecar.null_counts(leaf.id, leaf.dtype)[rows],
            whole=whole,
        )

    def _segment_stage(self, name: str, before: int, began: float) -> None:
        sizes = self._segments.numbers("file_size")
        self._stage(name, before, int(self._alive.sum()), int(sizes[self._alive].sum()), began)

    def _stage(self, name: str, considered: int, selected: int, selected_bytes: int, began: float) -> None:
        ms = (self._timer() - began) * 1e3
        self.stages.append(Stage(stage=name, considered=considered, kept=selected, bytes=selected_bytes, ms=ms))


def _live_rows(part: SegmentSelection) -> _Counts:
    """Rows of blocks that are certainly not deleted."""
    return np.maximum(part.sidecar.live_row_counts()[part.rows], 0)


def _budget_ms(requested_ms: float | None) -> float | None:
    """The time budget, where one was asked for: none that is longer than somebody waits, less some for the answer."""
    waited_for_s = None if requested_ms is None else time_left_s()
    return (
        requested_ms
        if requested_ms is None or waited_for_s is None
        else min(requested_ms, _WORKED * waited_for_s * 1e3)
    )

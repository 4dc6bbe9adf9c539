"""The page layer: which rows of each kept block may match, and which bytes of the asked columns hold them.

It comes last, on blocks that every other layer left, and only when it is asked for. A block of which every row matches
(ALL) is answered with all its rows; one whose pages are not known with all rows of those row groups that are not
ruled out, or as a whole; one without a range left is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar import Companion
from lamella.snapshot.expression.bound import BoundPredicate, columns_of
from lamella.snapshot.manifest import ObjectRef
from lamella.snapshot.pages import BlockPages, PageSource, SegmentPages
from lamella.snapshot.pages.source import Usage
from lamella.snapshot.prune.kept import Kept, chosen_parts
from lamella.snapshot.prune.page_bytes import column_ranges, size_bytes
from lamella.snapshot.prune.page_zones import Axis, Ranges, axis_of, merged, page_ranges
from lamella.snapshot.prune.pipeline import Funnel
from lamella.snapshot.prune.verdict import ALL
from lamella.snapshot.schema import Leaf
from lamella.snapshot.wire import ColumnRanges, PageUse, PrunedPages, Stage

Numbers = npt.NDArray[np.int64]


class PageLayer(msgspec.Struct, frozen=True):
    """What the page layer found.

    ``pages``: of the blocks of all parts one after another, None for those without a matching row; ``stage`` counts
    rows.
    """

    pages: tuple[PrunedPages | None, ...]
    stage: Stage
    use: PageUse


def page_segments(segments: Companion) -> Callable[[int], SegmentPages]:
    """The segments of a snapshot by their row in its companion."""

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
    parts: Sequence[Kept],
    source: PageSource,
    segment: Callable[[int], SegmentPages],
    columns: Sequence[Leaf] | None,
    timer: Callable[[], float],
) -> PageLayer:
    """Look at the pages of kept blocks; ``segment`` gives a segment by its row, ``columns`` will be read (None: not
    said, so no bytes are answered).

    Raises:
        StoreError, ManifestError: a segment's manifest or a page companion cannot be reached.
    """
    started = timer()
    usage = Usage()
    found: list[PrunedPages | None] = []
    considered = kept_rows = kept_bytes = 0
    for part in parts:
        rows = part.numbers("row_count")
        given = _pages(bound, part, source, segment(part.segment), columns or (), usage)
        given = [checked_pages(each, count, usage) for each, count in zip(given, rows.tolist(), strict=True)]
        made = _Part(bound, part, given, rows, columns)
        considered += int(rows.sum())
        kept_rows += made.kept_rows
        kept_bytes += made.kept_bytes
        found.extend(made.answers)
    return PageLayer(
        tuple(found),
        Stage(stage="page", considered=considered, kept=kept_rows, bytes=kept_bytes, ms=(timer() - started) * 1e3),
        PageUse(
            cells_cached=usage.cached,
            cells_from_companions=usage.from_companions,
            files_read=usage.files_read,
            reasons=dict(usage.reasons),
        ),
    )


def with_pages(
    funnel: Funnel,
    bound: BoundPredicate,
    source: PageSource,
    segment: Callable[[int], SegmentPages],
    columns: Sequence[Leaf] | None,
    timer: Callable[[], float],
) -> Funnel:
    """A funnel with the page layer behind it; blocks of which no range is left are gone. As :func:`page_layer`."""
    if funnel.kept is None:
        return funnel
    layer = page_layer(bound, funnel.kept, source, segment, columns, timer)
    left = np.array([pages is not None for pages in layer.pages], dtype=bool)
    walked = funnel.walked
    places = np.arange(len(left)) if walked is None or walked.order is None else walked.order
    kept, order = chosen_parts(funnel.kept, places[left[places]])
    if walked is not None:
        bounds = walked.bounds
        if bounds is not None:
            bounds = tuple(bound for bound, stays in zip(bounds, left[places].tolist(), strict=True) if stays)
        walked = msgspec.structs.replace(walked, kept=kept, order=order, bounds=bounds)
    return msgspec.structs.replace(
        funnel,
        stages=(*funnel.stages, layer.stage),
        kept=kept,
        walked=walked,
        pages=tuple(pages for pages in layer.pages if pages is not None),
        page_use=layer.use,
    )


def _pages(
    bound: BoundPredicate,
    part: Kept,
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
    """Pages that are of the block that the companion counts the rows of."""
    if not pages.group_rows or sum(pages.group_rows) == row_count:
        return pages
    reason = "the row groups have another number of rows than the block"
    usage.reasons[reason] += 1
    return BlockPages(content_id=pages.content_id, reason=reason)


class _Part:
    """The answers for the kept blocks of one segment."""

    def __init__(
        self,
        bound: BoundPredicate,
        part: Kept,
        pages: Sequence[BlockPages],
        row_counts: Numbers,
        columns: Sequence[Leaf] | None,
    ) -> None:
        self._part = part
        self._pages = pages
        self._columns = columns
        self._axis = axis_of(pages, row_counts)
        self.kept_rows = self.kept_bytes = 0
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
            return page_ranges(bound, axis, self._pages, part.companion, part.rows)
        row_counts = part.numbers("row_count")[some]
        pages = [self._pages[block] for block in some.tolist()]
        small = axis_of(pages, row_counts)
        tested = page_ranges(bound, small, pages, part.companion, part.rows[some])
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
        self.kept_rows += int(rows.sum())
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
        """The bytes to read of a block's columns, and the columns whose places are not known."""
        part = self._part
        if self._columns is None:
            self.kept_bytes += int(part.companion.numbers("file_size")[part.rows[block]])
            return None, []
        found: list[ColumnRanges] = []
        unplaced: list[Leaf] = []
        for leaf in self._columns:
            cell = self._pages[block].cells.get(leaf.id)
            if cell is None:
                unplaced.append(leaf)
            else:
                found.append(column_ranges(leaf.name, cell, starts, rows))
        self.kept_bytes += sum(map(size_bytes, found))
        if unplaced:
            of_chunks = part.companion.column_size_bytes([leaf.id for leaf in unplaced])
            self.kept_bytes += int(of_chunks[part.rows[block]])
        return found, [leaf.name for leaf in unplaced]


def _everything(axis: Axis) -> Ranges:
    codes = np.full(len(axis.starts), ALL, dtype=np.uint8)
    return merged(np.arange(len(axis.starts)), axis.starts, axis.rows, codes)

"""The layers of one snapshot that a prune goes through: its summary, its segments, and their blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lamella.snapshot.cache import Shelf
from lamella.snapshot.columnar import Companion, Zones, zones_of
from lamella.snapshot.columnar.edges import Edges, edges_of
from lamella.snapshot.columnar.refs import CompanionRefs
from lamella.snapshot.columnar.resident import ResidentBlocks
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN
from lamella.snapshot.errors import SegmentNotFound
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.prune.index_layer import IndexLayer
from lamella.snapshot.schema import DataType, Leaf

#: Verdicts of a chunk's blocks, by the chunk's content and the filter.
VerdictShelf = Shelf[npt.NDArray[np.uint8]]


class Layers:
    """``head``: the snapshot without its segments; ``segments``: one row for each of them.

    ``blocks``: their blocks many segments at once, None where each segment is looked at alone. ``verdicts``: where
    those of chunks of blocks are kept by content and filter, also for other snapshots that have the chunk. Safe to
    share between threads: what is made here is the same whoever makes it.
    """

    def __init__(
        self,
        head: Snapshot,
        segments: Companion,
        blocks: ResidentBlocks | None = None,
        verdicts: VerdictShelf | None = None,
        refs: CompanionRefs | None = None,
        indexes: IndexLayer | None = None,
    ) -> None:
        self.head = head
        self.segments = segments
        #: Where the companion of a segment is, by its row.
        self.companion = refs if refs is not None else CompanionRefs(segments)
        self.blocks = blocks
        self.verdicts = verdicts
        #: The skip indexes; None: there are none.
        self.indexes = indexes
        self._summary: dict[tuple[int, DataType], Zones] = {}
        self._edges: dict[Leaf, Edges | None] = {}

    def edges(self, leaf: Leaf) -> Edges | None:
        """The edges of a column over the segments."""
        try:
            return self._edges[leaf]
        except KeyError:
            found = self._edges[leaf] = edges_of(self.segments.zones(leaf.id, leaf.dtype))
            return found

    def is_bounded(self, leaf: Leaf) -> bool:
        """Whether all segments have a bound of a column."""
        edges = self._edges.get(leaf)  # where there are some: they know it at once
        if edges is not None and edges.exact:
            return True
        every, _ = self.segments.zones(leaf.id, leaf.dtype).flags_of_all()
        return bool(every & (LOW_KNOWN | HIGH_KNOWN))

    def summary(self, leaf: Leaf) -> Zones:
        """The statistics of a column over the whole snapshot: one entry."""
        key = (leaf.id, leaf.dtype)
        found = self._summary.get(key)
        if found is None:
            summary = self.head.summary
            entries = [(summary.row_count, summary.col_stats.get(leaf.id))]
            found = self._summary[key] = zones_of(leaf.dtype, entries)
        return found


def number_of_segment(segment_ids: Sequence[str], segment_id: str) -> int:
    """The place of a segment among those of a snapshot; raises SegmentNotFound."""
    try:
        return segment_ids.index(segment_id)
    except ValueError:
        raise SegmentNotFound(f"the snapshot has no segment {segment_id!r}", segment_id=segment_id) from None

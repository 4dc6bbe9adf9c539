"""Blocks and segments on one key, and how many segments look-ups are sent to, by what is recorded of the segments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lamella.snapshot.cluster.extent import Extents, Intervals, extents
from lamella.snapshot.cluster.row_share import mass_of
from lamella.snapshot.columnar import Zones, zones_of
from lamella.snapshot.columnar.joined import joined_zones
from lamella.snapshot.manifest import ClusterKind, SegmentRef
from lamella.snapshot.schema import Leaf

#: Look-ups are ranges of this part of all rows.
SHARE = 0.001

Rows = npt.NDArray[np.int64]


class OnOneKey:
    """Blocks, which say where rows are, and segments, whether they are in the table or not.

    ``blocks``, ``segments``: the zone maps of the key's columns, each of all of them; ``rows``: of each block.
    """

    def __init__(
        self,
        kind: ClusterKind,
        leaves: Sequence[Leaf],
        blocks: Sequence[Zones],
        rows: Rows,
        segments: Sequence[Zones],
    ) -> None:
        found = extents(
            kind,
            [
                joined_zones(leaf.dtype, [of_blocks, of_segments])
                for leaf, of_blocks, of_segments in zip(leaves, blocks, segments, strict=True)
            ],
        )
        first, count = len(rows), len(segments[0])
        self._rows = rows
        #: Where the blocks lie, and where the segments do.
        self.blocks: Extents = found.take(np.arange(first))
        self.segments: Extents = found.take(np.arange(first, first + count))
        self._likely: npt.NDArray[np.float64] | None = None

    def kept(self, segments: Rows | None = None) -> float:
        """How many of the segments (None: of all) a look-up of :data:`SHARE` of the rows is sent to, expected; on
        average over ranges of each column of a key along a curve, and of all its columns at once."""
        if self._likely is None:
            self._likely = self._sent_to()
        return float(self._likely.sum() if segments is None else self._likely[segments].sum())

    def _sent_to(self) -> npt.NDArray[np.float64]:
        pairs = list(zip(_sides(self.blocks), _sides(self.segments), strict=True))
        spans = [mass_of(of_blocks, self._rows).spans(of_segments) for of_blocks, of_segments in pairs]
        likely = [side.read_by(SHARE) for side in spans]
        if len(spans) > 1:
            likely.append(np.prod([side.read_by(SHARE ** (1 / len(spans))) for side in spans], axis=0))
        return np.asarray(np.mean(np.stack(likely), axis=0))


def zones_of_refs(leaf: Leaf, refs: Sequence[SegmentRef]) -> Zones:
    """The zone map of a column over segments that were written under the schema that it is of."""
    return zones_of(leaf.dtype, [(ref.summary.row_count, ref.summary.col_stats.get(leaf.id)) for ref in refs])


def _sides(found: Extents) -> tuple[Intervals, ...]:
    return (found,) if isinstance(found, Intervals) else found.sides

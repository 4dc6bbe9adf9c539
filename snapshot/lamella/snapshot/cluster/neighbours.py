"""Blocks in an order in which neighbours on the key stand next to each other, those that are about as wide together.

Width is the part of all rows that lie where a block lies. A wide block beside narrow ones would make whatever they
are put into wide. So blocks are told apart by classes: each is up to four times as wide as the one before, and all
that are at most :data:`NARROW_BLOCKS` times as wide as a block of the target size has to be are one class.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.cluster import curve
from lamella.snapshot.cluster.extent import Extents, Intervals, Rows
from lamella.snapshot.cluster.row_share import Numbers, mass_of

NARROW_BLOCKS: Final = 8
_WIDER: Final = 4.0
_BITS: Final = 16


class Neighbours(msgspec.Struct, frozen=True, eq=False):
    """n blocks. ``start`` and ``stop``: where each lies in each column, parts of all rows (n rows, a column for each).

    ``place``: numbers that sort as the middles of blocks along the key. ``width_class``: from 0, the narrowest.
    ``narrow``: what counts as narrow.
    """

    start: Any
    stop: Any
    place: Any
    width_class: Any
    narrow: float

    @property
    def width(self) -> Numbers:
        """How likely a look-up of one key value reads each block."""
        return np.asarray(np.prod(self.stop - self.start, axis=1))

    def order(self, blocks: Rows) -> Rows:
        """Blocks by class, and within that along the key."""
        return blocks[np.lexsort((blocks, self.place[blocks], self.width_class[blocks]))]


def neighbours(extents: Extents, rows: Rows, block_rows: float) -> Neighbours:
    """Where blocks stand to each other; ``block_rows``: rows of a block of the target size."""
    sides = (extents,) if isinstance(extents, Intervals) else extents.sides
    spans = [mass_of(side, rows).spans(side) for side in sides]
    start = np.column_stack([each.start for each in spans])
    stop = np.column_stack([each.stop for each in spans])
    narrow = min(1.0, NARROW_BLOCKS * block_rows / max(float(rows.sum()), 1.0))
    width = np.maximum(np.prod(stop - start, axis=1), narrow)
    classes = np.floor(np.log(width / narrow) / np.log(_WIDER) + 1e-9).astype(np.int64)
    return Neighbours(start, stop, _places((start + stop) / 2), classes, narrow)


def _places(middles: Any) -> Numbers:
    if middles.shape[1] == 1:
        return np.asarray(middles[:, 0])
    points = np.minimum(middles * (1 << _BITS), (1 << _BITS) - 1).astype(np.uint64)
    ranks = np.empty(len(points))
    # Neighbours along a Hilbert curve are neighbours, whichever curve the table has.
    ranks[curve.order(curve.positions("hilbert", points, _BITS))] = np.arange(len(points))
    return ranks

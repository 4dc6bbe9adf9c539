"""What is asked of a table's layout to improve it, whether its blocks are intervals or boxes."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np

from lamella.snapshot.cluster.extent import Rows
from lamella.snapshot.cluster.lookup import Read
from lamella.snapshot.cluster.row_share import Numbers
from lamella.snapshot.columnar.masks import Mask

#: Blocks that are at most so many times as dense as those that have to be taken, together, are taken with them.
AS_DENSE: Final = 1.0


class Layout(Protocol):
    """All blocks of a table."""

    @property
    def density(self) -> Numbers:
        """Of the rows where a block lies, the part that are its own: 1 when it lies there alone."""

    @property
    def least_gain(self) -> float:
        """A guess that blocks read less often by less than this part may be wrong."""

    def chosen(self, target_depth: int, allowed: Mask) -> Mask:
        """Blocks to rewrite so that the depth is at most the target everywhere, the least dense ones; it may be
        none."""

    def components(self, chosen: Mask) -> list[Rows]:
        """The chosen blocks in groups that have no part of the key's range in common, each in key order."""

    def around_peak(self, blocks: Rows) -> tuple[Rows, Rows]:
        """Of some blocks those at their deepest place, the least dense first, and the others, the nearest first."""

    def in_order(self, blocks: Rows) -> Rows:
        """Blocks in key order."""

    def read_now(self, blocks: Rows, share: float) -> list[Read]:
        """What look-ups of a share of the rows read of some blocks; for each sort of look-up, that of the whole key
        last."""

    def read_sorted(self, blocks: Rows, pieces: int, share: float) -> list[Read]:
        """What they would read if these were sorted together and cut into so many."""


def connected(low: Rows, high: Rows) -> list[Rows]:
    """Intervals in groups that do not overlap, each in the order of their beginnings."""
    order = np.argsort(low, kind="stable")
    reach = np.maximum.accumulate(high[order])
    breaks = np.flatnonzero(low[order][1:] > reach[:-1]) + 1
    return list(np.split(order, breaks)) if len(order) else []

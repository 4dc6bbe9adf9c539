"""Range sets of one column over the entries of a layer, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.keys import Mask


class Spans:
    """``edges`` has low and high of each range, entry after entry; entry i has those from ``offsets[i]`` on.

    An entry without ranges says nothing.
    """

    def __init__(self, offsets: npt.NDArray[Any], edges: npt.NDArray[Any]) -> None:
        self._starts = np.asarray(offsets[:-1])
        self._has = np.asarray(offsets[1:] > offsets[:-1])
        self.low = edges[0::2]
        self.high = edges[1::2]

    def misses(self, hit: Mask) -> Mask:
        """The entries none of whose ranges is hit; ``hit`` has one element for each range."""
        missed = np.zeros(len(self._has), dtype=bool)
        if len(hit):
            # The offsets of entries that have ranges are those ranges' own, without holes between them.
            missed[self._has] = ~np.logical_or.reduceat(hit, self._starts[self._has] // 2)
        return missed

"""Range sets of one column over the entries of a layer, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.keys import Mask


class Spans:
    """``edges`` has low and high of each range, entry after entry; entry i has those from ``offsets[i]`` on.

    An entry without ranges says nothing.
    """

    def __init__(self, offsets: npt.NDArray[Any], edges: npt.NDArray[Any]) -> None:
        self.offsets = offsets
        self.edges = edges
        self._starts = np.asarray(offsets[:-1])
        self._has = np.asarray(offsets[1:] > offsets[:-1])
        self.low = edges[0::2]
        self.high = edges[1::2]

    @classmethod
    def joined(cls, parts: Sequence[tuple[Spans | None, int]]) -> Spans | None:
        """The ranges of several layers' entries, one after another; each part with its number of entries.

        None when no part has any.
        """
        known = [spans for spans, _ in parts if spans is not None]
        if not known:
            return None
        counts = [
            np.zeros(entries, dtype=np.int64) if spans is None else np.diff(spans.offsets) for spans, entries in parts
        ]
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
        return cls(offsets, np.concatenate([spans.edges[spans.offsets[0] : spans.offsets[-1]] for spans in known]))

    def take(self, rows: npt.NDArray[Any]) -> Spans:
        """The ranges of some entries, in that order."""
        starts, ends = self.offsets[rows], self.offsets[np.asarray(rows) + 1]
        picked = [self.edges[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        offsets = np.concatenate([[0], np.cumsum(ends - starts)]).astype(np.int64)
        return Spans(offsets, np.concatenate(picked) if picked else self.edges[:0])

    def misses(self, hit: Mask) -> Mask:
        """The entries none of whose ranges is hit; ``hit`` has one element for each range."""
        missed = np.zeros(len(self._has), dtype=bool)
        if len(hit):
            # The offsets of entries that have ranges are those ranges' own, without holes between them.
            missed[self._has] = ~np.logical_or.reduceat(hit, self._starts[self._has] // 2)
        return missed

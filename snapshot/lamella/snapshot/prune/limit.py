"""LIMIT: when blocks that match as a whole hold enough rows, only so many of them need be read."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.keys import Mask

Indexes = npt.NDArray[np.int64]


class Limited(msgspec.Struct, frozen=True, kw_only=True):
    """``order``: the blocks to read, in that order; ``decided``: the others are not needed for the limit."""

    order: Indexes
    certain_rows: int
    decided: bool


def limited(limit: int, row_counts: Indexes, sizes_bytes: Indexes, whole: Mask) -> Limited:
    """The blocks that give ``limit`` matching rows; ``whole`` marks those of which every row is proven to match.

    Without that proof for enough rows all blocks stay, the proven ones first, so that a reader may stop early. With it
    the one that is smallest in bytes is taken if it suffices, else those with most rows a byte.
    """
    certain = np.flatnonzero(whole)
    certain_rows = int(row_counts[certain].sum())
    if limit > certain_rows:
        return Limited(order=np.argsort(~whole, kind="stable"), certain_rows=certain_rows, decided=False)
    return Limited(
        order=_fewest_bytes(limit, certain, row_counts, sizes_bytes), certain_rows=certain_rows, decided=True
    )


def _fewest_bytes(limit: int, certain: Indexes, row_counts: Indexes, sizes_bytes: Indexes) -> Indexes:
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

"""Kept blocks as runs: neighbours in one segment that have one verdict."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from lamella.snapshot.prune.kept import Codes, Indexes, Kept
from lamella.snapshot.prune.kept_blocks import KeptBlocks, Runs

#: So many segments and runs are gone through faster by Python than by NumPy, whose calls cost more than they do here.
_FEW: Final = 8


def runs_of(parts: Sequence[Kept]) -> Runs:
    """The longest runs of all parts; no companion is opened for them."""
    if isinstance(parts, KeptBlocks):
        found = parts.runs or _few(parts)
        if found is None:
            found = _listed(parts.segments, _with_whole(parts, _cut(parts.offsets, parts.rows, parts.codes)))
        return found
    nothing = np.zeros(0, dtype=np.int64)
    cut = _cut(
        np.cumsum([0, *(len(part.rows) for part in parts)]),
        np.concatenate([nothing, *(part.rows for part in parts)]),
        np.concatenate([nothing.astype(np.uint8), *(part.codes for part in parts)]),
    )
    return _listed(np.array([part.segment for part in parts], dtype=np.int64), cut)


def _few(parts: KeptBlocks) -> Runs | None:
    """The runs, when the blocks of each segment are neighbours, as those of a range over a sorted column are."""
    if len(parts.segments) > _FEW or parts.whole.any():
        return None
    offsets, rows, codes = parts.offsets.tolist(), parts.rows, parts.codes.tobytes()
    found = Runs(parts.segments, [], [], [], [], len(set(offsets)) - 1)
    for place, (start, stop) in enumerate(pairwise(offsets)):
        if start == stop:
            continue
        first = int(rows[start])
        if int(rows[stop - 1]) - first != stop - start - 1:
            return None
        left = codes[start:stop]
        while left:
            if len(found) > 2 * _FEW:
                return None
            others = left.lstrip(left[:1])
            count = len(left) - len(others)
            found.place.append(place)
            found.first.append(first)
            found.count.append(count)
            found.code.append(left[0])
            first += count
            left = others
    return found


#: Runs as arrays: place, first, count, code.
_Arrays = tuple[Indexes, Indexes, Indexes, Codes]


def _listed(segments: Indexes, arrays: _Arrays) -> Runs:
    place, first, count, code = arrays
    used = 1 + int(np.count_nonzero(place[1:] != place[:-1])) if len(place) else 0
    return Runs(segments, place.tolist(), first.tolist(), count.tolist(), code.tolist(), used)


def _cut(offsets: Indexes, rows: Indexes, codes: Codes) -> _Arrays:
    """Cut blocks into runs: ``rows`` are their numbers, those of segment i from ``offsets[i]`` on, ascending."""
    count = len(rows)
    if not count:
        return rows, rows, rows, codes
    breaks = np.empty(count, dtype=bool)
    breaks[0] = True
    np.not_equal(rows[1:] - rows[:-1], 1, out=breaks[1:])
    breaks[1:] |= codes[1:] != codes[:-1]
    breaks[offsets[:-1][offsets[:-1] < count]] = True
    begins = breaks.nonzero()[0]
    ends = np.empty_like(begins)
    ends[:-1] = begins[1:]
    ends[-1] = count
    # Of segments without blocks here the last offset is the next one's, which the search finds.
    place: Indexes = offsets.searchsorted(begins, side="right") - 1
    return place, rows[begins], ends - begins, codes[begins]


def _with_whole(parts: KeptBlocks, tested: _Arrays) -> _Arrays:
    """The runs with those of segments that are kept as a whole; one without blocks has none."""
    places = parts.whole.nonzero()[0]  # NONE is zero
    if not len(places):
        return tested
    counts = parts.block_counts[parts.segments[places]]
    some = counts.nonzero()[0]
    places = places[some]
    place = np.concatenate([places, tested[0]])
    order = place.argsort(kind="stable")  # within a segment they are in order
    return (
        place[order],
        np.concatenate([np.zeros(len(some), dtype=np.int64), tested[1]])[order],
        np.concatenate([counts[some], tested[2]])[order],
        np.concatenate([parts.whole[places], tested[3]])[order],
    )

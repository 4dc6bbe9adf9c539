"""Decides which blocks share a segment, so that pruning can skip whole segments. This rewrites metadata only, not
blocks.

A segment covers the range from the minimum to the maximum of its blocks. Blocks that were committed together need not
be neighbours, and one wide block makes its segment wide. Segments are selected like blocks
(:mod:`lamella.snapshot.cluster.selection`): wherever too many segments overlap, the least dense ones, worst first,
within the limits of a run. Unlike with blocks, the result is known in advance: the blocks are ordered
(:mod:`lamella.snapshot.cluster.layout`), wide ones separately, and cut evenly. So a group is regrouped only if look-ups
would open sufficiently fewer segments, or segments with fewer blocks. If all blocks are wide nothing is done, whatever
the depth of the segments. The same blocks in the same order give the same result, so repeated runs terminate.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.cluster.extent import Boxes, Extents, Intervals, Read, Rows, Sizes, Spans, read
from lamella.snapshot.cluster.layout import Neighbours, neighbours
from lamella.snapshot.cluster.selection import Chooser, Chosen, layout_of
from lamella.snapshot.columnar.keys import Mask

#: A class of blocks is merged with the next wider one unless it fills this fraction of a segment.
_OWN_SEGMENT: Final = 0.125
#: A group is left alone if look-ups would still open this fraction of its segments, or more.
_NO_BETTER: Final = 0.9


class RegroupAims(msgspec.Struct, frozen=True, kw_only=True):
    """Targets and limits of a run. ``segment_blocks``: maximum number of blocks in a segment. ``target_depth``: how
    many segments may cover a key value, where possible. ``max_segments``: maximum number of segments to replace.
    ``range_share``, ``min_gain``: as in :class:`~lamella.snapshot.cluster.selection.Aims`, with segments for blocks,
    and blocks for bytes.
    """

    segment_blocks: int = 1_000
    target_depth: int = 2
    max_segments: int = 256
    range_share: float = 0.001
    min_gain: float = 0.05


class Regroup(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Segments that are replaced by others with the same blocks.

    ``segments``: their numbers. ``blocks``: for each new segment the indexes of its blocks among all blocks (int64), in
    order. ``opened_before`` and ``opened_after``: the expected number of old and of new segments that a look-up opens
    (for boxes an average over ranges of each column and of all columns at once).
    """

    segments: Any
    blocks: tuple[Any, ...]
    opened_before: float
    opened_after: float


class Regrouping(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The work of one run. No two groups share a segment, and each can succeed or fail independently.

    ``opened_before``: the expected number of segments of the whole table that a look-up opens; ``opened_after``: the
    same after all groups are done. ``reason``: why there are no groups, or no more than these. ``remaining``: the
    number of segments that later runs would replace, as far as is known now.
    """

    groups: tuple[Regroup, ...]
    opened_before: float
    opened_after: float
    reason: str
    remaining: int = 0


def regroup(
    extents: Extents,
    rows: Rows,
    segment_of: Rows,
    aims: RegroupAims = RegroupAims(),  # noqa: B008  # a frozen value
    *,
    allowed: Mask | None = None,
) -> Regrouping:
    """Returns the groups of the next run; the same arguments give the same groups.

    ``extents``: of all blocks of the table; ``rows``: the rows of each block; ``segment_of``: the number of each
    block's segment, counted from 0 without gaps. ``allowed``: the segments that may be replaced, one element each
    (None: all).

    Raises:
        ValueError: the arguments do not describe the same blocks or segments.
    """
    count = int(segment_of.max(initial=-1)) + 1
    if not len(extents) == len(rows) == len(segment_of) or (allowed is not None and len(allowed) != count):
        raise ValueError("extents, rows and segment_of are of the same blocks, allowed of their segments")
    if not rows.sum():
        return Regrouping(groups=(), opened_before=0.0, opened_after=0.0, reason="the table has no rows")
    members = _members(segment_of, count)
    segments = _hulls(extents, members)
    blocks_in = np.array([len(each) for each in members], dtype=np.int64)
    sizes = Sizes(np.bincount(segment_of, rows, minlength=count), blocks_in, np.zeros(count, dtype=np.int64))
    mean_rows = float(rows.sum()) / len(rows)
    view = _View(neighbours(extents, rows, mean_rows), members, aims)
    layout = layout_of(segments, sizes)
    everything = view.opened(members)

    def evaluate(group: Rows) -> tuple[list[Read], list[Read]] | None:
        before, after = view.opened([members[at] for at in group.tolist()]), view.opened(view.arranged(group))
        better = np.mean([then.share_of(now) for now, then in zip(before, after, strict=True)])
        return None if better >= _NO_BETTER else (before, after)

    free = np.ones(count, dtype=bool) if allowed is None else allowed
    groups = layout.components(layout.chosen(aims.target_depth, free))
    # Each segment costs one.
    chooser = Chooser(layout, np.ones(count, dtype=np.int64), count, everything, evaluate)
    found = chooser.best(groups, aims.max_segments, aims.min_gain)
    done = tuple(view.regroup(each) for each in found.groups)
    before = float(np.mean([each.blocks for each in everything]))
    if done:
        reason = "the limit max_segments is reached" if found.exceeds_limit else "no others are worth rewriting"
    elif found.exceeds_limit:
        reason = "each set of overlapping segments exceeds max_segments"
    else:
        reason = "regrouping would gain too little" if groups else "no segments overlap too much"
    after = before - sum(each.opened_before - each.opened_after for each in done)
    return Regrouping(groups=done, opened_before=before, opened_after=after, reason=reason, remaining=found.remaining)


def _members(segment_of: Rows, count: int) -> list[Rows]:
    order = np.argsort(segment_of, kind="stable")
    found = list(np.split(order, np.searchsorted(segment_of[order], np.arange(1, count))))
    if any(not len(each) for each in found):
        raise ValueError("some segment numbers have no block")
    return found


def _hulls(extents: Extents, members: list[Rows]) -> Extents:
    """Returns the extents of segments."""
    if isinstance(extents, Boxes):
        return Boxes(extents.kind, tuple(_hull(side, members) for side in extents.sides))
    return _hull(extents, members)


def _hull(side: Intervals, members: list[Rows]) -> Intervals:
    order = np.concatenate(members)
    starts = np.cumsum([0, *(len(each) for each in members[:-1])])
    first = np.minimum.reduceat(side.first[order], starts)
    last = np.maximum.reduceat(side.last[order], starts)
    return Intervals(first, last, side.count, np.logical_or.reduceat(side.is_unknown[order], starts))


class _View:
    """Estimates what look-ups read of segments."""

    def __init__(self, near: Neighbours, members: list[Rows], aims: RegroupAims) -> None:
        self._near = near
        self._members = members
        self._aims = aims

    def opened(self, segments: list[Rows]) -> list[Read]:
        """Returns the number of segments that look-ups open, and the number of blocks in these, for each kind of
        look-up."""
        near, share = self._near, self._aims.range_share
        starts = np.cumsum([0, *(len(each) for each in segments[:-1])])
        blocks = np.concatenate(segments)
        counts = np.array([len(each) for each in segments], dtype=np.int64)
        low = np.minimum.reduceat(near.start[blocks], starts, axis=0)
        high = np.maximum.reduceat(near.stop[blocks], starts, axis=0)
        sides = [Spans(low[:, at], high[:, at]) for at in range(low.shape[1])]
        sizes = Sizes(counts, counts, counts)
        likely = [side.read_by(share) for side in sides]
        if len(sides) > 1:
            likely.append(np.prod([side.read_by(share ** (1 / len(sides))) for side in sides], axis=0))
        return [read(each, sizes) for each in likely]

    def arranged(self, group: Rows) -> list[Rows]:
        """Returns the blocks of some segments arranged in new segments."""
        near, max_blocks = self._near, self._aims.segment_blocks
        order = near.order(np.concatenate([self._members[at] for at in group.tolist()]))
        parts = np.split(order, np.flatnonzero(np.diff(near.width_class[order])) + 1)
        found: list[Rows] = []
        waiting: list[Rows] = []
        for at, part in enumerate(parts):
            waiting.append(part)
            blocks = np.concatenate(waiting)
            if len(blocks) < _OWN_SEGMENT * max_blocks and at + 1 < len(parts):
                continue
            blocks = blocks[np.lexsort((blocks, near.position[blocks]))]
            found += np.array_split(blocks, -(-len(blocks) // max_blocks))
            waiting = []
        return found

    def regroup(self, chosen: Chosen) -> Regroup:
        """Returns how a group is regrouped."""
        new = self.arranged(chosen.members)
        before = self.opened([self._members[at] for at in chosen.members.tolist()])
        return Regroup(
            segments=chosen.members,
            blocks=tuple(new),
            opened_before=float(np.mean([each.blocks for each in before])),
            opened_after=float(np.mean([each.blocks for each in self.opened(new)])),
        )

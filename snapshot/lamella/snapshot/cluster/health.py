"""Measures how well a table is laid out for a cluster key, its own or a candidate."""

from __future__ import annotations

import msgspec
import numpy as np

from lamella.snapshot.cluster.depth import DepthSummary, box_depths, interval_depths, summary
from lamella.snapshot.cluster.extent import (
    NOT_WRITTEN,
    UNIMPROVABLE_LEVEL,
    BlockTarget,
    Extents,
    Intervals,
    Mass,
    Numbers,
    Read,
    Sizes,
    Spans,
    mass_of,
    met,
    read,
)

#: Fractions of all rows that look-ups select; 0: one row's value.
SHARES = (0.0, 0.001, 0.01)


class LookUp(msgspec.Struct, frozen=True, kw_only=True):
    """Expected cost of look-ups of one kind, now and in the best layout of blocks of the same sizes.

    A look-up is a range of the key that selects the fraction ``share`` of all rows, beginning anywhere, or the value of
    a random row (``share`` 0). For a linear key it is a range of its columns compared one after another. For boxes it
    is a range of column ``column`` (counted from 0) with no condition on the others, or, if ``column`` is None, a range
    of all columns that together select the share if they are independent.

    The best layout of a line puts the blocks end to end in their present order. That is exact as far as the
    distribution of rows is known (:mod:`lamella.snapshot.cluster.extent`), and includes the unavoidable cost of
    frequent values. The best layout of boxes consists of cubes that do not overlap.
    """

    share: float
    blocks: float
    size_bytes: float
    ideal_blocks: float
    ideal_bytes: float
    column: int | None = None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a layout.

    Blocks are *constant* if they have a single key value, *unclustered* if they were not written for the key,
    *unimprovable* if sorting does not help them, and *unknown* if a bound of a key column is unknown; *small*,
    *perfect* and *large* compare them with the target size. ``depth``: see :mod:`lamella.snapshot.cluster.depth`.
    """

    block_count: int
    row_count: int
    size_bytes: int
    depth: DepthSummary
    constant_blocks: int
    unclustered_blocks: int
    unimprovable_blocks: int
    unknown_blocks: int
    small_blocks: int
    perfect_blocks: int
    large_blocks: int
    look_ups: tuple[LookUp, ...] = ()


def health(
    extents: Extents,
    sizes: Sizes,
    target: BlockTarget = BlockTarget(),  # noqa: B008  # a frozen value
    *,
    shares: tuple[float, ...] = SHARES,
    seed: int = 0,
) -> Health:
    """Computes the figures of a layout. ``seed``: for the sample of boxes, if there are many.

    Raises:
        ValueError: the arguments do not describe the same blocks.
    """
    if len(extents) != len(sizes):
        raise ValueError("extents and sizes are of the same blocks")
    if isinstance(extents, Intervals):
        depths = interval_depths(extents)
    else:
        depths = box_depths(extents, np.random.default_rng(seed))
    return Health(
        block_count=len(sizes),
        row_count=int(sizes.rows.sum()),
        size_bytes=int(sizes.size_bytes.sum()),
        depth=summary(depths),
        constant_blocks=int(extents.is_constant.sum()),
        unclustered_blocks=int((sizes.level == NOT_WRITTEN).sum()),
        unimprovable_blocks=int((sizes.level >= UNIMPROVABLE_LEVEL).sum()),
        unknown_blocks=int(extents.is_unknown.sum()),
        small_blocks=int(target.is_small(sizes).sum()),
        perfect_blocks=int(target.is_perfect(sizes).sum()),
        large_blocks=int(target.is_large(sizes).sum()),
        look_ups=_look_ups(extents, sizes, shares) if sizes.rows.sum() else (),
    )


def _look_ups(extents: Extents, sizes: Sizes, shares: tuple[float, ...]) -> tuple[LookUp, ...]:
    sides = (extents,) if isinstance(extents, Intervals) else extents.sides
    masses = [mass_of(side, sizes.rows) for side in sides]
    spans = [mass.spans(side) for mass, side in zip(masses, sides, strict=True)]
    if len(sides) == 1:
        best = _end_to_end(masses[0], spans[0], sizes)
        return tuple(
            _compared(share, read(spans[0].read_by(share), sizes), read(best.read_by(share), sizes)) for share in shares
        )
    edge = (sizes.rows / sizes.rows.sum()) ** (1 / len(sides))
    found = []
    for share in shares:
        for column, side in enumerate(spans):
            ideal = read(met(edge, share), sizes)
            found.append(_compared(share, read(side.read_by(share), sizes), ideal, column))
        part = share ** (1 / len(sides))
        likely: Numbers = np.prod([side.read_by(part) for side in spans], axis=0)
        found.append(_compared(share, read(likely, sizes), read(met(edge, part) ** len(sides), sizes)))
    return tuple(found)


def _end_to_end(mass: Mass, spans: Spans, sizes: Sizes) -> Spans:
    """Returns the spans of the blocks if each began where the one before it ends."""
    order = np.lexsort((np.arange(len(sizes)), spans.start + spans.stop))
    edges = np.concatenate([[0.0], np.cumsum(sizes.rows[order])]) / sizes.rows.sum()
    best = mass.widened(Spans(edges[:-1], edges[1:]))
    start, stop = np.empty(len(order)), np.empty(len(order))
    start[order], stop[order] = best.start, best.stop
    return Spans(start, stop)


def _compared(share: float, now: Read, ideal: Read, column: int | None = None) -> LookUp:
    return LookUp(
        share=share,
        column=column,
        blocks=now.blocks,
        size_bytes=now.size_bytes,
        ideal_blocks=ideal.blocks,
        ideal_bytes=ideal.size_bytes,
    )

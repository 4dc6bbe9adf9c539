"""How well a table is laid out for a key, one that it has or one that it could have."""

from __future__ import annotations

import msgspec
import numpy as np

from lamella.snapshot.cluster.depth import DepthSummary, box_depths, interval_depths, summary
from lamella.snapshot.cluster.extent import (
    NOT_WRITTEN,
    SETTLED,
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

#: Parts of all rows that look-ups ask for; 0: those of one row's value.
SHARES = (0.0, 0.001, 0.01)


class LookUp(msgspec.Struct, frozen=True, kw_only=True):
    """What look-ups of one sort read, expected, and what they would read of blocks of the same sizes in the best
    layout.

    A look-up is a range of the key that has the part ``share`` of all rows, begun anywhere, or the value of a row drawn
    at random (``share`` 0). Of a linear key: a range of its columns compared one after another. Of boxes: a range of
    the column ``column`` (counted from 0) whatever the others are, or of all columns at once that together leave the
    share (``column`` None), if they have nothing to do with each other.

    The best layout of a line: the blocks end to end, in the order that they lie in now; that is exact for what is known
    of where rows are (:mod:`lamella.snapshot.cluster.extent`), and values with many rows cost what they must. Of
    boxes: cubes that do not overlap, somewhere.
    """

    share: float
    blocks: float
    size_bytes: float
    ideal_blocks: float
    ideal_bytes: float
    column: int | None = None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """A layout in figures.

    Blocks are *constant* with a single key value, *unclustered* when they were not written for the key, *settled* when
    sorting does not help them, *unknown* when a bound on a column of the key is not known; *small*, *perfect* and
    *large* against a target size. ``depth``: see :mod:`lamella.snapshot.cluster.depth`.
    """

    block_count: int
    row_count: int
    size_bytes: int
    depth: DepthSummary
    constant_blocks: int
    unclustered_blocks: int
    settled_blocks: int
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
    """The figures of a layout. ``seed``: of the sample of boxes that is looked at, where there are many.

    Raises:
        ValueError: the arguments are not of the same blocks.
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
        settled_blocks=int((sizes.level >= SETTLED).sum()),
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
    """Where the blocks would lie if each began where the one before it ends."""
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

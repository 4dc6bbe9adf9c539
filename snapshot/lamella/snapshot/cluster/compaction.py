"""Selects small blocks to merge and large blocks to split.

Small blocks that are neighbours on the key are merged as long as the result stays narrow: its key range may be 1.25
times what its blocks cover together, or as wide as eight blocks of the target size. So a look-up reads at most a
quarter more of the merged blocks, or one merged block for up to eight neighbours, and blocks from the two ends of the
key's range stay apart. A look-up may read more bytes, because a merged block is larger. A wide block is not merged with
a narrow one (:mod:`lamella.snapshot.cluster.layout`).

A bin counts as full at 80 % of the target. It is filled up to 100 % and never holds more than 120 %. It may include one
block of 40 % to 80 %. A bin that is not full is written only if the result is at least 1.5 times as large as its
largest block; otherwise a table that receives a few rows at a time would rewrite its last block again and again. So a
row is rewritten at most about log(target / size) / log(1.5) times.

Every bin reduces the number of blocks, or of large blocks, so repeated runs terminate. Each run decides anew which
blocks are small; no counters are kept.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.cluster.extent import UNIMPROVABLE_LEVEL, BlockTarget, Extents, Rows, Sizes
from lamella.snapshot.cluster.layout import Neighbours, neighbours
from lamella.snapshot.columnar.keys import Mask

RUN_BYTES: Final = 64 << 30
RUN_BLOCKS: Final = 10_000
#: Parts of the target: the size at which a bin counts as full, and the maximum size of a bin.
_FULL: Final = 0.8
_FULLEST: Final = 1.2
#: Minimum size of a bin that is not full, as a multiple of its largest block.
_GROWTH: Final = 1.5
#: Maximum width of a bin, as a multiple of the width of all its blocks.
_WIDER: Final = 1.25


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one run: the bytes and the number of blocks that it rewrites."""

    max_bytes: int = RUN_BYTES
    max_blocks: int = RUN_BLOCKS


class Bin(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Blocks that are rewritten together into ``pieces`` blocks of about the same size.

    ``blocks``: their indexes among all blocks (int64, in key order). Several blocks become one, or one becomes several.
    ``level``: the level of the new blocks, which is the maximum of the old levels (at least 0); the new blocks are
    unimprovable only if all old ones are.
    """

    blocks: Any
    rows: int
    size_bytes: int
    pieces: int
    level: int


class Packing(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The bins of one run, those that save most blocks per byte first.

    ``reason``: why there are no bins, or no more than these. ``remaining_blocks``: the number of blocks that later runs
    would rewrite, as far as is known now.
    """

    bins: tuple[Bin, ...]
    reason: str
    remaining_blocks: int = 0


def pack(
    extents: Extents | None,
    sizes: Sizes,
    target: BlockTarget = BlockTarget(),  # noqa: B008  # a frozen value
    limits: Limits = Limits(),  # noqa: B008
    *,
    allowed: Mask | None = None,
) -> Packing:
    """Returns the bins of the next run; the same arguments give the same bins.

    ``extents``: the range that each block covers on the table's cluster key. None: the table has no key, and
    consecutive blocks count as neighbours. ``allowed``: the blocks that may be chosen (None: all).

    Raises:
        ValueError: the arguments do not describe the same blocks.
    """
    if (extents is not None and len(extents) != len(sizes)) or (allowed is not None and len(allowed) != len(sizes)):
        raise ValueError("extents, sizes and allowed are of the same blocks")
    free = np.ones(len(sizes), dtype=bool) if allowed is None else allowed
    small, large = target.is_small(sizes) & free, np.flatnonzero(target.is_large(sizes) & free)
    found = _Packer(extents, sizes, target, limits).bins(small, free & ~small & (target.fill(sizes) < _FULL))
    found += [_bin(sizes, np.array([block]), target) for block in large.tolist()]
    found.sort(key=lambda each: (-(len(each.blocks) - each.pieces) / max(each.size_bytes, 1), int(each.blocks[0])))
    taken: list[Bin] = []
    left_bytes, left_blocks = limits.max_bytes, limits.max_blocks
    for each in found:
        if each.size_bytes <= left_bytes and len(each.blocks) <= left_blocks:
            taken.append(each)
            left_bytes -= each.size_bytes
            left_blocks -= len(each.blocks)
    remaining = sum(len(each.blocks) for each in found) - sum(len(each.blocks) for each in taken)
    if remaining:
        reason = "the limit max_bytes or max_blocks is reached" if taken else "each bin exceeds max_bytes or max_blocks"
    elif taken:
        reason = "no other small blocks are adjacent" if small.any() else "no others are too large"
    else:
        reason = "no small blocks are adjacent" if small.any() else "no block is small or too large"
    return Packing(bins=tuple(taken), reason=reason, remaining_blocks=remaining)


def _bin(sizes: Sizes, blocks: Rows, target: BlockTarget) -> Bin:
    rows, size_bytes = int(sizes.rows[blocks].sum()), int(sizes.size_bytes[blocks].sum())
    levels = sizes.level[blocks]
    level = (
        UNIMPROVABLE_LEVEL
        if (levels >= UNIMPROVABLE_LEVEL).all()
        else max(0, int(levels[levels < UNIMPROVABLE_LEVEL].max()))
    )
    pieces = int(target.blocks_of(rows, size_bytes))
    return Bin(blocks=blocks, rows=rows, size_bytes=size_bytes, pieces=pieces, level=level)


class _Packer:
    """Packs neighbouring blocks into bins."""

    def __init__(self, extents: Extents | None, sizes: Sizes, target: BlockTarget, limits: Limits) -> None:
        self._sizes = sizes
        self._target = target
        self._limits = limits
        self._fill = target.fill(sizes)
        self._near: Neighbours | None = None
        if extents is not None and sizes.rows.sum():
            self._near = neighbours(extents, sizes.rows, float(sizes.rows.sum()) / max(float(self._fill.sum()), 1e-9))

    def bins(self, small: Mask, medium: Mask) -> list[Bin]:
        """Returns bins of small blocks, each with at most one medium block. There may be more than one run may
        rewrite."""
        near = self._near
        found: list[Bin] = []
        if not small.any():
            return found
        candidates = np.flatnonzero(small | medium)
        order = candidates if near is None else near.order(candidates)
        classes = np.zeros(len(order), dtype=np.int64) if near is None else near.width_class[order]
        for group in np.split(order, np.flatnonzero(np.diff(classes)) + 1):
            for run in self._runs(group, medium):
                remaining = self._worth_merging(run)
                if len(remaining) > 1:
                    found.append(_bin(self._sizes, remaining, self._target))
        return found

    def _runs(self, order: Rows, medium: Mask) -> list[Rows]:
        """Yields runs of neighbours that fit into one bin."""
        rows, size_bytes = self._sizes.rows[order].tolist(), self._sizes.size_bytes[order].tolist()
        mediums = medium[order].tolist()
        max_rows, max_bytes = self._target.rows, self._target.size_bytes
        hull = _Hull(self._near, order)
        starts = [0]
        count = row_sum = byte_sum = medium_count = 0
        for at in range(len(order)):
            fill = max(row_sum / max_rows, byte_sum / max_bytes)
            then = max((row_sum + rows[at]) / max_rows, (byte_sum + size_bytes[at]) / max_bytes)
            fits = then <= (_FULLEST if fill < _FULL else 1.0) and byte_sum + size_bytes[at] <= self._limits.max_bytes
            fits = fits and count < self._limits.max_blocks and medium_count + mediums[at] < 2
            if count and not (fits and hull.takes(at)):
                starts.append(at)
                hull.clear()
                count = row_sum = byte_sum = medium_count = 0
            hull.add(at)
            count += 1
            row_sum += rows[at]
            byte_sum += size_bytes[at]
            medium_count += mediums[at]
        return list(np.split(order, starts[1:])) if len(order) else []

    def _worth_merging(self, run: Rows) -> Rows:
        """Returns a run without the blocks that are too large to be worth rewriting; empty if fewer than two are
        left."""
        is_whole = True
        while len(run) > 1:
            fill = self._fill[run]
            whole = float(fill.sum())
            if (whole >= _FULL or whole >= _GROWTH * fill.max()) and (is_whole or self._holds(run)):
                return run
            run = np.delete(run, int(np.argmax(fill)))
            is_whole = False
        return run

    def _holds(self, run: Rows) -> bool:
        """Returns whether the blocks of a run may still be merged after one of them was left out."""
        hull = _Hull(self._near, run)
        for at in range(len(run)):
            if not hull.takes(at):
                return False
            hull.add(at)
        return True


class _Hull:
    """The part of the key range that a run of the blocks in ``order`` covers."""

    def __init__(self, near: Neighbours | None, order: Rows) -> None:
        self._sides: list[tuple[list[float], list[float]]] = []
        self._width: list[float] = []
        self._narrow = 0.0
        if near is not None:
            start, stop = near.start[order], near.stop[order]
            self._sides = [(start[:, at].tolist(), stop[:, at].tolist()) for at in range(start.shape[1])]
            self._width = near.width[order].tolist()
            self._narrow = near.narrow
        self.clear()

    def clear(self) -> None:
        """Remove all blocks."""
        self._low = [math.inf] * len(self._sides)
        self._high = [-math.inf] * len(self._sides)
        self._together = 0.0

    def takes(self, at: int) -> bool:
        """Returns whether a block may be added."""
        if not self._sides:
            return True
        volume = 1.0
        for (start, stop), low, high in zip(self._sides, self._low, self._high, strict=True):
            volume *= max(high, stop[at]) - min(low, start[at])
        return volume <= max(self._narrow, _WIDER * (self._together + self._width[at]))

    def add(self, at: int) -> None:
        """Add a block."""
        for column, (start, stop) in enumerate(self._sides):
            self._low[column] = min(self._low[column], start[at])
            self._high[column] = max(self._high[column], stop[at])
        self._together += self._width[at] if self._sides else 0.0

"""Selects the blocks to rewrite next so that a table becomes ordered by its cluster key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.cluster.depth import interval_depths
from lamella.snapshot.cluster.extent import UNIMPROVABLE_LEVEL, BlockTarget, Extents, Intervals, Read, Rows, Sizes
from lamella.snapshot.cluster.layout import BoxLayout, Layout, LineLayout, volume_of
from lamella.snapshot.columnar.keys import Mask

#: Maximum number of groups that one run evaluates, and so of its tasks.
MAX_GROUPS: Final = 2_000
_MIN_GAIN: Final = 1e-9


class Gain(msgspec.Struct, frozen=True):
    """How much less a look-up reads, and what fraction this is of its reads in the rewritten part of the table."""

    saved: Read
    ratio: float


class Chosen(msgspec.Struct, frozen=True, eq=False):
    """A group, or as much of it as fits the limits of a run."""

    members: Any
    gain: Gain


class Choice(msgspec.Struct, frozen=True, eq=False):
    """The groups of one run, those that gain most for their cost first. ``remaining``: the cost of later runs.

    ``exceeds_limit``: there are more groups, but they exceed the limit of a run.
    """

    groups: tuple[Chosen, ...]
    remaining: int
    exceeds_limit: bool


#: Returns what look-ups read of some members now and after rewriting, for each kind of look-up; None: no improvement.
Evaluate = Callable[[Rows], tuple[Sequence[Read], Sequence[Read]] | None]


class Chooser:
    """Chooses among groups of members that each have a cost.

    ``whole``: the total cost of all members that can improve; ``everything``: what look-ups read of them.
    """

    def __init__(self, layout: Layout, cost: Rows, whole: int, everything: Sequence[Read], evaluate: Evaluate) -> None:
        self._layout = layout
        self._cost = cost
        self._whole = max(whole, 1)
        self._everything = everything
        self._evaluate = evaluate

    def best(self, groups: Sequence[Rows], limit: int, min_gain: float) -> Choice:
        """Returns the best groups whose total cost is at most ``limit``; a group that costs too much is cut."""
        min_gain = max(min_gain, _MIN_GAIN)
        costs = [int(self._cost[group].sum()) for group in groups]
        promise = [self._promise(group) / max(cost, 1) for group, cost in zip(groups, costs, strict=True)]
        order = sorted(range(len(groups)), key=lambda at: -promise[at])
        looked_at, beyond = order[:MAX_GROUPS], order[MAX_GROUPS:]
        remaining = sum(costs[at] for at in beyond)
        exceeds_limit = bool(beyond)
        worth: list[tuple[int, Chosen]] = []
        for at in looked_at:
            mine = self._within(groups[at], limit)
            found = self._chosen(mine, min_gain)
            if found is not None:
                worth.append((at, found))
            elif len(mine) < min(len(groups[at]), 2):
                exceeds_limit = True
        worth.sort(key=lambda pair: (-pair[1].gain.ratio, int(groups[pair[0]][0])))
        taken: list[Chosen] = []
        for at, each in worth:
            fits = int(self._cost[each.members].sum()) <= limit
            one = each if fits else self._chosen(self._within(groups[at], limit), min_gain)
            remaining += costs[at]
            if one is not None:
                spent = int(self._cost[one.members].sum())
                taken.append(one)
                limit -= spent
                remaining -= spent
        return Choice(tuple(taken), remaining, exceeds_limit or remaining > 0)

    def _chosen(self, members: Rows, min_gain: float) -> Chosen | None:
        """Returns some members with their gain, or None if the gain is too small."""
        found = self._evaluate(members) if len(members) else None
        if found is None:
            return None
        saved = [before.minus(after) for before, after in zip(*found, strict=True)]
        share = float(np.mean([part.share_of(whole) for part, whole in zip(saved, self._everything, strict=True)]))
        ratio = share * self._whole / max(int(self._cost[members].sum()), 1)
        if ratio <= min_gain:
            return None
        mean = Read(
            float(np.mean([each.blocks for each in saved])), float(np.mean([each.size_bytes for each in saved]))
        )
        return Chosen(self._layout.in_order(members), Gain(mean, ratio))

    def _within(self, group: Rows, limit: int) -> Rows:
        """Returns as much of a group as the limit allows: the least dense members at its deepest point, or all of those
        and their neighbours."""
        if int(self._cost[group].sum()) <= limit:
            return group
        found = np.zeros(len(self._cost), dtype=bool)
        for member in np.concatenate(self._layout.around_peak(group)).tolist():
            if self._cost[member] <= limit:
                found[member] = True
                limit -= int(self._cost[member])
        # Members that are now disjoint gain nothing from being rewritten together.
        return max(self._layout.components(found), key=self._promise, default=np.zeros(0, dtype=np.int64))

    def _promise(self, group: Rows) -> float:
        """Returns a score of a group; sparse members score high."""
        return float((self._cost[group] / self._layout.density[group]).sum())


#: Default limit of the bytes of blocks that one run rewrites.
RUN_BYTES: Final = 64 << 30
#: Boxes that still have this fraction of their former volume did not improve.
_NO_LESS: Final = 0.9


class Aims(msgspec.Struct, frozen=True, kw_only=True):
    """The targets of a run, and its limits.

    ``target_depth``: how many blocks may cover a key value, where possible. ``max_bytes``: maximum bytes of blocks to
    rewrite. ``target``: the size of the new blocks. ``range_share``: look-ups are ranges of this fraction of all rows.
    ``min_gain``: minimum ratio of gain to cost: a task that saves look-ups x % of their reads and rewrites y % of the
    table is done if x / y exceeds it. Constant blocks are not counted, because no layout changes them.
    """

    target_depth: int = 2
    max_bytes: int = RUN_BYTES
    target: BlockTarget = BlockTarget()
    range_share: float = 0.001
    min_gain: float = 0.05


class Task(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Blocks whose rows are sorted together and rewritten into blocks of the target size.

    ``blocks``: their indexes among all blocks (int64, in key order). ``level``: the level of the new blocks.
    ``blocks_saved`` and ``bytes_saved``: the expected reduction per look-up (for boxes an average over ranges of each
    column and of all columns at once); ``gain``: see :class:`Aims`. No two tasks of a selection share a block or a part
    of the key's range, so their outputs do not overlap either, and each can succeed or fail independently.
    """

    blocks: Any
    rows: int
    size_bytes: int
    level: int
    blocks_saved: float
    bytes_saved: float
    gain: float


class Selection(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The tasks of one run, those that gain most per byte first.

    ``reason``: why there are no tasks, or no more than these. ``remaining_bytes``: about how many bytes later runs
    would rewrite, as far as is known now.
    """

    tasks: tuple[Task, ...]
    reason: str
    remaining_bytes: int = 0


def select(extents: Extents, sizes: Sizes, aims: Aims, *, allowed: Mask | None = None, seed: int = 0) -> Selection:
    """Returns the tasks of the next run; the same arguments give the same tasks.

    ``extents``, ``sizes``: of all blocks of the table. ``allowed``: the blocks that may be chosen (None: all). Blocks
    of one key value and blocks of level :data:`~lamella.snapshot.cluster.extent.UNIMPROVABLE_LEVEL` are never chosen.
    ``seed``: for the sample of points at which the depth of many boxes is evaluated.

    The result is empty when nothing is left to do, so a caller repeats until then.

    Raises:
        ValueError: the arguments do not describe the same blocks.
    """
    if len(extents) != len(sizes) or (allowed is not None and len(allowed) != len(sizes)):
        raise ValueError("extents, sizes and allowed are of the same blocks")
    free = (np.ones(len(sizes), dtype=bool) if allowed is None else allowed) & (sizes.level < UNIMPROVABLE_LEVEL)
    if not len(sizes) or not sizes.rows.sum():
        return Selection(tasks=(), reason="the table has no rows")
    fits = sizes.size_bytes <= aims.max_bytes
    layout = layout_of(extents, sizes, seed)
    groups = layout.components(layout.chosen(aims.target_depth, free & fits))
    # The cost of constant blocks is the same in any layout.
    improvable = np.flatnonzero(~extents.is_constant)
    everything = layout.read_now(improvable, aims.range_share)
    whole = int(sizes.size_bytes[improvable].sum())

    def evaluate(blocks: Rows) -> tuple[list[Read], list[Read]] | None:
        pieces = int(aims.target.blocks_of(sizes.rows[blocks].sum(), sizes.size_bytes[blocks].sum()))
        if len(blocks) == pieces == 1:
            return None
        now, then = layout.read_now(blocks, 0.0)[-1], layout.read_sorted(blocks, pieces, 0.0)[-1]
        if now.minus(then).share_of(now) < layout.min_gain:
            return None
        return layout.read_now(blocks, aims.range_share), layout.read_sorted(blocks, pieces, aims.range_share)

    found = Chooser(layout, sizes.size_bytes, whole, everything, evaluate).best(groups, aims.max_bytes, aims.min_gain)
    if found.groups:
        reason = "the limit max_bytes is reached" if found.exceeds_limit else "no others are worth rewriting"
    elif found.exceeds_limit or ((free & ~fits).any() and layout.chosen(aims.target_depth, free).any()):
        reason = "each set of overlapping blocks exceeds max_bytes"
    elif groups:
        reason = "sorting would gain too little"
    else:
        reason = "no blocks that may be sorted overlap too much"
    return Selection(
        tasks=tuple(_task(each, sizes) for each in found.groups), reason=reason, remaining_bytes=found.remaining
    )


def unimprovable(extents: Extents, is_new: Mask) -> Mask:
    """Returns the blocks written by *one* task that their zone maps cannot tell apart, although they were sorted.

    ``extents``: of the blocks that the task read and of those that it wrote, by their zone maps; ``is_new``: the
    latter. The result has one element per block, False for those that it read. Truncated or unknown bounds are no
    better after sorting. The writer of such blocks gives them the level
    :data:`~lamella.snapshot.cluster.extent.UNIMPROVABLE_LEVEL`, so that they are not chosen again. On a line these are
    the blocks that overlap each other. Overlapping boxes are normal, so for boxes it is all of them if their volume is
    not smaller than that of the old ones.
    """
    if isinstance(extents, Intervals):
        found = np.zeros(len(extents), dtype=bool)
        new = extents.take(np.flatnonzero(is_new))
        found[is_new] = (interval_depths(new).depth > 1) & ~new.is_constant
        return found
    old, new_volume = (volume_of(extents, rows) for rows in (np.flatnonzero(~is_new), np.flatnonzero(is_new)))
    return is_new & ~extents.is_constant & (new_volume > _NO_LESS * old)


def layout_of(extents: Extents, sizes: Sizes, seed: int = 0) -> Layout:
    """Returns the layout of a table's blocks: a line or boxes."""
    return LineLayout(extents, sizes) if isinstance(extents, Intervals) else BoxLayout(extents, sizes, seed)


def _task(chosen: Chosen, sizes: Sizes) -> Task:
    blocks = chosen.members
    return Task(
        blocks=blocks,
        rows=int(sizes.rows[blocks].sum()),
        size_bytes=int(sizes.size_bytes[blocks].sum()),
        # Only the writer of the new blocks can see that sorting did not help them.
        level=min(max(int(sizes.level[blocks].max()), 0) + 1, UNIMPROVABLE_LEVEL - 1),
        blocks_saved=chosen.gain.saved.blocks,
        bytes_saved=chosen.gain.saved.size_bytes,
        gain=chosen.gain.ratio,
    )

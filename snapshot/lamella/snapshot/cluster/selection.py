"""What to rewrite next so that a table comes into the order of its cluster key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.cluster.depth import interval_depths
from lamella.snapshot.cluster.extent import SETTLED, BlockTarget, Extents, Intervals, Read, Rows, Sizes
from lamella.snapshot.cluster.layout import BoxLayout, Layout, LineLayout, room_of
from lamella.snapshot.columnar.keys import Mask

#: Groups that one run looks at, and so tasks that it has, at most.
MAX_GROUPS: Final = 2_000
_LEAST: Final = 1e-9


class Gain(msgspec.Struct, frozen=True):
    """What a look-up reads less, and the part of what it reads that this is for the part of the table that is
    redone."""

    saved: Read
    ratio: float


class Chosen(msgspec.Struct, frozen=True, eq=False):
    """A group, or as much of it as a run may do."""

    members: Any
    gain: Gain


class Choice(msgspec.Struct, frozen=True, eq=False):
    """The groups of one run, those that gain most for their cost first. ``remaining``: what later runs would cost.

    ``is_too_dear``: there would be more, but not within what a run may cost.
    """

    groups: tuple[Chosen, ...]
    remaining: int
    is_too_dear: bool


#: What look-ups read of some members now, and what they would read, for each sort of look-up; None: no better.
Evaluate = Callable[[Rows], tuple[Sequence[Read], Sequence[Read]] | None]


class Chooser:
    """Chooses among groups of members, each of which costs something.

    ``whole``: what all that could be better cost together; ``everything``: what look-ups read of that.
    """

    def __init__(self, layout: Layout, cost: Rows, whole: int, everything: Sequence[Read], evaluate: Evaluate) -> None:
        self._layout = layout
        self._cost = cost
        self._whole = max(whole, 1)
        self._everything = everything
        self._evaluate = evaluate

    def best(self, groups: Sequence[Rows], most: int, min_gain: float) -> Choice:
        """The best groups that cost no more than ``most`` together; one that costs too much is cut."""
        min_gain = max(min_gain, _LEAST)
        costs = [int(self._cost[group].sum()) for group in groups]
        promise = [self._promise(group) / max(cost, 1) for group, cost in zip(groups, costs, strict=True)]
        order = sorted(range(len(groups)), key=lambda at: -promise[at])
        looked_at, beyond = order[:MAX_GROUPS], order[MAX_GROUPS:]
        remaining = sum(costs[at] for at in beyond)
        is_too_dear = bool(beyond)
        worth: list[tuple[int, Chosen]] = []
        for at in looked_at:
            mine = self._within(groups[at], most)
            found = self._chosen(mine, min_gain)
            if found is not None:
                worth.append((at, found))
            elif len(mine) < min(len(groups[at]), 2):
                is_too_dear = True
        worth.sort(key=lambda pair: (-pair[1].gain.ratio, int(groups[pair[0]][0])))
        taken: list[Chosen] = []
        for at, each in worth:
            fits = int(self._cost[each.members].sum()) <= most
            one = each if fits else self._chosen(self._within(groups[at], most), min_gain)
            remaining += costs[at]
            if one is not None:
                spent = int(self._cost[one.members].sum())
                taken.append(one)
                most -= spent
                remaining -= spent
        return Choice(tuple(taken), remaining, is_too_dear or remaining > 0)

    def _chosen(self, members: Rows, min_gain: float) -> Chosen | None:
        """Some members with what they gain, when that is enough."""
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

    def _within(self, group: Rows, most: int) -> Rows:
        """As many of a group as it may cost: at its deepest place the least dense, or all there and others around."""
        if int(self._cost[group].sum()) <= most:
            return group
        found = np.zeros(len(self._cost), dtype=bool)
        for member in np.concatenate(self._layout.around_peak(group)).tolist():
            if self._cost[member] <= most:
                found[member] = True
                most -= int(self._cost[member])
        # What lies apart now gains nothing from being done together.
        return max(self._layout.components(found), key=self._promise, default=np.zeros(0, dtype=np.int64))

    def _promise(self, group: Rows) -> float:
        """Members that are not dense promise much."""
        return float((self._cost[group] / self._layout.density[group]).sum())


#: Bytes of blocks that one run rewrites, unless told otherwise.
RUN_BYTES: Final = 64 << 30
#: Boxes that take up this part of the room that they took up before have not become better.
_NO_LESS: Final = 0.9


class Aims(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is to reach, and what it may cost.

    ``target_depth``: how many blocks a key value lies in, where it can be had. ``max_bytes``: of blocks rewritten in
    the run. ``target``: the size of the blocks that come out. ``range_share``: look-ups are ranges of such a part of
    all rows.
    ``min_gain``: what must be gained for each part of the table that is rewritten: a task that saves look-ups x % of
    what they read and rewrites y % of the table is done when x / y is more than this. Constant blocks are left out of
    account here: no layout changes them.
    """

    target_depth: int = 2
    max_bytes: int = RUN_BYTES
    target: BlockTarget = BlockTarget()
    range_share: float = 0.001
    min_gain: float = 0.05


class Task(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Blocks whose rows are sorted together and written anew, cut evenly into blocks of the target size.

    ``blocks``: their places among all blocks (int64, in key order). ``level``: of the blocks that come out.
    ``blocks_saved`` and ``bytes_saved``: what a look-up reads less, expected (of boxes on average over ranges of each
    column and of all columns at once); ``gain``: see :class:`Aims`. No two tasks of a selection have a block or
    a part of the key's range in common, so what they write does not overlap either; each may be done, or fail, by
    itself.
    """

    blocks: Any
    rows: int
    size_bytes: int
    level: int
    blocks_saved: float
    bytes_saved: float
    gain: float


class Selection(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The tasks of one run, those that gain most for a byte first.

    ``reason``: why there is none, or none besides these. ``remaining_bytes``: about how many bytes later runs would
    rewrite, by what is known now.
    """

    tasks: tuple[Task, ...]
    reason: str
    remaining_bytes: int = 0


def select(extents: Extents, sizes: Sizes, aims: Aims, *, allowed: Mask | None = None, seed: int = 0) -> Selection:
    """The tasks of the next run; the same for the same arguments.

    ``extents``, ``sizes``: of all blocks of the table. ``allowed``: those that may be chosen (None: all). Blocks of one
    key value and those of level :data:`~lamella.snapshot.cluster.extent.SETTLED` never are. ``seed``: of the
    sample of places that boxes are looked at in, where there are many.

    A run selects nothing when nothing is left to do, so a caller repeats until then.

    Raises:
        ValueError: the arguments are not of the same blocks.
    """
    if len(extents) != len(sizes) or (allowed is not None and len(allowed) != len(sizes)):
        raise ValueError("extents, sizes and allowed are of the same blocks")
    free = (np.ones(len(sizes), dtype=bool) if allowed is None else allowed) & (sizes.level < SETTLED)
    if not len(sizes) or not sizes.rows.sum():
        return Selection(tasks=(), reason="the table has no rows")
    fits = sizes.size_bytes <= aims.max_bytes
    layout = layout_of(extents, sizes, seed)
    groups = layout.components(layout.chosen(aims.target_depth, free & fits))
    # What is constant is read in any layout.
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
        reason = "max_bytes is used up" if found.is_too_dear else "no others are worth it"
    elif found.is_too_dear or ((free & ~fits).any() and layout.chosen(aims.target_depth, free).any()):
        reason = "what lies too deep is more than max_bytes"
    elif groups:
        reason = "sorting would gain too little"
    else:
        reason = "no blocks that may be sorted lie too deep"
    return Selection(
        tasks=tuple(_task(each, sizes) for each in found.groups), reason=reason, remaining_bytes=found.remaining
    )


def settled(extents: Extents, is_new: Mask) -> Mask:
    """Which of the blocks that *one* task wrote cannot be told apart by their zone maps, although they were sorted.

    ``extents``: of the blocks that it took and those that it wrote, by their zone maps; ``is_new``: the latter. One
    element for each block, False for those that it took. Bounds that are cut, or not known, are no better after
    sorting. Who writes such blocks gives them the level :data:`~lamella.snapshot.cluster.extent.SETTLED`, so that
    they are not chosen again and again. On a line it is those that overlap one another; boxes that overlap are nothing
    unusual, and it is all of them when they take up no less room than the old ones did.
    """
    if isinstance(extents, Intervals):
        found = np.zeros(len(extents), dtype=bool)
        new = extents.take(np.flatnonzero(is_new))
        found[is_new] = (interval_depths(new).depth > 1) & ~new.is_constant
        return found
    old, new_volume = (room_of(extents, rows) for rows in (np.flatnonzero(~is_new), np.flatnonzero(is_new)))
    return is_new & ~extents.is_constant & (new_volume > _NO_LESS * old)


def layout_of(extents: Extents, sizes: Sizes, seed: int = 0) -> Layout:
    """A table's layout, by what its blocks are."""
    return LineLayout(extents, sizes) if isinstance(extents, Intervals) else BoxLayout(extents, sizes, seed)


def _task(chosen: Chosen, sizes: Sizes) -> Task:
    blocks = chosen.members
    return Task(
        blocks=blocks,
        rows=int(sizes.rows[blocks].sum()),
        size_bytes=int(sizes.size_bytes[blocks].sum()),
        # Only who knows what came out can tell that it is settled.
        level=min(max(int(sizes.level[blocks].max()), 0) + 1, SETTLED - 1),
        blocks_saved=chosen.gain.saved.blocks,
        bytes_saved=chosen.gain.saved.size_bytes,
        gain=chosen.gain.ratio,
    )

"""Which groups of blocks, or of segments, are worth what it costs to bring them into order, within what a run may
cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.cluster.extent import Rows
from lamella.snapshot.cluster.layout import Layout
from lamella.snapshot.cluster.lookup import Read

#: Groups that one run looks at, and so tasks that it has, at most.
MOST_GROUPS: Final = 2_000
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

    def best(self, groups: Sequence[Rows], most: int, least_gain: float) -> Choice:
        """The best groups that cost no more than ``most`` together; one that costs too much is cut."""
        least_gain = max(least_gain, _LEAST)
        costs = [int(self._cost[group].sum()) for group in groups]
        promise = [self._promise(group) / max(cost, 1) for group, cost in zip(groups, costs, strict=True)]
        order = sorted(range(len(groups)), key=lambda at: -promise[at])
        looked_at, beyond = order[:MOST_GROUPS], order[MOST_GROUPS:]
        remaining = sum(costs[at] for at in beyond)
        is_too_dear = bool(beyond)
        worth: list[tuple[int, Chosen]] = []
        for at in looked_at:
            mine = self._within(groups[at], most)
            found = self._chosen(mine, least_gain)
            if found is not None:
                worth.append((at, found))
            elif len(mine) < min(len(groups[at]), 2):
                is_too_dear = True
        worth.sort(key=lambda pair: (-pair[1].gain.ratio, int(groups[pair[0]][0])))
        taken: list[Chosen] = []
        for at, each in worth:
            fits = int(self._cost[each.members].sum()) <= most
            one = each if fits else self._chosen(self._within(groups[at], most), least_gain)
            remaining += costs[at]
            if one is not None:
                spent = int(self._cost[one.members].sum())
                taken.append(one)
                most -= spent
                remaining -= spent
        return Choice(tuple(taken), remaining, is_too_dear or remaining > 0)

    def _chosen(self, members: Rows, least_gain: float) -> Chosen | None:
        """Some members with what they gain, when that is enough."""
        found = self._evaluate(members) if len(members) else None
        if found is None:
            return None
        saved = [before.minus(after) for before, after in zip(*found, strict=True)]
        share = float(np.mean([part.share_of(whole) for part, whole in zip(saved, self._everything, strict=True)]))
        ratio = share * self._whole / max(int(self._cost[members].sum()), 1)
        if ratio <= least_gain:
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

"""Compares plans with the truth: counts per planner and group of filters."""

from __future__ import annotations

import msgspec

from sharp.oracle import Truth
from sharp.planner import Plan

#: Minimum fraction that must be pruned of the blocks decided by minima and maxima.
GOAL = 0.98


class Tally(msgspec.Struct, kw_only=True):
    """Sums over (block, filter) pairs; ``refused`` counts filters that the planner's language cannot say.

    ``lost``: blocks with a match that were not kept, ``lost_nan`` those of them with NaN in a column of the filter.
    ``wrong_all``: blocks called ALL with a row that does not match.
    ``decided``: blocks that exact minima and maxima rule out; ``decided_all``: for which they prove every row.
    """

    filters: int = 0
    refused: int = 0
    blocks: int = 0
    selected: int = 0
    matching: int = 0
    prunable: int = 0
    pruned: int = 0
    lost: int = 0
    lost_nan: int = 0
    decided: int = 0
    decided_pruned: int = 0
    full: int = 0
    full_proven: int = 0
    decided_all: int = 0
    decided_all_proven: int = 0
    wrong_all: int = 0

    def add(self, truth: Truth, plan: Plan | None) -> None:
        """Count one filter."""
        self.filters += 1
        if plan is None:
            self.refused += 1
            return
        self.blocks += len(truth.some)
        self.selected += int(plan.selected.sum())
        self.matching += int(truth.some.sum())
        self.prunable += int((~truth.some).sum())
        self.pruned += int((~truth.some & ~plan.selected).sum())
        self.lost += int((truth.some & ~plan.selected).sum())
        self.lost_nan += int((truth.some & ~plan.selected & truth.nan).sum())
        self.decided += int(truth.decided_none.sum())
        self.decided_pruned += int((truth.decided_none & ~plan.selected).sum())
        self.full += int(truth.every.sum())
        self.full_proven += int((truth.every & plan.all_rows).sum())
        self.decided_all += int(truth.decided_all.sum())
        self.decided_all_proven += int((truth.decided_all & plan.all_rows).sum())
        self.wrong_all += int((plan.all_rows & ~truth.every).sum())

    def merge(self, other: Tally) -> None:
        """Add another's counts."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def pruned_share(self) -> float | None:
        """Pruned, of the blocks without a match."""
        return _share(self.pruned, self.prunable)

    @property
    def decided_share(self) -> float | None:
        """Pruned, of the blocks that exact minima and maxima rule out."""
        return _share(self.decided_pruned, self.decided)

    @property
    def all_share(self) -> float | None:
        """Proven ALL, of the blocks all of whose rows match."""
        return _share(self.full_proven, self.full)

    @property
    def decided_all_share(self) -> float | None:
        """Proven ALL, of the blocks where exact minima and maxima prove it."""
        return _share(self.decided_all_proven, self.decided_all)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def failures(tallies: dict[str, Tally]) -> list[str]:
    """Return why these tallies (Lamella's, by name) miss the goal; empty when they reach it."""
    found = []
    for name, tally in tallies.items():
        if tally.lost:
            found.append(f"{name}: {tally.lost} blocks with a match were left out")
        if tally.wrong_all:
            found.append(f"{name}: {tally.wrong_all} blocks were called ALL and are not")
        share = tally.decided_share
        if share is not None and share < GOAL:
            found.append(f"{name}: {share:.4f} of what min and max decide is pruned, the goal is {GOAL}")
    return found

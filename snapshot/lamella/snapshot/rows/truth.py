"""SQL's three truth values, row by row, with the rows that could not be decided.

Connectives look at their sides from left to right, as Spark does: where the first side decides, the second is not
needed, and what failed there is no error.
"""

from __future__ import annotations

import msgspec
import numpy as np

from lamella.snapshot.columnar.keys import Mask


class Truth(msgspec.Struct, frozen=True, eq=False):
    """Per row: is it true, is it false (neither: null), has it failed and why."""

    true: Mask
    false: Mask
    failed: Mask | None = None
    reason: str = ""

    @property
    def null(self) -> Mask:
        """Where it is neither true nor false, nor failed."""
        decided = self.true | self.false
        return np.asarray(~decided if self.failed is None else ~decided & ~self.failed)

    def negated(self) -> Truth:
        """SQL's NOT."""
        return Truth(self.false, self.true, self.failed, self.reason)

    def settled(self) -> Truth:
        """``IS TRUE``: null becomes false."""
        return Truth(
            self.true, ~self.true if self.failed is None else ~self.true & ~self.failed, self.failed, self.reason
        )

    def unknown(self) -> Truth:
        """``IS UNKNOWN``: true for null, else false."""
        return Truth(self.null, self.true | self.false, self.failed, self.reason)

    def and_then(self, second: Truth) -> Truth:
        """SQL's AND; the second side is only looked at where this one is not false."""
        if self.failed is None and second.failed is None:
            return Truth(self.true & second.true, self.false | second.false)
        mine = np.zeros(len(self.true), dtype=bool) if self.failed is None else self.failed
        other = np.zeros(len(mine), dtype=bool) if second.failed is None else second.failed & ~self.false & ~mine
        failed = mine | other
        reason = self.reason if mine.any() else second.reason
        return Truth(self.true & second.true, (self.false | second.false) & ~failed, failed, reason)

    def or_else(self, second: Truth) -> Truth:
        """SQL's OR; the second side is only looked at where this one is not true."""
        return self.negated().and_then(second.negated()).negated()


def everywhere(value: bool | None, count: int) -> Truth:
    """The same in every row."""
    return Truth(np.full(count, value is True), np.full(count, value is False))

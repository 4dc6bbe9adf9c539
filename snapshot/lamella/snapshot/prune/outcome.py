"""Sets of results: what a filter may do with the rows of each entry.

Sets combine by SQL's three-valued logic; a negation swaps "may be true" with "may be false" and is therefore sound,
which negating a lone "may match" would not be.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lamella.snapshot.columnar.masks import Truth, both, either, filled, no


class Outcome(msgspec.Struct, frozen=True):
    """Per entry: may a row be true, false, null; ``doubt``: something was missing that could have decided it."""

    true: Truth
    false: Truth
    null: Truth
    doubt: Truth

    def arrays(self, count: int) -> Outcome:
        """The same with an array for each, of ``count`` entries."""
        return Outcome(*(filled(mask, count) for mask in (self.true, self.false, self.null, self.doubt)))


def settled(true: Truth, false: Truth, null: Truth, doubt: Truth) -> Outcome:
    """An outcome whose doubt is dropped where only one result is left."""
    if doubt is False:
        return Outcome(true, false, null, False)
    several = either(both(true, false), both(null, either(true, false)))
    return Outcome(true, false, null, both(doubt, several))


def conjunction(parts: Iterable[Outcome]) -> Outcome:
    """SQL's AND over sets of outcomes; parts are taken as independent, which can only enlarge the result."""
    listed = list(parts)
    true: Truth = True
    false: Truth = False
    null: Truth = False
    doubt: Truth = False
    for part in listed:
        true = both(true, part.true)
        false = either(false, part.false)
        null = either(null, part.null)
        doubt = either(doubt, part.doubt)
    if null is not False:  # a row may be true or null in every part
        for part in listed:
            null = both(null, either(part.true, part.null))
    return settled(true, false, null, doubt)


def flipped(outcome: Outcome) -> Outcome:
    """NOT."""
    return Outcome(outcome.false, outcome.true, outcome.null, outcome.doubt)


def never(outcome: Outcome, where: Truth | None) -> Outcome:
    """The outcome with the knowledge that the filter is true for no row there."""
    if where is None or where is False:
        return outcome
    return settled(both(outcome.true, no(where)), outcome.false, outcome.null, outcome.doubt)

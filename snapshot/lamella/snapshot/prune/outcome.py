"""Sets of results, verdicts of entries, and null, NaN and other values of a column taken one after another.

Sets combine by SQL's three-valued logic; a negation swaps "may be true" with "may be false" and is therefore sound,
which negating a lone "may match" would not be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.keys import Truth, both, either, filled, no
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NULL, MAY_NUMBER, NULLS_KNOWN, Zones
from lamella.snapshot.expression.bound import BoundLeaf, NullTest, columns_in
from lamella.snapshot.schema import Leaf


class Outcome(msgspec.Struct, frozen=True):
    """Per entry: may a row be true, false, null; ``doubt``: something was missing that could have decided it."""

    true: Truth
    false: Truth
    null: Truth
    doubt: Truth

    def arrays(self, count: int) -> Outcome:
        """The same with an array for each, of ``count`` entries."""
        return Outcome(*(filled(mask, count) for mask in (self.true, self.false, self.null, self.doubt)))


def resolved(true: Truth, false: Truth, null: Truth, doubt: Truth) -> Outcome:
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
    return resolved(true, false, null, doubt)


def flipped(outcome: Outcome) -> Outcome:
    """NOT."""
    return Outcome(outcome.false, outcome.true, outcome.null, outcome.doubt)


def never(outcome: Outcome, where: Truth | None) -> Outcome:
    """The outcome with the knowledge that the filter is true for no row there."""
    if where is None or where is False:
        return outcome
    return resolved(both(outcome.true, no(where)), outcome.false, outcome.null, outcome.doubt)


# Verdicts of entries (segments, blocks): NONE, SOME, ALL, UNKNOWN.
#
# NONE: no row matches, proven. ALL: every row matches, proven. SOME: the statistics overlap the filter. UNKNOWN: kept
# because something is missing (a statistic, or a predicate that is not used); the report says what.

NONE: Final = 0
SOME: Final = 1
UNKNOWN: Final = 2
ALL: Final = 3

#: Verdicts by code, as answers spell them.
VERDICT_NAMES: Final = ("NONE", "SOME", "UNKNOWN", "ALL")


def verdicts(outcome: Outcome, row_counts: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """One code per entry; an entry without rows is NONE."""
    return codes_of(outcome, row_counts > 0, len(row_counts))


def codes_of(outcome: Outcome, has_rows: Truth, count: int) -> npt.NDArray[np.uint8]:
    """As :func:`verdicts`, of ``count`` entries; ``has_rows``: where an entry has any."""
    selected = filled(both(has_rows, outcome.true), count)
    codes = selected.view(np.uint8) * np.uint8(SOME)
    if outcome.doubt is not False:
        codes[both(outcome.doubt, selected)] = UNKNOWN
    rest = either(outcome.false, outcome.null)
    if rest is not True:
        codes[both(no(rest), selected)] = ALL
    return codes


# Looking at nulls, NaN and numbers of a column one after another.
#
# A row is null, NaN or a number in a column, never two of them at once. Where several predicates speak of one column,
# taking them as independent loses that: ``x BETWEEN 2 AND 9`` over the values 1 and NaN holds for neither, though NaN
# passes one side and 1 the other. So the filter is decided once for each kind of row, and the results are put
# together.

#: Columns that are looked at so; each may triple the work.
MAX_COLUMNS = 2


def split_columns(parts: Sequence[BoundLeaf]) -> tuple[tuple[Leaf, tuple[int, ...]], ...]:
    """The columns of a filter's predicates that are worth it, each with the kinds of rows (flags) looked at apart."""
    if len(parts) < 2:
        return ()
    used: dict[Leaf, int] = {}
    tested: set[Leaf] = set()
    for part in parts:
        columns = columns_in([part])
        for leaf in columns:
            used[leaf] = used.get(leaf, 0) + 1
        if isinstance(part, NullTest):
            tested.update(columns)
    found: list[tuple[Leaf, tuple[int, ...]]] = []
    for leaf, count in used.items():
        if count < 2 or not (leaf.dtype.is_float or leaf in tested):
            continue
        nulls = (MAY_NULL, MAY_NUMBER) if leaf in tested else (MAY_NULL | MAY_NUMBER,)
        found.append((leaf, (*nulls, MAY_NAN) if leaf.dtype.is_float else nulls))
    return tuple(found[:MAX_COLUMNS])


def only(zones: Zones, kinds: int) -> Zones:
    """The zone maps of the rows of some kinds."""
    mask = kinds | NULLS_KNOWN | ((LOW_KNOWN | HIGH_KNOWN) if kinds & MAY_NUMBER else 0)
    made = Zones(zones.low, zones.high, zones.flags & np.uint8(mask), zones.fails)
    if kinds & MAY_NUMBER:
        made.spans, made.buckets = zones.spans, zones.buckets
    return made

"""How likely blocks would be kept with one index more, from what manifests say: an expectation, for no answer's use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.advice.line import Numbers
from lamella.snapshot.advice.outlook import Outlook
from lamella.snapshot.columnar.masks import filled
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, Zones
from lamella.snapshot.expression.bound import (
    BoundAnd,
    BoundIsTrue,
    BoundIsUnknown,
    BoundLeaf,
    BoundNot,
    BoundOr,
    BoundPredicate,
    BoundTest,
    Comparison,
    Fixed,
    Membership,
)
from lamella.snapshot.index.profile import Expected
from lamella.snapshot.prune.evaluate import Lookup, evaluate
from lamella.snapshot.stats.bound import Value

#: Estimates are not corrected any further.
_SCALES: Final = (0.5, 2.0)


class Chances(msgspec.Struct, frozen=True, eq=False):
    """How likely each block that may match a predicate is kept; when its values are there, and when they are not."""

    there: Any
    absent: Any


class LookUp(msgspec.Struct, frozen=True, eq=False):
    """A predicate that looks for ``values``; ``may_match``: 1 where bounds keep a block, else 0."""

    values: Sequence[Value]
    may_match: Any


def asked_values(test: BoundTest) -> Sequence[Value] | None:
    """The values that a look-up asks for; None: it is none."""
    match test:
        case Comparison(_, "eq", value, _) if value == value:
            return [value]
        case Membership(_, values, False, False, _) if values:
            return values
        case _:
            return None


def scale_of(tests: Sequence[LookUp], outlook: Outlook, zones: Zones) -> float:
    """By how much blocks are less likely to have a value than the outlook says, going by where the values lie.

    All look-ups together should find as many blocks as values have on average.
    """
    cover = outlook.cover
    holds = _holds(outlook)
    wanted = found = 0.0
    for test in tests:
        counts = _listed(test.values, zones, len(holds)) * test.may_match
        found += float((holds * counts).sum())
        wanted += float(cover.holds.sum()) * len(test.values)
    return float(np.clip(wanted / found, *_SCALES)) if found > 0 else 1.0


def chances_of(
    test: LookUp,
    outlook: Outlook,
    zones: Zones,
    expected: Expected,
    scale: float,
    of_fewest: Expected | None = None,
) -> Chances | None:
    """The chances of a look-up; None: manifests cannot tell. ``scale``: see :func:`scale_of`.

    ``of_fewest``: what the index would do for :attr:`lamella.snapshot.index.profile.Profile.fewest`. An index that
    keeps every block however few or many different values there are adds nothing, whether they were counted or not.
    """
    if expected.kept is None:
        return None
    if not outlook.profile.is_counted:
        if not expected.keeps_all or of_fewest is None or not of_fewest.keeps_all:
            return None
        every = np.ones(len(outlook.cover.holds))
        return Chances(every, every)
    holds = np.minimum(_holds(outlook) * scale, 1.0)
    counts = _listed(test.values, zones, len(holds))
    # A value that is there is in one of the blocks at least.
    found = float((holds * test.may_match).sum())
    if 0 < found < 1:
        holds = np.minimum(holds / found, 1.0)
    lacking = expected.kept if expected.kept_absent is None else expected.kept_absent
    return Chances(1.0 - ((1.0 - holds) * (1.0 - expected.kept)) ** counts, 1.0 - (1.0 - lacking) ** counts)


def _holds(outlook: Outlook) -> Numbers:
    """How likely each block has a value that is there and lies within its bounds."""
    cover = outlook.cover
    return np.asarray(np.divide(cover.holds, cover.present, out=np.ones(len(cover.holds)), where=cover.present > 0))


def chance_of(node: BoundPredicate, lookup: Lookup, count: int, known: Mapping[BoundLeaf, Numbers]) -> Numbers:
    """How likely each block is kept; ``known``: of some predicates, where bounds keep the block."""
    match node:
        case Fixed(value):
            return np.full(count, 1.0 if value is True else 0.0)
        case BoundAnd(children):
            found = np.ones(count)
            for child in children:
                found = found * chance_of(child, lookup, count, known)
            return found
        case BoundOr(children):
            found = np.ones(count)
            for child in children:
                found = found * (1.0 - chance_of(child, lookup, count, known))
            return 1.0 - found
        case BoundIsTrue(child):
            return chance_of(child, lookup, count, known)
        case BoundNot() | BoundIsUnknown():
            return may_match(node, lookup, count)
        case _:
            return may_match(node, lookup, count) * known.get(node, np.ones(count))


def may_match(node: BoundPredicate, lookup: Lookup, count: int) -> Numbers:
    """1 where bounds keep a block, else 0."""
    return filled(evaluate(node, lookup, count).true, count).astype(np.float64)


def _listed(values: Sequence[Value], zones: Zones, count: int) -> Numbers:
    """How many of the values lie within the bounds of each block, at least one."""
    if len(values) == 1 or zones.low is None or zones.high is None:
        return np.full(count, float(len(values)))
    inside = zones.high.rank(values, right=True) - zones.low.rank(values, right=False)
    known = zones.has(LOW_KNOWN) & zones.has(HIGH_KNOWN)
    return np.maximum(np.where(known, inside, len(values)), 1).astype(np.float64)

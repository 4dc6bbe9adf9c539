"""What an index would let look-ups skip, how large it would be, and scores from 0 to 100."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.columnar.keys import filled
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
from lamella.snapshot.index import Kind
from lamella.snapshot.index.kind import Expected, Profile
from lamella.snapshot.prune.evaluate import Lookup, evaluate
from lamella.snapshot.stats.bound import Value
from lamella.snapshot.workload.distribution import Cover, Numbers, Outlook

# Scores from 0 to 100: how much of what a look-up need not read an index, or the bounds alone, let it skip.
#
# 100: only the entries that have the value are read. 0: none of the others is skipped. The score of an index is what
# it skips *beyond* the bounds in the manifests; with the score of these it never exceeds 100. A value that is there
# and one that is not count half each.

#: Where even less than this part of all entries could be skipped, skipping all of that is no full score.
_LEAST: Final = 0.02
#: Limits that are further apart say too little for a score.
_WIDE: Final = 10.0


class Effectiveness(msgspec.Struct, frozen=True, kw_only=True):
    """What look-ups skip of the entries of a layer.

    ``score``: None when manifests cannot tell, or only within wide limits. It lies between ``least`` and ``most``.
    ``skip_present``, ``skip_absent``: the part of *all* entries that is skipped for a value that is there, and for one
    between least and greatest value that is not, by bounds and index together (None: not known, or no such value).
    """

    score: float | None
    least: float
    most: float
    skip_present: float | None = None
    skip_absent: float | None = None
    size_bytes: float | None = None
    reason: str = ""


def effectiveness(
    profile: Profile, cover: Cover, expected: Expected | None = None, of_fewest: Expected | None = None
) -> Effectiveness:
    """Of the bounds alone (``expected`` None), or of an index beside them.

    ``of_fewest``: what the index would do for :attr:`Profile.fewest`. Where different values were not counted the score
    is between the two; without it what a kind makes of the upper limit is taken for the truth.
    """
    if not len(profile):
        return Effectiveness(score=None, least=0.0, most=100.0, reason="no rows")
    if expected is not None and expected.kept is None:
        return Effectiveness(score=None, least=0.0, most=100.0, size_bytes=expected.size_bytes, reason=expected.reason)
    everything = np.ones(len(profile))
    chances = [(everything, everything)] if expected is None else [_chances(expected)]
    if of_fewest is not None and of_fewest.kept is not None and not profile.is_counted:
        chances.append(_chances(of_fewest))
    limits = [
        _scored(cover, holds, kept, lacking, is_index=expected is not None)
        for holds in _held(profile, cover)
        for kept, lacking in chances
    ]
    least, most = min(score for score, _ in limits), max(score for score, _ in limits)
    is_wide = most - least > _WIDE
    if expected is None:
        skip: float | None = 1.0 - float(cover.present.mean())
    else:
        skip = None if is_wide else sum(skipped for _, skipped in limits) / len(limits)
    reason = "" if expected is None else expected.reason
    return Effectiveness(
        score=None if is_wide else (least + most) / 2,
        least=least,
        most=most,
        skip_present=skip,
        skip_absent=_skipped_absent(cover, [lacking for _, lacking in chances]),
        size_bytes=None if expected is None else expected.size_bytes,
        reason=reason or ("how many different values there are was not counted" if is_wide else ""),
    )


def _chances(expected: Expected) -> tuple[Numbers, Numbers]:
    """How likely an entry that lacks a value is read: one that the table has, and one that it has not."""
    return expected.kept, expected.kept if expected.kept_absent is None else expected.kept_absent


def _skipped_absent(cover: Cover, lacking: list[Numbers]) -> float | None:
    """What is skipped for a value that is not there; None: there is no such, or the limits are too far apart."""
    if cover.absent is None:
        return None
    limits = [1.0 - float((cover.absent * each).mean()) for each in lacking]
    return None if 100.0 * (max(limits) - min(limits)) > _WIDE else sum(limits) / len(limits)


def _held(profile: Profile, cover: Cover) -> list[Numbers]:
    """How likely each entry has a value that is there; the limits of that where nobody counted."""
    if profile.is_counted:
        return [cover.holds]
    # Any number of the entries that cover a value may have it: one at least, all of them at most.
    return [cover.present / max(float(cover.present.sum()), 1.0), cover.present]


def _scored(cover: Cover, holds: Numbers, kept: Numbers, lacking: Numbers, *, is_index: bool) -> tuple[float, float]:
    """The score, and the part of all entries that is skipped for a value that is there."""
    read = holds + (cover.present - holds) * kept
    everything = np.ones(len(kept))
    scores = [_share(cover.present if is_index else everything, read, 1.0 - holds)]
    if cover.absent is not None:
        scores.append(_share(cover.absent if is_index else everything, cover.absent * lacking, everything))
    return 100.0 * float(np.mean(scores)), 1.0 - float(read.mean())


def _share(before: Numbers, after: Numbers, needless: Numbers) -> float:
    """What is skipped of what could be."""
    could = max(float(needless.mean()), _LEAST)
    return float(np.clip((before.mean() - after.mean()) / could, 0.0, 1.0))


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

    ``of_fewest``: what the index would do for :attr:`lamella.snapshot.index.kind.Profile.fewest`. An index that
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


# How large an index gets, and how sharp it can be within a budget of bytes.
#
# Which option makes an index of a kind sharper is found by its name, ``false_positives``; kinds without it have one
# size.

#: The option that filters are sized by.
RATE: Final = "false_positives"
_MIN_RATE: Final = 1e-9
_MAX_RATE: Final = 0.5
_BISECTIONS: Final = 60


class Sizing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An index with ``options`` over all blocks: about ``size_bytes`` in ``parts`` objects.

    ``share``: of the data's bytes. ``fits``: within the budget that was given; None: there is none, or it depends on
    how many different values there are. ``distinct_per_block`` is an upper limit where ``is_counted`` is False, and so
    is the size. ``reason``: what cannot be told.
    """

    options: dict[str, Any]
    size_bytes: float | None
    bytes_per_block: float | None
    share: float | None
    parts: int
    distinct_per_block: float
    is_counted: bool
    budget_bytes: float | None = None
    fits: bool | None = None
    reason: str = ""


def for_options(
    kind: Kind,
    profile: Profile,
    options: Mapping[str, Any],
    *,
    data_bytes: int,
    parts: int,
    budget: float | None = None,
) -> Sizing:
    """The size with these options, complete ones of the kind; ``profile`` is of blocks."""
    expected = kind.expected(profile, options)
    size = expected.size_bytes
    count = max(len(profile), 1)
    return Sizing(
        options=dict(options),
        size_bytes=size,
        bytes_per_block=None if size is None else size / count,
        share=None if size is None or not data_bytes else size / data_bytes,
        parts=parts,
        distinct_per_block=float(profile.distinct.sum()) / count,
        is_counted=profile.is_counted,
        budget_bytes=budget,
        fits=_fits(kind, profile, options, size, budget),
        reason="" if size is not None else expected.reason,
    )


def _fits(
    kind: Kind, profile: Profile, options: Mapping[str, Any], size_bytes: float | None, budget: float | None
) -> bool | None:
    if size_bytes is None or budget is None:
        return None
    if size_bytes <= budget or profile.is_counted:
        return size_bytes <= budget
    # the size is an upper limit: an index of fewer values may fit
    least = kind.expected(profile.fewest, options).size_bytes
    return None if least is None or least <= budget else False


def for_budget(
    kind: Kind, profile: Profile, options: Mapping[str, Any], budget_bytes: float, *, data_bytes: int, parts: int
) -> Sizing:
    """The sharpest options whose index takes at most the budget; the coarsest ones when none does."""

    def sized(rate: float) -> Sizing:
        given = {**options, RATE: rate}
        return for_options(kind, profile, given, data_bytes=data_bytes, parts=parts, budget=budget_bytes)

    if RATE not in options:
        return for_options(kind, profile, options, data_bytes=data_bytes, parts=parts, budget=budget_bytes)
    best = sized(_MAX_RATE)
    if not best.fits:
        return best
    sharpest = sized(_MIN_RATE)
    if sharpest.fits:
        return sharpest
    low, high = math.log(_MIN_RATE), math.log(_MAX_RATE)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        found = sized(math.exp(middle))
        if found.fits:
            best, high = found, middle
        else:
            low = middle
    return best

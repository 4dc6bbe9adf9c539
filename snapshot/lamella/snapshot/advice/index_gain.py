"""Estimates what an index would let look-ups skip, how large it would be, and a score from 0 to 100."""

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
from lamella.snapshot.workload.distribution import Cover, Numbers, ValueDistribution

# Scores from 0 to 100: how much of what a look-up need not read is skipped by an index, or by the bounds alone.
#
# 100: only the entries that have the value are read. 0: none of the others is skipped. The score of an index counts
# what it skips *beyond* the bounds in the manifests; both scores together never exceed 100. Values that are present and
# values that are absent have equal weight.

#: If even less than this fraction of all entries can be skipped, skipping all of them is not a full score.
_MIN_SKIPPABLE: Final = 0.02
#: Limits that are further apart say too little for a score.
_WIDE: Final = 10.0


class Effectiveness(msgspec.Struct, frozen=True, kw_only=True):
    """What look-ups skip of the entries of a layer.

    ``score``: None if it cannot be estimated from manifests, or only within wide limits. It lies between ``min_score``
    and ``max_score``. ``skip_present``, ``skip_absent``: the fraction of *all* entries that is skipped for a value that
    is present, and for an absent one between minimum and maximum, by bounds and index together (None: unknown, or no
    such value).
    """

    score: float | None
    min_score: float
    max_score: float
    skip_present: float | None = None
    skip_absent: float | None = None
    size_bytes: float | None = None
    reason: str = ""


def effectiveness(
    profile: Profile, cover: Cover, expected: Expected | None = None, of_fewest: Expected | None = None
) -> Effectiveness:
    """Returns the effectiveness of the bounds alone (``expected`` None), or of an index in addition.

    ``of_fewest``: the expected effect of the index for :attr:`Profile.fewest`. If distinct values were not counted the
    score is between the two; without it the result for the upper limit is used.
    """
    if not len(profile):
        return Effectiveness(score=None, min_score=0.0, max_score=100.0, reason="no rows")
    if expected is not None and expected.read_chance is None:
        return Effectiveness(
            score=None, min_score=0.0, max_score=100.0, size_bytes=expected.size_bytes, reason=expected.reason
        )
    everything = np.ones(len(profile))
    chances = [(everything, everything)] if expected is None else [_chances(expected)]
    if of_fewest is not None and of_fewest.read_chance is not None and not profile.is_counted:
        chances.append(_chances(of_fewest))
    limits = [
        _scored(cover, holds, read_chance, lacking, is_index=expected is not None)
        for holds in _presence(profile, cover)
        for read_chance, lacking in chances
    ]
    min_score, max_score = min(score for score, _ in limits), max(score for score, _ in limits)
    is_wide = max_score - min_score > _WIDE
    if expected is None:
        skip: float | None = 1.0 - float(cover.present.mean())
    else:
        skip = None if is_wide else sum(skipped for _, skipped in limits) / len(limits)
    reason = "" if expected is None else expected.reason
    return Effectiveness(
        score=None if is_wide else (min_score + max_score) / 2,
        min_score=min_score,
        max_score=max_score,
        skip_present=skip,
        skip_absent=_skipped_absent(cover, [lacking for _, lacking in chances]),
        size_bytes=None if expected is None else expected.size_bytes,
        reason=reason or ("the number of distinct values is not known" if is_wide else ""),
    )


def _chances(expected: Expected) -> tuple[Numbers, Numbers]:
    """Returns the probability that an entry without a value is read: for a value in the table, and for one that is
    not."""
    return expected.read_chance, expected.read_chance if expected.read_if_absent is None else expected.read_if_absent


def _skipped_absent(cover: Cover, lacking: list[Numbers]) -> float | None:
    """Returns what is skipped for an absent value; None if there is no such value, or if the limits are too far
    apart."""
    if cover.absent is None:
        return None
    limits = [1.0 - float((cover.absent * each).mean()) for each in lacking]
    return None if 100.0 * (max(limits) - min(limits)) > _WIDE else sum(limits) / len(limits)


def _presence(profile: Profile, cover: Cover) -> list[Numbers]:
    """Returns the probability that each entry has a value of the table; its limits if distinct values were not
    counted."""
    if profile.is_counted:
        return [cover.holds]
    # Any number of the entries that cover a value may have it: at least one, at most all.
    return [cover.present / max(float(cover.present.sum()), 1.0), cover.present]


def _scored(
    cover: Cover, holds: Numbers, read_chance: Numbers, lacking: Numbers, *, is_index: bool
) -> tuple[float, float]:
    """Returns the score, and the fraction of all entries that is skipped for a value that is present."""
    read = holds + (cover.present - holds) * read_chance
    everything = np.ones(len(read_chance))
    scores = [_share(cover.present if is_index else everything, read, 1.0 - holds)]
    if cover.absent is not None:
        scores.append(_share(cover.absent if is_index else everything, cover.absent * lacking, everything))
    return 100.0 * float(np.mean(scores)), 1.0 - float(read.mean())


def _share(before: Numbers, after: Numbers, needless: Numbers) -> float:
    """Returns what is skipped as a fraction of what could be."""
    could = max(float(needless.mean()), _MIN_SKIPPABLE)
    return float(np.clip((before.mean() - after.mean()) / could, 0.0, 1.0))


#: Estimates are not corrected beyond these factors.
_SCALES: Final = (0.5, 2.0)


class Chances(msgspec.Struct, frozen=True, eq=False):
    """The probability that each block that may match a predicate is kept, if its values are present, and if they are
    absent."""

    there: Any
    absent: Any


class LookUp(msgspec.Struct, frozen=True, eq=False):
    """A predicate that looks for ``values``; ``may_match``: 1 where bounds keep a block, else 0."""

    values: Sequence[Value]
    may_match: Any


def look_up_values(test: BoundTest) -> Sequence[Value] | None:
    """Returns the values that a look-up searches for; None if the test is not a look-up."""
    match test:
        case Comparison(_, "eq", value, _) if value == value:
            return [value]
        case Membership(_, values, False, False, _) if values:
            return values
        case _:
            return None


def scale_of(tests: Sequence[LookUp], value_distribution: ValueDistribution, zones: Zones) -> float:
    """Returns the factor by which blocks are less likely to have a value than estimated, judging by the positions of
    the values.

    All look-ups together should find as many blocks as values have on average.
    """
    cover = value_distribution.cover
    holds = _holds(value_distribution)
    wanted = found = 0.0
    for test in tests:
        counts = _listed(test.values, zones, len(holds)) * test.may_match
        found += float((holds * counts).sum())
        wanted += float(cover.holds.sum()) * len(test.values)
    return float(np.clip(wanted / found, *_SCALES)) if found > 0 else 1.0


def chances_of(
    test: LookUp,
    value_distribution: ValueDistribution,
    zones: Zones,
    expected: Expected,
    scale: float,
    of_fewest: Expected | None = None,
) -> Chances | None:
    """Returns the probabilities for a look-up; None if they cannot be estimated from manifests. ``scale``: see
    :func:`scale_of`.

    ``of_fewest``: the expected effect of the index for :attr:`lamella.snapshot.index.kind.Profile.fewest`. An index
    that keeps every block for few and for many distinct values adds nothing, whether they were counted or not.
    """
    if expected.read_chance is None:
        return None
    if not value_distribution.profile.is_counted:
        if not expected.keeps_all or of_fewest is None or not of_fewest.keeps_all:
            return None
        every = np.ones(len(value_distribution.cover.holds))
        return Chances(every, every)
    holds = np.minimum(_holds(value_distribution) * scale, 1.0)
    counts = _listed(test.values, zones, len(holds))
    # A value that is present is in at least one of the blocks.
    found = float((holds * test.may_match).sum())
    if 0 < found < 1:
        holds = np.minimum(holds / found, 1.0)
    lacking = expected.read_chance if expected.read_if_absent is None else expected.read_if_absent
    return Chances(1.0 - ((1.0 - holds) * (1.0 - expected.read_chance)) ** counts, 1.0 - (1.0 - lacking) ** counts)


def _holds(value_distribution: ValueDistribution) -> Numbers:
    """Returns the probability that each block has a value that is present and within its bounds."""
    cover = value_distribution.cover
    return np.asarray(np.divide(cover.holds, cover.present, out=np.ones(len(cover.holds)), where=cover.present > 0))


def chance_of(node: BoundPredicate, lookup: Lookup, count: int, known: Mapping[BoundLeaf, Numbers]) -> Numbers:
    """Returns the probability that each block is kept; ``known``: for some predicates, given that bounds keep the
    block."""
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
    """Returns 1 where bounds keep a block, else 0."""
    return filled(evaluate(node, lookup, count).true, count).astype(np.float64)


def _listed(values: Sequence[Value], zones: Zones, count: int) -> Numbers:
    """Returns how many of the values lie within the bounds of each block, at least one."""
    if len(values) == 1 or zones.low is None or zones.high is None:
        return np.full(count, float(len(values)))
    inside = zones.high.rank(values, right=True) - zones.low.rank(values, right=False)
    known = zones.has(LOW_KNOWN) & zones.has(HIGH_KNOWN)
    return np.maximum(np.where(known, inside, len(values)), 1).astype(np.float64)


# The size of an index, and its precision within a size limit.
#
# The option that makes an index of a kind more precise is found by its name, ``false_positives``; kinds without it have
# one size.

#: The option that determines the size of filters.
RATE: Final = "false_positives"
_MIN_RATE: Final = 1e-9
_MAX_RATE: Final = 0.5
_BISECTIONS: Final = 60


class Sizing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An index with ``options`` over all blocks: about ``size_bytes`` in ``parts`` objects.

    ``share``: relative to the data's bytes. ``fits``: within the given budget; None: there is no budget, or it depends
    on the number of distinct values. ``distinct_per_block`` is an upper limit if ``is_counted`` is False, and so is the
    size. ``reason``: what cannot be estimated.
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
    """Returns the size with these options, complete ones of the kind; ``profile`` is that of blocks."""
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
    min_bytes = kind.expected(profile.fewest, options).size_bytes
    return None if min_bytes is None or min_bytes <= budget else False


def for_budget(
    kind: Kind, profile: Profile, options: Mapping[str, Any], budget_bytes: float, *, data_bytes: int, parts: int
) -> Sizing:
    """Returns the most precise options whose index fits the budget; the least precise ones if none does."""

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

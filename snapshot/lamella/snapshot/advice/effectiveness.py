"""Scores from 0 to 100: how much of what a look-up need not read an index, or the bounds alone, let it skip.

100: only the entries that have the value are read. 0: none of the others is skipped. The score of an index is what it
skips *beyond* the bounds in the manifests; with the score of these it never exceeds 100. A value that is there and one
that is not count half each.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from lamella.snapshot.advice.cover import Cover
from lamella.snapshot.advice.line import Numbers
from lamella.snapshot.index.profile import Expected, Profile

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

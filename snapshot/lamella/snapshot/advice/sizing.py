"""How large an index gets, and how sharp it can be within a budget of bytes.

Which option makes an index of a kind sharper is found by its name, ``false_positives``; kinds without it have one size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lamella.snapshot.index import Kind
from lamella.snapshot.index.profile import Profile

#: The option that filters are sized by.
RATE: Final = "false_positives"
_LEAST_RATE: Final = 1e-9
_MOST_RATE: Final = 0.5
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
    best = sized(_MOST_RATE)
    if not best.fits:
        return best
    sharpest = sized(_LEAST_RATE)
    if sharpest.fits:
        return sharpest
    low, high = math.log(_LEAST_RATE), math.log(_MOST_RATE)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        found = sized(math.exp(middle))
        if found.fits:
            best, high = found, middle
        else:
            low = middle
    return best

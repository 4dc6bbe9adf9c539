"""Masks over the entries of a layer that may be the same everywhere: an array, or one ``bool`` for all entries.

Statistics are mostly complete, so most of what SQL's logic asks (may there be NaN? is a bound missing?) has one answer
for a whole layer. As one ``bool`` it costs nothing, however many entries there are.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Ranks = npt.NDArray[np.int64]
#: The same for all entries when it is a ``bool``.
Truth = Mask | bool


def both(left: Truth, right: Truth) -> Truth:
    """Where left and right hold."""
    # Comparing identities takes no call, and this is where the time of small layers goes.
    if left is False or right is False:
        return False
    if left is True:
        return right
    return left if right is True else left & right


def either(left: Truth, right: Truth) -> Truth:
    """Where left or right holds."""
    if left is True or right is True:
        return True
    if left is False:
        return right
    return left if right is False else left | right


def no(mask: Truth) -> Truth:
    """Where it does not hold."""
    return not mask if isinstance(mask, bool) else ~mask


def anywhere(mask: Truth) -> bool:
    """Whether it holds for some entry, of at least one."""
    return mask if isinstance(mask, bool) else bool(mask.any())


def overlapping(masks: Iterable[Truth]) -> bool:
    """Whether two of the masks hold for one entry, of at least one."""
    seen: Truth = False
    for mask in masks:
        if anywhere(both(seen, mask)):
            return True
        seen = either(seen, mask)
    return False


def spread(mask: Truth, count: int) -> Mask:
    """The mask as an array of ``count`` entries that nobody else has."""
    return np.full(count, mask) if isinstance(mask, bool) else mask.copy()


def filled(mask: Truth, count: int) -> Mask:
    """The mask as an array of ``count`` entries."""
    return np.full(count, mask) if isinstance(mask, bool) else mask

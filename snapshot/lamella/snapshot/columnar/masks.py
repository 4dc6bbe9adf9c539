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
    if isinstance(left, bool):
        return right if left else False
    if isinstance(right, bool):
        return left if right else False
    return left & right


def either(left: Truth, right: Truth) -> Truth:
    """Where left or right holds."""
    if isinstance(left, bool):
        return True if left else right
    if isinstance(right, bool):
        return True if right else left
    return left | right


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

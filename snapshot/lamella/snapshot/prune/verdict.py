"""Verdicts of entries (segments, blocks): NONE, SOME, ALL, UNKNOWN.

NONE: no row matches, proven. ALL: every row matches, proven. SOME: the statistics overlap the filter. UNKNOWN: kept
because something is missing (a statistic, or a predicate that is not used); the report says what.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.prune.evaluate import Outcome

NONE: Final = 0
SOME: Final = 1
UNKNOWN: Final = 2
ALL: Final = 3

#: Verdicts by code, as answers spell them.
VERDICT_NAMES: Final = ("NONE", "SOME", "UNKNOWN", "ALL")


def verdicts(outcome: Outcome, row_counts: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """One code per entry; an entry without rows is NONE."""
    kept = outcome.true & (row_counts > 0)
    codes = np.where(outcome.doubt, UNKNOWN, SOME).astype(np.uint8)
    codes[~outcome.false & ~outcome.null] = ALL
    codes[~kept] = NONE
    return codes

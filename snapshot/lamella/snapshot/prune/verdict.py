"""Verdicts of entries (segments, blocks): NONE, SOME, ALL, UNKNOWN.

NONE: no row matches, proven. ALL: every row matches, proven. SOME: the statistics overlap the filter. UNKNOWN: kept
because something is missing (a statistic, or a predicate that is not used); the report says what.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.masks import Truth, both, either, filled, no
from lamella.snapshot.prune.outcome import Outcome

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
    kept = filled(both(has_rows, outcome.true), count)
    codes = kept.view(np.uint8) * np.uint8(SOME)
    if outcome.doubt is not False:
        codes[both(outcome.doubt, kept)] = UNKNOWN
    rest = either(outcome.false, outcome.null)
    if rest is not True:
        codes[both(no(rest), kept)] = ALL
    return codes

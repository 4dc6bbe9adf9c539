"""Which bounds of a companion are values that occur: two more bits beside those of :mod:`.zones`.

A companion written before these bits existed has them all cleared, which claims nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.stats import ColumnStats

#: ``low`` is a value of a row.
LOW_EXACT: Final = 64
#: ``high`` is a value of a row.
HIGH_EXACT: Final = 128


def exact_bits(entries: Sequence[tuple[int, ColumnStats | None]]) -> npt.NDArray[np.uint8]:
    """The bits of ``(row_count, stats)`` entries."""
    bits = np.zeros(len(entries), dtype=np.uint8)
    for index, (row_count, stats) in enumerate(entries):
        if stats is not None and row_count > 0:
            low = LOW_EXACT if stats.min_exact and stats.min is not None else 0
            high = HIGH_EXACT if stats.max_exact and stats.max is not None else 0
            bits[index] = low | high
    return bits

"""How large a split block filter must be for a rate of false positives.

A block of 32 bytes (a *slot*) that k keys fell into says yes to another key when each of its eight words has the one
bit set that the key asks for: with probability (1 - (31/32)^k)^8. How many keys fall into a slot is Poisson distributed
about their mean; leaving that out, as the usual formula does, makes filters too small.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final

_WORDS: Final = 8
_WORD_BITS: Final = 32
SLOT_BYTES: Final = 32


def false_positives(keys_per_slot: float) -> float:
    """The expected rate for a mean number of keys in each slot."""
    if keys_per_slot <= 0:
        return 0.0
    spread = 12 * math.sqrt(keys_per_slot) + 12
    first, last = max(0, int(keys_per_slot - spread)), int(keys_per_slot + spread)
    total = 0.0
    for keys in range(first, last + 1):
        chance = math.exp(keys * math.log(keys_per_slot) - keys_per_slot - math.lgamma(keys + 1))
        total += chance * (1 - (1 - 1 / _WORD_BITS) ** keys) ** _WORDS
    return min(total, 1.0)


@cache
def keys_per_slot(rate: float) -> float:
    """How many keys a slot may have on average for a rate of false positives, 0 < rate < 1."""
    low, high = 1e-9, 1e4
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if false_positives(middle) < rate else (low, middle)
    return low


def slots_for(keys: int, rate: float) -> int:
    """Slots of a filter for so many distinct keys, at least one."""
    return max(1, math.ceil(keys / keys_per_slot(rate)))


def rate_for(keys: int, size_bytes: int) -> float:
    """The rate that a filter of so many bytes has with so many distinct keys; 1 when nothing fits."""
    slots = size_bytes // SLOT_BYTES
    return false_positives(keys / slots) if slots else 1.0

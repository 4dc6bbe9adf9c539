"""What split block filters would do and take, from how many different values blocks have."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from lamella.snapshot.bloom.sizing import SLOT_BYTES, false_positives, keys_per_slot, slots_for
from lamella.snapshot.index.profile import PART_ENTRIES, Expected, Profile

#: Filters of more slots have the rate that was asked for, however they are rounded.
_ROUNDED_SLOTS: Final = 200
#: What a part says of each block beside its filter.
_BLOCK_BYTES: Final = 20


def expected(profile: Profile, rate: float, above_bytes: int) -> Expected:
    """As sharp as asked for; in layer "segment" the filter above those of the blocks, where it is not too large."""
    counts = np.maximum(np.round(profile.distinct), 0).astype(np.int64)
    different, places = np.unique(counts, return_inverse=True)
    slots = np.where(different > 0, np.maximum(np.round(different / keys_per_slot(rate)), 1), 0).astype(np.int64)
    rates = np.full(len(different), rate)
    few = slots <= _ROUNDED_SLOTS
    rates[few] = [
        false_positives(count / max(number, 1))
        for count, number in zip(different[few].tolist(), slots[few].tolist(), strict=True)
    ]
    if profile.layer == "block":
        own_bytes = float(slots[places].sum() * SLOT_BYTES) + len(profile) * _BLOCK_BYTES
        kept = rates[places]
        above, more_bytes = _above(profile, rate, above_bytes)
        return Expected(kept, own_bytes + more_bytes, "", kept * above)
    fits = slots * SLOT_BYTES <= above_bytes
    reason = "" if fits.all() else "the filter above the blocks would be too large in some segments"
    return Expected(np.where(fits, rates, 1.0)[places], float((slots * fits)[places].sum() * SLOT_BYTES), reason)


def _above(profile: Profile, rate: float, most_bytes: int) -> tuple[float, float]:
    """The rate of the filters above all blocks of a part, and the bytes of all of them; 1 and 0: they are too large."""
    parts = math.ceil(max(len(profile), 1) / PART_ENTRIES)
    count = round(min(profile.total, float(profile.distinct.sum()) / parts))
    slots = slots_for(count, rate)
    if not count or slots * SLOT_BYTES > most_bytes:
        return 1.0, 0.0
    return false_positives(count / slots), float(parts * slots * SLOT_BYTES)

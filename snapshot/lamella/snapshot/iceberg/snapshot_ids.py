"""Ids of snapshots in Iceberg metadata of Lamella's own tables.

A snapshot of the table itself has its number in the history. Branches repeat these numbers, so a snapshot of a branch
has 62 bits of its own id, which are random, above all numbers. So it has the same one in every branch, and no id ever
stands for two snapshots.
"""

from __future__ import annotations

import uuid
from typing import Final

#: The ids of snapshots of branches begin here.
FIRST_OF_BRANCHES: Final = 1 << 62
_RANDOM: Final = FIRST_OF_BRANCHES - 1
_VARIANT: Final = 1 << 63


def branch_snapshot_id(snapshot_id: str) -> int:
    """Returns the Iceberg id of a snapshot of a branch."""
    return FIRST_OF_BRANCHES | uuid.UUID(snapshot_id).int & _RANDOM


def ending_of(number: int) -> str:
    """Returns how the id of the snapshot with such an Iceberg id ends: all but its time, and bits that all ids have."""
    digits = f"{_VARIANT | number & _RANDOM:016x}"
    return f"{digits[:4]}-{digits[4:]}"

"""What a clean-up would free, from the differences of neighbours in a table's history.

An object is in a run of successive snapshots: it comes with one commit and leaves with another. So the objects that
only expired snapshots name are those that left within a run of expired snapshots, without those of the snapshot before
the run that is kept. That needs differences of two snapshots each, which never change and can be remembered; no set of
everything that is in use. After a rollback an object can come back: then the answer is between two limits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

import msgspec

from lamella.snapshot.vacuum.mark import Tally
from lamella.snapshot.vacuum.retention import Decision, Version

#: Returns the objects of the first snapshot that the second one lacks; None: not now.
Left = Callable[[Version, Version], "Tally | None"]


class Reclaimable(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of the objects that only expired snapshots name: at least ``min_bytes``, at most ``max_bytes`` (None:
    not known yet). ``snapshots``: how many are expired; ``not_compared``: how many of them were not looked at.
    """

    snapshots: int = 0
    min_bytes: int = 0
    max_bytes: int | None = 0
    not_compared: int = 0


def reclaimable(decisions: Sequence[Decision], left: Left, *, returning: Collection[int] = ()) -> Reclaimable:
    """Returns what a clean-up with these decisions (newest first, of a whole history) would free.

    ``returning``: the ``seq`` of snapshots that may have objects that an earlier snapshot has and the one before it
    lacks (those of rollbacks). The same is assumed after a gap in the history.
    """
    oldest_first = [decision.version for decision in reversed(decisions)]
    expires = [decision.expires for decision in reversed(decisions)]
    if not any(expires):
        return Reclaimable()
    found = _Sums(left)
    before: int | None = None  # the last one that is kept
    for position, is_expired in enumerate(expires):
        if not is_expired:
            if before is not None and position - before > 1:
                # What the kept snapshot has left the table within the run, too.
                found.add(oldest_first[before], oldest_first[before + 1], 1)
                found.add(oldest_first[before], oldest_first[position], -1)
            before = position
        elif position + 1 < len(oldest_first):
            found.add(oldest_first[position], oldest_first[position + 1], 1)
    for older, newer in pairwise(oldest_first[1:]):  # what the first one lacks never left
        if newer.seq in returning or newer.seq != older.seq + 1:
            found.returned(newer, older)
    return Reclaimable(
        snapshots=sum(expires),
        min_bytes=0 if found.is_open else max(0, found.size_bytes - found.returned_bytes),
        max_bytes=None if found.missing else max(0, found.size_bytes),
        not_compared=found.missing,
    )


class _Sums:
    """Adds up differences. ``returned_bytes``: of objects that may be counted although they came back. ``missing``: how
    many differences are not known. ``is_open``: one that would be subtracted is among them."""

    def __init__(self, left: Left) -> None:
        self._left = left
        self.size_bytes = 0
        self.returned_bytes = 0
        self.missing = 0
        self.is_open = False

    def add(self, first: Version, second: Version, sign: int) -> None:
        """Add the bytes of the objects of the first that the second lacks, or subtract them."""
        self.size_bytes += sign * self._difference(first, second, is_subtracted=sign < 0)

    def returned(self, newer: Version, older: Version) -> None:
        """Note that objects of the newer one that the older one lacks may have been counted."""
        self.returned_bytes += self._difference(newer, older, is_subtracted=True)

    def _difference(self, first: Version, second: Version, *, is_subtracted: bool) -> int:
        found = self._left(first, second)
        if found is None:
            self.missing += 1
            self.is_open |= is_subtracted
            return 0
        return found.size_bytes

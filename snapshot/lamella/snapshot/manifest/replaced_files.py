"""Sets of files that were registered in a table and have left it: rewritten, deleted from, or removed.

Registering such a file again would bring its rows back, or duplicate them if a rewrite moved them to another file. So
each commit that removes registered files from a table writes a set of them, and registrations and commits check these
sets.

An entry is two numbers. The first is the hash of the location. The second is the hash of the footer if the commit only
removed the file: another file at the same location has other rows, and may be registered. It is 0 if the commit also
added blocks: these may contain the file's rows, and a file at the location now counts as another version of the same
file, as it does while the file itself is in the table.

::

    8 bytes  LAMEREP1       8 bytes  n, little-endian
    n hashes of locations (uint64, little-endian), ascending       n hashes of footers (uint64, little-endian)

Snapshots hold several sets of different sizes. Sets of similar size are merged, so the number of times that an entry is
rewritten grows with the logarithm of the total.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from lamella.snapshot.columnar.locations import Hashes, hashes_of, location_hash
from lamella.snapshot.errors import ManifestError

_MAGIC: Final = b"LAMEREP1"
_HEADER_BYTES: Final = 16
#: This many sets of one tier are merged into one; a tier is a power of this number.
_FAN_IN: Final = 8
#: The second number of an entry for any file at the location.
_ANY: Final = 0


class ReplacedSet:
    """Hashes of locations, ascending, each with the hash of a footer or 0."""

    def __init__(self, locations: Hashes, footers: Hashes) -> None:
        self.locations = locations
        self.footers = footers
        self.size_bytes = _HEADER_BYTES + locations.nbytes + footers.nbytes

    def __len__(self) -> int:
        return len(self.locations)

    @classmethod
    def of(cls, files: Mapping[str, str | None]) -> ReplacedSet:
        """Returns a set of locations, each with the hash of its footer (None: any file there)."""
        return _sorted(hashes_of(files), np.array([_footer(each) for each in files.values()], dtype=np.uint64))

    @classmethod
    def merged(cls, sets: Sequence[ReplacedSet]) -> ReplacedSet:
        """Returns one set of all entries of several, without duplicates."""
        return _sorted(
            np.concatenate([each.locations for each in sets]), np.concatenate([each.footers for each in sets])
        )

    @classmethod
    def read(cls, data: bytes | memoryview) -> ReplacedSet:
        """Reads a set written by :meth:`to_bytes`; raises ManifestError."""
        count = int.from_bytes(data[8:_HEADER_BYTES], "little")
        if bytes(data[:8]) != _MAGIC or len(data) != _HEADER_BYTES + 16 * count:
            raise ManifestError("not a set of replaced files")
        both = np.frombuffer(data, dtype="<u8", count=2 * count, offset=_HEADER_BYTES).astype(np.uint64)
        return cls(both[:count], both[count:])

    def to_bytes(self) -> bytes:
        """Returns the set as the bytes of an object."""
        head = _MAGIC + len(self).to_bytes(8, "little")
        return head + self.locations.astype("<u8").tobytes() + self.footers.astype("<u8").tobytes()

    def has(self, files: Mapping[str, str | None], *, unknown: bool = False) -> set[str]:
        """Returns those of the files, each with the hash of its footer, that are in the set.

        A file with an unknown footer matches only if its entry is for any file at the location; with ``unknown`` it
        matches every entry of its location.
        """
        locations = list(files)
        wanted = hashes_of(locations)
        low = np.searchsorted(self.locations, wanted, side="left")
        high = np.searchsorted(self.locations, wanted, side="right")
        found = set()
        for at in np.flatnonzero(high > low).tolist():
            entries = self.footers[low[at] : high[at]]
            footer = files[locations[at]]
            known = unknown if footer is None else bool((entries == np.uint64(_footer(footer))).any())
            if known or (entries == _ANY).any():
                found.add(locations[at])
        return found


def to_merge(counts: Sequence[int]) -> list[int]:
    """Returns which sets, given by their numbers of files, are merged next; none if there are few of each size."""
    tiers = [_tier(count) for count in counts]
    for tier in sorted(set(tiers)):
        if tiers.count(tier) >= _FAN_IN:
            return [index for index, each in enumerate(tiers) if each <= tier]
    return []


def _tier(count: int) -> int:
    tier = 0
    while count >= _FAN_IN:
        count //= _FAN_IN
        tier += 1
    return tier


def _footer(sha256: str | None) -> int:
    return _ANY if sha256 is None else max(1, location_hash(sha256))


def _sorted(locations: Hashes, footers: Hashes) -> ReplacedSet:
    order = np.lexsort((footers, locations))
    locations, footers = locations[order], footers[order]
    fresh = np.ones(len(locations), dtype=bool)
    fresh[1:] = (locations[1:] != locations[:-1]) | (footers[1:] != footers[:-1])
    return ReplacedSet(locations[fresh], footers[fresh])

"""The location index of a group: finds the segments that may have a block, by a 64-bit hash of its location.

::

    8 bytes  LAMELOC1       8 bytes  n, little-endian
    n hashes (uint64, little-endian), ascending       n numbers of segments in the group (uint32, little-endian)

A hit is a hint: a caller that needs certainty reads the segment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.errors import ManifestError

Hashes = npt.NDArray[np.uint64]

_MAGIC: Final = b"LAMELOC1"
_HEADER_BYTES: Final = 16
_ENTRY_BYTES: Final = 12


def location_hash(location: str) -> int:
    """Returns the 8-byte BLAKE2b hash of the location's UTF-8 bytes, as a little-endian number."""
    return int.from_bytes(hashlib.blake2b(location.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def hashes_of(locations: Iterable[str]) -> Hashes:
    """Returns the hashes of locations, in their order."""
    blake2b = hashlib.blake2b
    digests = [blake2b(location.encode("utf-8", "surrogatepass"), digest_size=8).digest() for location in locations]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64, copy=False)


class LocationIndex:
    """Hashes, ascending, with the number of the segment that has the block."""

    def __init__(self, hashes: Hashes, segments: npt.NDArray[np.uint32]) -> None:
        self.hashes = hashes
        self.segments = segments
        self.size_bytes = _HEADER_BYTES + _ENTRY_BYTES * len(hashes)

    @classmethod
    def read(cls, data: bytes | memoryview) -> LocationIndex:
        """Reads an index written by :meth:`to_bytes`; raises ManifestError."""
        count = int.from_bytes(data[8:_HEADER_BYTES], "little")
        if data[:8] != _MAGIC or len(data) != _HEADER_BYTES + count * _ENTRY_BYTES:
            raise ManifestError("not a location index")
        hashes = np.frombuffer(data, dtype="<u8", count=count, offset=_HEADER_BYTES)
        segments = np.frombuffer(data, dtype="<u4", count=count, offset=_HEADER_BYTES + 8 * count)
        return cls(hashes.astype(np.uint64, copy=False), segments.astype(np.uint32, copy=False))

    @classmethod
    def joined(cls, parts: Sequence[tuple[Hashes, npt.NDArray[np.uint32]]]) -> LocationIndex:
        """Builds one index from hashes and the segment numbers of each part."""
        hashes = np.concatenate([part for part, _ in parts])
        order = np.argsort(hashes, kind="stable")  # the parts are sorted runs, which a stable sort exploits
        return cls(hashes[order], np.concatenate([part for _, part in parts])[order])

    def to_bytes(self) -> bytes:
        """Returns the index as the bytes of an object."""
        head = _MAGIC + len(self.hashes).to_bytes(8, "little")
        return head + self.hashes.astype("<u8").tobytes() + self.segments.astype("<u4").tobytes()

    def candidates(self, wanted: Hashes) -> npt.NDArray[np.uint32]:
        """Returns the numbers of the segments that may have one of the wanted blocks, ascending."""
        low = np.searchsorted(self.hashes, wanted, side="left")
        high = np.searchsorted(self.hashes, wanted, side="right")
        hit = np.flatnonzero(high > low)
        rows = [self.segments[low[i] : high[i]] for i in hit.tolist()]
        return np.unique(np.concatenate(rows)) if rows else np.zeros(0, dtype=np.uint32)

    def renumbered(self, numbers: npt.NDArray[np.int64]) -> tuple[Hashes, npt.NDArray[np.uint32]]:
        """Returns the entries with each segment number n replaced by ``numbers[n]``, without those that become -1."""
        new = numbers[self.segments]
        has_number = new >= 0
        return self.hashes[has_number], new[has_number].astype(np.uint32)


def may_share(left: Hashes, right: Hashes) -> bool:
    """Returns whether two ascending sequences of hashes have one in common."""
    few, many = (left, right) if len(left) <= len(right) else (right, left)
    if not len(few):
        return False
    at = np.searchsorted(many, few)
    at[at == len(many)] = 0
    return bool((many[at] == few).any())

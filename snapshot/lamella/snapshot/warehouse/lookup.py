"""Where a snapshot has certain blocks: by ranges and hashes first, then for certain by what the segments list."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from lamella.snapshot.columnar.locations import Hashes, hashes_of, may_share
from lamella.snapshot.manifest import SegmentRef, Snapshot
from lamella.snapshot.warehouse.manifests import Manifests

#: A block as a file: its content id, and the hash of its footer.
Content = tuple[str | None, str | None]


class Found(msgspec.Struct, frozen=True):
    """A segment that has a block: number ``row`` of the snapshot's own, or of its group number ``group``."""

    ref: SegmentRef
    row: int
    group: int | None = None


class Lookup:
    """Finds blocks; the cost of a look-up hardly depends on the table's size."""

    def __init__(self, manifests: Manifests) -> None:
        self._manifests = manifests

    def find(self, snapshot: Snapshot, locations: Iterable[str]) -> dict[str, Found]:
        """Where a whole snapshot has the blocks at these locations; one that is not in the result is not there."""
        wanted = sorted(set(locations))
        found: dict[str, Found] = {}
        if not wanted:
            return found
        hashes = hashes_of(wanted)
        for number, group in enumerate(snapshot.groups):
            some = _between(wanted, group.first_location, group.last_location)
            if some.start == some.stop:
                continue
            rows = self._manifests.group_locations(group).candidates(hashes[some])
            rows = rows[~np.isin(rows, group.dropped)]
            for row in rows.tolist():
                ref = self._manifests.group(group).segments[row]
                self._confirm(Found(ref, row, number), wanted[some], found)
        for row, ref in enumerate(snapshot.segments):
            some = _between(wanted, ref.first_location, ref.last_location)
            if some.start < some.stop and self._may_have(ref, hashes[some]):
                self._confirm(Found(ref, row), wanted[some], found)
        return found

    def contents(self, places: Mapping[str, Found]) -> dict[str, Content]:
        """Content id and footer hash of blocks that were found."""
        by_segment: dict[str, SegmentRef] = {place.ref.segment_id: place.ref for place in places.values()}
        return {
            block.location: (block.content_id, block.footer_sha256)
            for ref in by_segment.values()
            for block in self._manifests.segment(ref).blocks
            if block.location in places
        }

    def _may_have(self, ref: SegmentRef, hashes: Hashes) -> bool:
        return may_share(self._manifests.location_hashes(ref.companion), np.sort(hashes))

    def _confirm(self, place: Found, wanted: list[str], found: dict[str, Found]) -> None:
        for location in set(wanted).intersection(self._manifests.locations(place.ref.companion)):
            found[location] = place


def _between(wanted: list[str], first: str | None, last: str | None) -> slice:
    """The part of the ascending ``wanted`` that may lie in a segment or group."""
    start = 0 if first is None else bisect_left(wanted, first)
    return slice(start, len(wanted) if last is None else max(start, bisect_right(wanted, last)))

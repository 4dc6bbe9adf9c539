"""Blocks that are in a table more than once, found in eight bytes a block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lamella.snapshot.columnar import Companion
from lamella.snapshot.columnar.locations import hashes_of
from lamella.snapshot.errors import LamellaError, StoreError
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import SegmentRef, decode_segment
from lamella.snapshot.manifest.codec import check_hash
from lamella.snapshot.verify.checks import found
from lamella.snapshot.verify.reading import Note


def check_duplicates(store: Store, refs: Sequence[SegmentRef], note: Note) -> None:
    """Find the locations that stand in the segments twice; a segment that cannot be read is left out."""
    hashes = [hashes_of(_locations(store, ref, note)) for ref in refs]
    every = np.sort(np.concatenate([np.empty(0, np.uint64), *hashes]))
    doubled = np.unique(every[1:][every[1:] == every[:-1]])
    if not len(doubled):
        return
    holders: dict[str, list[str]] = {}
    for ref, own in zip(refs, hashes, strict=True):
        if np.isin(own, doubled).any():
            for location, hit in zip(_locations(store, ref, note), np.isin(own, doubled).tolist(), strict=True):
                if hit:
                    holders.setdefault(location, []).append(ref.segment_id)
    where = {ref.segment_id: ref for ref in refs}
    for location, segment_ids in holders.items():
        if len(segment_ids) > 1:
            message = f"it is in the table {len(segment_ids)} times, first in segment {segment_ids[0]}"
            last = where[segment_ids[-1]]
            note(
                found(
                    "block_duplicate",
                    message,
                    at=last.manifest.location,
                    segment_id=last.segment_id,
                    block=location,
                )
            )


def read_locations(store: Store, ref: SegmentRef) -> list[str]:
    """The locations of a segment's blocks: from its companion, or where that is damaged from its manifest.

    Raises:
        ManifestError, ObjectNotFound, StoreError: neither can be read.
    """
    try:
        data = store.read(ref.companion.location)
        check_hash(data, ref.companion.sha256, ref.companion.location)
        return Companion(data).texts("location")
    except LamellaError:
        manifest = ref.manifest
        segment = decode_segment(store.read(manifest.location), sha256=manifest.sha256, location=manifest.location)
        return [block.location for block in segment.blocks]


def _locations(store: Store, ref: SegmentRef, note: Note) -> list[str]:
    try:
        return read_locations(store, ref)
    except StoreError as error:  # it may have been there when the segment was looked at
        note(found("unreachable", error.message, at=ref.manifest.location, segment_id=ref.segment_id))
        return []
    except LamellaError:
        return []  # reported of the segment

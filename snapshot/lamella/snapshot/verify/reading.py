"""Reads objects for verification, where damage is a finding and not an error, and selects the blocks of a sample."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from random import Random
from typing import Final, TypeVar

import msgspec

from lamella.snapshot.columnar.column_parts import tail_of
from lamella.snapshot.errors import (
    InvalidRequest,
    LamellaError,
    ManifestError,
    NotFound,
    StoreError,
    UnsupportedFormat,
)
from lamella.snapshot.manifest import ObjectRef, content_hash
from lamella.snapshot.storage import Store
from lamella.snapshot.verify.checks import found
from lamella.snapshot.wire.maintenance import Finding

_T = TypeVar("_T")

#: Receives a finding.
Note = Callable[[Finding], None]
#: The errors of a damaged tree, whenever it is read: nothing there, invalid content, an invalid location. A StoreError
#: is none of these: the next read may succeed, so anything left out because of it would be missed without a finding.
DAMAGE: Final = (NotFound, ManifestError, InvalidRequest)


def read_manifest(
    store: Store, ref: ObjectRef, decode: Callable[[bytes], _T], note: Note, *, segment_id: str | None = None
) -> _T | None:
    """Returns a manifest, decoded; None after a finding with the reason.

    ``decode`` raises ManifestError or UnsupportedFormat.
    """

    def wrong(code: str, message: str) -> None:
        note(found(code, message, at=ref.location, segment_id=segment_id))

    try:
        data = store.read(ref.location)
    except StoreError as error:
        wrong("unreachable", error.message)
        return None
    except LamellaError as error:  # missing, or at an invalid location
        wrong("manifest_missing", error.message)
        return None
    sha256 = content_hash(data)
    if sha256 != ref.sha256:
        wrong("manifest_hash", f"the SHA-256 of its {len(data)} bytes is {sha256}, not {ref.sha256}")
        return None
    if len(data) != ref.size_bytes:
        wrong("manifest_size", f"it has {len(data)} bytes, not the recorded {ref.size_bytes}")
    try:
        return decode(data)
    except UnsupportedFormat as error:
        wrong("manifest_version", error.message)
    except ManifestError as error:
        wrong("manifest_unreadable", error.message)
    return None


def read_sidecar(store: Store, ref: ObjectRef, note: Note, *, segment_id: str | None = None) -> bytes | None:
    """Returns the verified bytes of a sidecar; None after a finding."""

    def wrong(code: str, message: str) -> None:
        note(found(code, message, at=ref.location, segment_id=segment_id))

    try:
        data = store.read(ref.location)
    except StoreError as error:
        wrong("unreachable", error.message)
        return None
    except LamellaError as error:  # missing, or at an invalid location
        wrong("sidecar_missing", error.message)
        return None
    sha256 = content_hash(data)
    if sha256 != ref.sha256:
        wrong("sidecar_hash", f"the SHA-256 of its {len(data)} bytes is {sha256}, not {ref.sha256}")
        return None
    if len(data) != ref.size_bytes:
        wrong("manifest_size", f"it has {len(data)} bytes, not the recorded {ref.size_bytes}")
    if ref.tail_bytes and not _has_tail(data, ref):
        wrong("sidecar_differs", "its tail is not the one that is recorded, so no part of it can be read")
    return data


def _has_tail(data: bytes, ref: ObjectRef) -> bool:
    try:
        return tail_of(data) == (ref.tail_bytes, ref.tail_sha256)
    except ManifestError:
        return False


#: Default share and minimum number of blocks.
DEFAULT_SHARE: Final = 0.01
DEFAULT_BLOCKS: Final = 20


class Deep(msgspec.Struct, frozen=True, kw_only=True):
    """What a deep verification reads: ``blocks``, or the share ``sample`` of them; ``filters`` for each."""

    sample: float | None = None
    blocks: int | None = None
    seed: int = 0
    filters: int = 20

    def check(self) -> None:
        """Raise InvalidRequest for invalid members."""
        if self.sample is not None and self.blocks is not None:
            raise InvalidRequest("give sample or blocks, not both")
        if self.sample is not None and not 0 < self.sample <= 1:
            raise InvalidRequest(
                f"sample must be a fraction above 0 and at most 1, not {self.sample}", parameter="sample"
            )
        if self.blocks is not None and self.blocks < 0:
            raise InvalidRequest(f"blocks is {self.blocks}", parameter="blocks")
        if not 0 <= self.filters <= 10_000:
            raise InvalidRequest(f"filters must be from 0 to 10000, not {self.filters}", parameter="filters")


def how_many(deep: Deep, total: int) -> int:
    """Returns how many of all blocks are read."""
    if deep.blocks is not None:
        wanted = deep.blocks
    elif deep.sample is not None:
        wanted = math.ceil(deep.sample * total)
    else:
        wanted = max(DEFAULT_BLOCKS, math.ceil(DEFAULT_SHARE * total))
    return min(wanted, total)


def chosen(deep: Deep, block_counts: Sequence[int]) -> list[tuple[int, int]]:
    """Returns (segment, block in it) of each block to be read, ascending; ``block_counts`` are the segments'."""
    counts = [max(count, 0) for count in block_counts]
    total = sum(counts)
    rng = Random(deep.seed)  # noqa: S311  # a sample that can be drawn again, no secret
    picked = sorted(rng.sample(range(total), how_many(deep, total)))
    starts = [0, *accumulate(counts)]
    found = []
    for number in picked:
        segment = bisect_right(starts, number) - 1
        found.append((segment, number - starts[segment]))
    return found

"""Objects that Lamella wrote, read from the store itself: what is wrong with one is a finding, not an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from lamella.snapshot.errors import (
    InvalidRequest,
    LamellaError,
    ManifestError,
    NotFound,
    StoreError,
    UnsupportedFormat,
)
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import ObjectRef, content_hash
from lamella.snapshot.verify.checks import found
from lamella.snapshot.wire.verify import Finding

_T = TypeVar("_T")

#: Takes a finding.
Note = Callable[[Finding], None]
#: What a damaged tree gives whenever it is read: nothing there, nonsense, a place that there cannot be. A StoreError is
#: none of these: the next read may succeed, so whatever was left out for it would be missed without a finding.
DAMAGE: Final = (NotFound, ManifestError, InvalidRequest)


def read_manifest(
    store: Store, ref: ObjectRef, decode: Callable[[bytes], _T], note: Note, *, segment_id: str | None = None
) -> _T | None:
    """A manifest, decoded; None after a finding that says why there is none.

    ``decode`` raises ManifestError or UnsupportedFormat.
    """

    def wrong(code: str, message: str) -> None:
        note(found(code, message, at=ref.location, segment_id=segment_id))

    try:
        data = store.read(ref.location)
    except StoreError as error:
        wrong("unreachable", error.message)
        return None
    except LamellaError as error:  # not there, or at a place that there cannot be
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


def read_companion(store: Store, ref: ObjectRef, note: Note, *, segment_id: str | None = None) -> bytes | None:
    """The bytes of a companion that are those that were written; None after a finding."""

    def wrong(code: str, message: str) -> None:
        note(found(code, message, at=ref.location, segment_id=segment_id))

    try:
        data = store.read(ref.location)
    except StoreError as error:
        wrong("unreachable", error.message)
        return None
    except LamellaError as error:  # not there, or at a place that there cannot be
        wrong("companion_missing", error.message)
        return None
    sha256 = content_hash(data)
    if sha256 != ref.sha256:
        wrong("companion_hash", f"the SHA-256 of its {len(data)} bytes is {sha256}, not {ref.sha256}")
        return None
    if len(data) != ref.size_bytes:
        wrong("manifest_size", f"it has {len(data)} bytes, not the recorded {ref.size_bytes}")
    return data

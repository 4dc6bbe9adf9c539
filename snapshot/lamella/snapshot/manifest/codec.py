"""JSON of manifests: versioned, and checked against a content hash before it is trusted.

Format versions are decided only here: a reader checks ``format_version`` first, refuses versions newer than its own,
and decodes older ones with their own structs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from lamella.snapshot.errors import HashMismatch, ManifestError, UnsupportedFormat
from lamella.snapshot.manifest.features import KNOWN_FEATURES
from lamella.snapshot.manifest.structs import Block, Group, Segment, Snapshot, Summary

#: The newest version that this release reads, and the one that it writes. Version 2 added groups to snapshots; version
#: 3 added constants and required features, and renamed "companion" to "sidecar".
FORMAT_VERSION: Final = 3
#: The last version whose manifests call a sidecar a companion.
LAST_WITH_OLD_NAMES: Final = 2


class _Header(msgspec.Struct):
    format_version: int
    required_features: tuple[str, ...] = ()


class _RawSegment(msgspec.Struct):
    blocks: tuple[msgspec.Raw, ...]


class _EncodedSegment(msgspec.Struct, omit_defaults=True):
    """A :class:`Segment` with the same members in the same order, whose blocks are encoded already."""

    format_version: int
    segment_id: str
    summary: Summary
    blocks: msgspec.Raw
    schema_id: int = 0
    required_features: tuple[str, ...] = ()


_Manifest = TypeVar("_Manifest", Segment, Group, Snapshot, _RawSegment)


_ENCODER: Final = msgspec.json.Encoder()
_HEADER: Final = msgspec.json.Decoder(_Header)
_ANY: Final = msgspec.json.Decoder()
_SEGMENT: Final = msgspec.json.Decoder(Segment)
_RAW_SEGMENT: Final = msgspec.json.Decoder(_RawSegment)
_BLOCK: Final = msgspec.json.Decoder(Block)
_GROUP: Final = msgspec.json.Decoder(Group)
_SNAPSHOT: Final = msgspec.json.Decoder(Snapshot)


def content_hash(data: bytes | memoryview) -> str:
    """Returns the SHA-256 of an object's bytes, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def check_hash(data: bytes | memoryview, expected: str, location: str) -> None:
    """Raise :class:`HashMismatch` unless ``data`` has the expected hash."""
    found = content_hash(data)
    if found != expected:
        raise HashMismatch(f"{location} has changed since it was written", location=location, sha256=found)


def encode(manifest: Segment | Group | Snapshot) -> bytes:
    """Returns a manifest as JSON."""
    return _ENCODER.encode(manifest)


def encode_segment(segment: Segment, blocks: Sequence[bytes]) -> bytes:
    """Returns a segment manifest with these blocks, each as its JSON, and not those of ``segment``."""
    raw = msgspec.Raw(b"[" + b",".join(blocks) + b"]")
    members = {name: getattr(segment, name) for name in segment.__struct_fields__ if name != "blocks"}
    return _ENCODER.encode(_EncodedSegment(blocks=raw, **members))


def decode_segment(data: bytes, *, sha256: str | None = None, location: str = "segment") -> Segment:
    """Reads a segment manifest; raises HashMismatch, UnsupportedFormat, ManifestError."""
    return _decode(_SEGMENT, data, sha256, location)


def raw_blocks(data: bytes, *, sha256: str | None = None, location: str = "segment") -> tuple[msgspec.Raw, ...]:
    """Returns the blocks of a segment manifest undecoded, each a part of ``data``; raises as :func:`decode_segment`.

    They take a fraction of the memory of decoded ones; :func:`decode_block` decodes one.
    """
    return _decode(_RAW_SEGMENT, data, sha256, location).blocks


def decode_block(raw: msgspec.Raw, *, location: str = "segment") -> Block:
    """Decodes a block of :func:`raw_blocks`; raises ManifestError."""
    try:
        return _BLOCK.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ManifestError(f"{location} is damaged: {error}", location=location) from error


def decode_group(data: bytes, *, sha256: str | None = None, location: str = "group") -> Group:
    """Reads a group's manifest; raises HashMismatch, UnsupportedFormat, ManifestError."""
    return _decode(_GROUP, data, sha256, location)


def decode_snapshot(data: bytes, *, sha256: str | None = None, location: str = "snapshot") -> Snapshot:
    """Reads a snapshot manifest; raises HashMismatch, UnsupportedFormat, ManifestError."""
    return _decode(_SNAPSHOT, data, sha256, location)


def _decode(decoder: msgspec.json.Decoder[_Manifest], data: bytes, sha256: str | None, location: str) -> _Manifest:
    if sha256 is not None:
        check_hash(data, sha256, location)
    try:
        header = _HEADER.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ManifestError(f"{location} is not a manifest: {error}", location=location) from error
    check_version(header.format_version, header.required_features, location)
    try:
        if header.format_version <= LAST_WITH_OLD_NAMES and decoder.type in (Group, Snapshot):
            found: _Manifest = _from_old_names(data, decoder.type)
            return found
        return decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ManifestError(f"{location} is damaged: {error}", location=location) from error


def check_version(version: int, required_features: Iterable[str], location: str) -> None:
    """Raise UnsupportedFormat for a format version or a feature that this release does not know."""
    if version > FORMAT_VERSION:
        raise UnsupportedFormat(
            f"{location} has format version {version}; this release reads up to {FORMAT_VERSION}",
            location=location,
            format_version=version,
        )
    if version < 1:
        raise ManifestError(f"{location} has format version {version}", location=location)
    unknown = sorted(set(required_features).difference(KNOWN_FEATURES))
    if unknown:
        raise UnsupportedFormat(
            f"{location} requires features that this release does not have: {', '.join(unknown)}",
            location=location,
            features=unknown,
        )


def _from_old_names(data: bytes, kind: Any) -> Any:
    """Decodes a snapshot or group of a version that calls a sidecar a companion."""
    manifest = _ANY.decode(data)
    lists = [found for name in ("segments", "groups") if isinstance(found := manifest.get(name), list)]
    for entry in (manifest, *(each for entries in lists for each in entries if isinstance(each, dict))):
        if "companion" in entry:
            entry["sidecar"] = entry.pop("companion")
    return msgspec.convert(manifest, kind, str_keys=True)

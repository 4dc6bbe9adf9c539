"""Snapshot, segment and block manifests: frozen structs and their versioned JSON."""

from lamella.snapshot.manifest.codec import (
    FORMAT_VERSION,
    content_hash,
    decode_segment,
    decode_snapshot,
    encode,
)
from lamella.snapshot.manifest.structs import (
    Block,
    ColumnMeta,
    ObjectRef,
    Segment,
    SegmentRef,
    Snapshot,
    SnapshotPointer,
    Summary,
)

__all__ = [
    "FORMAT_VERSION",
    "Block",
    "ColumnMeta",
    "ObjectRef",
    "Segment",
    "SegmentRef",
    "Snapshot",
    "SnapshotPointer",
    "Summary",
    "content_hash",
    "decode_segment",
    "decode_snapshot",
    "encode",
]

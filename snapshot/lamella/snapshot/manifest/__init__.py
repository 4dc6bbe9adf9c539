"""Snapshot, segment and block manifests: frozen structs and their versioned JSON."""

from lamella.snapshot.manifest.codec import (
    FORMAT_VERSION,
    SEGMENT_FORMAT,
    SNAPSHOT_FORMAT,
    content_hash,
    decode_group,
    decode_segment,
    decode_snapshot,
    encode,
)
from lamella.snapshot.manifest.structs import (
    Block,
    ColumnMeta,
    DirectoryRef,
    Group,
    GroupRef,
    ObjectRef,
    Segment,
    SegmentRef,
    Snapshot,
    SnapshotPointer,
    Summary,
    TableIndex,
)

__all__ = [
    "FORMAT_VERSION",
    "SEGMENT_FORMAT",
    "SNAPSHOT_FORMAT",
    "Block",
    "ColumnMeta",
    "DirectoryRef",
    "Group",
    "GroupRef",
    "ObjectRef",
    "Segment",
    "SegmentRef",
    "Snapshot",
    "SnapshotPointer",
    "Summary",
    "TableIndex",
    "content_hash",
    "decode_group",
    "decode_segment",
    "decode_snapshot",
    "encode",
]

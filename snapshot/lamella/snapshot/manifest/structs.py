"""The values that manifests hold. Names and shape follow Databend's where the two describe the same thing.

Every new field needs a default: an older manifest must stay readable, and JSON that lacks it must mean the same.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lamella.snapshot.schema import Schema
from lamella.snapshot.stats import ColumnStats


class ObjectRef(msgspec.Struct, frozen=True, kw_only=True):
    """An object that Lamella wrote: where, how large, and the SHA-256 of its bytes (hexadecimal)."""

    location: str
    size_bytes: int
    sha256: str


class ColumnMeta(msgspec.Struct, frozen=True, array_like=True):
    """One column chunk: file offset and length in bytes (compressed, with its dictionary page), number of values."""

    offset: int
    len: int
    num_values: int


class Block(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One Parquet file.

    ``file_size`` is the store's own size at commit time, never what a writer said: Spark silently loses rows when a
    recorded size is too small. ``content_id`` is the store's etag or modification time, ``footer_sha256`` the hash
    of the footer that the statistics come from. ``col_metas`` has one entry per row group, in order.
    """

    location: str
    row_count: int
    file_size: int
    block_size: int = 0
    col_stats: dict[int, ColumnStats] = {}
    col_metas: dict[int, tuple[ColumnMeta, ...]] = {}
    row_group_row_counts: tuple[int, ...] = ()
    cluster_stats: dict[str, Any] | None = None
    bloom_filter_index_location: str | None = None
    bloom_filter_index_size: int = 0
    index_locations: dict[str, ObjectRef] = {}
    page_index_location: tuple[int, int] | None = None
    compression: str = ""
    create_on: str | None = None
    content_id: str | None = None
    footer_sha256: str | None = None
    created_by: str | None = None
    format: str = "parquet"


class Summary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What holds for everything below: counts, sizes in bytes, merged statistics by column id."""

    row_count: int = 0
    block_count: int = 0
    perfect_block_count: int = 0
    uncompressed_byte_size: int = 0
    compressed_byte_size: int = 0
    index_size: int = 0
    col_stats: dict[int, ColumnStats] = {}
    cluster_stats: dict[str, Any] | None = None


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """About a thousand blocks and what holds for them all."""

    format_version: int
    segment_id: str
    summary: Summary
    blocks: tuple[Block, ...]


class SegmentRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A snapshot's entry for one segment: where its manifest and companion are, and its summary."""

    segment_id: str
    manifest: ObjectRef
    companion: ObjectRef
    format_version: int
    summary: Summary


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """One state of a table. ``timestamp_ms`` (Unix, UTC) grows along the chain of ``prev_snapshot_id``."""

    format_version: int
    snapshot_id: str
    table_id: str
    timestamp_ms: int
    timestamp: str
    prev_snapshot_id: str | None
    schema: Schema
    summary: Summary
    segments: tuple[SegmentRef, ...]
    cluster_key_meta: tuple[int, tuple[str, ...]] | None = None
    operation: str = "create"
    properties: dict[str, str] = {}
    companion: ObjectRef | None = None


class SnapshotPointer(msgspec.Struct, frozen=True, kw_only=True):
    """What a catalog records of a snapshot: enough to read it, its manifest or its companion, and check the bytes."""

    snapshot_id: str
    timestamp_ms: int
    manifest: ObjectRef
    companion: ObjectRef

"""Commits as pure logic: a base snapshot and a change give the next snapshot, or a conflict.

Conflicts are per block: appends always merge, and a removal conflicts only when a block it names is gone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

import msgspec

from lamella.snapshot.manifest import FORMAT_VERSION, Block, SegmentRef, Snapshot, Summary
from lamella.snapshot.schema import Schema
from lamella.snapshot.stats.column import merge_columns

#: Blocks per segment when segments are cut.
SEGMENT_BLOCKS = 1_000
_PERFECT_ROWS = 800_000
_PERFECT_UNCOMPRESSED_BYTES = 100 << 20
_PERFECT_FILE_BYTES = 12 << 20


def is_perfect(block: Block) -> bool:
    """True when compaction would leave the block alone: 80 % of a target in rows, uncompressed or file bytes."""
    return (
        block.row_count >= _PERFECT_ROWS
        or block.block_size >= _PERFECT_UNCOMPRESSED_BYTES
        or block.file_size >= _PERFECT_FILE_BYTES
    )


def summarize_blocks(schema: Schema, blocks: Sequence[Block]) -> Summary:
    """The summary of a segment."""
    types = {leaf.id: leaf.dtype for leaf in schema.leaves()}
    return Summary(
        row_count=sum(b.row_count for b in blocks),
        block_count=len(blocks),
        perfect_block_count=sum(is_perfect(b) for b in blocks),
        uncompressed_byte_size=sum(b.block_size for b in blocks),
        compressed_byte_size=sum(b.file_size for b in blocks),
        index_size=sum(b.bloom_filter_index_size for b in blocks),
        col_stats=merge_columns(types, ((b.row_count, b.col_stats) for b in blocks)),
    )


def summarize(schema: Schema, parts: Sequence[Summary]) -> Summary:
    """The summary over summaries; bounds are recomputed, so that they shrink when something was removed."""
    types = {leaf.id: leaf.dtype for leaf in schema.leaves()}
    return Summary(
        row_count=sum(p.row_count for p in parts),
        block_count=sum(p.block_count for p in parts),
        perfect_block_count=sum(p.perfect_block_count for p in parts),
        uncompressed_byte_size=sum(p.uncompressed_byte_size for p in parts),
        compressed_byte_size=sum(p.compressed_byte_size for p in parts),
        index_size=sum(p.index_size for p in parts),
        col_stats=merge_columns(types, ((p.row_count, p.col_stats) for p in parts)),
    )


def empty_snapshot(
    *,
    snapshot_id: str,
    table_id: str,
    schema: Schema,
    cluster_key: Sequence[str],
    properties: Mapping[str, str],
    now_ms: int,
) -> Snapshot:
    """The first snapshot of a table."""
    return Snapshot(
        format_version=FORMAT_VERSION,
        snapshot_id=snapshot_id,
        table_id=table_id,
        timestamp_ms=now_ms,
        timestamp=iso(now_ms),
        prev_snapshot_id=None,
        schema=schema,
        summary=Summary(),
        segments=(),
        cluster_key_meta=(0, tuple(cluster_key)) if cluster_key else None,
        operation="create",
        properties=dict(properties),
    )


def next_snapshot(
    base: Snapshot,
    *,
    snapshot_id: str,
    added: Sequence[SegmentRef],
    replaced: Mapping[str, SegmentRef | None],
    operation: str,
    properties: Mapping[str, str] | None,
    now_ms: int,
) -> Snapshot:
    """``base`` with segments added behind, and those of ``replaced`` (by id) exchanged, or dropped where None.

    Time never runs backwards along the chain, whatever the clock says.
    """
    kept = tuple(ref for old in base.segments if (ref := replaced.get(old.segment_id, old)) is not None)
    segments = (*kept, *added)
    # bounds of a summary merge like those of children: an append need not look at what was there
    parts = [s.summary for s in segments] if replaced else [base.summary, *(s.summary for s in added)]
    timestamp_ms = max(now_ms, base.timestamp_ms + 1)
    return msgspec.structs.replace(
        base,
        format_version=FORMAT_VERSION,
        snapshot_id=snapshot_id,
        timestamp_ms=timestamp_ms,
        timestamp=iso(timestamp_ms),
        prev_snapshot_id=base.snapshot_id,
        summary=summarize(base.schema, parts),
        segments=segments,
        operation=operation,
        properties={**base.properties, **(properties or {})},
        companion=None,
    )


def iso(at_ms: int) -> str:
    """Unix milliseconds as ISO 8601 in UTC."""
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

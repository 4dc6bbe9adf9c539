"""Commits as pure logic: a base snapshot and a change give the next snapshot, or a conflict.

Conflicts are per block: appends always merge, and a removal conflicts only when a block it names is gone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamella.snapshot.errors import SchemaConflict
from lamella.snapshot.manifest import FORMAT_VERSION, Block, SegmentRef, Snapshot, Summary
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import SchemaChange, Versioned, evolve, renamed_paths, schema_at
from lamella.snapshot.stats.column import merge_columns
from lamella.snapshot.stats.projection import seen_with

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


def seen_blocks(table: Versioned, blocks: Sequence[Block]) -> list[Block]:
    """The blocks with their statistics in terms of the current schema; raises InvalidSchema for an unknown one."""
    current = table.history[-1]
    return [
        block
        if block.written_with == current.schema_id
        else msgspec.structs.replace(
            block,
            col_stats=dict(seen_with(schema_at(table, block.written_with), current, block.row_count, block.col_stats)),
        )
        for block in blocks
    ]


def seen_refs(table: Versioned, refs: Sequence[SegmentRef]) -> list[SegmentRef]:
    """The segments with their summaries in terms of the current schema; raises InvalidSchema for an unknown one."""
    current = table.history[-1]
    return [
        ref
        if ref.schema_id == current.schema_id
        else msgspec.structs.replace(ref, summary=_seen_summary(schema_at(table, ref.schema_id), current, ref.summary))
        for ref in refs
    ]


def _seen_summary(written: Schema, wanted: Schema, summary: Summary) -> Summary:
    stats = dict(seen_with(written, wanted, summary.row_count, summary.col_stats))
    return msgspec.structs.replace(summary, col_stats=stats)


def summarize_blocks(schema: Schema, blocks: Sequence[Block]) -> Summary:
    """The summary of a segment, from blocks whose statistics are in terms of ``schema``."""
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
    """The summary over summaries in terms of ``schema``; bounds shrink again when something was removed."""
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

    Raises:
        SchemaConflict: a segment was prepared under a schema that ``base`` does not know.
    """
    known = {schema.schema_id for schema in base.history}
    strange = [ref.schema_id for ref in (*added, *replaced.values()) if ref is not None and ref.schema_id not in known]
    if strange:
        raise SchemaConflict(
            f"a segment was written under schema {strange[0]}, which the table's snapshot does not know",
            schema_id=strange[0],
            snapshot_id=base.snapshot_id,
        )
    kept = tuple(ref for old in base.segments if (ref := replaced.get(old.segment_id, old)) is not None)
    segments = (*kept, *added)
    # bounds of a summary merge like those of children: an append need not look at what was there
    looked_at = seen_refs(base, segments if replaced else added)
    parts = [*([] if replaced else [base.summary]), *(ref.summary for ref in looked_at)]
    return _following(
        base,
        snapshot_id=snapshot_id,
        now_ms=now_ms,
        summary=summarize(base.schema, parts),
        segments=segments,
        block_schema_ids=_schema_ids(segments) if len(base.history) > 1 else msgspec.UNSET,
        operation=operation,
        properties={**base.properties, **(properties or {})},
    )


def evolved_snapshot(
    base: Snapshot, changes: Sequence[SchemaChange], *, snapshot_id: str, now_ms: int, base_schema_id: int | None
) -> Snapshot:
    """``base`` under a changed schema: the same segments, none of them written again.

    Raises:
        SchemaConflict: ``base_schema_id`` is given and is not the id of the schema that ``base`` has.
        UnknownColumn, InvalidSchema, InvalidRequest: the changes; see :func:`lamella.snapshot.schema.evolution.evolve`.
    """
    if base_schema_id is not None and base_schema_id != base.schema.schema_id:
        raise SchemaConflict(
            f"the table has schema {base.schema.schema_id} now, not {base_schema_id}",
            schema_id=base.schema.schema_id,
            snapshot_id=base.snapshot_id,
        )
    schema = evolve(base.schema, changes, history=base.history)
    key = base.cluster_key_meta
    return _following(
        base,
        snapshot_id=snapshot_id,
        now_ms=now_ms,
        schema=schema,
        schemas=base.history,
        summary=_seen_summary(base.schema, schema, base.summary),
        block_schema_ids=_schema_ids(base.segments),
        cluster_key_meta=key and (key[0], renamed_paths(base.schema, schema, key[1])),
        operation="schema",
    )


def _following(base: Snapshot, *, snapshot_id: str, now_ms: int, **changed: Any) -> Snapshot:
    timestamp_ms = max(now_ms, base.timestamp_ms + 1)
    return msgspec.structs.replace(
        base,
        format_version=FORMAT_VERSION,
        snapshot_id=snapshot_id,
        timestamp_ms=timestamp_ms,
        timestamp=iso(timestamp_ms),
        prev_snapshot_id=base.snapshot_id,
        companion=None,
        **changed,
    )


def _schema_ids(segments: Sequence[SegmentRef]) -> tuple[int, ...]:
    return tuple(sorted({each for ref in segments for each in (ref.block_schema_ids or (ref.schema_id,))}))


def iso(at_ms: int) -> str:
    """Unix milliseconds as ISO 8601 in UTC."""
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

"""What holds for several blocks, segments or groups together, in terms of a table's current schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from lamella.snapshot.cluster.block_sizes import BlockTarget
from lamella.snapshot.manifest import Block, GroupRef, SegmentRef, Summary
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import Versioned, schema_at
from lamella.snapshot.stats.column import merge_columns
from lamella.snapshot.stats.projection import seen_with

_TARGET: Final = BlockTarget()

_Ref = TypeVar("_Ref", SegmentRef, GroupRef)


def is_perfect(block: Block) -> bool:
    """True when compaction would leave the block alone, by the sizes that jobs aim at unless they are told others."""
    return _TARGET.is_perfect_block(block.row_count, block.file_size)


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


def seen_refs(table: Versioned, refs: Sequence[_Ref]) -> list[_Ref]:
    """Segments or groups with their summaries in terms of the current schema; raises InvalidSchema for an unknown."""
    current = table.history[-1]
    return [
        ref
        if ref.schema_id == current.schema_id
        else msgspec.structs.replace(ref, summary=seen_summary(schema_at(table, ref.schema_id), current, ref.summary))
        for ref in refs
    ]


def seen_summary(written: Schema, wanted: Schema, summary: Summary) -> Summary:
    """A summary in terms of a later schema than the one it was made with."""
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
        by_name_count=sum(b.by_name for b in blocks),
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
        by_name_count=sum(p.by_name_count for p in parts),
    )

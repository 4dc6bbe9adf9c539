"""Commits as pure logic: applies change sets to a base snapshot and returns the next snapshot, or a conflict for each
change set that cannot be applied.

Conflicts are per block: appends always merge, and a removal conflicts only when a block that it names was removed or
replaced.
"""

from lamella.snapshot.commit.changes import (
    NAMED_BLOCKS,
    Applied,
    AppliedChanges,
    ChangeSet,
    Request,
    apply_changes,
    conflict,
    row_change_of,
)
from lamella.snapshot.commit.shape import SEGMENT_BLOCKS, Shape, segments_to_merge, to_merge, to_move
from lamella.snapshot.commit.snapshots import (
    clustered_snapshot,
    empty_snapshot,
    evolved_snapshot,
    indexed_snapshot,
    is_perfect,
    iso,
    next_snapshot,
    schema_ids,
    seen_blocks,
    seen_refs,
    seen_summary,
    seen_with_changes,
    seen_with_columns_of,
    seen_with_update,
    summarize,
    summarize_block_arrays,
    summarize_blocks,
)

__all__ = [
    "NAMED_BLOCKS",
    "SEGMENT_BLOCKS",
    "Applied",
    "AppliedChanges",
    "ChangeSet",
    "Request",
    "Shape",
    "apply_changes",
    "clustered_snapshot",
    "conflict",
    "empty_snapshot",
    "evolved_snapshot",
    "indexed_snapshot",
    "is_perfect",
    "iso",
    "next_snapshot",
    "row_change_of",
    "schema_ids",
    "seen_blocks",
    "seen_refs",
    "seen_summary",
    "seen_with_changes",
    "seen_with_columns_of",
    "seen_with_update",
    "segments_to_merge",
    "summarize",
    "summarize_block_arrays",
    "summarize_blocks",
    "to_merge",
    "to_move",
]

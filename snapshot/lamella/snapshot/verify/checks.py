"""All checks by code: severity, meaning, and what to do. ``docs/verify.md`` shows this table.

``error``: an answer may be wrong, or cannot be given. ``warning``: answers are right, but something else is not.
``info``: information only. Codes are stable: scripts may rely on them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lamella.snapshot.wire.maintenance import Finding, Severity


class Check(msgspec.Struct, frozen=True):
    """One check. ``repairable``: ``repair`` may fix it."""

    code: str
    severity: Severity
    meaning: str
    advice: str
    repairable: bool = False


_RESTORE: Final = "restore the object from a backup of the warehouse, or roll back to a snapshot that does not need it"
_REWRITE: Final = "register the blocks of the segment again, or roll back"
_REGISTER: Final = "remove the block and register its file again, with verify if the writer is not trusted"
_REPAIR: Final = "run verify with repair"
_FILE: Final = "restore the file as it was, or remove the block"
_REFRESH: Final = "refresh the index with mode full"
_DROP_INDEX: Final = "drop the index, and report a bug"

_ALL: Final = (
    # Objects that Lamella wrote.
    Check("pointer_differs", "error", "The catalog's pointer and the snapshot that it refers to differ.", "roll back"),
    Check("manifest_missing", "error", "A required manifest is missing in the store.", _RESTORE),
    Check("manifest_hash", "error", "A manifest does not have the bytes that were written.", _RESTORE),
    Check("manifest_unreadable", "error", "A manifest cannot be decoded.", _RESTORE),
    Check("manifest_version", "error", "A manifest has a newer format version.", "use a release that can read it"),
    Check("manifest_identity", "error", "A manifest does not match its name.", _RESTORE),
    Check("manifest_size", "warning", "A recorded size differs from the object's size.", _REWRITE),
    Check("sidecar_missing", "error", "A sidecar is missing in the store.", _REPAIR, True),
    Check("sidecar_hash", "error", "A sidecar does not have the bytes that were written.", _REPAIR, True),
    Check("sidecar_differs", "error", "A sidecar contradicts its manifest.", _REWRITE),
    Check(
        "sidecar_older",
        "info",
        "A sidecar agrees with its manifest, but this release would write different bytes.",
        "nothing; this release could not repair the sidecar if it were damaged",
    ),
    Check("unreachable", "error", "The store failed during a read; the object was not checked.", "try again"),
    # Contents of manifests.
    Check("schema_unknown", "error", "A schema id is not in the table's snapshot.", _REWRITE),
    Check("group_segments", "error", "A group does not have the segments recorded for it.", _REWRITE),
    Check(
        "locations_differ", "error", "A location index, or a range of locations, does not include a block.", _REWRITE
    ),
    Check(
        "schema_ids_differ",
        "error",
        "The schema ids of blocks differ from those recorded in the layer above.",
        _REWRITE,
    ),
    Check("summary_differs", "error", "A summary differs between the two objects that have it.", _REWRITE),
    Check("layer_counts", "error", "Counts or sizes of a layer do not add up to those of the layer above.", _REWRITE),
    Check("layer_bounds", "error", "A bound is outside the bounds of the layer above.", _REWRITE),
    Check("layer_unknown", "error", "The layer above has a bound although one below is unknown.", _REWRITE),
    Check("layer_nulls", "error", "The layer above has a different null count.", _REWRITE),
    Check("layer_sum", "error", "The layer above has a sum that is not the sum of those below.", _REWRITE),
    Check("layer_nan", "error", "The layer above excludes NaN, or numbers, that the layer below may have.", _REWRITE),
    Check("layer_exact", "error", "The layer above marks a bound as exact, and no entry below does.", _REWRITE),
    Check("stats_invalid", "error", "Statistics contradict themselves or the column's type.", _REGISTER),
    Check(
        "constants_invalid",
        "error",
        "A constant is not a value of its column, or differs from the statistics.",
        _REGISTER,
    ),
    Check("deletes_invalid", "error", "The entry of a block's deleted rows contradicts the block.", _REGISTER),
    Check(
        "deletes_damaged",
        "error",
        "The list of a block's deleted rows is missing or damaged, or has changed since it was written.",
        _RESTORE,
    ),
    Check(
        "features_missing",
        "error",
        "A manifest does not list a reader feature that its blocks require, so readers may return wrong rows.",
        _REWRITE,
    ),
    Check("block_counts", "error", "A block's row counts contradict each other.", _REGISTER),
    Check(
        "block_clustered",
        "warning",
        "A block is marked as written for a cluster key that the table never had, or with an invalid level.",
        "recluster the block; answers are not affected",
    ),
    Check(
        "perfect_blocks",
        "info",
        "A segment and this release differ in which blocks they count as large enough; the rule may have changed.",
        "nothing; compaction counts the blocks again",
    ),
    Check("block_duplicate", "error", "A block is in the table more than once: its rows count twice.", "remove it"),
    # The blocks' files, and their footers.
    Check("block_missing", "error", "A block's file is missing.", _FILE),
    Check("block_size", "error", "A block's file has a different size.", _FILE),
    Check("block_replaced", "error", "A block's file is not the file that its statistics were read from.", _FILE),
    Check(
        "block_touched",
        "warning",
        "A block's file was rewritten with the same footer: its content id differs.",
        "register the file again if it was copied on purpose",
    ),
    Check("footer_unreadable", "error", "The footer of a block's file cannot be read.", _FILE),
    Check("footer_schema", "error", "A file's columns do not fit the schema that it was written with.", _REGISTER),
    Check("footer_rows", "error", "Rows or row groups differ from the footer.", _REGISTER),
    Check("footer_places", "error", "Column chunks or indexes are at other positions in the file.", _REGISTER),
    Check("footer_bounds", "error", "Bounds do not include the bounds of the footer.", _REGISTER),
    Check("footer_nulls", "error", "A null count differs from the footer.", _REGISTER),
    Check("footer_nan", "error", "NaN is excluded, but not by the footer.", _REGISTER),
    Check(
        "footer_untrusted",
        "warning",
        "A statistic comes from a footer that this release does not trust.",
        "remove the block and register its file again with verify",
    ),
    # Page sidecars and sketches.
    Check("page_sidecar_missing", "warning", "A segment has no page sidecar.", _REPAIR, True),
    Check("page_sidecar_damaged", "warning", "A page sidecar cannot be used.", _REPAIR, True),
    Check("page_sidecar_differs", "error", "A page sidecar contradicts the files.", _REPAIR, True),
    Check(
        "page_sidecar_incomplete",
        "warning",
        "A page sidecar does not include a block whose file can be read now.",
        _REPAIR,
        True,
    ),
    Check(
        "sketch_unreadable",
        "warning",
        "A sketch object is missing or damaged; its distinct counts cannot be continued.",
        _REGISTER,
    ),
    Check("sketch_differs", "warning", "A count of distinct values differs from the sketches.", _REGISTER),
    # Skip indexes.
    Check(
        "index_not_usable",
        "info",
        "A skip index cannot be used; its blocks are kept.",
        "install its kind, or drop the index",
    ),
    Check("index_counts", "warning", "A directory of an index differs from what is recorded for it.", _REFRESH),
    Check("index_entries", "error", "A directory of an index refers to rows that do not exist.", _REFRESH),
    Check(
        "index_part_missing", "warning", "A part of an index is missing in the store; its blocks are kept.", _REFRESH
    ),
    Check(
        "index_part_damaged",
        "warning",
        "A part of an index does not have the bytes that were written; its blocks are kept.",
        _REFRESH,
    ),
    Check("index_part_differs", "error", "A part does not belong to the index that refers to it.", _REFRESH),
    # The catalog's history.
    Check("history_chain", "error", "A snapshot does not follow the one before it.", "roll back"),
    Check("history_time", "error", "Timestamps do not increase along the history.", "roll back"),
    Check("history_row", "error", "The catalog and the manifest of a snapshot differ.", "roll back"),
    # Values (deep).
    Check("values_unreadable", "error", "A block's values cannot be read.", _FILE),
    Check("values_bounds", "error", "A value is outside the bounds.", _REGISTER),
    Check("values_nulls", "error", "The null count is not the number of nulls.", _REGISTER),
    Check("values_sum", "error", "The sum is not the sum of the values.", _REGISTER),
    Check("values_bucket", "error", "A value is not in the bucket that the statistics state.", _REGISTER),
    Check("values_nan", "error", "NaN, or numbers, are there that the statistics exclude.", _REGISTER),
    Check("values_exact", "error", "A bound is said to be a value, and is none.", _REGISTER),
    Check("values_ranges", "error", "A value lies in a gap between the ranges.", _REGISTER),
    Check("values_distinct", "warning", "A count of distinct values is far off.", _REGISTER),
    Check("false_skip", "error", "A filter skips a block, or rows of it, that hold a matching row.", _REGISTER),
    Check("index_false_skip", "error", "An index rules out what a row of the block does.", _DROP_INDEX),
    Check("false_all", "error", "A filter is said to match every row, and does not.", _REGISTER),
)

#: Every check by its code.
CHECKS: Final[dict[str, Check]] = {check.code: check for check in _ALL}

#: At most this many findings of one code are listed per object; the rest is counted.
LISTED: Final = 100


def found(
    code: str,
    message: str,
    *,
    at: str,
    segment_id: str | None = None,
    block: str | None = None,
    column: str | None = None,
) -> Finding:
    """Returns a finding of a check; ``at`` is the object that it is about."""
    check = CHECKS[code]
    return Finding(
        code=code,
        severity=check.severity,
        object=at,
        message=message,
        advice=check.advice,
        segment_id=segment_id,
        block=block,
        column=column,
    )

"""Many filters in one request, and one filter over two snapshots."""

from __future__ import annotations

from typing import Any

import msgspec

from lamella.snapshot.wire.bounds import ColumnPaths, Filters, Moment, Word
from lamella.snapshot.wire.prune import Level, PruneAnswer, PrunedBlock, Shape


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../prune/batch``: many filters over one snapshot; each segment is read once for all of them.

    The other members are as of :class:`PruneRequest` and hold for every filter.
    """

    filters: Filters
    columns: ColumnPaths | None = None
    snapshot_id: Word | None = None
    timestamp: int | Moment | None = None
    time_zone: Moment = "UTC"
    case_sensitive: bool = False
    level: Level = "block"
    shape: Shape = "records"
    explain: bool = False
    residuals: bool = False


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer for each filter, in their order."""

    snapshot_id: str
    timestamp_ms: int
    answers: tuple[PruneAnswer, ...]


class DiffRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../diff``: the blocks that came and went between two snapshots, as far as they may match ``filter``.

    Exactly one of ``from_snapshot_id`` (an id or a tag) and ``from_timestamp``; at most one of the other two, by
    default the current snapshot. Times as of :class:`PruneRequest`.
    """

    from_snapshot_id: Word | None = None
    to_snapshot_id: Word | None = None
    from_timestamp: int | Moment | None = None
    to_timestamp: int | Moment | None = None
    filter: Any = None
    columns: ColumnPaths | None = None
    time_zone: Moment = "UTC"
    case_sensitive: bool = False


class DiffAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """``added`` blocks are only in the later state, ``removed`` ones only in the earlier; verdicts as of a prune.

    A block that was replaced in place (same location, other content) is in both. ``unchanged_blocks``: blocks that both
    snapshots have, matching or not. ``segments_skipped``: shared by both and therefore not looked at.
    """

    from_snapshot_id: str
    to_snapshot_id: str
    added: tuple[PrunedBlock, ...]
    removed: tuple[PrunedBlock, ...]
    unchanged_blocks: int
    segments_skipped: int
    segments_read: int

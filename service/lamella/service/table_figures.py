"""How a table is, in figures, and what should be done about it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

#: What can be found.
FindingCode = Literal["small_blocks", "depth", "depth_growing", "not_indexed", "retention", "no_cluster_key"]


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """The job that helps: its kind and its arguments, as :class:`~lamella.snapshot.wire.SubmitJob` takes them."""

    kind: str
    arguments: dict[str, Any] = {}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that should be done for a table. ``text``: one sentence with the figures.

    ``remedy`` None: no job does it, or its kind is not installed here.
    """

    code: FindingCode
    severity: Literal["warn", "info"]
    text: str
    remedy: Remedy | None = None


class IndexHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What an index in use knows of the blocks; see :class:`~lamella.snapshot.wire.Coverage`."""

    name: str
    kind: str
    blocks: int
    not_indexed: int
    stale: int


class TableHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How a table was at a snapshot, measured at ``measured_ms``.

    ``small_blocks``: blocks that compaction would not leave alone. ``average_depth``: in how many blocks a value of the
    cluster key lies (None: there is no key); ``depth_day_ago``, ``depth_week_ago``: what it was then on the same key
    (None: no snapshot of then is in the history, or it had another key). ``expired_snapshots``: how many a vacuum would
    expire now. ``missing``: by the name of a member, why it could not be measured; such a member is None, or empty.
    """

    table_id: str
    snapshot_id: str
    timestamp_ms: int
    measured_ms: int
    row_count: int | None = None
    block_count: int | None = None
    segment_count: int | None = None
    file_size_bytes: int | None = None
    small_blocks: int | None = None
    cluster_key: tuple[str, ...] = ()
    cluster_kind: str | None = None
    average_depth: float | None = None
    depth_day_ago: float | None = None
    depth_week_ago: float | None = None
    indexes: tuple[IndexHealth, ...] = ()
    snapshots: int | None = None
    oldest_ms: int | None = None
    expired_snapshots: int | None = None
    findings: tuple[Finding, ...] = ()
    missing: dict[str, str] = {}

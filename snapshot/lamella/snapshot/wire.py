"""What travels over HTTP: requests and answers, shared by the service and the clients (no HTTP library here).

Requests forbid members that are not known, so that a spelling mistake is an error and not silently nothing.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from lamella.snapshot.schema import Column, Schema

Verdict = Literal["ALL", "SOME", "UNKNOWN"]
Level = Literal["segment", "block"]
Shape = Literal["records", "columns"]


class CreateNamespace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST /v1/namespaces``."""

    name: str
    properties: dict[str, str] = {}


class NamespaceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One namespace."""

    name: str
    properties: dict[str, str] = {}


class NamespaceList(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/namespaces``."""

    namespaces: tuple[NamespaceInfo, ...]


class CreateTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST /v1/namespaces/{ns}/tables``: one of ``schema`` (its columns) and ``schema_from`` (a Parquet URL)."""

    name: str
    schema: tuple[Column, ...] | None = None
    schema_from: str | None = None
    cluster_key: tuple[str, ...] = ()
    properties: dict[str, str] = {}


class TableInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One table as it stands. ``location`` is its folder in the warehouse; jobs write blocks below ``location``/_b."""

    namespace: str
    name: str
    table_id: str
    location: str
    snapshot_id: str
    timestamp_ms: int
    schema: Schema
    cluster_key: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    row_count: int = 0
    block_count: int = 0
    segment_count: int = 0
    file_size_bytes: int = 0


class TableList(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/namespaces/{ns}/tables``."""

    tables: tuple[str, ...]


class Register(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../register``. ``strict``: refuse everything when one file is refused."""

    paths: tuple[str, ...]
    strict: bool = False


class RefusedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was not registered, the code of the reason (as of errors) and a sentence."""

    path: str
    code: str
    reason: str


class RegisterAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a registration did; ``snapshot_id`` is the snapshot that holds the blocks."""

    snapshot_id: str
    registered: int
    row_count: int
    file_size_bytes: int
    refused: tuple[RefusedFile, ...] = ()


class CommitRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../commits``.

    ``added``: blocks as a writer made them (statistics in the manifest's own form; see
    :class:`lamella.snapshot.manifest.Block`); the service asks the store for each size itself. ``removed``: locations,
    with the snapshot they were read at in ``base_snapshot_id``.
    """

    added: tuple[msgspec.Raw, ...] = ()
    removed: tuple[str, ...] = ()
    base_snapshot_id: str | None = None
    operation: str = "append"
    properties: dict[str, str] = {}


class CommitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot that a commit made."""

    snapshot_id: str
    prev_snapshot_id: str | None
    added: int
    removed: int
    row_count: int
    block_count: int


class SnapshotInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a table's history."""

    snapshot_id: str
    prev_snapshot_id: str | None
    timestamp_ms: int
    operation: str
    row_count: int
    block_count: int
    segment_count: int
    file_size_bytes: int


class SnapshotList(msgspec.Struct, frozen=True, kw_only=True):
    """``GET .../snapshots``, newest first."""

    snapshots: tuple[SnapshotInfo, ...]
    next_page_token: str | None = None


class PruneRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../prune``.

    ``filter``: SQL text (Spark's dialect) or a JSON tree (Iceberg's expression grammar); None matches every row.
    At most one of ``snapshot_id`` and ``timestamp`` (Unix ms, or ISO 8601 text; the snapshot in force then).
    ``columns``: what will be read, for ``column_size_bytes``. ``time_zone``: the session's, for timestamps without one.
    """

    filter: Any = None
    columns: tuple[str, ...] | None = None
    snapshot_id: str | None = None
    timestamp: int | str | None = None
    time_zone: str = "UTC"
    case_sensitive: bool = False
    level: Level = "block"
    shape: Shape = "records"
    explain: bool = False


class PrunedBlock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A block that must be read. ALL: every row matches. SOME: rows may match. UNKNOWN: kept for want of proof."""

    location: str
    row_count: int
    file_size: int
    verdict: Verdict
    column_size_bytes: int | None = None


class PrunedSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that may hold matching blocks (``level`` "segment")."""

    segment_id: str
    location: str
    block_count: int
    row_count: int
    file_size_bytes: int
    verdict: Verdict


class BlockColumns(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The blocks as arrays of equal length (``shape`` "columns"); cheaper to encode and to read."""

    location: list[str]
    row_count: list[int]
    file_size: list[int]
    verdict: list[Verdict]
    column_size_bytes: list[int] | None = None


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the funnel: entries looked at and kept, the data bytes of what was kept, and the time it took."""

    stage: str
    considered: int
    kept: int
    bytes: int
    ms: float


class NotUsed(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the filter that could not prune, and why."""

    predicate: str
    reason: str


class PredicateUse(msgspec.Struct, frozen=True, kw_only=True):
    """With ``explain``: a predicate, its column, and how many of the considered blocks it rules out on its own."""

    predicate: str
    column: str
    considered: int
    ruled_out: int
    unknown: int


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the answer came about. Totals are the snapshot's own."""

    stages: tuple[Stage, ...]
    not_used: tuple[NotUsed, ...] = ()
    blocks_total: int
    rows_total: int
    bytes_total: int
    filter: str | None = None
    predicates: tuple[PredicateUse, ...] | None = None


class PruneAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks to read (``blocks`` or, by ``shape``, ``block_columns``) or the segments (by ``level``)."""

    snapshot_id: str
    timestamp_ms: int
    report: Report
    blocks: tuple[PrunedBlock, ...] | None = None
    block_columns: BlockColumns | None = None
    segments: tuple[PrunedSegment, ...] | None = None


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An RFC 9457 problem document; ``code`` names the class of :mod:`lamella.snapshot.errors`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str | None = None
    details: dict[str, Any] = {}

"""What travels over HTTP: requests and answers, shared by the service and the clients (no HTTP library here).

Requests forbid members that are not known, so that a spelling mistake is an error and not silently nothing.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import SchemaChange
from lamella.snapshot.stats.bound import Bound

Verdict = Literal["ALL", "SOME", "UNKNOWN"]
Level = Literal["segment", "block", "page"]
Shape = Literal["records", "columns"]
AggregateFunction = Literal["count", "min", "max"]
AggregateMode = Literal["exact", "bounded"]


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
    """One table as it stands. ``location`` is its folder in the warehouse; jobs write blocks below ``location``/_b.

    ``schemas`` are the earlier schemas, oldest first; ``schema_ids_in_use`` those that blocks were written with.
    ``distinct_of_values``: about how many different values a column has, where that was measured, by dotted path.
    """

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
    schemas: tuple[Schema, ...] = ()
    schema_ids_in_use: tuple[int, ...] = ()
    distinct_of_values: dict[str, int] = {}

    @property
    def history(self) -> tuple[Schema, ...]:
        """Every schema the table has had, the current one last."""
        return (*self.schemas, self.schema)


class EvolveRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../schema``: changes, applied in order, all or none.

    ``base_schema_id``: do it only if that is the schema in force; else a conflict.
    """

    changes: tuple[SchemaChange, ...]
    base_schema_id: int | None = None


class SchemaInfo(msgspec.Struct, frozen=True, kw_only=True):
    """``GET .../schema``, and the answer of a change: the schema in force and the earlier ones, oldest first."""

    snapshot_id: str
    schema: Schema
    schemas: tuple[Schema, ...] = ()
    schema_ids_in_use: tuple[int, ...] = ()

    @property
    def history(self) -> tuple[Schema, ...]:
        """Every schema the table has had, the current one last."""
        return (*self.schemas, self.schema)


class TableList(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/namespaces/{ns}/tables``."""

    tables: tuple[str, ...]


class Register(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../register``. ``strict``: refuse everything when one file is refused.

    ``verify``: take the statistics from the files' values, all of which are read, and not from their footers.
    """

    paths: tuple[str, ...]
    strict: bool = False
    verify: bool = False


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


class OrderBy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A column of an order. ``nulls_first`` None: Spark's default, first when ascending, last when descending."""

    column: str
    descending: bool = False
    nulls_first: bool | None = None


class JoinKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The keys of the other side of an inner (or left semi) join on ``column``; at least one form of them.

    ``values``: every key, as the filter's literals. ``ranges``: ``[low, high]`` pairs that hold every key. ``bloom``: a
    split block bloom filter as Parquet's, over XXH64 of the keys' plain encoding, base64. Several forms must all hold.
    """

    column: str
    values: tuple[Any, ...] | None = None
    ranges: tuple[tuple[Any, Any], ...] | None = None
    bloom: str | None = None


class PruneRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../prune``.

    ``filter``: SQL text (Spark's dialect) or a JSON tree (Iceberg's expression grammar); None matches every row.
    At most one of ``snapshot_id`` and ``timestamp`` (Unix ms, or ISO 8601 text; the snapshot in force then).
    ``columns``: what will be read, for ``column_size_bytes``. ``time_zone``: the session's, for timestamps without one.
    ``reader_columns``: columns by whose Parquet statistics the reader would like to skip inside the blocks; the answer
    names those for which that loses no row.

    ``limit``: so many matching rows are enough, any of them, or with ``order_by`` the first ones. ``join``: rows that
    have no partner among these keys are not needed. ``residuals``: say what is left of the filter in each block.
    ``segments``: look at these only. ``max_ms``: answer after about that time, with what is not looked at yet in
    ``unresolved``. ``page_size``: at most so many blocks in one answer; ``page_token`` asks for those that follow.
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
    reader_columns: tuple[str, ...] = ()
    limit: int | None = None
    order_by: tuple[OrderBy, ...] = ()
    join: tuple[JoinKeys, ...] = ()
    residuals: bool = False
    segments: tuple[str, ...] | None = None
    max_ms: float | None = None
    page_size: int | None = None
    page_token: str | None = None


class OrderBound(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first key that a block may hold, in the order asked: a ``value`` (``bound``), null, NaN, or not known.

    No row of this block, nor of those behind it in the answer, comes before it. A reader that has k rows which all
    come before it is done.
    """

    first: Literal["value", "null", "nan", "unknown"]
    bound: Bound | None = None


class ColumnRanges(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The bytes of a column that hold a block's row ranges (``level`` "page"): arrays with one entry per stretch.

    A stretch is ``size_bytes`` at ``offset`` in the file: whole adjacent data pages with their headers, which hold
    ``row_count`` rows of the row group from its row ``first_row`` on. ``dictionary`` has (row group, offset, size in
    bytes) of each dictionary page that those need. A stretch of all rows of a row group that has no such entry is the
    whole column chunk, with its dictionary if it has one.
    """

    column: str
    row_group: list[int]
    first_row: list[int]
    row_count: list[int]
    offset: list[int]
    size_bytes: list[int]
    dictionary: list[tuple[int, int, int]] = []


class PrunedPages(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rows of a block that may match (``level`` "page"): arrays with one entry per range, in order.

    A range is ``row_count`` rows of the row group from its row ``first_row`` on, in the file from row ``file_row`` on.
    ``all_match``: where every row of a range matches, proven; absent when in none. ``columns`` are the bytes of the
    asked columns that hold them; those in ``unplaced`` are not in the file, or must be found by its footer. ``whole``:
    nothing is known of the row groups, any row may match. ``content_id`` is that of the file that all this is about;
    one that has another by now must be read by its footer. ``reason``: why nothing is known of the pages.
    """

    row_group: list[int] = []
    first_row: list[int] = []
    row_count: list[int] = []
    file_row: list[int] = []
    all_match: list[bool] | None = None
    columns: list[ColumnRanges] | None = None
    unplaced: list[str] = []
    whole: bool = False
    content_id: str | None = None
    reason: str | None = None


class PrunedBlock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A block that must be read. ALL: every row matches. SOME: rows may match. UNKNOWN: kept for want of proof.

    ``schema_id``: the schema whose names the file has, where it is not the snapshot's own. ``residual``: which of the
    answer's ``residuals`` is left of the filter. ``order_bound``: with ``order_by``.
    ``pages``: with ``level`` "page".
    """

    location: str
    row_count: int
    file_size: int
    verdict: Verdict
    column_size_bytes: int | None = None
    schema_id: int | None = None
    residual: int | None = None
    order_bound: OrderBound | None = None
    pages: PrunedPages | None = None


class PrunedSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that may hold matching blocks (``level`` "segment")."""

    segment_id: str
    location: str
    block_count: int
    row_count: int
    file_size_bytes: int
    verdict: Verdict


class BlockColumns(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The blocks as arrays of equal length (``shape`` "columns"); cheaper to encode and to read.

    ``schema_id`` is there when a block was written with another schema than the snapshot's (None: with that one).
    """

    location: list[str]
    row_count: list[int]
    file_size: list[int]
    verdict: list[Verdict]
    column_size_bytes: list[int] | None = None
    schema_id: list[int | None] | None = None
    residual: list[int] | None = None
    order_bound: list[OrderBound] | None = None
    pages: list[PrunedPages] | None = None


class Residual(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of the filter in some blocks: true for exactly those of their rows that the filter is true for.

    ``sql`` for people and engines that speak Spark's dialect, ``tree`` as a JSON filter, ``blocks`` that have it.
    """

    sql: str
    tree: Any
    blocks: int


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the funnel: entries looked at and kept, the data bytes of what was kept, and the time it took.

    The entries of stage "page" are rows.
    """

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


class LayerUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """With ``explain``: what one predicate decides in one layer, on its own.

    Of the ``considered`` entries ``none`` hold no match, ``all`` match wholly, ``some`` overlap, and ``unknown`` are
    kept for want of proof; ``reasons`` says what was wanting, with the number of entries for each reason.
    """

    predicate: str
    layer: Literal["snapshot", "segment", "block"]
    considered: int
    none: int
    some: int
    all: int
    unknown: int
    reasons: dict[str, int] = {}


class LimitUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a ``limit`` did. ``certain_rows``: rows that are proven to match, in the blocks looked at.

    ``decided``: they are enough, so that blocks were left out (or, with ``order_by``, a boundary was found).
    """

    limit: int
    certain_rows: int
    decided: bool


class PageUse(msgspec.Struct, frozen=True, kw_only=True):
    """Where page statistics came from: columns of blocks out of memory and of page companions, files that were opened.

    ``reasons``: why pages of some blocks are not known or not told apart, with the number of blocks.
    """

    cells_cached: int
    cells_from_companions: int
    files_read: int
    reasons: dict[str, int] = {}


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the answer came about. Totals are the snapshot's own."""

    stages: tuple[Stage, ...]
    not_used: tuple[NotUsed, ...] = ()
    blocks_total: int
    rows_total: int
    bytes_total: int
    filter: str | None = None
    predicates: tuple[PredicateUse, ...] | None = None
    layers: tuple[LayerUse, ...] | None = None
    limit: LimitUse | None = None
    pages: PageUse | None = None


class PruneAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks to read (``blocks`` or, by ``shape``, ``block_columns``) or the segments (by ``level``).

    ``reader_columns``: those of the request whose statistics in the blocks' own footers can be believed, in every block
    of this answer: both bounds and the null count, and no value is NaN. None unless blocks and columns were asked for.

    ``complete`` False: time ran out. The blocks of the segments in ``unresolved`` belong to the answer too; ask for
    them with ``segments`` and this ``snapshot_id``. ``next_page_token``: more blocks follow.
    """

    snapshot_id: str
    timestamp_ms: int
    report: Report
    blocks: tuple[PrunedBlock, ...] | None = None
    block_columns: BlockColumns | None = None
    segments: tuple[PrunedSegment, ...] | None = None
    reader_columns: tuple[str, ...] | None = None
    residuals: tuple[Residual, ...] | None = None
    complete: bool = True
    unresolved: tuple[PrunedSegment, ...] | None = None
    next_page_token: str | None = None


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../prune/batch``: many filters over one snapshot; each segment is read once for all of them.

    The other members are as of :class:`PruneRequest` and hold for every filter.
    """

    filters: tuple[Any, ...]
    columns: tuple[str, ...] | None = None
    snapshot_id: str | None = None
    timestamp: int | str | None = None
    time_zone: str = "UTC"
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

    ``to_snapshot_id`` None: the current snapshot.
    """

    from_snapshot_id: str
    to_snapshot_id: str | None = None
    filter: Any = None
    columns: tuple[str, ...] | None = None
    time_zone: str = "UTC"
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


class AggregateRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../aggregate``.

    ``aggregates``: ``count(*)``, ``count(c)``, ``min(c)``, ``max(c)``; names as in SQL (dots, backquotes).
    ``group_by``: columns. ``mode`` "exact": what the statistics prove, and the blocks that hold the rest; "bounded":
    limits that hold the true values, and nothing to scan. The rest as of :class:`PruneRequest`.
    """

    aggregates: tuple[str, ...]
    group_by: tuple[str, ...] = ()
    filter: Any = None
    mode: AggregateMode = "exact"
    snapshot_id: str | None = None
    timestamp: int | str | None = None
    time_zone: str = "UTC"
    case_sensitive: bool = False


class AggregateValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One aggregate of one group.

    Values are tagged as in manifests, so nothing is lost (``{"Int64": 3}``, ``{"Float64": "NaN"}``). Zeros are 0.0.
    ``value`` None: null, for there is no value among the rows counted. In mode "bounded" ``exact`` says whether
    ``value`` is the result; otherwise that is null only if ``may_be_null``, and else not below ``lower`` and not above
    ``upper`` (None: not limited on that side; NaN is above everything).
    """

    exact: bool = True
    value: Bound | None = None
    lower: Bound | None = None
    upper: Bound | None = None
    may_be_null: bool = False


class AggregateGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The aggregates of one group, in the order asked; ``key`` has one value for each ``group_by`` column.

    ``certain`` False (mode "bounded" only): perhaps no row is in the group, which then does not exist.
    """

    key: tuple[Bound | None, ...] = ()
    values: tuple[AggregateValue, ...]
    certain: bool = True


class AggregateColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of the result: how the request spelled it, and its type."""

    name: str
    type: str


class AggregateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the statistics say. ``complete``: it is the whole result.

    Otherwise, in mode "exact", the aggregates over the matching rows of the blocks in ``scan`` are still to be added:
    counts by addition, the least and the greatest value by comparison, groups by key. An ALL block in ``scan`` needs no
    filter. In mode "bounded" nothing is to be scanned; ``other_groups`` says whether groups may exist that are not
    listed. Blocks that cannot change the result are in neither.
    """

    snapshot_id: str
    timestamp_ms: int
    complete: bool
    group_columns: tuple[AggregateColumn, ...]
    columns: tuple[AggregateColumn, ...]
    groups: tuple[AggregateGroup, ...]
    other_groups: bool
    scan: tuple[PrunedBlock, ...]
    report: Report


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An RFC 9457 problem document; ``code`` names the class of :mod:`lamella.snapshot.errors`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str | None = None
    details: dict[str, Any] = {}

"""Prune requests and answers: one filter or many over one snapshot, one filter over two, and reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from lamella.snapshot.manifest import DeleteFile, live_rows
from lamella.snapshot.stats.bound import Bound
from lamella.snapshot.wire.limits import (
    MAX_LOCATIONS,
    BloomText,
    ColumnPath,
    ColumnPaths,
    Filters,
    KeyRanges,
    Keys,
    Moment,
    ReaderFeatures,
    Token,
    Word,
)


class NotUsed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A part of the filter that could not be used for pruning, and why."""

    predicate: str
    reason: str


class PredicateUse(msgspec.Struct, frozen=True, kw_only=True):
    """With ``explain``: a predicate, its column, and how many of the considered blocks it excludes on its own."""

    predicate: str
    column: str
    considered: int
    ruled_out: int
    unknown: int


class LayerUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """With ``explain``: what one predicate decides in one layer, on its own.

    Of the ``considered`` entries ``none`` contain no match, ``all`` match completely, ``some`` overlap, and ``unknown``
    are kept because nothing is proven; ``reasons`` names the missing proof, with the number of entries for each reason.
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
    """The effect of a ``limit``. ``certain_rows``: rows that are proven to match, in the blocks considered.

    ``decided``: they are enough, so that blocks were left out (or, with ``order_by``, a boundary was found).
    """

    limit: int
    certain_rows: int
    decided: bool


class PageUse(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of page statistics: columns of blocks from memory and from page sidecars, files that were opened.

    ``reasons``: why pages of some blocks are unknown or cannot be distinguished, with the number of blocks.
    """

    cells_cached: int
    cells_from_sidecars: int
    files_read: int
    reasons: dict[str, int] = {}


class Stage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One stage of the prune: entries considered and kept, the data bytes of the kept ones, and the time it took.

    The entries of stage "page" are rows.
    """

    stage: str
    considered: int
    kept: int
    bytes: int
    ms: float


class IndexUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A skip index that was probed for ``considered`` blocks, of which it excluded some.

    ``not_indexed``: blocks that it does not cover, or covers as other files; they are kept. ``parts`` objects were
    opened, and ``bytes`` of them read. ``stopped``: why not all blocks were probed; ``failure``: what could not be read
    of the index, whose blocks are kept.
    """

    name: str
    kind: str
    expression: str
    considered: int
    ruled_out: int
    not_indexed: int
    parts: int
    bytes: int
    ms: float
    stopped: str | None = None
    failure: str | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How the answer came about. Totals are the snapshot's own.

    ``from_cache``: the same query was answered for this snapshot before; the stages are those of that query, and took
    no time now. ``reused_blocks``: blocks that an earlier prune, possibly of another snapshot, had tested with this
    filter.
    """

    stages: tuple[Stage, ...]
    not_used: tuple[NotUsed, ...] = ()
    blocks_total: int
    rows_total: int
    bytes_total: int
    filter: str | None = None
    predicates: tuple[PredicateUse, ...] | None = None
    layers: tuple[LayerUse, ...] | None = None
    limit: LimitUse | None = None
    indexes: tuple[IndexUse, ...] = ()
    pages: PageUse | None = None
    from_cache: bool = False
    reused_blocks: int = 0


Verdict = Literal["ALL", "SOME", "UNKNOWN"]
Level = Literal["segment", "block", "page"]
Shape = Literal["records", "columns", "ranges"]


class OrderBy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A column of an order. ``nulls_first`` None: Spark's default, first when ascending, last when descending."""

    column: ColumnPath
    descending: bool = False
    nulls_first: bool | None = None


class JoinKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The keys of the other side of an inner (or left semi) join on ``column``; at least one form of them.

    ``values``: every key, as the filter's literals. ``ranges``: ``[low, high]`` pairs that contain every key.
    ``bloom``: a split block Bloom filter as in Parquet, over XXH64 of the keys' plain encoding, base64. If there are
    several forms, all of them apply.
    """

    column: ColumnPath
    values: Keys | None = None
    ranges: KeyRanges | None = None
    bloom: BloomText | None = None


class PruneRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../prune``.

    ``filter``: SQL text (Spark's dialect) or a JSON tree (Iceberg's expression grammar); None matches every row. At
    most one of ``snapshot_id`` (an id, or a tag) and ``timestamp`` (Unix ms, or ISO 8601 text; the snapshot that was
    current then). ``columns``: the columns that will be read, for ``column_size_bytes``. ``time_zone``: the session's,
    for timestamps without one. ``reader_columns``: columns by whose Parquet statistics the reader would like to skip
    inside the blocks; the answer names those for which that loses no rows. ``sign_urls``: with each block a URL through
    which it can be read for a limited time, without credentials for the store.

    ``limit``: this many matching rows are enough, any of them, or with ``order_by`` the first ones. ``join``: rows
    without a partner among these keys are not needed. ``residuals``: return the residual filter of each block.
    ``segments``: only these segments. ``max_ms``: answer after about that time, with the rest in ``unresolved``.
    ``page_size``: maximum number of blocks in one answer; ``page_token`` continues with those that follow.
    ``reader_features``: what the reader supports; a table that needs more refuses the request.
    """

    filter: Any = None
    columns: ColumnPaths | None = None
    snapshot_id: Word | None = None
    timestamp: int | Moment | None = None
    time_zone: Moment = "UTC"
    case_sensitive: bool = False
    level: Level = "block"
    shape: Shape = "records"
    explain: bool = False
    reader_columns: ColumnPaths = ()
    sign_urls: bool = False
    limit: int | None = None
    order_by: Annotated[tuple[OrderBy, ...], Meta(max_length=32)] = ()
    join: Annotated[tuple[JoinKeys, ...], Meta(max_length=32)] = ()
    residuals: bool = False
    segments: Annotated[tuple[Word, ...], Meta(max_length=MAX_LOCATIONS)] | None = None
    max_ms: float | None = None
    page_size: int | None = None
    page_token: Token | None = None
    reader_features: ReaderFeatures = ()


class OrderBound(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A lower limit of the keys of a block, in the requested order: a ``value`` (``bound``), null, NaN, or unknown.

    No row of this block, nor of those after it in the answer, sorts before it. A reader that has k rows which all sort
    before it is done.
    """

    first: Literal["value", "null", "nan", "unknown"]
    bound: Bound | None = None


class ColumnRanges(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The bytes of a column that contain a block's row ranges (``level`` "page"): arrays with one entry per byte range.

    A byte range is ``size_bytes`` at ``offset`` in the file: whole adjacent data pages with their headers, which
    contain ``row_count`` rows of the row group from its row ``first_row`` on. ``dictionary`` has (row group, offset,
    size in bytes) of each dictionary page that those need. A byte range of all rows of a row group without such an
    entry is the whole column chunk, with its dictionary if it has one.
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
    ``all_match``: where every row of a range is proven to match; absent if that is true of none. ``columns`` are the
    bytes of the requested columns that contain them; those in ``unplaced`` are not in the file, or must be located
    through its footer. ``whole``: nothing is known of the row groups, any row may match. ``content_id`` is that of the
    file described here; if the file has another one by now, it must be read through its footer. ``reason``: why nothing
    is known of the pages.
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
    """A block that must be read. ALL: every row matches. SOME: rows may match. UNKNOWN: kept because nothing is proven.

    ``schema_id``: the schema whose names the file has, if it is not the snapshot's own. ``residual``: the index of the
    block's residual filter in the answer's ``residuals``. ``order_bound``: with ``order_by``. ``pages``: with ``level``
    "page". ``url``: with ``sign_urls``; anyone who has it can read the block. ``constants``: by column id the value
    that every row has in a column that the file does not hold (None: null). ``deletes``: rows of the file that are not
    in the table; ``row_count`` includes them.
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
    url: str | None = None
    constants: dict[int, Bound | None] | None = None
    deletes: tuple[DeleteFile, ...] | None = None

    @property
    def live_row_count(self) -> int | None:
        """Returns the number of rows that are not deleted; None: unknown."""
        return live_rows(self.row_count, self.deletes or ())


class PrunedSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that may contain matching blocks (``level`` "segment")."""

    segment_id: str
    location: str
    block_count: int
    row_count: int
    file_size_bytes: int
    verdict: Verdict


class BlockColumns(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The blocks as arrays of equal length (``shape`` "columns"), which are cheaper to encode and to read.

    ``schema_id`` is present if a block was written with another schema than the snapshot's (None: with that one),
    ``constants`` and ``deletes`` if a block has any.
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
    url: list[str] | None = None
    constants: list[dict[int, Bound | None] | None] | None = None
    deletes: list[tuple[DeleteFile, ...] | None] | None = None


class BlockRanges(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks as runs (``shape`` "ranges"): arrays with one entry per run, in the snapshot's order.

    A run is ``block_count`` blocks of the segment ``segment_id[segment]``, from its block number ``first`` on, all with
    the same verdict. Blocks have the numbers of :class:`SegmentBlocks`, which never change. ``schema_id``: the
    snapshot's own.
    """

    segment_id: list[str]
    schema_id: int
    segment: list[int]
    first: list[int]
    block_count: list[int]
    verdict: list[Verdict]


class SegmentBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """``GET .../segments/{segment_id}/blocks``: the immutable properties of a segment's blocks, by their numbers.

    ``schema_id``: the schema whose names each block's file has. ``constants`` and ``deletes``: present if a block
    has any.
    """

    segment_id: str
    location: list[str]
    row_count: list[int]
    file_size: list[int]
    schema_id: list[int]
    constants: list[dict[int, Bound | None] | None] | None = None
    deletes: list[tuple[DeleteFile, ...] | None] | None = None


class Residual(msgspec.Struct, frozen=True, kw_only=True):
    """The residual filter of some blocks: true for exactly those of their rows for which the filter is true.

    ``sql`` for people and engines with Spark's dialect, ``tree`` as a JSON filter, ``blocks`` that have it.
    """

    sql: str
    tree: Any
    blocks: int


class PruneAnswer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The blocks to read (by ``shape`` in ``blocks``, ``block_columns`` or ``block_ranges``), or the segments.

    ``reader_columns``: those of the request whose statistics in the blocks' own footers can be trusted, in every block
    of this answer: both bounds and the null count, and no value is NaN. None unless blocks and columns were requested.

    ``complete`` False: the time limit was reached. The blocks of the segments in ``unresolved`` belong to the answer
    too; request them with ``segments`` and this ``snapshot_id``. ``next_page_token``: more blocks follow.
    ``url_expires_ms``: until when the blocks' URLs are valid (Unix milliseconds).
    """

    snapshot_id: str
    timestamp_ms: int
    report: Report
    blocks: tuple[PrunedBlock, ...] | None = None
    block_columns: BlockColumns | None = None
    block_ranges: BlockRanges | None = None
    segments: tuple[PrunedSegment, ...] | None = None
    reader_columns: tuple[str, ...] | None = None
    residuals: tuple[Residual, ...] | None = None
    complete: bool = True
    unresolved: tuple[PrunedSegment, ...] | None = None
    next_page_token: str | None = None
    url_expires_ms: int | None = None


def block_records(answer: PruneAnswer) -> Iterator[PrunedBlock]:
    """Yields the blocks of an answer of shape "records" or "columns"."""
    columns = answer.block_columns
    if columns is None:
        yield from answer.blocks or ()
        return
    given = {name: getattr(columns, name) for name in BlockColumns.__struct_fields__}
    lists = {name: values for name, values in given.items() if values is not None}
    for row in zip(*lists.values(), strict=True):
        yield PrunedBlock(**dict(zip(lists, row, strict=True)))


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../prune/batch``: many filters over one snapshot; each segment is read once for all of them.

    The other members are those of :class:`PruneRequest` and apply to every filter.
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
    reader_features: ReaderFeatures = ()


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer per filter, in order."""

    snapshot_id: str
    timestamp_ms: int
    answers: tuple[PruneAnswer, ...]


class DiffRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../diff``: the blocks that were added and removed between two snapshots, as far as they may match
    ``filter``.

    Exactly one of ``from_snapshot_id`` (an id, tag or number) and ``from_timestamp``; at most one of the other two, by
    default the current snapshot. Times as in :class:`PruneRequest`.
    """

    from_snapshot_id: Word | None = None
    to_snapshot_id: Word | None = None
    from_timestamp: int | Moment | None = None
    to_timestamp: int | Moment | None = None
    filter: Any = None
    columns: ColumnPaths | None = None
    time_zone: Moment = "UTC"
    case_sensitive: bool = False
    reader_features: ReaderFeatures = ()


class DiffAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """``added`` blocks are only in the later state, ``removed`` ones only in the earlier; verdicts as in a prune.

    A block that was replaced in place (same location, other content) is in both. ``unchanged_blocks``: blocks that both
    snapshots have, matching or not. ``segments_skipped``: shared by both and therefore not read.
    """

    from_snapshot_id: str
    to_snapshot_id: str
    added: tuple[PrunedBlock, ...]
    removed: tuple[PrunedBlock, ...]
    unchanged_blocks: int
    segments_skipped: int
    segments_read: int

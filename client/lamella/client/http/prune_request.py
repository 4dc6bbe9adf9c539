"""Requests that are answered from statistics: filters, stages (order, limit, join keys, budget, pages), and calls."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, TypedDict

import msgspec

from lamella.client.filters import plain_filter
from lamella.client.http import call as calls
from lamella.client.http.call import Call, Filter, TableName, decode_as, make_call, text_tuple, timestamp_of
from lamella.client.http.results import AggregateResult, PruneBatchResult, PruneResult, own_blocks
from lamella.snapshot import wire
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.wire import (
    BlockColumns,
    IndexUse,
    JoinKeys,
    OrderBy,
    PageUse,
    PrunedBlock,
    Report,
    Residual,
    Stage,
    operations,
)

#: One column of an order: a struct of the wire, or SQL text (``price DESC NULLS LAST``).
Order = str | OrderBy
#: An order of one or several columns.
OrderSpec = Order | Sequence[Order]

_ORDER: Final = re.compile(
    r"\s*(?P<column>.+?)(?:\s+(?P<way>ASC|DESC))?(?:\s+NULLS\s+(?P<nulls>FIRST|LAST))?\s*", re.IGNORECASE
)
#: The parts of an order; a comma between backquotes separates nothing.
_BETWEEN_COMMAS: Final = re.compile(r"(?:^|,)((?:[^,`]|`[^`]*`|`)*)")


class Stages(msgspec.Struct, frozen=True, kw_only=True):
    """The stages of a prune after its filter; see :class:`lamella.snapshot.wire.PruneRequest`."""

    limit: int | None = None
    order_by: tuple[OrderBy, ...] = ()
    join: tuple[JoinKeys, ...] = ()
    residuals: bool = False
    segments: tuple[str, ...] | None = None
    max_ms: float | None = None
    page_size: int | None = None
    page_token: str | None = None
    sign_urls: bool = False
    reader_features: tuple[str, ...] = ()

    def at(self, page_token: str | None) -> Stages:
        """The same stages for the page that begins at a token."""
        return msgspec.structs.replace(self, page_token=page_token)


NO_STAGES: Final = Stages()


def stages(
    limit: int | None,
    order_by: OrderSpec,
    join: JoinKeys | Sequence[JoinKeys],
    residuals: bool,
    segments: Sequence[str] | None,
    max_ms: float | None,
    page_size: int | None,
    sign_urls: bool = False,
    reader_features: Sequence[str] = (),
) -> Stages:
    """The stages of a call's arguments; raises InvalidRequest when the order cannot be parsed."""
    if isinstance(segments, str):
        raise InvalidRequest("segments is a list of strings, not one string")
    return Stages(
        limit=limit,
        order_by=read_order(order_by),
        join=(join,) if isinstance(join, JoinKeys) else tuple(join),
        residuals=residuals,
        segments=None if segments is None else tuple(segments),
        max_ms=max_ms,
        page_size=page_size,
        sign_urls=sign_urls,
        reader_features=text_tuple("reader_features", reader_features),
    )


def read_order(given: OrderSpec) -> tuple[OrderBy, ...]:
    """Parse an order such as ``"a DESC, b"`` or ``["a DESC", "b"]``; raises InvalidRequest.

    Quoted names stay quoted, as in filters: the service and the reader resolve them.
    """
    if isinstance(given, str):
        given = _BETWEEN_COMMAS.findall(given)
    parts: Sequence[Order] = [given] if isinstance(given, OrderBy) else given
    return tuple(_one(part) if isinstance(part, str) else part for part in parts)


def _one(text: str) -> OrderBy:
    found = _ORDER.fullmatch(text)
    if found is None:
        raise InvalidRequest(f"not a column to order by: {text!r}")
    nulls = found["nulls"]
    return OrderBy(
        column=found["column"],
        descending=(found["way"] or "").upper() == "DESC",
        nulls_first=None if nulls is None else nulls.upper() == "FIRST",
    )


def merge_pages(pages: Sequence[PruneResult]) -> PruneResult:
    """Merge the pages of one prune into one answer.

    ``url_expires_ms`` is the earliest of all pages. The report's counts of blocks, indexes and pages are added up; the
    rest is that of the first page. When two pages share a segment, an index was evaluated for each of them.
    """
    first = pages[0]
    if len(pages) == 1:
        return first
    if any(page.snapshot_id != first.snapshot_id for page in pages):
        raise LamellaError("the pages of one answer are of different snapshots")
    table: dict[str, Residual] = {}
    numbers: list[dict[int, int]] = []
    for page in pages:
        for residual in page.residuals or ():
            known = table.get(residual.sql)
            blocks = residual.blocks + (0 if known is None else known.blocks)
            table[residual.sql] = msgspec.structs.replace(residual, blocks=blocks)
        indexes = {sql: index for index, sql in enumerate(table)}
        numbers.append({index: indexes[residual.sql] for index, residual in enumerate(page.residuals or ())})
    believed = None
    if first.reader_columns is not None:
        in_all = [set(page.reader_columns or ()) for page in pages]
        believed = tuple(name for name in first.reader_columns if all(name in names for names in in_all))
    return msgspec.structs.replace(
        first,
        report=_report(pages),
        blocks=None if own_blocks(first) is None else _records(pages, numbers),
        block_columns=None if first.block_columns is None else _columns(pages, numbers),
        residuals=None if first.residuals is None else tuple(table.values()),
        reader_columns=believed,
        next_page_token=pages[-1].next_page_token,
        url_expires_ms=min((page.url_expires_ms for page in pages if page.url_expires_ms is not None), default=None),
    )


def _records(pages: Sequence[PruneResult], numbers: Sequence[dict[int, int]]) -> tuple[PrunedBlock, ...]:
    return tuple(
        block if block.residual is None else msgspec.structs.replace(block, residual=number[block.residual])
        for page, number in zip(pages, numbers, strict=True)
        for block in own_blocks(page) or ()
    )


def _columns(pages: Sequence[PruneResult], numbers: Sequence[dict[int, int]]) -> BlockColumns:
    parts = []
    for page, number in zip(pages, numbers, strict=True):
        columns = page.block_columns
        if columns is not None and columns.residual is not None:
            columns = msgspec.structs.replace(columns, residual=[number[index] for index in columns.residual])
        if columns is not None:
            parts.append(columns)
    given: dict[str, Any] = {}
    for name in BlockColumns.__struct_fields__:
        values = [getattr(columns, name) for columns in parts]
        if all(value is None for value in values):
            given[name] = None
        else:  # a page leaves out a member that has no value
            given[name] = [
                item
                for columns, value in zip(parts, values, strict=True)
                for item in (value if value is not None else [None] * len(columns.location))
            ]
    return BlockColumns(**given)


def _report(pages: Sequence[PruneResult]) -> Report:
    report = pages[0].report
    if report.limit is not None or any(block.order_bound is not None for block in islice(pages[0].records(), 1)):
        return report  # each page evaluated all segments
    totals = {stage.stage: stage for stage in report.stages}
    for page in pages[1:]:
        for stage in page.report.stages:
            known = totals.get(stage.stage)
            if known is not None and not stage.stage.startswith(("snapshot", "segment")):
                totals[stage.stage] = Stage(
                    stage=stage.stage,
                    considered=known.considered + stage.considered,
                    kept=known.kept + stage.kept,
                    bytes=known.bytes + stage.bytes,
                    ms=known.ms + stage.ms,
                )
    not_used = dict.fromkeys(use for page in pages for use in page.report.not_used)
    return msgspec.structs.replace(
        report,
        stages=tuple(totals.values()),
        not_used=tuple(not_used),
        indexes=_indexes([use for page in pages for use in page.report.indexes]),
        pages=_pages([page.report.pages for page in pages if page.report.pages is not None]),
    )


def _indexes(uses: Sequence[IndexUse]) -> tuple[IndexUse, ...]:
    """The reports of skip indexes over all pages, one for each index."""
    found: dict[str, IndexUse] = {}
    for use in uses:
        known = found.get(use.name)
        found[use.name] = use if known is None else _both(known, use)
    return tuple(found.values())


def _both(first: IndexUse, second: IndexUse) -> IndexUse:
    return msgspec.structs.replace(
        first,
        considered=first.considered + second.considered,
        ruled_out=first.ruled_out + second.ruled_out,
        not_indexed=first.not_indexed + second.not_indexed,
        parts=first.parts + second.parts,
        bytes=first.bytes + second.bytes,
        ms=first.ms + second.ms,
        stopped=first.stopped or second.stopped,
        failure=first.failure or second.failure,
    )


def _pages(uses: Sequence[PageUse]) -> PageUse | None:
    """The sources of page statistics over all pages of the answer."""
    if not uses:
        return None
    reasons: Counter[str] = Counter()
    for use in uses:
        reasons.update(use.reasons)
    return PageUse(
        cells_cached=sum(use.cells_cached for use in uses),
        cells_from_sidecars=sum(use.cells_from_sidecars for use in uses),
        files_read=sum(use.files_read for use in uses),
        reasons=dict(reasons),
    )


def prune_call(
    name: TableName,
    filter: Filter,
    columns: Sequence[str] | None,
    snapshot_id: str | None,
    timestamp: int | str | dt.datetime | None,
    time_zone: str,
    case_sensitive: bool,
    level: wire.Level,
    shape: wire.Shape,
    explain: bool,
    reader_columns: Sequence[str],
    behind: Stages = NO_STAGES,
) -> Call[PruneResult]:
    """The blocks (or segments) that remain after a filter."""
    body = wire.PruneRequest(
        filter=plain_filter(filter, time_zone),
        columns=None if columns is None else text_tuple("columns", columns),
        snapshot_id=snapshot_id,
        timestamp=timestamp_of(timestamp),
        time_zone=time_zone,
        case_sensitive=case_sensitive,
        level=level,
        shape=shape,
        explain=explain,
        reader_columns=text_tuple("reader_columns", reader_columns),
        **msgspec.structs.asdict(behind),
    )
    return decode_as(PruneResult, make_call(operations.prune.PRUNE, name, body=body))


def prune_batch_call(name: TableName, body: wire.BatchRequest) -> Call[PruneBatchResult]:
    """The blocks that remain after each of several filters."""
    return decode_as(PruneBatchResult, make_call(operations.prune.PRUNE_BATCH, name, body=body))


def diff_call(name: TableName, body: wire.DiffRequest) -> Call[wire.DiffAnswer]:
    """The blocks that were added and removed between two snapshots."""
    return make_call(operations.prune.DIFF, name, body=body)


def aggregate_call(
    name: TableName,
    aggregates: Sequence[str],
    filter: Filter,
    group_by: Sequence[str],
    mode: wire.AggregateMode,
    snapshot_id: str | None,
    timestamp: int | str | dt.datetime | None,
    time_zone: str,
    case_sensitive: bool,
    reader_features: Sequence[str],
    max_scan_blocks: int | None,
) -> Call[AggregateResult]:
    """Counts, minima and maxima from statistics."""
    body = wire.AggregateRequest(
        aggregates=text_tuple("aggregates", aggregates),
        group_by=text_tuple("group_by", group_by),
        filter=plain_filter(filter, time_zone),
        mode=mode,
        snapshot_id=snapshot_id,
        timestamp=timestamp_of(timestamp),
        time_zone=time_zone,
        case_sensitive=case_sensitive,
        reader_features=text_tuple("reader_features", reader_features),
        max_scan_blocks=max_scan_blocks,
    )
    return decode_as(AggregateResult, make_call(operations.prune.AGGREGATE, name, body=body))


#: Made when the module is loaded: the process crashes when two threads first decode a struct at once (msgspec 0.22).
_REQUEST: Final = msgspec.json.Decoder(wire.PruneRequest)


class PruneOptions(TypedDict, total=False):
    """The keyword arguments of a prune; see :meth:`lamella.client.Table.prune`."""

    snapshot_id: str | None
    timestamp: int | str | dt.datetime | None
    time_zone: str
    case_sensitive: bool
    shape: wire.Shape
    explain: bool
    reader_columns: Sequence[str]
    limit: int | None
    order_by: OrderSpec
    join: wire.JoinKeys | Sequence[wire.JoinKeys]
    residuals: bool
    segments: Sequence[str] | None
    sign_urls: bool
    reader_features: Sequence[str]


def first_page_call(
    name: TableName, filter: Filter, columns: Sequence[str] | None, page_size: int, options: PruneOptions
) -> Call[PruneResult]:
    """The call for the first page."""
    behind = stages(
        options.get("limit"),
        options.get("order_by", ()),
        options.get("join", ()),
        options.get("residuals", False),
        options.get("segments"),
        None,
        page_size,
        options.get("sign_urls", False),
        options.get("reader_features", ()),
    )
    return prune_call(
        name,
        filter,
        columns,
        options.get("snapshot_id"),
        options.get("timestamp"),
        options.get("time_zone", "UTC"),
        options.get("case_sensitive", False),
        "block",
        options.get("shape", "columns"),
        options.get("explain", False),
        options.get("reader_columns", ()),
        behind,
    )


def batch_body(
    filters: Sequence[Filter],
    columns: Sequence[str] | None,
    snapshot_id: str | None,
    timestamp: int | str | dt.datetime | None,
    time_zone: str,
    case_sensitive: bool,
    shape: wire.Shape,
    explain: bool,
    residuals: bool,
    reader_features: Sequence[str],
) -> wire.BatchRequest:
    """The body of a batch; raises InvalidRequest for one filter instead of a list."""
    if isinstance(filters, str) or not isinstance(filters, Sequence):
        raise InvalidRequest("filters is a list of filters, not one filter")
    return wire.BatchRequest(
        filters=tuple(plain_filter(filter, time_zone) for filter in filters),
        columns=None if columns is None else tuple(columns),
        snapshot_id=snapshot_id,
        timestamp=calls.timestamp_of(timestamp),
        time_zone=time_zone,
        case_sensitive=case_sensitive,
        shape=shape,
        explain=explain,
        residuals=residuals,
        reader_features=text_tuple("reader_features", reader_features),
    )


def diff_body(
    from_snapshot_id: str | None,
    to_snapshot_id: str | None,
    from_timestamp: int | str | dt.datetime | None,
    to_timestamp: int | str | dt.datetime | None,
    filter: Filter,
    columns: Sequence[str] | None,
    time_zone: str,
    case_sensitive: bool,
    reader_features: Sequence[str],
) -> wire.DiffRequest:
    """The body of a request for the difference between two snapshots."""
    return wire.DiffRequest(
        from_snapshot_id=from_snapshot_id,
        to_snapshot_id=to_snapshot_id,
        from_timestamp=calls.timestamp_of(from_timestamp),
        to_timestamp=calls.timestamp_of(to_timestamp),
        filter=plain_filter(filter, time_zone),
        columns=None if columns is None else tuple(columns),
        time_zone=time_zone,
        case_sensitive=case_sensitive,
        reader_features=text_tuple("reader_features", reader_features),
    )


def next_page_call(first: Call[PruneResult], page: PruneResult) -> Call[PruneResult] | None:
    """The call for the page after ``page``; None when that was the last."""
    if page.next_page_token is None:
        return None
    request = _REQUEST.decode(first.body)
    body = msgspec.structs.replace(request, page_token=page.next_page_token)
    return msgspec.structs.replace(first, body=msgspec.json.encode(body))

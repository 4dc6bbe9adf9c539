"""One table: its figures, its columns and its indexes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, cast, get_args

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import principal_of
from lamella.service.catalog import Catalog, TableRecord
from lamella.service.clustering.clustering import Clustering
from lamella.service.dashboard.names import columns_of
from lamella.service.dashboard.pages import (
    ROOT,
    Page,
    Pages,
    Sorting,
    at_of,
    link,
    number_of,
    sorting_of,
    table_of,
    text_of,
)
from lamella.service.dashboard.preview import BackgroundFigures, WhenClosing
from lamella.service.features import Advisor
from lamella.service.history.history import History, cluster_key_info, table_info, trusted_manifests
from lamella.service.indexes.indexes import Indexes
from lamella.service.jobs.policies import Policies
from lamella.service.jobs.schedules import Schedules
from lamella.service.maintenance.table_health import TableHealths
from lamella.service.process.threads import Threads
from lamella.service.usage.audit import Audit
from lamella.service.usage.filters import PruneRates
from lamella.snapshot.errors import InvalidRequest, LamellaError, PolicyNotFound
from lamella.snapshot.manifest import ClusterKind, Snapshot
from lamella.snapshot.schema.column import split_key
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.block_view import ColumnView, column_view
from lamella.snapshot.wire import (
    AdviceRequest,
    AuditEntry,
    ClusteringAnswer,
    ClusterKeyRequest,
    IndexList,
    PolicyInfo,
    PruneRate,
    SnapshotInfo,
)
from lamella.snapshot.wire.operation import on_table
from lamella.snapshot.wire.operations.usage import BUCKET_MS

TABLE: Final = ROOT + "/tables/{namespace}/{table}"
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
_KINDS: Final = cast("tuple[ClusterKind, ...]", get_args(ClusterKind))
#: What columns can be sorted by; at first by their place in the table.
_COLUMN_ORDERS: Final = ("place", "name", "type", "nulls", "distinct")
#: Columns, and schemas, on one page.
MAX_COLUMNS: Final = 500
_MAX_SCHEMAS: Final = 20
#: Snapshots on the summary of a table.
_RECENT: Final = 5
#: Layouts whose depth is cached.
_MAX_PREPARED: Final = 64


class TablePages:
    """Pages of a table."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        advice: Advisor | None,
        readers: Threads,
        clustering: Clustering,
        history: History,
        indexes: Indexes,
        warehouse: Warehouse,
        schedules: Schedules,
        policies: Policies,
        healths: TableHealths,
        prune_rates: PruneRates,
        audit: Audit,
        clock: Callable[[], int],
        when_closing: WhenClosing,
        pages: Pages,
    ) -> None:
        self._catalog = catalog
        self._advice = advice
        self._readers = readers
        self._clustering = clustering
        self._history = history
        self._indexes = indexes
        self._warehouse = warehouse
        self._schedules = schedules
        self._policies = policies
        self._healths = healths
        self._prune_rates = prune_rates
        self._audit = audit
        self._clock = clock
        self._pages = pages
        self._figures: BackgroundFigures[ClusteringAnswer] = BackgroundFigures(
            when_closing, _MAX_PREPARED, name="ui-figures"
        )
        self._histograms: BackgroundFigures[tuple[tuple[str, int], ...]] = BackgroundFigures(
            when_closing, _MAX_PREPARED, name="ui-depths"
        )
        self._scores: BackgroundFigures[dict[str, float]] = BackgroundFigures(
            when_closing, _MAX_PREPARED, name="ui-scores"
        )

    async def summary(self, request: Request) -> Response:
        values = await self._readers.run(lambda: self._summary(request))
        return self._pages.html(request, "table.html", values, title=f"{values['namespace']}.{values['table']}")

    async def columns(self, request: Request) -> Response:
        values = await self._readers.run(lambda: self._columns(request))
        title = f"Columns of {values['namespace']}.{values['table']}"
        return self._pages.html(request, "columns.html", values, title=title)

    async def indexes(self, request: Request) -> Response:
        values = await self._readers.run(lambda: self._index_page(request))
        title = f"Indexes of {values['namespace']}.{values['table']}"
        return self._pages.html(request, "indexes.html", values, title=title)

    async def set_key(self, request: Request) -> Response:
        form = await self._pages.form(request)
        columns = split_key(form.text("columns"))
        kind = next((each for each in _KINDS if each == (form.text("kind") or "linear")), None)
        if kind is None:
            raise InvalidRequest(f"{form.text('kind')!r} is not a kind of cluster key", parameter="kind")
        key_request = ClusterKeyRequest(columns=columns, kind=kind, base_snapshot_id=form.text("base") or None)

        def work(idempotency_key: Any) -> Any:
            return self._clustering.set_key(table_of(self._catalog, request), key_request, idempotency_key)

        await self._pages.change(request, form, work)
        names = request.path_params
        return self._pages.see(link("tables", names["namespace"], names["table"], done="key_set"))

    def pages(self) -> tuple[Page, ...]:
        return (
            Page(TABLE, self.summary, "ui_table", on_table("read")),
            Page(TABLE + "/columns", self.columns, "ui_columns", on_table("read")),
            Page(TABLE + "/indexes", self.indexes, "ui_indexes", on_table("read")),
            Page(TABLE + "/cluster-key", self.set_key, "ui_set_cluster_key", on_table("maintain"), "POST"),
        )

    def _summary(self, request: Request) -> dict[str, Any]:
        record, at = table_of(self._catalog, request), at_of(request)
        pointer = at.pointer(self._history, record)
        with trusted_manifests():
            snapshot = self._warehouse.snapshot(pointer)
            info = table_info(record, snapshot)
        now_ms = self._clock()
        series = self._prune_rates.series(record.table_id, since_ms=now_ms - DAY_MS)
        figures = histogram = problem = None
        if info.cluster_key and info.block_count:
            try:
                histogram = self._histograms.peek(
                    pointer.snapshot_id, lambda: self._depths(record, pointer.snapshot_id)
                )
                figures = self._figures.peek(
                    pointer.snapshot_id,
                    lambda: self._clustering.figures(record, (), "linear", snapshot_id=pointer.snapshot_id, recorded=0),
                )
            except LamellaError as error:
                problem = error
        is_current = pointer.snapshot_id == record.pointer.snapshot_id
        health = self._healths.peek(record) if is_current else None
        recent = self._history.page(record, page_size=_RECENT + 1, page_token=None).snapshots if is_current else ()
        has_layout = bool(info.cluster_key) and bool(info.block_count) and problem is None
        waits = (is_current and health is None) or (has_layout and (figures is None or histogram is None))
        return {
            **_frame(record, ""),
            "at": at.text,
            "info": info,
            "is_current": is_current,
            "health": health,
            "hour": _together([each for each in series if (each.bucket_ms or 0) > now_ms - HOUR_MS - BUCKET_MS]),
            "day": _together(series),
            "rate_points": _rate_points(series),
            "figures": figures,
            "histogram": histogram,
            "figures_problem": problem,
            "waits": waits,
            "kinds": _KINDS,
            "wanted_key": text_of(request, "key"),
            "lists": {"columns": columns_of(snapshot)},
            "policy": _policy(self._policies, record),
            "schedules": self._schedules.list(record).schedules,
            "recent": recent[:_RECENT],
            "earlier": dict(zip((each.snapshot_id for each in recent), recent[1:], strict=False)),
            "committed_by": committers(self._audit, request, record, recent),
        }

    def _depths(self, record: TableRecord, snapshot_id: str) -> tuple[tuple[str, int], ...]:
        with trusted_manifests():
            pointer = self._history.pointer(record, snapshot_id=snapshot_id)
            depth = self._warehouse.layer_maps.of(pointer).depth
        return () if depth is None else depth_bars(depth)

    def _columns(self, request: Request) -> dict[str, Any]:
        record, at = table_of(self._catalog, request), at_of(request)
        pointer = at.pointer(self._history, record)
        with trusted_manifests():
            snapshot = self._warehouse.snapshot(pointer)
        key, start = cluster_key_info(snapshot), number_of(request, "row")
        part, sorting = text_of(request, "name"), sorting_of(request, _COLUMN_ORDERS)
        lines = sorted_columns([each for each in column_lines(snapshot) if part.lower() in each.name.lower()], sorting)
        return {
            **_frame(record, "columns"),
            "at": at.text,
            "lists": self._pages.names.of_table(record, snapshot),
            "snapshot_id": pointer.snapshot_id,
            "timestamp_ms": pointer.timestamp_ms,
            "row_count": snapshot.summary.row_count,
            "lines": lines[start : start + MAX_COLUMNS],
            "name": part,
            "sorting": sorting,
            "start": start,
            "column_count": len(lines),
            "max_columns": MAX_COLUMNS,
            "key": key.columns,
            "schemas": snapshot.history[-_MAX_SCHEMAS:],
            "schema_count": len(snapshot.history),
            "schema": snapshot.schema,
        }

    def _index_page(self, request: Request) -> dict[str, Any]:
        record = table_of(self._catalog, request)
        maintains = principal_of(request).rights.may("maintain", record.namespace, record.name)
        found = self._indexes.list(record, dropped=True)
        advice = self._advice
        scores: dict[str, float] | None = {}
        if advice is not None:
            try:
                scores = self._scores.peek(
                    found.snapshot_id, lambda: index_scores(self._warehouse, advice, record, found)
                )
            except LamellaError:
                scores = {}  # advice that cannot be had leaves the rest of the page as it is
        return {
            **_frame(record, "indexes"),
            "indexes": found.indexes,
            "scores": scores,
            # they may have constants of other people's filters
            "recorded": advice.recorded(record) if maintains and advice is not None else None,
        }


def committers(
    audit: Audit, request: Request, record: TableRecord, snapshots: Sequence[SnapshotInfo]
) -> dict[str, list[AuditEntry]]:
    """Return the requests that committed snapshots, by the snapshot's id, for one who administers the table."""
    if not principal_of(request).rights.may("admin", record.namespace, record.name):
        return {}
    return audit.of_snapshots([each.snapshot_id for each in snapshots])


def column_lines(snapshot: Snapshot) -> tuple[ColumnView, ...]:
    """Return the columns of a snapshot from its summary."""
    stats = snapshot.summary.col_stats
    return tuple(column_view(leaf, stats.get(leaf.id), None) for leaf in snapshot.schema.leaves())


def sorted_columns(lines: Sequence[ColumnView], sorting: Sorting) -> list[ColumnView]:
    """Return columns as an address sorts them; those whose figure is not known come last."""
    keys: dict[str, Callable[[ColumnView], Any]] = {
        "name": lambda each: each.name.lower(),
        "type": lambda each: (each.type, each.name.lower()),
        "nulls": lambda each: each.null_count,
        "distinct": lambda each: each.distinct_count,
    }
    key = keys.get(sorting.column)
    if key is None:
        return list(lines)
    known = sorted((each for each in lines if key(each) is not None), key=key, reverse=sorting.descending)
    return [*known, *(each for each in lines if key(each) is None)]


def index_scores(warehouse: Warehouse, advice: Advisor, record: TableRecord, found: IndexList) -> dict[str, float]:
    """What each index that is in use adds to bounds, by its name; none of those of which manifests cannot tell."""
    with trusted_manifests():
        names = {leaf.name for leaf in warehouse.head(record.pointer).schema.leaves()}
    scores = {}
    for index in found.indexes:
        if index.dropped_ms is not None or index.not_usable or index.expression not in names:
            continue
        question = AdviceRequest(
            columns=(index.expression,),
            kinds=(index.kind,),
            options={index.kind: index.options},
            snapshot_id=found.snapshot_id,
        )
        for score in advice.advise(record, question).scores:
            if score.kind == index.kind and score.layer == "block" and score.score is not None:
                scores[index.name] = score.score
    return scores


def depth_bars(depth: Any) -> tuple[tuple[str, int], ...]:
    """Return how many blocks have each depth: 1 to 16 one by one, then by powers of two."""
    known = np.asarray(depth)
    known = known[known > 0]
    if not len(known):
        return ()
    counts = np.bincount(known)
    bars = [(str(each), int(counts[each])) for each in range(1, min(16, len(counts) - 1) + 1)]
    low = 17
    while low < len(counts):
        high = 2 ** math.ceil(math.log2(low)) if low > 17 else 32
        bars.append((f"{low}-{high}", int(counts[low : high + 1].sum())))
        low = high + 1
    return tuple(bars)


def _frame(record: TableRecord, tab: str) -> dict[str, Any]:
    return {"namespace": record.namespace, "table": record.name, "tab": tab}


def _policy(policies: Policies, record: TableRecord) -> PolicyInfo | None:
    try:
        return policies.get(record)
    except PolicyNotFound:
        return None


def _together(series: Sequence[PruneRate]) -> dict[str, float]:
    sums = {
        name: sum(getattr(each, name) for each in series)
        for name in ("prunes", "considered_blocks", "kept_blocks", "bytes_total", "kept_bytes", "ms")
    }
    considered, total = sums["considered_blocks"], sums["bytes_total"]
    return {
        **sums,
        "skipped": 1 - sums["kept_blocks"] / considered if considered else math.nan,
        "skipped_bytes": 1 - sums["kept_bytes"] / total if total else math.nan,
    }


def _rate_points(series: Sequence[PruneRate]) -> list[tuple[float, float]]:
    return [
        (each.bucket_ms or 0, 1 - each.kept_blocks / each.considered_blocks)
        for each in series
        if each.considered_blocks
    ]

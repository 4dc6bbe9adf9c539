"""The home page: what needs attention in the whole service, and all tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast, get_args

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lamella.service.access import Authenticator, principal_of
from lamella.service.access.principal import Principal
from lamella.service.catalog import Catalog, JobFilter, JobRecord, ListedTable, TableFilter, TableOrder
from lamella.service.dashboard.health import Health
from lamella.service.dashboard.pages import ROOT, Page, Pages, number_of, sorting_of, text_of
from lamella.service.dashboard.tables import DAY_MS, HOUR_MS
from lamella.service.jobs.queue import visible_jobs
from lamella.service.maintenance.table_health import TableHealths
from lamella.service.process.threads import Threads
from lamella.service.usage.filters import PruneRates
from lamella.snapshot.wire import PruneRate
from lamella.snapshot.wire.operation import AUTHENTICATED, PUBLIC

#: Tables on one page, findings on the home page, and on the page of findings.
_PAGE: Final = 50
_FEW: Final = 10
_MANY: Final = 100
#: Pending jobs that are looked through for those of the tables on the page.
_MAX_JOBS: Final = 500
_ORDERS: Final = cast("tuple[TableOrder, ...]", get_args(TableOrder))


class HomePages:
    """The home page, and the page of all findings."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        readers: Threads,
        authentication: Authenticator,
        health: Health,
        healths: TableHealths,
        prune_rates: PruneRates,
        clock: Callable[[], int],
        pages: Pages,
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._authentication = authentication
        self._health = health
        self._healths = healths
        self._prune_rates = prune_rates
        self._clock = clock
        self._pages = pages

    async def show(self, request: Request) -> Response:
        values = await self._readers.run(lambda: self._show(request))
        return self._pages.html(request, "home.html", values, title="Home")

    async def health(self, request: Request) -> Response:
        viewer, start = principal_of(request), number_of(request, "row")
        values = await self._readers.run(lambda: self._findings(viewer, self._count(viewer), start, _MANY))
        return self._pages.html(request, "health.html", values, title="Health")

    async def leave(self, _request: Request) -> Response:
        return RedirectResponse(ROOT, status_code=307)

    def pages(self) -> tuple[Page, ...]:
        return (
            Page(ROOT, self.show, "ui_overview", AUTHENTICATED),
            Page(ROOT + "/", self.leave, "ui_overview_slash", PUBLIC),
            Page(ROOT + "/health", self.health, "ui_health", AUTHENTICATED),
        )

    def _count(self, viewer: Principal) -> int:
        return self._catalog.count_tables(TableFilter(within=viewer.rights.scopes("read")))

    def _findings(self, viewer: Principal, table_count: int, start: int, limit: int) -> dict[str, Any]:
        report = self._health.report(viewer, table_count=table_count, has_keys=self._authentication.is_on)
        return {
            "report": report,
            "findings": self._health.current(report.lines[start:], limit),
            "finding_count": len(report.lines),
            "start": start,
            "limit": limit,
        }

    def _show(self, request: Request) -> dict[str, Any]:
        catalog, viewer = self._catalog, principal_of(request)
        rights, sorting = viewer.rights, sorting_of(request, _ORDERS)
        namespaces = [each.name for each in catalog.namespaces() if rights.sees(each.name)]
        wanted, part, start = text_of(request, "namespace"), text_of(request, "name"), number_of(request, "row")
        which = TableFilter(within=rights.scopes("read"), namespace=wanted or None, name_part=part)
        order = next(each for each in _ORDERS if each == sorting.column)
        listed = catalog.listed_tables(which, order=order, descending=sorting.descending, offset=start, limit=_PAGE)
        total = catalog.count_tables(which)
        pending = visible_jobs(request, JobFilter(states=("queued", "running")))
        jobs = catalog.jobs(pending, before_id=None, limit=_MAX_JOBS)
        lines = self._lines(listed, jobs)
        return {
            **self._findings(viewer, self._count(viewer) if wanted or part else total, 0, _FEW),
            "lines": lines,
            "waits": any(line["health"] is None for line in lines),
            "jobs": jobs,
            "pending": len(jobs) if pending.within is not None else sum(catalog.pending_jobs().values()),
            "can_create": rights.may("maintain") or any(rights.may("write", each) for each in namespaces),
            "namespaces": namespaces,
            "namespace": wanted,
            "name": part,
            "sorting": sorting,
            "row": start,
            "total": total,
            "previous": max(start - _PAGE, 0) if start else None,
            "following": start + _PAGE if start + _PAGE < total else None,
        }

    def _lines(self, listed: list[ListedTable], jobs: list[JobRecord]) -> list[dict[str, Any]]:
        """Return what is known of tables; nothing of it is read from their manifests."""
        now_ms, ids = self._clock(), [each.record.table_id for each in listed]
        hour, day = (self._prune_rates.rates(ids, since_ms=now_ms - span_ms) for span_ms in (HOUR_MS, DAY_MS))
        lines = []
        for each in listed:
            table_id, health = each.record.table_id, self._healths.peek(each.record)
            lines.append(
                {
                    "listed": each,
                    "record": each.record,
                    "health": health,
                    # without its head nothing of a table can be read
                    "problem": None if health is None else health.missing.get("cluster_key"),
                    "hour": _skipped(hour.get(table_id)),
                    "day": _skipped(day.get(table_id)),
                    "jobs": [job for job in jobs if job.table_id == table_id],
                }
            )
        return lines


def _skipped(rate: PruneRate | None) -> float | None:
    if rate is None or not rate.considered_blocks:
        return None
    return 1 - rate.kept_blocks / rate.considered_blocks

"""All tables: how large they are, how well they are laid out, how well they prune, and which need attention."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lamella.service.access import ANYBODY, NOBODY, principal_of
from lamella.service.catalog import JobFilter, TableRecord
from lamella.service.dashboard.asked import number_of
from lamella.service.dashboard.pages import ROOT, Page, Pages
from lamella.service.dashboard.tables import DAY_MS, HOUR_MS
from lamella.service.job_access import seen_jobs
from lamella.service.services import Services
from lamella.service.state import trusted_manifests
from lamella.snapshot.errors import LamellaError, NamespaceNotFound, TableNotFound
from lamella.snapshot.wire import PruneRate

#: Tables on one page.
_PAGE: Final = 50
_MOST_JOBS: Final = 1_000


class OverviewPages:
    """Draws it."""

    def __init__(self, services: Services, pages: Pages) -> None:
        self._services = services
        self._pages = pages

    async def show(self, request: Request) -> Response:
        values = await self._services.read(lambda: self._show(request))
        return self._pages.html(request, "overview.html", values, title="Tables")

    async def leave(self, _request: Request) -> Response:
        return RedirectResponse(ROOT, status_code=307)

    def pages(self) -> tuple[Page, ...]:
        return (
            Page(ROOT, self.show, "ui_overview", ANYBODY),
            Page(ROOT + "/", self.leave, "ui_overview_slash", NOBODY),
        )

    def _show(self, request: Request) -> dict[str, Any]:
        catalog, now_ms, rights = self._services.catalog, self._services.clock(), principal_of(request).rights
        namespaces = [each.name for each in catalog.namespaces() if rights.sees(each.name)]
        wanted = request.query_params.get("namespace", "")
        part = request.query_params.get("name", "").strip().lower()
        names = [
            (namespace, name)
            for namespace in namespaces
            if wanted in ("", namespace)
            for name in catalog.tables(namespace)
            if part in name.lower() and rights.may("read", namespace, name)
        ]
        start = number_of(request, "row")
        shown = [self._record(*each) for each in names[start : start + _PAGE]]
        records = [record for record in shown if record is not None]
        ids = [record.table_id for record in records]
        hour, day = (self._services.prune_rates.rates(ids, since_ms=now_ms - span) for span in (HOUR_MS, DAY_MS))
        pending = seen_jobs(request, JobFilter(states=("queued", "running")))
        running = self._services.jobs.list(pending, page_size=_MOST_JOBS, page_token=None).jobs
        lines = [self._line(record, hour, day) for record in records]
        return {
            "lines": lines,
            "waits": any(line["health"] is None for line in lines),
            "jobs": running,
            "pending": len(running) if pending.within is not None else sum(catalog.pending_jobs().values()),
            "jobs_of": {each: [job for job in running if job.table_id == each] for each in ids},
            "namespaces": namespaces,
            "namespace": wanted,
            "name": request.query_params.get("name", ""),
            "start": start,
            "total": len(names),
            "previous": max(start - _PAGE, 0) if start else None,
            "following": start + _PAGE if start + _PAGE < len(names) else None,
            "attention": [
                (line["record"], found)
                for line in lines
                if line["health"] is not None
                for found in line["health"].findings
            ],
        }

    def _record(self, namespace: str, name: str) -> TableRecord | None:
        try:
            return self._services.table(namespace, name)
        except (TableNotFound, NamespaceNotFound):
            return None  # it was dropped while the page was made

    def _line(self, record: TableRecord, hour: dict[str, PruneRate], day: dict[str, PruneRate]) -> dict[str, Any]:
        summary = problem = None
        try:
            with trusted_manifests():
                summary = self._services.warehouse.head(record.pointer).summary
        except LamellaError as error:  # one damaged table must not hide the others
            problem = error
        return {
            "record": record,
            "summary": summary,
            "problem": problem,
            "health": self._services.healths.peek(record),
            "hour": _skipped(hour.get(record.table_id)),
            "day": _skipped(day.get(record.table_id)),
        }


def _skipped(rate: PruneRate | None) -> float | None:
    if rate is None or not rate.considered_blocks:
        return None
    return 1 - rate.kept_blocks / rate.considered_blocks

"""The service: the last day, health, requests, caches, workers, the audit trail, and the settings in effect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import require
from lamella.service.config.check import unsafe_warnings
from lamella.service.config.settings import Settings
from lamella.service.config.sources import shown_settings
from lamella.service.dashboard import words
from lamella.service.dashboard.pages import ROOT, Page, Pages
from lamella.service.process.status import Status
from lamella.service.process.threads import Threads
from lamella.service.telemetry.metrics import Metrics
from lamella.service.usage.audit import Audit
from lamella.service.usage.service_rates import ServiceRates
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.wire import ServiceRate, ServiceRatesAnswer
from lamella.snapshot.wire.operation import BY_REQUEST, on_server

#: Entries of the audit trail on the first screen, and on their own page.
_LATEST: Final = 15
_PAGE: Final = 100
_DAY_S: Final = 86_400
_HOUR_MS: Final = 3_600_000


class AccessFacts(msgspec.Struct, frozen=True):
    """How requests are authenticated, and warnings for the operator."""

    says: tuple[str, ...]
    warnings: tuple[str, ...]


def access_facts(settings: Settings) -> AccessFacts:
    """Return the description for these settings."""
    says = []
    if settings.auth:
        ways = ["an API key"]
        if settings.oidc_issuer is not None:
            ways.append(f"a token of {settings.oidc_issuer}")
        says.append(
            f"Requests are authenticated (auth): each needs {' or '.join(ways)}, and may do what was granted to it."
        )
        if settings.root_key_sha256 is not None:
            says.append("There is a root key (root_key_sha256), which may do everything.")
    elif settings.is_loopback:
        says.append(
            "Requests are not authenticated (auth is off): every program on this machine may read and change every "
            f"table. Other machines cannot reach the address, {settings.host}, unless something here passes their "
            "requests on."
        )
    else:
        says.append(
            "Requests are not authenticated (auth is off): everyone who reaches the address may read and change every "
            f"table. The service listens on {settings.host} because of the setting insecure."
        )
    return AccessFacts(tuple(says), unsafe_warnings(settings))


class Tile(msgspec.Struct, frozen=True):
    """One figure of the last day. ``points``: its values by time, in Unix milliseconds; ``form`` formats them."""

    name: str
    says: str
    points: tuple[tuple[float, float], ...]
    form: Callable[[float | None], str]


def tiles_of(answer: ServiceRatesAnswer, now_ms: int) -> tuple[Tile, ...]:
    """Return the tiles of a day. In buckets that are not in ``answer`` nothing happened."""
    step_ms = answer.bucket_s * 1000
    stored = {each.bucket_ms: each for each in answer.series}
    begins = range(answer.since_ms, now_ms, step_ms)
    buckets = [(begin, stored.get(begin, ServiceRate())) for begin in begins]
    day, last = answer.total, answer.series[-1] if answer.series else ServiceRate()

    def per_second(count: Callable[[ServiceRate], int]) -> tuple[tuple[float, float], ...]:
        # The last bucket is not over yet, and the first one may have begun before this day.
        return tuple(
            (begin, count(each) / min(answer.bucket_s, max(now_ms - begin, 1_000) / 1000)) for begin, each in buckets
        )

    def known(value: Callable[[ServiceRate], float | None]) -> tuple[tuple[float, float], ...]:
        return tuple((begin, found) for begin, each in buckets if (found := value(each)) is not None)

    requests = per_second(lambda each: each.requests)
    rate = f"{_rate(requests[-1][1])} now, " if requests else ""
    mean_ms = day.store_ms / day.store_calls if day.store_calls else None
    calls = words.plural(day.store_calls, "call")
    return (
        Tile("Requests", f"{rate}{words.plural(day.requests, 'request')} in all", requests, _rate),
        Tile(
            "Prunes, 99th percentile",
            f"{words.plural(day.prunes, 'prune')}: median {_ms(day.prune_p50_ms)}, 99 % {_ms(day.prune_p99_ms)}",
            known(lambda each: each.prune_p99_ms),
            _ms,
        ),
        Tile(
            "Failed requests (5xx)",
            f"{words.count(day.errors)} of {words.count(day.requests)}",
            tuple((begin, float(each.errors)) for begin, each in buckets),
            words.count,
        ),
        Tile(
            "Hits of the caches in memory",
            f"{words.percent(day.hit_rate)} of {words.plural(day.cache_hits + day.cache_misses, 'look-up')}",
            known(lambda each: each.hit_rate),
            words.percent,
        ),
        Tile(
            "Commits",
            f"{words.plural(day.commits, 'snapshot')}; {words.count(last.commits)} in the last period with requests",
            tuple((begin, float(each.commits)) for begin, each in buckets),
            words.count,
        ),
        Tile(
            "Object store",
            f"{calls}, {_ms(mean_ms)} on average, {words.count(day.store_errors)} failed",
            per_second(lambda each: each.store_calls),
            _rate,
        ),
    )


def _rate(per_second: float | None) -> str:
    if per_second is None:
        return words.NOTHING
    return f"{per_second:,.3g}/s" if per_second < 1_000 else f"{per_second:,.0f}/s"


def _ms(ms: float | None) -> str:
    return words.span(None if ms is None else ms / 1000)


def hours_of(series: Sequence[ServiceRate]) -> list[tuple[int, ServiceRate]]:
    """Return the sums by full hours (Unix milliseconds), the newest first; of quantiles the greatest."""
    found: dict[int, ServiceRate] = {}
    for each in series:
        hour_ms = (each.bucket_ms or 0) // _HOUR_MS * _HOUR_MS
        before = found.get(hour_ms, ServiceRate())
        p99s = [ms for ms in (before.prune_p99_ms, each.prune_p99_ms) if ms is not None]
        found[hour_ms] = ServiceRate(
            requests=before.requests + each.requests,
            errors=before.errors + each.errors,
            prunes=before.prunes + each.prunes,
            prune_p99_ms=max(p99s, default=None),
            commits=before.commits + each.commits,
            cache_hits=before.cache_hits + each.cache_hits,
            cache_misses=before.cache_misses + each.cache_misses,
            store_calls=before.store_calls + each.store_calls,
            store_errors=before.store_errors + each.store_errors,
            store_ms=before.store_ms + each.store_ms,
        )
    return sorted(found.items(), reverse=True)


class StatusPages:
    """Pages of the service's status. ``clock`` returns Unix milliseconds."""

    def __init__(
        self,
        *,
        readers: Threads,
        settings: Settings,
        status: Status,
        service_rates: ServiceRates,
        audit: Audit,
        metrics: Metrics,
        clock: Callable[[], int],
        pages: Pages,
    ) -> None:
        self._readers = readers
        self._service_rates = service_rates
        self._clock = clock
        self._settings = settings
        self._status = status
        self._audit = audit
        self._metrics = metrics
        self._pages = pages

    async def show(self, request: Request) -> Response:
        values = await self._readers.run(self._show)
        return self._pages.html(request, "service.html", values, title="Service")

    async def metrics(self, _request: Request) -> Response:
        text = await self._readers.run(self._metrics.text)
        return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def settings(self, request: Request) -> Response:
        values = {"settings": shown_settings(self._settings)}
        return self._pages.html(request, "settings.html", values, title="Settings")

    async def audit(self, request: Request) -> Response:
        values = await self._readers.run(lambda: self._audit_page(request))
        return self._pages.html(request, "audit.html", values, title="Audit trail")

    def pages(self) -> tuple[Page, ...]:
        return (
            Page(ROOT + "/service", self.show, "ui_service", on_server("admin")),
            Page(ROOT + "/service/metrics", self.metrics, "ui_metrics", on_server("admin")),
            Page(ROOT + "/service/settings", self.settings, "ui_settings", on_server("admin")),
            Page(ROOT + "/service/audit", self.audit, "ui_audit", BY_REQUEST),
        )

    def _show(self) -> dict[str, Any]:
        status = self._status.look()
        requests = sorted(status.requests, key=lambda each: -each.requests)
        tiles: tuple[Tile, ...] = ()
        hours: list[tuple[int, ServiceRate]] = []
        if status.catalog.error is None:
            with suppress(LamellaError):  # the page says how the catalog is
                day = self._service_rates.answer(_DAY_S)
                tiles, hours = tiles_of(day, self._clock()), hours_of(day.series)
        return {
            "tiles": tiles,
            "hours": hours,
            "access": access_facts(self._settings),
            "status": status,
            "requests": requests,
            "entries": self._audit.page(None, _LATEST) if status.catalog.error is None else [],
        }

    def _audit_page(self, request: Request) -> dict[str, Any]:
        table = request.query_params.get("table", "").strip()
        namespace, _, name = table.rpartition(".")
        if namespace:
            require(request, "admin", namespace, name)
        else:
            require(request, "admin")
        found = self._audit.list(
            page_size=_PAGE, page_token=request.query_params.get("page") or None, table=table or None
        )
        return {"entries": found.entries, "next_page": found.next_page_token, "table": table}

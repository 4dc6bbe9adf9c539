"""Service rates: what the service did over the last day, by periods of five minutes.

Every process counts for itself, in its metrics. Every ten seconds a thread adds what has come since to the sums in the
catalog, to which all workers and replicas add. A killed process loses its last seconds. The catalog has one row for
each period and sum, whatever the number of processes, and older ones are deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from lamella.service.catalog import Catalog
from lamella.service.process.status import RequestCounts, quantile_ms
from lamella.service.process.threads import BatchDeletion, Debouncer
from lamella.service.telemetry.component_metrics import REQUEST_S
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import LamellaError, OutcomeUnknown, Unavailable
from lamella.snapshot.wire import ServiceRate, ServiceRatesAnswer
from lamella.snapshot.wire.operations.jobs import CLAIM_JOB
from lamella.snapshot.wire.operations.prune import PRUNE, PRUNE_BATCH
from lamella.snapshot.wire.operations.usage import BUCKET_MS, SERVICE_RETENTION_MS

_DELAY_S: Final = 10.0
_PRUNE_ROUTES: Final = frozenset((PRUNE.path, PRUNE_BATCH.path))
_API: Final = "/v1/"
#: Beginnings of the names of a histogram's sums; the bucket's upper bound follows.
_REQUESTS: Final = "request_s "
_PRUNES: Final = "prune_s "
#: The sum of the requests of workers for jobs, answered with a job or with none.
_CLAIMS: Final = "claims"
_EDGES_S: Final = (*REQUEST_S, float("inf"))

Totals = Mapping[str, float]


class ServiceRates:
    """Stores what the service did. ``clock`` returns Unix milliseconds, ``cache_counts`` the hits and misses of this
    process's cache in memory."""

    def __init__(
        self,
        catalog: Catalog,
        metrics: Metrics,
        clock: Callable[[], int],
        cache_counts: Callable[[], tuple[int, int]],
    ) -> None:
        self._catalog = catalog
        self._metrics = metrics
        self._clock = clock
        self._cache_counts = cache_counts
        self._writing = threading.Lock()
        self._written = self._counted()  # metrics of an earlier process with the same id are not its own
        self._debouncer = Debouncer(self.write, _DELAY_S, "service-rates")
        self._forgetting = BatchDeletion(
            clock,
            SERVICE_RETENTION_MS,
            lambda before_ms, limit: catalog.forget_service_rates(before_ms=before_ms, limit=limit),
        )

    def soon(self) -> None:
        """Write within ten seconds."""
        self._debouncer.soon()

    def write(self) -> None:
        """Add what was counted since the last time to the catalog's sums; what it does not store now stays for the next
        time."""
        with self._writing:
            now = self._counted()
            more = {name: total - self._written.get(name, 0.0) for name, total in now.items()}
            more = {name: total for name, total in more.items() if total > 0}
            try:
                if more:
                    self._catalog.add_service_rates(_begin_ms(self._clock()), more)
            except OutcomeUnknown:  # they may be stored; too few is better than twice
                pass
            except Unavailable:
                return
            self._written = now
            with suppress(LamellaError):  # the next round retries
                self._forgetting.run()

    def answer(self, since_s: int) -> ServiceRatesAnswer:
        """Return what the service did in the last ``since_s`` seconds. Raises Unavailable."""
        self.write()
        since_ms = _begin_ms(self._clock() - since_s * 1000)
        stored = self._catalog.service_rates(since_ms=since_ms)
        return ServiceRatesAnswer(
            since_ms=since_ms,
            bucket_s=BUCKET_MS // 1000,
            total=rate_of(_added(stored.values())),
            series=tuple(rate_of(totals, bucket_ms) for bucket_ms, totals in sorted(stored.items())),
        )

    def workers_seen_ms(self) -> int | None:
        """Return a time since which no worker has asked for a job; None if none has in the last two periods.

        It is the end of a period of five minutes, or now. What other processes counted is known after ten seconds.
        Raises Unavailable.
        """
        now_ms = self._clock()
        stored = self._catalog.service_rates(since_ms=_begin_ms(now_ms) - BUCKET_MS)
        seen = [begin_ms for begin_ms, totals in stored.items() if totals.get(_CLAIMS)]
        if self._counted().get(_CLAIMS, 0.0) > self._written.get(_CLAIMS, 0.0):
            return now_ms
        return min(max(seen) + BUCKET_MS, now_ms) if seen else None

    def close(self) -> None:
        """Write what was counted last, and stop the thread."""
        self._debouncer.close()
        with suppress(LamellaError):
            self.write()

    def _counted(self) -> dict[str, float]:
        """Return the totals of this process since it started."""
        metrics = self._metrics
        counted = (metrics.requests, metrics.request_seconds, metrics.commits, metrics.store.seconds)
        counts = RequestCounts(family for metric in counted for family in metric.collect())
        hits, misses = self._cache_counts()
        found: dict[str, float] = {
            "cache_hits": hits,
            "cache_misses": misses,
            "commits": counts.total("lamella_commits_total"),
            "store_calls": 0,
            "store_errors": 0,
            "store_s": 0.0,
            "requests": 0,
            "errors": 0,
            "prunes": 0,
            _CLAIMS: 0,
        }
        for labels, value in counts.samples("lamella_requests_total"):
            if labels["route"].startswith(_API):
                found["requests"] += value
                found["errors"] += value if labels["status"] >= "500" else 0
                found["prunes"] += value if labels["route"] in _PRUNE_ROUTES else 0
            found[_CLAIMS] += value if labels["route"] == CLAIM_JOB.path and labels["status"] < "300" else 0
        for labels, value in counts.samples("lamella_store_seconds_count"):
            found["store_calls"] += value
            found["store_errors"] += value if labels["outcome"] == "failed" else 0
        found["store_s"] = sum(value for _, value in counts.samples("lamella_store_seconds_sum"))
        for labels, value in counts.samples("lamella_request_seconds_bucket"):
            edge = repr(float(labels["le"]))
            if labels["route"].startswith(_API):
                found[_REQUESTS + edge] = found.get(_REQUESTS + edge, 0.0) + value
            if labels["route"] in _PRUNE_ROUTES:
                found[_PRUNES + edge] = found.get(_PRUNES + edge, 0.0) + value
        return found


def rate_of(totals: Totals, bucket_ms: int | None = None) -> ServiceRate:
    """Return the sums of a period as they are shown."""

    def whole(name: str) -> int:
        return round(totals.get(name, 0.0))

    requests, prunes = _histogram(totals, _REQUESTS), _histogram(totals, _PRUNES)
    return ServiceRate(
        bucket_ms=bucket_ms,
        requests=whole("requests"),
        errors=whole("errors"),
        request_p50_ms=quantile_ms(requests, 0.5),
        request_p99_ms=quantile_ms(requests, 0.99),
        prunes=whole("prunes"),
        prune_p50_ms=quantile_ms(prunes, 0.5),
        prune_p99_ms=quantile_ms(prunes, 0.99),
        commits=whole("commits"),
        cache_hits=whole("cache_hits"),
        cache_misses=whole("cache_misses"),
        store_calls=whole("store_calls"),
        store_errors=whole("store_errors"),
        store_ms=1000 * totals.get("store_s", 0.0),
    )


def _histogram(totals: Totals, begin: str) -> Sequence[tuple[float, float]]:
    # Sums of zero are not stored, but a quantile is interpolated from the next lower edge.
    return [(edge, totals.get(f"{begin}{edge!r}", 0.0)) for edge in _EDGES_S]


def _added(parts: Iterable[Totals]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in parts:
        for name, total in part.items():
            found[name] = found.get(name, 0.0) + total
    return found


def _begin_ms(at_ms: int) -> int:
    return at_ms - at_ms % BUCKET_MS

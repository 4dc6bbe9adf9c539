"""Service rates: what each process counts, added up in the catalog by periods of five minutes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lamella.service.app import create_app
from lamella.service.catalog import SqlCatalog, open_catalog
from lamella.service.config.settings import Settings
from lamella.service.dashboard.status import hours_of, tiles_of
from lamella.service.dashboard.words import NOTHING
from lamella.service.process.status import quantile_ms
from lamella.service.telemetry.component_metrics import REQUEST_S
from lamella.service.telemetry.metrics import Metrics
from lamella.service.usage.service_rates import ServiceRates
from lamella.snapshot.errors import LamellaError, OutcomeUnknown, Unavailable
from lamella.snapshot.wire import ServiceRatesAnswer
from lamella.snapshot.wire.operations.jobs import CLAIM_JOB
from lamella.snapshot.wire.operations.prune import PRUNE
from lamella.snapshot.wire.operations.usage import BUCKET_MS, SERVICE_RETENTION_MS
from support.app_client import AppClient

START_MS = 1_700_000_100_000
DAY_S = 86_400
OTHER = "/v1/namespaces"


class Failing:
    """A catalog that takes no service rates while ``error`` is set; it may have stored them all the same."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self._catalog = catalog
        self.error: LamellaError | None = None
        self.stores = False

    def add_service_rates(self, bucket_ms: int, totals: Mapping[str, float]) -> None:
        """As the catalog does."""
        if self.error is None or self.stores:
            self._catalog.add_service_rates(bucket_ms, totals)
        if self.error is not None:
            raise self.error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)


class Process:
    """One process: its metrics, and what it adds to the catalog."""

    def __init__(self, catalog: SqlCatalog, now_ms: int = START_MS) -> None:
        self.failing = Failing(catalog)
        self.metrics = Metrics()
        self.now_ms = now_ms
        self.looked_up = (0, 0)
        self.rates = ServiceRates(self.failing, self.metrics, lambda: self.now_ms, lambda: self.looked_up)

    def answered(self, route: str, status: str = "200", *, took_s: float = 0.001, times: int = 1) -> None:
        """Count requests."""
        self.metrics.requests.labels("POST", route, status).inc(times)
        for _ in range(times):
            self.metrics.request_seconds.labels("POST", route).observe(took_s)

    def day(self) -> ServiceRatesAnswer:
        """What is known of the last day."""
        return self.rates.answer(DAY_S)


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    """An empty one."""
    return open_catalog(str(tmp_path / "catalog.db"))


@pytest.fixture
def process(catalog: SqlCatalog) -> Process:
    """One that has done nothing."""
    return Process(catalog)


def test_what_happened_is_counted_by_kind(process: Process) -> None:
    """Requests to the API, those that failed, prunes, commits, the cache, and the store."""
    process.answered(PRUNE.path, times=3)
    process.answered(OTHER, "503")
    process.answered(OTHER, "404")
    process.answered("/ui/service", "500")
    process.metrics.committed(added=1, removed=0)
    process.looked_up = (3, 1)
    process.metrics.store.store_called("read", "ok", 0.25)
    process.metrics.store.store_called("read", "failed", 0.25)
    total = process.day().total
    assert (total.requests, total.errors, total.prunes, total.commits) == (5, 1, 3, 1)
    assert (total.cache_hits, total.cache_misses, total.hit_rate) == (3, 1, 0.75)
    assert (total.store_calls, total.store_errors, total.store_ms) == (2, 1, 500.0)


def test_nothing_is_counted_twice(process: Process) -> None:
    """However often it is written; without news nothing is stored."""
    process.answered(PRUNE.path)
    for _ in range(3):
        assert process.day().total.prunes == 1
    process.answered(PRUNE.path)
    assert process.day().total.prunes == 2
    process.now_ms += BUCKET_MS
    assert [each.prunes for each in process.day().series] == [2]


def test_processes_add_up(catalog: SqlCatalog, process: Process) -> None:
    """Also their histograms: quantiles are of all requests together."""
    other = Process(catalog)
    process.answered(PRUNE.path, took_s=0.0009, times=98)
    other.answered(PRUNE.path, took_s=0.9, times=2)
    other.rates.write()
    total = process.day().total
    assert total.prunes == 100
    assert total.prune_p50_ms is not None
    assert total.prune_p99_ms is not None
    assert 0.8 < total.prune_p50_ms < 1
    assert 500 < total.prune_p99_ms <= 1_000


def test_workers_are_seen_by_what_any_process_counted(catalog: SqlCatalog, process: Process) -> None:
    """For this period and the next; requests that were refused, and other requests, are of nobody who works."""
    other = Process(catalog)
    process.answered(CLAIM_JOB.path, "403")
    process.answered(OTHER)
    process.rates.write()
    assert process.rates.workers_seen_ms() is None
    other.answered(CLAIM_JOB.path, "204")
    assert other.rates.workers_seen_ms() == other.now_ms  # what it has not written yet counts too
    assert process.rates.workers_seen_ms() is None
    other.rates.write()
    assert process.rates.workers_seen_ms() == process.now_ms
    for periods, seen_ms in ((1, START_MS + BUCKET_MS), (2, None)):
        process.now_ms = START_MS + periods * BUCKET_MS
        assert process.rates.workers_seen_ms() == seen_ms


def test_each_period_has_its_own_sums(process: Process) -> None:
    """By when it was written; those without any request are left out, and old ones of the day before."""
    for periods in (0, 1, 5):
        process.now_ms = START_MS + periods * BUCKET_MS
        process.answered(PRUNE.path, times=periods + 1)
        process.rates.write()
    answer = process.day()
    begin_ms = START_MS - START_MS % BUCKET_MS
    assert [(each.bucket_ms, each.prunes) for each in answer.series] == [
        (begin_ms, 1),
        (begin_ms + BUCKET_MS, 2),
        (begin_ms + 5 * BUCKET_MS, 6),
    ]
    assert process.rates.answer(1).total.prunes == 6


def test_quantiles_are_those_of_the_histogram(process: Process) -> None:
    """Sums of zero are not stored, and change nothing."""
    for took_s, times in ((0.025, 7), (0.4, 2), (70.0, 1)):
        process.answered(PRUNE.path, took_s=took_s, times=times)
    total = process.day().total
    counts = [(edge_s, sum(n for s, n in ((0.025, 7), (0.4, 2), (70.0, 1)) if s <= edge_s)) for edge_s in REQUEST_S]
    for share, found in ((0.5, total.prune_p50_ms), (0.99, total.prune_p99_ms)):
        assert found == quantile_ms([*counts, (float("inf"), 10)], share)
    assert total.prune_p99_ms is None, "it is beyond a minute"


def test_sums_that_the_catalog_does_not_store_stay_for_the_next_write(process: Process) -> None:
    """As long as the catalog does not answer."""
    process.answered(PRUNE.path)
    process.failing.error = Unavailable("not now")
    process.rates.write()
    process.failing.error = None
    assert process.day().total.prunes == 1


@pytest.mark.parametrize("stores", [False, True])
def test_what_may_be_stored_is_not_added_again(process: Process, stores: bool) -> None:
    """Too few is better than twice."""
    process.answered(PRUNE.path)
    process.failing.error, process.failing.stores = OutcomeUnknown("cut off"), stores
    process.rates.write()
    process.failing.error = None
    assert process.day().total.prunes == int(stores)


def test_what_another_process_counted_before_is_not_its_own(catalog: SqlCatalog) -> None:
    """Metrics on disk outlive a process; a new one may have its id."""
    metrics = Metrics()
    metrics.requests.labels("POST", PRUNE.path, "200").inc(9)
    rates = ServiceRates(catalog, metrics, lambda: START_MS, lambda: (0, 0))
    metrics.requests.labels("POST", PRUNE.path, "200").inc()
    assert rates.answer(DAY_S).total.prunes == 1


def test_old_periods_are_deleted(catalog: SqlCatalog, process: Process) -> None:
    """After two days; so the space is bounded."""
    process.answered(PRUNE.path)
    process.rates.write()
    process.now_ms += SERVICE_RETENTION_MS + BUCKET_MS
    process.answered(OTHER)
    process.rates.write()
    assert [sorted(set(each) & {"prunes", "requests"}) for each in catalog.service_rates(since_ms=0).values()] == [
        ["requests"]
    ]


def test_a_process_that_ends_writes_what_it_counted_last(catalog: SqlCatalog, process: Process) -> None:
    """Also if it lived for less than ten seconds."""
    process.rates.soon()
    process.answered(PRUNE.path)
    process.rates.close()
    assert Process(catalog).day().total.prunes == 1


def test_a_service_says_what_it_did(tmp_path: Path) -> None:
    """Over HTTP, and in the console: tiles, and the same by hour; a wrong time to look back is refused."""
    settings = Settings(warehouse=f"file://{tmp_path}/w", catalog=f"sqlite:///{tmp_path}/catalog.db")
    with AppClient(create_app(settings)) as app:
        assert app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        assert app.get("/v1/namespaces/missing").status_code == 404
        answer = msgspec.json.decode(app.get("/v1/service-rates").content, type=ServiceRatesAnswer)
        assert (answer.total.requests, answer.total.errors) == (2, 0)
        assert [each.requests for each in answer.series] == [2]
        assert app.get("/v1/service-rates", params={"since_s": SERVICE_RETENTION_MS}).status_code == 400
        page = app.get("/ui/service").text
        assert "The same by hour" in page
        assert "4 requests in all" in page
        assert app.get("/ui/service/settings").status_code == 200


def test_a_bucket_without_requests_has_a_rate_of_zero_and_no_quantile(process: Process) -> None:
    """The bucket that is not over yet counts for the time that it had."""
    process.answered(PRUNE.path, times=300)
    process.rates.write()
    process.now_ms = START_MS - START_MS % BUCKET_MS + 3 * BUCKET_MS + 10_000
    process.answered(PRUNE.path, times=20)
    tiles = {tile.name: tile for tile in tiles_of(process.rates.answer(1_200), process.now_ms)}
    assert [rate for _, rate in tiles["Requests"].points] == [0.0, 1.0, 0.0, 0.0, 2.0]
    assert len(tiles["Prunes, 99th percentile"].points) == 2
    assert tiles["Requests"].says == "2/s now, 320 requests in all"
    assert tiles["Hits of the caches in memory"].says == f"{NOTHING} of 0 look-ups"


def test_hours_add_up_their_periods(process: Process) -> None:
    """The newest first; of a quantile the greatest."""
    for periods, took_s in ((0, 0.9), (1, 0.001), (13, 0.001)):
        process.now_ms = START_MS + periods * BUCKET_MS
        process.answered(PRUNE.path, took_s=took_s)
        process.rates.write()
    series = process.day().series
    newer, older = hours_of(series)
    assert (newer[1].prunes, older[1].prunes) == (1, 2)
    assert newer[0] - older[0] == 3_600_000
    assert older[1].prune_p99_ms == series[0].prune_p99_ms

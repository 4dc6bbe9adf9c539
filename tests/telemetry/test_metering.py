"""What is measured: store, catalog, memory, event loop, commits; and that the figures hold."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from fixtures_server import StartServer
from lamella.service.app import create_app
from lamella.service.catalog import SqlCatalog, open_catalog
from lamella.service.catalog.engine import CatalogOperation, CatalogOutcome
from lamella.service.config.settings import Settings
from lamella.service.process.health import EventLoopMonitor, Probe
from lamella.service.process.status import quantile_ms
from lamella.service.process.threads import Threads, ThreadUse
from lamella.service.telemetry.component_metrics import REQUEST_S, MemoryMetrics, ProcessMetrics
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.cache import BoundedCache, Counts
from lamella.snapshot.errors import AlreadyExists, Unavailable
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import NamespaceInfo
from support.app_client import AppClient
from support.faulty_catalog import CatalogFaults
from support.faulty_store import Fault, FaultyStore, Script
from support.operations import CountedStore
from support.service_api import World, read_problem


def samples(families: Iterable[Metric]) -> dict[str, list[tuple[dict[str, str], float]]]:
    """All samples by name."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def total(families: Iterable[Metric], name: str, **labels: str) -> float:
    """The sum of a metric over all samples with these labels."""
    return sum(value for given, value in samples(families).get(name, ()) if labels.items() <= given.items())


class Heard:
    """A catalog's listener."""

    def __init__(self) -> None:
        self.calls: list[tuple[CatalogOperation, CatalogOutcome]] = []
        self.waits: list[bool] = []

    def catalog_called(self, operation: CatalogOperation, outcome: CatalogOutcome, took_s: float, /) -> None:
        """Remember it."""
        assert took_s >= 0
        self.calls.append((operation, outcome))

    def connection_awaited(self, took_s: float, /, *, timed_out: bool) -> None:
        """Remember it."""
        assert took_s >= 0
        self.waits.append(timed_out)


CATALOGS = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))


@pytest.fixture(params=CATALOGS)
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a catalog may be made."""
    if request.param == "sqlite":
        return str(tmp_path / "catalog.db")
    return str(request.getfixturevalue("postgres_database"))


def listened(url: str, **options: Any) -> tuple[SqlCatalog, Heard]:
    """A catalog, and who listens to it."""
    catalog, heard = open_catalog(url, **options), Heard()
    catalog.listen_to(heard)
    return catalog, heard


def test_statements_are_counted_by_what_they_are(catalog_url: str) -> None:
    """Reads, writes, commits, and what the database refuses because of what is there; each with its connection."""
    catalog, heard = listened(catalog_url)
    catalog.create_namespace(NamespaceInfo(name="a"), now_ms=1)
    begin = [("begin", "ok")] if catalog.backend == "sqlite" else []
    assert heard.calls == [*begin, ("insert", "ok"), ("commit", "ok")]
    heard.calls.clear()
    with pytest.raises(AlreadyExists):
        catalog.create_namespace(NamespaceInfo(name="a"), now_ms=1)
    assert [call for call in heard.calls if call[0] != "begin"] == [("insert", "conflict")]
    heard.calls.clear()
    assert [each.name for each in catalog.namespaces()] == ["a"]
    assert catalog.current("a", "t") is None
    assert heard.calls == [("select", "ok"), ("lookup", "ok")]
    assert heard.waits == [False] * 3
    catalog.close()


def test_a_database_that_fails_is_counted(tmp_path: Path) -> None:
    """Before a statement was sent, and around a COMMIT."""
    catalog, heard = listened(str(tmp_path / "catalog.db"))
    faults = CatalogFaults(catalog)
    faults.arm("statement")
    with pytest.raises(Unavailable):
        catalog.namespaces()
    assert heard.calls == [("select", "failed")]
    heard.calls.clear()
    faults.arm("before commit")
    with pytest.raises(Unavailable):
        catalog.create_namespace(NamespaceInfo(name="a"), now_ms=1)
    assert heard.calls[-1] == ("commit", "failed")
    catalog.close()


def test_a_pool_without_a_free_connection_is_counted(tmp_path: Path) -> None:
    """The wait in vain is counted, and how many connections are in use."""
    catalog, heard = listened(str(tmp_path / "catalog.db"), connections=1, timeout_s=0.05)
    assert catalog.connections == (0, 1)
    with catalog._reader.connect():
        assert catalog.connections == (1, 1)
        with pytest.raises(Unavailable):
            catalog.namespaces()
    assert catalog.connections == (0, 1)
    assert (heard.calls, heard.waits) == ([], [True])
    catalog.close()


def test_a_statement_of_a_broken_connection_is_counted_once(tmp_path: Path) -> None:
    """What a connection kept is gone with it, and the failure is counted all the same."""
    catalog, heard = listened(str(tmp_path / "catalog.db"))
    with catalog._reader.connect() as connection, pytest.raises(OperationalError):
        connection.execute(text("SELECT * FROM nowhere"))
    assert heard.calls == [("select", "failed")]
    catalog.close()


KINDS = ("a", "b")


@given(
    limit=st.integers(0, 60),
    steps=st.lists(
        st.tuples(st.sampled_from(["get", "put", "remember", "load"]), st.sampled_from(KINDS), st.integers(0, 5)),
        max_size=60,
    ),
)
def test_memory_counts_what_happened(limit: int, steps: list[tuple[str, str, int]]) -> None:
    """Hits are values that were found, misses those that were made, and what came and did not stay was evicted."""
    cache = BoundedCache(limit)
    expected = {kind: Counts() for kind in KINDS}
    for step, kind, name in steps:
        is_cached = (kind, name) in cache._entries
        size = 10 * (name + 1)
        if step == "get":
            cache.get((kind, name))
            expected[kind].hits += is_cached
        elif step == "load":
            cache.load((kind, name), lambda size=size: (0, size))  # type: ignore[misc]  # a default
            expected[kind].hits += is_cached
            expected[kind].misses += not is_cached
        else:
            cache.put((kind, name), 0, size, was_missed=step == "put")
            expected[kind].misses += step == "put"
    found = cache.counts()
    for kind, counts in found.items():
        assert (counts.hits, counts.misses) == (expected[kind].hits, expected[kind].misses)
        sizes = [size for key, (_, size, _) in cache._entries.items() if key[0] == kind]
        assert counts.size_bytes == sum(sizes)
    assert sum(counts.size_bytes for counts in found.values()) == cache.size_bytes


def test_evictions_are_counted_by_the_kind_that_was_evicted() -> None:
    """A value of one kind makes room by pushing out those of another."""
    cache = BoundedCache(30)
    for name in range(3):
        cache.put(("old", name), 0, 10)
    cache.put(("new", 0), 0, 25)
    counts = cache.counts()
    assert (counts["old"].evicted, counts["new"].evicted) == (3, 0)
    assert (counts["old"].size_bytes, counts["new"].size_bytes) == (0, 25)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 99)), max_size=8))
def test_what_is_taken_over_adds_up(steps: list[tuple[int, int, int, int]]) -> None:
    """However often it is looked: the counters have what was counted, the gauge the last size."""
    registry = CollectorRegistry()
    metrics, now = MemoryMetrics(registry), Counts()
    metrics.watch(lambda: {"x": Counts(now.hits, now.misses, now.evicted, now.size_bytes)}, {"cache_bytes": 7})
    for hits, misses, evicted, size_bytes in steps:
        now.hits, now.misses, now.evicted = now.hits + hits, now.misses + misses, now.evicted + evicted
        now.size_bytes = size_bytes
        metrics.fold()
        metrics.fold()
    found = list(registry.collect())
    for event, count in (("hit", now.hits), ("miss", now.misses), ("evicted", now.evicted)):
        assert total(found, "lamella_memory_cache_events_total", kind="x", event=event) == count
    assert total(found, "lamella_memory_cache_size_bytes", kind="x") == now.size_bytes
    assert total(found, "lamella_memory_cache_limit_bytes", setting="cache_bytes") == 7


@pytest.mark.parametrize("spread", [0.1, 0.4, 0.8])
@pytest.mark.parametrize("median_ms", [0.6, 1.0, 2.0, 5.0])
def test_quantiles_around_a_millisecond_are_near_the_truth(median_ms: float, spread: float) -> None:
    """Of the median, p95 and p99 of requests as prunes are, the buckets tell within 15 %."""
    chance = random.Random(7)
    values = sorted(chance.lognormvariate(0, spread) * median_ms for _ in range(20_000))
    registry = CollectorRegistry()
    histogram = Histogram("x", "x", buckets=REQUEST_S, registry=registry)
    for value in values:
        histogram.observe(value / 1000)
    counts = sorted((float(labels["le"]), count) for labels, count in samples(registry.collect())["x_bucket"])
    for share in (0.5, 0.95, 0.99):
        estimate, truth = quantile_ms(counts, share), values[int(share * len(values))]
        assert estimate is not None
        assert abs(estimate - truth) <= 0.15 * truth


def test_the_oldest_commit_is_the_one_that_began_first() -> None:
    """Its age grows until it ends, in whatever order others end; afterwards it is that of the next one."""
    clock = iter([0.0, 10.0, 15.0, 20.0, 21.0]).__next__
    registry = CollectorRegistry()
    metrics = ProcessMetrics(registry, clock)

    def figures() -> tuple[float, float]:
        metrics.fold()
        found = list(registry.collect())
        return total(found, "lamella_commits_in_progress"), total(found, "lamella_commit_oldest_seconds")

    assert figures() == (0, 0)
    first, second = metrics.commit_begun(), metrics.commit_begun()
    assert figures() == (2, 15.0)
    first()
    first()
    assert figures() == (1, 10.0)
    second()
    assert figures() == (0, 0)


def test_a_loop_that_is_blocked_shows_it(tmp_path: Path) -> None:
    """What keeps the event loop from going on is in the next beat's lag; a beat brings the rest up to date."""
    metrics, catalog = Metrics(), open_catalog(str(tmp_path / "c.db"))
    threads, go = Threads(1), threading.Event()
    monitor = EventLoopMonitor(metrics, catalog, lambda: {"read": threads.use})

    def beats() -> tuple[float, float]:
        found = metrics.families()
        return total(found, "lamella_event_loop_lag_seconds_count"), total(found, "lamella_event_loop_lag_seconds_sum")

    async def go_on() -> None:
        async with monitor.beating():
            await asyncio.sleep(0)
            time.sleep(0.6)  # longer than a beat takes to come
            while not beats()[0]:
                await asyncio.sleep(0.01)
            count, lag_s = beats()
            assert lag_s > 0.3 * count
            works = [asyncio.ensure_future(threads.run(go.wait)) for _ in range(3)]
            while threads.use.waiting < 2:
                await asyncio.sleep(0.01)
            monitor.look()
            found = metrics.families()
            assert [total(found, f"lamella_threads_{what}", pool="read") for what in ("busy", "max", "waiting")] == [
                1,
                1,
                2,
            ]
            go.set()
            await asyncio.gather(*works)

    asyncio.run(go_on())
    assert total(metrics.families(), "lamella_catalog_connections_max") == catalog.connections[1]
    catalog.close()


def test_the_stores_calls_and_bytes_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the store itself counts, also those that fail, and by threads at once."""
    monkeypatch.setattr(Probe, "check", lambda self: self._check())  # each probe looks itself
    counted = CountedStore(FsspecStore())
    store = FaultyStore(counted, Script([Fault(how="before", operation="stat", nth=2, times=2)]))
    with AppClient(create_app(Settings(warehouse=str(tmp_path)), store=store), base_url="http://localhost") as client:
        with ThreadPoolExecutor(4) as pool:
            answers = [each.status_code for each in pool.map(lambda _: client.get("/health/ready"), range(8))]
        found = families(client)
    assert sorted(answers) == [200] * 6 + [502] * 2
    calls = "lamella_store_seconds_count"
    assert total(found, calls, operation="stat", outcome="failed") == 2
    assert total(found, calls, operation="put") == counted.puts > 0
    assert total(found, calls, operation="put", outcome="exists") > 0  # the check that nobody can replace an object
    assert 0 < total(found, "lamella_store_written_bytes_total") < counted.put_bytes
    assert total(found, "lamella_store_read_bytes_total") == counted.read_bytes


def test_the_stats_of_a_commits_local_files_are_one_call(tmp_path: Path) -> None:
    """One call per file would keep other threads from the interpreter; a missing file is named all the same."""
    settings = Settings(warehouse=str(tmp_path))
    with AppClient(create_app(settings), base_url="http://localhost") as client:
        client.post("/v1/namespaces", json={"name": "db"})
        client.post("/v1/namespaces/db/tables", json={"name": "t", "schema": [{"name": "a", "type": "int64"}]})
        location = client.get("/v1/namespaces/db/tables/t").json()["location"]
        names = [f"{location}/{number}.parquet" for number in range(200)]
        for number, name in enumerate(names):
            FsspecStore().put(name, b"x" * number)
        before = families(client)
        added = [{"location": name, "row_count": 1, "file_size": 0} for name in names]
        missing = {**added[0], "location": f"{location}/missing.parquet"}
        refused = client.post("/v1/namespaces/db/tables/t/commits", json={"added": [*added[:2], missing]})
        done = client.post("/v1/namespaces/db/tables/t/commits", json={"added": added})
        after = families(client)
        blocks = client.post("/v1/namespaces/db/tables/t/prune", json={}).json()["blocks"]
    assert [each["path"] for each in read_problem(refused).details["refused"]] == [missing["location"]]
    assert done.status_code == 200
    assert sorted(block["file_size"] for block in blocks) == list(range(200))
    calls = "lamella_store_seconds_count"
    assert total(after, calls, operation="stat_many") - total(before, calls, operation="stat_many") == 2
    assert total(after, calls, operation="stat") - total(before, calls, operation="stat") <= 3


def families(client: AppClient) -> list[Metric]:
    """What a service shows."""
    return list(text_string_to_metric_families(client.get("/metrics").text))


def test_several_workers_show_all_of_it(start_server: StartServer, tmp_path: Path) -> None:
    """Each worker's store, catalog and memory are in the one answer, whoever is asked."""
    server = start_server(warehouse=tmp_path / "w", workers=2)
    with World(server.url, f"file://{tmp_path}/data", FsspecStore()) as world:
        table = world.table()
        table.register(*world.numbers(world.folder(), 3))
        for literal in range(20):
            other = World(server.url, world.root, world.store)  # a connection of its own, so perhaps another worker
            assert other.api.call("POST", f"{table.path}/prune", {"filter": f"a > {literal}"})
            other.api.close()
        give_up_s = time.monotonic() + 300
        while True:
            shown = list(text_string_to_metric_families(world.api.send("GET", "/metrics").text))
            hits = total(shown, "lamella_memory_cache_events_total", event="hit")
            if hits and total(shown, "lamella_catalog_connections_max") == 32:
                break
            assert time.monotonic() < give_up_s
            time.sleep(0.1)
    assert total(shown, "lamella_catalog_seconds_count", operation="lookup", outcome="ok") >= 20
    assert total(shown, "lamella_store_seconds_count", operation="put", outcome="ok") >= 5
    assert total(shown, "lamella_store_written_bytes_total") > 1_000
    assert total(shown, "lamella_memory_cache_size_bytes") > 1_000
    assert total(shown, "lamella_build_info") == 1
    assert total(shown, "lamella_event_loop_lag_seconds_count") > 0
    assert total(shown, "lamella_threads_max", pool="read") == 16


def test_a_beat_that_fails_is_followed_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Figures would stand still for good, and the end of the service would fail with the error of a beat."""
    metrics, catalog = Metrics(), open_catalog(str(tmp_path / "c.db"))
    looks: list[int] = []

    def pools() -> dict[str, ThreadUse]:
        looks.append(1)
        raise OSError("no figures")

    monitor = EventLoopMonitor(metrics, catalog, pools)
    monkeypatch.setattr("lamella.service.process.health._STEP_S", 0.001)

    async def beat() -> None:
        async with monitor.beating():
            while len(looks) < 2:
                await asyncio.sleep(0.001)

    asyncio.run(beat())
    catalog.close()
    assert "metrics could not be updated" in caplog.text


@pytest.mark.slow
def test_pauses_for_the_garbage_collector_are_counted(tmp_path: Path) -> None:
    """By generation, while the service runs; a collection in the middle of a metric waits for nothing."""
    metrics, catalog = Metrics(), open_catalog(str(tmp_path / "c.db"))
    monitor = EventLoopMonitor(metrics, catalog, dict)
    before = list(gc.callbacks)

    def pauses(generation: str) -> float:
        return total(metrics.families(), "lamella_gc_pause_seconds_count", generation=generation)

    async def collect() -> None:
        async with monitor.beating():
            counted = pauses("2")
            gc.collect()
            with metrics.process.gc_pause.labels("2")._sum._lock:  # as if it were observed
                gc.collect()
            assert pauses("2") >= counted + 2

    asyncio.run(collect())
    catalog.close()
    assert gc.callbacks == before

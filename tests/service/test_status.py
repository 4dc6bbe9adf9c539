"""The status of the service: figures of all workers, what does not answer, and nothing secret."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from lamella.service import release
from lamella.service.catalog import open_catalog
from lamella.service.composition import Core
from lamella.service.config.settings import Settings
from lamella.service.config.sources import NOT_SET, SET, shown_settings, without_secrets
from lamella.service.http.idempotency import read_key
from lamella.service.process.status import (
    CacheFigures,
    JobWorker,
    RequestCounts,
    RouteFigures,
    ServiceStatus,
    StageFigures,
    quantile_ms,
)
from lamella.service.telemetry.metrics import Metrics, worker_pids
from lamella.snapshot.errors import StoreError, Unavailable
from lamella.snapshot.ids import Ids
from lamella.snapshot.storage import FsspecStore, ObjectStat, Store
from lamella.snapshot.wire import ClaimJob, PruneAnswer, Report, Stage, SubmitJob

SECRET = "hunter2"


class Broken:
    """A store that fails when somebody looks, with an address in its message."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.error: Exception | None = None

    def stat(self, location: str) -> ObjectStat:
        """As the store does."""
        if self.error is not None:
            raise self.error
        return self._store.stat(location)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class World:
    """The parts of a service over local files."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.now_ms = 1_900_000_000_000
        self.store = Broken(FsspecStore())
        made = Settings(warehouse=str(folder / "warehouse"), **settings)
        self.core = Core(
            made,
            store=self.store,
            catalog=open_catalog(made.catalog_url),
            ids=Ids(),
            clock=lambda: self.now_ms,
        )

    def look(self) -> ServiceStatus:
        """What is tested."""
        return self.core.status.look()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A service that nobody has asked anything."""
    world = World(tmp_path)
    yield world
    world.core.close()


def test_a_service_without_requests_says_so(world: World) -> None:
    """Who it is, since when, and that what it stands on answers."""
    world.now_ms += 90_500
    found = world.look()
    assert (found.version, found.pid, found.workers) == (release(), os.getpid(), (os.getpid(),))
    assert (found.started_ms, found.now_ms, found.uptime_s) == (world.now_ms - 90_500, world.now_ms, 90.5)
    assert (found.requests, found.prune_stages, found.job_workers, found.problems) == ((), (), (), {})
    assert (found.commits, found.commit_retries, found.requests_in_progress) == (0, 0, 0)
    assert (found.catalog.backend, found.catalog.error) == ("sqlite", None)
    assert found.catalog.revision == world.core.catalog.schema_revision()
    assert found.catalog.ping_ms is not None
    assert (found.store.scheme, found.store.error) == ("file", None)
    assert found.store.stat_ms is not None
    (memory,) = found.caches
    limit_bytes = world.core.settings.cache_bytes
    empty = {"size_bytes": 0, "entries": 0, "hits": 0, "misses": 0, "evicted": 0}
    assert memory == CacheFigures(name="memory", scope="process", limit_bytes=limit_bytes, **empty)


def test_requests_are_counted_by_route(world: World) -> None:
    """Those asked most first; errors are the service's own, and stages are those of all prunes."""
    metrics = world.core.metrics
    for status, times in (("200", 7), ("404", 2), ("503", 1)):
        metrics.requests.labels("POST", "/prune", status).inc(times)
    for took_s in [0.0015] * 9 + [100.0]:
        metrics.request_seconds.labels("POST", "/prune").observe(took_s)
    metrics.requests.labels("GET", "/t", "200").inc(3)
    metrics.problems.labels("unavailable").inc(2)
    metrics.committed(added=1, removed=0)
    metrics.commit_retries.inc(4)
    stages = (Stage(stage="block", considered=10, kept=4, bytes=40, ms=2.0),)
    answer = PruneAnswer(
        snapshot_id="s",
        timestamp_ms=1,
        report=Report(stages=stages, blocks_total=10, rows_total=1, bytes_total=100),
    )
    for _ in range(2):
        metrics.pruned(answer)
    found = world.look()
    assert [(each.method, each.route, each.requests, each.errors) for each in found.requests] == [
        ("POST", "/prune", 10, 1),
        ("GET", "/t", 3, 0),
    ]
    prune, other = found.requests
    assert prune.mean_ms == pytest.approx(10_001.35)
    assert prune.p50_ms is not None
    assert 1.0 < prune.p50_ms <= 2.0
    assert prune.p99_ms is None, "it is in the bucket that has no upper bound"
    assert other == RouteFigures(method="GET", route="/t", requests=3, errors=0, mean_ms=0.0, p50_ms=None, p99_ms=None)
    assert found.prune_stages == (StageFigures(stage="block", considered=20, kept=8, kept_bytes=80, seconds=0.004),)
    assert (found.commits, found.commit_retries, found.problems) == (1, 4, {"unavailable": 2})


@given(values=st.lists(st.floats(0.0, 4.0), min_size=1, max_size=60), share=st.sampled_from([0.1, 0.5, 0.9, 0.99]))
def test_a_quantile_lies_in_the_bucket_that_has_it(values: list[float], share: float) -> None:
    """The one in which the value of that rank was counted."""
    bounds = [0.5, 1.0, 2.0, 4.0]
    histogram = Histogram("h", "h", buckets=bounds, registry=CollectorRegistry())
    for value in values:
        histogram.observe(value)
    (family,) = histogram.collect()
    counts = [(float(each.labels["le"]), each.value) for each in family.samples if each.name == "h_bucket"]
    found_ms = quantile_ms(counts, share)
    exact = sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]
    low, high = next((low, high) for low, high in zip([0.0, *bounds], bounds, strict=False) if exact <= high)
    assert found_ms is not None
    assert 1000 * low - 1e-6 <= found_ms <= 1000 * high + 1e-6


def test_workers_that_have_a_job_are_named(world: World) -> None:
    """With the job, until it is over."""
    core = world.core
    core.jobs.submit(SubmitJob(kind="vacuum_dropped"), read_key(None, "POST", "/v1/jobs", "", b"", world.now_ms))
    assert world.look().jobs_pending == {"queued": 1, "running": 0}
    world.now_ms += 5
    taken = core.jobs.claim(ClaimJob(worker="w1", lease_token=str(Ids().new()), lease_s=60))
    assert taken is not None
    assert taken.job is not None
    found = world.look()
    assert found.jobs_pending == {"queued": 0, "running": 1}
    assert found.job_workers == (
        JobWorker(
            worker="w1",
            job_id=taken.job.job_id,
            kind="vacuum_dropped",
            table=None,
            heartbeat_ms=taken.job.heartbeat_ms,
            lease_expires_ms=world.now_ms + 60_000,
        ),
    )


def test_what_does_not_answer_is_reported_and_not_raised(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog and the store, each by itself, with no password of an address."""

    def fail() -> None:
        raise Unavailable(f"no answer from postgresql://me:{SECRET}@db/x")

    monkeypatch.setattr(world.core.catalog, "ping", fail)
    world.store.error = StoreError(f"no answer from https://me:{SECRET}@s3/x?X-Amz-Signature={SECRET}&a=b")
    found = world.look()
    assert (found.catalog.error, found.catalog.ping_ms) == ("no answer from postgresql://***@db/x", None)
    assert found.store.error == "no answer from https://***@s3/x?X-Amz-Signature=***&a=***"
    assert (found.store.stat_ms, found.jobs_pending, found.job_workers) == (None, {}, ())
    assert SECRET not in repr(found)


def test_the_disk_cache_shows_what_it_holds(tmp_path: Path) -> None:
    """What the files take, whichever process wrote them, and what happened to them."""
    world = World(tmp_path, cache_dir=str(tmp_path / "cache"), cache_dir_bytes=1 << 20)
    _, empty = world.look().caches
    assert (empty.name, empty.scope, empty.size_bytes, empty.limit_bytes) == ("disk", "machine", 0, 1 << 20)
    cache = world.core.status._disk_cache
    assert cache is not None
    cache.derived("k", lambda: [memoryview(b"x" * 10_000)])
    _, disk = world.look().caches
    assert disk.size_bytes >= 10_000
    assert (disk.hits, disk.misses, disk.evicted, disk.damaged, disk.failed) == (0, 1, 0, 0, 0)
    world.core.close()
    again = World(tmp_path, cache_dir=str(tmp_path / "cache"), cache_dir_bytes=1 << 20)
    assert again.look().caches[1].size_bytes == disk.size_bytes
    again.core.close()


def test_settings_show_no_secret(tmp_path: Path) -> None:
    """Of those that hold one only whether they are set, and of addresses in the others no user and no password."""
    settings = Settings(
        warehouse=f"s3://key:{SECRET}/x@bucket/w?sig={SECRET}",
        catalog=f"postgresql+psycopg://me:{SECRET}@db/x",
        store_options={"s3": {"secret": SECRET}},
        iceberg_catalogs={"prod": {"token": SECRET}},
        iceberg_static_keys={"read": {"key": "k", "secret": SECRET}},
        token_secret=SECRET * 4,
        root_key_sha256="0" * 64,
        oidc_client_secret=SECRET,
        cache_dir=str(tmp_path),
        port=9_999,
    )
    shown = {each.name: each for each in shown_settings(settings)}
    assert list(shown) == list(Settings.model_fields)
    assert SECRET not in msgspec.json.encode(list(shown.values())).decode()
    hidden = [name for name, field in Settings.model_fields.items() if not field.repr]
    assert [name for name, each in shown.items() if each.is_secret] == hidden
    assert {shown[name].value for name in hidden} == {SET}
    plain = {each.name: each.value for each in shown_settings(Settings(warehouse="w"))}
    assert {plain[name] for name in hidden} == {NOT_SET}
    assert (shown["port"].value, shown["port"].is_default) == ("9999", False)
    assert (plain["insecure"], shown["workers"].value, shown["workers"].is_default) == ("false", "1", True)
    assert shown["warehouse"].value == "s3://***@bucket/w?sig=***"
    assert all(each.description for each in shown.values())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("/data/a@b:c", "/data/a@b:c"),
        (f"s3://key:{SECRET}@bucket/x", "s3://***@bucket/x"),
        (f"s3://{SECRET}@bucket/x", "s3://***@bucket/x"),
        (f"s3://k:a@{SECRET}@bucket", "s3://***@bucket"),
        (f"at https://u:{SECRET}@h/p and http://v:{SECRET}@i", "at https://***@h/p and http://***@i"),
        (f"https://h/p?token={SECRET}&x=1", "https://h/p?token=***&x=***"),
        (f"postgresql://h/d?user=me;password={SECRET}", "postgresql://h/d?user=***;password=***"),
    ],
)
def test_addresses_lose_their_credentials(text: str, shown: str) -> None:
    """Wherever they stand in a text; what is no address stays as it is."""
    assert without_secrets(text) == shown


def test_workers_are_those_that_are_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the files of their numbers; without several workers it is this process."""
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    assert worker_pids() == (os.getpid(),)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    alive = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    for name in (f"counter_{dead.pid}.db", f"counter_{alive.pid}.db", f"gauge_livesum_{alive.pid}.db", "x_y.db"):
        (tmp_path / name).touch()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    try:
        assert worker_pids() == tuple(sorted((alive.pid, os.getpid())))
    finally:
        alive.communicate(b"\n")


def test_figures_are_those_of_all_workers(tmp_path: Path) -> None:
    """Counters and histograms of processes that share a folder are added up."""
    program = """
from lamella.service.telemetry.metrics import Metrics
metrics = Metrics()
metrics.requests.labels("GET", "/t", "500").inc(2)
metrics.request_seconds.labels("GET", "/t").observe(0.003)
metrics.committed(added=1, removed=0)
"""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for _ in range(3):
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    reading = """
import msgspec
from lamella.service.telemetry.metrics import Metrics
from lamella.service.process.status import RequestCounts
counted = RequestCounts(Metrics().families())
print(msgspec.json.encode([counted.routes(), counted.total("lamella_commits_total")]).decode())
"""
    done = subprocess.run([sys.executable, "-c", reading], env=environment, check=True, capture_output=True, text=True)
    ((route,), commits) = msgspec.json.decode(done.stdout)
    assert (route["requests"], route["errors"], commits) == (6, 6, 3)
    assert 2.0 <= route["p50_ms"] <= 5.0


def test_sums_are_of_the_samples_with_these_labels() -> None:
    """And by the values of a label over all others."""
    metrics = Metrics()
    metrics.job_enqueued("compact", "request")
    metrics.job_enqueued("compact", "policy")
    metrics.job_enqueued("vacuum", "policy")
    counted = RequestCounts(metrics.families())
    assert counted.total("lamella_jobs_enqueued_total") == 3
    assert counted.total("lamella_jobs_enqueued_total", kind="compact") == 2
    assert counted.total("nothing") == 0
    assert counted.by("lamella_jobs_enqueued_total", "origin") == {"policy": 2.0, "request": 1.0}

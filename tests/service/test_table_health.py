"""Table health: figures as other ways give them, nobody who waits for them, and findings with a job that helps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lamella.service.app import create_app
from lamella.service.catalog import TableRecord, current_table, open_catalog
from lamella.service.composition import Core
from lamella.service.config.settings import Settings
from lamella.service.jobs.policies import Measurements, SnapshotConditions, StoredConditions
from lamella.service.maintenance.table_health import Differences, TableHealths, findings_of
from lamella.snapshot.errors import StoreError
from lamella.snapshot.ids import Ids
from lamella.snapshot.job_kinds import check_arguments, job_kind_named
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import (
    CompactRule,
    ExpiredBytes,
    HealthFinding,
    HealthRemedy,
    IndexHealth,
    IndexRefreshRule,
    Policy,
    ReclusterRule,
    TableHealth,
    VacuumRule,
)
from support.app_client import AppClient
from support.service_api import parquet_bytes

TABLE = "/v1/namespaces/db/tables/t"
DAY_MS = 86_400_000
START_MS = 1_900_000_000_000


class World:
    """A service at a time of the test's own, and the parts of a second one over the same catalog and warehouse."""

    def __init__(self, folder: Path, opened: ExitStack, *, share: float = 0.0) -> None:
        self.folder = folder
        self.now_ms = START_MS
        self.files = 0
        settings = Settings(
            warehouse=str(folder / "warehouse"),
            retention_max_age_s=10 * 86_400,
            vacuum_min_age_s=60,
            table_health_share=share,
        )
        self.settings = settings
        self.app = opened.enter_context(AppClient(create_app(settings, clock=self.clock)))
        self.core = self.another_core()
        opened.callback(self.core.close)
        self.post("/v1/namespaces", name="db")
        schema = [{"name": "a", "type": "int64"}, {"name": "s", "type": "string"}]
        self.post("/v1/namespaces/db/tables", name="t", schema=schema, cluster_key=["a"])

    def another_core(self) -> Core:
        """The parts of one more service over the same catalog and warehouse."""
        return Core(
            self.settings,
            store=FsspecStore(),
            catalog=open_catalog(self.settings.catalog_url),
            ids=Ids(self.clock),
            clock=self.clock,
        )

    def clock(self) -> int:
        """A millisecond later each time, so that no two snapshots have the same."""
        self.now_ms += 1
        return self.now_ms

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        """The answer to a change that must succeed."""
        answer = self.app.post(path, json=body)
        assert answer.status_code in (200, 201), answer.text
        return dict(answer.json())

    def get(self, path: str) -> dict[str, Any]:
        """The answer to a question."""
        answer = self.app.get(path)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def register(self, *ranges: tuple[int, int]) -> None:
        """One snapshot with a block for each range of ``a``."""
        paths = []
        for low, high in ranges:
            path = self.folder / f"{self.files:04}.parquet"
            self.files += 1
            values = list(range(low, high))
            path.write_bytes(parquet_bytes({"a": values, "s": [f"v{value}" for value in values]}))
            paths.append(f"file://{path}")
        self.post(f"{TABLE}/register", paths=paths)

    @property
    def record(self) -> TableRecord:
        """The table as it is now."""
        return current_table(self.core.catalog, "db", "t")

    @property
    def healths(self) -> TableHealths:
        """What is tested."""
        return self.core.healths


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An empty table with a cluster key."""
    with ExitStack() as opened:
        yield World(tmp_path, opened)


def test_the_figures_are_those_that_other_ways_give(world: World) -> None:
    """Of a real table: counts, depth, what the indexes know, and how long the history is."""
    world.register((0, 100), (50, 150), (75, 175))
    world.post(f"{TABLE}/indexes", name="by_s", kind="bloom", expression="s")
    world.post(f"{TABLE}/indexes/by_s/refresh")
    world.register((0, 10), (500, 600))
    world.post(f"{TABLE}/indexes", name="dropped", kind="bloom", expression="s")
    assert world.app.delete(f"{TABLE}/indexes/dropped").status_code == 200
    health = world.healths.get(world.record)
    table, clustering = world.get(TABLE), world.get(f"{TABLE}/clustering")
    index = world.get(f"{TABLE}/indexes/by_s")["coverage"]
    history = world.get(f"{TABLE}/snapshots")["snapshots"]
    assert health.missing == {}
    assert (health.snapshot_id, health.timestamp_ms) == (table["snapshot_id"], table["timestamp_ms"])
    assert (health.row_count, health.block_count) == (table["row_count"], table["block_count"]) == (410, 5)
    assert (health.segment_count, health.file_size_bytes) == (table["segment_count"], table["file_size_bytes"])
    assert (health.cluster_key, health.cluster_kind) == (("a",), "linear")
    assert health.average_depth == clustering["depth"]["average_depth"]
    assert health.average_depth is not None
    assert health.average_depth > 1
    assert health.small_blocks == 5
    expected = IndexHealth(name="by_s", kind="bloom", blocks=5, not_indexed=2, stale=index["stale"])
    assert health.indexes == (expected,)
    assert index["not_indexed"] == 2
    assert (health.snapshots, health.oldest_ms) == (len(history), history[-1]["timestamp_ms"])
    assert health.expired_snapshots == 0
    assert (health.depth_day_ago, health.depth_week_ago) == (None, None)


def test_depths_of_earlier_days_are_those_of_the_snapshots_of_then(world: World) -> None:
    """Unless the table has another key by now, or there was none."""
    world.register((0, 100), (100, 200))
    then = world.healths.get(world.record).average_depth
    world.now_ms += 3 * DAY_MS
    world.register((0, 200), (0, 200), (0, 201))
    between = world.healths.get(world.record)
    assert (between.depth_day_ago, between.depth_week_ago) == (then, None)
    world.now_ms += 6 * DAY_MS
    health = world.healths.get(world.record)
    assert (health.depth_day_ago, health.depth_week_ago) == (between.average_depth, then)
    assert [finding.code for finding in health.findings if finding.code == "depth_growing"] == ["depth_growing"]
    assert world.app.put(f"{TABLE}/cluster-key", json={"columns": ["s"]}).status_code == 200
    other = world.healths.get(world.record)
    assert (other.depth_day_ago, other.depth_week_ago) == (None, None)
    assert other.missing == {}
    assert world.app.put(f"{TABLE}/cluster-key", json={"columns": []}).status_code == 200
    without = world.healths.get(world.record)
    assert (without.cluster_key, without.cluster_kind, without.average_depth) == ((), None, None)
    assert "average_depth" not in without.missing


def test_snapshots_past_their_retention_are_those_that_a_vacuum_expires(world: World) -> None:
    """No more and no fewer, tags considered."""
    for number in range(5):
        world.register((number, number + 1))
    world.post(f"{TABLE}/tags", name="kept")
    world.now_ms += 11 * DAY_MS
    world.register((5, 6))
    world.now_ms += 11 * DAY_MS
    world.register((6, 7))
    health = world.healths.get(world.record)
    answer = world.post(f"{TABLE}/vacuum")
    assert health.expired_snapshots == sum(disposition["expires"] for disposition in answer["snapshots"]) == 5
    assert health.snapshots == 8


def test_looking_never_waits_and_measures_in_the_background(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look finds nothing; then figures stay until there is another snapshot, or for some minutes."""
    began, go = threading.Event(), threading.Event()
    measure, record = world.healths._measure, world.record

    def slow(record: TableRecord) -> TableHealth:
        began.set()
        assert go.wait(60)
        return measure(record)

    monkeypatch.setattr(world.healths, "_measure", slow)
    assert world.healths.peek(record) is None
    assert began.wait(60)
    assert world.healths.peek(record) is None
    go.set()
    first = world.healths.get(record)
    assert world.healths.peek(record) is first
    assert world.healths.get(record) is first
    world.register((0, 10))
    old = world.healths.peek(world.record)
    assert old == msgspec.structs.replace(first, commits_since=1), "what was known before is better than nothing"
    second = world.healths.get(world.record)
    assert second.snapshot_id == world.record.pointer.snapshot_id != first.snapshot_id
    assert world.healths.peek(world.record) is second
    world.now_ms += 300_000
    third = world.healths.get(world.record)
    assert third.measured_ms > second.measured_ms


def test_what_was_measured_is_stored_for_other_processes(world: World) -> None:
    """A service that starts knows it at once, and of which snapshot it is; one that cannot read it measures again."""
    world.register((0, 100), (50, 150))
    first = world.healths.get(world.record)
    world.register((100, 200))
    with ExitStack() as opened:
        again = opened.enter_context(closing(world.another_core()))
        found = again.healths.peek(world.record)
        assert found == msgspec.structs.replace(first, commits_since=1)
        assert again.healths.show(world.record).version in (first.version, first.version + 1)
        second = again.healths.get(world.record)
        assert (second.version, second.commits_since, second.block_count) == (first.version + 1, 0, 3)
    assert world.healths.peek(world.record) == second, "the other one's result is newer than its own"
    world.core.catalog.put_table_health(world.record.table_id, second.version + 1, 0, "of a later release")
    with closing(world.another_core()) as third:
        assert third.healths.peek(world.record) is None
        assert third.healths.show(world.record).block_count == 3


def test_a_table_is_measured_soon_after_a_commit(tmp_path: Path) -> None:
    """Without anybody asking; requests see it, and later commits are measured too."""
    with ExitStack() as opened:
        world = World(tmp_path, opened, share=0.5)
        for blocks in (1, 3):
            world.register(*[(0, 100)] * (blocks - 1 or 1))
            found = wait_for(lambda: world.core.catalog.table_health(world.record.table_id), world.record.version)
            assert found.block_count == blocks
            answered = world.get(f"{TABLE}/health")
            assert (answered["version"], answered["commits_since"]) == (world.record.version, 0)


def wait_for(stored: Callable[[], str | None], version: int) -> TableHealth:
    """The stored health of a version."""
    for _ in range(1_200):
        text = stored()
        if text is not None and msgspec.json.decode(text, type=TableHealth).version == version:
            return msgspec.json.decode(text, type=TableHealth)
        time.sleep(0.05)
    raise AssertionError("it was not measured")


def test_measuring_rests(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each table, for as long as the share demands; a dropped table is passed over, and the others are not."""
    world.post("/v1/namespaces/db/tables", name="u", schema=[{"name": "a", "type": "int64"}])
    now_s, rests = 0.0, list[float]()
    healths = TableHealths(
        world.core.catalog,
        world.core.warehouse,
        world.core.conditions,
        world.core.vacuum,
        world.core.metrics,
        world.clock,
        share=0.05,
        timer=lambda: now_s,
    )
    measure = healths._measure

    def slow(record: TableRecord) -> TableHealth:
        nonlocal now_s
        now_s += 2.0
        return measure(record)

    monkeypatch.setattr(healths, "_measure", slow)
    monkeypatch.setattr(healths._debouncer, "soon", lambda: None)
    monkeypatch.setattr(healths._closed, "wait", rests.append)
    others = [current_table(world.core.catalog, "db", name).table_id for name in ("t", "u")]
    for table_id in ("none", *others, others[0]):
        healths.note_commit(table_id)
    healths._measure_changed()
    healths.close()
    assert rests == [pytest.approx(38.0)] * 2
    assert [world.core.catalog.table_health(each) is not None for each in others] == [True, True]


def test_without_a_share_commits_are_not_measured(world: World) -> None:
    """Nor is anything kept for later."""
    world.healths.note_commit(world.record.table_id)
    assert not world.healths._changed
    assert not world.healths._debouncer.is_due


def test_the_bytes_of_deleted_rows_and_of_expired_snapshots(world: World) -> None:
    """As the files are: what a purge and a clean-up would free."""
    world.register((0, 100), (100, 200))
    now = world.healths.get(world.record)
    assert now.expired == ExpiredBytes(snapshots=0, min_bytes=0, max_bytes=0)
    assert now.deleted_bytes == 0
    world.register((200, 300))
    world.now_ms += 11 * DAY_MS
    after = world.healths.get(world.record)
    swept = world.post(f"{TABLE}/vacuum")["garbage"]
    assert after.expired is not None
    assert after.expired.snapshots == 2
    # What a commit folded at once was in no snapshot; a clean-up deletes it too.
    named = sum(each["size_bytes"] for kind, each in swept.items() if kind == "snapshot")
    assert named <= after.expired.min_bytes == after.expired.max_bytes
    assert after.expired.min_bytes <= sum(each["size_bytes"] for each in swept.values())


def test_comparing_snapshots_goes_on_where_time_was_up(world: World) -> None:
    """A measurement compares for a second; what it did is remembered, and the limits say what is left."""
    for low in range(0, 500, 100):
        world.register((low, low + 100))
    world.now_ms += 11 * DAY_MS
    entries = world.core.catalog.whole_history(world.record.table_id)
    decisions = world.core.vacuum.preview_decisions(world.record, entries)
    now_s = 0.0

    def timer() -> float:
        nonlocal now_s
        now_s += 0.4
        return now_s

    differences = Differences(world.core.warehouse, timer)
    found = [differences.reclaimable(decisions, entries) for _ in range(4)]
    left = [each.not_compared for each in found]
    assert left[0] > left[1] > left[2] == left[3] == 0
    assert found[0].max_bytes is None
    assert found[0].min_bytes < found[1].min_bytes < found[2].min_bytes == found[2].max_bytes
    whole = Differences(world.core.warehouse, lambda: 0.0).reclaimable(decisions, entries)
    assert found[2] == found[3] == whole


def test_tables_are_measured_one_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many threads ask for however many tables; and those who ask for the same one get the same figures."""
    for number in range(4):
        world.post("/v1/namespaces/db/tables", name=f"t{number}", schema=[{"name": "a", "type": "int64"}])
    measure = world.healths._measure
    lock = threading.Lock()
    measured: list[str] = []

    def alone(record: TableRecord) -> TableHealth:
        assert lock.acquire(blocking=False), "another one is being measured"
        try:
            measured.append(record.table_id)
            return measure(record)
        finally:
            lock.release()

    monkeypatch.setattr(world.healths, "_measure", alone)
    records = [current_table(world.core.catalog, "db", f"t{number}") for number in range(4)]
    found: list[TableHealth] = []
    threads = [threading.Thread(target=lambda r=r: found.append(world.healths.get(r))) for r in records * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(measured) == sorted(record.table_id for record in records)
    assert len({id(health) for health in found}) == 4


def test_a_part_that_fails_is_left_out_with_its_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the others are there; a table that was dropped meanwhile is no failure of anybody else."""

    def fail(*_: object) -> Measurements:
        raise StoreError("the disk is on fire")

    world.register((0, 100))
    monkeypatch.setattr(world.healths._conditions, "small_blocks", fail)
    monkeypatch.setattr(world.core.warehouse.layouts, "average_depth", fail)
    health = world.healths.get(world.record)
    reason = "the disk is on fire"
    assert health.missing == {"small_blocks": reason, "average_depth": reason}
    assert (health.small_blocks, health.average_depth, health.block_count, health.snapshots) == (None, None, 1, 2)
    record = world.record
    assert world.app.delete(TABLE).status_code == 204
    assert world.healths.get(record) is health


def test_policies_decide_what_is_found_and_their_arguments_what_is_done(world: World) -> None:
    """Each finding's remedy is a job that the service takes as it is."""
    world.register(*((0, 100) for _ in range(3)))
    world.post(f"{TABLE}/indexes", name="by_s", kind="bloom", expression="s")
    assert world.healths.get(world.record).findings == (
        HealthFinding(
            code="not_indexed",
            severity="warn",
            text="Index 'by_s' does not cover 3 of 3 blocks, which are read.",
            remedy=HealthRemedy(kind="index_refresh", arguments={"index": "by_s"}),
        ),
    )
    world.now_ms += 11 * DAY_MS
    world.register((0, 100))
    world.now_ms += 11 * DAY_MS
    policy = Policy(
        compact=CompactRule(small_blocks=4, arguments={"max_bytes": 1_000_000}),
        recluster=ReclusterRule(average_depth=1.0),
        index_refresh=IndexRefreshRule(not_indexed_blocks=4),
        vacuum=VacuumRule(snapshots=4),
    )
    assert world.app.put(f"{TABLE}/policy", json=msgspec.to_builtins(policy)).status_code == 200
    health = world.healths.get(world.record)
    assert [finding.code for finding in health.findings] == ["small_blocks", "depth", "not_indexed", "retention"]
    for finding in health.findings:
        assert finding.severity == "warn"
        assert finding.remedy is not None
        job = world.post("/v1/jobs", kind=finding.remedy.kind, table="db.t", arguments=finding.remedy.arguments)
        assert job["state"] == "queued"
    assert health.findings[0].remedy is not None
    assert health.findings[0].remedy.arguments == {"max_bytes": 1_000_000}


def figures(**values: Any) -> TableHealth:
    """A large table in good order, but for these."""
    given: dict[str, Any] = {
        "table_id": "t",
        "snapshot_id": "s",
        "timestamp_ms": 1,
        "measured_ms": 1,
        "row_count": 1_000_000,
        "block_count": 2_000,
        "small_blocks": 3,
        "cluster_key": ("a",),
        "average_depth": 1.5,
        "snapshots": 50,
        "expired_snapshots": 3,
        "indexes": (index(5),),
    }
    return TableHealth(**{**given, **values})


def index(not_indexed: int) -> IndexHealth:
    """An index of such a table."""
    return IndexHealth(name="i", kind="bloom", blocks=2_000, not_indexed=not_indexed, stale=0)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, []),
        ({"small_blocks": 199}, []),
        ({"small_blocks": 200}, [("small_blocks", "warn")]),
        ({"small_blocks": 31, "block_count": 40}, []),
        ({"small_blocks": 32, "block_count": 40}, [("small_blocks", "warn")]),
        ({"average_depth": 4.0}, [("depth", "warn")]),
        ({"average_depth": 3.0, "depth_week_ago": 2.0}, [("depth_growing", "info")]),
        ({"average_depth": 3.0, "depth_week_ago": 2.9, "depth_day_ago": 1.9}, [("depth_growing", "info")]),
        ({"average_depth": 1.4, "depth_week_ago": 1.0}, []),
        ({"average_depth": 5.0, "depth_day_ago": 2.0}, [("depth", "warn"), ("depth_growing", "info")]),
        ({"indexes": (index(99),)}, []),
        ({"indexes": (index(100),)}, [("not_indexed", "info")]),
        ({"indexes": (index(1_000), index(0))}, [("not_indexed", "warn")]),
        ({"expired_snapshots": 100, "snapshots": 200}, [("retention", "warn")]),
        ({"cluster_key": (), "average_depth": None}, [("no_cluster_key", "info")]),
        ({"cluster_key": (), "average_depth": None, "block_count": 999}, []),
        ({"indexes": (index(100),), "average_depth": 9.0}, [("depth", "warn"), ("not_indexed", "info")]),
        (dict.fromkeys(("small_blocks", "average_depth", "snapshots", "expired_snapshots", "block_count")), []),
    ],
)
def test_findings_begin_at_their_thresholds(values: dict[str, Any], found: list[tuple[str, str]]) -> None:
    """The gravest first; a figure that is not there finds nothing, and each remedy is a job of a kind that is there."""
    findings = findings_of(figures(**values), Policy(), has_filters=True)
    assert [(finding.code, finding.severity) for finding in findings] == found
    for finding in findings:
        assert finding.text.endswith(".")
        assert (finding.remedy is None) == (finding.code == "no_cluster_key")
        if finding.remedy is not None:
            check_arguments(job_kind_named(finding.remedy.kind), finding.remedy.arguments)


def test_a_table_that_nobody_asks_with_filters_needs_no_key() -> None:
    """It is only read as a whole."""
    assert findings_of(figures(cluster_key=(), average_depth=None), Policy(), has_filters=False) == ()


def test_policies_take_stored_values_of_the_current_snapshot_alone(world: World) -> None:
    """They are those that measuring gives; after a commit, or for another share, it is measured."""
    world.register((0, 100), (50, 150), (75, 175))
    world.post(f"{TABLE}/indexes", name="by_s", kind="bloom", expression="s")
    world.post(f"{TABLE}/indexes/by_s/refresh")
    world.register((0, 10), (500, 600))
    measured, stale = world.core.conditions, list[str]()
    world.healths.get(world.record)
    calls: list[str] = []

    class Watched(SnapshotConditions):
        def __getattribute__(self, name: str) -> Any:
            if not name.startswith("_"):
                calls.append(name)
            return super().__getattribute__(name)

    watched = Watched(world.core.catalog, world.core.warehouse, world.core.clustering.average_depth)
    stored = StoredConditions(world.core.catalog, watched, stale.append)
    record = world.record
    assert stored.small_blocks(record) == measured.small_blocks(record)
    assert stored.average_depth(record) == measured.average_depth(record)
    assert stored.blocks_with_deletes(record, None) == measured.blocks_with_deletes(record, None)
    assert stored.blocks_with_deletes(record, 0.5) == measured.blocks_with_deletes(record, 0.5)
    assert stored.indexes(record) == measured.indexes(record) == ["by_s"]
    assert stored.not_indexed_blocks(record, "by_s") == measured.not_indexed_blocks(record, "by_s") == Measurements(2)
    assert (calls, stale) == ([], [])
    assert stored.not_indexed_blocks(record, "none").reason == "there is no such index"
    assert stored.snapshots(record, 3) == Measurements(3)
    assert calls == ["not_indexed_blocks", "snapshots"]
    world.register((0, 3))
    record = world.record
    assert stored.small_blocks(record) == measured.small_blocks(record)
    assert stale == [record.table_id]
    world.core.catalog.put_table_health(record.table_id, record.version, 1, "of a later release")
    assert stored.indexes(record) == ["by_s"]
    assert len(stale) == 2

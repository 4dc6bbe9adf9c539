"""Prune rates: noted beside prunes, never on their time, added up in the catalog."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lamella.service.app import create_app
from lamella.service.catalog import PruneRateRow, SqlCatalog, TableRecord, open_catalog
from lamella.service.config.settings import Settings
from lamella.service.telemetry.metrics import Metrics
from lamella.service.usage.filters import PruneRates
from lamella.snapshot.errors import LamellaError, OutcomeUnknown, Unavailable
from lamella.snapshot.wire import NamespaceInfo, PruneRate, PruneRatesAnswer, Report, Stage
from lamella.snapshot.wire.operations.usage import BUCKET_MS, RATE_RETENTION_MS
from support.app_client import AppClient
from support.job_records import new_table
from support.service_api import parquet_bytes, read_problem

TABLE = "/v1/namespaces/db/tables/t"
START_MS = 1_700_000_100_000


def report(*stages: tuple[str, int]) -> Report:
    """Of a snapshot of 100 blocks and 1,000 bytes; stages by name with the bytes that they kept, 0.5 ms each."""
    made = tuple(Stage(stage=name, considered=100, kept=1, bytes=size, ms=0.5) for name, size in stages)
    return Report(stages=made, blocks_total=100, rows_total=5, bytes_total=1_000)


class Failing:
    """A catalog that does not take prune rates while ``error`` is set; counts the tries."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self._catalog = catalog
        self.error: LamellaError | None = None
        self.tries = 0

    def add_prune_rates(self, rows: Iterable[PruneRateRow]) -> None:
        """As the catalog does."""
        self.tries += 1
        if self.error is not None:
            raise self.error
        self._catalog.add_prune_rates(rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)


class World:
    """A catalog with a table, and what notes its prunes, at a time of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.catalog = open_catalog(str(folder / "catalog.db"))
        self.catalog.create_namespace(NamespaceInfo(name="db"), now_ms=1)
        self.record = new_table(self.catalog)
        self.failing = Failing(self.catalog)
        self.metrics = Metrics()
        self.now_ms = START_MS
        self.rates = PruneRates(self.failing, self.metrics, lambda: self.now_ms)

    @property
    def total(self) -> PruneRate | None:
        """What the catalog has of the table."""
        return self.catalog.prune_rates([self.record.table_id], since_ms=0).get(self.record.table_id)

    def prunes(self) -> int:
        """How many prunes the catalog knows."""
        return 0 if self.total is None else self.total.prunes

    def lost(self) -> float:
        """How many were counted as lost."""
        return float(self.metrics.prune_rates_lost._value.get())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A table that nobody has asked yet."""
    world = World(tmp_path)
    yield world
    world.rates.close()
    world.catalog.close()


def test_a_note_counts_the_snapshot_and_what_was_selected_of_it(world: World) -> None:
    """Bytes are those of the last stage of blocks; time is that of all stages."""
    world.rates.note(world.record, report(("snapshot", 1_000), ("block", 300), ("index", 70), ("page", 3)), 4)
    world.rates.note(world.record, report(), 100)
    (found,) = world.rates.series(world.record.table_id, since_ms=START_MS)
    assert found == PruneRate(
        prunes=2,
        considered_blocks=200,
        kept_blocks=104,
        bytes_total=2_000,
        kept_bytes=1_070,
        ms=2.0,
        bucket_ms=START_MS - START_MS % BUCKET_MS,
    )
    assert found.skipped_blocks == pytest.approx(1 - 104 / 200)
    assert found.skipped_bytes == pytest.approx(1 - 1_070 / 2_000)
    assert PruneRate().skipped_blocks is None


def test_a_prune_waits_for_no_database(world: World) -> None:
    """A note is taken while another one is being written, and a thread writes both later."""
    began, go = threading.Event(), threading.Event()
    world.rates._debouncer._delay_s = 0.0
    add = world.failing.add_prune_rates

    def slow(rows: Iterable[PruneRateRow]) -> None:
        began.set()
        assert go.wait(60)
        add(rows)

    world.failing.add_prune_rates = slow  # type: ignore[method-assign]  # the catalog takes its time
    world.rates.note(world.record, report(), 1)
    assert began.wait(60)
    for _ in range(1_000):
        world.rates.note(world.record, report(), 1)
    assert world.prunes() == 0
    go.set()
    world.rates.close()
    assert world.prunes() == 1_001


def test_closing_writes_what_is_left(world: World) -> None:
    """Once: what came before and after is not added again."""
    world.rates.note(world.record, report(), 1)
    world.rates.write()
    world.rates.note(world.record, report(), 1)
    world.rates.close()
    world.rates.close()
    assert world.prunes() == 2


def test_prune_rates_are_buffered_while_the_catalog_does_not_answer(world: World) -> None:
    """They are added once it does; of what may have been added nothing is added twice, and it is counted as lost."""
    world.failing.error = Unavailable("down")
    for _ in range(3):
        world.rates.note(world.record, report(), 1)
        world.rates.write()
    world.rates.note(world.record, report(), 1)
    assert (world.prunes(), world.lost(), world.failing.tries) == (0, 0, 3)
    world.failing.error = None
    world.rates.write()
    assert (world.prunes(), world.lost()) == (4, 0)
    world.failing.error = OutcomeUnknown("who knows")
    world.rates.note(world.record, report(), 1)
    world.rates.write()
    world.failing.error = None
    world.rates.write()
    assert (world.prunes(), world.lost()) == (4, 1)


def test_what_is_buffered_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound prunes are lost and counted, whatever time they are of."""
    monkeypatch.setattr("lamella.service.usage.filters._MAX_PENDING", 2)
    world.failing.error = Unavailable("down")
    for _ in range(5):
        world.rates.note(world.record, report(), 1)
        world.now_ms += BUCKET_MS
    world.rates.write()
    world.failing.error = None
    world.rates.write()
    assert (world.prunes(), world.lost()) == (2, 3)


def test_old_prune_rates_go(world: World) -> None:
    """Once they are older than eight days, when others are written."""
    world.rates.note(world.record, report(), 1)
    world.rates.write()
    world.now_ms += RATE_RETENTION_MS + 2 * BUCKET_MS
    assert world.prunes() == 1
    world.rates.write()
    assert world.prunes() == 0


@contextmanager
def served(folder: Path) -> Iterator[AppClient]:
    """A service with a table of eight blocks of ten rows."""
    with AppClient(create_app(Settings(warehouse=str(folder / "warehouse")))) as app:
        assert app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        columns = [{"name": "a", "type": "int64"}]
        assert app.post("/v1/namespaces/db/tables", json={"name": "t", "schema": columns}).status_code == 201
        paths = []
        for number in range(8):
            path = folder / f"{number}.parquet"
            path.write_bytes(parquet_bytes({"a": list(range(10 * number, 10 * number + 10))}))
            paths.append(f"file://{path}")
        assert app.post(f"{TABLE}/register", json={"paths": paths}).status_code == 200
        yield app


def rates(app: AppClient, query: str = "") -> dict[str, Any]:
    """The prune rates of the table."""
    answer = app.get(f"{TABLE}/prune-rates{query}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_every_way_to_prune_is_counted(tmp_path: Path) -> None:
    """On the event loop, in a thread, and many at once; with what was kept of how much."""
    with served(tmp_path) as app:
        empty, nothing = rates(app), msgspec.to_builtins(PruneRate())
        assert (empty["total"], empty["series"], empty["bucket_s"]) == (nothing, [], BUCKET_MS // 1000)
        bytes_total = app.get(TABLE).json()["file_size_bytes"]
        selected_bytes = 0
        bodies: list[dict[str, Any]] = [
            {"filter": "a < 25"},
            {"filter": "a < 25", "shape": "ranges"},
            {"filter": "a < 25" + " " * 4_000},
            {"filter": "a < 5", "explain": True},
            {"filter": "a >= 70", "level": "page"},
            {},
        ]
        for body in bodies:
            answer = app.post(f"{TABLE}/prune", json=body)
            stages = answer.json()["report"]["stages"]
            selected_bytes += [stage["bytes"] for stage in stages if stage["stage"] != "page"][-1]
        selected = 3 + 3 + 3 + 1 + 1 + 8
        batch = {"filters": ["a < 5", "a < 15", "a > 1000"], "shape": "columns"}
        for each in app.post(f"{TABLE}/prune/batch", json=batch).json()["answers"]:
            selected_bytes += each["report"]["stages"][-1]["bytes"]
        selected += 1 + 2
        total = rates(app)["total"]
        assert total["prunes"] == 9
        assert total["considered_blocks"] == 9 * 8
        assert total["kept_blocks"] == selected
        assert total["bytes_total"] == 9 * bytes_total
        assert total["kept_bytes"] == selected_bytes
        assert rates(app, "?since_s=691200")["total"] == total


def test_prunes_that_do_not_say_what_was_skipped_are_not_counted(tmp_path: Path) -> None:
    """Segments alone, some of them, and pages of an answer."""
    with served(tmp_path) as app:
        found = app.post(f"{TABLE}/prune", json={"level": "segment"}).json()["segments"]
        parts = {"segments": [found[0]["segment_id"]]}
        for body in (parts, {"page_size": 3}):
            assert app.post(f"{TABLE}/prune", json=body).status_code == 200
        assert rates(app)["series"] == []


def test_prune_rates_are_shown_of_a_table_that_is_there(tmp_path: Path) -> None:
    """Within the time that they are kept."""
    with served(tmp_path) as app:
        assert read_problem(app.get("/v1/namespaces/db/tables/none/prune-rates")).code == "table_not_found"
        for since_s in ("0", "691201", "-1", "x", ""):
            assert read_problem(app.get(f"{TABLE}/prune-rates?since_s={since_s}")).code == "invalid_request"


def test_an_answer_is_the_sum_of_its_buckets(world: World) -> None:
    """From the bucket on in which the time lies."""
    for _ in range(4):
        world.rates.note(world.record, report(("block", 10)), 2)
        world.now_ms += BUCKET_MS
    record: TableRecord = world.record
    answer = world.rates.answer(record, 2 * BUCKET_MS // 1000)
    assert isinstance(answer, PruneRatesAnswer)
    assert answer.since_ms % BUCKET_MS == 0
    assert [each.bucket_ms for each in answer.series] == [answer.since_ms, answer.since_ms + BUCKET_MS]
    assert (answer.total.prunes, answer.total.kept_blocks, answer.total.kept_bytes) == (2, 4, 20)

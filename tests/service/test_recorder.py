"""Recording of filters: bounded, off the way of prunes, and never a reason for one to fail."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from lamella.service.catalog import Catalog, HistoryEntry, RecordedBounds, RecordedFilter, TableRecord, open_catalog
from lamella.service.config.settings import Settings
from lamella.service.telemetry.metrics import Metrics
from lamella.service.usage.filters import FilterRecorder
from lamella.snapshot.errors import Unavailable
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import NamespaceInfo, PruneRequest

SCHEMA = Schema.assign([Column(name="a", type="int64"), Column(name="s", type="string")])


class World:
    """A table in a catalog of its own, and a recorder of its prunes."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.catalog: Catalog = open_catalog(str(folder / f"{uuid4()}.db"))
        self.warehouse = Warehouse(FsspecStore(), f"memory://{uuid4()}")
        table_id = str(uuid4())
        pointer = self.warehouse.create(table_id, SCHEMA, now_ms=1, properties=settings.pop("properties", {}))
        self.record = TableRecord(
            table_id=table_id,
            namespace="n",
            name="t",
            location=self.warehouse.table_location(table_id),
            version=1,
            pointer=pointer,
            created_at_ms=1,
        )
        self.catalog.create_namespace(NamespaceInfo(name="n", properties={}), now_ms=1)
        entry = HistoryEntry(
            seq=1,
            pointer=pointer,
            prev_snapshot_id=None,
            operation="create",
            row_count=0,
            block_count=0,
            segment_count=0,
            file_size_bytes=0,
        )
        self.catalog.create_table(self.record, entry)
        self.metrics = Metrics()
        self.now_ms = 1_000
        self.recorder = self._recorder(Settings(warehouse=str(folder), **settings))

    def _recorder(self, settings: Settings) -> FilterRecorder:
        def clock() -> int:
            self.now_ms += 1
            return self.now_ms

        return FilterRecorder(self.catalog, self.warehouse, self.metrics, clock, lambda: 0.0, settings, b"key")

    def ask(self, text: str, **request: Any) -> None:
        """A prune."""
        prune_request = PruneRequest(filter=text, **request)
        self.recorder.note(self.record, prune_request, self.warehouse.find(self.record.pointer, prune_request))

    @property
    def recorded(self) -> list[str]:
        """The filters that are kept."""
        return [each.text for each in self.recorder.filters(self.record.table_id, 1_000_000)]

    def count(self, outcome: str) -> float:
        """The counter of an outcome."""
        return float(self.metrics.filters_recorded.labels(outcome)._value.get())


def test_the_oldest_filter_is_evicted_when_there_are_too_many(tmp_path: Path) -> None:
    """By number, and by bytes."""
    world = World(tmp_path, recorded_filters=3)
    for number in range(6):
        world.ask(f"a > 1 {'AND a < 5 ' * number}")
    assert len(world.recorded) == 3
    small = World(tmp_path, recorded_bytes=1024)
    for number in range(40):
        small.ask(f"a IN ({', '.join(map(str, range(number + 1)))})")
    total = sum(each.size_bytes for each in small.recorder.filters(small.record.table_id, 100))
    assert 0 < total <= 1024


def test_notes_are_bounded_and_written_by_a_thread(tmp_path: Path) -> None:
    """After so many prunes a thread writes them; no prune waits for the catalog."""
    world = World(tmp_path)
    for number in range(1_000):
        world.ask(f"a = {number}")
    world.recorder.close()
    (line,) = world.catalog.recorded(world.record.table_id, limit=10)
    assert line.text == "a = '?'"
    assert line.times + world.count("lost") == 1_000
    assert world.count("stored") == line.times


@pytest.mark.parametrize(
    ("mode", "text"), [("shape", "s = '?'"), ("full", "s = 'secret'"), ("off", None), ("hashed", "s = '?")]
)
def test_what_is_recorded_is_what_the_service_says(tmp_path: Path, mode: str, text: str | None) -> None:
    """Constants only when somebody asked for that."""
    world = World(tmp_path, record_prunes=mode)
    world.ask("s = 'secret'")
    found = world.recorder.filters(world.record.table_id, 10)
    assert len(found) == (text is not None)
    assert all(each.text.startswith(text or "") for each in found)
    if mode != "full":
        assert "secret" not in msgspec.json.encode(found).decode()


def test_prunes_of_one_shape_are_one_row_however_they_come(tmp_path: Path) -> None:
    """The sums are those of every prune; filters with other kinds of literals, or patterns, are apart."""
    world = World(tmp_path)
    texts = [f"a > {number} AND s = 'x{number}'" for number in range(300)]
    for text in texts:
        world.ask(text)
    for text in ("a > 1.5 AND s = 'x'", "s LIKE 'a%'", "s LIKE '%a'", "a > 1 and s = 'x'"):
        world.ask(text)
    found = {each.text: each for each in world.recorder.filters(world.record.table_id, 10)}
    total = world.warehouse.head(world.record.pointer).summary.block_count
    same = found["a > '?' AND s = '?'"]
    assert (same.times, same.considered) == (302, 302 * total)
    assert same.kept == sum(
        world.warehouse.find(world.record.pointer, PruneRequest(filter=text)).block_count
        for text in (*texts, "a > 1.5 AND s = 'x'", "a > 1 and s = 'x'")
    )
    assert {"s LIKE '?%'", "s LIKE '%?'"} <= set(found)


def test_a_dropped_table_loses_its_notes_and_nothing_else(tmp_path: Path) -> None:
    """Notes of a table that is gone are left out; when its files are gone, so is what was recorded."""
    world = World(tmp_path)
    world.ask("a = 1")
    assert world.recorded == ["a = '?'"]
    world.catalog.drop_table("n", "t", now_ms=5, purge=True)
    world.ask("a = 2 AND s = 'x'")
    assert world.catalog.forget_table(world.record.table_id)
    world.ask("a = 3")
    assert world.recorded == []


def test_a_catalog_that_does_not_answer_costs_only_advice(tmp_path: Path) -> None:
    """Nothing is raised; what is lost is counted."""
    world = World(tmp_path)

    class Down:
        """A catalog that takes nothing."""

        def add_recorded(self, *_: object) -> None:
            raise Unavailable("down")

    world.recorder._catalog = Down()  # type: ignore[assignment]  # all that is asked of it
    world.ask("a = 1")
    world.recorder.write()
    assert (world.count("stored"), world.count("lost")) == (0, 1)


def test_enormous_filters_are_not_recorded(tmp_path: Path) -> None:
    """Nor filters that the database cannot hold."""
    world = World(tmp_path, record_prunes="full")
    world.ask(f"a IN ({', '.join(map(str, range(20_000)))})")
    world.ask("s = 'a\\u0000b'")
    world.ask("a = 1")
    assert world.recorded == ["a = 1"]
    assert world.count("lost") == 2


def test_the_catalog_counts_what_comes_again(tmp_path: Path) -> None:
    """One row a filter, whoever records it; clearing gives their number."""
    world = World(tmp_path)
    one = RecordedFilter(
        table_id=world.record.table_id,
        digest="d",
        mode="shape",
        tree="true",
        text="t",
        time_zone="UTC",
        times=2,
        considered=20,
        kept=4,
        kept_bytes=400,
        size_bytes=5,
        first_ms=1,
        last_ms=1,
    )
    bounds = RecordedBounds(max_filters=10, max_bytes=1000)
    world.catalog.add_recorded(world.record.table_id, [one], bounds)
    again = msgspec.structs.replace(one, times=1, considered=10, kept=1, kept_bytes=100, first_ms=9, last_ms=9)
    world.catalog.add_recorded(world.record.table_id, [again], bounds)
    (found,) = world.catalog.recorded(world.record.table_id, limit=5)
    assert (found.times, found.considered, found.kept, found.kept_bytes) == (3, 30, 5, 500)
    assert (found.first_ms, found.last_ms) == (1, 9)
    assert world.catalog.clear_recorded(world.record.table_id) == 1


def test_a_prune_is_answered_and_filters_are_recorded_afterwards_when_no_thread_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notes wait for the next one who brings one."""
    world = World(tmp_path, record_prunes="full")

    def cannot(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot)
        for number in range(130):
            world.ask(f"a > {number}")
    assert world.count("stored") == 0
    counted = threading.Event()
    count = world.recorder._count

    def noted(notes: Iterable[Any]) -> None:
        count(notes)
        counted.set()

    monkeypatch.setattr(world.recorder, "_count", noted)
    world.ask("a > 1000")
    assert counted.wait(60)
    world.recorder.close()
    assert world.count("stored") == 131

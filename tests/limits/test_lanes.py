"""Prunes by what they cost: narrow ones wait for nobody, wide ones for each other, and what is too much is refused."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from lamella.service.app import create_app
from lamella.service.catalog import TableRecord, open_catalog
from lamella.service.config.settings import Settings
from lamella.service.history.history import history_entry
from lamella.service.http import lanes as service_lanes
from lamella.service.http import responses
from lamella.service.http.concurrency import ConcurrencyLimit
from lamella.service.http.lanes import Lanes as ServiceLanes
from lamella.service.http.streaming import Pieces
from lamella.service.prune import routes
from lamella.service.prune.block_urls import BlockUrls
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import Overloaded
from lamella.snapshot.prune.block_layer import BlockLayer
from lamella.snapshot.prune.pipeline import Deferred
from lamella.snapshot.warehouse import finder
from lamella.snapshot.wire import NamespaceInfo, PruneRequest
from lamella.snapshot.wire.operation import MSGPACK
from support.app_client import AppClient
from support.guarded import SEGMENT, Table, narrow_filter
from support.service_api import read_problem

WAIT_S = 60
BLOCKS = 10 * SEGMENT
#: Patterns of a column in no order, of which each block has to be tested.
PATTERN_TESTS = 4 * BLOCKS
PRUNE = "/v1/namespaces/n/tables/t/prune"


def pattern(number: int) -> str:
    """A filter that no segment's statistics decide."""
    return f"country LIKE 'c%{number}'"


class Lanes:
    """A service over a table of 1,000 blocks, for which 200 tests are many; its threads can be made to wait."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, **settings: Any) -> None:
        patch.setattr(finder, "_NOW_BLOCKS", 150)
        patch.setattr(ServiceLanes, "WIDE_TESTS", 200)
        self.table = Table(folder / "warehouse", BLOCKS, by_name=True)
        self._served(folder)
        self.go = threading.Event()
        self.go.set()
        self.at_work: dict[str, int] = {"test": 0, "read": 0}
        self.holds = set(self.at_work)
        for name in self.at_work:
            self._hold(patch, name)
        chosen = Settings(
            warehouse=self.table.root, catalog=f"sqlite:///{folder}/catalog.db", log_requests=False, **settings
        )
        self.app = AppClient(create_app(chosen), raise_server_exceptions=False)
        self.pool = ThreadPoolExecutor(20)
        self.headers: dict[str, str] = {}

    def _served(self, folder: Path) -> None:
        catalog = open_catalog(f"sqlite:///{folder}/catalog.db")
        catalog.create_namespace(NamespaceInfo(name="n"), now_ms=1)
        empty, pointer = self.table.empty, self.table.pointer
        location = self.table.warehouse.table_location("t")
        record = TableRecord(
            table_id="t", namespace="n", name="t", location=location, version=1, pointer=empty, created_at_ms=1
        )
        catalog.create_table(record, history_entry(1, empty, self.table.warehouse.snapshot(empty)))
        catalog.advance("t", history_entry(2, pointer, self.table.warehouse.snapshot(pointer)))
        catalog.close()

    def _hold(self, patch: pytest.MonkeyPatch, name: str) -> None:
        run = getattr(ServiceLanes, name)

        async def delayed(lanes: ServiceLanes, work: Callable[[], Any]) -> Any:
            def waiting() -> Any:
                self.at_work[name] += 1
                assert name not in self.holds or self.go.wait(WAIT_S)
                return work()

            return await run(lanes, waiting)

        patch.setattr(ServiceLanes, name, delayed)

    def ask(self, text: str | None, **more: Any) -> httpx2.Response:
        """A prune."""
        return self.post(PRUNE, {"filter": text, "shape": "ranges", **more})

    def post(self, path: str, body: dict[str, Any]) -> httpx2.Response:
        """Any question."""
        return self.app.post(path, json=body, headers=self.headers)

    def send(self, text: str | None, **more: Any) -> Future[httpx2.Response]:
        """A prune, from a thread of its own."""
        return self.pool.submit(self.ask, text, **more)

    def warm(self) -> None:
        """Bring the table into memory."""
        assert self.ask("user_id > 5").status_code == 200
        assert self.ask(narrow_filter(300)).status_code == 200
        self.at_work.update(test=0, read=0)

    def until(self, is_so: Callable[[], bool]) -> None:
        """Return once something is so."""
        for _ in range(WAIT_S * 100):
            if is_so():
                return
            threading.Event().wait(0.01)
        raise AssertionError("it never came to be so")

    def metric(self, line: str) -> float:
        """The value of a metric, with its labels as they are scraped."""
        for each in self.app.get("/metrics").text.splitlines():
            if each.startswith(line + " "):
                return float(each.rpartition(" ")[2])
        return 0.0


@pytest.fixture
def new_lanes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Lanes]]:
    """Makes a service."""
    made: list[Lanes] = []

    def new(**settings: Any) -> Lanes:
        lanes = Lanes(tmp_path, monkeypatch, **settings)
        made.append(lanes)
        lanes.app.__enter__()
        lanes.warm()
        return lanes

    yield new
    for lanes in made:
        lanes.go.set()
        lanes.pool.shutdown()
        lanes.app.__exit__(None, None, None)


def test_a_narrow_prune_is_answered_while_no_slot_is_free(new_lanes: Callable[..., Lanes]) -> None:
    """With all wide places and all others taken, and both lines full."""
    lanes = new_lanes(
        wide_prunes_at_once=1, wide_prunes_tests=2 * PATTERN_TESTS, requests_at_once=1, requests_waiting=1
    )
    lanes.go.clear()
    wide = [lanes.send(pattern(number)) for number in range(2)]
    lanes.until(lambda: lanes.at_work["test"] == 1 and lanes.metric('lamella_requests_waiting{kind="wide"}') == 1)
    reads = [lanes.send("user_id > 5", max_ms=30_000) for _ in range(2)]
    lanes.until(lambda: lanes.at_work["read"] == 1 and lanes.metric('lamella_requests_waiting{kind="read"}') == 1)
    problem = read_problem(lanes.ask("user_id > 6", max_ms=30_000))
    assert (problem.status, problem.details["limit"]) == (429, "requests")
    for number in range(310, 320):  # of a segment that was looked at
        found = lanes.ask(narrow_filter(number))
        assert (found.status_code, sum(found.json()["block_ranges"]["block_count"])) == (200, 3)
    lanes.go.set()
    assert [each.result(WAIT_S).status_code for each in (*wide, *reads)] == [200] * 4


def test_wide_prunes_keep_no_other_read_waiting(new_lanes: Callable[..., Lanes]) -> None:
    """They have threads of their own."""
    lanes = new_lanes(wide_prunes_at_once=1, read_threads=1)
    lanes.go.clear()
    wide = lanes.send(pattern(1))
    lanes.until(lambda: lanes.at_work["test"] == 1)
    read = lanes.send("user_id > 5", max_ms=30_000)
    lanes.until(lambda: lanes.at_work["read"] == 1)
    lanes.go.set()
    assert [each.result(WAIT_S).status_code for each in (wide, read)] == [200, 200]


def test_wide_prunes_are_refused_by_what_is_to_be_done(
    new_lanes: Callable[..., Lanes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would be too much is refused at once, and before its filter is read; it is taken once there is room."""
    lanes = new_lanes(wide_prunes_at_once=1, wide_prunes_tests=2 * PATTERN_TESTS)
    lanes.go.clear()
    wide = [lanes.send(pattern(number)) for number in range(2)]
    lanes.until(lambda: lanes.at_work["test"] == 1 and lanes.metric('lamella_requests_waiting{kind="wide"}') == 1)
    with monkeypatch.context() as patched:
        patched.setattr(routes, "read_json", lambda *_: pytest.fail("it was read"))
        problem = read_problem(lanes.ask(pattern(77)))
    assert (problem.status, problem.code, problem.details["limit"]) == (429, "overloaded", "work")
    # another shape has to be looked at before it is known that it costs too much
    assert read_problem(lanes.ask("price * 3 > 7 OR user_id = 5")).details["limit"] == "work"
    assert lanes.metric('lamella_requests_refused_total{kind="wide",limit="work"}') == 2
    lanes.go.set()
    assert [each.result(WAIT_S).status_code for each in wide] == [200, 200]
    assert lanes.ask(pattern(77)).status_code == 200


def test_a_wide_prune_that_costs_more_than_all_may_is_done_alone(new_lanes: Callable[..., Lanes]) -> None:
    """Else it could never be asked."""
    lanes = new_lanes(wide_prunes_tests=10)
    assert lanes.ask(pattern(1)).status_code == 200
    assert lanes.at_work == {"test": 1, "read": 0}


ICEBERG: Final = "/iceberg/v1/namespaces/n/tables/t/plan"
SHARED: Final = "/delta-sharing/shares/lamella/schemas/n/tables/t/query"
TABLE: Final = "/v1/namespaces/n/tables/t"
#: Questions beside prunes: where they go, one that tests every block, and one that tests few.
QUESTIONS: Final[dict[str, tuple[str, dict[str, Any], dict[str, Any]]]] = {
    "a batch": (
        TABLE + "/prune/batch",
        {"filters": [narrow_filter(300), pattern(1)], "shape": "ranges"},
        {"filters": [narrow_filter(310)], "shape": "ranges"},
    ),
    "counts": (
        TABLE + "/aggregate",
        {"aggregates": ["count(*)"], "filter": pattern(1)},
        {"aggregates": ["count(*)"]},
    ),
    "groups": (
        TABLE + "/aggregate",
        {"aggregates": ["count(*)"], "group_by": ["country"]},
        {"aggregates": ["max(event_time)"]},
    ),
    "a difference": (
        TABLE + "/diff",
        {"from_snapshot_id": "{empty}", "filter": "user_id = 5"},
        {"from_snapshot_id": "{now}", "filter": "user_id = 5"},
    ),
    "a plan of Iceberg": (
        ICEBERG,
        {"filter": {"type": "starts-with", "term": "country", "value": "c1"}},
        {"filter": {"type": "eq", "term": "event_time", "value": "1970-01-01T00:05:00+00:00"}},
    ),
    "a query of a share": (
        SHARED,
        {"predicateHints": ["country = 'c1x'"]},
        {"predicateHints": ["country = 'zz'"]},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_goes_where_its_cost_belongs(new_lanes: Callable[..., Lanes], name: str) -> None:
    """What tests many blocks takes no other read's place, and is refused when it is too much; the others are not."""
    lanes = new_lanes(wide_prunes_at_once=1, wide_prunes_tests=2 * PATTERN_TESTS)
    path, *bodies = QUESTIONS[name]
    ids = {"{empty}": lanes.table.empty.snapshot_id, "{now}": lanes.table.pointer.snapshot_id}
    other = json.loads(json.dumps(bodies[0]).replace("c1", "c2").replace("c%1", "c%2"))
    wide, other, narrow = (
        {key: ids.get(str(value), value) for key, value in body.items()} for body in (bodies[0], other, bodies[1])
    )
    assert lanes.post(path, wide).status_code == 200
    assert lanes.at_work == {"test": 1, "read": 1}
    assert lanes.post(path, narrow).status_code == 200
    assert lanes.at_work == {"test": 1, "read": 2}
    lanes.holds = {"test"}
    lanes.go.clear()
    full = [lanes.send(pattern(number)) for number in range(2, 4)]
    lanes.until(lambda: lanes.at_work["test"] == 2 and lanes.metric('lamella_requests_waiting{kind="wide"}') == 1)
    refused = lanes.post(path, other)
    assert (refused.status_code, lanes.at_work) == (429, {"test": 2, "read": 3})
    assert lanes.post(path, narrow).status_code == 200
    lanes.go.set()
    assert [each.result(WAIT_S).status_code for each in full] == [200, 200]


def test_a_batch_is_refused_before_a_block_is_opened_where_its_answer_is_too_large(
    new_lanes: Callable[..., Lanes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the segments alone say how many blocks all answers together have."""
    lanes = new_lanes(answer_blocks_max=2 * BLOCKS - 1)
    monkeypatch.setattr(finder.Finder, "find_predicate", lambda *_, **__: pytest.fail("it was looked for"))
    problem = read_problem(lanes.post(TABLE + "/prune/batch", {"filters": [None, "user_id >= 0"]}))
    assert (problem.status, problem.details["limit"], lanes.at_work["test"]) == (400, "answer_blocks", 0)


@pytest.mark.parametrize(
    ("path", "body"),
    [(PRUNE, {"filter": "user_id >= 0", "sign_urls": True}), (SHARED, {"predicateHints": ["user_id >= 0"]})],
    ids=["a prune", "a share"],
)
def test_more_urls_than_there_may_be_are_refused_before_a_block_is_looked_at(
    new_lanes: Callable[..., Lanes], monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    """The segments say how many blocks there are."""
    made = BlockUrls.__init__

    def of_few(urls: BlockUrls, *given: Any) -> None:
        made(urls, *given)
        urls._max_urls = 10

    monkeypatch.setattr(BlockUrls, "__init__", of_few)
    lanes = new_lanes()
    monkeypatch.setattr(BlockLayer, "test", lambda *_: pytest.fail("a block was looked at"))
    refused = lanes.post(path, body)
    assert (refused.status_code, lanes.at_work["test"]) == (400, 0)
    assert "at most 10 blocks" in refused.text


def test_what_is_not_in_memory_goes_where_its_cost_belongs(
    new_lanes: Callable[..., Lanes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long request is read in a thread; once it is known to be wide, it leaves that to the others."""
    lanes = new_lanes()
    monkeypatch.setattr(routes, "QUICK_BODY_BYTES", 1)
    assert lanes.ask(pattern(5)).status_code == 200
    assert lanes.at_work == {"test": 1, "read": 1}
    assert lanes.ask(narrow_filter(420)).status_code == 200
    assert lanes.at_work == {"test": 1, "read": 2}


def test_what_is_remembered_is_narrow(new_lanes: Callable[..., Lanes]) -> None:
    """A wide prune that was asked before takes no test."""
    lanes = new_lanes(wide_prunes_at_once=1, wide_prunes_tests=1)
    first = lanes.ask(pattern(1))
    lanes.at_work.update(test=0)
    again = lanes.ask(pattern(1))
    assert again.json()["block_ranges"] == first.json()["block_ranges"]
    assert again.json()["report"]["from_cache"]
    assert lanes.at_work["test"] == 0


@pytest.mark.slow
def test_a_large_answer_is_refused_before_it_is_found(
    new_lanes: Callable[..., Lanes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the segments alone say how many blocks there will be; others are refused before they are encoded."""
    lanes = new_lanes(large_answers=1, large_answers_waiting=0)
    lanes.headers["Accept"] = MSGPACK
    for module in (responses, routes, service_lanes):
        monkeypatch.setattr(module, "WHOLE_BYTES", 1_000)
    monkeypatch.setattr("lamella.snapshot.prune.writer._FEW_BLOCKS", 500)  # the table has 1,000, which are few
    begun, go, following = threading.Event(), threading.Event(), Pieces.next

    def delayed(pieces: Pieces) -> bytes | None:
        begun.set()
        assert go.wait(WAIT_S)
        return following(pieces)

    monkeypatch.setattr(Pieces, "next", delayed)
    first = lanes.send(None, shape="columns")
    assert begun.wait(WAIT_S)
    made: list[str] = []
    route = routes.PruneRoutes._made

    def counted(*given: Any) -> Any:
        made.append("found")
        return route(*given)

    monkeypatch.setattr(routes.PruneRoutes, "_made", counted)
    monkeypatch.setattr(responses, "encode_response", lambda *_: pytest.fail("it was encoded"))
    problem = read_problem(lanes.ask("user_id >= 0", shape="columns"))
    assert (problem.status, problem.details["limit"], made) == (429, "large_answers", [])
    problem = read_problem(lanes.ask("user_id = 5", shape="columns"))
    assert (problem.status, problem.details["limit"], made) == (429, "large_answers", ["found"])
    go.set()
    assert first.result(WAIT_S).status_code == 200


def test_the_cost_of_a_prune_is_that_of_the_segments_that_are_left(tmp_path: Path) -> None:
    """Times what its predicates weigh; nothing of it needs a block."""
    table = Table(tmp_path, BLOCKS)
    warehouse = table.opened()

    def cost(text: str | None, **more: Any) -> Deferred:
        found = warehouse.find_within(table.pointer, PruneRequest(filter=text, **more), -1)
        assert isinstance(found, Deferred)
        return found

    assert cost(narrow_filter(320)).block_tests == 2 * SEGMENT
    assert cost("user_id = 5").block_tests == BLOCKS
    assert cost(pattern(1)).block_tests == PATTERN_TESTS
    assert cost(None) == Deferred(block_tests=BLOCKS, selected_blocks=BLOCKS)
    assert cost("user_id >= 0") == Deferred(block_tests=BLOCKS, selected_blocks=BLOCKS)
    lists = [cost(f"user_id IN ({', '.join(map(str, range(5, 5 + count)))})").block_tests or 0 for count in (2, 500)]
    assert BLOCKS < lists[0] < lists[1] < 100 * BLOCKS
    assert (cost("abs(user_id + 1) = 5").block_tests or 0) > 4 * BLOCKS
    # a walk that ends early is not estimated, and done
    assert not isinstance(warehouse.find_within(table.pointer, PruneRequest(filter=None, limit=1), -1), Deferred)


def test_costs_are_given_back_however_the_work_ends() -> None:
    """When it fails, is cancelled, or waits in vain; one principal has half of what may be done."""

    async def test() -> None:
        of = ConcurrencyLimit("wide", at_once=1, waiting=5, wait_s=None, shared=True, metrics=Metrics(), max_cost=100)

        async def fail() -> None:
            async with of.slot("a", 500):
                with pytest.raises(Overloaded) as refused:
                    of.check_cost("b", 1)
                assert refused.value.details["limit"] == "work"
                raise ValueError("failed")

        with pytest.raises(ValueError, match="failed"):
            await fail()
        async with of.slot("a", 40):
            with pytest.raises(Overloaded) as refused:
                of.check_cost("a", 20)
            assert refused.value.details["limit"] == "share"
            waiting = asyncio.ensure_future(of.slot("b", 40).__aenter__())
            await asyncio.sleep(0)
            with pytest.raises(Overloaded):
                of.check_cost("c", 30)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            of.check_cost("c", 30)
        of.check_cost("a", 1_000)

    asyncio.run(test())

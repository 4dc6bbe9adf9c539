"""How long a request may take, by the service and by its client."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lamella.service.process.deadline import time_is_up
from lamella.snapshot.concurrency import time_left_s, wait_until
from lamella.snapshot.errors import Unavailable
from lamella.snapshot.wire import PruneRequest
from support import stages
from support.pausable_service import TABLE, PausableService
from support.service_api import read_problem
from support.stalled_reads import StalledReads


@pytest.fixture
def patient() -> Iterator[None]:
    """Whatever a test says of who waits ends with it."""
    yield
    wait_until(None)


@pytest.fixture
def stalled(tmp_path: Path) -> Iterator[StalledReads]:
    """An app with a deadline that no test reaches by itself."""
    app = StalledReads(tmp_path, request_deadline_s=50)
    yield app
    app.close()


def test_a_read_that_takes_too_long_is_answered_503(tmp_path: Path) -> None:
    """The answer says that the deadline is the reason, and the store goes on whenever it likes."""
    app = StalledReads(tmp_path, request_deadline_s=0.2)
    path = app.table("t")
    app.hold()
    answer = app.send(path).result(60)
    problem = read_problem(answer)
    assert (problem.status, problem.code, problem.details["reason"]) == (503, "unavailable", "deadline")
    assert answer.headers["retry-after"] == "1"
    app.let_go()
    app.until(lambda: app.send(path).result(60).status_code == 200)
    assert app.metric("lamella_requests_deadline_exceeded_total") >= 1
    app.close()


def test_a_client_may_say_that_it_waits_less(stalled: StalledReads) -> None:
    """Work that nobody waits for is given up; the others' goes on."""
    path = stalled.table("t")
    stalled.hold()
    patient = stalled.send(path)
    impatient = stalled.send(path, Lamella_Timeout_Ms="100")
    assert read_problem(impatient.result(60)).details["reason"] == "deadline"
    assert not patient.done()
    stalled.let_go()
    assert patient.result(60).status_code == 200


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "soon", "", "86400001"])
def test_a_time_that_is_none_is_refused(stalled: StalledReads, value: str) -> None:
    """A number of milliseconds from 1 to a day."""
    path = stalled.table("t")
    problem = read_problem(stalled.send(path, Lamella_Timeout_Ms=value).result(60))
    assert (problem.status, problem.code) == (400, "invalid_request")
    assert problem.details == {"parameter": "Lamella-Timeout-Ms"}


def test_what_lingers_takes_no_more_threads_than_there_are(tmp_path: Path) -> None:
    """Requests given up leave their threads at most once as many as may work; then others wait, and are told so."""
    app = StalledReads(tmp_path, request_deadline_s=0.2, read_threads=2)
    paths = [app.table(f"t{number}") for number in range(8)]  # who waits for another one's read ends by itself
    app.hold()
    for path in paths:
        assert app.send(path).result(60).status_code == 503
    assert app.metric("lamella_threads_abandoned") == 2
    app.let_go()
    app.until(lambda: app.metric("lamella_threads_abandoned") == 0)
    assert app.send(paths[0]).result(60).status_code == 200
    app.close()


def test_a_change_is_not_begun_once_nobody_waits_for_it(tmp_path: Path) -> None:
    """Behind another one that takes long it is certainly not made, and told so; without the header it is."""
    pausable = PausableService(tmp_path)
    with ExitStack() as opened:
        opened.callback(pausable.opened.close)
        first = pausable.hold()
        headers, file = {"Lamella-Timeout-Ms": "100"}, pausable.file("late")
        problem = read_problem(pausable.app.post(f"{TABLE}/register", json={"paths": [file]}, headers=headers))
        assert (problem.status, problem.code) == (503, "unavailable")
        patient = pausable.send("register", {"paths": [pausable.file("patient")]})
        pausable.queued(1)
        pausable.go.set()
        assert first.result(60).status_code == patient.result(60).status_code == 200
        assert len(pausable.locations()) == 2
        assert file not in pausable.locations()


def test_a_job_is_not_given_to_a_worker_that_has_gone(tmp_path: Path) -> None:
    """Work that goes through no line of commits keeps its word, too: behind slow reads its turn comes too late."""
    app = StalledReads(tmp_path, request_deadline_s=50, read_threads=1)
    path = app.table("t")
    submitted = app.app.post("/v1/jobs", json={"kind": "compact", "table": "n.t"})
    assert submitted.status_code == 201, submitted.text
    app.hold()
    reading = app.send(path)
    app.until(lambda: app.store.waiting > 0)
    body = {"worker": "w", "lease_token": str(uuid.uuid4()), "lease_s": 60}
    problem = read_problem(app.app.post("/v1/jobs/claim", json=body, headers={"Lamella-Timeout-Ms": "100"}))
    assert (problem.status, problem.details["reason"]) == (503, "deadline")
    app.let_go()
    assert reading.result(60).status_code == 200
    state = app.app.get(f"/v1/jobs/{submitted.json()['job_id']}").json()["state"]
    assert state == "queued", "the claim was made for nobody"
    claimed = app.app.post("/v1/jobs/claim", json={**body, "lease_token": str(uuid.uuid4())})
    assert claimed.status_code == 200, claimed.text
    assert claimed.json()["job"]["job_id"] == submitted.json()["job_id"]
    app.close()


def test_clean_ups_do_not_wait_without_end(tmp_path: Path) -> None:
    """One is at work and some wait; the next one is refused at once."""
    app = StalledReads(tmp_path, request_deadline_s=50)
    path = app.table("t")
    app.hold()
    sent = [app.pool.submit(app.app.post, f"{path}/vacuum", json={}) for _ in range(20)]
    app.until(lambda: any(each.done() for each in sent))
    app.let_go()
    answers = [each.result(60) for each in sent]
    refused = [read_problem(answer) for answer in answers if answer.status_code != 200]
    assert {(each.status, each.code, each.details["limit"]) for each in refused} == {(429, "overloaded", "threads")}
    assert 1 <= len(refused) <= 3
    app.close()


def test_a_change_that_was_begun_is_waited_for(tmp_path: Path) -> None:
    """Its outcome counts, however long it takes."""
    pausable = PausableService(tmp_path)
    with ExitStack() as opened:
        opened.callback(pausable.opened.close)
        pausable.paused.clear()
        pausable.holding = True
        file = pausable.file("slow")
        headers = {"Lamella-Timeout-Ms": "2000"}
        slow = pausable.pool.submit(pausable.app.post, f"{TABLE}/register", json={"paths": [file]}, headers=headers)
        assert pausable.paused.wait(60)
        time.sleep(2.1)
        pausable.go.set()
        assert slow.result(60).status_code == 200


@pytest.mark.usefixtures("patient")
def test_a_time_budget_ends_before_nobody_waits_any_more() -> None:
    """A budget that is longer than somebody waits is cut to leave time for the answer."""
    ticks = itertools.count().__next__  # a second passes at each look at the clock
    wait_until(time.monotonic() + 10.0)
    is_up = time_is_up(60_000, ticks)
    assert [is_up() for _ in range(9)] == [False] * 7 + [True] * 2
    wait_until(None)
    is_up = time_is_up(4_000, ticks)
    assert [is_up() for _ in range(5)] == [False] * 3 + [True] * 2


@pytest.mark.usefixtures("patient")
def test_a_prune_with_a_budget_answers_while_somebody_waits() -> None:
    """The part that was found in time, and not an error."""
    lake = stages.counting(blocks=12, rows=10, segment_blocks=3, timer=itertools.count(step=1_000).__next__)
    assert lake.warehouse.prune(lake.pointer, PruneRequest(max_ms=1e9)).complete
    wait_until(time.monotonic() + 1_000)
    answer = lake.warehouse.prune(lake.pointer, PruneRequest(max_ms=1e9))
    assert not answer.complete
    assert answer.blocks


@pytest.mark.usefixtures("patient")
def test_work_on_a_table_ends_once_nobody_waits() -> None:
    """A prune that opens segments stops at the next one."""
    lake = stages.counting(blocks=12, rows=10, segment_blocks=3)
    wait_until(time.monotonic())
    with pytest.raises(Unavailable) as caught:
        lake.warehouse.prune(lake.pointer, PruneRequest())
    assert caught.value.details["reason"] == "deadline"
    assert time_left_s() == 0.0

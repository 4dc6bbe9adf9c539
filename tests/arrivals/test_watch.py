"""The loop between a source and the service: what is sent again, and what ends it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from lamella.client import Lamella
from lamella.client.arrivals.watch import Batch, Stop, Watch
from lamella.client.http import NO_RETRY
from lamella.client.http.fake_transport import FakeTransport, json_response, problem_response
from lamella.client.http.transport import HttpRequest, HttpResponse
from lamella.snapshot.errors import LamellaError, StoreError, TableNotFound
from lamella.snapshot.wire import ArrivalsAnswer, RefusedFile

ANSWER = ArrivalsAnswer(snapshot_id="s", changed=True, registered=1)


class Script:
    """A source and a report. ``batches``: what comes next; an error is raised. The last of them stops the watch."""

    def __init__(self, stop: Stop, *batches: Batch | LamellaError) -> None:
        self.stop = stop
        self.batches = list(batches)
        self.finished: list[Batch] = []
        self.answers: list[ArrivalsAnswer] = []
        self.troubles: list[tuple[str, float]] = []
        self.fails: LamellaError | None = None

    def take(self) -> Batch | None:
        """The next batch."""
        if not self.batches:
            self.stop.is_set = True
            return None
        following = self.batches.pop(0)
        if isinstance(following, LamellaError):
            raise following
        return following

    def done(self, batch: Batch, answer: ArrivalsAnswer) -> None:
        """Remember the batch, or fail once."""
        self.finished.append(batch)
        failed, self.fails = self.fails, None
        if failed is not None:
            raise failed
        assert answer is self.answers[-1]

    def taken(self, answer: ArrivalsAnswer) -> None:
        """Remember the answer."""
        self.answers.append(answer)

    def trouble(self, error: LamellaError, wait_s: float) -> None:
        """Remember the error."""
        self.troubles.append((error.code, wait_s))


def watched(
    script: Script, handle: Callable[[HttpRequest], HttpResponse], **options: Any
) -> tuple[Watch, FakeTransport, list[float]]:
    """A watch of a scripted source, the requests of it, and the seconds that it slept."""
    fake, slept = FakeTransport(handle), list[float]()
    table = Lamella("http://lake.test", transport=fake, policy=NO_RETRY, sleep=lambda _: None).table("db.t")
    return Watch(table, script, script, script.stop, sleep=slept.append, **options), fake, slept


def test_a_batch_is_sent_again_until_the_service_answers() -> None:
    """The same files, after waits that grow; the source is told once, after the answer."""
    failures = iter([(503, "unavailable"), (502, "store_error"), (503, "unavailable")])

    def handle(_request: HttpRequest) -> HttpResponse:
        failure = next(failures, None)
        return json_response(ANSWER) if failure is None else problem_response(*failure)

    script = Script(Stop(), Batch(files=("s3://b/1.parquet",)), Batch(files=("s3://b/2.parquet",)))
    watch, fake, slept = watched(script, handle, prefix="s3://b/", suffix=".parquet")
    assert watch.run() == 0
    assert [request.body for request in fake.requests[:4]] == [b'{"files":["s3://b/1.parquet"]}'] * 4
    assert len(fake.requests) == 5
    assert fake.requests[0].target == "/v1/namespaces/db/tables/t/arrivals?prefix=s3%3A%2F%2Fb%2F&suffix=.parquet"
    assert slept == [1.0, 2.0, 4.0]
    assert [code for code, _ in script.troubles] == ["unavailable", "store_error", "unavailable"]
    assert [batch.files for batch in script.finished] == [("s3://b/1.parquet",), ("s3://b/2.parquet",)]


def test_a_source_that_fails_is_tried_again_and_its_files_come_again() -> None:
    """A queue that cannot be reached ends nothing, before a batch or after it."""
    script = Script(Stop(), StoreError("queue"), Batch(files=("a",)), Batch(files=("a",)))
    script.fails = StoreError("queue")
    watch, fake, slept = watched(script, lambda _: json_response(ANSWER))
    watch.run()
    assert len(fake.requests) == 2
    assert slept == [1.0, 2.0]


def test_messages_without_files_need_no_request() -> None:
    """They are counted and forgotten; those that cannot be read are refused."""
    refused = RefusedFile(path="message 1", code="invalid_request", reason="?")
    script = Script(Stop(), Batch(ignored={"test": 2}), Batch(files=("a",), unreadable=(refused,), ignored={"gone": 1}))
    answer = ArrivalsAnswer(snapshot_id="s", changed=True, ignored={"gone": 2, "deleted": 1})
    watch, fake, _ = watched(script, lambda _: json_response(answer))
    assert watch.run() == 1
    assert len(fake.requests) == 1
    assert [each.ignored for each in script.answers] == [{"test": 2}, {"gone": 3, "deleted": 1}]
    assert script.answers[1].refused == (refused,)


def test_once_ends_with_the_first_error_or_when_there_is_nothing() -> None:
    """So that a cron job reports it."""
    script = Script(Stop(), Batch(files=("a",)))
    watch, _, slept = watched(script, lambda _: problem_response(502, "store_error"), once=True)
    with pytest.raises(StoreError):
        watch.run()
    assert (slept, script.finished) == ([], [])
    script = Script(Stop(), Batch(files=("a",)))
    watch, _, _ = watched(script, lambda _: json_response(ANSWER), once=True)
    assert watch.run() == 0
    assert len(script.finished) == 1


def test_an_error_that_does_not_pass_ends_it() -> None:
    """The batch stays where it came from."""
    script = Script(Stop(), Batch(files=("a",)))
    watch, _, _ = watched(script, lambda _: problem_response(404, "table_not_found"))
    with pytest.raises(TableNotFound):
        watch.run()
    assert script.finished == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_wait_at_once_and_work_at_its_end(number: signal.Signals) -> None:
    """Handlers are as they were afterwards."""
    before = signal.getsignal(number)
    stop, steps = Stop(), list[str]()

    def wait() -> None:
        steps.append("waiting")
        os.kill(os.getpid(), number)
        signal.pause()

    with stop.on_signals():
        stop.wait(wait)
        steps.append("after")
        stop.wait(wait)  # nothing is begun any more
        stop.sleep(3_600)
    assert (steps, stop.is_set) == (["waiting", "after"], True)
    assert signal.getsignal(number) is before
    stop = Stop()
    with stop.on_signals():
        os.kill(os.getpid(), number)
        steps.append("work goes on")
    assert (steps[-1], stop.is_set) == ("work goes on", True)
    assert signal.getsignal(number) is before

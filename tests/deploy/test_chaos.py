"""The clients of `make chaos`: what they take as final, what they call wrong, and that no bad answer ends one."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

import run_chaos
from chaos.ledger_check import LedgerCheck
from chaos.load import Load

WAIT_S = 30
CLEAN = LedgerCheck(
    acknowledged=1,
    blocks=1,
    lost=(),
    twice=(),
    unknown=(),
    refused=(),
    findings=(),
    jobs={"succeeded": 1},
    jobs_failed=(),
    replicas_agree=True,
)
#: A status, and the answer as JSON.
Answer = tuple[int, dict[str, Any]]
TAKEN: Answer = (201, {"job_id": "j", "state": "queued"})


class Scripted:
    """A service that takes all commits and prunes, and answers of jobs one thing after another, the last for ever."""

    def __init__(self, submissions: list[Answer], looks: list[Answer]) -> None:
        self.submitted: list[dict[str, Any]] = []
        self._next = {"POST": self._one_by_one(submissions), "GET": self._one_by_one(looks)}

    @staticmethod
    def _one_by_one(answers: list[Answer]) -> Iterator[Answer]:
        return itertools.chain(answers, itertools.repeat(answers[-1]))

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """What it says."""
        if not path.startswith("/v1/jobs"):
            return 200, {}
        if method == "POST":
            self.submitted.append(json.loads(body))
        return next(self._next[method])


@contextmanager
def serving(service: Scripted) -> Iterator[str]:
    """The address of such a service."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            given = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, answer = service.answer(self.command, self.path, given)
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/problem+json" if status >= 400 else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def under_load(service: Scripted, is_enough: Callable[[Load], bool]) -> Load:
    """A load that ran until there was enough."""
    with serving(service) as url:
        load = Load(url, "key", "n.t", (f"file-{number}" for number in itertools.count()))
        with load:
            give_up = time.monotonic() + WAIT_S
            while not is_enough(load):
                assert time.monotonic() < give_up, (load.failures, load.ledger.jobs, load.ledger.jobs_failed)
                time.sleep(0.02)
    return load


def test_a_job_is_submitted_again_until_it_is_taken_and_has_attempts_enough_for_every_fault() -> None:
    """Too slow, too busy and not there now are no refusals: nothing was done, and the same job is asked for again."""
    troubles: list[Answer] = [(status, {"code": "c"}) for status in (408, 429, 503)]
    service = Scripted([*troubles, TAKEN], [(408, {"code": "too_slow"}), (200, {"state": "succeeded"})])
    load = under_load(service, lambda load: "succeeded" in load.ledger.jobs.values())
    assert load.failures == []
    assert load.ledger.jobs_failed == []
    assert service.submitted[0]["max_attempts"] == 100
    assert {json.dumps(each) for each in service.submitted} == {json.dumps(service.submitted[0])}


@pytest.mark.parametrize(
    ("submission", "look", "message"),
    [
        ((404, {"code": "table_not_found"}), (200, {}), "not taken: 404"),
        (TAKEN, (404, {"code": "job_not_found"}), "j: 404"),
        (TAKEN, (200, {"state": "failed", "error": {"code": "job_lost"}}), "job_lost"),
        (TAKEN, (200, {"state": "failed", "result": {"findings": [{"code": "unreachable"}, {"code": "x"}]}}), '"x"'),
    ],
)
@pytest.mark.few(2)
def test_a_job_that_is_refused_or_fails_is_reported_and_ends_no_client(
    submission: Answer, look: Answer, message: str
) -> None:
    """It counts as wrong, with the answer; the next job is asked for all the same."""
    load = under_load(Scripted([submission], [look]), lambda load: len(load.ledger.jobs_failed) > 1)
    assert load.failures == []
    assert message in load.ledger.jobs_failed[0]


def test_a_verification_that_could_not_look_is_no_wrong() -> None:
    """While the store is away it has to say so, and it fails."""
    failed: Answer = (200, {"state": "failed", "result": {"findings": [{"code": "unreachable"}]}})
    load = under_load(Scripted([TAKEN], [failed]), lambda load: "failed" in load.ledger.jobs.values())
    assert (load.failures, load.ledger.jobs_failed) == ([], [])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lost": ("a",)}, "lost: a"),
        ({"twice": ("a",)}, "there twice: a"),
        ({"unknown": ("a",)}, "there, and nobody committed it: a"),
        ({"refused": ("a: 400 why",)}, "commit refused: a: 400 why"),
        ({"findings": ("block_size",)}, "finding: block_size"),
        ({"jobs_failed": ("job_lost",)}, "job failed: job_lost"),
        ({"jobs": {"running": 2}}, "2 jobs are running"),
        ({"replicas_agree": False}, "the replicas list other blocks"),
    ],
)
def test_every_reason_for_a_failure_is_printed(changes: dict[str, Any], message: str) -> None:
    """The exit status 1 has a reason that people see; what is clean has none."""
    outcome = msgspec.structs.replace(CLEAN, **changes)
    assert not outcome.is_clean
    assert f"WRONG: {message}" in run_chaos.table_of([], outcome)
    assert CLEAN.is_clean
    assert "WRONG" not in run_chaos.table_of([], CLEAN)

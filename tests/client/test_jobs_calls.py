"""Jobs, schedules and policies by either client: the requests, and what becomes of the answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from lamella.client.http.fake_transport import json_response
from lamella.client.http.transport import HttpRequest, HttpResponse
from lamella.snapshot import wire
from lamella.snapshot.errors import InvalidRequest
from support.both_clients import ClientFor

JOB = wire.JobInfo(
    job_id="j1",
    kind="compact",
    state="running",
    origin="request",
    arguments={},
    priority=0,
    attempts=1,
    max_attempts=3,
    created_ms=1,
    not_before_ms=0,
    cancel_requested=False,
)
SCHEDULE = wire.ScheduleInfo(
    name="s", kind="compact", arguments={}, time_zone="UTC", enabled=True, priority=0, created_ms=1, every_s=60
)
POLICY = wire.PolicyInfo(policy=wire.Policy(verify=wire.Rule(every_s=5)), updated_ms=1)
BEAT = wire.HeartbeatAnswer(lease_expires_ms=5, cancel_requested=True)
KIND = wire.JobKindInfo(name="compact", text="x", needs_table=True, arguments={})
HEARTBEAT = wire.Heartbeat(lease_token="t", lease_s=5)
ENDED = wire.FinishJob(lease_token="t", outcome="succeeded", result=[1])
DUE = wire.DueAnswer(enqueued=("j1",), more=True)
CLAIMED = wire.ClaimAnswer(job=JOB, table="db.t")

CALLS: list[tuple[str, Callable[[Any], Any], str, str, Any, Any, Any]] = [
    (
        "submit",
        lambda lake: lake.jobs.submit("compact", "db.t", {"max_bytes": 5}, priority=2, delay_s=7, unique=True),
        "POST",
        "/v1/jobs",
        {
            "kind": "compact",
            "table": "db.t",
            "arguments": {"max_bytes": 5},
            "priority": 2,
            "delay_s": 7,
            "unique": True,
        },
        JOB,
        JOB,
    ),
    ("get", lambda lake: lake.jobs.get("a/b"), "GET", "/v1/jobs/a%2Fb", None, JOB, JOB),
    ("cancel", lambda lake: lake.jobs.cancel("j"), "POST", "/v1/jobs/j/cancel", None, JOB, JOB),
    ("retry", lambda lake: lake.jobs.retry("j"), "POST", "/v1/jobs/j/retry", None, JOB, JOB),
    (
        "log",
        lambda lake: lake.jobs.log("j", after=3, limit=9),
        "GET",
        "/v1/jobs/j/log?after=3&limit=9",
        None,
        wire.JobLog(state="running"),
        wire.JobLog(state="running"),
    ),
    (
        "kinds",
        lambda lake: lake.jobs.kinds(),
        "GET",
        "/v1/job-kinds",
        None,
        wire.JobKindList(kinds=(KIND,)),
        (KIND,),
    ),
    (
        "claim",
        lambda lake: lake.jobs.claim("w", "t", lease_s=5, kinds=["a"]),
        "POST",
        "/v1/jobs/claim",
        {"worker": "w", "lease_token": "t", "lease_s": 5, "kinds": ["a"]},
        CLAIMED,
        CLAIMED,
    ),
    (
        "heartbeat",
        lambda lake: lake.jobs.heartbeat("j", HEARTBEAT),
        "POST",
        "/v1/jobs/j/heartbeat",
        {"lease_token": "t", "lease_s": 5},
        BEAT,
        BEAT,
    ),
    (
        "finish",
        lambda lake: lake.jobs.finish("j", ENDED),
        "POST",
        "/v1/jobs/j/finish",
        {"lease_token": "t", "outcome": "succeeded", "result": [1]},
        JOB,
        JOB,
    ),
    ("due", lambda lake: lake.jobs.due(), "POST", "/v1/jobs/due", None, DUE, DUE),
    (
        "schedules",
        lambda lake: lake.table("db.t").schedules(),
        "GET",
        "/v1/namespaces/db/tables/t/schedules",
        None,
        wire.ScheduleList(schedules=(SCHEDULE,)),
        (SCHEDULE,),
    ),
    (
        "schedule",
        lambda lake: lake.table("db.t").schedule("s"),
        "GET",
        "/v1/namespaces/db/tables/t/schedules/s",
        None,
        SCHEDULE,
        SCHEDULE,
    ),
    (
        "set_schedule",
        lambda lake: lake.table("db.t").set_schedule("s", wire.PutSchedule(kind="compact", every_s=60)),
        "PUT",
        "/v1/namespaces/db/tables/t/schedules/s",
        {"kind": "compact", "every_s": 60},
        SCHEDULE,
        SCHEDULE,
    ),
    (
        "drop_schedule",
        lambda lake: lake.table("db.t").drop_schedule("s"),
        "DELETE",
        "/v1/namespaces/db/tables/t/schedules/s",
        None,
        None,
        None,
    ),
    (
        "policy",
        lambda lake: lake.table("db.t").policy(),
        "GET",
        "/v1/namespaces/db/tables/t/policy",
        None,
        POLICY,
        POLICY,
    ),
    (
        "set_policy",
        lambda lake: lake.table("db.t").set_policy(POLICY.policy),
        "PUT",
        "/v1/namespaces/db/tables/t/policy",
        {"verify": {"every_s": 5}},
        POLICY,
        POLICY,
    ),
    (
        "drop_policy",
        lambda lake: lake.table("db.t").drop_policy(),
        "DELETE",
        "/v1/namespaces/db/tables/t/policy",
        None,
        None,
        None,
    ),
]


@pytest.mark.parametrize(
    ("use", "method", "path", "body", "answer", "result"), [call[1:] for call in CALLS], ids=[call[0] for call in CALLS]
)
def test_each_method_sends_its_request_and_gives_back_the_answer(
    client_for: ClientFor, use: Callable[[Any], Any], method: str, path: str, body: Any, answer: Any, result: Any
) -> None:
    """Changes that are not the same when they are sent twice carry an idempotency key."""

    def handler(_: HttpRequest) -> HttpResponse:
        return HttpResponse(status=204, headers={}, body=b"") if answer is None else json_response(answer)

    client = client_for(handler)
    assert client.run(use) == result
    (request,) = client.requests
    assert (request.method, request.target) == (method, path)
    assert (json.loads(request.body) if request.body else None) == body
    has_key = any(name == "Idempotency-Key" for name, _ in request.headers)
    assert has_key is (path == "/v1/jobs" or method == "DELETE")


def test_an_empty_queue_is_an_answer_without_a_job(client_for: ClientFor) -> None:
    """The service says so with a status and no body."""
    client = client_for(lambda _: HttpResponse(status=204, headers={}, body=b""))
    assert client.run(lambda lake: lake.jobs.claim("w", "t", lease_s=5)) == wire.ClaimAnswer()


def test_a_listing_goes_on_page_by_page(client_for: ClientFor) -> None:
    """Filters stand in each request."""
    pages = iter([wire.JobList(jobs=(JOB,), next_page_token="p"), wire.JobList(jobs=(JOB, JOB))])
    client = client_for(lambda _: json_response(next(pages)))
    found = client.run(lambda lake: lake.jobs.list("db.t", states=["queued", "running"], kinds=["a"], page_size=1))
    assert found == [JOB] * 3
    query = "table=db.t&state=queued%2Crunning&kind=a&page_size=1"
    assert [request.target for request in client.requests] == [f"/v1/jobs?{query}", f"/v1/jobs?{query}&page_token=p"]


def test_waiting_looks_again_until_the_job_is_over(client_for: ClientFor) -> None:
    """Or until the time is up; whoever wants to sees each look."""
    states = iter(["queued", "running", "failed"])

    def answer(_: HttpRequest) -> HttpResponse:
        return json_response(msgspec.structs.replace(JOB, state=next(states)))

    client = client_for(answer)
    seen: list[str] = []
    done = client.run(lambda lake: lake.jobs.wait("j", poll_s=3, on_job=lambda job: seen.append(job.state)))
    assert (done.state, done.is_finished, seen) == ("failed", True, ["queued", "running", "failed"])
    assert client.waits == [3, 3]
    still = client_for(lambda _: json_response(JOB))
    assert still.run(lambda lake: lake.jobs.wait("j", timeout_s=0)).state == "running"


def test_a_log_is_followed_to_its_end(client_for: ClientFor) -> None:
    """Each line once; when nothing came it waits, when the job is over and nothing came it ends."""
    one, two = (wire.JobLine(number=n, at_ms=n, text=str(n)) for n in (1, 2))
    parts = iter(
        [
            wire.JobLog(state="running", lines=(one,), after=1),
            wire.JobLog(state="running", after=1),
            wire.JobLog(state="succeeded", lines=(two,), after=2),
            wire.JobLog(state="succeeded", after=2),
        ]
    )
    client = client_for(lambda _: json_response(next(parts)))
    assert client.run(lambda lake: lake.jobs.follow("j", poll_s=2)) == [one, two]
    assert [request.target.rpartition("=")[2] for request in client.requests] == ["0", "1", "1", "2"]
    assert client.waits == [2]


@pytest.mark.parametrize(
    "use",
    [
        lambda lake: lake.jobs.get(""),
        lambda lake: lake.jobs.claim("w", "t", lease_s=5, kinds="compact"),
        lambda lake: lake.jobs.submit("compact", "db.t", {"x": object()}),
        lambda lake: lake.table("db.t").schedule(""),
    ],
)
def test_what_cannot_be_requested_is_not_sent(client_for: ClientFor, use: Callable[[Any], Any]) -> None:
    """An empty name, one text in place of a list, a value that is no JSON."""
    client = client_for(lambda _: json_response(JOB))
    with pytest.raises(InvalidRequest):
        client.run(use)
    assert client.requests == []

"""Jobs, schedules and policies over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fixtures_server import start_shared
from lamella.client import Lamella
from lamella.snapshot.errors import JobLeaseLost
from lamella.snapshot.ids import Ids
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import FinishJob, Heartbeat, JobError, JobLine, Progress
from support.service_api import TableApi, World, fresh_name

IDS = Ids()


def name_of(table: TableApi) -> str:
    """As jobs name it."""
    return f"{table.namespace}.{table.name}"


def submit(table: TableApi, kind: str = "compact", *, key: str | None = None, expect: int = 201, **more: Any) -> Any:
    """Ask for a job."""
    body = {"kind": kind, "table": name_of(table), **more}
    return table.api.call("POST", "/v1/jobs", body, key=key, expect=expect)


def jobs_of(table: TableApi, query: str = "") -> list[dict[str, Any]]:
    """The jobs of a table, newest first."""
    return list(table.api.call("GET", f"/v1/jobs?table={name_of(table)}{query}")["jobs"])


@pytest.fixture(scope="module")
def own(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A service whose queue is this file's alone; waits are short, logs too, and policies are checked at each call."""
    folder = tmp_path_factory.mktemp("jobs")
    settings = {"warehouse": folder / "warehouse", "job_retry_s": 3, "job_retry_max_s": 5, "job_log_lines": 3}
    server = start_shared(pytestconfig, folder, {**settings, "job_value_bytes": 2_000, "policy_check_s": 1})
    with World(server.url, f"file://{folder}/data", FsspecStore()) as world:
        yield world
    server.stop()


@pytest.fixture
def queue(own: World) -> Iterator[World]:
    """That service with nothing queued, before and after."""
    _drain(own)
    yield own
    _drain(own)


def _drain(world: World) -> None:
    with Lamella(world.url) as lake:
        for job in list(lake.jobs.list(states=["queued", "running"])):
            lake.jobs.cancel(job.job_id)
        while True:
            token = str(IDS.new())
            claimed = lake.jobs.claim("drain", token, lease_s=60)
            if claimed.job is None:
                return
            lake.jobs.finish(claimed.job.job_id, FinishJob(lease_token=token, outcome="cancelled"))


def test_a_job_is_requested_looked_at_cancelled_and_tried_again(world: World) -> None:
    """What is asked for is what is shown."""
    table = world.table()
    made = submit(table, "recluster", arguments={"max_bytes": 5, "where": "a > 1"}, priority=7, timeout_s=60)
    assert made["state"] == "queued"
    assert (made["table"], made["table_id"]) == (name_of(table), table.info()["table_id"])
    assert made["arguments"] == {"max_bytes": 5, "where": "a > 1"}
    assert (made["priority"], made["timeout_s"], made["max_attempts"], made["origin"]) == (7, 60, 3, "request")
    path = f"/v1/jobs/{made['job_id']}"
    assert table.api.call("GET", path) == made
    assert jobs_of(table) == [made]
    cancelled = table.api.call("POST", f"{path}/cancel")
    assert cancelled["state"] == "cancelled"
    assert table.api.call("POST", f"{path}/cancel") == cancelled
    assert table.api.call("POST", f"{path}/retry")["state"] == "queued"
    assert table.api.call("GET", f"{path}/log") == {"state": "queued", "lines": [], "after": 0}


def test_a_request_with_a_key_adds_one_job(world: World) -> None:
    """However often it is sent; another request under the same key is refused."""
    table = world.table()
    key = fresh_name("key")
    first = submit(table, key=key)
    assert submit(table, key=key) == first
    problem = table.api.problem("POST", "/v1/jobs", {"kind": "verify", "table": name_of(table)}, key=key)
    assert (problem.status, problem.code) == (409, "idempotency_mismatch")
    assert len(jobs_of(table)) == 1


def test_a_unique_job_is_the_one_that_is_pending(world: World) -> None:
    """Of the same table, kind and arguments; answered with 200, also when it is asked again by its key."""
    table = world.table()
    first = submit(table, arguments={"max_bytes": 1, "where": "a = 1"})
    key = fresh_name("key")
    for _ in range(2):
        found = submit(table, arguments={"where": "a = 1", "max_bytes": 1}, unique=True, expect=200, key=key)
        assert found["job_id"] == first["job_id"]
    assert submit(table, arguments={"max_bytes": 2}, unique=True)["job_id"] != first["job_id"]
    assert submit(table, "verify", unique=True)["job_id"] != first["job_id"]
    other = world.table()
    assert submit(other, arguments={"max_bytes": 1, "where": "a = 1"}, unique=True)["table"] == name_of(other)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"kind": "compat"}, 400, "invalid_request"),
        ({"table": None}, 400, "invalid_request"),
        ({"table": "t"}, 400, "invalid_request"),
        ({"table": "nowhere.t"}, 404, "namespace_not_found"),
        ({"kind": "vacuum_dropped"}, 400, "invalid_request"),
        ({"arguments": {"max_bites": 1}}, 400, "invalid_request"),
        ({"arguments": {"max_bytes": "1"}}, 400, "invalid_request"),
        ({"arguments": {"where": "x" * 300_000}}, 400, "invalid_request"),
        ({"priority": 1_001}, 400, "invalid_request"),
        ({"max_attempts": 0}, 400, "invalid_request"),
        ({"timeout_s": 0}, 400, "invalid_request"),
        ({"delay_s": -1}, 400, "invalid_request"),
        ({"when": "now"}, 400, "invalid_request"),
    ],
)
def test_jobs_that_cannot_be_requested(world: World, change: dict[str, Any], status: int, code: str) -> None:
    """A wrong kind, table, argument or number is the caller's mistake, and adds nothing."""
    table = world.table()
    body = {"kind": "compact", "table": name_of(table), **change}
    problem = table.api.problem("POST", "/v1/jobs", body)
    assert (problem.status, problem.code) == (status, code)
    assert jobs_of(table) == []


def test_jobs_that_are_not_there(world: World) -> None:
    """An unknown id, and a text that is no id at all."""
    body = {"lease_token": str(IDS.new()), "lease_s": 5}
    for job_id in (str(IDS.new()), "claim", "a b"):
        for method, path, sent in (
            ("GET", f"/v1/jobs/{job_id}", None),
            ("GET", f"/v1/jobs/{job_id}/log", None),
            ("POST", f"/v1/jobs/{job_id}/cancel", None),
            ("POST", f"/v1/jobs/{job_id}/retry", None),
            ("POST", f"/v1/jobs/{job_id}/heartbeat", body),
            ("POST", f"/v1/jobs/{job_id}/finish", {"lease_token": body["lease_token"], "outcome": "failed"}),
        ):
            problem = world.api.problem(method, path, sent)
            assert (problem.status, problem.code) == (404, "job_not_found")


def test_jobs_are_listed_by_pages_and_filters(world: World) -> None:
    """Newest first, each once; a filter that makes no sense is refused."""
    table = world.table()
    made = [submit(table, kind)["job_id"] for kind in ("compact", "verify", "vacuum")]
    table.api.call("POST", f"/v1/jobs/{made[1]}/cancel")
    seen: list[str] = []
    token = ""
    while True:
        page = table.api.call("GET", f"/v1/jobs?table={name_of(table)}&page_size=1{token}")
        seen += [job["job_id"] for job in page["jobs"]]
        if "next_page_token" not in page:
            break
        token = f"&page_token={page['next_page_token']}"
    assert sorted(seen) == sorted(made)
    assert [job["job_id"] for job in jobs_of(table, "&state=cancelled,failed")] == [made[1]]
    assert [job["job_id"] for job in jobs_of(table, "&kind=vacuum,delete&state=queued")] == [made[2]]
    for query in ("state=done", "table=t", "page_size=0", "page_token=x", "kind=%00"):
        assert table.api.problem("GET", f"/v1/jobs?{query}").status == 400


def test_the_kinds_are_described(world: World) -> None:
    """Each with its arguments as a JSON schema."""
    kinds = {kind["name"]: kind for kind in world.api.call("GET", "/v1/job-kinds")["kinds"]}
    assert {"compact", "recluster", "index_refresh", "vacuum", "verify", "refresh", "delete"} <= set(kinds)
    assert not kinds["vacuum_dropped"]["needs_table"]
    assert "where" in str(kinds["delete"]["arguments"])


def test_a_worker_takes_a_job_tells_of_it_and_ends_it(queue: World) -> None:
    """From the claim to the result; the log keeps its last lines."""
    table = queue.table()
    with Lamella(queue.url) as lake:
        made = lake.jobs.submit("verify", name_of(table), {"seed": 1})
        token = str(IDS.new())
        assert lake.jobs.claim("w", str(IDS.new()), lease_s=60, kinds=["compact"]).job is None
        claimed = lake.jobs.claim("w", token, lease_s=60)
        assert claimed.job is not None
        assert (claimed.job.job_id, claimed.job.state, claimed.job.worker) == (made.job_id, "running", "w")
        assert (claimed.table, claimed.checkpoint, claimed.log_lines) == (name_of(table), None, 0)
        assert lake.jobs.claim("w", token, lease_s=60).job == claimed.job
        heartbeat = Heartbeat(
            lease_token=token,
            lease_s=120,
            progress=Progress(done=1, total=2, unit="blocks"),
            log=tuple(JobLine(number=n, at_ms=n, text=f"{n}\0" + "x" * 3_000, level="debug") for n in range(1, 6)),
            checkpoint={"at": 1},
        )
        answer = lake.jobs.heartbeat(made.job_id, heartbeat)
        assert not answer.cancel_requested
        assert answer.lease_expires_ms > (claimed.job.lease_expires_ms or 0)
        log = lake.jobs.log(made.job_id)
        assert [line.number for line in log.lines] == [3, 4, 5]
        assert log.lines[0].text == "3\N{REPLACEMENT CHARACTER}" + "x" * 1_998 + "…"
        done = lake.jobs.finish(made.job_id, FinishJob(lease_token=token, outcome="succeeded", result={"found": []}))
        assert (done.state, done.result, done.progress) == ("succeeded", {"found": []}, heartbeat.progress)
        assert lake.jobs.finish(made.job_id, FinishJob(lease_token=token, outcome="succeeded")) == done
        assert next(lake.jobs.list(name_of(table))).result is None, "a listing leaves it out"
        with pytest.raises(JobLeaseLost):
            lake.jobs.heartbeat(made.job_id, heartbeat)
        assert [line.number for line in lake.jobs.follow(made.job_id, after=3)] == [4, 5]


def test_an_empty_queue_answers_204(queue: World) -> None:
    """Without a body."""
    body = {"worker": "w", "lease_token": str(IDS.new()), "lease_s": 5}
    assert queue.api.call("POST", "/v1/jobs/claim", body, expect=204) is None


def test_waits_between_attempts_double_up_to_their_bound(queue: World) -> None:
    """Unless the worker says how long; and a failure that would come again is not tried again."""
    table = queue.table()
    with Lamella(queue.url) as lake:
        job_id = lake.jobs.submit("verify", name_of(table), max_attempts=9).job_id

        def attempt(**ending: Any) -> float:
            lake.jobs.retry(job_id) if lake.jobs.get(job_id).attempts else None
            token = str(IDS.new())
            assert lake.jobs.claim("w", token, lease_s=60).job is not None
            error = JobError(code="job_program_failed", detail="x")
            failure = FinishJob(lease_token=token, outcome="failed", error=error, **ending)
            ended = lake.jobs.finish(job_id, failure)
            assert (ended.state, ended.error) == ("queued", error)
            return (ended.not_before_ms - (ended.heartbeat_ms or 0)) / 1000

        assert [attempt(), attempt(), attempt()] == [3, 5, 5]
        assert attempt(retry_after_s=0.5) == 0.5
        with pytest.raises(AssertionError, match="failed"):
            attempt(retry=False)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("claim", {"worker": "", "lease_s": 5}),
        ("claim", {"worker": "a\nb", "lease_s": 5}),
        ("claim", {"worker": "w", "lease_s": 0}),
        ("claim", {"worker": "w", "lease_s": 10**6}),
        ("claim", {"worker": "w", "lease_s": 5, "kinds": []}),
        ("claim", {"worker": "w", "lease_s": 5, "lease_token": "x"}),
        ("{id}/heartbeat", {"lease_s": 5, "lease_token": "x"}),
        ("{id}/heartbeat", {"lease_s": 5, "checkpoint": "x" * 2_000}),
        ("{id}/heartbeat", {"lease_s": 5, "log": [{"number": 0, "at_ms": 1, "text": "x"}]}),
        ("{id}/heartbeat", {"lease_s": 5, "log": [{"number": 1, "at_ms": 1, "text": "x"}] * 1_001}),
        ("{id}/finish", {"outcome": "done"}),
        ("{id}/finish", {"outcome": "succeeded", "result": "x" * 2_000}),
        ("{id}/finish", {"outcome": "failed", "retry_after_s": -1}),
    ],
)
def test_what_workers_may_not_say(queue: World, path: str, body: dict[str, Any]) -> None:
    """Refused as a mistake of theirs; the job stays as it is."""
    made = submit(queue.table(), "verify")
    where = path.replace("{id}", made["job_id"])
    problem = queue.api.problem("POST", f"/v1/jobs/{where}", {"lease_token": str(IDS.new()), **body})
    assert (problem.status, problem.code) == (400, "invalid_request")
    assert queue.api.call("GET", f"/v1/jobs/{made['job_id']}") == made


def test_schedules_are_set_shown_and_dropped(world: World) -> None:
    """Each under its name; the next time is after now."""
    table = world.table()
    path = f"{table.path}/schedules"
    every = table.api.call("PUT", f"{path}/often", {"kind": "compact", "every_s": 60, "arguments": {"max_bytes": 9}})
    assert every["next_ms"] == every["created_ms"] + 60_000
    cron = {"kind": "verify", "cron": "30 3 * * SUN", "time_zone": "Europe/Berlin", "priority": 3}
    weekly = table.api.call("PUT", f"{path}/weekly", cron)
    assert weekly["next_ms"] > weekly["created_ms"]
    off = table.api.call("PUT", f"{path}/often", {"kind": "compact", "every_s": 5, "enabled": False})
    assert "next_ms" not in off
    assert table.api.call("GET", path)["schedules"] == [off, weekly]
    assert table.api.call("GET", f"{path}/weekly") == weekly
    key = fresh_name("key")
    for _ in range(2):
        table.api.call("DELETE", f"{path}/weekly", key=key, expect=204)
    for method in ("GET", "DELETE"):
        problem = table.api.problem(method, f"{path}/weekly")
        assert (problem.status, problem.code) == (404, "schedule_not_found")


@pytest.mark.parametrize(
    "change",
    [
        {"every_s": None},
        {"cron": "* * * * *"},
        {"every_s": 0},
        {"every_s": None, "cron": "* * * *"},
        {"every_s": None, "cron": "* * * * * *"},
        {"every_s": None, "cron": "61 * * * *"},
        {"every_s": None, "cron": "0 0 30 2 *"},
        {"every_s": None, "cron": "0 0 * * *", "time_zone": "Mars/Base"},
        {"time_zone": "x" * 500},
        {"kind": "vacuum_dropped"},
        {"kind": "nothing"},
        {"arguments": {"max_bytes": 0}},
        {"priority": 10**6},
        {"max_attempts": 0},
        {"timeout_s": 0},
        {"then": 1},
    ],
)
def test_schedules_that_cannot_be(world: World, change: dict[str, Any]) -> None:
    """Times that never come, or two of them; kinds and arguments that no job could have."""
    table = world.table()
    body = {"kind": "compact", "every_s": 60, **change}
    problem = table.api.problem("PUT", f"{table.path}/schedules/s", {k: v for k, v in body.items() if v is not None})
    is_long = change.get("time_zone") == "x" * 500
    assert (problem.status, problem.code) == (400, "limit_exceeded" if is_long else "invalid_request")
    assert table.api.problem("PUT", f"{table.path}/schedules/a.b", {"kind": "compact", "every_s": 60}).status == 400
    assert table.api.call("GET", f"{table.path}/schedules")["schedules"] == []


def due(world: World, times: int = 1) -> list[str]:
    """The jobs that are enqueued by so many who ask at once."""
    barrier = threading.Barrier(times)

    def ask() -> list[str]:
        with Lamella(world.url) as lake:
            barrier.wait()
            return list(lake.jobs.due().enqueued)

    with ThreadPoolExecutor(times) as pool:
        return [job_id for future in [pool.submit(ask) for _ in range(times)] for job_id in future.result()]


def wait_for(world: World, table: TableApi, count: int = 1) -> list[dict[str, Any]]:
    """Ask what is due, several at once, until a table has so many jobs."""
    for _ in range(200):
        due(world, 4)
        found = jobs_of(table)
        if len(found) >= count:
            return found
        threading.Event().wait(0.1)
    raise AssertionError(f"{table.path} has {len(jobs_of(table))} jobs")


def test_a_schedule_enqueues_its_job_once_however_many_ask(world: World) -> None:
    """And no second one while the first is pending."""
    table = world.table()
    table.api.call("PUT", f"{table.path}/schedules/s", {"kind": "verify", "every_s": 1, "arguments": {"seed": 3}})
    (job,) = wait_for(world, table)
    assert (job["origin"], job["origin_name"], job["arguments"]) == ("schedule", "s", {"seed": 3})
    threading.Event().wait(1.1)
    due(world, 4)
    assert jobs_of(table) == [job]
    shown = table.api.call("GET", f"{table.path}/schedules/s")
    assert shown["last_job_id"] == job["job_id"]
    assert shown["last_ms"] < shown["next_ms"]
    table.api.call("DELETE", f"{table.path}/schedules/s", expect=204)


def test_a_policy_is_set_shown_and_dropped(world: World) -> None:
    """As a whole."""
    table = world.table()
    path = f"{table.path}/policy"
    assert table.api.problem("GET", path).code == "policy_not_found"
    policy = {"compact": {"small_blocks": 100}, "vacuum": {"every_s": 86_400, "arguments": {"execute": True}}}
    assert table.api.call("PUT", path, policy)["policy"] == policy
    table.api.call("PUT", path, {"verify": {"every_s": 5}})
    assert table.api.call("GET", path)["policy"] == {"verify": {"every_s": 5}}
    table.api.call("DELETE", path, expect=204)
    problem = table.api.problem("DELETE", path)
    assert (problem.status, problem.code) == (404, "policy_not_found")


@pytest.mark.parametrize(
    "policy",
    [
        {"compact": {}},
        {"verify": {"cool_down_s": 5}},
        {"compact": {"small_blocks": 0}},
        {"recluster": {"average_depth": 0.5}},
        {"vacuum": {"snapshots": 5, "arguments": {"exekute": True}}},
        {"index_refresh": {"not_indexed_blocks": 1, "arguments": {"index": "i"}}},
        {"compact": {"every_s": 0}},
        {"compact": {"every_s": 5, "cool_down_s": -1}},
        {"compact": {"every_s": 5, "priority": 10**6}},
        {"compact": {"every_s": 5, "timeout_s": 0}},
        {"delete": {"every_s": 5}},
        {"compact": {"depth": 3}},
    ],
)
def test_policies_that_cannot_be(world: World, policy: dict[str, Any]) -> None:
    """Rules that are never due, of other kinds, or with arguments that their jobs could not have."""
    table = world.table()
    problem = table.api.problem("PUT", f"{table.path}/policy", policy)
    assert (problem.status, problem.code) == (400, "invalid_request")
    assert table.api.problem("GET", f"{table.path}/policy").status == 404


def findings(table: TableApi) -> dict[str, tuple[bool, str]]:
    """What the last check of each rule found."""
    found = table.api.call("GET", f"{table.path}/policy").get("findings", [])
    return {each["rule"]: (each["due"], each["reason"]) for each in found}


def test_a_policy_asks_for_what_a_table_needs(own: World) -> None:
    """By its small blocks, its indexes and its history; once, and not again before its time."""
    table = own.table()
    for index in ("i", "j"):
        body = {"name": index, "kind": "bloom", "expression": "a"}
        table.api.call("POST", f"{table.path}/indexes", body)
    policy = {
        "compact": {"small_blocks": 3, "arguments": {"max_bytes": 9}, "priority": 2},
        "index_refresh": {"not_indexed_blocks": 2, "arguments": {"mode": "quick"}, "indexes": ["j", "gone"]},
        "recluster": {"average_depth": 2},
        "vacuum": {"snapshots": 4},
        "verify": {"every_s": 3_600, "arguments": {"seed": 1}},
    }
    table.api.call("PUT", f"{table.path}/policy", policy)
    (verify,) = wait_for(own, table)
    assert (verify["kind"], verify["origin"], verify["origin_name"]) == ("verify", "policy", "verify")
    assert findings(table)["compact"] == (False, "0 small blocks, fewer than 3")
    assert findings(table)["vacuum"] == (False, "3 snapshots, fewer than 4")
    assert findings(table)["index_refresh:j"] == (False, "0 blocks that are not indexed, fewer than 2")
    assert not findings(table)["recluster"][0]
    table.register(*own.numbers(own.folder(), 3))
    found = wait_for(own, table, 4)
    by_kind = {job["kind"]: job for job in found}
    assert set(by_kind) == {"compact", "index_refresh", "vacuum", "verify"}
    assert (by_kind["compact"]["arguments"], by_kind["compact"]["priority"]) == ({"max_bytes": 9}, 2)
    assert by_kind["index_refresh"]["arguments"] == {"index": "j", "mode": "quick"}
    assert by_kind["index_refresh"]["origin_name"] == "index_refresh:j"
    threading.Event().wait(1.1)
    due(own, 4)
    assert len(jobs_of(table)) == 4
    assert findings(table)["compact"] == (False, "requested less than 3600 s ago")
    table.api.call("DELETE", f"{table.path}/policy", expect=204)


def test_two_checks_at_once_enqueue_once(own: World) -> None:
    """Whoever is faster; the others find nothing to do."""
    for _ in range(5):
        table = own.table()
        policy = {"verify": {"every_s": 3_600}, "vacuum": {"every_s": 3_600}}
        table.api.call("PUT", f"{table.path}/policy", policy)
        enqueued = due(own, 6)
        assert len(enqueued) == len(set(enqueued))
        assert sorted(job["kind"] for job in jobs_of(table)) == ["vacuum", "verify"]
        table.api.call("DELETE", f"{table.path}/policy", expect=204)


def test_dropped_tables_are_left_alone(own: World, tmp_path: Path) -> None:
    """Neither their schedules nor their policies ask for anything, until they come back."""
    assert tmp_path.is_dir()
    table = own.table()
    table.api.call("PUT", f"{table.path}/schedules/s", {"kind": "verify", "every_s": 1})
    table.api.call("PUT", f"{table.path}/policy", {"vacuum": {"every_s": 60}})
    table.api.call("DELETE", table.path, expect=204)
    threading.Event().wait(1.1)
    due(own, 2)
    assert jobs_of(table) == []
    table.api.call("POST", f"/v1/namespaces/{table.namespace}/undrop", {"name": table.name}, expect=200)
    assert {job["kind"] for job in wait_for(own, table, 2)} == {"verify", "vacuum"}
    table.api.call("DELETE", f"{table.path}/schedules/s", expect=204)
    table.api.call("DELETE", f"{table.path}/policy", expect=204)


def test_what_is_done_is_counted(queue: World) -> None:
    """Jobs by origin, attempts by outcome, and how many are pending."""

    def value(text: str, name: str) -> float:
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))

    def metrics() -> str:
        return queue.api.http.get("/metrics").text

    before = metrics()
    with Lamella(queue.url) as lake:
        job_id = lake.jobs.submit("verify", name_of(queue.table())).job_id
        lake.jobs.due()
        assert value(metrics(), 'lamella_jobs_pending{state="queued"}') == 1
        token = str(IDS.new())
        lake.jobs.claim("w", token, lease_s=60)
        for _ in range(2):
            lake.jobs.finish(job_id, FinishJob(lease_token=token, outcome="succeeded"))
    after = metrics()
    for name in (
        'lamella_jobs_enqueued_total{kind="verify",origin="request"}',
        'lamella_job_attempts_total{kind="verify",outcome="succeeded"}',
        'lamella_job_seconds_count{kind="verify"}',
    ):
        assert value(after, name) == value(before, name) + 1

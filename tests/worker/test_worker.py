"""Workers with real programs against a running service."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from click.testing import CliRunner

from fixtures_server import ServerProcess
from lamella.client import Lamella
from lamella.client.cli.app import cli
from lamella.client.jobs.attempt import AttemptSettings
from lamella.client.jobs.worker import Worker, WorkerSettings
from lamella.snapshot.wire import JobInfo
from support.worker_process import Ledger, WorkerProcess, is_alive, until

StartWorker = Callable[..., WorkerProcess]


def pretend(lake: Lamella, ledger: Ledger, table: str = "db.a", *, options: Any = None, **arguments: Any) -> str:
    """Ask for a pretended job; its id."""
    given = {"ledger": str(ledger.path), **arguments}
    return lake.jobs.submit("pretend", table, given, **(options or {})).job_id


def over(lake: Lamella, job_id: str) -> JobInfo:
    """The job once it is over."""
    found = lake.jobs.wait(job_id, timeout_s=300, poll_s=0.05)
    assert found.is_finished, found
    return found


def texts(lake: Lamella, job_id: str) -> list[str]:
    """The lines of its log."""
    return [line.text for line in lake.jobs.log(job_id).lines]


def spans(lines: Iterable[dict[str, Any]]) -> list[tuple[float, float, str]]:
    """From when to when each run went, and of which table."""
    begun = {line["pid"]: line for line in lines if line["event"] == "begin"}
    ended = {line["pid"]: line for line in lines if line["event"] == "end"}
    return sorted((begun[pid]["at"], ended[pid]["at"], begun[pid]["table"]) for pid in begun)


def test_a_job_is_done_and_tells_how(lake: Lamella, ledger: Ledger, start_worker: StartWorker) -> None:
    """Progress, log and result arrive; the worker that did it is named."""
    job_id = pretend(lake, ledger, steps=3)
    start_worker("one")
    done = over(lake, job_id)
    assert (done.state, done.attempts, done.worker, done.result) == ("succeeded", 1, "one", {"steps": 3})
    assert done.progress is not None
    assert (done.progress.done, done.progress.total, done.progress.unit) == (3, 3, "steps")
    assert [text for text in texts(lake, job_id) if text.startswith("step")] == ["step 1", "step 2", "step 3"]


def test_commands_of_lamella_are_jobs(lake: Lamella, start_worker: StartWorker) -> None:
    """What `--json` writes is the result; the service's own error is the job's, and is not tried again."""
    vacuum = lake.jobs.submit("vacuum", "db.a").job_id
    verify = lake.jobs.submit("verify", "db.a", {"deep": True, "seed": 7}).job_id
    dropped = lake.jobs.submit("vacuum_dropped", None, {"execute": True}).job_id
    missing = lake.jobs.submit("index_refresh", "db.b", {"index": "nowhere"}).job_id
    start_worker("w", "--concurrency", "2")
    found = {job_id: over(lake, job_id) for job_id in (vacuum, verify, dropped, missing)}
    assert [found[job_id].state for job_id in (vacuum, verify, dropped)] == ["succeeded"] * 3
    assert found[vacuum].result["executed"] is False
    assert found[verify].result["findings"] == []
    assert found[dropped].result["executed"] is True
    failed = found[missing]
    assert (failed.state, failed.attempts) == ("failed", 1)
    assert failed.error is not None
    assert failed.error.code == "index_not_found"


def test_jobs_of_one_table_never_overlap_and_other_tables_do_not_wait(
    lake: Lamella, ledger: Ledger, start_worker: StartWorker
) -> None:
    """Two workers with two places each: a table's jobs one after another, both tables beside each other."""
    jobs = [pretend(lake, ledger, table, steps=5, step_s=0.1) for table in ("db.a", "db.a", "db.b", "db.b")]
    for name in ("one", "two"):
        start_worker(name, "--concurrency", "2")
    assert {over(lake, job_id).state for job_id in jobs} == {"succeeded"}
    assert len(ledger.lines("begin")) == 4, "none was run twice"
    runs = spans(ledger.lines())
    for table in ("db.a", "db.b"):
        first, second = [run for run in runs if run[2] == table]
        assert first[1] <= second[0]
    assert runs[1][0] < runs[0][1], "the other table's job began before the first one ended"


def test_a_failed_attempt_is_tried_again_and_goes_on_from_its_checkpoint(
    lake: Lamella, ledger: Ledger, start_worker: StartWorker
) -> None:
    """However it failed: by its status, by a conflict, by a signal."""
    start_worker("w", "--concurrency", "3")
    for how in ("exit", "busy", "kill"):
        job_id = pretend(lake, ledger, steps=4, fails=1, how=how)
        done = over(lake, job_id)
        assert (done.state, done.attempts, done.error) == ("succeeded", 2, None)
        assert done.result == {"steps": 1}, "the first attempt got past three of four steps"
        assert [line["first"] for line in ledger.lines("begin") if line["job"] == job_id] == [0, 3]


def test_attempts_are_used_up(lake: Lamella, ledger: Ledger, start_worker: StartWorker) -> None:
    """The last error stands in the job; one that would come again uses up no more than one attempt."""
    start_worker()
    failed = over(lake, pretend(lake, ledger, steps=20, fails=9, options={"max_attempts": 2}))
    assert (failed.state, failed.attempts) == ("failed", 2)
    assert failed.error is not None
    assert (failed.error.code, failed.error.detail) == ("job_program_failed", "the program ended with status 1")
    assert "it did not work" in texts(lake, failed.job_id)
    final = over(lake, pretend(lake, ledger, steps=20, fails=9, how="final"))
    assert (final.state, final.attempts) == ("failed", 1)
    again = lake.jobs.retry(final.job_id)
    assert (again.state, again.attempts) == ("queued", 0)
    assert over(lake, final.job_id).state == "failed"


def test_cancelling_ends_the_program_and_all_that_it_started(
    lake: Lamella, ledger: Ledger, start_worker: StartWorker
) -> None:
    """One that polls ends by itself; one that pays no heed is killed after its grace, with its helpers."""
    start_worker("w", "--concurrency", "3")
    polite = pretend(lake, ledger, steps=10_000, polls=True)
    stubborn = pretend(lake, ledger, "db.b", steps=10_000, fails=1, how="stubborn")
    ledger.await_lines("begin", 2)
    for job_id in (polite, stubborn):
        assert lake.jobs.cancel(job_id).cancel_requested
    assert [over(lake, job_id).state for job_id in (polite, stubborn)] == ["cancelled", "cancelled"]
    assert [line["job"] for line in ledger.lines("stopped")] == [polite]
    parent = pretend(lake, ledger, steps=10_000, fails=1, how="orphan")
    (helper,) = ledger.await_lines("helper")
    lake.jobs.cancel(parent)
    assert over(lake, parent).state == "cancelled"
    until(lambda: not is_alive(helper["helper"]), "the helper is gone")


def test_a_program_that_takes_too_long_is_ended(lake: Lamella, ledger: Ledger, start_worker: StartWorker) -> None:
    """Each attempt has its time."""
    start_worker()
    options = {"timeout_s": 1, "max_attempts": 2}
    failed = over(lake, pretend(lake, ledger, steps=10_000, options=options))
    assert (failed.state, failed.attempts) == ("failed", 2)
    assert failed.error is not None
    assert failed.error.code == "job_timeout"


def test_a_worker_that_is_stopped_hands_its_job_back(lake: Lamella, ledger: Ledger, start_worker: StartWorker) -> None:
    """Another one goes on with it, and no attempt is lost."""
    first = start_worker("first")
    job_id = pretend(lake, ledger, steps=60, step_s=0.05)
    until(lambda: bool((found := lake.jobs.get(job_id).progress) and found.done), "some progress")
    assert first.stop() == 0
    queued = lake.jobs.get(job_id)
    assert (queued.state, queued.attempts, queued.worker) == ("queued", 0, None)
    start_worker("second")
    done = over(lake, job_id)
    assert (done.state, done.attempts, done.worker) == ("succeeded", 1, "second")
    assert done.result["steps"] < 60


def test_a_killed_workers_program_ends_and_another_takes_the_job_over(
    lake: Lamella, ledger: Ledger, start_worker: StartWorker
) -> None:
    """After `kill -9` nothing of the worker is left, and the job is done all the same, in a second attempt."""
    first = start_worker("first", lease_s=3)
    job_id = pretend(lake, ledger, steps=80, step_s=0.05, fails=1, how="stubborn")
    (begin,) = ledger.await_lines("begin")
    until(lambda: bool((found := lake.jobs.get(job_id).progress) and found.done), "some progress")
    first.kill()
    until(lambda: not is_alive(begin["pid"]), "the program is gone, although it pays no heed to SIGTERM")
    start_worker("second", lease_s=3)
    done = over(lake, job_id)
    assert (done.state, done.attempts, done.worker) == ("succeeded", 2, "second")
    assert [line["attempt"] for line in ledger.lines("begin")] == [1, 2]
    assert "worker first sent no heartbeat any more, in attempt 1 of 3" in texts(lake, job_id)


def test_a_frozen_worker_loses_its_job_and_kills_its_program(
    lake: Lamella, ledger: Ledger, start_worker: StartWorker
) -> None:
    """It was not heard of, so another has the job; once it goes on it finds out at once."""
    first = start_worker("first", lease_s=3)
    job_id = pretend(lake, ledger, steps=600, step_s=0.05)
    (begin,) = ledger.await_lines("begin")
    os.kill(first.process.pid, signal.SIGSTOP)
    start_worker("second", lease_s=3)
    ledger.await_lines("begin", 2)
    os.kill(first.process.pid, signal.SIGCONT)
    until(lambda: not is_alive(begin["pid"]), "the first program is gone")
    until(lambda: any(event["event"] == "lost" for event in first.events()), "the first worker knows")
    running = lake.jobs.get(job_id)
    assert (running.state, running.worker, running.attempts) == ("running", "second", 2)
    lake.jobs.cancel(job_id)
    assert over(lake, job_id).state == "cancelled"


def test_a_service_that_restarts_costs_no_job(
    service: ServerProcess, lake: Lamella, ledger: Ledger, start_worker: StartWorker
) -> None:
    """The program goes on, and its worker tells the end as soon as there is somebody to tell."""
    start_worker("w", lease_s=30)
    job_id = pretend(lake, ledger, steps=20, step_s=0.05)
    ledger.await_lines("begin")
    service.kill()
    ledger.await_lines("end")
    service.restart()
    done = over(lake, job_id)
    assert (done.state, done.attempts, done.result) == ("succeeded", 1, {"steps": 20})
    assert len(ledger.lines("begin")) == 1


def test_a_worker_does_what_is_due_once(lake: Lamella, ledger: Ledger, start_worker: StartWorker) -> None:
    """With `--once` it ends when nothing is left; its status says whether all succeeded."""
    good = pretend(lake, ledger)
    assert start_worker("w1", "--once").process.wait(300) == 0
    assert lake.jobs.get(good).state == "succeeded"
    pretend(lake, ledger, fails=9, how="final")
    assert start_worker("w2", "--once").process.wait(300) == 1
    other = pretend(lake, ledger)
    assert start_worker("w3", "--once", "--kinds", "vacuum").process.wait(300) == 0
    assert lake.jobs.get(other).state == "queued"


def test_schedules_and_policies_are_checked_by_workers(lake: Lamella, start_worker: StartWorker) -> None:
    """A schedule's job and a policy's are enqueued and done by `--once`, each with its origin."""
    lake_table = lake.table("db.a")
    run = CliRunner().invoke
    set_ = ["schedule", "set", "db.a", "often", "vacuum", "--every", "1s", "--url", lake.url, "--json"]
    assert run(cli, set_).exit_code == 0
    until(lambda: start_worker("w", "--once").process.wait(300) == 0 and _done(lake) != [], "a scheduled job")
    (scheduled, *_) = _done(lake)
    assert (scheduled.origin, scheduled.origin_name, scheduled.kind) == ("schedule", "often", "vacuum")
    run(cli, ["schedule", "drop", "db.a", "often", "--url", lake.url])
    policy = json.dumps({"verify": {"every_s": 3600, "arguments": {"seed": 1}}})
    assert run(cli, ["policy", "set", "db.a", "-", "--url", lake.url], input=policy).exit_code == 0
    assert start_worker("w2", "--once").process.wait(300) == 0
    (newest, *_) = _done(lake)
    assert (newest.origin, newest.origin_name, newest.kind, newest.arguments) == (
        "policy",
        "verify",
        "verify",
        {"seed": 1},
    )
    (finding,) = lake_table.policy().findings
    assert (finding.rule, finding.due, finding.last_job_id) == ("verify", True, newest.job_id)


def _done(lake: Lamella) -> list[JobInfo]:
    table_id = lake.table("db.a").info().table_id
    return [job for job in lake.jobs.list("db.a", states=["succeeded"]) if job.table_id == table_id]


def test_a_job_that_no_thread_can_be_begun_for_is_handed_back(
    lake: Lamella, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait for its lease to run out, and the worker ends as it should."""
    job_id = pretend(lake, ledger)
    with monkeypatch.context() as patched:
        start = threading.Thread.start

        def cannot(thread: threading.Thread) -> None:
            if thread.name.startswith("job "):
                raise RuntimeError("can't start new thread")
            start(thread)

        patched.setattr(threading.Thread, "start", cannot)
        settings = WorkerSettings(kinds=("pretend",), once=True, poll_s=0.01)
        assert Worker(lake, settings, AttemptSettings(lease_s=600, grace_s=1.0)).run() == ("released",)
    assert lake.jobs.get(job_id).state == "queued"
    assert ledger.lines("begin") == []

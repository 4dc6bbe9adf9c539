"""The queue of jobs, over SQLite and PostgreSQL."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import msgspec
import pytest

from lamella.service.catalog import (
    ClaimResult,
    JobEnding,
    JobFilter,
    JobRecord,
    JobReport,
    SqlCatalog,
    StoredAnswer,
    open_catalog,
)
from lamella.snapshot.errors import IdempotencyMismatch, JobFinished, JobLeaseLost, JobNotFound, JobRunning
from lamella.snapshot.wire import JobLine, NamespaceInfo
from support.job_records import IDS, enqueue, new_table, queued

BACKENDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))
NOTHING = JobReport()
DONE = JobEnding(outcome="succeeded", result='{"blocks":3}')


@pytest.fixture(params=BACKENDS)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog with the namespace ``db``."""
    sqlite = request.param == "sqlite"
    url = str(tmp_path / "catalog.db") if sqlite else str(request.getfixturevalue("postgres_database"))
    catalog = open_catalog(url, connections=20)
    catalog.create_namespace(NamespaceInfo(name="db"), now_ms=1)
    yield catalog
    catalog.close()


def claim(
    catalog: SqlCatalog, *kinds: str, now_ms: int = 100, lease_ms: int = 1_000, token: str | None = None
) -> ClaimResult:
    """What a worker gets at that time."""
    return catalog.claim_job(
        worker="w",
        kinds=kinds or None,
        lease_token=token or str(IDS.new()),
        lease_expires_ms=now_ms + lease_ms,
        now_ms=now_ms,
    )


def claimed(catalog: SqlCatalog, *kinds: str, now_ms: int = 100, lease_ms: int = 1_000) -> JobRecord:
    """The job that a worker gets; there must be one."""
    job = claim(catalog, *kinds, now_ms=now_ms, lease_ms=lease_ms).job
    assert job is not None
    return job


def finish(catalog: SqlCatalog, job: JobRecord, ending: JobEnding = DONE, *, now_ms: int = 200) -> JobRecord:
    """The job after its worker ended it."""
    assert job.lease_token is not None
    return catalog.finish_job(job.job_id, job.lease_token, NOTHING, ending, now_ms=now_ms)[0]


def test_a_job_keeps_what_it_was_enqueued_with(catalog: SqlCatalog) -> None:
    """Every member is there again, whatever text it holds."""
    table = new_table(catalog)
    arguments = msgspec.json.encode({"where": "s = '\0 é \" ; DROP TABLE jobs'"}).decode()
    job = queued(table, arguments=arguments, priority=-3, timeout_s=9, not_before_ms=77, origin="policy", twin="x")
    assert catalog.enqueue_job(job, unique=True) is None
    assert catalog.job(job.job_id) == job
    assert catalog.jobs(JobFilter(), before_id=None, limit=10) == [job]


def test_a_job_that_is_not_there_is_not_found(catalog: SqlCatalog) -> None:
    """Whatever is done with it, and whatever it is called."""
    for name in (str(IDS.new()), "", "\0"):
        with pytest.raises(JobNotFound):
            catalog.job(name)
    for act in (catalog.cancel_job, catalog.retry_job):
        with pytest.raises(JobNotFound):
            act("x", now_ms=1)
    with pytest.raises(JobNotFound):
        catalog.heartbeat_job("x", "y", NOTHING, lease_expires_ms=2, now_ms=1)
    with pytest.raises(JobNotFound):
        catalog.finish_job("x", "y", NOTHING, DONE, now_ms=1)


def test_an_answer_is_remembered_with_the_job_and_not_with_a_twin(catalog: SqlCatalog) -> None:
    """Enqueueing under a key that is taken changes nothing; one that found a twin leaves its key free."""
    answer = StoredAnswer(key="k", scope="POST /v1/jobs", request_sha256="a", status=201, body=b"{}", created_at_ms=1)
    first = queued(twin="same")
    assert catalog.enqueue_job(first, unique=True, remember=answer) is None
    assert catalog.answer("k", "POST /v1/jobs") == answer
    with pytest.raises(IdempotencyMismatch):
        catalog.enqueue_job(queued(), unique=False, remember=answer)
    other = msgspec.structs.replace(answer, key="other")
    found = catalog.enqueue_job(queued(twin="same"), unique=True, remember=other)
    assert found == first
    assert catalog.answer("other", "POST /v1/jobs") is None
    assert len(catalog.jobs(JobFilter(), before_id=None, limit=10)) == 1


def test_a_unique_job_is_one_with_its_twin_while_that_is_pending(catalog: SqlCatalog) -> None:
    """Queued or running, and whoever asked for it; once it is over there is room for another."""
    first = enqueue(catalog, twin="same")
    second = enqueue(catalog, twin="same")
    assert first != second, "who asks without `unique` gets a job of their own"
    assert catalog.job(second).twin is None
    job = claimed(catalog)
    assert job.job_id == first
    twin = catalog.enqueue_job(queued(twin="same"), unique=True)
    assert twin is not None
    assert twin.job_id == first
    finish(catalog, job)
    assert catalog.enqueue_job(queued(twin="same"), unique=True) is None


def test_jobs_come_by_priority_and_then_by_age(catalog: SqlCatalog) -> None:
    """One at a time from several tables; a job that waits for its time, or of another kind, is left."""
    old, urgent, young = (
        enqueue(catalog, new_table(catalog, name), priority=priority)
        for name, priority in (("a", 0), ("b", 5), ("c", 0))
    )
    postponed = enqueue(catalog, not_before_ms=150)
    other = enqueue(catalog, kind="verify")
    assert [claimed(catalog, "compact").job_id for _ in range(3)] == [urgent, old, young]
    assert claim(catalog, "compact", now_ms=149).job is None
    assert claimed(catalog, "compact", now_ms=150).job_id == postponed
    assert claim(catalog, "vacuum").job is None
    assert claimed(catalog, "vacuum", "verify").job_id == other
    assert claim(catalog).job is None


def test_jobs_of_one_table_run_one_after_another_and_block_no_other(catalog: SqlCatalog) -> None:
    """The second job of a table waits for the first; those of other tables, and of none, do not."""
    a, b = new_table(catalog, "a"), new_table(catalog, "b")
    first, second = enqueue(catalog, a), enqueue(catalog, a)
    other = enqueue(catalog, b)
    bare = [enqueue(catalog), enqueue(catalog)]
    running = claimed(catalog)
    assert running.job_id == first
    assert [claimed(catalog).job_id for _ in range(3)] == [other, *bare]
    assert claim(catalog).job is None
    finish(catalog, running)
    assert claimed(catalog).job_id == second


def test_a_claimed_job_has_the_tables_present_name(catalog: SqlCatalog) -> None:
    """A table that came back under another name is worked at under that name."""
    table = new_table(catalog)
    enqueue(catalog, table)
    catalog.drop_table("db", "t", now_ms=2)
    catalog.undrop_table(table.table_id, "db", "renamed")
    found = claim(catalog)
    assert found.table == ("db", "renamed")
    assert found.job is not None
    assert found.job.table_name == "t"


def test_a_job_of_a_dropped_table_fails_and_does_not_hold_up_others(catalog: SqlCatalog) -> None:
    """The claim that finds it goes on to the next job."""
    gone = new_table(catalog, "gone")
    orphaned = enqueue(catalog, gone)
    other = enqueue(catalog, new_table(catalog))
    catalog.drop_table("db", "gone", now_ms=2)
    found = claim(catalog)
    assert found.job is not None
    assert found.job.job_id == other
    assert [job.job_id for job in found.orphaned] == [orphaned]
    failed = catalog.job(orphaned)
    assert (failed.state, failed.finished_ms) == ("failed", 100)
    assert "table_not_found" in (failed.error or "")


def test_asking_twice_with_one_token_gives_the_same_job(catalog: SqlCatalog) -> None:
    """A worker whose answer was lost asks again; once the job is not its any more it gets none."""
    enqueue(catalog)
    enqueue(catalog)
    token = str(IDS.new())
    first = claim(catalog, token=token)
    assert claim(catalog, token=token, now_ms=101) == first
    assert first.job is not None
    finish(catalog, first.job)
    assert claim(catalog, token=token).job is None
    assert claim(catalog).job is not None


def test_a_heartbeat_extends_the_lease_and_notes_what_is_reported(catalog: SqlCatalog) -> None:
    """What is not told stays as it was."""
    enqueue(catalog)
    job = claimed(catalog)
    assert job.lease_token is not None
    lines = tuple(JobLine(number=n, at_ms=n, text=f"line {n}") for n in (1, 2))
    report = JobReport(progress='{"done":1}', checkpoint="[1]", lines=lines)
    renewed = catalog.heartbeat_job(job.job_id, job.lease_token, report, lease_expires_ms=5_000, now_ms=300)
    assert (renewed.lease_expires_ms, renewed.heartbeat_ms) == (5_000, 300)
    again = catalog.heartbeat_job(job.job_id, job.lease_token, NOTHING, lease_expires_ms=6_000, now_ms=400)
    assert (again.progress, again.checkpoint, again.log_lines) == ('{"done":1}', "[1]", 2)
    assert catalog.job(job.job_id) == again
    assert catalog.job_lines(job.job_id, after=0, limit=10) == list(lines)


def test_lines_that_are_sent_twice_are_stored_once_and_only_the_last_stay(catalog: SqlCatalog) -> None:
    """Their numbers decide; the log never has more than it may."""
    enqueue(catalog)
    job = claimed(catalog)
    token = str(job.lease_token)
    numbers = iter([(1, 2, 3), (2, 3, 4), (4,), (5, 6, 7, 8, 9)])
    for some in numbers:
        lines = tuple(JobLine(number=n, at_ms=n, text=str(n), level="error") for n in some)
        report = JobReport(lines=lines, max_lines=4)
        catalog.heartbeat_job(job.job_id, token, report, lease_expires_ms=9_000, now_ms=300)
    stored = catalog.job_lines(job.job_id, after=0, limit=10)
    assert [(line.number, line.text, line.level) for line in stored] == [(n, str(n), "error") for n in (6, 7, 8, 9)]
    assert [line.number for line in catalog.job_lines(job.job_id, after=7, limit=1)] == [8]


def test_a_succeeded_job_is_over_and_can_be_finished_again(catalog: SqlCatalog) -> None:
    """The same end told twice is no error; another claim's is."""
    enqueue(catalog)
    job = claimed(catalog)
    ended = finish(catalog, job)
    assert (ended.state, ended.result, ended.finished_ms) == ("succeeded", '{"blocks":3}', 200)
    assert catalog.finish_job(job.job_id, str(job.lease_token), NOTHING, DONE, now_ms=999) == (ended, False)
    with pytest.raises(JobLeaseLost):
        catalog.finish_job(job.job_id, str(IDS.new()), NOTHING, DONE, now_ms=1)
    with pytest.raises(JobLeaseLost):
        catalog.heartbeat_job(job.job_id, str(job.lease_token), NOTHING, lease_expires_ms=1, now_ms=1)


def test_a_failed_attempt_is_tried_again_as_long_as_one_is_left(catalog: SqlCatalog) -> None:
    """It is not claimed before its time, keeps its checkpoint, and fails with the last attempt."""
    job_id = enqueue(catalog, max_attempts=2)
    first = claimed(catalog)
    failure = JobEnding(outcome="failed", error='{"code":"x"}', retry_at_ms=500)
    waiting = catalog.finish_job(job_id, str(first.lease_token), JobReport(checkpoint="[7]"), failure, now_ms=200)[0]
    assert (waiting.state, waiting.attempts, waiting.not_before_ms) == ("queued", 1, 500)
    assert claim(catalog, now_ms=499).job is None
    second = claimed(catalog, now_ms=500)
    assert (second.attempts, second.checkpoint, second.error) == (2, "[7]", '{"code":"x"}')
    assert finish(catalog, second, failure).state == "failed"


def test_a_failure_that_would_come_again_is_final(catalog: SqlCatalog) -> None:
    """Without a time to retry at, attempts that are left do not count."""
    enqueue(catalog)
    assert finish(catalog, claimed(catalog), JobEnding(outcome="failed", error="{}")).state == "failed"


def test_a_released_job_is_queued_again_and_loses_no_attempt(catalog: SqlCatalog) -> None:
    """A worker that is shut down hands its jobs back."""
    enqueue(catalog)
    for _ in range(5):
        job = claimed(catalog)
        assert job.attempts == 1
        assert finish(catalog, job, JobEnding(outcome="released")).state == "queued"


def test_a_job_whose_lease_ran_out_is_taken_over(catalog: SqlCatalog) -> None:
    """With an attempt more; the worker that lost it can neither report nor end it."""
    table = new_table(catalog)
    job_id = enqueue(catalog, table)
    enqueue(catalog, table)
    first = claimed(catalog, lease_ms=1_000)
    assert claim(catalog, now_ms=1_099).job is None
    found = claim(catalog, now_ms=1_100)
    assert [job.job_id for job in found.lost] == [job_id]
    assert found.job is not None
    assert (found.job.job_id, found.job.attempts) == (job_id, 2)
    assert "no heartbeat" in (found.job.error or "")
    for expires_ms in (1, 10_000):
        with pytest.raises(JobLeaseLost):
            catalog.heartbeat_job(
                job_id, str(first.lease_token), NOTHING, lease_expires_ms=expires_ms, now_ms=expires_ms
            )
        with pytest.raises(JobLeaseLost):
            finish(catalog, first)
    (line,) = catalog.job_lines(job_id, after=0, limit=10)
    assert line.text == "worker w sent no heartbeat any more, in attempt 1 of 3"
    assert line.number == found.job.log_lines == 1


def test_a_delayed_heartbeat_keeps_a_job_that_nobody_took(catalog: SqlCatalog) -> None:
    """A lease that ran out is lost only to somebody."""
    enqueue(catalog)
    job = claimed(catalog, lease_ms=10)
    catalog.heartbeat_job(job.job_id, str(job.lease_token), NOTHING, lease_expires_ms=5_000, now_ms=900)
    assert claim(catalog, now_ms=1_000).job is None


def test_a_job_whose_workers_all_die_fails_in_the_end(catalog: SqlCatalog) -> None:
    """When the last attempt's lease runs out the job says why it failed, also to a worker of other kinds."""
    job_id = enqueue(catalog, max_attempts=2)
    claimed(catalog, now_ms=100, lease_ms=10)
    claimed(catalog, now_ms=200, lease_ms=10)
    found = claim(catalog, "verify", now_ms=300)
    assert found.job is None
    failed = catalog.job(job_id)
    assert (failed.state, failed.attempts, failed.finished_ms) == ("failed", 2, 300)
    assert msgspec.json.decode(failed.error or "null")["code"] == "job_lost"


def test_cancelling(catalog: SqlCatalog) -> None:
    """A queued job is over at once; a running one is asked to stop, and is over when its worker says so or is lost."""
    waiting = enqueue(catalog)
    assert catalog.cancel_job(waiting, now_ms=5).state == "cancelled"
    assert catalog.cancel_job(waiting, now_ms=6).finished_ms == 5

    for ending in (JobEnding(outcome="cancelled"), JobEnding(outcome="failed", retry_at_ms=1)):
        enqueue(catalog)
        job = claimed(catalog)
        cancelled = catalog.cancel_job(job.job_id, now_ms=150)
        assert (cancelled.state, cancelled.cancel_requested) == ("running", True)
        renewed = catalog.heartbeat_job(job.job_id, str(job.lease_token), NOTHING, lease_expires_ms=2_000, now_ms=160)
        assert renewed.cancel_requested
        assert finish(catalog, job, ending).state == "cancelled"

    enqueue(catalog)
    job = claimed(catalog)
    catalog.cancel_job(job.job_id, now_ms=150)
    assert finish(catalog, job).state == "succeeded", "it was done before it heard of it"
    with pytest.raises(JobFinished):
        catalog.cancel_job(job.job_id, now_ms=300)

    for at_ms in (150, 2_000):  # before its lease runs out, and after
        enqueue(catalog)
        job = claimed(catalog)
        catalog.cancel_job(job.job_id, now_ms=at_ms)
        claim(catalog, now_ms=3_000)
        assert catalog.job(job.job_id).state == "cancelled"


def test_retrying(catalog: SqlCatalog) -> None:
    """What failed or was cancelled starts anew, with all attempts; what waits is due at once; what runs is left."""
    job_id = enqueue(catalog, max_attempts=1, twin="same")
    job = claimed(catalog)
    with pytest.raises(JobRunning):
        catalog.retry_job(job_id, now_ms=1)
    finish(catalog, job, JobEnding(outcome="failed", error="{}", retry_at_ms=1))
    assert catalog.job(job_id).state == "failed"
    twin = enqueue(catalog, twin="same", not_before_ms=10_000)
    again = catalog.retry_job(job_id, now_ms=300)
    assert (again.state, again.attempts, again.finished_ms, again.twin) == ("queued", 0, None, None)
    assert catalog.job(job_id) == again
    assert catalog.retry_job(twin, now_ms=301).not_before_ms == 301
    job = claimed(catalog, now_ms=400)
    assert job.job_id == job_id
    finish(catalog, job)
    with pytest.raises(JobFinished):
        catalog.retry_job(job_id, now_ms=500)
    catalog.cancel_job(twin, now_ms=500)
    assert catalog.retry_job(twin, now_ms=501).twin == "same"


def test_listing_goes_by_pages_and_filters(catalog: SqlCatalog) -> None:
    """Newest first; every filter narrows it; results and checkpoints are left out."""
    a, b = new_table(catalog, "a"), new_table(catalog, "b")
    made = [enqueue(catalog, table, kind=kind) for table in (a, b) for kind in ("compact", "verify")]
    finish(catalog, claimed(catalog, "compact"))
    everything = catalog.jobs(JobFilter(), before_id=None, limit=3)
    assert [job.job_id for job in everything] == made[:0:-1]
    rest = catalog.jobs(JobFilter(), before_id=everything[-1].job_id, limit=3)
    assert [(job.job_id, job.state, job.result) for job in rest] == [(made[0], "succeeded", None)]

    def found(which: JobFilter) -> list[int]:
        return [made.index(job.job_id) for job in catalog.jobs(which, before_id=None, limit=10)]

    assert found(JobFilter(states=("queued",))) == [3, 2, 1]
    assert found(JobFilter(states=("queued", "succeeded"), kinds=("compact",))) == [2, 0]
    assert found(JobFilter(table=("db", "a"))) == [1, 0]
    assert found(JobFilter(table=("db", "nowhere"))) == []
    assert catalog.pending_jobs() == {"queued": 3, "running": 0}


def test_old_jobs_are_forgotten_with_their_logs(catalog: SqlCatalog) -> None:
    """Only those that are over, and only so many at a time."""
    ids = [enqueue(catalog) for _ in range(4)]
    for at_ms in (200, 300, 400):
        job = claimed(catalog)
        report = JobReport(lines=(JobLine(number=1, at_ms=1, text="x"),))
        catalog.finish_job(job.job_id, str(job.lease_token), report, DONE, now_ms=at_ms)
    assert catalog.prune_jobs(before_ms=400, limit=1) == 1
    assert catalog.prune_jobs(before_ms=400) == 1
    assert catalog.prune_jobs(before_ms=400) == 0
    assert [job.job_id for job in catalog.jobs(JobFilter(), before_id=None, limit=10)] == [ids[3], ids[2]]
    assert catalog.job_lines(ids[0], after=0, limit=10) == []
    assert len(catalog.job_lines(ids[2], after=0, limit=10)) == 1


def test_no_job_is_claimed_twice_and_none_is_lost(catalog: SqlCatalog) -> None:
    """Many workers at once that finish, fail, hand back and die: while a lease lives nobody else gets the job, or
    another job of its table; and in the end every job is over."""
    tables = [new_table(catalog, f"t{n}") for n in range(6)]
    ids = {enqueue(catalog, table, max_attempts=20, priority=n % 3) for n in range(8) for table in [*tables, None]}
    clock, guard = count(1_000), threading.Lock()
    live: dict[str, tuple[int, JobRecord]] = {}  # jobs that are at work, and when each was claimed last
    wrong: list[str] = []

    def observed() -> tuple[int, dict[str, tuple[int, JobRecord]]]:
        with guard:
            return next(clock), dict(live)

    def now() -> int:
        with guard:
            return next(clock)

    def note(job: JobRecord, at_ms: int, then: dict[str, tuple[int, JobRecord]]) -> None:
        """Judged by those that were at work both when the claim was asked for and now, and whose lease no moment drawn
        so far has outlived: what others began or ended in between, as a lease that ran out for one of them, may have
        come before the claim or after it."""
        with guard:
            latest_ms = next(clock)
            for claimed in then.values():
                other = claimed[1]
                same = other.job_id == job.job_id or (job.table_id is not None and other.table_id == job.table_id)
                if same and live.get(other.job_id) is claimed and (other.lease_expires_ms or 0) > latest_ms:
                    wrong.append(f"{job.job_id} is claimed while {other.job_id} runs")
            known = live.get(job.job_id)
            if known is None or known[0] < at_ms:
                live[job.job_id] = at_ms, job

    def work(seed: int) -> None:
        draw = random.Random(seed)
        while any(catalog.pending_jobs().values()):
            dies = draw.random() < 0.15
            at_ms, then = observed()
            job = claim(catalog, now_ms=at_ms, lease_ms=20 if dies else 10**9).job
            if job is None:
                continue
            note(job, at_ms, then)
            if dies:
                continue
            token = str(job.lease_token)
            if draw.random() < 0.5:
                catalog.heartbeat_job(job.job_id, token, NOTHING, lease_expires_ms=at_ms + 10**9, now_ms=now())
            ending = draw.choice(
                [DONE, DONE, JobEnding(outcome="released"), JobEnding(outcome="failed", retry_at_ms=0)]
            )
            with guard:
                del live[job.job_id]
            catalog.finish_job(job.job_id, token, NOTHING, ending, now_ms=now())

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, seed) for seed in range(8)]:
            done.result()
    assert wrong == []
    over = catalog.jobs(JobFilter(), before_id=None, limit=1_000)
    assert {job.job_id for job in over} == ids
    assert {job.state for job in over} == {"succeeded"}


def test_claims_at_one_moment_get_different_jobs(catalog: SqlCatalog) -> None:
    """Each of two workers gets a job of a table of its own although all were queued at once, turn after turn."""
    tables = [new_table(catalog, f"t{n}") for n in range(2)]
    for _ in range(15):
        for table in tables:
            for _ in range(2):
                enqueue(catalog, table)
        barrier = threading.Barrier(3)

        def at_once(barrier: threading.Barrier = barrier) -> JobRecord | None:
            barrier.wait()
            return claim(catalog).job

        with ThreadPoolExecutor(3) as pool:
            found = [future.result() for future in [pool.submit(at_once) for _ in range(3)]]
        running = [job for job in found if job is not None]
        assert len({job.table_id for job in running}) == len(running) <= 2
        for job in running:
            finish(catalog, job)
        while (left := claim(catalog).job) is not None:
            finish(catalog, left)


def test_one_token_claims_one_job_however_often_it_is_sent_at_once(catalog: SqlCatalog) -> None:
    """Copies of one request that run beside each other do not take a job each."""
    for _ in range(10):
        for _ in range(4):
            enqueue(catalog)
        token, barrier = str(IDS.new()), threading.Barrier(4)

        def at_once(token: str = token, barrier: threading.Barrier = barrier) -> JobRecord | None:
            barrier.wait()
            return claim(catalog, token=token).job

        with ThreadPoolExecutor(4) as pool:
            found = [future.result() for future in [pool.submit(at_once) for _ in range(4)]]
        assert len({job.job_id for job in found if job is not None}) == 1
        assert catalog.pending_jobs()["running"] == 1
        while (left := claim(catalog, now_ms=10_000).job) is not None:
            finish(catalog, left, now_ms=10_001)


def test_twins_that_are_enqueued_at_once_are_one(catalog: SqlCatalog) -> None:
    """The database decides who comes first."""
    for turn in range(10):
        barrier = threading.Barrier(4)

        def at_once(turn: int = turn, barrier: threading.Barrier = barrier) -> JobRecord | None:
            job = queued(twin=f"twin {turn}")
            barrier.wait()
            return catalog.enqueue_job(job, unique=True)

        with ThreadPoolExecutor(4) as pool:
            found = [future.result() for future in [pool.submit(at_once) for _ in range(4)]]
        assert found.count(None) == 1
        assert len({job.job_id for job in found if job is not None}) == 1

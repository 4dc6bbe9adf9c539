"""What workers do with jobs, in the catalog's database: claim, report, end.

A job is claimed by a conditional update of a row that no other claim holds (``SKIP LOCKED``; SQLite has one writer at a
time). That a table has one running job at most is a unique index, so a second claim for the table that did not see the
first one fails and looks again. No transaction here waits for a second row while it holds one that another wants, so
none of them is ever part of a deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, bindparam, delete, exists, insert, select
from sqlalchemy.exc import IntegrityError

from lamella.service.catalog import statements as sql
from lamella.service.catalog.job_port import Claimed, JobEnding, JobRecord, JobReport
from lamella.service.catalog.jobs import NOBODY, changed, locked_job
from lamella.service.catalog.rows import json_text
from lamella.service.catalog.session import SqlSession
from lamella.service.catalog.tables import job_log, jobs
from lamella.snapshot.errors import JobLeaseLost, TableNotFound
from lamella.snapshot.wire import JobError, JobLine

_running = jobs.alias("running")
_BY_TOKEN: Final = select(jobs).where(jobs.c.lease_token == bindparam("token"))
_RUN_OUT: Final = (
    select(jobs)
    .where(jobs.c.state == "running", jobs.c.lease_expires_ms <= bindparam("now_ms"))
    .order_by(jobs.c.job_id)
    .with_for_update(skip_locked=True)
)
_NEXT: Final = (
    select(jobs)
    .where(
        jobs.c.state == "queued",
        jobs.c.not_before_ms <= bindparam("now_ms"),
        ~exists().where(_running.c.state == "running", _running.c.table_id == jobs.c.table_id),
    )
    .order_by(jobs.c.priority.desc(), jobs.c.job_id)
    .limit(1)
    .with_for_update(skip_locked=True, of=jobs)
)
_NEXT_OF: Final = _NEXT.where(jobs.c.kind.in_(bindparam("kinds", expanding=True)))
_ADD_LINE: Final = insert(job_log)
_FORGET_LINES: Final = delete(job_log).where(
    job_log.c.job_id == bindparam("id"), job_log.c.number <= bindparam("up_to")
)


class SqlJobClaims(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` that workers ask."""

    def claim_job(
        self, *, worker: str, kinds: Sequence[str] | None, lease_token: str, lease_expires_ms: int, now_ms: int
    ) -> Claimed:
        homeless: list[JobRecord] = []
        claim = {
            "worker": worker,
            "lease_token": lease_token,
            "lease_expires_ms": lease_expires_ms,
            "heartbeat_ms": now_ms,
            "started_ms": now_ms,
            "state": "running",
            "cancel_requested": False,
        }
        with self._transaction(None) as connection:
            held = _claimed_by(connection, lease_token)
            if held is not None:
                return _held(connection, held)
            run_out = [JobRecord(**row) for row in connection.execute(_RUN_OUT, {"now_ms": now_ms}).mappings()]
            lost = tuple(_lost(connection, job, now_ms) for job in run_out)
            while True:
                job = _next(connection, kinds, now_ms)
                if job is None:
                    return Claimed(lost=lost, homeless=tuple(homeless))
                table = _table(connection, job)
                if job.table_id is not None and table is None:
                    homeless.append(_homeless(connection, job, now_ms))
                    continue
                try:
                    with connection.begin_nested():
                        job = changed(connection, job, attempts=job.attempts + 1, **claim)
                except IntegrityError:
                    # Another claim was faster: with another job of the table, or with the same token.
                    if _claimed_by(connection, lease_token) is not None:
                        return Claimed(lost=lost, homeless=tuple(homeless))
                    continue
                return Claimed(job=job, table=table, lost=lost, homeless=tuple(homeless))

    def heartbeat_job(
        self, job_id: str, lease_token: str, report: JobReport, *, lease_expires_ms: int, now_ms: int
    ) -> JobRecord:
        with self._transaction(None) as connection:
            job = locked_job(connection, job_id)
            if job.lease_token != lease_token or job.state != "running":
                raise _not_yours(job)
            told = _told(connection, job, report)
            return changed(connection, job, lease_expires_ms=lease_expires_ms, heartbeat_ms=now_ms, **told)

    def finish_job(
        self, job_id: str, lease_token: str, report: JobReport, ending: JobEnding, *, now_ms: int
    ) -> tuple[JobRecord, bool]:
        with self._transaction(None) as connection:
            job = locked_job(connection, job_id)
            if job.lease_token != lease_token:
                raise _not_yours(job)
            if job.state != "running":
                return job, False  # this claim ended it before, and did not hear of it
            told = _told(connection, job, report)
            return changed(connection, job, **told, **_ended(job, ending, now_ms)), True


def _claimed_by(connection: Connection, lease_token: str) -> JobRecord | None:
    row = connection.execute(_BY_TOKEN, {"token": lease_token}).mappings().first()
    return None if row is None else JobRecord(**row)


def _held(connection: Connection, job: JobRecord) -> Claimed:
    """The answer to a claim that was made before."""
    if job.state != "running":
        return Claimed()
    return Claimed(job=job, table=_table(connection, job))


def _next(connection: Connection, kinds: Sequence[str] | None, now_ms: int) -> JobRecord | None:
    if kinds is None:
        row = connection.execute(_NEXT, {"now_ms": now_ms}).mappings().first()
    else:
        row = connection.execute(_NEXT_OF, {"now_ms": now_ms, "kinds": list(kinds)}).mappings().first()
    return None if row is None else JobRecord(**row)


def _table(connection: Connection, job: JobRecord) -> tuple[str, str] | None:
    """The name of a job's table now; None: it was dropped, or the job has none."""
    if job.table_id is None:
        return None
    row = connection.execute(sql.SELECT_TABLE_BY_ID, {"id": job.table_id}).mappings().first()
    return None if row is None else (row["namespace"], row["name"])


def _lost(connection: Connection, job: JobRecord, now_ms: int) -> JobRecord:
    """A running job whose worker is not heard of any more."""
    text = f"worker {job.worker} was not heard of any more, in attempt {job.attempts} of {job.max_attempts}"
    values: dict[str, Any] = {**NOBODY, "log_lines": _noted(connection, job, text, now_ms)}
    if job.cancel_requested:
        return changed(connection, job, **values, state="cancelled", finished_ms=now_ms)
    values["error"] = json_text(JobError(code="job_lost", detail=text))
    if job.attempts >= job.max_attempts:
        return changed(connection, job, **values, state="failed", finished_ms=now_ms)
    return changed(connection, job, **values, state="queued")


def _homeless(connection: Connection, job: JobRecord, now_ms: int) -> JobRecord:
    """A queued job whose table was dropped."""
    error = json_text(JobError(code=TableNotFound.code, detail="the table was dropped"))
    return changed(connection, job, state="failed", finished_ms=now_ms, error=error)


def _ended(job: JobRecord, ending: JobEnding, now_ms: int) -> dict[str, Any]:
    """What changes with the end of an attempt. The token stays, so that the same end can be told again."""
    values: dict[str, Any] = {"lease_expires_ms": None, "heartbeat_ms": now_ms, "error": ending.error}
    if ending.result is not None:
        values["result"] = ending.result
    over = {**values, "finished_ms": now_ms}
    if ending.outcome == "succeeded":
        return {**over, "state": "succeeded"}
    if ending.outcome == "cancelled" or job.cancel_requested:
        return {**over, "state": "cancelled"}
    queued = {**values, "state": "queued", "worker": None}
    if ending.outcome == "released":
        return {**queued, "attempts": job.attempts - 1, "error": job.error}
    if ending.retry_at_ms is None or job.attempts >= job.max_attempts:
        return {**over, "state": "failed"}
    return {**queued, "not_before_ms": ending.retry_at_ms}


def _told(connection: Connection, job: JobRecord, report: JobReport) -> dict[str, Any]:
    """What changes in a job's row by what its worker told; the lines are added here."""
    told: dict[str, Any] = {}
    if report.progress is not None:
        told["progress"] = report.progress
    if report.checkpoint is not None:
        told["checkpoint"] = report.checkpoint
    fresh = {line.number: line for line in report.lines if line.number > job.log_lines}
    if fresh:
        told["log_lines"] = _added(connection, job, [fresh[number] for number in sorted(fresh)], report.most_lines)
    return told


def _noted(connection: Connection, job: JobRecord, text: str, now_ms: int) -> int:
    """A line of the service itself in a job's log; its number."""
    line = JobLine(number=job.log_lines + 1, at_ms=now_ms, text=text, level="warning")
    connection.execute(_ADD_LINE, {"job_id": job.job_id, **msgspec.structs.asdict(line)})
    return line.number


def _added(connection: Connection, job: JobRecord, lines: Sequence[JobLine], most: int) -> int:
    """Add lines; those that are too many go, the oldest first. The number of the last one."""
    kept = lines[-most:]
    connection.execute(_ADD_LINE, [{"job_id": job.job_id, **msgspec.structs.asdict(line)} for line in kept])
    last = kept[-1].number
    connection.execute(_FORGET_LINES, {"id": job.job_id, "up_to": last - most})
    return last


def _not_yours(job: JobRecord) -> JobLeaseLost:
    return JobLeaseLost("the job is not this worker's any more", job_id=job.job_id, state=job.state, worker=job.worker)

"""Jobs in the catalog's database: added, listed, cancelled, retried and removed; claimed, reported and ended by
workers.

A worker claims a job by a conditional update of a row that no other claim has locked (``SKIP LOCKED``; SQLite has one
writer at a time). A unique index allows one running job for each table, so a second claim that did not see the first
one fails and looks again. No transaction waits for a second row while it holds one that another transaction needs, so
none can be part of a deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    exists,
    false,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from lamella.service.catalog import schema as sql
from lamella.service.catalog.records import (
    ClaimResult,
    JobEnding,
    JobFilter,
    JobRecord,
    JobReport,
    StoredAnswer,
    no_job,
)
from lamella.service.catalog.schema import job_log, jobs, namespaces, tables
from lamella.service.catalog.session import SqlSession, json_text
from lamella.snapshot.errors import JobFinished, JobLeaseLost, JobRunning, TableNotFound
from lamella.snapshot.wire import JobError, JobLine

this_job: Final = jobs.c.job_id == bindparam("id")
SELECT_JOB: Final = select(jobs).where(this_job)
#: Locks a job's row until the transaction ends.
LOCK_JOB: Final = SELECT_JOB.with_for_update()
_LONG: Final = ("result", "checkpoint")
_SHORT: Final = select(*(column for column in jobs.c if column.name not in _LONG))
_INSERT: Final = insert(jobs)
_SELECT_EQUAL: Final = select(jobs).where(jobs.c.twin == bindparam("alike"), jobs.c.finished_ms.is_(None))
_LINES: Final = (
    select(job_log.c.number, job_log.c.at_ms, job_log.c.text, job_log.c.level)
    .where(job_log.c.job_id == bindparam("id"), job_log.c.number > bindparam("after"))
    .order_by(job_log.c.number)
    .limit(bindparam("rows"))
)
_PENDING: Final = (
    select(jobs.c.state, func.count().label("found")).where(jobs.c.finished_ms.is_(None)).group_by(jobs.c.state)
)
_OLD: Final = (
    select(jobs.c.job_id)
    .where(jobs.c.finished_ms < bindparam("before_ms"))
    .order_by(jobs.c.finished_ms, jobs.c.job_id)
    .limit(bindparam("rows"))
    .with_for_update(skip_locked=True)
)
_FORGET: Final = tuple(
    delete(table).where(table.c.job_id.in_(bindparam("wanted", expanding=True))) for table in (job_log, jobs)
)
_AT_ONCE: Final = 500


class SqlJobs(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` for jobs."""

    def enqueue_job(self, job: JobRecord, *, unique: bool, remember: StoredAnswer | None = None) -> JobRecord | None:
        try:
            with self._transaction(remember) as connection:
                twin = insert_job(connection, job, unique=unique)
                if twin is not None:
                    raise _EqualPending(twin)
        except _EqualPending as found:
            return found.job
        return None

    def cancel_job(self, job_id: str, *, now_ms: int) -> JobRecord:
        with self._transaction(None) as connection:
            job = locked_job(connection, job_id)
            if job.state == "cancelled":
                return job
            if job.finished_ms is not None:
                raise JobFinished(f"the job has ended: it {job.state}", job_id=job_id, state=job.state)
            if job.state == "running" and job.lease_expires_ms is not None and job.lease_expires_ms > now_ms:
                return changed(connection, job, cancel_requested=True)
            return changed(connection, job, state="cancelled", cancel_requested=True, finished_ms=now_ms, **UNCLAIMED)

    def retry_job(self, job_id: str, *, now_ms: int) -> JobRecord:
        with self._transaction(None) as connection:
            job = locked_job(connection, job_id)
            if job.state == "running":
                raise JobRunning("the job is running", job_id=job_id)
            if job.state == "succeeded":
                raise JobFinished("the job succeeded", job_id=job_id, state=job.state)
            if job.state == "queued":
                return changed(connection, job, not_before_ms=now_ms)
            again: dict[str, Any] = {
                **UNCLAIMED,
                "state": "queued",
                "attempts": 0,
                "not_before_ms": now_ms,
                "finished_ms": None,
                "cancel_requested": False,
            }
            try:
                with connection.begin_nested():
                    return changed(connection, job, **again)
            except IntegrityError:  # an equal job is pending, which does the same work
                return changed(connection, job, **again, twin=None)

    def job(self, job_id: str) -> JobRecord:
        for row in self._rows(SELECT_JOB, {"id": job_id}):
            return JobRecord(**row)
        raise no_job(job_id)

    def jobs(self, which: JobFilter, *, before_id: str | None, limit: int) -> list[JobRecord]:
        query = _SHORT
        if which.states is not None:
            query = query.where(jobs.c.state.in_(which.states))
        if which.kinds is not None:
            query = query.where(jobs.c.kind.in_(which.kinds))
        if which.table is not None:
            query = query.where(jobs.c.namespace == which.table[0], jobs.c.table_name == which.table[1])
        if which.within is not None:
            query = query.where(_TABLE_OF_JOB.where(or_(false(), *(_is_in(*scope) for scope in which.within))))
        if which.finished_since_ms is not None:
            query = query.where(jobs.c.finished_ms >= which.finished_since_ms)
        if before_id is not None:
            query = query.where(jobs.c.job_id < before_id)
        return [JobRecord(**row) for row in self._rows(query.order_by(jobs.c.job_id.desc()).limit(limit), {})]

    def job_lines(self, job_id: str, *, after: int, limit: int) -> list[JobLine]:
        return [JobLine(**row) for row in self._rows(_LINES, {"id": job_id, "after": after, "rows": limit})]

    def pending_jobs(self) -> dict[str, int]:
        found = {row["state"]: int(row["found"]) for row in self._rows(_PENDING, {})}
        return {state: found.get(state, 0) for state in ("queued", "running")}

    def prune_jobs(self, *, before_ms: int, limit: int = 1_000) -> int:
        with self._transaction(None) as connection:
            old = list(connection.execute(_OLD, {"before_ms": before_ms, "rows": limit}).scalars())
            for start in range(0, len(old), _AT_ONCE):
                for statement in _FORGET:
                    connection.execute(statement, {"wanted": old[start : start + _AT_ONCE]})
        return len(old)


#: The live table of a job. Its names in the job's own row may be those of another table by now.
_TABLE_OF_JOB: Final = exists().where(
    tables.c.table_id == jobs.c.table_id,
    tables.c.dropped_at_ms.is_(None),
    namespaces.c.namespace_id == tables.c.namespace_id,
)


def _is_in(namespace: str, table: str | None) -> ColumnElement[bool]:
    inside = namespaces.c.name == namespace
    return inside if table is None else and_(inside, tables.c.name == table)


class _EqualPending(Exception):
    """Nothing to do: an equal job is pending."""

    def __init__(self, job: JobRecord) -> None:
        super().__init__(job.job_id)
        self.job = job


#: Columns of a job that no worker runs.
UNCLAIMED: Final[dict[str, Any]] = {"worker": None, "lease_token": None, "lease_expires_ms": None}


def insert_job(connection: Connection, job: JobRecord, *, unique: bool) -> JobRecord | None:
    """Add a job in a transaction. With ``unique``, return the pending equal job instead, if there is one."""
    while True:
        try:
            with connection.begin_nested():
                connection.execute(_INSERT, msgspec.structs.asdict(job))
            return None
        except IntegrityError:
            if job.twin is None:
                raise
        if not unique:
            job = msgspec.structs.replace(job, twin=None)
            continue
        for row in connection.execute(_SELECT_EQUAL, {"alike": job.twin}).mappings():
            return JobRecord(**row)


def locked_job(connection: Connection, job_id: str) -> JobRecord:
    """Lock a job's row until the transaction ends, and return it. Raises JobNotFound."""
    row = connection.execute(LOCK_JOB, {"id": job_id}).mappings().first()
    if row is None:
        raise no_job(job_id)
    return JobRecord(**row)


def changed(connection: Connection, job: JobRecord, **values: Any) -> JobRecord:
    """Update a job's row, which the caller has locked; return the job as it is then."""
    connection.execute(update(jobs).where(this_job), {"id": job.job_id, **values})
    return msgspec.structs.replace(job, **values)


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
    """The part of :class:`~lamella.service.catalog.port.Catalog` that workers call."""

    def claim_job(
        self, *, worker: str, kinds: Sequence[str] | None, lease_token: str, lease_expires_ms: int, now_ms: int
    ) -> ClaimResult:
        orphaned: list[JobRecord] = []
        lease = {
            "worker": worker,
            "lease_token": lease_token,
            "lease_expires_ms": lease_expires_ms,
            "heartbeat_ms": now_ms,
            "started_ms": now_ms,
            "state": "running",
            "cancel_requested": False,
        }
        with self._transaction(None) as connection:
            earlier = _claimed_by(connection, lease_token)
            if earlier is not None:
                return _earlier_result(connection, earlier)
            run_out = [JobRecord(**row) for row in connection.execute(_RUN_OUT, {"now_ms": now_ms}).mappings()]
            lost = tuple(_lease_lost(connection, job, now_ms) for job in run_out)
            while True:
                job = _next(connection, kinds, now_ms)
                if job is None:
                    return ClaimResult(lost=lost, orphaned=tuple(orphaned))
                table = _table(connection, job)
                if job.table_id is not None and table is None:
                    orphaned.append(_fail_orphan(connection, job, now_ms))
                    continue
                try:
                    with connection.begin_nested():
                        job = changed(connection, job, attempts=job.attempts + 1, **lease)
                except IntegrityError:
                    # Another claim was faster, for another job of the table or with the same token.
                    if _claimed_by(connection, lease_token) is not None:
                        return ClaimResult(lost=lost, orphaned=tuple(orphaned))
                    continue
                return ClaimResult(job=job, table=table, lost=lost, orphaned=tuple(orphaned))

    def heartbeat_job(
        self, job_id: str, lease_token: str, report: JobReport, *, lease_expires_ms: int, now_ms: int
    ) -> JobRecord:
        with self._transaction(None) as connection:
            job = locked_job(connection, job_id)
            if job.lease_token != lease_token or job.state != "running":
                raise _not_yours(job)
            reported = _reported(connection, job, report)
            return changed(connection, job, lease_expires_ms=lease_expires_ms, heartbeat_ms=now_ms, **reported)

    def finish_job(
        self, job_id: str, lease_token: str, report: JobReport, ending: JobEnding, *, now_ms: int
    ) -> tuple[JobRecord, bool]:
        with self._transaction(None) as connection:
            job = locked_job(connection, job_id)
            if job.lease_token != lease_token:
                raise _not_yours(job)
            if job.state != "running":
                return job, False  # this claim ended the job before, and its answer was lost
            reported = _reported(connection, job, report)
            return changed(connection, job, **reported, **_ended(job, ending, now_ms)), True


def _claimed_by(connection: Connection, lease_token: str) -> JobRecord | None:
    row = connection.execute(_BY_TOKEN, {"token": lease_token}).mappings().first()
    return None if row is None else JobRecord(**row)


def _earlier_result(connection: Connection, job: JobRecord) -> ClaimResult:
    """Return the result of a claim that was made before."""
    if job.state != "running":
        return ClaimResult()
    return ClaimResult(job=job, table=_table(connection, job))


def _next(connection: Connection, kinds: Sequence[str] | None, now_ms: int) -> JobRecord | None:
    if kinds is None:
        row = connection.execute(_NEXT, {"now_ms": now_ms}).mappings().first()
    else:
        row = connection.execute(_NEXT_OF, {"now_ms": now_ms, "kinds": list(kinds)}).mappings().first()
    return None if row is None else JobRecord(**row)


def _table(connection: Connection, job: JobRecord) -> tuple[str, str] | None:
    """Return the current name of a job's table; None if it was dropped or the job has none."""
    if job.table_id is None:
        return None
    row = connection.execute(sql.SELECT_TABLE_BY_ID, {"id": job.table_id}).mappings().first()
    return None if row is None else (row["namespace"], row["name"])


def _lease_lost(connection: Connection, job: JobRecord, now_ms: int) -> JobRecord:
    """Handle a running job whose worker sends no heartbeats any more."""
    text = f"worker {job.worker} sent no heartbeat any more, in attempt {job.attempts} of {job.max_attempts}"
    values: dict[str, Any] = {**UNCLAIMED, "log_lines": _add_note(connection, job, text, now_ms)}
    if job.cancel_requested:
        return changed(connection, job, **values, state="cancelled", finished_ms=now_ms)
    values["error"] = json_text(JobError(code="job_lost", detail=text))
    if job.attempts >= job.max_attempts:
        return changed(connection, job, **values, state="failed", finished_ms=now_ms)
    return changed(connection, job, **values, state="queued")


def _fail_orphan(connection: Connection, job: JobRecord, now_ms: int) -> JobRecord:
    """Fail a queued job whose table was dropped."""
    error = json_text(JobError(code=TableNotFound.code, detail="the table was dropped"))
    return changed(connection, job, state="failed", finished_ms=now_ms, error=error)


def _ended(job: JobRecord, ending: JobEnding, now_ms: int) -> dict[str, Any]:
    """Return the columns that the end of an attempt changes. The token stays, so that the end can be reported again."""
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


def _reported(connection: Connection, job: JobRecord, report: JobReport) -> dict[str, Any]:
    """Return the columns that a worker's report changes; adds the report's lines to the log."""
    reported: dict[str, Any] = {}
    if report.progress is not None:
        reported["progress"] = report.progress
    if report.checkpoint is not None:
        reported["checkpoint"] = report.checkpoint
    fresh = {line.number: line for line in report.lines if line.number > job.log_lines}
    if fresh:
        reported["log_lines"] = _added(connection, job, [fresh[number] for number in sorted(fresh)], report.max_lines)
    return reported


def _add_note(connection: Connection, job: JobRecord, text: str, now_ms: int) -> int:
    """Add a line of the service itself to a job's log; return its number."""
    line = JobLine(number=job.log_lines + 1, at_ms=now_ms, text=text, level="warning")
    connection.execute(_ADD_LINE, {"job_id": job.job_id, **msgspec.structs.asdict(line)})
    return line.number


def _added(connection: Connection, job: JobRecord, lines: Sequence[JobLine], max_lines: int) -> int:
    """Add lines to a job's log, and delete the oldest above the limit. Returns the number of the last line."""
    newest = lines[-max_lines:]
    connection.execute(_ADD_LINE, [{"job_id": job.job_id, **msgspec.structs.asdict(line)} for line in newest])
    last = newest[-1].number
    connection.execute(_FORGET_LINES, {"id": job.job_id, "up_to": last - max_lines})
    return last


def _not_yours(job: JobRecord) -> JobLeaseLost:
    return JobLeaseLost(
        "the job no longer belongs to this worker", job_id=job.job_id, state=job.state, worker=job.worker
    )

"""Jobs in the catalog's database: asked for, looked at, cancelled, tried again, forgotten.

What workers do with them is in :mod:`.job_claims`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, false, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from lamella.service.catalog.job_port import JobFilter, JobRecord
from lamella.service.catalog.missing import no_job
from lamella.service.catalog.port import StoredAnswer
from lamella.service.catalog.session import SqlSession
from lamella.service.catalog.tables import job_log, jobs
from lamella.snapshot.errors import JobFinished, JobRunning
from lamella.snapshot.wire import JobLine

this_job: Final = jobs.c.job_id == bindparam("id")
SELECT_JOB: Final = select(jobs).where(this_job)
#: Holds a job's row until the transaction ends.
LOCK_JOB: Final = SELECT_JOB.with_for_update()
_LONG: Final = ("result", "checkpoint")
_SHORT: Final = select(*(column for column in jobs.c if column.name not in _LONG))
_INSERT: Final = insert(jobs)
_SELECT_TWIN: Final = select(jobs).where(jobs.c.twin == bindparam("alike"), jobs.c.finished_ms.is_(None))
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
    """The part of :class:`~lamella.service.catalog.port.Catalog` that knows jobs."""

    def enqueue_job(self, job: JobRecord, *, unique: bool, remember: StoredAnswer | None = None) -> JobRecord | None:
        try:
            with self._transaction(remember) as connection:
                twin = insert_job(connection, job, unique=unique)
                if twin is not None:
                    raise _Twin(twin)
        except _Twin as found:
            return found.job
        return None

    def cancel_job(self, job_id: str, *, now_ms: int) -> JobRecord:
        with self._transaction(None) as connection:
            job = locked_job(connection, job_id)
            if job.state == "cancelled":
                return job
            if job.finished_ms is not None:
                raise JobFinished(f"the job is over: it {job.state}", job_id=job_id, state=job.state)
            if job.state == "running" and job.lease_expires_ms is not None and job.lease_expires_ms > now_ms:
                return changed(connection, job, cancel_requested=True)
            return changed(connection, job, state="cancelled", cancel_requested=True, finished_ms=now_ms, **NOBODY)

    def retry_job(self, job_id: str, *, now_ms: int) -> JobRecord:
        with self._transaction(None) as connection:
            job = locked_job(connection, job_id)
            if job.state == "running":
                raise JobRunning("a worker is at the job", job_id=job_id)
            if job.state == "succeeded":
                raise JobFinished("the job succeeded", job_id=job_id, state=job.state)
            if job.state == "queued":
                return changed(connection, job, not_before_ms=now_ms)
            again: dict[str, Any] = {
                **NOBODY,
                "state": "queued",
                "attempts": 0,
                "not_before_ms": now_ms,
                "finished_ms": None,
                "cancel_requested": False,
            }
            try:
                with connection.begin_nested():
                    return changed(connection, job, **again)
            except IntegrityError:  # one like it is pending already; both will be done
                return changed(connection, job, **again, twin=None)

    def job(self, job_id: str) -> JobRecord:
        for row in self._rows(SELECT_JOB, {"id": job_id}):
            return JobRecord(**row)
        raise no_job(job_id)

    def jobs(self, which: JobFilter, *, before_id: str | None, limit: int) -> list[JobRecord]:
        wanted = _SHORT
        if which.states is not None:
            wanted = wanted.where(jobs.c.state.in_(which.states))
        if which.kinds is not None:
            wanted = wanted.where(jobs.c.kind.in_(which.kinds))
        if which.table is not None:
            wanted = wanted.where(jobs.c.namespace == which.table[0], jobs.c.table_name == which.table[1])
        if which.within is not None:
            wanted = wanted.where(or_(false(), *(_in_place(*place) for place in which.within)))
        if before_id is not None:
            wanted = wanted.where(jobs.c.job_id < before_id)
        return [JobRecord(**row) for row in self._rows(wanted.order_by(jobs.c.job_id.desc()).limit(limit), {})]

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


def _in_place(namespace: str, table: str | None) -> ColumnElement[bool]:
    inside = jobs.c.namespace == namespace
    return inside if table is None else and_(inside, jobs.c.table_name == table)


class _Twin(Exception):
    """Nothing is to be done: a job like that is pending."""

    def __init__(self, job: JobRecord) -> None:
        super().__init__(job.job_id)
        self.job = job


#: What a job has that no worker is at.
NOBODY: Final[dict[str, Any]] = {"worker": None, "lease_token": None, "lease_expires_ms": None}


def insert_job(connection: Connection, job: JobRecord, *, unique: bool) -> JobRecord | None:
    """Add a job in a transaction; with ``unique``, the pending one like it instead, if there is one."""
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
        for row in connection.execute(_SELECT_TWIN, {"alike": job.twin}).mappings():
            return JobRecord(**row)


def locked_job(connection: Connection, job_id: str) -> JobRecord:
    """A job that nobody else changes until the transaction ends; raises JobNotFound."""
    row = connection.execute(LOCK_JOB, {"id": job_id}).mappings().first()
    if row is None:
        raise no_job(job_id)
    return JobRecord(**row)


def changed(connection: Connection, job: JobRecord, **values: Any) -> JobRecord:
    """Change a job's row, which the caller holds; returns the job as it is then."""
    connection.execute(update(jobs).where(this_job), {"id": job.job_id, **values})
    return msgspec.structs.replace(job, **values)

"""Jobs as the catalog keeps them, and as they travel."""

from __future__ import annotations

import hashlib
from typing import Any, Final, get_args

import msgspec

from lamella.service.catalog import JobFilter, JobRecord, StoredJson, TableRecord
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.jobs import JobKind
from lamella.snapshot.wire import JobError, JobInfo, JobOrigin, JobState, Progress

MOST_ATTEMPTS: Final = 100
MOST_PRIORITY: Final = 1_000
#: Thirty days.
LONGEST_S: Final = 30 * 86_400
STATES: Final[tuple[JobState, ...]] = get_args(JobState)

_ARGUMENTS: Final = StoredJson(dict[str, Any], "the arguments of a job")
_PROGRESS: Final = StoredJson(Progress, "the progress of a job")
_ERROR: Final = StoredJson(JobError, "the error of a job")
_ANY: Final = StoredJson(object, "the result of a job")


def json_value(name: str, value: object, most_bytes: int) -> str | None:
    """A value as the JSON text that the catalog keeps, None for None.

    Raises:
        InvalidRequest: more bytes than that.
    """
    if value is None:
        return None
    data = msgspec.json.encode(value)
    if len(data) > most_bytes:
        raise InvalidRequest(f"{name} is {len(data)} bytes of JSON, and may be {most_bytes}", path=f"$.{name}")
    return data.decode()


def arguments_text(arguments: dict[str, Any]) -> str:
    """Arguments as text; the same text for the same arguments."""
    return msgspec.json.encode(arguments, order="sorted").decode()


def new_job(
    job_id: str,
    kind: JobKind,
    table: TableRecord | None,
    arguments: str,
    *,
    origin: JobOrigin,
    now_ms: int,
    max_attempts: int,
    origin_name: str | None = None,
    priority: int = 0,
    timeout_s: int | None = None,
    not_before_ms: int = 0,
) -> JobRecord:
    """A queued job. It is the twin of those that have its table, kind and arguments."""
    digest = hashlib.sha256()
    for part in ("" if table is None else table.table_id, kind.name, arguments):
        digest.update(part.encode() + b"\0")
    return JobRecord(
        job_id=job_id,
        kind=kind.name,
        arguments=arguments,
        state="queued",
        origin=origin,
        created_ms=now_ms,
        table_id=None if table is None else table.table_id,
        namespace=None if table is None else table.namespace,
        table_name=None if table is None else table.name,
        origin_name=origin_name,
        priority=priority,
        max_attempts=max_attempts,
        timeout_s=timeout_s,
        not_before_ms=not_before_ms,
        twin=digest.hexdigest(),
    )


def job_info(job: JobRecord) -> JobInfo:
    """A job as it travels."""
    return JobInfo(
        job_id=job.job_id,
        kind=job.kind,
        state=job.state,
        origin=job.origin,
        created_ms=job.created_ms,
        table=None if job.table_name is None else f"{job.namespace}.{job.table_name}",
        table_id=job.table_id,
        arguments=_ARGUMENTS.decode(job.arguments),
        origin_name=job.origin_name,
        priority=job.priority,
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        timeout_s=job.timeout_s,
        not_before_ms=job.not_before_ms,
        started_ms=job.started_ms,
        finished_ms=job.finished_ms,
        heartbeat_ms=job.heartbeat_ms,
        worker=job.worker,
        lease_expires_ms=job.lease_expires_ms,
        cancel_requested=job.cancel_requested,
        progress=None if job.progress is None else _PROGRESS.decode(job.progress),
        result=any_value(job.result),
        error=None if job.error is None else _ERROR.decode(job.error),
    )


def any_value(text: str | None) -> Any:
    """A value from its JSON text."""
    return None if text is None else _ANY.decode(text)


def check_range(name: str, value: int, lowest: int, highest: int) -> int:
    """Return ``value``; raises InvalidRequest when it is outside of the range."""
    if not lowest <= value <= highest:
        raise InvalidRequest(f"{name} is a number from {lowest} to {highest}, not {value}", path=f"$.{name}")
    return value


def job_filter(states: str | None, kinds: str | None, table: str | None) -> JobFilter:
    """Which jobs a listing is asked for: ``queued,running``, ``compact,recluster``, ``namespace.table``; None: any.

    Raises:
        InvalidRequest: no such state, no table's name; ``details.parameter`` says which.
    """
    unknown = [state for state in (states.split(",") if states is not None else ()) if state not in STATES]
    if unknown:
        raise InvalidRequest(f"{unknown[0]!r} is not a state of jobs: {', '.join(STATES)}", parameter="state")
    namespace, _, name = (table or "").rpartition(".")
    if table is not None and not (namespace and name):
        raise InvalidRequest(f"{table!r} does not name a table; write namespace.table", parameter="table")
    if any("\0" in text for text in (kinds or "", table or "")):
        raise InvalidRequest("a name holds no NUL", parameter="table")
    return JobFilter(
        states=None if states is None else tuple(state for state in STATES if state in states.split(",")),
        kinds=None if kinds is None else tuple(kinds.split(",")),
        table=None if table is None else (namespace, name),
    )

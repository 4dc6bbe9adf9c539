"""The job queue as requests use it, and who may see or change a job."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

import msgspec
from starlette.requests import Request

from lamella.service.access import decided, principal_of, require
from lamella.service.catalog import Catalog, JobEnding, JobFilter, JobRecord, JobReport, StoredJson, TableRecord
from lamella.service.catalog.records import no_job
from lamella.service.config.settings import Settings
from lamella.service.http.idempotency import IdempotencyKey, StoredResponse, answered
from lamella.service.http.page_token import PageTokens
from lamella.service.tables.names import LocationRules, require_job_locations
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import InvalidRequest, JobNotFound, TableNotFound
from lamella.snapshot.ids import Ids, canonical_id
from lamella.snapshot.job_kinds import JobKind, check_arguments, job_kind_named, job_kinds
from lamella.snapshot.wire import (
    ClaimAnswer,
    ClaimJob,
    FinishJob,
    Heartbeat,
    HeartbeatAnswer,
    JobError,
    JobInfo,
    JobKindInfo,
    JobKindList,
    JobLine,
    JobList,
    JobLog,
    JobOrigin,
    JobState,
    Progress,
    Role,
    SubmitJob,
)

MAX_ATTEMPTS: Final = 100
MAX_PRIORITY: Final = 1_000
#: Thirty days.
LONGEST_S: Final = 30 * 86_400
STATES: Final[tuple[JobState, ...]] = get_args(JobState)

_ARGUMENTS: Final = StoredJson(dict[str, Any], "the arguments of a job")
_PROGRESS: Final = StoredJson(Progress, "the progress of a job")
_ERROR: Final = StoredJson(JobError, "the error of a job")
_ANY: Final = StoredJson(object, "the result of a job")


def json_value(name: str, value: object, max_bytes: int) -> str | None:
    """Return a value as the JSON text that the catalog stores; None for None.

    Raises:
        InvalidRequest: more bytes than that.
    """
    if value is None:
        return None
    data = msgspec.json.encode(value)
    if len(data) > max_bytes:
        raise InvalidRequest(f"{name} has {len(data)} bytes of JSON; the limit is {max_bytes}", path=f"$.{name}")
    return data.decode()


def arguments_text(arguments: dict[str, Any]) -> str:
    """Return arguments as text; equal arguments give equal text."""
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
    """Return a queued job. It is equal to jobs with the same table, kind and arguments."""
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
    """Return a job for the API."""
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
    """Parse a JSON text."""
    return None if text is None else _ANY.decode(text)


def check_range(name: str, value: int, lowest: int, highest: int) -> int:
    """Return ``value``. Raises InvalidRequest if it is out of range."""
    if not lowest <= value <= highest:
        raise InvalidRequest(f"{name} must be a number from {lowest} to {highest}, not {value}", path=f"$.{name}")
    return value


def job_filter(states: str | None, kinds: str | None, table: str | None) -> JobFilter:
    """Return the filter of a listing: ``queued,running``, ``compact,recluster``, ``namespace.table``; None: any.

    Raises:
        InvalidRequest: no such state, or not a table's name; ``details.parameter`` says which.
    """
    unknown = [state for state in (states.split(",") if states is not None else ()) if state not in STATES]
    if unknown:
        raise InvalidRequest(f"{unknown[0]!r} is not a job state: {', '.join(STATES)}", parameter="state")
    namespace, _, name = (table or "").rpartition(".")
    if table is not None and not (namespace and name):
        raise InvalidRequest(f"{table!r} is not a table's name; write namespace.table", parameter="table")
    if any("\0" in text for text in (kinds or "", table or "")):
        raise InvalidRequest("a name cannot contain NUL", parameter="table")
    return JobFilter(
        states=None if states is None else tuple(state for state in STATES if state in states.split(",")),
        kinds=None if kinds is None else tuple(kinds.split(",")),
        table=None if table is None else (namespace, name),
    )


_TABLE: Final = "."


def require_of_job(request: Request, role: Role, table: str | None) -> None:
    """Check a role on a job's table: ``namespace.table`` as in the request, or what :meth:`JobQueue.table_of` returns.
    Raises as :func:`~lamella.service.access.require`.
    """
    namespace, _, name = (table or "").rpartition(_TABLE)
    if not namespace:  # jobs without a table, of a dropped one, or with an invalid name are for the server's own
        require(request, role)
    else:
        require(request, role, namespace, name)


def require_new_job(
    request: Request, kind: str, arguments: Mapping[str, Any], priority: int, table: str | None
) -> None:
    """Check whether the caller may add a job, now or by a schedule or policy. Raises as :func:`require_of_job`.

    A worker runs jobs with rights on everything. Jobs that could exploit that, or that have priority over other jobs,
    can be added only by principals with such rights.
    """
    require_of_job(request, "maintain", table)
    known = job_kinds().get(kind)
    if known is None:
        return  # it will be refused for that
    if known.server_only or priority > 0 or any(name in arguments for name in known.server_arguments):
        require(request, "maintain")


def require_job(request: Request, role: Role, job: JobInfo, table: str | None) -> None:
    """Check a role on an existing job's table. For a caller that may not see it, it does not exist.

    ``table``: :meth:`JobQueue.table_of` of the job, whose own ``table`` may be the name of another table by now.
    """
    namespace, _, name = (table or "").rpartition(_TABLE)
    rights = principal_of(request).rights
    is_seen = rights.may("read", namespace, name) if namespace else rights.may("read")
    if not is_seen:
        raise no_job(job.job_id)
    require_of_job(request, role, table)


def visible_jobs(request: Request, which: JobFilter) -> JobFilter:
    """Limit a listing to the jobs that the caller may see."""
    return msgspec.structs.replace(which, within=decided(request).rights.scopes("read"))


_OF: Final = "this listing of jobs"
_MAX_LINES_SENT: Final = 1_000
_MAX_CHARACTERS: Final = 2_000
_LONGEST_WORKER: Final = 255
_HIGHEST: Final = (1 << 53) - 1


class JobQueue:
    """Checks requests about jobs, and calls the catalog."""

    def __init__(
        self,
        catalog: Catalog,
        rules: LocationRules,
        metrics: Metrics,
        ids: Ids,
        clock: Callable[[], int],
        settings: Settings,
        tokens: PageTokens,
    ) -> None:
        self._catalog = catalog
        self._tokens = tokens
        self._rules = rules
        self._metrics = metrics
        metrics.expect_jobs(job_kinds())
        self._ids = ids
        self._clock = clock
        self._settings = settings

    def kinds(self) -> JobKindList:
        """Return the installed job kinds."""
        return JobKindList(
            kinds=tuple(
                JobKindInfo(
                    name=name,
                    text=kind.text,
                    needs_table=kind.needs_table,
                    arguments=msgspec.json.schema(kind.arguments),
                )
                for name, kind in sorted(job_kinds().items())
            )
        )

    def submit(self, request: SubmitJob, idempotency_key: IdempotencyKey) -> StoredResponse:
        """Add a job.

        Raises:
            InvalidRequest: the kind, its arguments, a table for a kind without one or none for a kind with one, a
                number out of its range.
            LocationRefused: the job would write to a location that the table may not use.
            NamespaceNotFound, TableNotFound: the table.
        """
        now_ms = self._clock()
        job = self._job(request, now_ms)
        stored_response = idempotency_key.store_as(201, job_info(job))
        twin = self._catalog.enqueue_job(job, unique=request.unique, remember=stored_response.stored)
        if twin is not None:
            return answered(self._catalog, idempotency_key, job_info(twin))
        self._metrics.job_enqueued(job.kind, job.origin)
        return stored_response

    def claim(self, request: ClaimJob) -> ClaimAnswer | None:
        """Return a job for a worker; None if nothing is due. Raises InvalidRequest."""
        if not (0 < len(request.worker) <= _LONGEST_WORKER and request.worker.isprintable()):
            raise InvalidRequest(
                f"worker must be a text of 1 to {_LONGEST_WORKER} characters that identifies the worker"
            )
        token = _token(request.lease_token)
        if request.kinds is not None and not request.kinds:
            raise InvalidRequest("kinds must name the job kinds that the worker runs, or be left out", path="$.kinds")
        now_ms = self._clock()
        found = self._catalog.claim_job(
            worker=request.worker,
            kinds=request.kinds,
            lease_token=token,
            lease_expires_ms=now_ms + self._lease_ms(request.lease_s),
            now_ms=now_ms,
        )
        for lost in found.lost:
            self._metrics.job_attempt(lost.kind, "lost", _took_ms(lost, now_ms))
        for orphaned in found.orphaned:
            self._metrics.job_attempt(orphaned.kind, "failed", None)
        if found.job is None:
            return None
        return ClaimAnswer(
            job=job_info(found.job),
            table=None if found.table is None else ".".join(found.table),
            checkpoint=any_value(found.job.checkpoint),
            log_lines=found.job.log_lines,
        )

    def heartbeat(self, job_id: str, request: Heartbeat) -> HeartbeatAnswer:
        """Store a worker's report. Raises InvalidRequest, JobNotFound, JobLeaseLost."""
        now_ms = self._clock()
        until_ms = now_ms + self._lease_ms(request.lease_s)
        report = self._report(request.progress, request.checkpoint, request.log)
        job = self._catalog.heartbeat_job(
            _id(job_id), _token(request.lease_token), report, lease_expires_ms=until_ms, now_ms=now_ms
        )
        return HeartbeatAnswer(lease_expires_ms=until_ms, cancel_requested=job.cancel_requested)

    def finish(self, job_id: str, request: FinishJob) -> JobInfo:
        """End an attempt. Raises InvalidRequest, JobNotFound, JobLeaseLost."""
        now_ms, canonical = self._clock(), _id(job_id)
        max_bytes = self._settings.job_value_bytes
        retry_at_ms = None
        if request.outcome == "failed" and request.retry:
            retry_at_ms = now_ms + self._retry_ms(canonical, request.retry_after_s)
        ending = JobEnding(
            outcome=request.outcome,
            result=json_value("result", request.result, max_bytes),
            error=json_value("error", request.error, max_bytes),
            retry_at_ms=retry_at_ms,
        )
        report = self._report(request.progress, request.checkpoint, request.log)
        job, ended = self._catalog.finish_job(canonical, _token(request.lease_token), report, ending, now_ms=now_ms)
        if ended:
            outcome = "released" if request.outcome == "released" else "retried" if job.state == "queued" else job.state
            self._metrics.job_attempt(job.kind, outcome, _took_ms(job, now_ms))
        return job_info(job)

    def cancel(self, job_id: str) -> JobInfo:
        """Cancel a job. Raises JobNotFound, JobFinished."""
        return job_info(self._catalog.cancel_job(_id(job_id), now_ms=self._clock()))

    def retry(self, job_id: str) -> JobInfo:
        """Queue a job again. Raises JobNotFound, JobRunning, JobFinished."""
        return job_info(self._catalog.retry_job(_id(job_id), now_ms=self._clock()))

    def get(self, job_id: str) -> JobInfo:
        """Return a job. Raises JobNotFound."""
        return job_info(self._catalog.job(_id(job_id)))

    def table_of(self, job: JobInfo) -> str | None:
        """Return the current name of a job's table, ``namespace.table``; None if it has none, or it was dropped."""
        if job.table_id is None:
            return None
        try:
            table = self._catalog.table_by_id(job.table_id)
        except TableNotFound:
            return None
        return f"{table.namespace}.{table.name}"

    def list(self, which: JobFilter, *, page_size: int, page_token: str | None) -> JobList:
        """Return a page of jobs, newest first. Raises InvalidPageToken."""
        scope = msgspec.json.encode(which).decode()
        before_id = None if page_token is None else self._tokens.read_id(page_token, _OF, scope)
        found = self._catalog.jobs(which, before_id=before_id, limit=page_size + 1)
        shown = found[:page_size]
        more = len(found) > page_size
        return JobList(
            jobs=tuple(job_info(job) for job in shown),
            next_page_token=self._tokens.write(shown[-1].job_id.encode(), _OF, scope) if more else None,
        )

    def log(self, job_id: str, *, after: int, limit: int) -> JobLog:
        """Return lines of a job's log. Raises JobNotFound."""
        canonical = _id(job_id)
        # The state is read first: if it says that the job has ended, the log has its last lines.
        state = self._catalog.job(canonical).state
        lines = self._catalog.job_lines(canonical, after=after, limit=limit)
        return JobLog(state=state, lines=tuple(lines), after=lines[-1].number if lines else after)

    def _job(self, request: SubmitJob, now_ms: int) -> JobRecord:
        kind = job_kind_named(request.kind)
        if kind.needs_table != (request.table is not None):
            needs = "needs a table" if kind.needs_table else "takes no table"
            raise InvalidRequest(f"a job of kind {kind.name!r} {needs}", path="$.table")
        checked = check_arguments(kind, request.arguments)
        arguments = arguments_text(checked)
        check_range("arguments", len(arguments), 0, self._settings.job_value_bytes)
        check_range("priority", request.priority, -MAX_PRIORITY, MAX_PRIORITY)
        attempts = self._settings.job_max_attempts if request.max_attempts is None else request.max_attempts
        check_range("delay_s", request.delay_s, 0, LONGEST_S)
        if request.timeout_s is not None:
            check_range("timeout_s", request.timeout_s, 1, LONGEST_S)
        table = None if request.table is None else self._table(request.table)
        if table is not None:
            require_job_locations(self._rules.of(table.namespace, table.main_id), kind, checked)
        return new_job(
            str(self._ids.new()),
            kind,
            table,
            arguments,
            origin="request",
            now_ms=now_ms,
            max_attempts=check_range("max_attempts", attempts, 1, MAX_ATTEMPTS),
            priority=request.priority,
            timeout_s=request.timeout_s,
            not_before_ms=now_ms + request.delay_s * 1000 if request.delay_s else 0,
        )

    def _table(self, name: str) -> TableRecord:
        namespace, dot, table = name.rpartition(".")
        if not (namespace and dot and table):
            raise InvalidRequest(f"{name!r} is not a table's name; write namespace.table", path="$.table")
        return self._catalog.table(namespace, table)

    def _report(self, progress: Progress | None, checkpoint: object, log: tuple[JobLine, ...]) -> JobReport:
        max_bytes = self._settings.job_value_bytes
        if len(log) > _MAX_LINES_SENT:
            raise InvalidRequest(f"log takes at most {_MAX_LINES_SENT} lines at once, not {len(log)}", path="$.log")
        for line in log:
            check_range("log[...].number", line.number, 1, _HIGHEST)
            check_range("log[...].at_ms", line.at_ms, 0, _HIGHEST)
        return JobReport(
            progress=json_value("progress", progress, max_bytes),
            checkpoint=json_value("checkpoint", checkpoint, max_bytes),
            lines=tuple(msgspec.structs.replace(line, text=_line_text(line.text)) for line in log),
            max_lines=self._settings.job_log_lines,
        )

    def _retry_ms(self, job_id: str, retry_after_s: float | None) -> int:
        if retry_after_s is not None:
            if not 0 <= retry_after_s <= LONGEST_S:
                raise InvalidRequest(f"retry_after_s must be from 0 to {LONGEST_S}", path="$.retry_after_s")
            return int(retry_after_s * 1000)
        attempts = self._catalog.job(job_id).attempts
        # The exponent is capped: the longest delay is reached long before.
        wait_s = self._settings.job_retry_s * 2.0 ** min(max(attempts - 1, 0), 40)
        return int(min(wait_s, self._settings.job_retry_max_s) * 1000)

    def _lease_ms(self, lease_s: int) -> int:
        return check_range("lease_s", lease_s, 1, self._settings.job_lease_max_s) * 1000


def _id(job_id: str) -> str:
    canonical = canonical_id(job_id)
    if canonical is None:
        raise JobNotFound(f"there is no job {job_id!r}; ids are UUIDs", job_id=job_id)
    return canonical


def _token(text: str) -> str:
    canonical = canonical_id(text)
    if canonical is None:
        raise InvalidRequest("lease_token is a UUID that the worker makes for each claim", path="$.lease_token")
    return canonical


def _line_text(text: str) -> str:
    """Return the stored text of a line: without NUL, which PostgreSQL cannot store, and cut to a readable length."""
    clean = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return clean if len(clean) <= _MAX_CHARACTERS else clean[:_MAX_CHARACTERS] + "…"


def _took_ms(job: JobRecord, now_ms: int) -> int | None:
    return None if job.started_ms is None else now_ms - job.started_ms

"""The queue of jobs as requests see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from lamella.service.catalog import Catalog, JobEnding, JobFilter, JobRecord, JobReport, TableRecord
from lamella.service.idempotency import Claim, Sealed, answered
from lamella.service.location_rules import LocationRules, require_job_places
from lamella.service.metrics import Metrics
from lamella.service.page_token import PageTokens
from lamella.service.settings import Settings
from lamella.service.upkeep.job_values import (
    LONGEST_S,
    MOST_ATTEMPTS,
    MOST_PRIORITY,
    any_value,
    arguments_text,
    check_range,
    job_info,
    json_value,
    new_job,
)
from lamella.snapshot.errors import InvalidRequest, JobNotFound
from lamella.snapshot.ids import Ids, canonical_id
from lamella.snapshot.jobs import check_arguments, job_kind_named, job_kinds
from lamella.snapshot.wire import (
    ClaimAnswer,
    ClaimJob,
    FinishJob,
    Heartbeat,
    HeartbeatAnswer,
    JobInfo,
    JobKindInfo,
    JobKindList,
    JobLine,
    JobList,
    JobLog,
    Progress,
    SubmitJob,
)

_OF: Final = "this listing of jobs"
_MOST_LINES_SENT: Final = 1_000
_MOST_CHARACTERS: Final = 2_000
_LONGEST_WORKER: Final = 255
_HIGHEST: Final = (1 << 53) - 1


class JobQueue:
    """Takes requests about jobs, checks them, and asks the catalog."""

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
        """The kinds that are installed here."""
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

    def submit(self, request: SubmitJob, claim: Claim) -> Sealed:
        """Have a job done.

        Raises:
            InvalidRequest: the kind, its arguments, a table where it has none or none where it needs one, a number
                outside of its range.
            LocationRefused: the job would write where the table may not.
            NamespaceNotFound, TableNotFound: the table.
        """
        now_ms = self._clock()
        job = self._job(request, now_ms)
        sealed = claim.seal(201, job_info(job))
        twin = self._catalog.enqueue_job(job, unique=request.unique, remember=sealed.stored)
        if twin is not None:
            return answered(self._catalog, claim, job_info(twin))
        self._metrics.job_enqueued(job.kind, job.origin)
        return sealed

    def claim(self, request: ClaimJob) -> ClaimAnswer | None:
        """The job that a worker gets; None: there is nothing to do. Raises InvalidRequest."""
        if not (0 < len(request.worker) <= _LONGEST_WORKER and request.worker.isprintable()):
            raise InvalidRequest(f"worker is a text of 1 to {_LONGEST_WORKER} characters that says who works")
        token = _token(request.lease_token)
        if request.kinds is not None and not request.kinds:
            raise InvalidRequest("kinds names the kinds of jobs that the worker does, or is left out", path="$.kinds")
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
        for homeless in found.homeless:
            self._metrics.job_attempt(homeless.kind, "failed", None)
        if found.job is None:
            return None
        return ClaimAnswer(
            job=job_info(found.job),
            table=None if found.table is None else ".".join(found.table),
            checkpoint=any_value(found.job.checkpoint),
            log_lines=found.job.log_lines,
        )

    def heartbeat(self, job_id: str, request: Heartbeat) -> HeartbeatAnswer:
        """Note what a worker tells; raises InvalidRequest, JobNotFound, JobLeaseLost."""
        now_ms = self._clock()
        until_ms = now_ms + self._lease_ms(request.lease_s)
        report = self._report(request.progress, request.checkpoint, request.log)
        job = self._catalog.heartbeat_job(
            _id(job_id), _token(request.lease_token), report, lease_expires_ms=until_ms, now_ms=now_ms
        )
        return HeartbeatAnswer(lease_expires_ms=until_ms, cancel_requested=job.cancel_requested)

    def finish(self, job_id: str, request: FinishJob) -> JobInfo:
        """End an attempt; raises InvalidRequest, JobNotFound, JobLeaseLost."""
        now_ms, canonical = self._clock(), _id(job_id)
        most_bytes = self._settings.job_value_bytes
        retry_at_ms = None
        if request.outcome == "failed" and request.retry:
            retry_at_ms = now_ms + self._retry_ms(canonical, request.retry_after_s)
        ending = JobEnding(
            outcome=request.outcome,
            result=json_value("result", request.result, most_bytes),
            error=json_value("error", request.error, most_bytes),
            retry_at_ms=retry_at_ms,
        )
        report = self._report(request.progress, request.checkpoint, request.log)
        job, ended = self._catalog.finish_job(canonical, _token(request.lease_token), report, ending, now_ms=now_ms)
        if ended:
            outcome = "released" if request.outcome == "released" else "retried" if job.state == "queued" else job.state
            self._metrics.job_attempt(job.kind, outcome, _took_ms(job, now_ms))
        return job_info(job)

    def cancel(self, job_id: str) -> JobInfo:
        """Raises JobNotFound, JobFinished."""
        return job_info(self._catalog.cancel_job(_id(job_id), now_ms=self._clock()))

    def retry(self, job_id: str) -> JobInfo:
        """Raises JobNotFound, JobRunning, JobFinished."""
        return job_info(self._catalog.retry_job(_id(job_id), now_ms=self._clock()))

    def get(self, job_id: str) -> JobInfo:
        """Raises JobNotFound."""
        return job_info(self._catalog.job(_id(job_id)))

    def list(self, which: JobFilter, *, page_size: int, page_token: str | None) -> JobList:
        """Part of the jobs, newest first; raises InvalidPageToken."""
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
        """Lines of a job's log; raises JobNotFound."""
        canonical = _id(job_id)
        # The state first: lines that come with the end of a job are there when its state says that it is over.
        state = self._catalog.job(canonical).state
        lines = self._catalog.job_lines(canonical, after=after, limit=limit)
        return JobLog(state=state, lines=tuple(lines), after=lines[-1].number if lines else after)

    def _job(self, request: SubmitJob, now_ms: int) -> JobRecord:
        kind = job_kind_named(request.kind)
        if kind.needs_table != (request.table is not None):
            needs = "is about a table" if kind.needs_table else "is not about a table"
            raise InvalidRequest(f"a job of kind {kind.name!r} {needs}", path="$.table")
        checked = check_arguments(kind, request.arguments)
        arguments = arguments_text(checked)
        check_range("arguments", len(arguments), 0, self._settings.job_value_bytes)
        check_range("priority", request.priority, -MOST_PRIORITY, MOST_PRIORITY)
        attempts = self._settings.job_max_attempts if request.max_attempts is None else request.max_attempts
        check_range("delay_s", request.delay_s, 0, LONGEST_S)
        if request.timeout_s is not None:
            check_range("timeout_s", request.timeout_s, 1, LONGEST_S)
        table = None if request.table is None else self._table(request.table)
        if table is not None:
            require_job_places(self._rules.of(table.namespace, table.table_id), kind, checked)
        return new_job(
            str(self._ids.new()),
            kind,
            table,
            arguments,
            origin="request",
            now_ms=now_ms,
            max_attempts=check_range("max_attempts", attempts, 1, MOST_ATTEMPTS),
            priority=request.priority,
            timeout_s=request.timeout_s,
            not_before_ms=now_ms + request.delay_s * 1000 if request.delay_s else 0,
        )

    def _table(self, name: str) -> TableRecord:
        namespace, dot, table = name.rpartition(".")
        if not (namespace and dot and table):
            raise InvalidRequest(f"{name!r} does not name a table; write namespace.table", path="$.table")
        return self._catalog.table(namespace, table)

    def _report(self, progress: Progress | None, checkpoint: object, log: tuple[JobLine, ...]) -> JobReport:
        most_bytes = self._settings.job_value_bytes
        if len(log) > _MOST_LINES_SENT:
            raise InvalidRequest(f"log has at most {_MOST_LINES_SENT} lines at once, not {len(log)}", path="$.log")
        for line in log:
            check_range("log[...].number", line.number, 1, _HIGHEST)
            check_range("log[...].at_ms", line.at_ms, 0, _HIGHEST)
        return JobReport(
            progress=json_value("progress", progress, most_bytes),
            checkpoint=json_value("checkpoint", checkpoint, most_bytes),
            lines=tuple(msgspec.structs.replace(line, text=_line_text(line.text)) for line in log),
            most_lines=self._settings.job_log_lines,
        )

    def _retry_ms(self, job_id: str, retry_after_s: float | None) -> int:
        if retry_after_s is not None:
            if not 0 <= retry_after_s <= LONGEST_S:
                raise InvalidRequest(f"retry_after_s is from 0 to {LONGEST_S}", path="$.retry_after_s")
            return int(retry_after_s * 1000)
        attempts = self._catalog.job(job_id).attempts
        # The exponent is capped: the longest wait is reached long before.
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
    """What the log keeps of a line: PostgreSQL holds no NUL, and nobody reads what is longer than a screen."""
    clean = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return clean if len(clean) <= _MOST_CHARACTERS else clean[:_MOST_CHARACTERS] + "…"


def _took_ms(job: JobRecord, now_ms: int) -> int | None:
    return None if job.started_ms is None else now_ms - job.started_ms

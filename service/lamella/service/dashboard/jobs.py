"""Jobs: the queue, one job with its log, and the form for a new one."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import decided, principal_of
from lamella.service.access.principal import Rights
from lamella.service.catalog import Catalog, JobFilter, current_table
from lamella.service.dashboard import words
from lamella.service.dashboard.indexes import IndexChangePages
from lamella.service.dashboard.job_fields import (
    EXECUTE,
    Field,
    fields_of,
    filled,
    has_execute,
    texts_of,
    whole_number,
    with_problem,
)
from lamella.service.dashboard.job_preview import Previews
from lamella.service.dashboard.names import columns_of, is_renewal
from lamella.service.dashboard.pages import ROOT, Page, Pages, link, number_of
from lamella.service.dashboard.preview import (
    FRESH_S,
    MAX_READY,
    MEASURE,
    WAIT_S,
    BackgroundFigures,
    Preview,
    Question,
    WhenClosing,
    bar_of,
    end_of,
    error_facts,
    fact,
    facts_of_job,
    facts_of_result,
    line_of,
    shortened,
    shown_json,
)
from lamella.service.http.idempotency import IdempotencyKey, StoredResponse
from lamella.service.http.problem import status_of
from lamella.service.http.routing import json_response
from lamella.service.indexes.indexes import Indexes
from lamella.service.jobs.queue import STATES as JOB_STATES
from lamella.service.jobs.queue import JobQueue, job_filter, require_job, require_new_job, require_of_job, visible_jobs
from lamella.service.process.threads import Threads
from lamella.service.usage.audit import about
from lamella.snapshot.errors import (
    FilterTypeMismatch,
    IndexNotFound,
    InvalidFilter,
    InvalidRequest,
    LamellaError,
    LimitExceeded,
    NamespaceNotFound,
    SnapshotNotFound,
    TableNotFound,
    UnknownColumn,
)
from lamella.snapshot.job_kinds import JobKind, check_arguments, command_line, job_kinds
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import JobInfo, JobList, Role, SubmitJob
from lamella.snapshot.wire.operation import BY_REQUEST

NEW: Final = ROOT + "/jobs/new"
_JOB: Final = msgspec.json.Decoder(JobInfo)
#: The field next to which an error is shown, if the form has it.
_ERROR_FIELDS: Final = (
    (InvalidFilter, ("where",)),
    (FilterTypeMismatch, ("where",)),
    (LimitExceeded, ("where",)),
    (UnknownColumn, ("where", "by", "set")),
    (IndexNotFound, ("index",)),
    (SnapshotNotFound, ("snapshot",)),
)


class JobForm(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a job in a form or an address, valid or not. ``problem``: an error that is not about a field."""

    kind: JobKind
    fields: tuple[Field, ...]
    table: str = ""
    table_problem: str = ""
    priority: str = ""
    priority_problem: str = ""
    unique: bool = True
    problem: str = ""
    values: dict[str, Any] = {}

    @property
    def is_right(self) -> bool:
        """Return whether no error was found."""
        beside = (self.table_problem, self.priority_problem, self.problem, *(each.problem for each in self.fields))
        return not any(beside)

    @property
    def carried(self) -> tuple[tuple[str, str], ...]:
        """Return all fields, for a form that sends them again."""
        texts = [(each.parameter, each.text) for each in self.fields if each.text]
        plain = [("kind", self.kind.name), ("table", self.table), ("priority", self.priority)]
        return (*plain, ("unique", "" if self.unique else "no"), *texts)


class NewJobPages:
    """Pages of the form for a new job."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        readers: Threads,
        indexes: Indexes,
        warehouse: Warehouse,
        jobs: JobQueue,
        when_closing: WhenClosing,
        previews: Previews,
        pages: Pages,
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._indexes = indexes
        self._warehouse = warehouse
        self._jobs = jobs
        self._pages = pages
        self._previews = previews
        self._ready: BackgroundFigures[Preview] = BackgroundFigures(
            when_closing, MAX_READY, name="ui-previews", fresh_s=FRESH_S
        )

    async def show(self, request: Request) -> Response:
        kind = job_kinds().get(request.query_params.get("kind", ""))
        decided(request)
        if kind is None:
            return self._kinds(request)
        job_form, preview, waits = read_form(kind, request.query_params), None, False
        if "preview" in request.query_params and job_form.is_right:
            try:
                require_of_job(request, "maintain", job_form.table or None)
                measures = bool(request.query_params.get(MEASURE))
                preview = await self._readers.run(lambda: self._preview(kind, job_form, measures=measures))
                waits = preview is None
            except LamellaError as error:
                job_form = _with_error(job_form, error)
        return await self._render(request, job_form, preview, waits=waits)

    async def submit(self, request: Request) -> Response:
        form = await self._pages.form(request)
        kind = job_kinds().get(form.text("kind"))
        decided(request)
        if kind is None:
            raise InvalidRequest(f"there is no job kind {form.text('kind')!r}", parameter="kind")
        job_form = read_form(kind, form.fields)
        about(request, job_form.table)
        if not job_form.is_right:
            return await self._render(request, job_form, None, status=400)
        try:
            priority = whole_number(job_form.priority or "0")
            require_new_job(request, kind.name, job_form.values, priority, job_form.table or None)
        except (TableNotFound, NamespaceNotFound) as error:
            return await self._render(request, _with_error(job_form, error), None, status=404)
        arguments = {**job_form.values, **({EXECUTE: True} if has_execute(kind) and form.text(EXECUTE) else {})}
        wanted = SubmitJob(
            kind=kind.name,
            table=job_form.table or None,
            arguments=arguments,
            priority=whole_number(job_form.priority or "0"),
            unique=job_form.unique,
        )
        is_pending_already = False

        def work(idempotency_key: IdempotencyKey) -> StoredResponse:
            nonlocal is_pending_already
            stored_response = self._jobs.submit(wanted, idempotency_key)
            is_pending_already = stored_response.status == 200
            return stored_response

        try:
            job = _JOB.decode(await self._pages.change(request, form, work))
        except (InvalidRequest, TableNotFound, NamespaceNotFound) as error:
            return await self._render(request, _with_error(job_form, error), None, status=status_of(type(error)))
        return self._pages.see(link("jobs", job.job_id, done="already_queued" if is_pending_already else "queued"))

    def pages(self) -> tuple[Page, ...]:
        return (
            Page(NEW, self.show, "ui_new_job", BY_REQUEST),
            Page(NEW, self.submit, "ui_submit_job", BY_REQUEST, "POST"),
        )

    def _preview(self, kind: JobKind, job_form: JobForm, *, measures: bool) -> Preview | None:
        """Return what the job would do; None if computing it takes longer than a page may wait."""
        table = job_form.table or None
        snapshot_id = ""
        if table is not None:
            namespace, _, name = table.rpartition(".")
            snapshot_id = current_table(self._catalog, namespace, name).pointer.snapshot_id
        # what is not in the snapshot, as the files that a clean-up finds, is looked at anew after a while
        key = (kind.name, table, snapshot_id, msgspec.json.encode(job_form.values, order="sorted"), measures)
        return self._ready.peek(
            key, lambda: self._previews.of(kind, table, job_form.values, measures=measures), wait_s=WAIT_S
        )

    def _kinds(self, request: Request) -> Response:
        kinds = sorted(job_kinds().values(), key=lambda kind: (not kind.needs_table, kind.name))
        given = request.query_params.get("kind", "")
        values = {"kinds": kinds, "table": request.query_params.get("table", ""), "unknown": shortened(given, 100)}
        return self._pages.html(request, "job_kinds.html", values, status=404 if given else 200, title="New job")

    async def _render(
        self,
        request: Request,
        job_form: JobForm,
        preview: Preview | None,
        *,
        status: int | None = None,
        waits: bool = False,
    ) -> Response:
        rights = decided(request).rights
        tables, suggested = await self._readers.run(
            lambda: (self._pages.names.tables(rights, "maintain"), self._suggested(job_form, rights))
        )
        kind = job_form.kind
        fields = tuple(
            msgspec.structs.replace(each, suggestions=suggested.get(each.name, ()), many=each.name == "by")
            for each in job_form.fields
        )
        values = {
            "job_form": job_form,
            "kind": kind,
            "title_of_kind": kind.name.replace("_", " ").capitalize(),
            "plain": [each for each in fields if not each.advanced],
            "advanced": [each for each in fields if each.advanced],
            "lists": {"tables": tables},
            "preview": preview,
            "waits": waits,
            "command": _command(job_form) if preview is not None else "",
            "has_execute": has_execute(kind),
        }
        wrong = "preview" in request.query_params and preview is None and not waits
        return self._pages.html(
            request, "job_new.html", values, status=status or (400 if wrong else 200), title=f"New job: {kind.name}"
        )

    def _suggested(self, job_form: JobForm, rights: Rights) -> dict[str, tuple[str, ...]]:
        """Return names for fields: indexes, columns and tags of the table."""
        wanted = {"index", "by", "snapshot"} & {each.name for each in job_form.fields}
        if not wanted or job_form.table_problem or not job_form.table:
            return {}
        namespace, _, name = job_form.table.rpartition(".")
        if not rights.may("read", namespace, name):
            return {}
        try:
            record = current_table(self._catalog, namespace, name)
            found: dict[str, tuple[str, ...]] = {}
            if "index" in wanted:
                found["index"] = tuple(each.name for each in self._indexes.list(record).indexes)
            if "by" in wanted:
                found["by"] = tuple(columns_of(self._warehouse.head(record.pointer)))
            if "snapshot" in wanted:
                found["snapshot"] = tuple(self._pages.names.tags(record))
            return found
        except LamellaError:
            return {}  # suggestions only; the preview reports errors of the table


def read_form(kind: JobKind, texts: Mapping[str, str]) -> JobForm:
    """Read the fields of a form or an address. Missing fields are reported only for a submitted form."""
    is_filled = "preview" in texts or "once" in texts
    fields, values = filled(fields_of(kind), texts)
    if not is_filled:
        fields = tuple(msgspec.structs.replace(each, problem=each.problem if each.text else "") for each in fields)
    table = texts.get("table", "").strip() if kind.needs_table else ""
    job_form = JobForm(
        kind=kind,
        fields=fields,
        table=table,
        table_problem=_table_problem(table) if kind.needs_table and is_filled else "",
        priority=texts.get("priority", "").strip(),
        unique=texts.get("unique", "") != "no",
        values=values,
    )
    try:
        whole_number(job_form.priority or "0")
        if is_filled and job_form.is_right:
            check_arguments(kind, values)
    except InvalidRequest as error:
        if "path" in error.details:
            return _with_error(job_form, error)
        return msgspec.structs.replace(job_form, priority_problem=f"{words.sentence(error.message)}.")
    return job_form


def _table_problem(table: str) -> str:
    namespace, _, name = table.rpartition(".")
    if not table:
        return "This field is required."
    return "" if namespace and name else "Write namespace.table."


def _with_error(job_form: JobForm, error: LamellaError) -> JobForm:
    """Return the fields with an error next to the field that it is about, or above all of them."""
    message = error.message
    if isinstance(error, TableNotFound | NamespaceNotFound):
        return msgspec.structs.replace(job_form, table_problem=message)
    path = str(error.details.get("path", "")).removeprefix("$.")
    if path == "priority":
        return msgspec.structs.replace(job_form, priority_problem=message)
    names = [path.removeprefix("arguments.").partition(".")[0].partition("[")[0]]
    names += [name for kind, field_names in _ERROR_FIELDS if isinstance(error, kind) for name in field_names]
    for name in names:
        fields = with_problem(
            job_form.fields, name, message, error.details.get("position") if name == "where" else None
        )
        if fields is not None:
            return msgspec.structs.replace(job_form, fields=fields)
    return msgspec.structs.replace(job_form, problem=message)


def _command(job_form: JobForm) -> str:
    """Return the job as a command line, for people."""
    words = command_line(job_form.kind, job_form.table or None, job_form.values)
    return shortened(shlex.join([*(job_form.kind.program or ("lamella",)), *words]), 2_000)


JOBS: Final = ROOT + "/jobs"
ONE_JOB: Final = JOBS + "/{job_id}"
_PAGE: Final = 50
#: Lines of a log on one page, and their largest size.
_LINES: Final = 200
#: Jobs of some tables that are counted one by one.
_COUNTED: Final = 1_000
_LOG_BYTES: Final = 250_000
_MAX_DETAIL: Final = 4_000
#: Seconds between reloads of a page: while something is running, and otherwise.
_BUSY_S: Final = 1
_IDLE_S: Final = 3
_CHOICES: Final = (
    ("", "any state"),
    ("queued,running", "queued or running"),
    *((state, state) for state in JOB_STATES),
)


class JobPages:
    """Pages of jobs. The forms for jobs and indexes are separate."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        readers: Threads,
        jobs: JobQueue,
        clock: Callable[[], int],
        parts: Sequence[NewJobPages | IndexChangePages],
        pages: Pages,
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._jobs = jobs
        self._clock = clock
        self._pages = pages
        self._parts = parts

    async def show_all(self, request: Request) -> Response:
        values = await self._readers.run(lambda: self._listing(request))
        return self._pages.html(request, "jobs.html", values, status=400 if values["problem"] else 200, title="Jobs")

    async def show(self, request: Request) -> Response:
        values = await self._readers.run(lambda: self._job(request))
        job: JobInfo = values["line"].job
        return self._pages.html(request, "job.html", values, title=f"{job.kind} of {job.table or 'the service'}")

    async def as_json(self, request: Request) -> Response:
        job = await self._readers.run(lambda: self._job_of(request, "read"))
        return json_response(job)

    async def confirm_cancel(self, request: Request) -> Response:
        job = await self._readers.run(lambda: self._job_of(request, "maintain"))
        if job.is_finished:
            return self._pages.see(link("jobs", job.job_id))  # the job has ended
        is_running = job.state == "running"
        return self._pages.question(
            request,
            Question(
                asks=f"Cancel the job {job.kind}{f' of {job.table}' if job.table else ''}?",
                says="Its worker is asked to stop. What it has committed so far stays; the rest is lost."
                if is_running
                else "It is removed from the queue. It can be queued again later.",
                act="Cancel the job",
                back=link("jobs", job.job_id),
                facts=(fact("Job", job.job_id), fact("State", job.state), *facts_of_job(job)),
            ),
        )

    async def cancel(self, request: Request) -> Response:
        await self._pages.form(request)
        job = await self._readers.run(lambda: self._jobs.cancel(self._job_of(request, "maintain").job_id))
        return self._pages.see(link("jobs", job.job_id, done="cancelled"))

    async def retry(self, request: Request) -> Response:
        await self._pages.form(request)

        def again() -> JobInfo:
            job = self._job_of(request, "maintain")
            require_new_job(request, job.kind, job.arguments, job.priority, self._jobs.table_of(job))
            return self._jobs.retry(job.job_id)

        job = await self._readers.run(again)
        return self._pages.see(link("jobs", job.job_id, done="retried"))

    def pages(self) -> tuple[Page, ...]:
        """Return the pages; paths with names come before paths with ids."""
        parts = [page for part in self._parts for page in part.pages()]
        return (
            Page(JOBS, self.show_all, "ui_jobs", BY_REQUEST),
            *parts,
            Page(ONE_JOB, self.show, "ui_job", BY_REQUEST),
            Page(ONE_JOB + "/json", self.as_json, "ui_job_json", BY_REQUEST),
            Page(ONE_JOB + "/cancel", self.confirm_cancel, "ui_ask_cancel_job", BY_REQUEST),
            Page(ONE_JOB + "/cancel", self.cancel, "ui_cancel_job", BY_REQUEST, "POST"),
            Page(ONE_JOB + "/retry", self.retry, "ui_retry_job", BY_REQUEST, "POST"),
        )

    def _job_of(self, request: Request, role: Role) -> JobInfo:
        """The job in the path, for one who may; raises JobNotFound, PermissionDenied."""
        job = self._jobs.get(request.path_params["job_id"])
        require_job(request, role, job, self._jobs.table_of(job))
        return job

    def _pending(self, which: JobFilter) -> dict[str, int]:
        """Return how many visible jobs are queued and running."""
        if which.within is None:
            return self._catalog.pending_jobs()
        pending = JobFilter(states=("queued", "running"), within=which.within)
        states = Counter(job.state for job in self._jobs.list(pending, page_size=_COUNTED, page_token=None).jobs)
        return {"queued": states["queued"], "running": states["running"]}

    def _listing(self, request: Request) -> dict[str, Any]:
        query = request.query_params
        chosen = {name: query.get(name, "").strip() for name in ("state", "kind", "table")}
        problem: InvalidRequest | None = None
        found = JobList(jobs=())
        which = visible_jobs(request, JobFilter())
        try:
            which = visible_jobs(request, job_filter(*(chosen[name] or None for name in ("state", "kind", "table"))))
            found = self._jobs.list(which, page_size=_PAGE, page_token=query.get("before") or None)
        except InvalidRequest as error:
            problem = error
        pending = self._pending(which)
        now_ms = self._clock()
        kinds = [(each.name, each.name) for each in self._jobs.kinds().kinds]
        rights = principal_of(request).rights
        return {
            "lists": {} if is_renewal(request) else {"tables": self._pages.names.tables(rights)},
            "lines": [line_of(job, now_ms) for job in found.jobs],
            "next_token": found.next_page_token,
            "before": query.get("before", ""),
            "chosen": chosen,
            "problem": problem,
            "problem_at": None if problem is None else problem.details.get("parameter"),
            "pending": pending,
            "every_s": _BUSY_S if any(pending.values()) else _IDLE_S,
            "states": _with_choice(_CHOICES, chosen["state"]),
            "kinds": _with_choice((("", "any kind"), *kinds), chosen["kind"]),
        }

    def _job(self, request: Request) -> dict[str, Any]:
        job = self._job_of(request, "read")
        last = self._catalog.job(job.job_id).log_lines
        is_tail = "after" not in request.query_params
        after = max(last - _LINES, 0) if is_tail else number_of(request, "after")
        log = self._jobs.log(job.job_id, after=after, limit=_LINES)
        lines = end_of(log.lines, _LOG_BYTES)
        first = lines[0].number if lines else after + 1
        now_ms = self._clock()
        namespace, _, name = (job.table or "").rpartition(".")
        return {
            "line": line_of(job, now_ms),
            "bar_found": bar_of(job.progress),
            "job_facts": facts_of_job(job),
            "problem": "" if job.error is None else shortened(job.error.detail, _MAX_DETAIL),
            "namespace": namespace,
            "name": name,
            "arguments": shown_json(job.arguments) if job.arguments else "",
            "result_facts": facts_of_result(job.result),
            "result": None if job.result is None else shown_json(job.result),
            "error_facts": () if job.error is None else error_facts(job.error),
            "again": _again(job),
            "is_dry_run": _is_dry_run(job),
            "lines": lines,
            "last": last,
            "is_tail": is_tail,
            "before_first": max(first - 1 - _LINES, 0) if first > 1 else None,
            "behind_last": lines[-1].number if lines and lines[-1].number < last else None,
            "every_s": _BUSY_S,
        }


def _with_choice(choices: tuple[tuple[str, str], ...], chosen: str) -> tuple[tuple[str, str], ...]:
    """Return the choices, and the address's value if it is none of them."""
    return choices if chosen in {value for value, _ in choices} else (*choices, (chosen, chosen))


def _is_dry_run(job: JobInfo) -> bool:
    """Return whether a job only says what it would do."""
    kind = job_kinds().get(job.kind)
    return kind is not None and has_execute(kind) and not job.arguments.get(EXECUTE)


def _again(job: JobInfo) -> str:
    """Return the address of the form for a job like this one."""
    kind = job_kinds().get(job.kind)
    texts = {} if kind is None else texts_of(kind, job.arguments)
    return link("jobs", "new", kind=job.kind, table=job.table, **texts)

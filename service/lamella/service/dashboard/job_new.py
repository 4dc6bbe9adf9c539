"""Asking for a job: a form made from what its kind takes, what the job would do, and the job itself."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import ASKED, decided
from lamella.service.access.rights import Rights
from lamella.service.audit import about
from lamella.service.dashboard import words
from lamella.service.dashboard.job_facts import shortened
from lamella.service.dashboard.job_fields import (
    EXECUTE,
    Field,
    fields_of,
    filled,
    has_execute,
    whole_number,
    with_problem,
)
from lamella.service.dashboard.job_previews import Previews
from lamella.service.dashboard.pages import ROOT, Page, Pages, link
from lamella.service.dashboard.prepared import FRESH_S, MOST_READY, WAIT_S, Prepared
from lamella.service.dashboard.previewing import Preview
from lamella.service.idempotency import Claim, Sealed
from lamella.service.job_access import require_new_job, require_of_job
from lamella.service.problem import status_of
from lamella.service.services import Services
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
from lamella.snapshot.jobs import JobKind, check_arguments, command_line, job_kinds
from lamella.snapshot.wire import JobInfo, SubmitJob

NEW: Final = ROOT + "/jobs/new"
#: Tables that a form suggests.
_MOST_TABLES: Final = 300
_MOST_NAMESPACES: Final = 50
_JOB: Final = msgspec.json.Decoder(JobInfo)
#: Beside which field an error is shown, if the form has it.
_PLACES: Final = (
    (InvalidFilter, ("where",)),
    (FilterTypeMismatch, ("where",)),
    (LimitExceeded, ("where",)),
    (UnknownColumn, ("where", "by", "set")),
    (IndexNotFound, ("index",)),
    (SnapshotNotFound, ("snapshot",)),
)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a form or an address asks for it, right or wrong. ``problem``: what is wrong beside the fields."""

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
        """Nothing is wrong, as far as can be seen."""
        beside = (self.table_problem, self.priority_problem, self.problem, *(each.problem for each in self.fields))
        return not any(beside)

    @property
    def carried(self) -> tuple[tuple[str, str], ...]:
        """All that was typed, for a form that sends it again."""
        texts = [(each.parameter, each.text) for each in self.fields if each.text]
        plain = [("kind", self.kind.name), ("table", self.table), ("priority", self.priority)]
        return (*plain, ("unique", "" if self.unique else "no"), *texts)


class NewJobPages:
    """Draws the form, and submits."""

    def __init__(self, services: Services, pages: Pages) -> None:
        self._services = services
        self._pages = pages
        self._previews = Previews(services)
        self._ready: Prepared[Preview] = Prepared(
            services.when_closing, MOST_READY, name="ui-previews", fresh_s=FRESH_S
        )

    async def show(self, request: Request) -> Response:
        kind = job_kinds().get(request.query_params.get("kind", ""))
        decided(request)
        if kind is None:
            return self._kinds(request)
        asked, preview, waits = read_asked(kind, request.query_params), None, False
        if "preview" in request.query_params and asked.is_right:
            try:
                require_of_job(request, "maintain", asked.table or None)
                preview = await self._services.read(lambda: self._preview(kind, asked))
                waits = preview is None
            except LamellaError as error:
                asked = _placed(asked, error)
        return await self._drawn(request, asked, preview, waits=waits)

    async def submit(self, request: Request) -> Response:
        form = await self._pages.form(request)
        kind = job_kinds().get(form.text("kind"))
        decided(request)
        if kind is None:
            raise InvalidRequest(f"there is no job kind {form.text('kind')!r}", parameter="kind")
        asked = read_asked(kind, form.fields)
        about(request, asked.table)
        if not asked.is_right:
            return await self._drawn(request, asked, None, status=400)
        try:
            priority = whole_number(asked.priority or "0")
            require_new_job(request, kind.name, asked.values, priority, asked.table or None)
        except (TableNotFound, NamespaceNotFound) as error:
            return await self._drawn(request, _placed(asked, error), None, status=404)
        arguments = {**asked.values, **({EXECUTE: True} if has_execute(kind) and form.text(EXECUTE) else {})}
        wanted = SubmitJob(
            kind=kind.name,
            table=asked.table or None,
            arguments=arguments,
            priority=whole_number(asked.priority or "0"),
            unique=asked.unique,
        )
        is_twin = False

        def work(claim: Claim) -> Sealed:
            nonlocal is_twin
            sealed = self._services.jobs.submit(wanted, claim)
            is_twin = sealed.status == 200
            return sealed

        try:
            job = _JOB.decode(await self._pages.change(request, form, work))
        except (InvalidRequest, TableNotFound, NamespaceNotFound) as error:
            return await self._drawn(request, _placed(asked, error), None, status=status_of(type(error)))
        return self._pages.see(link("jobs", job.job_id, done="already_queued" if is_twin else "queued"))

    def pages(self) -> tuple[Page, ...]:
        return (
            Page(NEW, self.show, "ui_new_job", ASKED),
            Page(NEW, self.submit, "ui_submit_job", ASKED, "POST"),
        )

    def _preview(self, kind: JobKind, asked: Asked) -> Preview | None:
        """What the job would do; None: that is being worked out, and takes longer than a page may."""
        table = asked.table or None
        snapshot_id = ""
        if table is not None:
            namespace, _, name = table.rpartition(".")
            snapshot_id = self._services.table(namespace, name).pointer.snapshot_id
        # what is not in the snapshot, as the files that a clean-up finds, is looked at anew after a while
        key = (kind.name, table, snapshot_id, msgspec.json.encode(asked.values, order="sorted"))
        return self._ready.peek(key, lambda: self._previews.of(kind, table, asked.values), wait_s=WAIT_S)

    def _kinds(self, request: Request) -> Response:
        kinds = sorted(job_kinds().values(), key=lambda kind: (not kind.needs_table, kind.name))
        given = request.query_params.get("kind", "")
        values = {"kinds": kinds, "table": request.query_params.get("table", ""), "unknown": shortened(given, 100)}
        return self._pages.html(request, "job_kinds.html", values, status=404 if given else 200, title="New job")

    async def _drawn(
        self,
        request: Request,
        asked: Asked,
        preview: Preview | None,
        *,
        status: int | None = None,
        waits: bool = False,
    ) -> Response:
        rights = decided(request).rights
        tables, indexes = await self._services.read(lambda: (self._tables(rights), self._indexes(asked, rights)))
        kind = asked.kind
        fields = tuple(
            msgspec.structs.replace(each, suggestions=indexes) if each.name == "index" else each
            for each in asked.fields
        )
        values = {
            "asked": asked,
            "kind": kind,
            "title_of_kind": kind.name.replace("_", " ").capitalize(),
            "plain": [each for each in fields if not each.advanced],
            "advanced": [each for each in fields if each.advanced],
            "tables": tables,
            "preview": preview,
            "waits": waits,
            "command": _command(asked) if preview is not None else "",
            "has_execute": has_execute(kind),
        }
        wrong = "preview" in request.query_params and preview is None and not waits
        return self._pages.html(
            request, "job_new.html", values, status=status or (400 if wrong else 200), title=f"New job: {kind.name}"
        )

    def _tables(self, rights: Rights) -> list[str]:
        found: list[str] = []
        catalog = self._services.catalog
        for namespace in [each.name for each in catalog.namespaces() if rights.sees(each.name)][:_MOST_NAMESPACES]:
            named = [name for name in catalog.tables(namespace) if rights.may("maintain", namespace, name)]
            found += [f"{namespace}.{name}" for name in named]
            if len(found) >= _MOST_TABLES:
                break
        return found[:_MOST_TABLES]

    def _indexes(self, asked: Asked, rights: Rights) -> tuple[str, ...]:
        if "index" not in {each.name for each in asked.fields} or asked.table_problem or not asked.table:
            return ()
        namespace, _, name = asked.table.rpartition(".")
        if not rights.may("read", namespace, name):
            return ()
        try:
            return tuple(
                each.name for each in self._services.indexes.list(self._services.table(namespace, name)).indexes
            )
        except LamellaError:
            return ()  # suggestions only; the preview says what is wrong with the table


def read_asked(kind: JobKind, texts: Mapping[str, str]) -> Asked:
    """What a form or an address asks for. Only a form that was filled is told what is missing."""
    is_filled = "preview" in texts or "once" in texts
    fields, values = filled(fields_of(kind), texts)
    if not is_filled:
        fields = tuple(msgspec.structs.replace(each, problem=each.problem if each.text else "") for each in fields)
    table = texts.get("table", "").strip() if kind.needs_table else ""
    asked = Asked(
        kind=kind,
        fields=fields,
        table=table,
        table_problem=_table_problem(table) if kind.needs_table and is_filled else "",
        priority=texts.get("priority", "").strip(),
        unique=texts.get("unique", "") != "no",
        values=values,
    )
    try:
        whole_number(asked.priority or "0")
        if is_filled and asked.is_right:
            check_arguments(kind, values)
    except InvalidRequest as error:
        if "path" in error.details:
            return _placed(asked, error)
        return msgspec.structs.replace(asked, priority_problem=f"{words.sentence(error.message)}.")
    return asked


def _table_problem(table: str) -> str:
    namespace, _, name = table.rpartition(".")
    if not table:
        return "This is needed."
    return "" if namespace and name else "Write namespace.table."


def _placed(asked: Asked, error: LamellaError) -> Asked:
    """What was asked for, with an error beside the field that it is about, or above all of them."""
    message = error.message
    if isinstance(error, TableNotFound | NamespaceNotFound):
        return msgspec.structs.replace(asked, table_problem=message)
    path = str(error.details.get("path", "")).removeprefix("$.")
    if path == "priority":
        return msgspec.structs.replace(asked, priority_problem=message)
    names = [path.removeprefix("arguments.").partition(".")[0].partition("[")[0]]
    names += [name for kind, places in _PLACES if isinstance(error, kind) for name in places]
    for name in names:
        fields = with_problem(asked.fields, name, message, error.details.get("position") if name == "where" else None)
        if fields is not None:
            return msgspec.structs.replace(asked, fields=fields)
    return msgspec.structs.replace(asked, problem=message)


def _command(asked: Asked) -> str:
    """The job as a command line, for people."""
    words = command_line(asked.kind, asked.table or None, asked.values)
    return shortened(shlex.join([*(asked.kind.program or ("lamella",)), *words]), 2_000)

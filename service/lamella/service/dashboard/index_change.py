"""Making an index by a form, with what it would do; dropping one, and using a dropped one again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.dashboard.asked import table_of
from lamella.service.dashboard.forms import KEY, Form
from lamella.service.dashboard.index_trials import index_preview
from lamella.service.dashboard.job_fields import Field, filled, option_field, with_problem
from lamella.service.dashboard.pages import ROOT, Page, Pages, link
from lamella.service.dashboard.prepared import FRESH_S, MOST_READY, WAIT_S, Prepared
from lamella.service.dashboard.previewing import Preview
from lamella.service.idempotency import Claim
from lamella.service.pending import Pending
from lamella.service.problem import status_of
from lamella.service.services import Services
from lamella.service.state import trusted_manifests
from lamella.snapshot.errors import (
    AlreadyExists,
    FilterTypeMismatch,
    InvalidFilter,
    InvalidRequest,
    LamellaError,
    LimitExceeded,
    UnknownColumn,
)
from lamella.snapshot.wire import CreateIndex, IndexKind, JobInfo, SubmitJob

INDEXES: Final = ROOT + "/tables/{namespace}/{table}/indexes"
_NEW: Final = INDEXES + "/new"
_ONE: Final = INDEXES + "/{index}"
_MOST_COLUMNS: Final = 500
_JOB: Final = msgspec.json.Decoder(JobInfo)
_OF_EXPRESSION: Final = (InvalidFilter, FilterTypeMismatch, UnknownColumn, LimitExceeded)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """An index as a form or an address asks for it, right or wrong."""

    kind: IndexKind
    fields: tuple[Field, ...]
    values: dict[str, Any]
    problem: str = ""

    @property
    def is_right(self) -> bool:
        """Nothing is wrong, as far as can be seen."""
        return not self.problem and not any(each.problem for each in self.fields)

    @property
    def request(self) -> CreateIndex:
        """What the service is asked for, once all is right."""
        options = {name: value for name, value in self.values.items() if name not in _PLAIN_NAMES}
        return CreateIndex(
            name=self.values["name"],
            kind=self.kind.name,
            expression=self.values["expression"],
            options=options,
            time_zone=self.values.get("time_zone", "UTC"),
        )

    @property
    def carried(self) -> tuple[tuple[str, str], ...]:
        """All that was typed, for a form that sends it again."""
        return (("kind", self.kind.name), *((each.parameter, each.text) for each in self.fields if each.text))


_PLAIN: Final = (
    Field(
        name="name",
        parameter="name",
        label="Name",
        help="A word of letters, digits and _.",
        type=str,
        required=True,
    ),
    Field(
        name="expression",
        parameter="expression",
        label="Over",
        help="A column, or an expression of the filter language such as lower(name).",
        type=str,
        required=True,
    ),
    Field(
        name="time_zone",
        parameter="time_zone",
        label="Time zone",
        help="Of functions in the expression that have one. UTC unless it is said.",
        type=str,
        advanced=True,
    ),
)
_PLAIN_NAMES: Final = frozenset(field.name for field in _PLAIN)


class IndexChangePages:
    """Draws them, and has the changes made."""

    def __init__(self, services: Services, pages: Pages) -> None:
        self._services = services
        self._pages = pages
        self._ready: Prepared[Preview] = Prepared(
            services.when_closing, MOST_READY, name="ui-index-previews", fresh_s=FRESH_S
        )

    async def show_new(self, request: Request) -> Response:
        kind = self._kind(request.query_params.get("kind", ""))
        if kind is None:
            record = await self._services.read(lambda: table_of(self._services, request))
            values = {"namespace": record.namespace, "table": record.name, "tab": "indexes"}
            kinds = self._services.indexes.kinds().kinds
            return self._pages.html(request, "index_kinds.html", {**values, "kinds": kinds}, title="New index")
        asked, preview, waits = _asked(kind, request.query_params), None, False
        if "preview" in request.query_params and asked.is_right:
            try:
                preview = await self._services.read(lambda: self._preview(request, asked.request))
                waits = preview is None
            except (InvalidRequest, AlreadyExists) as error:
                asked = _placed(asked, error)
        return await self._drawn(request, asked, preview, waits=waits)

    async def create(self, request: Request) -> Response:
        form = await self._pages.form(request)
        kind = self._kind(form.text("kind"))
        if kind is None:
            raise InvalidRequest(f"there is no index kind {form.text('kind')!r}", parameter="kind")
        asked = _asked(kind, form.fields)
        if not asked.is_right:
            return await self._drawn(request, asked, None, status=400)

        def work(claim: Claim) -> Pending:
            return self._services.indexes.create(table_of(self._services, request), asked.request, claim)

        try:
            await self._pages.change(request, form, work)
        except (InvalidRequest, AlreadyExists) as error:
            return await self._drawn(request, _placed(asked, error), None, status=status_of(type(error)))
        names = request.path_params
        job = SubmitJob(
            kind="index_refresh",
            table=f"{names['namespace']}.{names['table']}",
            arguments={"index": asked.request.name},
            unique=True,
        )
        # the same sending of the form, and another thing that is done once for it
        further = form if form.key is None else Form({**form.fields, KEY: f"{form.key}.fill"}, form.body)
        done = await self._pages.change(request, further, lambda claim: self._services.jobs.submit(job, claim))
        return self._pages.see(link("jobs", _JOB.decode(done).job_id, done="index_made"))

    async def show_drop(self, request: Request) -> Response:
        return await self._confirm(request, "index_drop.html", "Drop index")

    async def show_restore(self, request: Request) -> Response:
        return await self._confirm(request, "index_restore.html", "Restore index")

    async def drop(self, request: Request) -> Response:
        return await self._changed(request, self._services.indexes.drop, "index_dropped")

    async def restore(self, request: Request) -> Response:
        return await self._changed(request, self._services.indexes.restore, "index_restored")

    def pages(self) -> tuple[Page, ...]:
        return (
            Page(_NEW, self.show_new, "ui_new_index", on_table("maintain")),
            Page(_NEW, self.create, "ui_create_index", on_table("maintain"), "POST"),
            Page(_ONE + "/drop", self.show_drop, "ui_index_to_drop", on_table("maintain")),
            Page(_ONE + "/drop", self.drop, "ui_drop_index", on_table("maintain"), "POST"),
            Page(_ONE + "/restore", self.show_restore, "ui_index_to_restore", on_table("maintain")),
            Page(_ONE + "/restore", self.restore, "ui_restore_index", on_table("maintain"), "POST"),
        )

    def _preview(self, request: Request, wanted: CreateIndex) -> Preview | None:
        """What comes of an index; None: that is being worked out, and takes longer than a page may."""
        record = table_of(self._services, request)
        key = (record.table_id, record.pointer.snapshot_id, msgspec.json.encode(wanted, order="sorted"))
        return self._ready.peek(key, lambda: index_preview(self._services, record, wanted), wait_s=WAIT_S)

    def _kind(self, name: str) -> IndexKind | None:
        return next((each for each in self._services.indexes.kinds().kinds if each.name == name), None)

    async def _drawn(
        self,
        request: Request,
        asked: Asked,
        preview: Preview | None,
        *,
        status: int | None = None,
        waits: bool = False,
    ) -> Response:
        def read() -> dict[str, Any]:
            record = table_of(self._services, request)
            with trusted_manifests():
                leaves = self._services.warehouse.head(record.pointer).schema.leaves()
            columns = tuple(leaf.name for leaf in leaves[:_MOST_COLUMNS])
            return {
                "namespace": record.namespace,
                "table": record.name,
                "tab": "indexes",
                "asked": asked,
                "plain": [_suggested(each, columns) for each in asked.fields if not each.advanced],
                "advanced": [each for each in asked.fields if each.advanced],
                "preview": preview,
                "waits": waits,
            }

        values = await self._services.read(read)
        wrong = "preview" in request.query_params and preview is None and not waits
        return self._pages.html(
            request, "index_new.html", values, status=status or (400 if wrong else 200), title="New index"
        )

    async def _confirm(self, request: Request, template: str, title: str) -> Response:
        def read() -> dict[str, Any]:
            record = table_of(self._services, request)
            info = self._services.indexes.show(record, request.path_params["index"])
            return {"namespace": record.namespace, "table": record.name, "tab": "indexes", "index": info}

        values = await self._services.read(read)
        return self._pages.html(request, template, values, title=f"{title} {values['index'].name}")

    async def _changed(self, request: Request, change: Any, done: str) -> Response:
        form = await self._pages.form(request)
        names = request.path_params

        def work(claim: Claim) -> Pending:
            pending: Pending = change(table_of(self._services, request), names["index"], claim)
            return pending

        await self._pages.change(request, form, work)
        return self._pages.see(link("tables", names["namespace"], names["table"], "indexes", done=done))


def _asked(kind: IndexKind, texts: Mapping[str, str]) -> Asked:
    """What a form or an address asks for. Only a form that was filled is told what is missing."""
    fields, values = filled((*_PLAIN, *(option_field(option) for option in kind.options)), texts)
    if "preview" not in texts and KEY not in texts:
        fields = tuple(msgspec.structs.replace(each, problem=each.problem if each.text else "") for each in fields)
    return Asked(kind=kind, fields=fields, values=values)


def _placed(asked: Asked, error: LamellaError) -> Asked:
    """What was asked for, with an error beside the field that it is about, or above all of them."""
    names = [name for name in error.details if name in {field.name for field in asked.fields}]
    if isinstance(error, _OF_EXPRESSION):
        names = ["expression"]
    at = error.details.get("position") if names == ["expression"] else None
    fields = with_problem(asked.fields, names[0], error.message, at) if names else None
    if fields is None:
        return msgspec.structs.replace(asked, problem=error.message)
    return msgspec.structs.replace(asked, fields=fields)


def _suggested(field: Field, columns: tuple[str, ...]) -> Field:
    return msgspec.structs.replace(field, suggestions=columns) if field.name == "expression" else field

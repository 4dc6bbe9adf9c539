"""Namespaces and tables: forms that create, rename, drop and undrop them, and register files."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import decided, principal_of, require, require_sight
from lamella.service.catalog import Catalog
from lamella.service.commits.committer import Committer
from lamella.service.dashboard import words
from lamella.service.dashboard.forms import Form
from lamella.service.dashboard.pages import ROOT, Page, Pages, link, table_of, text_of
from lamella.service.dashboard.preview import Question, fact, shortened
from lamella.service.dashboard.tables import TABLE
from lamella.service.http.admission import read_json
from lamella.service.http.problem import status_of
from lamella.service.process.threads import Threads
from lamella.service.tables.tables import Tables
from lamella.service.usage.audit import about
from lamella.snapshot.errors import BlocksRefused, InvalidRequest, LamellaError, NotFound
from lamella.snapshot.schema import Column
from lamella.snapshot.schema.column import split_key
from lamella.snapshot.tokens import unspelt
from lamella.snapshot.wire import (
    CreateNamespace,
    CreateTable,
    DroppedTable,
    RefusedFile,
    Register,
    RegisterAnswer,
    RenameRequest,
    TableInfo,
    UndropRequest,
)
from lamella.snapshot.wire.operation import AUTHENTICATED, BY_REQUEST, on_namespace, on_server, on_table

_NEW: Final = ROOT + "/new"
_NAMESPACE: Final = ROOT + "/namespaces/{namespace}"
_COLUMN: Final = re.compile(r"(`(?:[^`]|``)+`|[^\s`]+)\s+(.+?)(\s+not\s+null)?", re.IGNORECASE)
_CREATE_NAMESPACE: Final = msgspec.json.Decoder(CreateNamespace)
_CREATE_TABLE: Final = msgspec.json.Decoder(CreateTable)
_RENAME: Final = msgspec.json.Decoder(RenameRequest)
_UNDROP: Final = msgspec.json.Decoder(UndropRequest)
_REGISTER: Final = msgspec.json.Decoder(Register)
_TABLE_INFO: Final = msgspec.json.Decoder(TableInfo)
_REGISTERED: Final = msgspec.json.Decoder(RegisterAnswer)
#: Most namespaces that a form offers, and most refused files on a page.
_MAX_NAMESPACES: Final = 1_000
_MAX_REFUSED: Final = 200

_T = TypeVar("_T")


def read_columns(text: str) -> tuple[Column, ...]:
    """Return the columns that a text names, one on each line: ``name type``, and ``not null`` after it.

    A name with spaces or backticks is written in backticks, as in Spark.

    Raises:
        InvalidRequest: a line that is none, with its number.
    """
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip().removesuffix(",").rstrip()
        if not stripped:
            continue
        parts = _COLUMN.fullmatch(stripped)
        if parts is None:
            raise InvalidRequest(f"line {number} is not a name and a type: {shortened(stripped, 80)!r}", line=number)
        name = parts[1][1:-1].replace("``", "`") if parts[1].startswith("`") else parts[1]
        found.append(Column(name=name, type=parts[2].lower(), nullable=parts[3] is None))
    return tuple(found)


class ObjectPages:
    """Pages that create, rename, drop and restore namespaces and tables."""

    def __init__(
        self, *, catalog: Catalog, readers: Threads, tables: Tables, committer: Committer, pages: Pages
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._tables = tables
        self._committer = committer
        self._pages = pages

    async def new(self, request: Request) -> Response:
        return await self._new(request, {"namespace": text_of(request, "namespace")})

    async def create_namespace(self, request: Request) -> Response:
        form = await self._pages.form(request)
        name = form.text("name")
        about(request, f"{unspelt(name)}.*")

        def work(idempotency_key: Any) -> Any:
            return self._tables.create_namespace(
                _checked(_CREATE_NAMESPACE, CreateNamespace(name=name)), idempotency_key
            )

        try:
            await self._pages.change(request, form, work)
        except LamellaError as error:
            return await self._new(request, form.fields, error, of="namespace")
        return self._pages.see(link("namespaces", name, done="namespace_made"))

    async def create_table(self, request: Request) -> Response:
        form = await self._pages.form(request)
        namespace = form.text("namespace")
        about(request, f"{unspelt(namespace)}.{unspelt(form.text('table'))}")
        require(request, "write", namespace)

        def work(idempotency_key: Any) -> Any:
            return self._tables.create_table(namespace, _wanted_table(form), idempotency_key)

        try:
            made = _TABLE_INFO.decode(await self._pages.change(request, form, work))
        except LamellaError as error:
            return await self._new(request, form.fields, error, of="table")
        return self._pages.see(link("tables", made.namespace, made.name, done="table_made"))

    async def namespace(self, request: Request) -> Response:
        name = request.path_params["namespace"]
        rights = require_sight(request, name).rights

        def read() -> dict[str, Any]:
            info = self._catalog.namespace(name)
            tables = rights.readable(name, self._catalog.tables(name))
            dropped: tuple[DroppedTable, ...] = ()
            if rights.may("maintain", name):
                dropped = self._tables.dropped(name, earlier=rights.may("maintain")).tables
            quota = self._tables.namespace_quota(name) if rights.may("read", name) else None
            return {"info": info, "table_count": len(tables), "dropped": dropped, "quota": quota}

        values = await self._readers.run(read)
        return self._pages.html(request, "namespace.html", {**values, "namespace": name}, title=name)

    async def confirm_drop_namespace(self, request: Request) -> Response:
        name = request.path_params["namespace"]
        require_sight(request, name)
        require(request, "maintain")
        found = await self._readers.run(lambda: self._catalog.namespace(name))
        return self._pages.question(
            request,
            Question(
                asks=f"Drop the namespace {name}?",
                says="Only a namespace without tables can be dropped. Its properties and quotas are gone; tables that "
                "were dropped before can still be restored into a namespace of this name.",
                act="Drop the namespace",
                back=link("namespaces", name),
                facts=tuple(fact(*each) for each in sorted(found.properties.items())),
            ),
        )

    async def drop_namespace(self, request: Request) -> Response:
        form = await self._pages.form(request)
        name = request.path_params["namespace"]
        require_sight(request, name)
        require(request, "maintain")
        await self._pages.change(request, form, lambda key: self._tables.drop_namespace(name, key))
        return self._pages.see(link(done="namespace_dropped"))

    async def undrop(self, request: Request) -> Response:
        form = await self._pages.form(request)
        namespace = request.path_params["namespace"]
        wanted = _checked(_UNDROP, UndropRequest(table_id=form.text("table_id"), as_name=form.text("as_name") or None))
        earlier = principal_of(request).rights.may("maintain")

        def work(idempotency_key: Any) -> Any:
            return self._tables.undrop(namespace, wanted, idempotency_key, earlier=earlier)

        made = _TABLE_INFO.decode(await self._pages.change(request, form, work))
        return self._pages.see(link("tables", made.namespace, made.name, done="undropped"))

    async def confirm_drop(self, request: Request) -> Response:
        info = await self._readers.run(lambda: self._tables.info_of(table_of(self._catalog, request)))
        grace = words.span(self._tables.drop_grace_s)
        return self._pages.question(
            request,
            Question(
                asks=f"Drop the table {info.namespace}.{info.name}?",
                says=f"It is not listed any more, and its name can be used again. No file is deleted for {grace}; "
                "until then it can be restored on the page of its namespace, with its history and tags.",
                act="Drop the table",
                back=link("tables", info.namespace, info.name),
                facts=(
                    fact("Rows", info.row_count),
                    fact("Blocks", info.block_count),
                    fact("Location", info.location),
                    fact("Last commit", words.moment(info.timestamp_ms)),
                ),
                carried=(("base", info.snapshot_id),),
            ),
        )

    async def drop(self, request: Request) -> Response:
        form = await self._pages.form(request)
        names = request.path_params

        def work(idempotency_key: Any) -> Any:
            # what was confirmed is the table as it was shown
            return self._tables.drop_table(
                names["namespace"], names["table"], idempotency_key, base_snapshot_id=form.text("base") or None
            )

        await self._pages.change(request, form, work)
        return self._pages.see(link("namespaces", names["namespace"], done="dropped"))

    async def rename_form(self, request: Request) -> Response:
        names = request.path_params
        return await self._rename_page(request, {"namespace": names["namespace"], "name": names["table"]})

    async def rename(self, request: Request) -> Response:
        form = await self._pages.form(request)
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        wanted = _checked(_RENAME, RenameRequest(name=form.text("name"), namespace=form.text("namespace") or None))
        require(request, "maintain", namespace, name)
        require(request, "write", wanted.namespace or namespace)

        def work(idempotency_key: Any) -> Any:
            return self._tables.rename_table(namespace, name, wanted, idempotency_key)

        try:
            made = _TABLE_INFO.decode(await self._pages.change(request, form, work))
        except LamellaError as error:
            return await self._rename_page(request, form.fields, error)
        return self._pages.see(link("tables", made.namespace, made.name, done="renamed"))

    async def register_form(self, request: Request) -> Response:
        return await self._register_page(request, {})

    async def register(self, request: Request) -> Response:
        form = await self._pages.form(request)
        given = Register(
            paths=tuple(line.strip() for line in form.text("paths").splitlines() if line.strip()),
            strict=bool(form.text("strict")),
            verify=bool(form.text("verify")),
            take_replaced=bool(form.text("take_replaced")),
        )
        wanted = _checked(_REGISTER, given)

        def work(idempotency_key: Any) -> Any:
            return self._committer.register(table_of(self._catalog, request), wanted, idempotency_key)

        try:
            answer = _REGISTERED.decode(await self._pages.change(request, form, work))
        except LamellaError as error:
            return await self._register_page(request, form.fields, error)
        names = request.path_params
        if answer.refused:
            return await self._register_page(request, form.fields, answer=answer)
        return self._pages.see(link("tables", names["namespace"], names["table"], done="registered"))

    def pages(self) -> tuple[Page, ...]:
        maintain, write = on_table("maintain"), on_table("write")
        return (
            Page(_NEW, self.new, "ui_new", AUTHENTICATED),
            Page(_NEW + "/namespace", self.create_namespace, "ui_create_namespace", on_server("maintain"), "POST"),
            Page(_NEW + "/table", self.create_table, "ui_create_table", BY_REQUEST, "POST"),
            Page(_NAMESPACE, self.namespace, "ui_namespace", BY_REQUEST),
            Page(_NAMESPACE + "/undrop", self.undrop, "ui_undrop_table", on_namespace("maintain"), "POST"),
            Page(_NAMESPACE + "/drop", self.confirm_drop_namespace, "ui_ask_drop_namespace", BY_REQUEST),
            Page(_NAMESPACE + "/drop", self.drop_namespace, "ui_drop_namespace", BY_REQUEST, "POST"),
            Page(TABLE + "/drop", self.confirm_drop, "ui_ask_drop_table", maintain),
            Page(TABLE + "/drop", self.drop, "ui_drop_table", maintain, "POST"),
            Page(TABLE + "/rename", self.rename_form, "ui_ask_rename_table", maintain),
            Page(TABLE + "/rename", self.rename, "ui_rename_table", BY_REQUEST, "POST"),
            Page(TABLE + "/register", self.register_form, "ui_ask_register", write),
            Page(TABLE + "/register", self.register, "ui_register", write, "POST"),
        )

    async def _new(self, request: Request, texts: Any, error: LamellaError | None = None, *, of: str = "") -> Response:
        rights = principal_of(request).rights

        def read() -> list[str]:
            names = [each.name for each in self._catalog.namespaces()]
            return [name for name in names if rights.may("write", name)][:_MAX_NAMESPACES]

        namespaces = await self._readers.run(read)
        can_make = rights.may("maintain")
        if not namespaces and not can_make:
            raise NotFound("you may not create tables in any namespace")
        values = {
            "texts": texts,
            "namespaces": namespaces,
            "can_make": can_make,
            "problem": "" if error is None else f"{words.sentence(error.message)}.",
            "of": of,
        }
        status = 200 if error is None else status_of(type(error))
        return self._pages.html(request, "new.html", values, status=status, title="New table")

    async def _rename_page(self, request: Request, texts: Any, error: LamellaError | None = None) -> Response:
        rights = decided(request).rights

        def read() -> list[str]:
            table_of(self._catalog, request)
            names = [each.name for each in self._catalog.namespaces()]
            return [name for name in names if rights.may("write", name)][:_MAX_NAMESPACES]

        return await self._table_page(request, "rename.html", "Rename", texts, error, namespaces=await self._run(read))

    async def _register_page(
        self, request: Request, texts: Any, error: LamellaError | None = None, answer: RegisterAnswer | None = None
    ) -> Response:
        refused: tuple[RefusedFile, ...] = () if answer is None else answer.refused
        if isinstance(error, BlocksRefused):
            refused = msgspec.convert(error.details.get("refused", ()), tuple[RefusedFile, ...])
        info = await self._run(lambda: self._tables.info_of(table_of(self._catalog, request)))
        return await self._table_page(
            request,
            "register.html",
            "Register files in",
            texts,
            error,
            answer=answer,
            refused=refused[:_MAX_REFUSED],
            refused_count=len(refused),
            columns=[column.name for column in info.schema.columns],
        )

    async def _table_page(
        self, request: Request, template: str, what: str, texts: Any, error: LamellaError | None, **more: Any
    ) -> Response:
        names = request.path_params
        values = {
            "namespace": names["namespace"],
            "table": names["table"],
            "tab": "",
            "texts": texts,
            "problem": "" if error is None else f"{words.sentence(error.message)}.",
            **more,
        }
        status = 200 if error is None else status_of(type(error))
        title = f"{what} {names['namespace']}.{names['table']}"
        return self._pages.html(request, template, values, status=status, title=title)

    async def _run(self, read: Any) -> Any:
        return await self._readers.run(read)


def _wanted_table(form: Form) -> CreateTable:
    """Return the request of the form. Raises InvalidRequest."""
    columns, source = read_columns(form.text("columns")), form.text("schema_from")
    if bool(columns) == bool(source):
        raise InvalidRequest("give the columns, or a Parquet file that has them, and not both")
    given = CreateTable(
        name=form.text("table"),
        schema=columns or None,
        schema_from=source or None,
        cluster_key=split_key(form.text("cluster_key")),
    )
    return _checked(_CREATE_TABLE, given)


def _checked(decoder: msgspec.json.Decoder[_T], given: _T) -> _T:
    """Return a request as if it came as JSON: within the limits of its type. Raises InvalidRequest."""
    return read_json(decoder, msgspec.json.encode(given))

"""Renders pages: parameters, templates, values, headers; errors are pages too."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode

import jinja2
import msgspec
from markupsafe import Markup
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from lamella.service import release
from lamella.service.access import Authenticator, check_decided, check_permission, principal_of
from lamella.service.access.principal import OPEN
from lamella.service.catalog import Catalog, TableRecord, current_table
from lamella.service.dashboard import charts, words
from lamella.service.dashboard.forms import KEY, MAX_BYTES, TOKEN, Form, Tokens, new_key, refuse_embedded
from lamella.service.dashboard.names import Names
from lamella.service.dashboard.preview import Question
from lamella.service.history.history import History
from lamella.service.http.admission import Admission
from lamella.service.http.mutations import Mutations, Work
from lamella.service.http.negotiation import MIN_BYTES, coding, compressed
from lamella.service.http.problem import error_in, status_of, title_of
from lamella.service.http.routing import REQUEST_ID, ROUTE, RouteFactory
from lamella.service.usage.audit import Audit
from lamella.snapshot.errors import InvalidRequest, LamellaError, NotFound, Unauthenticated
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.wire import Problem
from lamella.snapshot.wire.operation import PUBLIC, Permission

MESSAGES: Final[dict[str, str]] = {
    "cancelled": "The job is cancelled, or its worker was asked to stop it.",
    "queued": "The job was added.",
    "already_queued": "An equal job was pending already; this is it.",
    "retried": "The job was queued again.",
    "rolled_back": "The table has the blocks of the older snapshot again.",
    "tagged": "The tag is set.",
    "untagged": "The tag was removed; the snapshot stays as long as the retention allows.",
    "key_set": "The cluster key is set. A recluster job sorts the blocks by it.",
    "key_revoked": "The key is revoked. Other replicas notice within a few seconds.",
    "granted": "The role is granted.",
    "taken": "The role is removed.",
    "policy_set": "The policy is saved. Its rules are checked soon.",
    "policy_removed": "The policy is removed.",
    "scheduled": "The schedule is saved.",
    "schedule_on": "The schedule is active again.",
    "schedule_off": "The schedule is paused.",
    "schedule_removed": "The schedule is removed.",
    "namespace_made": "The namespace is created.",
    "namespace_dropped": "The namespace is dropped.",
    "table_made": "The table is created.",
    "dropped": "The table is dropped. It can be restored from the list below.",
    "undropped": "The table is restored.",
    "renamed": "The table has its new name. Roles on the old name do not follow.",
    "registered": "The files are registered.",
    "index_made": "The index is created, and a queued job fills it.",
    "index_dropped": "The index is no longer used. It can be restored until a clean-up removes its parts.",
    "index_restored": "The index is in use again.",
}


_TIME_TEXT: Final = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?\Z")


class At(msgspec.Struct, frozen=True):
    """The snapshot in the parameter ``at``: an id, a tag or a time; the current one if ``text`` is empty."""

    text: str = ""

    @property
    def snapshot_id(self) -> str | None:
        """Return an id, tag or number."""
        return self.text if self.text and not self._is_time else None

    @property
    def timestamp(self) -> str | None:
        """Return a time."""
        return self.text if self._is_time else None

    @property
    def _is_time(self) -> bool:
        return _TIME_TEXT.match(self.text) is not None

    def pointer(self, history: History, table: TableRecord) -> SnapshotPointer:
        """That snapshot of a table; raises InvalidRequest, SnapshotNotFound."""
        return history.pointer(table, snapshot_id=self.snapshot_id, timestamp=self.timestamp)


def at_of(request: Request, name: str = "at") -> At:
    """Return the snapshot that a page is requested for."""
    return At(text_of(request, name))


def table_of(catalog: Catalog, request: Request) -> TableRecord:
    """The table that a page is about; raises NamespaceNotFound, TableNotFound. Waits for the catalog."""
    return current_table(catalog, request.path_params["namespace"], request.path_params["table"])


def text_of(request: Request, name: str) -> str:
    """Return a parameter without surrounding spaces; the line ends of forms (two characters) become one."""
    return request.query_params.get(name, "").replace("\r\n", "\n").strip()


def number_of(request: Request, name: str, default: int = 0, maximum: int = (1 << 53) - 1) -> int:
    """Return an integer parameter. Raises InvalidRequest."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= maximum):
        raise InvalidRequest(f"{name} must be a number up to {maximum}, not {text!r}", parameter=name)
    return int(text)


def one_of(request: Request, name: str, choices: tuple[str, ...]) -> str:
    """Return a parameter that is one of some words, by default the first. Raises InvalidRequest."""
    text = request.query_params.get(name, "")
    if not text:
        return choices[0]
    if text not in choices:
        raise InvalidRequest(f"{name} must be one of {', '.join(choices)}, not {text!r}", parameter=name)
    return text


class Sorting(msgspec.Struct, frozen=True):
    """By which column a list is sorted; ``first``: the column that sorts it when the address names none."""

    column: str
    descending: bool
    first: str

    def next(self, column: str, *, is_number: bool) -> str | None:
        """Return the parameter of a header's link: the other direction, or of numbers the largest first."""
        descending = not self.descending if column == self.column else is_number
        return None if column == self.first and not descending else f"-{column}" if descending else column

    def direction(self, column: str) -> str | None:
        """Return the value of ``aria-sort``; None for a column that does not sort the list."""
        if column != self.column:
            return None
        return "descending" if self.descending else "ascending"


def sorting_of(request: Request, columns: Sequence[str]) -> Sorting:
    """Return the order that an address asks for: ``sort=rows``, ``sort=-rows``. Raises InvalidRequest."""
    text = one_of(request, "sort", (*columns, *(f"-{column}" for column in columns)))
    return Sorting(text.removeprefix("-"), text.startswith("-"), columns[0])


ROOT: Final = "/ui"
_HERE: Final = Path(__file__).parent
_PROBLEM: Final = msgspec.json.Decoder(Problem)
_STATIC: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

#: Only resources of this service, and no inline scripts or styles.
CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
#: Templates of the home page, which are compiled before the first request: that takes longer than the rest of the page.
_COMPILED: Final = ("home.html", "base.html", "_health.html", "_sorting.html", "_findings.html")
_HIDDEN: Final = Markup('<input type="hidden" name="{}" value="{}">')
_TIME_TAG: Final = Markup('<time datetime="{}" title="{}">{}</time>')
_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

Handler = Callable[[Request], Awaitable[Response]]


class Page(msgspec.Struct, frozen=True):
    """One path of the console; ``name``: in metrics and the audit trail; ``needs``: the required permission."""

    path: str
    handler: Handler
    name: str
    needs: Permission
    method: Literal["GET", "POST"] = "GET"


class Pages:
    """Renders pages, accepts forms, and runs their actions."""

    def __init__(
        self,
        *,
        admission: Admission,
        mutations: Mutations,
        authentication: Authenticator,
        audit: Audit,
        clock: Callable[[], int],
        route_factory: RouteFactory,
        secret: bytes,
        names: Names,
    ) -> None:
        #: Names that forms complete.
        self.names = names
        self._admission = admission
        self._mutations = mutations
        self._authentication = authentication
        self._audit = audit
        self._clock = clock
        self._route_factory = route_factory
        self._tokens = Tokens(secret)
        self._assets, self._asset_names = _assets()
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            lstrip_blocks=True,
            keep_trailing_newline=False,
            auto_reload=False,
        )
        self._templates.filters.update(words.FILTERS)
        self._templates.globals.update(
            asset=lambda name: f"{ROOT}/static/{self._asset_names[name]}",
            charts=charts,
            link=link,
            messages=MESSAGES,
            root=ROOT,
            release=release(),
        )
        for template in _COMPILED:
            self._templates.get_template(template)

    def html(
        self, request: Request, template: str, values: Mapping[str, Any], *, status: int = 200, title: str
    ) -> Response:
        """Return a page. The template escapes ``values``; ``title`` is the document's."""
        session = self._tokens.session(request)
        started = session or self._tokens.start()
        now_ms = self._clock()
        context = {
            "title": title,
            "path": request.url.path,
            "query": request.query_params,
            "here": with_query(request),
            "now_ms": now_ms,
            "ago": lambda at_ms: words.ago(at_ms, now_ms),
            "time": lambda at_ms: _time(at_ms, now_ms),
            "hidden_fields": lambda key=None: self._hidden_fields(started, key),
            **_whose(request, needs_login=self._authentication.is_on),
            **values,
        }
        body = self._templates.get_template(template).render(context).encode()
        response = self._respond(request, body, "text/html; charset=utf-8", status)
        response.headers["Cache-Control"] = "no-store"
        if session is None:
            self._tokens.keep(request, response, started)
        return response

    def question(self, request: Request, question: Question) -> Response:
        """Return the confirmation page, whose form goes to the same address."""
        return self.html(request, "confirm.html", {"question": question}, title=question.asks)

    async def form(self, request: Request, *, max_bytes: int = MAX_BYTES) -> Form:
        """Return the posted form. Raises InvalidRequest unless a page of the console sent it, BodyTooLarge."""
        return await self._tokens.form(request, max_bytes)

    async def change(self, request: Request, form: Form, work: Work) -> bytes:
        """Run a mutation, once for each form, and return its answer's JSON.

        Raises:
            LamellaError: the error of the mutation, also if it is the stored answer of an earlier submission.
        """
        response = await self._mutations.run(request, work, form.body, key=form.key)
        body = bytes(response.body)
        if response.status_code >= 400:
            raise error_in(body)
        return body

    def see(self, url: str) -> Response:
        """Redirect to a page after a form, so that reloading repeats nothing."""
        return RedirectResponse(url, status_code=303, headers=_HEADERS)

    def routes(self, pages: Sequence[Page]) -> list[Route]:
        """Return the routes of pages, and of their static files."""
        found = [Route(page.path, self._endpoint(page), methods=[page.method], name=page.name) for page in pages]
        built_in = (
            Page(ROOT + "/static/{name}", self._static, "ui_static", PUBLIC),
            Page(ROOT + "/{rest:path}", self._nothing, "ui_nothing", PUBLIC),
        )
        return [*found, *(Route(page.path, self._endpoint(page), methods=["GET"], name=page.name) for page in built_in)]

    def problem(self, request: Request, error: Exception) -> Response:
        """Return the error page; unknown errors are logged and not shown."""
        shown = self._route_factory.shown(request, error)
        status = status_of(type(shown))
        heading = title_of(type(shown))
        values = {"error": shown, "heading": heading, "request_id": request.scope.get(REQUEST_ID)}
        return self.html(request, "problem.html", values, status=status, title=heading)

    def _endpoint(self, page: Page) -> Handler:
        handler, is_post = page.handler, page.method == "POST"
        if page.needs.scope != "public" or is_post:
            handler = self._admission.admitted(handler, changes=is_post, has_body=is_post, is_large=False)

        async def endpoint(request: Request) -> Response:
            request.scope[ROUTE] = page.path
            try:
                refuse_embedded(request)
                if page.needs.scope != "public":
                    check_permission(page.needs, request, await self._authentication.admit_page(request))
                response = await handler(request)
                check_decided(page.needs, request)
                return response
            except ClientDisconnect:
                raise
            except Unauthenticated as error:
                if page.method == "GET":
                    return self.see(link("login", next=_address_of(request)))
                return await self._signed_out(request, error)
            except Exception as error:
                return self.problem(request, error)

        return endpoint if page.method == "GET" else self._audit.watched(page.name, endpoint)

    async def _signed_out(self, request: Request, error: Unauthenticated) -> Response:
        """Return a page that has the fields of a form whose session ended, and sends them again after a log-in."""
        try:
            form = await self.form(request)
        except LamellaError:
            return self.problem(request, error)
        fields = [(name, value) for name, value in form.fields.items() if name not in (TOKEN, KEY)]
        values = {"fields": fields, "key": form.key or new_key()}
        return self.html(request, "signed_out.html", values, status=status_of(type(error)), title="Log in again")

    async def _nothing(self, request: Request) -> Response:
        raise NotFound(f"there is no page {request.url.path}")

    async def _static(self, request: Request) -> Response:
        found = self._assets.get(request.path_params["name"])
        if found is None:
            return Response("there is no such file", 404, media_type="text/plain")
        kind, data = found
        response = self._respond(request, data, kind, 200)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response

    def _respond(self, request: Request, body: bytes, kind: str, status: int) -> Response:
        headers = {**_HEADERS, "Content-Type": kind, "Vary": "Accept-Encoding"}
        wanted = coding(request.headers.get("accept-encoding", ""))
        if wanted is not None and len(body) >= MIN_BYTES:
            body = compressed(body, wanted)
            headers["Content-Encoding"] = wanted
        return Response(body, status, headers)

    def _hidden_fields(self, session: str, key: str | None = None) -> Markup:
        """Return the hidden fields of every form that changes something; ``key``: of a form that is sent again."""
        pairs = ((TOKEN, self._tokens.token(session)), (KEY, key or new_key()))
        return Markup("").join(_HIDDEN.format(name, value) for name, value in pairs)


def _address_of(request: Request) -> str:
    query = request.url.query
    return quote(request.url.path) + (f"?{query}" if query else "")


def _whose(request: Request, *, needs_login: bool) -> dict[str, Any]:
    """Return the user of a page and its rights; None and no rights without authentication."""
    try:
        principal = principal_of(request) if needs_login else OPEN
    except Unauthenticated:
        return {"who": None, "may": lambda *_scope: False, "is_gated": needs_login}
    may = principal.rights.may

    def may_maintain(table: str | None) -> bool:
        """For a table as jobs name it; None: for everything."""
        namespace, _, name = (table or "").rpartition(".")
        return may("maintain", namespace, name) if namespace else may("maintain")

    return {"who": principal.name, "may": may, "may_maintain": may_maintain, "is_gated": needs_login}


def link(*parts: str, **query: Any) -> str:
    """Return the address of a page: path segments below ``/ui``, and a query without None or empty values."""
    path = "/".join([ROOT, *(quote(part, safe="") for part in parts)])
    pairs = [(name, value) for name, value in query.items() if value not in (None, "", False)]
    return f"{path}?{urlencode(pairs)}" if pairs else path


def with_query(request: Request) -> Callable[..., str]:
    """Return a function for the address of the current page with other parameters (None: without it)."""

    def here(**changes: Any) -> str:
        merged = {**dict(request.query_params), **changes}
        pairs = [(name, value) for name, value in merged.items() if value not in (None, "", False)]
        return f"{quote(request.url.path)}?{urlencode(pairs)}"

    return here


def _time(at_ms: int | None, now_ms: int) -> Markup:
    if at_ms is None:
        return Markup.escape(words.NOTHING)
    return _TIME_TAG.format(words.iso(at_ms), words.moment(at_ms), words.ago(at_ms, now_ms))


def _assets() -> tuple[dict[str, tuple[str, bytes]], dict[str, str]]:
    """Return the static files by their published names, and these names, which change with the content."""
    by_name, names = {}, {}
    for path in sorted((_HERE / "static").iterdir()):
        data = path.read_bytes()
        name = f"{path.stem}.{hashlib.sha256(data).hexdigest()[:16]}{path.suffix}"
        by_name[name] = (_STATIC[path.suffix], data)
        names[path.name] = name
    return by_name, names

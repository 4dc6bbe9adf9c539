"""Keys and grants that the user may see, forms to create and remove them, and who may do and did what on a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import Authenticator, check, principal_of
from lamella.service.access.administration import AccessAdministration
from lamella.service.catalog import Catalog
from lamella.service.dashboard import words
from lamella.service.dashboard.forms import Form
from lamella.service.dashboard.names import principals_of
from lamella.service.dashboard.pages import ROOT, Page, Pages, link, table_of, text_of
from lamella.service.dashboard.preview import Fact, Question, fact
from lamella.service.dashboard.tables import TABLE
from lamella.service.http.problem import status_of
from lamella.service.process.threads import Threads
from lamella.service.usage.audit import Audit, about
from lamella.snapshot.errors import InvalidRequest, LamellaError, NotFound
from lamella.snapshot.tokens import unspelt
from lamella.snapshot.wire import ROLES, CreateKey, Grant, GrantRequest, KeyInfo, NewKey, RotateKey
from lamella.snapshot.wire.access import parse_scope, scope_text
from lamella.snapshot.wire.operation import AUTHENTICATED, on_table

_ACCESS: Final = ROOT + "/access"
_DAY_S: Final = 86_400
#: Entries of the audit trail on the page of a table.
_ENTRIES: Final = 50


class AccessPages:
    """Pages for keys and grants. A key's text is shown only on the page that created it."""

    def __init__(
        self,
        *,
        readers: Threads,
        administration: AccessAdministration,
        authentication: Authenticator,
        clock: Callable[[], int],
        pages: Pages,
    ) -> None:
        self._readers = readers
        self._administration = administration
        self._authentication = authentication
        self._clock = clock
        self._pages = pages

    async def show(self, request: Request) -> Response:
        return await self._render(request)

    async def create_key(self, request: Request) -> Response:
        form = await self._pages.form(request)
        about(request, f"key:{unspelt(form.text('name'))}")
        by = principal_of(request)

        def made() -> NewKey:
            grants = (self._grant(form),) if form.text("role") else ()
            days = form.text("days")
            key_request = CreateKey(
                name=form.text("name"), grants=grants, expires_s=_days(days) * _DAY_S if days else None
            )
            return self._administration.create_key(by, key_request)

        try:
            return await self._render(request, made=await self._readers.run(made))
        except LamellaError as error:
            return await self._render(request, problem=error, of="key")

    async def confirm_rotate(self, request: Request) -> Response:
        key = await self._key(request)
        return self._pages.question(
            request,
            Question(
                asks=f"Give the key {key.name} a new text?",
                says="The new text is shown once, on the next page. The old one stays valid for another day, so that "
                "programs can switch to the new one.",
                act="Rotate the key",
                back=link("access"),
                facts=_facts_of_key(key, self._clock()),
            ),
        )

    async def confirm_revoke(self, request: Request) -> Response:
        key = await self._key(request)
        own = ("You are logged in with this key: revoking it logs you out.",)
        return self._pages.question(
            request,
            Question(
                asks=f"Revoke the key {key.name}?",
                says="Requests with it are refused from then on, by other replicas within a few seconds. A revoked key "
                "cannot be used again.",
                act="Revoke the key",
                back=link("access"),
                facts=_facts_of_key(key, self._clock()),
                warnings=own if principal_of(request).name == f"key:{key.name}" else (),
            ),
        )

    async def confirm_remove_role(self, request: Request) -> Response:
        values = {name: request.query_params.get(name, "").strip() for name in ("principal", "role", "place")}
        by, form = principal_of(request), Form(values, b"")
        grant = self._grant(form)
        check(by, "admin", grant.namespace, grant.table)
        found = await self._readers.run(lambda: self._administration.grants(by, None))
        wanted = (values["principal"], grant.role, grant.namespace, grant.table)
        if wanted not in {(each.principal, each.role, each.namespace, each.table) for each in found.grants}:
            raise NotFound(f"{values['principal']} does not have the role {grant.role} on {scope_text(grant)}")
        own = ("This is a role of your own: you may lose the right to grant it again.",)
        return self._pages.question(
            request,
            Question(
                asks=f"Remove the role {grant.role} on {scope_text(grant)} from {values['principal']}?",
                says="What only this role allowed is refused from then on, by other replicas within a few seconds.",
                act="Remove the role",
                back=link("access"),
                warnings=own if values["principal"] in by.names else (),
                carried=tuple(values.items()),
            ),
        )

    async def rotate_key(self, request: Request) -> Response:
        await self._pages.form(request)
        by, name = principal_of(request), request.path_params["key"]
        about(request, f"key:{unspelt(name)}")
        administration = self._administration

        def made() -> NewKey:
            key, now_ms = administration.key(by, name), self._clock()
            time_left_s = None if key.expires_ms is None else max(1, (key.expires_ms - now_ms) // 1000)
            return administration.rotate_key(by, name, RotateKey(expires_s=time_left_s))

        return await self._render(request, made=await self._readers.run(made))

    async def revoke_key(self, request: Request) -> Response:
        await self._pages.form(request)
        by, name = principal_of(request), request.path_params["key"]
        about(request, f"key:{unspelt(name)}")
        await self._readers.run(lambda: self._administration.revoke_key(by, name))
        return self._pages.see(link("access", done="key_revoked"))

    async def give(self, request: Request) -> Response:
        form = await self._pages.form(request)
        by = principal_of(request)
        try:
            grant_request = self._request(request, form)
            await self._readers.run(lambda: self._administration.give(by, grant_request))
        except LamellaError as error:
            return await self._render(request, problem=error, of="grant")
        return self._pages.see(link("access", done="granted"))

    async def take(self, request: Request) -> Response:
        form = await self._pages.form(request)
        by, grant_request = principal_of(request), self._request(request, form)
        await self._readers.run(lambda: self._administration.take(by, grant_request))
        return self._pages.see(link("access", done="taken"))

    def pages(self) -> tuple[Page, ...]:
        if not self._authentication.is_on:
            return ()
        one = _ACCESS + "/keys/{key}"
        return (
            Page(_ACCESS, self.show, "ui_access", AUTHENTICATED),
            Page(_ACCESS + "/keys", self.create_key, "ui_create_key", AUTHENTICATED, "POST"),
            Page(one + "/rotate", self.confirm_rotate, "ui_ask_rotate_key", AUTHENTICATED),
            Page(one + "/revoke", self.confirm_revoke, "ui_ask_revoke_key", AUTHENTICATED),
            Page(_ACCESS + "/take", self.confirm_remove_role, "ui_ask_take_grant", AUTHENTICATED),
            Page(one + "/rotate", self.rotate_key, "ui_rotate_key", AUTHENTICATED, "POST"),
            Page(one + "/revoke", self.revoke_key, "ui_revoke_key", AUTHENTICATED, "POST"),
            Page(_ACCESS + "/give", self.give, "ui_give_grant", AUTHENTICATED, "POST"),
            Page(_ACCESS + "/take", self.take, "ui_take_grant", AUTHENTICATED, "POST"),
        )

    async def _render(
        self, request: Request, *, made: NewKey | None = None, problem: LamellaError | None = None, of: str = ""
    ) -> Response:
        by, administration = principal_of(request), self._administration
        keys, grants, scopes = await self._readers.run(
            lambda: (
                administration.keys(by),
                administration.grants(by, None),
                self._pages.names.scopes(by.rights),
            )
        )
        values: dict[str, Any] = {
            "me": by.described(),
            "keys": keys.keys,
            "grants": grants.grants,
            "place_text": scope_text,
            "roles": ROLES,
            "made": made,
            "problems": {} if problem is None else {of: problem.message},
            "lists": {"scopes": scopes, "principals": principals_of(grants.grants, keys.keys)},
            "can_give": by.rights.scopes("admin") != (),
        }
        status = 200 if problem is None else status_of(type(problem))
        return self._pages.html(request, "access.html", values, status=status, title="Access")

    async def _key(self, request: Request) -> KeyInfo:
        """Return the key in the path, if the user may revoke it. Raises KeyNotFound."""
        by, name = principal_of(request), request.path_params["key"]
        return await self._readers.run(lambda: self._administration.key(by, name))

    def _request(self, request: Request, form: Form) -> GrantRequest:
        grant, principal = self._grant(form), form.text("principal")
        about(request, f"{unspelt(principal)}={grant.role}@{scope_text(grant)}")
        return GrantRequest(principal=principal, role=grant.role, namespace=grant.namespace, table=grant.table)

    def _grant(self, form: Form) -> Grant:
        namespace, table = parse_scope(form.text("place"))
        role = form.text("role")
        if role not in ROLES:
            raise InvalidRequest(f"a role must be one of {', '.join(ROLES)}, not {role!r}", parameter="role")
        return Grant(role=role, namespace=namespace, table=table)


def _facts_of_key(key: KeyInfo, now_ms: int) -> tuple[Fact, ...]:
    """Return the facts that identify a key."""
    grants = ", ".join(f"{grant.role} {scope_text(grant)}" for grant in key.grants)
    return (
        fact("May", grants or "nothing"),
        fact("Made", f"{words.ago(key.created_ms, now_ms)} by {key.created_by}"),
        fact("Used", words.NOTHING if key.used_ms is None else words.ago(key.used_ms, now_ms)),
    )


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) <= 3_660):
        raise InvalidRequest("a key lasts 1 to 3660 days, or has no expiry if the field is empty", parameter="days")
    return int(text[:6])


class TableAccessPages:
    """The page of who may do what on a table, and who has changed it."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        readers: Threads,
        administration: AccessAdministration,
        authentication: Authenticator,
        audit: Audit,
        pages: Pages,
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._administration = administration
        self._authentication = authentication
        self._audit = audit
        self._pages = pages

    async def show(self, request: Request) -> Response:
        return await self._render(request, {})

    async def give(self, request: Request) -> Response:
        form = await self._pages.form(request)
        names = request.path_params
        by, role = principal_of(request), next((each for each in ROLES if each == form.text("role")), None)
        try:
            if role is None:
                raise InvalidRequest(f"a role must be one of {', '.join(ROLES)}, not {form.text('role')!r}")
            grant = GrantRequest(
                principal=form.text("principal"), role=role, namespace=names["namespace"], table=names["table"]
            )
            await self._readers.run(lambda: self._administration.give(by, grant))
        except LamellaError as error:
            return await self._render(request, form.fields, error)
        return self._pages.see(link("tables", names["namespace"], names["table"], "access", done="granted"))

    def pages(self) -> tuple[Page, ...]:
        admin = on_table("admin")
        return (
            Page(TABLE + "/access", self.show, "ui_table_access", admin),
            Page(TABLE + "/access", self.give, "ui_give_on_table", admin, "POST"),
        )

    async def _render(self, request: Request, texts: Mapping[str, str], error: LamellaError | None = None) -> Response:
        by = principal_of(request)

        def read() -> dict[str, Any]:
            record = table_of(self._catalog, request)
            found = self._audit.list(
                page_size=_ENTRIES,
                page_token=text_of(request, "page") or None,
                table=f"{record.namespace}.{record.name}",
            )
            grants = self._administration.grants(by, None).grants if self._authentication.is_on else ()
            applying = [
                each
                for each in grants
                if each.namespace in (None, record.namespace) and each.table in (None, record.name)
            ]
            return {
                "namespace": record.namespace,
                "table": record.name,
                "entries": found.entries,
                "next_page": found.next_page_token,
                "grants": applying,
                "lists": {"principals": principals_of(grants, ())},
            }

        values = await self._readers.run(read)
        values |= {
            "tab": "access",
            "texts": texts,
            "roles": ROLES,
            "place_text": scope_text,
            "problem": "" if error is None else f"{words.sentence(error.message)}.",
        }
        status = 200 if error is None else status_of(type(error))
        title = f"Access to {values['namespace']}.{values['table']}"
        return self._pages.html(request, "table_access.html", values, status=status, title=title)

"""The service: health, rates, caches, workers, the audit trail, and the configuration in effect."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import require
from lamella.service.config.check import unsafe_warnings
from lamella.service.config.settings import Settings
from lamella.service.dashboard.pages import ROOT, Page, Pages
from lamella.service.process.status import Status
from lamella.service.process.threads import Threads
from lamella.service.usage.audit import Audit
from lamella.snapshot.wire.operation import BY_REQUEST, on_server

#: Entries of the audit trail on the first screen, and on their own page.
_LATEST: Final = 15
_PAGE: Final = 100


class AccessFacts(msgspec.Struct, frozen=True):
    """How requests are authenticated, and warnings for the operator."""

    says: tuple[str, ...]
    warnings: tuple[str, ...]


def access_facts(settings: Settings) -> AccessFacts:
    """Return the description for these settings."""
    says = []
    if settings.auth:
        ways = ["an API key"]
        if settings.oidc_issuer is not None:
            ways.append(f"a token of {settings.oidc_issuer}")
        says.append(
            f"Requests are authenticated (auth): each needs {' or '.join(ways)}, and may do what was granted to it."
        )
        if settings.root_key_sha256 is not None:
            says.append("There is a root key (root_key_sha256), which may do everything.")
    elif settings.is_loopback:
        says.append(
            "Requests are not authenticated (auth is off): every program on this machine may read and change every "
            f"table. Other machines cannot reach the address, {settings.host}, unless something here passes their "
            "requests on."
        )
    else:
        says.append(
            "Requests are not authenticated (auth is off): everyone who reaches the address may read and change every "
            f"table. The service listens on {settings.host} because of the setting insecure."
        )
    return AccessFacts(tuple(says), unsafe_warnings(settings))


class StatusPages:
    """Pages of the service's status."""

    def __init__(self, *, readers: Threads, settings: Settings, status: Status, audit: Audit, pages: Pages) -> None:
        self._readers = readers
        self._settings = settings
        self._status = status
        self._audit = audit
        self._pages = pages

    async def show(self, request: Request) -> Response:
        values = await self._readers.run(self._show)
        return self._pages.html(request, "service.html", values, title="Service")

    async def audit(self, request: Request) -> Response:
        values = await self._readers.run(lambda: self._audit_page(request))
        return self._pages.html(request, "audit.html", values, title="Audit trail")

    def pages(self) -> tuple[Page, ...]:
        return (
            Page(ROOT + "/service", self.show, "ui_service", on_server("admin")),
            Page(ROOT + "/service/audit", self.audit, "ui_audit", BY_REQUEST),
        )

    def _show(self) -> dict[str, Any]:
        status = self._status.look()
        requests = sorted(status.requests, key=lambda each: -each.requests)
        return {
            "access": access_facts(self._settings),
            "status": status,
            "requests": requests,
            "entries": self._audit.page(None, _LATEST) if status.catalog.error is None else [],
        }

    def _audit_page(self, request: Request) -> dict[str, Any]:
        table = request.query_params.get("table", "").strip()
        namespace, _, name = table.rpartition(".")
        if namespace:
            require(request, "admin", namespace, name)
        else:
            require(request, "admin")
        found = self._audit.list(
            page_size=_PAGE, page_token=request.query_params.get("page") or None, table=table or None
        )
        return {"entries": found.entries, "next_page": found.next_page_token, "table": table}

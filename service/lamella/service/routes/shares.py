"""``/delta-sharing/shares``: what there is for a recipient of Delta Sharing. Paging is by names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import ANYBODY, ASKED, Principal, principal_of, require_sight
from lamella.service.api import Operation, Parameter, json_response, whole_number
from lamella.service.routes.paths import SHARE, SHARED_SCHEMAS, SHARED_TABLES, SHARES
from lamella.service.services import Services
from lamella.service.sharing import SHARE as THE_SHARE
from lamella.service.sharing import require_share
from lamella.snapshot.errors import InvalidPageToken, InvalidRequest, NamespaceNotFound, NotFound
from lamella.snapshot.sharing.items import (
    ShareAnswer,
    SharedSchema,
    SharedSchemaList,
    SharedShare,
    SharedTable,
    SharedTableList,
    ShareList,
)

_MOST: Final = 500
_OF: Final = "this listing"
_PAGING: Final = (
    Parameter(
        name="maxResults",
        description=f"Items in one answer, {_MOST} at most and when not given.",
        schema={"type": "integer", "minimum": 1, "maximum": 1_000_000},
    ),
    Parameter(name="pageToken", description="`nextPageToken` of the answer before."),
)
_SHARE: Final = SharedShare(name=THE_SHARE)


class ShareRoutes:
    """List shares, schemas and tables, each recipient its own."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list_shares(self, request: Request) -> Response:
        del request
        return json_response(ShareList(items=(_SHARE,)))

    async def get_share(self, request: Request) -> Response:
        require_share(request.path_params["share"])
        return json_response(ShareAnswer(share=_SHARE))

    async def list_shared_schemas(self, request: Request) -> Response:
        require_share(request.path_params["share"])
        rights, after = principal_of(request).rights, self._after(request, "schemas")
        infos = await self._services.read(self._services.catalog.namespaces)
        names = sorted(each.name for each in infos if rights.sees(each.name))
        found, token = self._page((name for name in names if name > after), _most(request), "schemas")
        return json_response(
            SharedSchemaList(
                items=tuple(SharedSchema(name=name, share=THE_SHARE) for name in found), next_page_token=token
            )
        )

    async def list_shared_tables(self, request: Request) -> Response:
        namespace = request.path_params["namespace"]
        principal = require_sight(request, namespace)
        require_share(request.path_params["share"])
        scope = f"tables of {namespace}"
        after, most = self._after(request, scope), _most(request)

        def work() -> SharedTableList:
            names = (name for name in self._readable(principal, namespace) if name > after)
            found, token = self._page(names, most, scope)
            return _tables(((namespace, name) for name in found), token)

        return json_response(await self._services.read(work))

    async def list_all_shared_tables(self, request: Request) -> Response:
        require_share(request.path_params["share"])
        principal, most = principal_of(request), _most(request)
        first, _, after = self._after(request, "all tables").partition("/")

        def work() -> SharedTableList:
            infos = self._services.catalog.namespaces()
            names = sorted(each.name for each in infos if principal.rights.sees(each.name) and each.name >= first)
            places = (
                f"{namespace}/{name}"
                for namespace in names
                for name in self._readable(principal, namespace)
                if namespace > first or name > after
            )
            found, token = self._page(places, most, "all tables")
            return _tables(((namespace, name) for namespace, _, name in (each.partition("/") for each in found)), token)

        return json_response(await self._services.read(work))

    def _page(self, names: Iterable[str], most: int, scope: str) -> tuple[list[str], str | None]:
        """The first of the names, and where the others begin."""
        found: list[str] = []
        for name in names:
            if len(found) == most:
                return found, self._services.page_tokens.write(found[-1].encode(), _OF, scope)
            found.append(name)
        return found, None

    def _after(self, request: Request, scope: str) -> str:
        """The name that the page before ended with; before the first page: none. Raises InvalidPageToken."""
        token = request.query_params.get("pageToken")
        if token is None:
            return ""
        return self._services.page_tokens.read(token, _OF, scope, parameter="pageToken").decode("utf-8", "replace")

    def _readable(self, principal: Principal, namespace: str) -> list[str]:
        """The tables of a namespace that the principal may read, by name."""
        try:
            names = self._services.catalog.tables(namespace)
        except NamespaceNotFound:
            if principal.rights.sees(namespace):
                return []  # it was dropped a moment ago
            raise
        return sorted(name for name in names if principal.rights.may("read", namespace, name))

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        paging = (InvalidRequest, InvalidPageToken)
        return (
            Operation(
                method="GET",
                path=SHARES,
                handler=self.list_shares,
                needs=ANYBODY,
                summary="List the shares",
                tag="Delta Sharing",
                description="There is one, `lamella`, of all that one may read.",
                answer_type=ShareList,
            ),
            Operation(
                method="GET",
                path=SHARE,
                handler=self.get_share,
                needs=ANYBODY,
                summary="Look at a share",
                tag="Delta Sharing",
                answer_type=ShareAnswer,
                errors=(NotFound,),
            ),
            Operation(
                method="GET",
                path=SHARED_SCHEMAS,
                handler=self.list_shared_schemas,
                needs=ANYBODY,
                summary="List the schemas of a share",
                tag="Delta Sharing",
                description="They are namespaces.",
                answer_type=SharedSchemaList,
                parameters=_PAGING,
                errors=(NotFound, *paging),
            ),
            Operation(
                method="GET",
                path=SHARED_TABLES,
                handler=self.list_shared_tables,
                needs=ASKED,
                summary="List the tables of a shared schema",
                tag="Delta Sharing",
                answer_type=SharedTableList,
                parameters=_PAGING,
                errors=(NotFound, NamespaceNotFound, *paging),
            ),
            Operation(
                method="GET",
                path=SHARE + "/all-tables",
                handler=self.list_all_shared_tables,
                needs=ANYBODY,
                summary="List all tables of a share",
                tag="Delta Sharing",
                answer_type=SharedTableList,
                parameters=_PAGING,
                errors=(NotFound, *paging),
            ),
        )


def _tables(places: Iterable[tuple[str, str]], token: str | None) -> SharedTableList:
    items = tuple(SharedTable(name=name, schema=namespace, share=THE_SHARE) for namespace, name in places)
    return SharedTableList(items=items, next_page_token=token)


def _most(request: Request) -> int:
    return min(whole_number(request, "maxResults", _MOST, 1, 1_000_000), _MOST)

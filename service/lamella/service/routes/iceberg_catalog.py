"""``/iceberg``: what Iceberg clients ask before they read: settings, namespaces, tables, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import ANYBODY, ASKED, on_table, principal_of, require_sight
from lamella.service.api import IF_NONE_MATCH, Operation, Parameter, json_response, whole_number
from lamella.service.conditional import tagged_by_content
from lamella.service.page_token import PageTokens
from lamella.service.routes.failures import OF_A_SNAPSHOT
from lamella.service.routes.paths import (
    ICEBERG,
    ICEBERG_NAMESPACE,
    ICEBERG_NAMESPACES,
    ICEBERG_TABLE,
    ICEBERG_TABLES,
)
from lamella.service.services import Services
from lamella.snapshot.errors import (
    InvalidPageToken,
    InvalidRequest,
    NamespaceNotFound,
    NotExpressible,
    TableNotFound,
)
from lamella.snapshot.iceberg.wire import (
    Credentials,
    IcebergConfig,
    IcebergIdentifier,
    IcebergNamespace,
    IcebergNamespaces,
    IcebergTables,
    LoadedTable,
)

_TABLE: Final = "/v1/{prefix}/namespaces/{namespace}/tables/{table}"
#: What is served, in the specification's terms. Clients ask for nothing else.
ENDPOINTS: Final = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    f"GET {_TABLE}",
    f"HEAD {_TABLE}",
    f"GET {_TABLE}/credentials",
    f"POST {_TABLE}/metrics",
    f"POST {_TABLE}/plan",
    f"GET {_TABLE}/plan/{{plan-id}}",
    f"DELETE {_TABLE}/plan/{{plan-id}}",
    f"POST {_TABLE}/tasks",
)
#: pyiceberg 0.12 reads these here, and not from a table's config; 0.11 has a name of its own.
_SERVER_SIDE: Final = {"scan-planning-mode": "server", "rest-scan-planning-enabled": "true"}
_PAGE: Final = (
    Parameter(name="pageSize", description="So many names at most; all when not given.", schema={"type": "integer"}),
    Parameter(name="pageToken", description="`next-page-token` of the answer before; empty: the first page."),
)
_MOST: Final = 1_000_000
_OF: Final = "this listing"


class IcebergCatalogRoutes:
    """Namespaces are those of the service, each of one level."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def iceberg_config(self, _request: Request) -> Response:
        return json_response(IcebergConfig(defaults={}, overrides=dict(_SERVER_SIDE), endpoints=ENDPOINTS))

    async def iceberg_namespaces(self, request: Request) -> Response:
        rights = principal_of(request).rights
        parent = request.query_params.get("parent")
        found = await self._services.read(self._services.catalog.namespaces)
        names = [each.name for each in found if rights.sees(each.name)]
        if parent:
            if parent not in names:
                raise NamespaceNotFound(f"there is no namespace {parent!r}", namespace=parent)
            names = []  # namespaces have none below them
        page, token = _page(request, names, self._services.page_tokens, "")
        return json_response(IcebergNamespaces(namespaces=tuple((name,) for name in page), next_page_token=token))

    async def iceberg_namespace(self, request: Request) -> Response:
        name = request.path_params["namespace"]
        require_sight(request, name)
        found = await self._services.read(lambda: self._services.catalog.namespace(name))
        if request.method == "HEAD":
            return Response(None, 204)
        return json_response(IcebergNamespace(namespace=(found.name,), properties=dict(found.properties)))

    async def iceberg_tables(self, request: Request) -> Response:
        namespace = request.path_params["namespace"]
        rights = require_sight(request, namespace).rights
        found = await self._services.read(lambda: self._services.catalog.tables(namespace))
        names = [name for name in found if rights.may("read", namespace, name)]
        page, token = _page(request, names, self._services.page_tokens, namespace)
        identifiers = tuple(IcebergIdentifier(namespace=(namespace,), name=name) for name in page)
        return json_response(IcebergTables(identifiers=identifiers, next_page_token=token))

    async def load_iceberg_table(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        services = self._services
        which = request.query_params.get("snapshots", "all")
        if which not in ("all", "refs"):
            raise InvalidRequest(f"snapshots is all or refs, not {which!r}", parameter="snapshots")
        if request.method == "HEAD":
            await services.read(lambda: services.table(namespace, name))
            return Response(None, 204)

        def work() -> bytes:
            record = services.table(namespace, name)
            metadata = services.iceberg_history.metadata(record, only_refs=which == "refs")
            loaded = LoadedTable(
                # Java's client looks how large it is when it reads a table's metadata tables, and does not open it.
                metadata_location=record.pointer.manifest.location,
                metadata=metadata,
                config={**_SERVER_SIDE, **services.settings.iceberg_properties},
            )
            return msgspec.json.encode(loaded)

        return tagged_by_content(request, await services.read(work))

    async def iceberg_credentials(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        await self._services.read(lambda: self._services.table(namespace, name))
        return json_response(Credentials(storage_credentials=()))

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        missing = (NamespaceNotFound, TableNotFound)
        return (
            Operation(
                method="GET",
                path=ICEBERG + "/config",
                handler=self.iceberg_config,
                needs=ANYBODY,
                summary="What an Iceberg client is to know first",
                tag="Iceberg",
                description="A `warehouse` may be named; there is one.",
                parameters=(Parameter(name="warehouse", description="Not looked at."),),
                answer_type=IcebergConfig,
            ),
            Operation(
                method="GET",
                path=ICEBERG_NAMESPACES,
                handler=self.iceberg_namespaces,
                needs=ANYBODY,
                summary="List the namespaces for Iceberg clients",
                tag="Iceberg",
                parameters=(*_PAGE, Parameter(name="parent", description="Namespaces below this one: there are none.")),
                answer_type=IcebergNamespaces,
                errors=(InvalidRequest, InvalidPageToken, NamespaceNotFound),
            ),
            Operation(
                method="GET",
                path=ICEBERG_NAMESPACE,
                handler=self.iceberg_namespace,
                needs=ASKED,
                summary="Look at a namespace as Iceberg clients do",
                tag="Iceberg",
                answer_type=IcebergNamespace,
                errors=(NamespaceNotFound,),
            ),
            Operation(
                method="GET",
                path=ICEBERG_TABLES,
                handler=self.iceberg_tables,
                needs=ASKED,
                summary="List a namespace's tables for Iceberg clients",
                tag="Iceberg",
                parameters=_PAGE,
                answer_type=IcebergTables,
                errors=(InvalidRequest, InvalidPageToken, NamespaceNotFound),
            ),
            Operation(
                method="GET",
                path=ICEBERG_TABLE,
                handler=self.load_iceberg_table,
                needs=on_table("read"),
                summary="Load a table's Iceberg metadata",
                tag="Iceberg",
                description="Format version 2. Snapshots have the numbers of the table's history as ids; the newest "
                "1,000 and tagged ones are there.",
                parameters=(
                    Parameter(
                        name="snapshots",
                        description="`all`, or `refs`: only those that a branch or tag names.",
                        schema={"type": "string", "enum": ["all", "refs"]},
                    ),
                    IF_NONE_MATCH,
                ),
                answer_type=LoadedTable,
                errors=(*OF_A_SNAPSHOT, NotExpressible),
            ),
            Operation(
                method="GET",
                path=ICEBERG_TABLE + "/credentials",
                handler=self.iceberg_credentials,
                needs=on_table("read"),
                summary="Credentials for a table's storage: none",
                tag="Iceberg",
                description="The service gives its own to nobody; clients have theirs.",
                answer_type=Credentials,
                errors=missing,
            ),
        )


def _page(request: Request, names: Sequence[str], tokens: PageTokens, scope: str) -> tuple[Sequence[str], str | None]:
    """The names of the page that is asked for, and the token of the next one."""
    size = whole_number(request, "pageSize", _MOST, 1, _MOST)
    token = request.query_params.get("pageToken")
    if token:
        behind = tokens.read(token, _OF, scope, parameter="pageToken")
        names = [name for name in names if name.encode() > behind]
    page = names[:size]
    return page, tokens.write(page[-1].encode(), _OF, scope) if len(names) > size else None

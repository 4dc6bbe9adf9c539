"""Routes of the Iceberg REST catalog: settings, namespaces, tables, tokens; scans.

The client secret is an API key (or a token of the issuer). The access token is the same text: it is valid for as long
and allows the same, so nothing has to be stored.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs, unquote_plus

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import Authenticator, principal_of, require_sight
from lamella.service.catalog import Catalog, TableRecord, current_table
from lamella.service.http.admission import read_json
from lamella.service.http.lanes import Lanes
from lamella.service.http.page_token import PageTokens
from lamella.service.http.responses import (
    BufferedResponse,
    ResponseFormat,
    StreamingResponse,
    begin_streaming,
    respond,
    tagged_by_content,
)
from lamella.service.http.routing import ServedOperation, json_response, require_json, whole_number
from lamella.service.http.streaming import LargeAnswers
from lamella.service.iceberg.exports import EXPORTS_CONFIG, EXPORTS_WAREHOUSE
from lamella.service.iceberg.scans import IcebergHistory, IcebergScans
from lamella.service.process.threads import Threads
from lamella.snapshot.errors import (
    InvalidRequest,
    NamespaceNotFound,
)
from lamella.snapshot.iceberg import operations
from lamella.snapshot.iceberg.wire import (
    AccessToken,
    Credentials,
    FetchScanTasks,
    IcebergConfig,
    IcebergIdentifier,
    IcebergNamespace,
    IcebergNamespaces,
    IcebergTables,
    LoadedTable,
    PlanTableScan,
)
from lamella.snapshot.wire.operation import JSON

_TABLE: Final = "/v1/{prefix}/namespaces/{namespace}/tables/{table}"
#: The served endpoints, in the specification's terms. Clients call no others.
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
#: pyiceberg 0.12 reads these here, not from a table's config; 0.11 uses a name of its own.
_SERVER_SIDE: Final = {"scan-planning-mode": "server", "rest-scan-planning-enabled": "true"}
_MAX_NAMES: Final = 1_000_000
_OF: Final = "this listing"


class IcebergCatalogRoutes:
    """Routes of the catalog. Namespaces are those of the service, each of one level."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        readers: Threads,
        page_tokens: PageTokens,
        history: IcebergHistory,
        properties: Mapping[str, str],
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._page_tokens = page_tokens
        self._history = history
        self._properties = properties

    async def iceberg_config(self, request: Request) -> Response:
        if request.query_params.get("warehouse") == EXPORTS_WAREHOUSE:
            return json_response(EXPORTS_CONFIG)
        return json_response(IcebergConfig(defaults={}, overrides=dict(_SERVER_SIDE), endpoints=ENDPOINTS))

    async def iceberg_namespaces(self, request: Request) -> Response:
        rights = principal_of(request).rights
        parent = request.query_params.get("parent")
        found = await self._readers.run(self._catalog.namespaces)
        names = [each.name for each in found if rights.sees(each.name)]
        if parent:
            if parent not in names:
                raise NamespaceNotFound(f"there is no namespace {parent!r}", namespace=parent)
            names = []  # namespaces have none below them
        page, token = _page(request, names, self._page_tokens, "")
        return json_response(IcebergNamespaces(namespaces=tuple((name,) for name in page), next_page_token=token))

    async def iceberg_namespace(self, request: Request) -> Response:
        name = request.path_params["namespace"]
        require_sight(request, name)
        found = await self._readers.run(lambda: self._catalog.namespace(name))
        if request.method == "HEAD":
            return Response(None, 204)
        return json_response(IcebergNamespace(namespace=(found.name,), properties=dict(found.properties)))

    async def iceberg_tables(self, request: Request) -> Response:
        namespace = request.path_params["namespace"]
        rights = require_sight(request, namespace).rights
        found = await self._readers.run(lambda: self._catalog.tables(namespace))
        names = rights.readable(namespace, found)
        page, token = _page(request, names, self._page_tokens, namespace)
        identifiers = tuple(IcebergIdentifier(namespace=(namespace,), name=name) for name in page)
        return json_response(IcebergTables(identifiers=identifiers, next_page_token=token))

    async def load_iceberg_table(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        which = request.query_params.get("snapshots", "all")
        if which not in ("all", "refs"):
            raise InvalidRequest(f"snapshots must be all or refs, not {which!r}", parameter="snapshots")
        if request.method == "HEAD":
            await self._readers.run(lambda: current_table(self._catalog, namespace, name))
            return Response(None, 204)

        def work() -> bytes:
            record = current_table(self._catalog, namespace, name)
            metadata = self._history.metadata(record, only_refs=which == "refs")
            loaded = LoadedTable(
                # Java's client reads the size when it reads a table's metadata tables, and does not open it.
                metadata_location=record.pointer.manifest.location,
                metadata=metadata,
                config={**_SERVER_SIDE, **self._properties},
            )
            return msgspec.json.encode(loaded)

        return tagged_by_content(request, await self._readers.run(work))

    async def iceberg_credentials(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        await self._readers.run(lambda: current_table(self._catalog, namespace, name))
        return json_response(Credentials(storage_credentials=()))

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.ICEBERG_CONFIG, self.iceberg_config),
            ServedOperation(operations.ICEBERG_NAMESPACES, self.iceberg_namespaces),
            ServedOperation(operations.ICEBERG_NAMESPACE, self.iceberg_namespace),
            ServedOperation(operations.ICEBERG_TABLES, self.iceberg_tables),
            ServedOperation(operations.ICEBERG_NAMESPACES_OF_EXPORTS, self.iceberg_namespaces),
            ServedOperation(operations.ICEBERG_NAMESPACE_OF_EXPORTS, self.iceberg_namespace),
            ServedOperation(operations.ICEBERG_TABLES_OF_EXPORTS, self.iceberg_tables),
            ServedOperation(operations.LOAD_ICEBERG_TABLE, self.load_iceberg_table),
            ServedOperation(operations.ICEBERG_CREDENTIALS, self.iceberg_credentials),
        )


def _page(request: Request, names: Sequence[str], tokens: PageTokens, scope: str) -> tuple[Sequence[str], str | None]:
    """Return the names on the requested page, and the token of the next one."""
    size = whole_number(request, "pageSize", _MAX_NAMES, 1, _MAX_NAMES)
    token = request.query_params.get("pageToken")
    if token:
        behind = tokens.read(token, _OF, scope, parameter="pageToken")
        names = [name for name in names if name.encode() > behind]
    page = names[:size]
    return page, tokens.write(page[-1].encode(), _OF, scope) if len(names) > size else None


_PLAN: Final = msgspec.json.Decoder(PlanTableScan)
_TASKS: Final = msgspec.json.Decoder(FetchScanTasks)
_REPORT: Final = msgspec.json.Decoder(dict[str, Any])


class IcebergScanRoutes:
    """Routes of scans.

    Plans are complete when they are answered, so the service keeps no state between two requests.
    """

    def __init__(
        self, *, catalog: Catalog, readers: Threads, lanes: Lanes, large_answers: LargeAnswers, scans: IcebergScans
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._lanes = lanes
        self._large_answers = large_answers
        self._scans = scans

    async def plan_table_scan(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        scans, agent = self._scans, request.headers.get("user-agent", "")
        return await self._answer(
            request,
            lambda record, max_tests: scans.plan(record, read_json(_PLAN, body), max_tests, user_agent=agent),
        )

    async def fetch_scan_tasks(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        scans = self._scans
        return await self._answer(
            request, lambda record, max_tests: scans.tasks(record, read_json(_TASKS, body).plan_task, max_tests)
        )

    async def fetch_plan(self, request: Request) -> Response:
        plan_id, scans = request.path_params["plan_id"], self._scans
        return await self._answer(request, lambda record, max_tests: scans.fetched(record, plan_id, max_tests))

    async def cancel_plan(self, request: Request) -> Response:
        plan_id = request.path_params["plan_id"]
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        await self._readers.run(lambda: self._scans.cancel(current_table(self._catalog, namespace, name), plan_id))
        return Response(None, 204)

    async def report_iceberg_metrics(self, request: Request) -> Response:
        require_json(request)
        read_json(_REPORT, await request.body())
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        await self._readers.run(lambda: current_table(self._catalog, namespace, name))
        return Response(None, 204)

    async def _answer(self, request: Request, call: Callable[[TableRecord, int | None], Iterator[bytes]]) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        wanted = ResponseFormat.of(request)

        def work(max_tests: int | None) -> BufferedResponse | StreamingResponse:
            return begin_streaming(JSON, call(current_table(self._catalog, namespace, name), max_tests))

        return await respond(await self._lanes.weighed(request, work), wanted, self._large_answers, request)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.PLAN_TABLE_SCAN, self.plan_table_scan, takes_own_slot=True),
            ServedOperation(operations.FETCH_SCAN_TASKS, self.fetch_scan_tasks, takes_own_slot=True),
            ServedOperation(operations.FETCH_PLAN, self.fetch_plan, takes_own_slot=True),
            ServedOperation(operations.CANCEL_PLAN, self.cancel_plan),
            ServedOperation(operations.REPORT_ICEBERG_METRICS, self.report_iceberg_metrics),
        )


#: What a token is, by RFC 8693, section 3.
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105  # a name, and no secret
_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_MAX_FIELDS: Final = 20
#: RFC 6749 (section 5.1) forbids caches to store it.
_NO_STORE: Final = {"Cache-Control": "no-store"}


class IcebergTokenRoutes:
    """Routes that issue tokens. ``clock`` returns Unix milliseconds."""

    def __init__(self, *, authentication: Authenticator, clock: Callable[[], int]) -> None:
        self._authentication = authentication
        self._clock = clock

    async def iceberg_token(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != operations.FORM:
            raise InvalidRequest(f"send the body as Content-Type: {operations.FORM}, not {kind or 'without one'}")
        fields = _fields(await request.body())
        grant = fields.get("grant_type")
        if grant == "client_credentials":
            shown = fields.get("client_secret") or _basic(request)
        elif grant == _EXCHANGE:
            shown = fields.get("subject_token")
        else:
            kind = "unsupported_grant_type"
            raise InvalidRequest("grant_type must be client_credentials, or a token exchange", oauth_error=kind)
        if not shown:
            raise InvalidRequest("client_secret (or subject_token) is missing: send an API key there")
        expires_ms = None
        if self._authentication.is_on:
            expires_ms = (await self._authentication.log_in(request, shown)).expires_ms
        time_left_s = msgspec.UNSET if expires_ms is None else max(0, (expires_ms - self._clock()) // 1000)
        answer = AccessToken(access_token=shown, issued_token_type=_ACCESS_TOKEN, expires_in=time_left_s)
        response = json_response(answer)
        response.headers.update(_NO_STORE)
        return response

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (ServedOperation(operations.ICEBERG_TOKEN, self.iceberg_token),)


def _fields(body: bytes) -> dict[str, str]:
    """Return the fields of a form. Raises InvalidRequest if it is not a form or repeats a field (RFC 6749, section
    3.2).
    """
    try:
        found = parse_qs(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError as error:
        raise InvalidRequest("the body is not a form") from error
    if any(len(values) > 1 for values in found.values()):
        raise InvalidRequest("the form repeats a field")
    return {name: values[0] for name, values in found.items()}


def _basic(request: Request) -> str | None:
    """Return the secret of HTTP Basic authentication, which is form-encoded first (RFC 6749, section 2.3.1)."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        _, _, secret = base64.b64decode(given.strip(), validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        return None
    return unquote_plus(secret)

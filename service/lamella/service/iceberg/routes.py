"""Routes of the Iceberg REST catalog: settings, namespaces, tables, tokens; scans.

The client secret is an API key (or a token of the issuer). The access token is the same text: it is valid for as long
and allows the same, so nothing has to be stored.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs, unquote_plus

import msgspec
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import Authenticator, principal_of, require_sight
from lamella.service.catalog import Catalog, TableRecord, current_table
from lamella.service.http.admission import read_json
from lamella.service.http.lanes import Lanes
from lamella.service.http.page_token import PageTokens
from lamella.service.http.responses import (
    NO_STORE,
    REVALIDATE,
    BufferedResponse,
    ResponseFormat,
    StreamingResponse,
    begin_streaming,
    entity_tag,
    has_tag,
    respond,
    tagged,
    tagged_by_content,
)
from lamella.service.http.routing import ServedOperation, json_response, require_json, whole_number
from lamella.service.http.streaming import LargeAnswers
from lamella.service.iceberg.exports import EXPORTS_CONFIG, EXPORTS_WAREHOUSE
from lamella.service.iceberg.hosted import HostedTables
from lamella.service.iceberg.scan_reports import ScanReports
from lamella.service.iceberg.scans import IcebergHistory, IcebergScans
from lamella.service.iceberg.storage_access import STAGED, Access, Caller, StorageAccess
from lamella.service.process.threads import Threads
from lamella.snapshot.errors import InvalidRequest, NamespaceNotFound
from lamella.snapshot.iceberg import operations
from lamella.snapshot.iceberg.table_metadata import with_snapshots_of_refs
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
    RequestToSign,
    ScanReport,
)
from lamella.snapshot.wire.operation import JSON

_NAMESPACE: Final = "/v1/{prefix}/namespaces/{namespace}"
_TABLE: Final = "/v1/{prefix}/namespaces/{namespace}/tables/{table}"
_VIEW: Final = "/v1/{prefix}/namespaces/{namespace}/views/{view}"
#: The served endpoints, in the specification's terms. Clients call no others.
ENDPOINTS: Final = (
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    f"GET {_NAMESPACE}",
    f"HEAD {_NAMESPACE}",
    f"DELETE {_NAMESPACE}",
    f"POST {_NAMESPACE}/properties",
    f"GET {_NAMESPACE}/tables",
    f"POST {_NAMESPACE}/tables",
    f"POST {_NAMESPACE}/register",
    "POST /v1/{prefix}/tables/rename",
    "POST /v1/{prefix}/transactions/commit",
    f"POST {_TABLE}",
    f"DELETE {_TABLE}",
    f"GET {_TABLE}",
    f"HEAD {_TABLE}",
    f"GET {_TABLE}/credentials",
    f"POST {_TABLE}/metrics",
    f"POST {_TABLE}/plan",
    f"GET {_TABLE}/plan/{{plan-id}}",
    f"DELETE {_TABLE}/plan/{{plan-id}}",
    f"POST {_TABLE}/tasks",
    f"GET {_NAMESPACE}/views",
    f"POST {_NAMESPACE}/views",
    f"POST {_NAMESPACE}/register-view",
    "POST /v1/{prefix}/views/rename",
    f"GET {_VIEW}",
    f"HEAD {_VIEW}",
    f"POST {_VIEW}",
    f"DELETE {_VIEW}",
)
#: Served if the settings say so.
SIGN_ENDPOINT: Final = f"POST {_TABLE}/sign"
#: pyiceberg 0.12 reads these here, not from a table's config; 0.11 uses a name of its own.
_SERVER_SIDE: Final = {"scan-planning-mode": "server", "rest-scan-planning-enabled": "true"}
_WITH_ROW_IDS: Final = 3
#: Tables with metadata files of clients may be planned by the clients.
_CLIENT_SIDE: Final = {"scan-planning-mode": "client", "rest-scan-planning-enabled": "false"}
_TO_SIGN: Final = msgspec.json.Decoder(RequestToSign)
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
        hosted: HostedTables,
        access: StorageAccess,
        properties: Mapping[str, str],
        idempotency_ttl_s: int,
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._page_tokens = page_tokens
        self._history = history
        self._hosted = hosted
        self._access = access
        self._properties = properties
        self._idempotency_ttl_s = idempotency_ttl_s

    async def iceberg_config(self, request: Request) -> Response:
        if request.query_params.get("warehouse") == EXPORTS_WAREHOUSE:
            return json_response(EXPORTS_CONFIG)
        config = IcebergConfig(
            defaults=dict(_SERVER_SIDE),  # which a client may change for tables with metadata files of clients
            overrides={},
            endpoints=(*ENDPOINTS, SIGN_ENDPOINT) if self._access.signs else ENDPOINTS,
            idempotency_key_lifetime=f"PT{self._idempotency_ttl_s}S",
        )
        return json_response(config)

    async def iceberg_namespaces(self, request: Request) -> Response:
        rights = principal_of(request).rights
        found = await self._readers.run(self._catalog.namespaces)
        names = {each.name for each in found if rights.sees(each.name)}
        parent = name_of_levels(request.query_params.get("parent", ""))
        if parent and not _is_namespace(parent, names):
            raise NamespaceNotFound(f"there is no namespace {parent!r}", namespace=parent)
        page, token = page_of(request, _below(parent, names), self._page_tokens, parent)
        return json_response(IcebergNamespaces(namespaces=tuple(map(levels_of, page)), next_page_token=token))

    async def iceberg_namespace(self, request: Request) -> Response:
        name = request.path_params["namespace"]
        require_sight(request, name)
        found = await self._readers.run(lambda: self._namespace(request, name))
        if request.method == "HEAD":
            return Response(None, 204)
        return json_response(IcebergNamespace(namespace=levels_of(name), properties=found))

    def _namespace(self, request: Request, name: str) -> dict[str, str]:
        """Return the properties of a namespace; one that others are in has none of its own, if nobody created it."""
        try:
            return dict(self._catalog.namespace(name).properties)
        except NamespaceNotFound:
            rights = principal_of(request).rights
            if any(each.name.startswith(f"{name}.") and rights.sees(each.name) for each in self._catalog.namespaces()):
                return {}
            raise

    async def iceberg_tables(self, request: Request) -> Response:
        namespace = request.path_params["namespace"]
        rights = require_sight(request, namespace).rights

        def listed() -> Sequence[str]:
            self._namespace(request, namespace)
            try:
                return rights.readable(namespace, self._catalog.tables(namespace))
            except NamespaceNotFound:
                return ()

        names = await self._readers.run(listed)
        page, token = page_of(request, names, self._page_tokens, namespace)
        identifiers = tuple(IcebergIdentifier(namespace=levels_of(namespace), name=name) for name in page)
        return json_response(IcebergTables(identifiers=identifiers, next_page_token=token))

    async def load_iceberg_table(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        which = request.query_params.get("snapshots", "all")
        if which not in ("all", "refs"):
            raise InvalidRequest(f"snapshots must be all or refs, not {which!r}", parameter="snapshots")
        if request.method == "HEAD":
            await self._readers.run(lambda: current_table(self._catalog, namespace, name))
            return Response(None, 204)

        caller = Caller.of(request, namespace, name)

        def work() -> Response:
            record = current_table(self._catalog, namespace, name)
            table = self._hosted.table(record)
            if table is None:
                loaded = self._own(record, which, self._access.to(caller, record.main_id, lambda: None))
                return tagged_by_content(request, msgspec.json.encode(loaded), _cache_of(loaded))
            access = self._access.to(
                caller, record.main_id, partial(self._hosted.metadata, table.location), table.location
            )
            tag = self.tag(table.location, access, which)
            if has_tag(request, tag):
                return tagged(request, tag, b"", NO_STORE if access.credentials else REVALIDATE)
            metadata = self._hosted.metadata(table.location, from_store=True)
            if which == "refs":
                metadata = with_snapshots_of_refs(metadata)
            loaded = self.loaded(table.location, metadata, access, planned=table.is_registered)
            return tagged(request, tag, msgspec.json.encode(loaded), _cache_of(loaded))

        return await self._readers.run(work)

    def _own(self, record: TableRecord, which: str, access: Access) -> LoadedTable:
        """Return the answer of a table that Iceberg clients do not commit to."""
        return LoadedTable(
            # Java's client reads the size when it reads a table's metadata tables, and does not open it.
            metadata_location=record.pointer.manifest.location,
            metadata=self._history.metadata(record, only_refs=which == "refs"),
            config={**_SERVER_SIDE, **self._properties, **access.config},
            storage_credentials=access.credentials,
        )

    def tag(self, location: str, access: Access, which: str = "all") -> str:
        """Return the ETag of a table with that metadata file, whose answer has the ``which`` snapshots."""
        config = msgspec.json.encode({**self._properties, **access.config}, order="sorted").decode()
        return entity_tag(location, which, config)

    def loaded(
        self, location: str | None, metadata: dict[str, Any], access: Access, *, planned: bool = False
    ) -> LoadedTable:
        """Return the answer of a table that Iceberg clients commit to. ``planned``: blocks know its files.

        Tables of format version 3 are planned by the clients: Iceberg's Java library (1.12) does not take the sequence
        number of a file from a plan, so the last changes of rows would be unknown, and lost when it moves rows.
        """
        side = _SERVER_SIDE if planned and metadata["format-version"] < _WITH_ROW_IDS else _CLIENT_SIDE
        return LoadedTable(
            metadata_location=location,
            metadata=metadata,
            config={**side, **self._properties, **access.config},
            storage_credentials=access.credentials,
        )

    def answer(self, loaded: LoadedTable, access: Access) -> Response:
        """Return the response to a request that created a table."""
        response = json_response(loaded)
        response.headers["Cache-Control"] = _cache_of(loaded)
        if loaded.metadata_location is not None:
            response.headers["ETag"] = self.tag(loaded.metadata_location, access)
        return response

    async def iceberg_credentials(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        caller = Caller.of(request, namespace, name)

        def work() -> Credentials:
            found = self._access.credentials(caller, current_table(self._catalog, namespace, name))
            return Credentials(storage_credentials=found)

        response = json_response(await self._readers.run(work))
        response.headers["Cache-Control"] = NO_STORE
        return response

    async def sign_iceberg_request(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        caller, staged = Caller.of(request, namespace, name), request.query_params.get(STAGED)
        signed = await self._readers.run(lambda: self._access.sign(caller, read_json(_TO_SIGN, body), staged))
        response = json_response(signed)
        response.headers["Cache-Control"] = f"no-cache, {NO_STORE}"  # clients of the specification read the first
        return response

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
            ServedOperation(operations.SIGN_ICEBERG_REQUEST, self.sign_iceberg_request),
        )


def _cache_of(loaded: LoadedTable) -> str:
    """Return how an answer may be cached."""
    return NO_STORE if loaded.storage_credentials else REVALIDATE


#: Between the levels of a namespace in a path, by the specification. Names of Lamella have dots there.
_LEVEL: Final = "\x1f"


def levels_of(name: str) -> tuple[str, ...]:
    """Return the levels of a namespace."""
    return tuple(name.split("."))


def name_of_levels(text: str) -> str:
    """Return the name of a namespace from its form in a path or a query."""
    return text.replace(_LEVEL, ".")


def name_of(levels: Sequence[str]) -> str:
    """Return the name of a namespace. Raises InvalidRequest for a level that is empty or has a dot."""
    if not levels or not all(levels) or any("." in each for each in levels):
        raise InvalidRequest("the levels of a namespace are not empty, and contain no dots")
    return ".".join(levels)


def _is_namespace(name: str, names: Iterable[str]) -> bool:
    return any(each == name or each.startswith(f"{name}.") for each in names)


def _below(parent: str, names: Iterable[str]) -> list[str]:
    """Return the namespaces one level below ``parent`` (empty: at the top), in order."""
    depth = len(levels_of(parent)) if parent else 0
    prefix = f"{parent}." if parent else ""
    return sorted({".".join(levels_of(each)[: depth + 1]) for each in names if each.startswith(prefix)})


class LevelsConvertor(StringConvertor):
    """A path parameter with a namespace of several levels."""

    def convert(self, value: str) -> str:
        """Return the name of the namespace."""
        return name_of_levels(value)


register_url_convertor("levels", LevelsConvertor())


def page_of(request: Request, names: Sequence[str], tokens: PageTokens, scope: str) -> tuple[Sequence[str], str | None]:
    """Return the names on the requested page, and the token of the next one.

    A client that sends no ``pageToken``, not even an empty one, does not know of pages and gets all names.
    """
    size = whole_number(request, "pageSize", _MAX_NAMES, 1, _MAX_NAMES)
    token = request.query_params.get("pageToken")
    if token is None:
        return names, None
    if token:
        behind = tokens.read(token, _OF, scope, parameter="pageToken")
        names = [name for name in names if name.encode() > behind]
    page = names[:size]
    return page, tokens.write(page[-1].encode(), _OF, scope) if len(names) > size else None


_PLAN: Final = msgspec.json.Decoder(PlanTableScan)
_TASKS: Final = msgspec.json.Decoder(FetchScanTasks)
_REPORT: Final = msgspec.json.Decoder(ScanReport)


class IcebergScanRoutes:
    """Routes of scans.

    Plans are complete when they are answered, so the service keeps no state between two requests.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        readers: Threads,
        lanes: Lanes,
        large_answers: LargeAnswers,
        scans: IcebergScans,
        reports: ScanReports,
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._lanes = lanes
        self._large_answers = large_answers
        self._scans = scans
        self._reports = reports

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
        report, reports = read_json(_REPORT, await request.body()), self._reports
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        await self._readers.run(lambda: reports.note(current_table(self._catalog, namespace, name), report))
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
        response.headers["Cache-Control"] = NO_STORE  # RFC 6749, section 5.1
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

"""Routes of Delta Sharing: shares, and a table's version, metadata and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import Principal, principal_of, require_sight
from lamella.service.catalog import Catalog, TableRecord, current_table
from lamella.service.http.admission import read_json
from lamella.service.http.lanes import Lanes
from lamella.service.http.page_token import PageTokens
from lamella.service.http.responses import BufferedResponse, ResponseFormat, StreamingResponse, begin_streaming, respond
from lamella.service.http.routing import (
    ServedOperation,
    json_response,
    require_json,
    whole_number,
)
from lamella.service.http.streaming import LargeAnswers
from lamella.service.process.threads import Threads
from lamella.service.sharing.sharing import SHARE_NAME, SharedAnswer, Sharing, no_changes, require_share
from lamella.service.sharing.sharing import SHARE_NAME as THE_SHARE
from lamella.snapshot.errors import NamespaceNotFound
from lamella.snapshot.sharing import operations
from lamella.snapshot.sharing.answers import (
    ShareAnswer,
    SharedSchema,
    SharedSchemaList,
    SharedShare,
    SharedTable,
    SharedTableList,
    ShareList,
)
from lamella.snapshot.sharing.requests import CAPABILITIES, VERSION, Capabilities, ShareQuery
from lamella.snapshot.wire.operation import NDJSON

_OF: Final = "this listing"
_SHARE: Final = SharedShare(name=THE_SHARE)


class ShareRoutes:
    """Routes that list shares, schemas and tables; each recipient sees its own."""

    def __init__(self, *, catalog: Catalog, readers: Threads, page_tokens: PageTokens) -> None:
        self._catalog = catalog
        self._readers = readers
        self._page_tokens = page_tokens

    async def list_shares(self, request: Request) -> Response:
        del request
        return json_response(ShareList(items=(_SHARE,)))

    async def get_share(self, request: Request) -> Response:
        require_share(request.path_params["share"])
        return json_response(ShareAnswer(share=_SHARE))

    async def list_shared_schemas(self, request: Request) -> Response:
        require_share(request.path_params["share"])
        rights, after = principal_of(request).rights, self._after(request, "schemas")
        infos = await self._readers.run(self._catalog.namespaces)
        names = sorted(each.name for each in infos if rights.sees(each.name))
        found, token = self._page((name for name in names if name > after), _max_results(request), "schemas")
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
        after, max_names = self._after(request, scope), _max_results(request)

        def work() -> SharedTableList:
            names = (name for name in self._readable(principal, namespace) if name > after)
            found, token = self._page(names, max_names, scope)
            return _tables(((namespace, name) for name in found), token)

        return json_response(await self._readers.run(work))

    async def list_all_shared_tables(self, request: Request) -> Response:
        require_share(request.path_params["share"])
        principal, max_names = principal_of(request), _max_results(request)
        first, _, after = self._after(request, "all tables").partition("/")

        def work() -> SharedTableList:
            infos = self._catalog.namespaces()
            names = sorted(each.name for each in infos if principal.rights.sees(each.name) and each.name >= first)
            qualified_names = (
                f"{namespace}/{name}"
                for namespace in names
                for name in self._readable(principal, namespace)
                if namespace > first or name > after
            )
            found, token = self._page(qualified_names, max_names, "all tables")
            return _tables(((namespace, name) for namespace, _, name in (each.partition("/") for each in found)), token)

        return json_response(await self._readers.run(work))

    def _page(self, names: Iterable[str], max_names: int, scope: str) -> tuple[list[str], str | None]:
        """Return the first ``max_names`` names, and the token for the others."""
        found: list[str] = []
        for name in names:
            if len(found) == max_names:
                return found, self._page_tokens.write(found[-1].encode(), _OF, scope)
            found.append(name)
        return found, None

    def _after(self, request: Request, scope: str) -> str:
        """Return the last name of the previous page; empty for the first page. Raises InvalidPageToken."""
        token = request.query_params.get("pageToken")
        if token is None:
            return ""
        return self._page_tokens.read(token, _OF, scope, parameter="pageToken").decode("utf-8", "replace")

    def _readable(self, principal: Principal, namespace: str) -> list[str]:
        """Return the tables of a namespace that the principal may read, by name."""
        try:
            names = self._catalog.tables(namespace)
        except NamespaceNotFound:
            if principal.rights.sees(namespace):
                return []  # it was dropped a moment ago
            raise
        return sorted(name for name in names if principal.rights.may("read", namespace, name))

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.LIST_SHARES, self.list_shares),
            ServedOperation(operations.GET_SHARE, self.get_share),
            ServedOperation(operations.LIST_SHARED_SCHEMAS, self.list_shared_schemas),
            ServedOperation(operations.LIST_SHARED_TABLES, self.list_shared_tables),
            ServedOperation(operations.LIST_ALL_SHARED_TABLES, self.list_all_shared_tables),
        )


def _tables(table_names: Iterable[tuple[str, str]], token: str | None) -> SharedTableList:
    items = tuple(SharedTable(name=name, schema=namespace, share=THE_SHARE) for namespace, name in table_names)
    return SharedTableList(items=items, next_page_token=token)


def _max_results(request: Request) -> int:
    return min(whole_number(request, "maxResults", operations.MAX_ITEMS, 1, 1_000_000), operations.MAX_ITEMS)


_QUERY: Final = msgspec.json.Decoder(ShareQuery)
_LATEST: Final = (1 << 62) - 1


class SharedTableRoutes:
    """Routes of one table, for recipients."""

    def __init__(
        self, *, catalog: Catalog, readers: Threads, lanes: Lanes, large_answers: LargeAnswers, sharing: Sharing
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._lanes = lanes
        self._large_answers = large_answers
        self._sharing = sharing

    async def get_shared_table(self, request: Request) -> Response:
        namespace, name = _shared_table(request)
        record = await self._readers.run(lambda: current_table(self._catalog, namespace, name))
        response = json_response(SharedTable(name=name, schema=namespace, share=SHARE_NAME))
        response.headers[VERSION] = str(record.version)
        return response

    async def shared_table_version(self, request: Request) -> Response:
        namespace, name = _shared_table(request)
        starting = request.query_params.get("startingTimestamp")

        def work() -> int:
            return self._sharing.version(current_table(self._catalog, namespace, name), starting)

        version = await self._readers.run(work)
        return Response(None, headers={VERSION: str(version)}, media_type=NDJSON)

    async def shared_table_metadata(self, request: Request) -> Response:
        timestamp = request.query_params.get("timestamp")
        version = None
        if "version" in request.query_params:
            version = whole_number(request, "version", 0, 0, _LATEST)
        able, sharing = _able(request), self._sharing
        return await self._answer(
            request, lambda record, _: sharing.metadata(record, able, version=version, timestamp=timestamp)
        )

    async def query_shared_table(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        able, sharing = _able(request), self._sharing
        return await self._answer(
            request,
            lambda record, max_tests: sharing.query(record, read_json(_QUERY, body), able, max_tests),
            is_secret=True,
        )

    async def shared_table_changes(self, request: Request) -> Response:
        _shared_table(request)
        raise no_changes()

    async def _answer(
        self, request: Request, call: Callable[[TableRecord, int | None], SharedAnswer], *, is_secret: bool = False
    ) -> Response:
        (namespace, name), wanted = _shared_table(request), ResponseFormat.of(request)
        able = _able(request)

        def work(max_tests: int | None) -> tuple[SharedAnswer, BufferedResponse | StreamingResponse]:
            answer = call(current_table(self._catalog, namespace, name), max_tests)
            return answer, begin_streaming(NDJSON, answer.lines, is_secret=is_secret)

        answer, made = await self._lanes.weighed(request, work)
        headers = {VERSION: str(answer.version), CAPABILITIES: able.header(answer.form)}
        response = await respond(made, wanted, self._large_answers, request)
        response.headers.update(headers)
        return response

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.GET_SHARED_TABLE, self.get_shared_table),
            ServedOperation(operations.SHARED_TABLE_VERSION, self.shared_table_version),
            ServedOperation(operations.SHARED_TABLE_METADATA, self.shared_table_metadata, takes_own_slot=True),
            ServedOperation(operations.QUERY_SHARED_TABLE, self.query_shared_table, takes_own_slot=True),
            ServedOperation(operations.SHARED_TABLE_CHANGES, self.shared_table_changes),
        )


def _shared_table(request: Request) -> tuple[str, str]:
    """Return the table in the path. Raises NotFound for an unknown share."""
    named = request.path_params
    require_share(named["share"])
    return named["namespace"], named["table"]


def _able(request: Request) -> Capabilities:
    return Capabilities.of(request.headers.get(CAPABILITIES))

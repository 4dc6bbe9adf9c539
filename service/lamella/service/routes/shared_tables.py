"""``/delta-sharing/.../tables/{table}``: a table's version, what it looks like, and its files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.answers import NDJSON, Begun, Wanted, Whole, begun, respond
from lamella.service.api import Operation, Parameter, json_response, require_json, whole_number
from lamella.service.catalog import TableRecord
from lamella.service.json_body import read_json
from lamella.service.routes.failures import OF_A_SNAPSHOT
from lamella.service.routes.paths import SHARED_TABLE
from lamella.service.services import Services
from lamella.service.sharing import SHARE, SharedAnswer, no_changes, require_share
from lamella.snapshot.errors import (
    InvalidPageToken,
    InvalidRequest,
    LimitExceeded,
    LocationRefused,
    NamespaceNotFound,
    NotExpressible,
    NotFound,
    NotSignable,
    Overloaded,
    SnapshotNotFound,
    TableNotFound,
)
from lamella.snapshot.sharing.asked import CAPABILITIES, VERSION, Capabilities, ShareQuery
from lamella.snapshot.sharing.items import SharedTable

_QUERY: Final = msgspec.json.Decoder(ShareQuery)
_LATEST: Final = (1 << 62) - 1
_ABLE: Final = Parameter(
    name=CAPABILITIES,
    place="header",
    description="What the recipient reads, as `responseformat=delta,parquet;readerfeatures=timestampntz;"
    "includeEndStreamAction=true`; `responseformat=parquet` when not given.",
)
_NO_TABLE: Final = (NotFound, NamespaceNotFound, TableNotFound)


class SharedTableRoutes:
    """Answer the questions of recipients about one table."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def get_shared_table(self, request: Request) -> Response:
        namespace, name = _place(request)
        record = await self._services.read(lambda: self._services.table(namespace, name))
        response = json_response(SharedTable(name=name, schema=namespace, share=SHARE))
        response.headers[VERSION] = str(record.version)
        return response

    async def shared_table_version(self, request: Request) -> Response:
        namespace, name = _place(request)
        services, starting = self._services, request.query_params.get("startingTimestamp")
        version = await services.read(lambda: services.sharing.version(services.table(namespace, name), starting))
        return Response(None, headers={VERSION: str(version)}, media_type=NDJSON)

    async def shared_table_metadata(self, request: Request) -> Response:
        timestamp = request.query_params.get("timestamp")
        version = None
        if "version" in request.query_params:
            version = whole_number(request, "version", 0, 0, _LATEST)
        able, sharing = _able(request), self._services.sharing
        return await self._answer(
            request, lambda record, _: sharing.metadata(record, able, version=version, timestamp=timestamp)
        )

    async def query_shared_table(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        able, sharing = _able(request), self._services.sharing
        return await self._answer(
            request,
            lambda record, most_tests: sharing.query(record, read_json(_QUERY, body), able, most_tests),
            is_secret=True,
        )

    async def shared_table_changes(self, request: Request) -> Response:
        _place(request)
        raise no_changes()

    async def _answer(
        self, request: Request, ask: Callable[[TableRecord, int | None], SharedAnswer], *, is_secret: bool = False
    ) -> Response:
        (namespace, name), services, wanted = _place(request), self._services, Wanted.of(request)
        able = _able(request)

        def work(most_tests: int | None) -> tuple[SharedAnswer, Whole | Begun]:
            answer = ask(services.table(namespace, name), most_tests)
            return answer, begun(NDJSON, answer.lines, is_secret=is_secret)

        answer, made = await services.weighed(request, work)
        headers = {VERSION: str(answer.version), CAPABILITIES: able.header(answer.form)}
        response = await respond(made, wanted, services.large_answers, request)
        response.headers.update(headers)
        return response

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="GET",
                path=SHARED_TABLE,
                handler=self.get_shared_table,
                needs=on_table("read"),
                summary="Look at a shared table",
                tag="Delta Sharing",
                description=f"The header `{VERSION}` has its version; older recipients ask so with HEAD.",
                answer_type=SharedTable,
                errors=_NO_TABLE,
            ),
            Operation(
                method="GET",
                path=SHARED_TABLE + "/version",
                handler=self.shared_table_version,
                needs=on_table("read"),
                summary="Which version a shared table has",
                tag="Delta Sharing",
                description=f"In the header `{VERSION}`.",
                parameters=(
                    Parameter(
                        name="startingTimestamp",
                        description="The first version of then or later: ISO 8601, UTC without a zone.",
                    ),
                ),
                media_type=NDJSON,
                errors=(*_NO_TABLE, InvalidRequest, SnapshotNotFound),
            ),
            Operation(
                method="GET",
                path=SHARED_TABLE + "/metadata",
                handler=self.shared_table_metadata,
                takes_own_place=True,
                needs=on_table("read"),
                summary="What a shared table looks like",
                tag="Delta Sharing",
                description="Lines of JSON: what reading it takes, and its columns.",
                parameters=(
                    Parameter(name="version", description="At this version.", schema={"type": "integer", "minimum": 0}),
                    Parameter(name="timestamp", description="As it was then: ISO 8601, UTC without a zone."),
                    _ABLE,
                ),
                media_type=NDJSON,
                errors=(NotFound, *OF_A_SNAPSHOT, NotExpressible),
            ),
            Operation(
                method="POST",
                path=SHARED_TABLE + "/query",
                handler=self.query_shared_table,
                takes_own_place=True,
                needs=on_table("read"),
                changes=False,
                summary="Which files of a shared table hold what is asked for",
                tag="Delta Sharing",
                description="Lines of JSON: as the metadata, then each file with a URL that reads it without "
                "credentials for a time. A file that holds a row which a recipient may find to match the hints is "
                "always among them.",
                is_question=True,
                is_large=True,
                request_type=ShareQuery,
                parameters=(_ABLE,),
                media_type=NDJSON,
                errors=(
                    NotFound,
                    *OF_A_SNAPSHOT,
                    InvalidPageToken,
                    NotExpressible,
                    LimitExceeded,
                    LocationRefused,
                    NotSignable,
                    Overloaded,
                ),
            ),
            Operation(
                method="GET",
                path=SHARED_TABLE + "/changes",
                handler=self.shared_table_changes,
                needs=on_table("read"),
                summary="Changes of a shared table (refused)",
                tag="Delta Sharing",
                description="Changes between versions are not shared.",
                media_type=NDJSON,
                errors=(*_NO_TABLE, NotExpressible),
            ),
        )


def _place(request: Request) -> tuple[str, str]:
    """The table that the path names; raises NotFound for another share than there is."""
    named = request.path_params
    require_share(named["share"])
    return named["namespace"], named["table"]


def _able(request: Request) -> Capabilities:
    return Capabilities.of(request.headers.get(CAPABILITIES))

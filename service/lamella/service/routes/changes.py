"""``.../changes``: the blocks that came and went after a snapshot."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.answers import respond_json
from lamella.service.api import Operation, Parameter, truth, whole_number
from lamella.service.changes import MAX_SNAPSHOTS, ChangesQuery
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.service.state import instant_of
from lamella.snapshot.errors import (
    FilterTypeMismatch,
    InvalidFilter,
    InvalidPageToken,
    InvalidRequest,
    LimitExceeded,
    ManifestError,
    NamespaceNotFound,
    NotAppendOnly,
    SnapshotExpired,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
    UnknownColumn,
)
from lamella.snapshot.wire import ChangesAnswer

_DEFAULT_PAGE: Final = 10_000
_LARGEST_PAGE: Final = 1_000_000
_ENCODER: Final = msgspec.json.Encoder()
_FLAG: Final = {"type": "boolean"}


class ChangesRoutes:
    """For readers who want what is new."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def changes(self, request: Request) -> Response:
        query = _query(request, self._services.settings.answer_blocks_max)
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> bytes:
            table = self._services.table(namespace, name)
            return _ENCODER.encode(self._services.changes.page(table, query))

        return await respond_json(await self._services.read(work), self._services.large_answers, request)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        snapshots = "Unix milliseconds, or ISO 8601 text; without a zone it is in `time_zone`."
        return (
            Operation(
                method="GET",
                path=TABLE + "/changes",
                handler=self.changes,
                needs=on_table("read"),
                summary="Ask which blocks came and went after a snapshot",
                tag="History",
                description="Snapshot by snapshot, oldest first, those that may match the filter; names and types are "
                "those of the last snapshot. One page looks at no more than "
                f"{MAX_SNAPSHOTS} snapshots. All pages are of the snapshots of the first one.",
                answer_type=ChangesAnswer,
                parameters=(
                    Parameter(name="since", description="A snapshot's id, or a tag. Its own blocks are not answered."),
                    Parameter(name="since_timestamp", description="The same by time. " + snapshots),
                    Parameter(name="until", description="A snapshot's id, or a tag; by default the current one."),
                    Parameter(name="until_timestamp", description="The same by time. " + snapshots),
                    Parameter(name="filter", description="SQL text in Spark's dialect, or a JSON tree as text."),
                    Parameter(name="columns", description='Columns, as a JSON list, for `column_size_bytes`: `["a"]`.'),
                    Parameter(
                        name="net",
                        description="The difference of the two ends: blocks that came and went in between are left "
                        "out, and so are the snapshots in between, which may have expired.",
                        schema=_FLAG,
                    ),
                    Parameter(
                        name="append_only",
                        description="Refuse where blocks were removed; what came before that is answered first.",
                        schema=_FLAG,
                    ),
                    Parameter(name="time_zone", description="For times without one; `UTC` when not given."),
                    Parameter(
                        name="case_sensitive", description="Tell apart columns that differ in case.", schema=_FLAG
                    ),
                    Parameter(
                        name="page_size",
                        description=f"Blocks in one answer; {_DEFAULT_PAGE} when not given, and never more than the "
                        "setting `answer_blocks_max`.",
                        schema={"type": "integer", "minimum": 1, "maximum": _LARGEST_PAGE},
                    ),
                    Parameter(name="page_token", description="`next_page_token` of the answer before."),
                ),
                errors=(
                    InvalidRequest,
                    InvalidFilter,
                    FilterTypeMismatch,
                    UnknownColumn,
                    LimitExceeded,
                    InvalidPageToken,
                    NamespaceNotFound,
                    TableNotFound,
                    SnapshotNotFound,
                    SnapshotExpired,
                    NotAppendOnly,
                    ManifestError,
                    StoreError,
                ),
            ),
        )


def _query(request: Request, most_blocks: int) -> ChangesQuery:
    given = request.query_params
    return ChangesQuery(
        since=given.get("since"),
        since_timestamp=_time(given.get("since_timestamp")),
        until=given.get("until"),
        until_timestamp=_time(given.get("until_timestamp")),
        filter=_filter(given.get("filter")),
        columns=_columns(given.get("columns")),
        net=truth(request, "net"),
        append_only=truth(request, "append_only"),
        time_zone=given.get("time_zone", "UTC"),
        case_sensitive=truth(request, "case_sensitive"),
        page_size=min(whole_number(request, "page_size", _DEFAULT_PAGE, 1, _LARGEST_PAGE), most_blocks),
        page_token=given.get("page_token"),
    )


def _time(text: str | None) -> int | str | None:
    return None if text is None else instant_of(text)


def _filter(text: str | None) -> Any:
    """A filter as of bodies: no SQL begins with a brace."""
    if text is None or not text.lstrip().startswith("{"):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise InvalidFilter(f"the filter is no JSON: {error}") from error


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=tuple[str, ...])
    except msgspec.MsgspecError as error:
        raise InvalidRequest('columns is a JSON list of names: ["a", "b"]', parameter="columns") from error

"""``.../tags``: names for snapshots."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.api import IDEMPOTENCY_KEY, Operation, json_response, require_json
from lamella.service.idempotency import Claim, Sealed
from lamella.service.json_body import read_json
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.snapshot.errors import (
    AlreadyExists,
    BodyTooLarge,
    IdempotencyMismatch,
    InvalidRequest,
    NamespaceNotFound,
    OutcomeUnknown,
    SnapshotExpired,
    SnapshotNotFound,
    TableNotFound,
    TagNotFound,
    Unavailable,
)
from lamella.snapshot.wire import TagInfo, TagList, TagRequest

_PUT: Final = msgspec.json.Decoder(TagRequest)


class TagRoutes:
    """List, make, move and drop tags."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list_tags(self, request: Request) -> Response:
        services = self._services
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        return json_response(await services.read(lambda: services.tags.list(services.catalog.table(namespace, name))))

    async def put_tag(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work(claim: Claim) -> Sealed:
            asked = read_json(_PUT, body)
            return self._services.tags.put(self._services.catalog.table(namespace, name), asked, claim)

        return await self._services.mutate(request, work, body)

    async def drop_tag(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        tag = request.path_params["tag"]

        def work(claim: Claim) -> Sealed:
            return self._services.tags.drop(self._services.catalog.table(namespace, name), tag, claim)

        return await self._services.mutate(request, work)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        missing = (NamespaceNotFound, TableNotFound)
        trouble = (IdempotencyMismatch, Unavailable, OutcomeUnknown)
        return (
            Operation(
                method="GET",
                path=TABLE + "/tags",
                handler=self.list_tags,
                needs=on_table("read"),
                summary="List the tags of a table",
                tag="History",
                answer_type=TagList,
                errors=missing,
            ),
            Operation(
                method="POST",
                path=TABLE + "/tags",
                handler=self.put_tag,
                needs=on_table("write"),
                summary="Tag a snapshot, or move a tag",
                tag="History",
                description="Wherever a snapshot is named by its id, a tag can stand instead. As long as the tag is "
                "alive its snapshot does not expire. A tag that is there is moved only with `move`, which is answered "
                "with status 200.",
                request_type=TagRequest,
                answer_type=TagInfo,
                status=201,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(
                    InvalidRequest,
                    BodyTooLarge,
                    *missing,
                    SnapshotNotFound,
                    SnapshotExpired,
                    TagNotFound,
                    AlreadyExists,
                    *trouble,
                ),
            ),
            Operation(
                method="DELETE",
                path=TABLE + "/tags/{tag}",
                handler=self.drop_tag,
                needs=on_table("write"),
                summary="Drop a tag",
                tag="History",
                description="The snapshot stays, as long as the retention of the table lets it.",
                status=204,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(*missing, TagNotFound, *trouble),
            ),
        )

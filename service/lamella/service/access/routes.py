"""Routes of ``/v1/whoami``, ``/v1/keys`` and ``/v1/grants``."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import principal_of
from lamella.service.access.administration import AccessAdministration
from lamella.service.http.admission import read_json
from lamella.service.http.routing import ServedOperation, json_response, require_json
from lamella.service.process.threads import Threads
from lamella.service.usage.audit import about
from lamella.snapshot.tokens import unspelt
from lamella.snapshot.wire import CreateKey, GrantRequest, RotateKey
from lamella.snapshot.wire.operations import access as operations

_CREATE: Final = msgspec.json.Decoder(CreateKey)
_ROTATE: Final = msgspec.json.Decoder(RotateKey)
_GRANT: Final = msgspec.json.Decoder(GrantRequest)


class AccessRoutes:
    """Routes for keys and grants. They take no Idempotency-Key, because answers with a key's text are not stored."""

    def __init__(self, *, readers: Threads, administration: AccessAdministration) -> None:
        self._readers = readers
        self._administration = administration

    async def whoami(self, request: Request) -> Response:
        return json_response(principal_of(request).described())

    async def list_keys(self, request: Request) -> Response:
        by = principal_of(request)
        return json_response(await self._readers.run(lambda: self._administration.keys(by)))

    async def create_key(self, request: Request) -> Response:
        require_json(request)
        payload = read_json(_CREATE, await request.body())
        about(request, f"key:{unspelt(payload.name)}")
        by = principal_of(request)
        made = await self._readers.run(lambda: self._administration.create_key(by, payload))
        return _no_store(json_response(made, 201))

    async def get_key(self, request: Request) -> Response:
        by, name = principal_of(request), request.path_params["key"]
        return json_response(await self._readers.run(lambda: self._administration.key(by, name)))

    async def rotate_key(self, request: Request) -> Response:
        require_json(request)
        payload = read_json(_ROTATE, await request.body())
        by, name = principal_of(request), request.path_params["key"]
        about(request, f"key:{unspelt(name)}")
        made = await self._readers.run(lambda: self._administration.rotate_key(by, name, payload))
        return _no_store(json_response(made))

    async def revoke_key(self, request: Request) -> Response:
        by, name = principal_of(request), request.path_params["key"]
        about(request, f"key:{unspelt(name)}")
        await self._readers.run(lambda: self._administration.revoke_key(by, name))
        return Response(status_code=204)

    async def list_grants(self, request: Request) -> Response:
        by, principal = principal_of(request), request.query_params.get("principal")
        return json_response(await self._readers.run(lambda: self._administration.grants(by, principal)))

    async def give_grant(self, request: Request) -> Response:
        payload = await self._grant(request)
        by = principal_of(request)
        return json_response(await self._readers.run(lambda: self._administration.give(by, payload)))

    async def take_grant(self, request: Request) -> Response:
        payload = await self._grant(request)
        by = principal_of(request)
        await self._readers.run(lambda: self._administration.take(by, payload))
        return Response(status_code=204)

    async def _grant(self, request: Request) -> GrantRequest:
        require_json(request)
        payload = read_json(_GRANT, await request.body())
        scope = ".".join(filter(None, (payload.namespace, payload.table))) or "*"
        about(request, f"{unspelt(payload.principal)}={payload.role}@{scope}")
        return payload

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.WHOAMI, self.whoami),
            ServedOperation(operations.LIST_KEYS, self.list_keys),
            ServedOperation(operations.CREATE_KEY, self.create_key),
            ServedOperation(operations.GET_KEY, self.get_key),
            ServedOperation(operations.ROTATE_KEY, self.rotate_key),
            ServedOperation(operations.REVOKE_KEY, self.revoke_key),
            ServedOperation(operations.LIST_GRANTS, self.list_grants),
            ServedOperation(operations.GIVE_GRANT, self.give_grant),
            ServedOperation(operations.TAKE_GRANT, self.take_grant),
        )


def _no_store(response: Response) -> Response:
    """Forbid caches to store an answer that contains a secret."""
    response.headers["Cache-Control"] = "no-store"
    return response

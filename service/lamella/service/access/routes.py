"""``/v1/whoami``, ``/v1/keys`` and ``/v1/grants``: who may do what."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import ANYBODY, principal_of
from lamella.service.http.admission import read_json
from lamella.service.http.routing import Operation, Parameter, json_response, require_json
from lamella.service.services import Services
from lamella.service.usage.audit import about
from lamella.snapshot.errors import (
    AlreadyExists,
    BodyTooLarge,
    InvalidRequest,
    KeyNotFound,
    NamespaceNotFound,
    PermissionDenied,
    TableNotFound,
    Unavailable,
)
from lamella.snapshot.tokens import unspelt
from lamella.snapshot.wire import (
    CreateKey,
    GrantInfo,
    GrantList,
    GrantRequest,
    KeyInfo,
    KeyList,
    NewKey,
    RotateKey,
    WhoAmI,
)

_KEYS: Final = "/v1/keys"
_KEY: Final = "/v1/keys/{key}"
_GRANTS: Final = "/v1/grants"
_TAG: Final = "Access"
_CREATE: Final = msgspec.json.Decoder(CreateKey)
_ROTATE: Final = msgspec.json.Decoder(RotateKey)
_GRANT: Final = msgspec.json.Decoder(GrantRequest)


class AccessRoutes:
    """Keys and grants. An answer with a key's text is not stored, so none of these takes an Idempotency-Key."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def whoami(self, request: Request) -> Response:
        return json_response(principal_of(request).described())

    async def list_keys(self, request: Request) -> Response:
        by = principal_of(request)
        return json_response(await self._services.read(lambda: self._services.administration.keys(by)))

    async def create_key(self, request: Request) -> Response:
        require_json(request)
        asked = read_json(_CREATE, await request.body())
        about(request, f"key:{unspelt(asked.name)}")
        by = principal_of(request)
        made = await self._services.read(lambda: self._services.administration.create_key(by, asked))
        return _unkept(json_response(made, 201))

    async def get_key(self, request: Request) -> Response:
        by, name = principal_of(request), request.path_params["key"]
        return json_response(await self._services.read(lambda: self._services.administration.key(by, name)))

    async def rotate_key(self, request: Request) -> Response:
        require_json(request)
        asked = read_json(_ROTATE, await request.body())
        by, name = principal_of(request), request.path_params["key"]
        about(request, f"key:{unspelt(name)}")
        made = await self._services.read(lambda: self._services.administration.rotate_key(by, name, asked))
        return _unkept(json_response(made))

    async def revoke_key(self, request: Request) -> Response:
        by, name = principal_of(request), request.path_params["key"]
        about(request, f"key:{unspelt(name)}")
        await self._services.read(lambda: self._services.administration.revoke_key(by, name))
        return Response(status_code=204)

    async def list_grants(self, request: Request) -> Response:
        by, principal = principal_of(request), request.query_params.get("principal")
        return json_response(await self._services.read(lambda: self._services.administration.grants(by, principal)))

    async def give_grant(self, request: Request) -> Response:
        asked = await self._grant(request)
        by = principal_of(request)
        return json_response(await self._services.read(lambda: self._services.administration.give(by, asked)))

    async def take_grant(self, request: Request) -> Response:
        asked = await self._grant(request)
        by = principal_of(request)
        await self._services.read(lambda: self._services.administration.take(by, asked))
        return Response(status_code=204)

    async def _grant(self, request: Request) -> GrantRequest:
        require_json(request)
        asked = read_json(_GRANT, await request.body())
        place = ".".join(filter(None, (asked.namespace, asked.table))) or "*"
        about(request, f"{unspelt(asked.principal)}={asked.role}@{place}")
        return asked

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        giving = (InvalidRequest, BodyTooLarge, PermissionDenied, NamespaceNotFound, TableNotFound, Unavailable)
        return (
            Operation(
                method="GET",
                path="/v1/whoami",
                handler=self.whoami,
                needs=ANYBODY,
                summary="Who the service takes this request to be from",
                tag=_TAG,
                answer_type=WhoAmI,
            ),
            Operation(
                method="GET",
                path=_KEYS,
                handler=self.list_keys,
                needs=ANYBODY,
                summary="List API keys",
                tag=_TAG,
                description="Those that the caller made; all of them for an admin of everything.",
                answer_type=KeyList,
                errors=(Unavailable,),
            ),
            Operation(
                method="POST",
                path=_KEYS,
                handler=self.create_key,
                needs=ANYBODY,
                summary="Make an API key",
                tag=_TAG,
                description="Its text is in this answer and nowhere else. The caller must be `admin` of every place "
                "that the key is granted something on; of everything, for a key without grants.",
                request_type=CreateKey,
                answer_type=NewKey,
                status=201,
                errors=(*giving, AlreadyExists),
            ),
            Operation(
                method="GET",
                path=_KEY,
                handler=self.get_key,
                needs=ANYBODY,
                summary="Look at an API key",
                tag=_TAG,
                answer_type=KeyInfo,
                errors=(KeyNotFound, Unavailable),
            ),
            Operation(
                method="POST",
                path=_KEY + "/rotate",
                handler=self.rotate_key,
                needs=ANYBODY,
                summary="Give an API key a new text",
                tag=_TAG,
                description="The old one holds for `overlap_s` longer, so that users can be changed over one by one.",
                request_type=RotateKey,
                answer_type=NewKey,
                errors=(*giving, KeyNotFound),
            ),
            Operation(
                method="DELETE",
                path=_KEY,
                handler=self.revoke_key,
                needs=ANYBODY,
                summary="Revoke an API key",
                tag=_TAG,
                description="With all that was granted to it. Other replicas notice within `auth_cache_s`.",
                status=204,
                errors=(KeyNotFound, Unavailable),
            ),
            Operation(
                method="GET",
                path=_GRANTS,
                handler=self.list_grants,
                needs=ANYBODY,
                summary="List grants",
                tag=_TAG,
                description="The caller's own, and those on what the caller is `admin` of.",
                answer_type=GrantList,
                parameters=(Parameter(name="principal", description="Only those to this one: `user:ann`."),),
                errors=(Unavailable,),
            ),
            Operation(
                method="PUT",
                path=_GRANTS,
                handler=self.give_grant,
                needs=ANYBODY,
                summary="Give a role",
                tag=_TAG,
                description="In place of another role on the same. The caller must be `admin` of the place.",
                request_type=GrantRequest,
                answer_type=GrantInfo,
                errors=(*giving, KeyNotFound),
            ),
            Operation(
                method="POST",
                path=_GRANTS + "/take",
                handler=self.take_grant,
                needs=ANYBODY,
                summary="Take a role away",
                tag=_TAG,
                description="Whatever role it is. One that was not given is taken away already.",
                request_type=GrantRequest,
                status=204,
                errors=giving,
            ),
        )


def _unkept(response: Response) -> Response:
    """An answer with a secret, which no cache on the way may keep."""
    response.headers["Cache-Control"] = "no-store"
    return response

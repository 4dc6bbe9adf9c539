"""``/iceberg/v1/oauth/tokens``: OAuth2's client credentials, for clients that know no other way to show a key.

The secret is an API key (or a token of the issuer), and the access token that is given for it is that same text: it
holds as long and lets do as much, and nothing is to be kept of it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs, unquote_plus

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import NOBODY
from lamella.service.api import Operation, json_response
from lamella.service.routes.paths import ICEBERG
from lamella.service.services import Services
from lamella.snapshot.errors import InvalidRequest, Unauthenticated
from lamella.snapshot.iceberg.wire import AccessToken, TokenRequest

FORM: Final = "application/x-www-form-urlencoded"
#: What a token is, by RFC 8693, section 3.
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105  # a name, and no secret
_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_MOST_FIELDS: Final = 20
#: Neither RFC 6749 nor its clients want it kept (section 5.1).
_NO_STORE: Final = {"Cache-Control": "no-store"}


class IcebergTokenRoutes:
    """Say who a client is. ``clock`` gives Unix milliseconds."""

    def __init__(self, services: Services, clock: Callable[[], int]) -> None:
        self._services = services
        self._clock = clock

    async def iceberg_token(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != FORM:
            raise InvalidRequest(f"send the body as Content-Type: {FORM}, not {kind or 'without one'}")
        fields = _fields(await request.body())
        grant = fields.get("grant_type")
        if grant == "client_credentials":
            shown = fields.get("client_secret") or _basic(request)
        elif grant == _EXCHANGE:
            shown = fields.get("subject_token")
        else:
            kind = "unsupported_grant_type"
            raise InvalidRequest("grant_type is client_credentials, or a token exchange", oauth_error=kind)
        if not shown:
            raise InvalidRequest("there is no client_secret (or subject_token): an API key belongs there")
        expires_ms = None
        if self._services.gate.is_on:
            expires_ms = (await self._services.gate.log_in(request, shown)).expires_ms
        left_s = msgspec.UNSET if expires_ms is None else max(0, (expires_ms - self._clock()) // 1000)
        answer = AccessToken(access_token=shown, issued_token_type=_ACCESS_TOKEN, expires_in=left_s)
        response = json_response(answer)
        response.headers.update(_NO_STORE)
        return response

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="POST",
                path=ICEBERG + "/oauth/tokens",
                handler=self.iceberg_token,
                needs=NOBODY,
                changes=False,
                summary="OAuth2 client credentials for Iceberg clients",
                tag="Iceberg",
                description="`client_secret` is an API key, or a token of the issuer; `client_id` is not looked at. "
                "The access token is the same text. Refused as RFC 6749 has it, with `error` and `error_description`.",
                request_type=TokenRequest,
                request_media_type=FORM,
                answer_type=AccessToken,
                errors=(InvalidRequest, Unauthenticated),
            ),
        )


def _fields(body: bytes) -> dict[str, str]:
    """The fields of a form; raises InvalidRequest when it is none, or has a field twice (RFC 6749, section 3.2)."""
    try:
        found = parse_qs(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise InvalidRequest("the body is no form") from error
    if any(len(values) > 1 for values in found.values()):
        raise InvalidRequest("the form has a field twice")
    return {name: values[0] for name, values in found.items()}


def _basic(request: Request) -> str | None:
    """The secret of HTTP Basic authentication, which is form-encoded first (RFC 6749, section 2.3.1)."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        _, _, secret = base64.b64decode(given.strip(), validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        return None
    return unquote_plus(secret)

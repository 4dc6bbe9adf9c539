"""Forms: what a page posts, and the proof that it was one of our pages that did.

A page of another origin can make a browser post a form here. It cannot read the token that stands in our forms, which
belongs to a cookie that it cannot read either, and that browsers do not even send with its requests
(``SameSite=Strict``). What a browser says of the origin of a request is looked at too.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from lamella.snapshot.errors import BodyTooLarge, InvalidRequest

COOKIE: Final = "lamella_ui"
#: The form field that holds the token, and the one with the key by which a form that is sent twice is done once.
TOKEN: Final = "csrf"  # noqa: S105  # a name, and no secret
KEY: Final = "once"
_TYPE: Final = "application/x-www-form-urlencoded"
_MAX_FIELDS: Final = 200
#: Room for the longest filters and rules that a job takes.
MAX_BYTES: Final = 1 << 20
_SESSION: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_FOREIGN: Final = frozenset({"cross-site", "same-site"})
_OURS: Final = frozenset({"same-origin", "none"})


class Form:
    """The fields of a form by name, and the ``key`` of this one sending."""

    def __init__(self, fields: Mapping[str, str], body: bytes) -> None:
        self.fields = fields
        self.body = body
        self.key = fields.get(KEY) or None

    def text(self, name: str) -> str:
        """A field without spaces around it; empty when it is not there."""
        return self.fields.get(name, "").strip()


class Tokens:
    """Makes and checks tokens; ``secret`` is the same in all processes of a service."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def session(self, request: Request) -> str | None:
        """What the cookie of a request says; None: it has none that is one of ours."""
        found = request.cookies.get(COOKIE, "")
        return found if _SESSION.fullmatch(found) else None

    def token(self, session: str) -> str:
        """The token that goes with a cookie."""
        return hmac.new(self._secret, b"form " + session.encode(), hashlib.sha256).hexdigest()

    def start(self) -> str:
        """A cookie's value for a browser that has none."""
        return secrets.token_urlsafe(32)

    def keep(self, request: Request, response: Response, session: str) -> None:
        """Have the browser keep the cookie until it is closed."""
        response.set_cookie(
            COOKIE,
            session,
            path="/ui",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )

    async def form(self, request: Request, max_bytes: int = MAX_BYTES) -> Form:
        """The form that a request brings. Raises InvalidRequest for one that no page of ours sent, BodyTooLarge.

        What can be seen without the body is looked at first: whoever sends one may not be known.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != _TYPE:
            raise InvalidRequest(f"a form comes as {_TYPE}, not {kind or 'without a type'}")
        if self.session(request) is None or not _is_ours(request):
            raise _not_ours()
        body = await _body_of(request, max_bytes)
        try:
            fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict"))
        except ValueError as error:
            raise InvalidRequest("the form cannot be read") from error
        self._check(request, fields)
        return Form(fields, body)

    def _check(self, request: Request, fields: Mapping[str, str]) -> None:
        session = self.session(request)
        given = fields.get(TOKEN, "")
        same = session is not None and hmac.compare_digest(given.encode(), self.token(session).encode())
        if not (same and _is_ours(request)):
            raise _not_ours()


def _not_ours() -> InvalidRequest:
    return InvalidRequest(
        "this form did not come from a page of this service, or the page is older than the browser's session: open the "
        "page again",
        reason="csrf",
    )


async def _body_of(request: Request, max_bytes: int) -> bytes:
    """The whole body, of which no more is ever held."""
    size_bytes, parts = 0, []
    async for part in request.stream():
        size_bytes += len(part)
        if size_bytes > max_bytes:
            raise BodyTooLarge(f"the form is larger than {max_bytes} bytes", limit_bytes=max_bytes)
        parts.append(part)
    return b"".join(parts)


def new_key() -> str:
    """A key for one sending of a form."""
    return secrets.token_urlsafe(16)


def refuse_embedded(request: Request) -> None:
    """Raise InvalidRequest for a page that another site asks for as a part of its own, an image say.

    It could not read it, but have the service work out what takes long. Links from elsewhere are followed.
    """
    headers = request.headers
    if headers.get("sec-fetch-site") in _FOREIGN and headers.get("sec-fetch-dest") != "document":
        raise InvalidRequest("pages of this service are no part of those of another site", reason="embedded")


def _is_ours(request: Request) -> bool:
    """What the browser itself says of where a request comes from; old ones say nothing."""
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in _OURS:
        return False
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host", "")

"""Forms, and the protection against cross-site request forgery.

A page of another origin can make a browser post a form here. It cannot read the token in the console's forms. The token
belongs to a cookie that the page cannot read either, and that browsers do not send with its requests
(``SameSite=Strict``). The browser's own headers about the origin of a request are checked too.
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
#: The form field with the token, and the field with the idempotency key of the form.
TOKEN: Final = "csrf"  # noqa: S105  # a name, not a secret
KEY: Final = "once"
_TYPE: Final = "application/x-www-form-urlencoded"
_MAX_FIELDS: Final = 200
#: Enough for the longest filters and rules of a job.
MAX_BYTES: Final = 1 << 20
_SESSION: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_FOREIGN: Final = frozenset({"cross-site", "same-site"})
_OURS: Final = frozenset({"same-origin", "none"})


class Form:
    """The fields of a form by name, and its idempotency ``key``."""

    def __init__(self, fields: Mapping[str, str], body: bytes) -> None:
        self.fields = fields
        self.body = body
        self.key = fields.get(KEY) or None

    def text(self, name: str) -> str:
        """Return a field without surrounding spaces; empty if missing."""
        return self.fields.get(name, "").strip()


class Tokens:
    """Makes and checks tokens; ``secret`` is the same in all processes of a service."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def session(self, request: Request) -> str | None:
        """Return the session of the request's cookie; None without a valid one."""
        found = request.cookies.get(COOKIE, "")
        return found if _SESSION.fullmatch(found) else None

    def token(self, session: str) -> str:
        """Return the token for a session."""
        return hmac.new(self._secret, b"form " + session.encode(), hashlib.sha256).hexdigest()

    def start(self) -> str:
        """Return a new session for a browser without one."""
        return secrets.token_urlsafe(32)

    def keep(self, request: Request, response: Response, session: str) -> None:
        """Set the session cookie, which the browser deletes when it is closed."""
        response.set_cookie(
            COOKIE,
            session,
            path="/ui",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )

    async def form(self, request: Request, max_bytes: int = MAX_BYTES) -> Form:
        """Return the form of a request. Raises InvalidRequest unless a page of the console sent it, BodyTooLarge.

        The headers are checked before the body is read, since the sender may be unauthenticated.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != _TYPE:
            raise InvalidRequest(f"a form must have the type {_TYPE}, not {kind or 'none'}")
        if self.session(request) is None or not _is_ours(request):
            raise _not_ours()
        body = await _body_of(request, max_bytes)
        try:
            fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict"))
        except ValueError as error:
            raise InvalidRequest("the form is not valid") from error
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
        "this form is not from a page of this service, or the page is older than the browser's session: open the "
        "page again",
        reason="csrf",
    )


async def _body_of(request: Request, max_bytes: int) -> bytes:
    """Read the whole body, at most ``max_bytes``."""
    size_bytes, parts = 0, []
    async for part in request.stream():
        size_bytes += len(part)
        if size_bytes > max_bytes:
            raise BodyTooLarge(f"the form is larger than {max_bytes} bytes", limit_bytes=max_bytes)
        parts.append(part)
    return b"".join(parts)


def new_key() -> str:
    """Return an idempotency key for a form."""
    return secrets.token_urlsafe(16)


def refuse_embedded(request: Request) -> None:
    """Raise InvalidRequest for a page that another site embeds, for example as an image.

    The site could not read it, but could make the service do expensive work. Links from other sites are allowed.
    """
    headers = request.headers
    if headers.get("sec-fetch-site") in _FOREIGN and headers.get("sec-fetch-dest") != "document":
        raise InvalidRequest("pages of this service cannot be embedded in another site", reason="embedded")


def _is_ours(request: Request) -> bool:
    """Return whether the browser's headers allow the origin of the request; old browsers send none."""
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in _OURS:
        return False
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host", "")

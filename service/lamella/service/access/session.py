"""Log-ins to the dashboard: a cookie that says who logged in, signed, so that any replica can read it.

Of a key it has the hash, so that a key that is revoked ends its log-ins. Of a token it has the names, until a time; the
grants of these are looked up with each page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import Response

from lamella.snapshot.errors import InvalidPageToken
from lamella.snapshot.prune.signed import SignedTokens

COOKIE: Final = "lamella_login"
#: What browsers keep of one cookie, without its name and attributes.
_MOST_CHARACTERS: Final = 3_800


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """Who logged in. Either ``key_sha256`` or ``names`` is given."""

    expires_ms: int
    key_sha256: str | None = None
    names: tuple[str, ...] = ()


_DECODER: Final = msgspec.json.Decoder(Session)


class Sessions:
    """Writes and reads the cookie. ``clock`` gives Unix milliseconds."""

    def __init__(self, secret: bytes, clock: Callable[[], int]) -> None:
        self._tokens = SignedTokens(secret, "lamella log-in", most_characters=_MOST_CHARACTERS)
        self._clock = clock

    def of(self, request: HTTPConnection) -> Session | None:
        """What the cookie of a request says; None: there is none that holds."""
        given = request.cookies.get(COOKIE)
        if given is None:
            return None
        try:
            session = _DECODER.decode(self._tokens.read(given))
        except (InvalidPageToken, msgspec.MsgspecError):
            return None
        return session if self._clock() < session.expires_ms else None

    def start(self, response: Response, session: Session, *, secure: bool) -> None:
        """Have the browser keep it. Names that do not fit are left out: fewer of them never allow more."""
        names = session.names
        text = self._tokens.write(msgspec.json.encode(session))
        while len(text) > _MOST_CHARACTERS and len(names) > 1:
            names = names[: max(1, len(names) * 3 // 4)]
            text = self._tokens.write(msgspec.json.encode(msgspec.structs.replace(session, names=names)))
        lasts_s = max(0, (session.expires_ms - self._clock()) // 1000)
        response.set_cookie(COOKIE, text, max_age=lasts_s, path="/ui", httponly=True, samesite="strict", secure=secure)

    def end(self, response: Response) -> None:
        """Have the browser forget it."""
        response.delete_cookie(COOKIE, path="/ui", httponly=True, samesite="strict")

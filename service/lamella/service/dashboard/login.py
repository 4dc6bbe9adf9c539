"""Log-in to the console with the same keys and users as the API, and log-out.

A key is typed into a form. A user of the issuer is redirected there and back (OpenID Connect Core, section 3.1, with
PKCE). The values that must be the same after the redirect are in a signed cookie, so any replica can handle it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lamella.service.access import Authenticator
from lamella.service.access.authenticator import Session
from lamella.service.access.oidc import Identity, exchange_json
from lamella.service.access.principal import set_principal
from lamella.service.config.settings import Settings
from lamella.service.dashboard.pages import ROOT, Page, Pages
from lamella.snapshot.errors import (
    InvalidPageToken,
    InvalidRequest,
    NotFound,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from lamella.snapshot.tokens import PREFIX, SignedTokens, key_sha256
from lamella.snapshot.wire.operation import PUBLIC

LOGIN: Final = ROOT + "/login"
_BACK: Final = LOGIN + "/back"
_COOKIE: Final = "lamella_oidc"
_LOGIN_STATE_S: Final = 600
#: Largest form: a key or token, and the page to go on to. The sender is not authenticated yet.
_MAX_BYTES: Final = 32_768
#: A page of the console, and nothing that a browser could take for another site.
_OURS: Final = re.compile(rf"{ROOT}(?:[/?][!-\[\]-~]*)?")
_SCOPES: Final = "openid profile email"


class _LoginState(msgspec.Struct, frozen=True, kw_only=True):
    """What must be the same when a browser comes back from the issuer."""

    state: str
    nonce: str
    verifier: str
    onward: str
    until_ms: int


_LOGIN_STATE: Final = msgspec.json.Decoder(_LoginState)


class LoginPages:
    """Pages of the log-in; starts and ends sessions."""

    def __init__(
        self,
        *,
        authentication: Authenticator,
        settings: Settings,
        clock: Callable[[], int],
        pages: Pages,
        secret: bytes,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._pages = pages
        self._authentication = authentication
        self._ways = SignedTokens(secret, "lamella way to the issuer", max_characters=3_000)

    async def show(self, request: Request) -> Response:
        return self._render(request, "", 200)

    async def enter(self, request: Request) -> Response:
        form = await self._pages.form(request, max_bytes=_MAX_BYTES)
        credential, onward = form.text("key"), onward_of(form.text("next"))
        try:
            principal = await self._authentication.log_in(request, credential)
        except (Unauthenticated, RateLimited, Unavailable) as error:
            text = "This key is not valid." if isinstance(error, Unauthenticated) else error.message
            return self._render(request, text, 401 if isinstance(error, Unauthenticated) else 429)
        set_principal(request, principal)
        until_ms = self._until_ms(principal.expires_ms)
        by_key = credential.startswith(PREFIX)
        session = Session(
            expires_ms=until_ms,
            key_sha256=key_sha256(credential) if by_key else None,
            names=() if by_key else principal.names,
        )
        return self._started(request, session, self._pages.see(onward))

    async def leave(self, request: Request) -> Response:
        await self._pages.form(request, max_bytes=_MAX_BYTES)
        response = self._pages.see(LOGIN)
        self._authentication.sessions.end(response)
        return response

    async def go(self, request: Request) -> Response:
        settings, issuer = self._settings, self._authentication.authenticator.issuer
        if issuer is None or settings.oidc_client_id is None:
            raise NotFound("this service has no issuer for log-ins")
        found = await self._authentication.of_issuer(request, issuer.document)
        login_state = _LoginState(
            state=secrets.token_urlsafe(24),
            nonce=secrets.token_urlsafe(24),
            verifier=secrets.token_urlsafe(48),
            onward=onward_of(request.query_params.get("next", "")),
            until_ms=self._clock() + _LOGIN_STATE_S * 1000,
        )
        challenge = (
            base64.urlsafe_b64encode(hashlib.sha256(login_state.verifier.encode()).digest()).decode().rstrip("=")
        )
        query = {
            "response_type": "code",
            "client_id": settings.oidc_client_id,
            "redirect_uri": self._back_url,
            "scope": _SCOPES,
            "state": login_state.state,
            "nonce": login_state.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        endpoint = str(found.get("authorization_endpoint", ""))
        response = RedirectResponse(f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}", status_code=303)
        # Lax: the redirect back starts at the issuer's site, and must send the cookie.
        response.set_cookie(
            _COOKIE,
            self._ways.write(msgspec.json.encode(login_state)),
            max_age=_LOGIN_STATE_S,
            path=LOGIN,
            httponly=True,
            samesite="lax",
            secure=self._is_secure(request),
        )
        return response

    async def come_back(self, request: Request) -> Response:
        login_state = self._login_state(request)
        given = request.query_params
        if login_state is None or not hmac.compare_digest(given.get("state", "").encode(), login_state.state.encode()):
            raise InvalidRequest("this redirect does not belong to a log-in that began here a while ago: log in again")
        if "code" not in given:
            raise InvalidRequest("the issuer refused the log-in", reason=given.get("error", "")[:100])
        identity = await self._authentication.of_issuer(
            request, lambda: self._identity(given["code"], given.get("iss"), login_state)
        )
        session = Session(expires_ms=self._until_ms(None), names=identity.names)
        # Not a redirect: the browser would treat it as part of the navigation from the issuer's site, and not send the
        # strict cookie.
        page = self._pages.html(request, "login_done.html", {"onward": login_state.onward}, title="Logged in")
        page.delete_cookie(_COOKIE, path=LOGIN)
        return self._started(request, session, page)

    def pages(self) -> tuple[Page, ...]:
        if not self._authentication.is_on:
            return ()
        return (
            Page(LOGIN, self.show, "ui_login", PUBLIC),
            Page(LOGIN, self.enter, "ui_log_in", PUBLIC, "POST"),
            Page(LOGIN + "/start", self.go, "ui_login_start", PUBLIC),
            Page(_BACK, self.come_back, "ui_login_back", PUBLIC),
            Page(ROOT + "/logout", self.leave, "ui_log_out", PUBLIC, "POST"),
        )

    @property
    def _back_url(self) -> str:
        return (self._settings.public_url or "").rstrip("/") + _BACK

    def _render(self, request: Request, problem: str, status: int) -> Response:
        values = {
            "problem": problem,
            "onward": onward_of(request.query_params.get("next", "")),
            "has_issuer": self._settings.oidc_client_id is not None,
            "quoted": quote,
        }
        return self._pages.html(request, "login.html", values, status=status, title="Log in")

    def _started(self, request: Request, session: Session, response: Response) -> Response:
        self._authentication.sessions.start(response, session, secure=self._is_secure(request))
        return response

    def _is_secure(self, request: Request) -> bool:
        return request.url.scheme == "https" or (self._settings.public_url or "").startswith("https:")

    def _until_ms(self, expires_ms: int | None) -> int:
        longest_ms = self._clock() + self._settings.session_s * 1000
        return longest_ms if expires_ms is None else min(expires_ms, longest_ms)

    def _login_state(self, request: Request) -> _LoginState | None:
        try:
            login_state = _LOGIN_STATE.decode(self._ways.read(request.cookies.get(_COOKIE, "")))
        except (InvalidPageToken, msgspec.MsgspecError):
            return None
        return login_state if self._clock() < login_state.until_ms else None

    def _identity(self, code: str, said_issuer: str | None, login_state: _LoginState) -> Identity:
        """Who logged in. Raises Unauthenticated, Unavailable."""
        settings, issuer = self._settings, self._authentication.authenticator.issuer
        assert issuer is not None  # noqa: S101  # the way began here
        assert settings.oidc_client_id is not None  # noqa: S101
        if said_issuer not in (None, issuer.url):  # RFC 9207
            raise Unauthenticated("the answer is from another issuer")
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._back_url,
            "client_id": settings.oidc_client_id,
            "code_verifier": login_state.verifier,
        }
        if settings.oidc_client_secret is not None:
            fields["client_secret"] = settings.oidc_client_secret
        endpoint = str(issuer.document().get("token_endpoint", ""))
        try:
            answer: Any = exchange_json(endpoint, urlencode(fields).encode())
        except (OSError, ValueError) as error:
            raise Unavailable("the issuer did not confirm the log-in", retry_after_s=5) from error
        token = answer.get("id_token") if isinstance(answer, dict) else None
        if not isinstance(token, str):
            raise Unauthenticated("the issuer did not return an identity")
        identity = issuer.identity(token, settings.oidc_client_id)
        nonce = identity.claims.get("nonce")
        if not (isinstance(nonce, str) and hmac.compare_digest(nonce.encode(), login_state.nonce.encode())):
            raise Unauthenticated("the issuer's answer belongs to another log-in")
        return identity


def onward_of(text: str) -> str:
    """Return the page to go on to: one of the console, whatever the address says."""
    return text if _OURS.fullmatch(text) and not text.startswith(LOGIN) else ROOT

"""Authenticates every request by key, token or log-in cookie, limits its rate, and checks its host name.

A web page can point a name of its own at a loopback address and then read what is served there ("DNS rebinding"). The
browser sends that name in ``Host``. A service without authentication therefore accepts only names that cannot be
registered on the internet: addresses, and names without a dot such as ``localhost``.

A log-in by key stores the key's hash, so that revoking the key ends its sessions. A log-in by token stores the names
that the token carries and when it expires; the grants of these names are read again for each page.

Authentication runs before the body is read, so that a refused request costs no memory.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from structlog.typing import FilteringBoundLogger

from lamella.service.access.credentials import CredentialCache, TokenBuckets, limited
from lamella.service.access.oidc import Issuer
from lamella.service.access.principal import OPEN, Principal, set_principal
from lamella.service.catalog import Catalog
from lamella.service.config.settings import Settings
from lamella.service.process.single_flight import AsyncSingleFlight
from lamella.service.process.threads import Threads
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import InvalidPageToken, PermissionDenied, Unauthenticated, Unavailable
from lamella.snapshot.tokens import PREFIX, SignedTokens

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_FOREIGN: Final = frozenset({"cross-site", "same-site"})


class AllowedHosts:
    """The host names that requests may use: addresses, names without a dot, and ``allowed``.

    Without ``allowed`` and without ``check_all`` every name is accepted.
    """

    def __init__(self, allowed: Sequence[str], *, check_all: bool) -> None:
        self._allowed = frozenset(name.lower() for name in allowed)
        self._is_on = check_all or bool(allowed)
        self._seen: set[str] = set()

    def check(self, request: HTTPConnection) -> None:
        """Raise PermissionDenied for a host name that is not allowed."""
        if not self._is_on:
            return
        given = request.headers.get("host", "")
        if given in self._seen:
            return
        name = given.rpartition(":")[0] if _has_port(given) else given
        if not self._is_ours(name.lower()):
            raise PermissionDenied(
                "the host name of this request is not allowed; the operator can add it to allowed_hosts", reason="host"
            )
        if len(self._seen) < 100:
            self._seen.add(given)

    def _is_ours(self, name: str) -> bool:
        return name in self._allowed or _is_plain(name) or _is_address(name)


def refuse_foreign(request: HTTPConnection) -> None:
    """Raise PermissionDenied for a change that a page of another site made the browser send.

    A page can do so without a CORS preflight if the body has a type that forms can send, or there is no body.
    """
    if request.scope["method"] in _READS:
        return
    for name, _ in request.scope["headers"]:
        if name in (b"origin", b"sec-fetch-site"):  # which programs do not send
            break
    else:
        return
    headers = request.headers
    origin = headers.get("origin")
    is_foreign = headers.get("sec-fetch-site") in _FOREIGN
    if is_foreign or (origin is not None and urlsplit(origin).netloc != headers.get("host", "")):
        raise PermissionDenied("the request comes from a page of another site", reason="origin")


def _is_plain(name: str) -> bool:
    return "." not in name and ":" not in name


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _has_port(given: str) -> bool:
    return given.rpartition(":")[2].isdigit() and (given.count(":") == 1 or "]:" in given)


COOKIE: Final = "lamella_login"
#: Limit of browsers for one cookie, without its name and attributes.
_MAX_CHARACTERS: Final = 3_800


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A log-in. Either ``key_sha256`` or ``names`` is given."""

    expires_ms: int
    key_sha256: str | None = None
    names: tuple[str, ...] = ()


_DECODER: Final = msgspec.json.Decoder(Session)


class Sessions:
    """Writes and reads the session cookie. ``clock`` returns Unix milliseconds."""

    def __init__(self, secret: bytes, clock: Callable[[], int]) -> None:
        self._tokens = SignedTokens(secret, "lamella log-in", max_characters=_MAX_CHARACTERS)
        self._clock = clock

    def of(self, request: HTTPConnection) -> Session | None:
        """Return the session of a request's cookie; None without a valid one."""
        given = request.cookies.get(COOKIE)
        if given is None:
            return None
        try:
            session = _DECODER.decode(self._tokens.read(given))
        except (InvalidPageToken, msgspec.MsgspecError):
            return None
        return session if self._clock() < session.expires_ms else None

    def start(self, response: Response, session: Session, *, secure: bool) -> None:
        """Set the session cookie. Names that do not fit are left out: fewer names never allow more."""
        names = session.names
        text = self._tokens.write(msgspec.json.encode(session))
        while len(text) > _MAX_CHARACTERS and len(names) > 1:
            names = names[: max(1, len(names) * 3 // 4)]
            text = self._tokens.write(msgspec.json.encode(msgspec.structs.replace(session, names=names)))
        lasts_s = max(0, (session.expires_ms - self._clock()) // 1000)
        response.set_cookie(COOKIE, text, max_age=lasts_s, path="/ui", httponly=True, samesite="strict", secure=secure)

    def end(self, response: Response) -> None:
        """Delete the session cookie."""
        response.delete_cookie(COOKIE, path="/ui", httponly=True, samesite="strict")


#: Calls to the issuer have their own threads: an issuer that hangs must not block requests or key look-ups.
_THREADS: Final = 4
_MAX_WAITING: Final = 64
_T = TypeVar("_T")
_SCHEME: Final = "bearer "


class Authenticator:
    """Authenticates requests. Belongs to one event loop.

    ``clock`` returns Unix milliseconds; ``monotonic`` returns seconds that never go back.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        metrics: Metrics,
        log: FilteringBoundLogger,
        *,
        sessions_secret: bytes,
        clock: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_on = settings.auth
        self.sessions = Sessions(sessions_secret, clock)
        self.authenticator = CredentialCache(
            catalog,
            issuer=_issuer(settings, monotonic),
            audience=settings.oidc_audience,
            root_key_sha256=settings.root_key_sha256,
            cache_s=settings.auth_cache_s,
            clock=clock,
            monotonic=monotonic,
        )
        self._hosts = AllowedHosts(settings.allowed_hosts, check_all=not (settings.auth or settings.insecure))
        self._metrics = metrics
        self._log = log
        self._threads = Threads(_THREADS, max_waiting=_MAX_WAITING, what="key look-ups")
        self._issuer_threads = Threads(_THREADS, max_waiting=_MAX_WAITING, what="calls to the token issuer")
        self._look_ups: AsyncSingleFlight[Principal] = AsyncSingleFlight(_timeout_error)
        self._wait_s = settings.request_wait_s
        self._rate_per_s = settings.requests_per_s
        self._rates = TokenBuckets(settings.requests_burst_s, monotonic)
        self._failures_per_s = settings.auth_failures_per_minute / 60
        self._failures = TokenBuckets(60.0, monotonic)

    async def admit(self, request: Request) -> Principal:
        """Return the principal of an API request by its ``Authorization`` header; cookies do not count here.

        Raises:
            Unauthenticated: the header is missing or not valid.
            RateLimited: the principal or its address sends too many requests.
            Overloaded: too many keys or tokens are being looked up.
            PermissionDenied: the host name is not allowed.
            Unavailable: the catalog or the issuer cannot be reached.
        """
        self._hosts.check(request)
        if not self.is_on:
            refuse_foreign(request)
            return self._admitted(request, OPEN)
        credential = _bearer(request)
        found = None if credential is None else self.authenticator.cached(credential)
        if found is None:
            found = await self._found(request, credential)
        return self._admitted(request, found)

    async def admit_page(self, request: Request) -> Principal:
        """Return the principal of a dashboard request by its cookie. Raises as :meth:`admit`."""
        self._hosts.check(request)
        if not self.is_on:
            return self._admitted(request, OPEN)
        session = self.sessions.of(request)
        if session is None:
            raise Unauthenticated("log in first", reason="no session")
        found = self._cached(session)
        if found is None:
            found = await self._look_ups.run(
                (self.authenticator.generation, session),
                lambda: self._threads.run(lambda: self._by(session)),
                self._wait_s,
            )
        return self._admitted(request, found)

    async def log_in(self, request: Request, credential: str) -> Principal:
        """Return the principal of a key or token that was entered in the log-in form, or sent for an
        Iceberg token. Raises as :meth:`admit`."""
        self._hosts.check(request)
        return await self._found(request, credential)

    async def _found(self, request: HTTPConnection, credential: str | None) -> Principal:
        try:
            if credential is None:
                raise Unauthenticated("send an API key or a token as Authorization: Bearer ...", reason="none")
            return await self._look_up(request, credential)
        except Unauthenticated as error:
            # The reason goes to the operator's log only, not to the caller.
            reason = error.details.pop("reason", "other")
            self._metrics.auth_failures.labels(_LABELS.get(reason, "token")).inc()
            self._log.info("not authenticated", reason=reason, client=_address(request))
            raise

    async def _look_up(self, request: HTTPConnection, credential: str) -> Principal:
        """Look up a credential. One that was valid lately is looked up even while its address has too many failures."""
        # The generation is part of the key: a look-up that began before a change of keys must not answer requests after
        # it.
        key = (self.authenticator.generation, credential)
        within_s = self._wait_s if credential.startswith(PREFIX) else None
        return await self._look_ups.run(key, lambda: self._begin_look_up(request, credential), within_s)

    def _begin_look_up(self, request: HTTPConnection, credential: str) -> Coroutine[Any, Any, Principal]:
        """Begin a look-up. Requests with the same credential wait for it instead of starting their own."""
        is_counted = not self.authenticator.was_valid(credential)
        if is_counted:
            self._count_try(request)
        threads, address = self._threads if credential.startswith(PREFIX) else self._issuer_threads, _address(request)

        async def looked_up() -> Principal:
            found = await threads.run(lambda: self.authenticator.find(credential))
            if is_counted:
                self._failures.give_back(address)
                self.authenticator.note_valid(credential)
            return found

        return looked_up()

    async def of_issuer(self, request: HTTPConnection, work: Callable[[], _T]) -> _T:
        """Run ``work``, which calls the token issuer, in the issuer's threads. It counts as a failure until it
        succeeds.
        """
        self._count_try(request)
        found = await self._issuer_threads.run(work)
        self._failures.give_back(_address(request))
        return found

    def _count_try(self, request: HTTPConnection) -> None:
        # Counted before it runs: otherwise many attempts at once would all pass before the first one fails.
        wait_s = self._failures.take(_address(request), self._failures_per_s)
        if wait_s is not None:
            self._metrics.rate_limited.labels("failures").inc()
            raise limited("too many keys or tokens from this address were not valid", wait_s)

    def _admitted(self, request: Request, principal: Principal) -> Principal:
        set_principal(request, principal)
        rate_per_s = self._rate_per_s if principal.requests_per_s is None else principal.requests_per_s
        if rate_per_s:
            name = _address(request) if principal is OPEN else principal.name
            wait_s = self._rates.take(name, rate_per_s)
            if wait_s is not None:
                self._metrics.rate_limited.labels("principal").inc()
                raise limited(f"{name} sends more than {rate_per_s:g} requests a second", wait_s)
        return principal

    def _cached(self, session: Session) -> Principal | None:
        if session.key_sha256 is not None:
            return self.authenticator.cached_key(session.key_sha256)
        return self.authenticator.cached_names(session.names, session.expires_ms)

    def _by(self, session: Session) -> Principal:
        if session.key_sha256 is not None:
            return self.authenticator.by_key(session.key_sha256)
        return self.authenticator.by_names(session.names, session.expires_ms)


#: A short list, so that metrics have few labels.
_LABELS: Final = {"none": "none", "form": "key", "unknown": "key", "expired": "expired"}


def _timeout_error() -> Unavailable:
    return Unavailable("who asks could not be looked up in time", retry_after_s=1, limit="look_up")


def _issuer(settings: Settings, monotonic: Callable[[], float]) -> Issuer | None:
    if settings.oidc_issuer is None:
        return None
    return Issuer(
        url=settings.oidc_issuer,
        algorithms=settings.oidc_algorithms,
        leeway_s=settings.oidc_leeway_s,
        subject_claim=settings.oidc_subject_claim,
        groups_claim=settings.oidc_groups_claim,
        keys_url=settings.oidc_keys_url,
        monotonic=monotonic,
    )


def _bearer(request: HTTPConnection) -> str | None:
    """Return the bearer token of ``Authorization`` (RFC 6750, section 2.1); None without one."""
    for name, value in request.scope["headers"]:
        if name == b"authorization":
            text: str = value.decode("latin-1")
            return text[len(_SCHEME) :].strip() or None if text[: len(_SCHEME)].lower() == _SCHEME else None
    return None


def _address(request: HTTPConnection) -> str:
    """Return the address that failures count for: of IPv6 the first 64 bits, since a client can choose the rest."""
    host = "" if request.client is None else request.client.host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 6:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host

"""Verifies tokens of an OpenID Connect issuer: the issuer's keys (JWKS, RFC 7517) and the identity in a token.

A token is valid if its signature is by a key that the issuer publishes now, its audience (``aud``) is this service, and
the current time is within its lifetime, plus or minus ``leeway_s``. Only algorithms with a public key are accepted:
with the others, everyone who can check a token could also make one (RFC 8725, section 3.1).
"""

from __future__ import annotations

import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jwt
import msgspec

from lamella.snapshot.errors import InvalidRequest, Unauthenticated, Unavailable

#: The issuer's keys are read again after this time. An unknown key name triggers a read at most this often. If the
#: issuer does not answer, the known keys are used for this long.
_FRESH_S: Final = 300.0
_SOONEST_S: Final = 10.0
_STALE_S: Final = 86_400.0
#: RFC 7518, section 3.3.
_MIN_RSA_BITS: Final = 2_048

#: Keys by name (a number if it has none), then by the algorithms that they can be used with.
_Keys = dict[str | int, dict[str, jwt.PyJWK]]


class IssuerKeys:
    """The keys of one issuer. Thread-safe. ``read`` returns the issuer's document or raises Unavailable.

    ``algorithms``: the accepted ones. A key is used with an algorithm that its own ``alg`` names or its kind allows,
    never with one that only the token names. ``monotonic`` returns seconds that never go back.
    """

    def __init__(self, read: Callable[[], Any], algorithms: Sequence[str], monotonic: Callable[[], float]) -> None:
        self._read = read
        self._algorithms = tuple(algorithms)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._keys: _Keys = {}
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._failure = Unavailable("the issuer's keys have not been read", retry_after_s=_SOONEST_S)

    def find(self, name: object, algorithm: object) -> jwt.PyJWK | None:
        """Return the key of that name (None: the only key) for that algorithm; None if the issuer publishes none.

        Raises Unavailable if the keys were never read, or not within a day.
        """
        if algorithm not in self._algorithms:
            return None
        if self._known(name, algorithm) is None:
            with self._lock:  # one thread reads the keys for all that wait
                self._refresh()
        elif self._age_s() >= _FRESH_S and self._lock.acquire(blocking=False):
            # The other threads use the known keys: an issuer that hangs must not block them.
            try:
                self._refresh()
            finally:
                self._lock.release()
        if self._age_s() >= _STALE_S:
            raise self._failure
        return self._known(name, algorithm)

    def _known(self, name: object, algorithm: object) -> jwt.PyJWK | None:
        keys = self._keys
        if name is None and len(keys) == 1:
            name = next(iter(keys))
        if not isinstance(name, str | int) or not isinstance(algorithm, str):
            return None
        return keys.get(name, {}).get(algorithm)

    def _age_s(self) -> float:
        return float("inf") if self._read_at is None else self._monotonic() - self._read_at

    def _refresh(self) -> None:
        """Read the keys, unless that was tried a moment ago: tokens with invented key names must not cause reads."""
        if self._tried_at is not None and self._monotonic() - self._tried_at < _SOONEST_S:
            return
        try:
            self._keys = signing_keys(self._read(), self._algorithms)
            self._read_at = self._monotonic()
        except Unavailable as error:
            self._failure = error
        finally:
            self._tried_at = self._monotonic()  # counted from the end, since the read may have taken long


def signing_keys(document: Any, algorithms: Sequence[str]) -> _Keys:
    """Return the keys of a JWKS document that can check signatures by one of these algorithms.

    Raises Unavailable if the document is not a JWKS. Keys that cannot be used are skipped.
    """
    listed = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(listed, list):
        raise Unavailable("the issuer's keys cannot be read", retry_after_s=_SOONEST_S)
    keys: _Keys = {}
    for number, each in enumerate(listed):
        if not isinstance(each, dict) or each.get("use", "sig") != "sig" or each.get("kty") == "oct":
            continue
        name = each.get("kid")
        wanted = [each["alg"]] if "alg" in each else algorithms
        made = {algorithm: _made(each, algorithm) for algorithm in algorithms if algorithm in wanted}
        found = {algorithm: key for algorithm, key in made.items() if key is not None}
        if found:
            keys.setdefault(name if isinstance(name, str) else number, {}).update(found)
    return keys


def _made(described: dict[str, Any], algorithm: str) -> jwt.PyJWK | None:
    try:
        made = jwt.PyJWK(described, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError, NotImplementedError):
        return None
    is_weak = described.get("kty") == "RSA" and made.key.key_size < _MIN_RSA_BITS
    return None if is_weak else made


ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
_MAX_CHARACTERS: Final = 16_384
#: Longest principal name; the catalog's column also holds its kind.
_MAX_NAME: Final = 240
_MAX_GROUPS: Final = 1_000
_MAX_DOCUMENT_BYTES: Final = 1 << 20
_FETCH_TIMEOUT_S: Final = 10.0
#: The end of the year 9999, in place of any later expiry.
_LATEST_S: Final = 253_402_300_799

#: Returns the JSON document at an address.
Fetch = Callable[[str], Any]


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of a token. ``names``: those that grants can name, the user's own first. ``claims``: all of the
    token's.
    """

    names: tuple[str, ...]
    expires_ms: int
    claims: dict[str, Any]


class Issuer:
    """Checks the tokens of one issuer. Thread-safe. ``monotonic`` returns seconds that never go back."""

    def __init__(
        self,
        *,
        url: str,
        algorithms: Sequence[str],
        leeway_s: float,
        subject_claim: str = "sub",
        groups_claim: str = "groups",
        keys_url: str | None = None,
        fetch: Fetch | None = None,
        monotonic: Callable[[], float],
    ) -> None:
        refused = sorted(set(algorithms) - ALGORITHMS)
        if refused or not algorithms:
            raise InvalidRequest(
                f"tokens signed with {', '.join(refused) or 'nothing'} are not taken; name some of "
                f"{', '.join(sorted(ALGORITHMS))}"
            )
        self.url = url
        self._algorithms = tuple(algorithms)
        self._leeway_s = leeway_s
        self._subject_claim = subject_claim
        self._groups_claim = groups_claim
        self._keys_url = keys_url
        self._fetch = fetch if fetch is not None else fetch_json
        self._document: dict[str, Any] | None = None
        self._keys = IssuerKeys(self._read_keys, self._algorithms, monotonic)

    def identity(self, token: str, audience: str) -> Identity:
        """Return the identity of a token.

        Raises:
            Unauthenticated: the token is not valid.
            Unavailable: the issuer's keys are not known, and it does not answer.
        """
        claims = self._claims(token, audience)
        subject = _token_claim(claims, self._subject_claim)
        if not isinstance(subject, str) or not _is_name(subject):
            raise Unauthenticated("the token is not valid", reason="subject")
        until_s = min(int(claims["exp"]), _LATEST_S) + self._leeway_s
        return Identity(names=(f"user:{subject}", *self._groups(claims)), expires_ms=int(until_s * 1000), claims=claims)

    def document(self) -> dict[str, Any]:
        """Return the issuer's metadata (OpenID Connect Discovery, section 4). Raises Unavailable."""
        if self._document is None:
            found = self._get(self.url.rstrip("/") + "/.well-known/openid-configuration")
            if not isinstance(found, dict) or found.get("issuer") != self.url:
                raise Unavailable("the metadata belongs to another issuer", retry_after_s=30)
            self._document = found
        return self._document

    def _claims(self, token: str, audience: str) -> dict[str, Any]:
        if len(token) > _MAX_CHARACTERS:
            raise Unauthenticated("the token is not valid", reason="too long")
        try:
            header = jwt.get_unverified_header(token)
            key = self._keys.find(header.get("kid"), header.get("alg"))
            if key is None:
                raise Unauthenticated("the token is not valid", reason="key")
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(self._algorithms),
                audience=audience,
                issuer=self.url,
                leeway=self._leeway_s,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.PyJWTError, OverflowError, RecursionError) as error:
            raise Unauthenticated("the token is not valid", reason=type(error).__name__) from error
        return claims

    def _groups(self, claims: dict[str, Any]) -> tuple[str, ...]:
        found = _token_claim(claims, self._groups_claim)
        listed = [found] if isinstance(found, str) else found if isinstance(found, list) else []
        named = [each for each in listed if isinstance(each, str) and _is_name(each)]
        return tuple(f"group:{each}" for each in dict.fromkeys(named[:_MAX_GROUPS]))

    def _read_keys(self) -> Any:
        return self._get(self._keys_url or str(self.document().get("jwks_uri")))

    def _get(self, url: str) -> Any:
        try:
            return self._fetch(url)
        except (OSError, ValueError) as error:
            raise Unavailable("the token issuer does not answer", retry_after_s=5) from error


def fetch_json(url: str) -> Any:
    """Return the JSON document at an ``http`` or ``https`` address. Raises OSError, ValueError."""
    return exchange_json(url, None)


def exchange_json(url: str, body: bytes | None) -> Any:
    """Return the JSON document at an address as :func:`fetch_json`; with ``body``, send a form."""
    if not url.startswith(("https://", "http://")):
        raise ValueError("not an http or https address")
    headers = {"Accept": "application/json"}
    if body is not None:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    request = urllib.request.Request(url, body, headers)  # noqa: S310  # see above
    try:
        with urllib.request.urlopen(request, timeout=_FETCH_TIMEOUT_S) as answer:  # noqa: S310  # see above
            data = answer.read(_MAX_DOCUMENT_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:  # the error holds the connection
            raise OSError(f"status {error.code}") from None
    except http.client.HTTPException as error:
        raise OSError(f"the answer is not HTTP: {type(error).__name__}") from error
    if len(data) > _MAX_DOCUMENT_BYTES:
        raise ValueError("the document is too large")
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("the document is nested too deeply") from error


def _token_claim(claims: dict[str, Any], name: str) -> Any:
    """Return a claim by its name, or by its path (``realm_access.roles``)."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _MAX_NAME and text.isprintable()

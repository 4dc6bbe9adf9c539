"""The keys that an issuer signs its tokens with, as it publishes them (JWKS, RFC 7517)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jwt

from lamella.snapshot.errors import Unavailable

#: The keys are read anew after so long; when an unknown one is named, after so long at the earliest; and when the
#: issuer does not answer, those that are known are believed for so long.
_FRESH_S: Final = 300.0
_SOONEST_S: Final = 10.0
_STALE_S: Final = 86_400.0
#: RFC 7518, section 3.3.
_LEAST_RSA_BITS: Final = 2_048

#: By its name (a number where it has none), and then by the algorithms that it can be used with.
_Keys = dict[str | int, dict[str, jwt.PyJWK]]


class IssuerKeys:
    """May be asked from several threads at once. ``read`` gives the issuer's document, or raises Unavailable.

    ``algorithms``: those that count; a key is used with one that its own ``alg`` names, or its kind allows, and never
    with what only a token says. ``monotonic`` gives seconds that only go up.
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
        """The key of that name (None: the only one that there is), for that algorithm; None: it publishes none.

        Raises Unavailable where the keys are not known, or have not been for a day.
        """
        if algorithm not in self._algorithms:
            return None
        if self._known(name, algorithm) is None:
            with self._lock:  # one reads them for all who wait
                self._refresh()
        elif self._age_s() >= _FRESH_S and self._lock.acquire(blocking=False):
            # The others go on with what is known: an issuer that hangs must not hold up everyone.
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
        """Read the keys, unless that was just tried: names that are made up must not have them read again."""
        if self._tried_at is not None and self._monotonic() - self._tried_at < _SOONEST_S:
            return
        try:
            self._keys = signing_keys(self._read(), self._algorithms)
            self._read_at = self._monotonic()
        except Unavailable as error:
            self._failure = error
        finally:
            self._tried_at = self._monotonic()  # from its end: it may have waited for long


def signing_keys(document: Any, algorithms: Sequence[str]) -> _Keys:
    """The keys of a document that signatures by one of these algorithms can be checked with.

    Raises Unavailable for a document that is none of keys. One that cannot be used takes nothing from the others.
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
    is_weak = described.get("kty") == "RSA" and made.key.key_size < _LEAST_RSA_BITS
    return None if is_weak else made

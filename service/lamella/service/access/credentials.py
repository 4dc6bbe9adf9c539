"""Maps the credentials of a request to its principal, with a cache of a few seconds; look-ups and rate limits.

A cached entry is at most ``auth_cache_s`` old. After that a revoked key or a removed grant has no effect on any
replica; on the replica that made the change it has none at once.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from cachetools import TTLCache

from lamella.service.access.oidc import Issuer
from lamella.service.access.principal import Principal, Rights, root
from lamella.service.catalog import Catalog, KeyRecord
from lamella.snapshot.errors import LamellaError, RateLimited, Unauthenticated
from lamella.snapshot.tokens import PREFIX, is_key, key_sha256

#: How many names the buckets remember, those used last. A forgotten name starts again with a full bucket.
_MAX_NAMES: Final = 10_000
#: Longest ``Retry-After``; the configured rate may be close to zero.
_LONGEST_S: Final = 86_400


class TokenBuckets:
    """A token bucket for each name. It holds the tokens of ``burst_s`` seconds, and at least one.

    Belongs to one event loop. ``clock`` returns seconds that never go back.
    """

    def __init__(self, burst_s: float, clock: Callable[[], float], max_names: int = _MAX_NAMES) -> None:
        self._burst_s = burst_s
        self._clock = clock
        self._max_names = max_names
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, rate_per_s: float) -> float | None:
        """Take a token. Returns None if there was one, otherwise the seconds until there is."""
        wait_s, level, now = self._look(name, rate_per_s)
        self._levels[name] = (level if wait_s is not None else level - 1, now)
        self._levels.move_to_end(name)
        if len(self._levels) > self._max_names:
            self._levels.popitem(last=False)
        return wait_s

    def give_back(self, name: str) -> None:
        """Return the token that was taken last."""
        found = self._levels.get(name)
        if found is not None:
            self._levels[name] = (found[0] + 1, found[1])

    def wait_s(self, name: str, rate_per_s: float) -> float | None:
        """Return the same as :meth:`take` without taking a token."""
        return self._look(name, rate_per_s)[0]

    def _look(self, name: str, rate_per_s: float) -> tuple[float | None, float, float]:
        now = self._clock()
        capacity = max(1.0, rate_per_s * self._burst_s)
        level, at = self._levels.get(name, (capacity, now))
        level = min(capacity, level + max(0.0, now - at) * rate_per_s)
        return (None if level >= 1 else (1 - level) / rate_per_s), level, now


def limited(what: str, wait_s: float) -> RateLimited:
    """Return the error that tells the client when to retry."""
    return RateLimited(what, retry_after_s=max(1, math.ceil(min(wait_s, _LONGEST_S))), limit="rate")


_MAX_CACHED: Final = 10_000
_VALID_FOR_S: Final = 3_600.0
#: Shortest time between two notes of a key's use.
_USED_EVERY_MS: Final = 60_000
ROOT_NAME: Final = "root"


class CredentialCache:
    """Looks up keys and tokens. :meth:`cached` is for the event loop; the other methods block and are thread-safe.

    ``clock`` returns Unix milliseconds; ``monotonic`` returns seconds that never go back.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        issuer: Issuer | None,
        audience: str,
        root_key_sha256: str | None,
        cache_s: float,
        clock: Callable[[], int],
        monotonic: Callable[[], float],
    ) -> None:
        self._catalog = catalog
        self.issuer = issuer
        self._audience = audience
        self._root_key_sha256 = root_key_sha256
        self._clock = clock
        self._cache: TTLCache[bytes, Principal] = TTLCache(_MAX_CACHED, cache_s, timer=monotonic)
        self._recently_valid: TTLCache[bytes, None] = TTLCache(_MAX_CACHED, _VALID_FOR_S, timer=monotonic)
        self._lock = threading.Lock()
        self._generation = 0

    @property
    def generation(self) -> int:
        """Return a number that changes with each :meth:`forget`; results of an earlier generation may be outdated."""
        return self._generation

    def cached(self, credential: str) -> Principal | None:
        """Return the principal of a credential that is in the cache and valid; otherwise None."""
        return self._cached(_digest(b"shown", credential))

    def was_valid(self, credential: str) -> bool:
        """Return whether this credential was valid within the last hour; it may not be valid any more."""
        with self._lock:
            return _digest(b"shown", credential) in self._recently_valid

    def note_valid(self, credential: str) -> None:
        """Note that this credential was valid."""
        with self._lock:
            self._recently_valid[_digest(b"shown", credential)] = None

    def find(self, credential: str) -> Principal:
        """Return the principal of a key or token.

        Raises:
            Unauthenticated: it is not valid, or not any more.
            Unavailable: the catalog or the token issuer does not answer.
        """
        if credential.startswith(PREFIX):
            if not is_key(credential):
                raise Unauthenticated("the key is not valid", reason="form")
            return self._cache_result(_digest(b"shown", credential), lambda: self._of_key(key_sha256(credential)))
        if self.issuer is None:
            raise Unauthenticated("the key is not valid", reason="form")
        issuer = self.issuer

        def found() -> Principal:
            identity = issuer.identity(credential, self._audience)
            return self._of_names(identity.names, identity.expires_ms)

        return self._cache_result(_digest(b"shown", credential), found)

    def cached_key(self, sha256: str) -> Principal | None:
        """Return the cached principal of a key's hash, as :meth:`cached` does."""
        return self._cached(_digest(b"key", sha256))

    def by_key(self, sha256: str) -> Principal:
        """Return the principal of a key's hash. Raises Unauthenticated, Unavailable."""
        return self._cache_result(_digest(b"key", sha256), lambda: self._of_key(sha256))

    def cached_names(self, names: tuple[str, ...], expires_ms: int) -> Principal | None:
        """Return the cached principal of the names of a token, as :meth:`cached` does."""
        return self._cached(_names_digest(names, expires_ms))

    def by_names(self, names: tuple[str, ...], expires_ms: int) -> Principal:
        """Return the principal of a token's names. Raises Unauthenticated after ``expires_ms``, Unavailable."""
        return self._cache_result(_names_digest(names, expires_ms), lambda: self._of_names(names, expires_ms))

    def forget(self) -> None:
        """Drop the cache, because keys or grants have changed."""
        with self._lock:
            self._generation += 1
            self._cache.clear()

    def _cached(self, digest: bytes) -> Principal | None:
        with self._lock:
            found = self._cache.get(digest)
        if found is None or (found.expires_ms is not None and self._clock() >= found.expires_ms):
            return None
        return found

    def _cache_result(self, digest: bytes, find: Callable[[], Principal]) -> Principal:
        generation = self._generation
        found = find()
        if found.expires_ms is not None and self._clock() >= found.expires_ms:
            raise Unauthenticated("the key or token has expired", reason="expired")
        with self._lock:
            if generation == self._generation:  # otherwise the principal may be from before an acknowledged change
                self._cache[digest] = found
        return found

    def _of_key(self, sha256: str) -> Principal:
        if self._root_key_sha256 is not None and hmac.compare_digest(sha256, self._root_key_sha256):
            return root(ROOT_NAME)
        key = self._catalog.key_of(sha256)
        now_ms = self._clock()
        if key is None or not _is_valid(key, sha256, now_ms):
            raise Unauthenticated("the key is not valid", reason="unknown" if key is None else "expired")
        rights = Rights(self._catalog.grants([key.principal]))
        if key.used_ms is None or now_ms - key.used_ms >= _USED_EVERY_MS:
            self._note_use(key, now_ms)
        ends = [key.expires_ms, key.old_until_ms if sha256 != key.sha256 else None]
        return Principal(
            names=(key.principal,),
            kind="key",
            rights=rights,
            expires_ms=min((each for each in ends if each is not None), default=None),
            requests_per_s=key.requests_per_s,
        )

    def _of_names(self, names: tuple[str, ...], expires_ms: int) -> Principal:
        return Principal(names=names, kind="token", rights=Rights(self._catalog.grants(names)), expires_ms=expires_ms)

    def _note_use(self, key: KeyRecord, now_ms: int) -> None:
        try:
            self._catalog.note_key_use(key.name, now_ms)
        except LamellaError:
            return  # the time of use is for people to read; the request goes on


def _is_valid(key: KeyRecord, sha256: str, now_ms: int) -> bool:
    if key.expires_ms is not None and now_ms >= key.expires_ms:
        return False
    return sha256 == key.sha256 or (key.old_until_ms is not None and now_ms < key.old_until_ms)


def _digest(kind: bytes, text: str) -> bytes:
    return hashlib.sha256(kind + b" " + text.encode()).digest()


def _names_digest(names: tuple[str, ...], expires_ms: int) -> bytes:
    return _digest(b"names", "\n".join((*names, str(expires_ms))))

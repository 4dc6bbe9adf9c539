"""Creates and revokes keys, adds and removes grants. A caller can only grant what it administers itself.

The admin of a resource gives grants on it. A key belongs to its creator and to server admins. The creator may rotate a
key only while it is admin of everything that the key may do, because rotation returns the new text of the key.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from lamella.service.access.credentials import CredentialCache
from lamella.service.access.permissions import check
from lamella.service.access.principal import Principal
from lamella.service.catalog import Catalog, KeyRecord
from lamella.service.tables.names import check_name
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import InvalidRequest, KeyNotFound, QuotaExceeded
from lamella.snapshot.tokens import RANDOM_BYTES, key_sha256, key_text
from lamella.snapshot.wire import (
    CreateKey,
    Grant,
    GrantInfo,
    GrantList,
    GrantRequest,
    KeyInfo,
    KeyList,
    NewKey,
    RotateKey,
)

_MAX_GRANTS: Final = 1_000
#: Most grants of one principal on single tables of one namespace.
_MAX_IN_ONE: Final = 100
#: Most keys that a principal who is not a server admin can create.
_MAX_KEYS: Final = 100
_LONGEST_S: Final = 10 * 366 * 86_400
_LONGEST_OVERLAP_S: Final = 30 * 86_400
_MAX_PER_S: Final = 1_000_000
_LONGEST_PRINCIPAL: Final = 250
_KINDS: Final = ("key", "user", "group")


class AccessAdministration:
    """Manages keys and grants. Its methods block on the catalog.

    ``clock`` returns Unix milliseconds; ``random`` returns bytes that cannot be guessed.
    """

    def __init__(
        self,
        catalog: Catalog,
        authenticator: CredentialCache,
        clock: Callable[[], int],
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._catalog = catalog
        self._authenticator = authenticator
        self._clock = clock
        self._random = random

    def create_key(self, by: Principal, request: CreateKey) -> NewKey:
        """Create a key. Raises InvalidRequest, AlreadyExists, and the errors of a caller that is not admin of the key's
        grants.
        """
        name = check_name("key", request.name)
        if len(request.grants) > _MAX_GRANTS:
            raise InvalidRequest(f"a key has at most {_MAX_GRANTS} grants, not {len(request.grants)}", path="$.grants")
        _check_distinct(request.grants)
        if request.requests_per_s is not None and not 0 < request.requests_per_s <= _MAX_PER_S:
            raise InvalidRequest(f"requests_per_s is a number above 0 and up to {_MAX_PER_S}", path="$.requests_per_s")
        expires_s = _seconds("expires_s", request.expires_s)
        for grant in request.grants:
            _check_resource(grant)
            check(by, "admin", grant.namespace, grant.table)
        if not request.grants or request.requests_per_s is not None:
            check(by, "admin")  # rate limits are set by server admins only
        self._check_key_count(by)
        now_ms = self._clock()
        text = key_text(self._random(RANDOM_BYTES))
        key = KeyRecord(
            name=name,
            sha256=key_sha256(text),
            created_ms=now_ms,
            created_by=by.name,
            expires_ms=None if expires_s is None else now_ms + expires_s * 1000,
            # A key with a rate limit of its own cannot create a key with a higher one.
            requests_per_s=by.requests_per_s if request.requests_per_s is None else request.requests_per_s,
        )
        grants = [_given(grant, key.principal, by, now_ms) for grant in request.grants]
        self._catalog.add_key(key, grants)
        self._authenticator.forget()
        return NewKey(key=text, info=_info(key, grants))

    def keys(self, by: Principal) -> KeyList:
        """Return the keys that the caller may see."""
        found = [key for key in self._catalog.api_keys() if _owns_key(by, key)]
        granted: dict[str, list[GrantInfo]] = {}
        for grant in self._catalog.grants([key.principal for key in found]):
            granted.setdefault(grant.principal, []).append(grant)
        return KeyList(keys=tuple(_info(key, granted.get(key.principal, ())) for key in found))

    def expiring(self, by: Principal, *, before_ms: int) -> tuple[KeyInfo, ...]:
        """Return those of :meth:`keys` that end before a time, without their grants."""
        keys = self._catalog.api_keys()
        ending = [key for key in keys if key.expires_ms is not None and key.expires_ms < before_ms]
        return tuple(_info(key, ()) for key in ending if _owns_key(by, key))

    def key(self, by: Principal, name: str) -> KeyInfo:
        """Return one key. Raises KeyNotFound, also for a key that belongs to somebody else."""
        key = self._own_key(by, name)
        return _info(key, self._catalog.grants([key.principal]))

    def rotate_key(self, by: Principal, name: str, request: RotateKey) -> NewKey:
        """Give a key a new text. Raises InvalidRequest, KeyNotFound, and the errors of :meth:`create_key`.

        Without a new expiry the key keeps its lifetime, counted from now: a key that expires stays one that expires.
        """
        overlap_s = request.overlap_s
        if not 0 <= overlap_s <= _LONGEST_OVERLAP_S:
            raise InvalidRequest(f"overlap_s is a number from 0 to {_LONGEST_OVERLAP_S}", path="$.overlap_s")
        expires_s = _seconds("expires_s", request.expires_s)
        before = self._own_key(by, name)
        grants = self._catalog.grants([before.principal])
        for grant in grants:
            if grant.created_by == by.name:  # the creator need not administer what others granted
                check(by, "admin", grant.namespace, grant.table)
        if not any(grant.created_by == by.name for grant in grants):
            check(by, "admin")
        if expires_s is None and before.expires_ms is not None:
            made_ms = before.created_ms if before.rotated_ms is None else before.rotated_ms
            expires_s = max(1, (before.expires_ms - made_ms) // 1000)
        now_ms = self._clock()
        text = key_text(self._random(RANDOM_BYTES))
        key = self._catalog.rotate_key(
            name,
            sha256=key_sha256(text),
            old_until_ms=now_ms + overlap_s * 1000,
            expires_ms=None if expires_s is None else now_ms + expires_s * 1000,
            now_ms=now_ms,
            by=by.name,  # otherwise the creator could get the text of a key that others have granted more to
        )
        self._authenticator.forget()
        return NewKey(key=text, info=_info(key, grants))

    def revoke_key(self, by: Principal, name: str) -> None:
        """Revoke a key, here at once and elsewhere within ``auth_cache_s``. Raises KeyNotFound."""
        self._catalog.drop_key(self._own_key(by, name).name)
        self._authenticator.forget()

    def grants(self, by: Principal, principal: str | None) -> GrantList:
        """Return the grants on what the caller administers, and its own; with ``principal``, only the grants of that
        one.
        """
        found = self._catalog.grants(None if principal is None else [principal])
        own = frozenset(by.names)
        return GrantList(
            grants=tuple(g for g in found if g.principal in own or by.rights.may("admin", g.namespace, g.table))
        )

    def give(self, by: Principal, request: GrantRequest) -> GrantInfo:
        """Add a grant; it replaces another role on the same resource.

        Raises InvalidRequest, KeyNotFound, and the errors of :meth:`create_key`.
        """
        principal = _check_principal(request.principal)
        _check_resource(request)
        check(by, "admin", request.namespace, request.table)
        grant = _given(request, principal, by, self._clock())
        self._check_grant_count(grant)
        self._catalog.put_grant(grant)
        self._authenticator.forget()
        return grant

    def take(self, by: Principal, request: GrantRequest) -> None:
        """Remove a grant; a missing one is no error. A principal may remove its own. Raises as :meth:`give`."""
        principal = _check_principal(request.principal)
        _check_resource(request)
        if principal != by.name:
            check(by, "admin", request.namespace, request.table)
        self._catalog.drop_grant(principal, request.namespace, request.table)
        self._authenticator.forget()

    def _check_grant_count(self, grant: GrantInfo) -> None:
        """Limit the grants of a principal: each look-up reads all of them, so thousands would be slow."""
        there = [each for each in self._catalog.grants([grant.principal]) if each.namespace == grant.namespace]
        if len(there) >= _MAX_IN_ONE and not any(each.table == grant.table for each in there):
            raise QuotaExceeded(
                f"{grant.principal} has {counted(len(there), 'grant')} in namespace {grant.namespace!r}: "
                "give one on all of it",
                limit="grants",
                maximum=_MAX_IN_ONE,
                used=len(there) + 1,
            )

    def _check_key_count(self, by: Principal) -> None:
        if by.rights.may("admin"):
            return
        made = sum(key.created_by == by.name for key in self._catalog.api_keys())
        if made >= _MAX_KEYS:
            raise QuotaExceeded(f"{by.name} has created {made} keys", limit="keys", maximum=_MAX_KEYS, used=made + 1)

    def _own_key(self, by: Principal, name: str) -> KeyRecord:
        key = self._catalog.key(name)
        if not _owns_key(by, key):
            raise KeyNotFound(f"there is no API key {name!r}", key=name)
        return key


def _owns_key(by: Principal, key: KeyRecord) -> bool:
    return by.rights.may("admin") or key.created_by == by.name


def _given(grant: Grant, principal: str, by: Principal, now_ms: int) -> GrantInfo:
    return GrantInfo(
        principal=principal,
        role=grant.role,
        namespace=grant.namespace,
        table=grant.table,
        created_ms=now_ms,
        created_by=by.name,
    )


def _info(key: KeyRecord, grants: Sequence[GrantInfo]) -> KeyInfo:
    known = msgspec.structs.asdict(key)
    return KeyInfo(**{name: known[name] for name in KeyInfo.__struct_fields__ if name in known}, grants=tuple(grants))


def _check_resource(grant: Grant) -> None:
    if grant.namespace is not None:
        check_name("namespace", grant.namespace)
    if grant.table is not None:
        check_name("table", grant.table)
        if grant.namespace is None:
            raise InvalidRequest("a grant on a table names its namespace too", table=grant.table)


def _check_distinct(grants: Sequence[Grant]) -> None:
    scopes = [(grant.namespace, grant.table) for grant in grants]
    if len(set(scopes)) < len(scopes):
        raise InvalidRequest("two grants name the same resource; the higher role includes the other", path="$.grants")


def _check_principal(text: str) -> str:
    kind, _, name = text.partition(":")
    if kind not in _KINDS or not name or len(text) > _LONGEST_PRINCIPAL or not text.isprintable():
        raise InvalidRequest(
            f"a principal is key:NAME, user:NAME or group:NAME, of at most {_LONGEST_PRINCIPAL} characters",
            principal=text[:_LONGEST_PRINCIPAL],
        )
    return text


def _seconds(name: str, value: int | None) -> int | None:
    if value is not None and not 1 <= value <= _LONGEST_S:
        raise InvalidRequest(f"{name} is a number from 1 to {_LONGEST_S}", path=f"$.{name}")
    return value

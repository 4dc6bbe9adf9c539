"""Making and revoking keys, giving and taking grants: nobody can give what is not theirs to give.

Who is admin of a place gives grants on it. A key belongs to who made it, and to admins of everything; who made it can
have it rotated only while still admin of all that it may do, since whoever rotates a key gets its text.
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
#: Grants of one principal on tables of one namespace, one by one.
_MAX_IN_ONE: Final = 100
#: Keys that one who is no admin of everything makes.
_MAX_KEYS: Final = 100
_LONGEST_S: Final = 10 * 366 * 86_400
_LONGEST_OVERLAP_S: Final = 30 * 86_400
_MAX_PER_S: Final = 1_000_000
_LONGEST_PRINCIPAL: Final = 250
_KINDS: Final = ("key", "user", "group")


class Administration:
    """``clock`` gives Unix milliseconds, ``random`` bytes that nobody can guess. Its methods wait for the catalog."""

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

    def create_key(self, by: Principal, asked: CreateKey) -> NewKey:
        """Raises InvalidRequest, AlreadyExists, and what is said to one who is not admin of what the key may do."""
        name = check_name("key", asked.name)
        if len(asked.grants) > _MAX_GRANTS:
            raise InvalidRequest(f"a key has at most {_MAX_GRANTS} grants, not {len(asked.grants)}", path="$.grants")
        _check_distinct(asked.grants)
        if asked.requests_per_s is not None and not 0 < asked.requests_per_s <= _MAX_PER_S:
            raise InvalidRequest(f"requests_per_s is a number above 0 and up to {_MAX_PER_S}", path="$.requests_per_s")
        expires_s = _seconds("expires_s", asked.expires_s)
        for grant in asked.grants:
            _check_place(grant)
            check(by, "admin", grant.namespace, grant.table)
        if not asked.grants or asked.requests_per_s is not None:
            check(by, "admin")  # limits are for who runs the service to set
        self._check_room_for_key(by)
        now_ms = self._clock()
        text = key_text(self._random(RANDOM_BYTES))
        key = KeyRecord(
            name=name,
            sha256=key_sha256(text),
            created_ms=now_ms,
            created_by=by.name,
            expires_ms=None if expires_s is None else now_ms + expires_s * 1000,
            # a key that may be used so often makes none that may be used oftener
            requests_per_s=by.requests_per_s if asked.requests_per_s is None else asked.requests_per_s,
        )
        grants = [_given(grant, key.principal, by, now_ms) for grant in asked.grants]
        self._catalog.add_key(key, grants)
        self._authenticator.forget()
        return NewKey(key=text, info=_info(key, grants))

    def keys(self, by: Principal) -> KeyList:
        """Those that one may know of."""
        found = [key for key in self._catalog.api_keys() if _is_theirs(by, key)]
        granted: dict[str, list[GrantInfo]] = {}
        for grant in self._catalog.grants([key.principal for key in found]):
            granted.setdefault(grant.principal, []).append(grant)
        return KeyList(keys=tuple(_info(key, granted.get(key.principal, ())) for key in found))

    def key(self, by: Principal, name: str) -> KeyInfo:
        """Raises KeyNotFound, also for one that is another's."""
        key = self._theirs(by, name)
        return _info(key, self._catalog.grants([key.principal]))

    def rotate_key(self, by: Principal, name: str, asked: RotateKey) -> NewKey:
        """Give a key a new text; raises InvalidRequest, KeyNotFound, and as :meth:`create_key`.

        Without another time it lasts as long again as it did: a key that was to end does not cease to.
        """
        overlap_s = asked.overlap_s
        if not 0 <= overlap_s <= _LONGEST_OVERLAP_S:
            raise InvalidRequest(f"overlap_s is a number from 0 to {_LONGEST_OVERLAP_S}", path="$.overlap_s")
        expires_s = _seconds("expires_s", asked.expires_s)
        before = self._theirs(by, name)
        grants = self._catalog.grants([before.principal])
        for grant in grants:
            if grant.created_by == by.name:  # what others gave to this key is no matter of its maker's
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
            by=by.name,  # else who made it could have its text again, with all that it was given since
        )
        self._authenticator.forget()
        return NewKey(key=text, info=_info(key, grants))

    def revoke_key(self, by: Principal, name: str) -> None:
        """It ceases to hold here at once, and elsewhere within ``auth_cache_s``; raises KeyNotFound."""
        self._catalog.drop_key(self._theirs(by, name).name)
        self._authenticator.forget()

    def grants(self, by: Principal, principal: str | None) -> GrantList:
        """Those on what one is admin of, and one's own; ``principal``: only those to that one."""
        found = self._catalog.grants(None if principal is None else [principal])
        own = frozenset(by.names)
        return GrantList(
            grants=tuple(g for g in found if g.principal in own or by.rights.may("admin", g.namespace, g.table))
        )

    def give(self, by: Principal, asked: GrantRequest) -> GrantInfo:
        """In place of another role on the same. Raises InvalidRequest, KeyNotFound, and as :meth:`create_key`."""
        principal = _check_principal(asked.principal)
        _check_place(asked)
        check(by, "admin", asked.namespace, asked.table)
        grant = _given(asked, principal, by, self._clock())
        self._check_room(grant)
        self._catalog.put_grant(grant)
        self._authenticator.forget()
        return grant

    def take(self, by: Principal, asked: GrantRequest) -> None:
        """What is not there is taken away already. Raises as :meth:`give`; what is one's own may be given back."""
        principal = _check_principal(asked.principal)
        _check_place(asked)
        if principal != by.name:
            check(by, "admin", asked.namespace, asked.table)
        self._catalog.drop_grant(principal, asked.namespace, asked.table)
        self._authenticator.forget()

    def _check_room(self, grant: GrantInfo) -> None:
        """Each look-up of a principal reads all of its grants; nobody may burden another one with thousands."""
        there = [each for each in self._catalog.grants([grant.principal]) if each.namespace == grant.namespace]
        if len(there) >= _MAX_IN_ONE and not any(each.table == grant.table for each in there):
            raise QuotaExceeded(
                f"{grant.principal} has {len(there)} grants in namespace {grant.namespace!r}: give one on all of it",
                limit="grants",
                most=_MAX_IN_ONE,
                used=len(there) + 1,
            )

    def _check_room_for_key(self, by: Principal) -> None:
        if by.rights.may("admin"):
            return
        made = sum(key.created_by == by.name for key in self._catalog.api_keys())
        if made >= _MAX_KEYS:
            raise QuotaExceeded(f"{by.name} has made {made} keys", limit="keys", most=_MAX_KEYS, used=made + 1)

    def _theirs(self, by: Principal, name: str) -> KeyRecord:
        key = self._catalog.key(name)
        if not _is_theirs(by, key):
            raise KeyNotFound(f"there is no API key {name!r}", key=name)
        return key


def _is_theirs(by: Principal, key: KeyRecord) -> bool:
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


def _check_place(grant: Grant) -> None:
    if grant.namespace is not None:
        check_name("namespace", grant.namespace)
    if grant.table is not None:
        check_name("table", grant.table)
        if grant.namespace is None:
            raise InvalidRequest("a grant on a table names its namespace too", table=grant.table)


def _check_distinct(grants: Sequence[Grant]) -> None:
    places = [(grant.namespace, grant.table) for grant in grants]
    if len(set(places)) < len(places):
        raise InvalidRequest("two grants are on the same place; the higher role includes the other", path="$.grants")


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

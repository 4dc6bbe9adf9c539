"""Who a request is from, and what that principal may do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec
from starlette.requests import HTTPConnection

from lamella.snapshot.errors import Unauthenticated
from lamella.snapshot.wire import ROLES, Grant, Role, WhoAmI

_RANK: Final[dict[Role, int]] = {role: rank for rank, role in enumerate(ROLES, 1)}


class Rights:
    """Nothing is allowed but what a grant says. On one place the highest of the roles that cover it counts."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self.grants = tuple(grants)
        self._everywhere = 0
        self._namespaces: dict[str, int] = {}
        self._tables: dict[tuple[str, str], int] = {}
        self._entered: set[str] = set()
        for grant in self.grants:
            self._add(grant)

    def may(self, role: Role, namespace: str | None = None, table: str | None = None) -> bool:
        """Whether a role is held on everything, on a namespace with all that is in it, or on a table."""
        rank = self._everywhere
        if namespace is not None:
            rank = max(rank, self._namespaces.get(namespace, 0))
            if table is not None:
                rank = max(rank, self._tables.get((namespace, table), 0))
        return rank >= _RANK[role]

    def sees(self, namespace: str) -> bool:
        """Whether the principal may know that a namespace exists: it holds a role on it, or on a table in it."""
        return self._everywhere > 0 or namespace in self._entered

    def places(self, role: Role) -> tuple[tuple[str, str | None], ...] | None:
        """Where the role is held: namespaces (with None) and tables; None: everywhere."""
        rank = _RANK[role]
        if self._everywhere >= rank:
            return None
        return (
            *((name, None) for name, held in self._namespaces.items() if held >= rank),
            *(place for place, held in self._tables.items() if held >= rank),
        )

    def _add(self, grant: Grant) -> None:
        rank = _RANK[grant.role]
        if grant.namespace is None:
            # a table without its namespace is no place; it must not become all of them
            self._everywhere = max(self._everywhere, 0 if grant.table is not None else rank)
            return
        self._entered.add(grant.namespace)
        if grant.table is None:
            self._namespaces[grant.namespace] = max(rank, self._namespaces.get(grant.namespace, 0))
        else:
            place = (grant.namespace, grant.table)
            self._tables[place] = max(rank, self._tables.get(place, 0))


_SCOPE: Final = "lamella.principal"
#: What logs and the audit trail call a request that is from nobody known.
ANONYMOUS: Final = "anonymous"


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """One that may ask. ``names``: all that grants may be given to, its own first. ``expires_ms``: when it has to show
    anew who it is. ``requests_per_s``: how often it may ask, where that is its own."""

    names: tuple[str, ...]
    kind: Literal["open", "root", "key", "token"]
    rights: Rights
    expires_ms: int | None = None
    requests_per_s: float | None = None

    @property
    def name(self) -> str:
        """The one that logs, the audit trail and limits go by."""
        return self.names[0]

    def described(self) -> WhoAmI:
        """As the principal may know it."""
        groups = tuple(name.removeprefix("group:") for name in self.names[1:])
        return WhoAmI(
            principal=self.name,
            kind=self.kind,
            groups=groups,
            grants=tuple(Grant(role=g.role, namespace=g.namespace, table=g.table) for g in self.rights.grants),
            expires_ms=self.expires_ms,
        )


_ALL: Final = Rights((Grant(role="admin"),))
#: Whoever asks a service that asks nobody who they are.
OPEN: Final = Principal(names=(ANONYMOUS,), kind="open", rights=_ALL)


def root(name: str) -> Principal:
    """One that may do everything."""
    return Principal(names=(name,), kind="root", rights=_ALL)


def set_principal(request: HTTPConnection, principal: Principal) -> None:
    """Note who a request is from."""
    request.scope[_SCOPE] = principal


def principal_of(request: HTTPConnection) -> Principal:
    """Who a request is from; raises Unauthenticated where nobody has found out."""
    found = request.scope.get(_SCOPE)
    if not isinstance(found, Principal):
        raise Unauthenticated("nobody has asked who this request is from")
    return found


def is_known(request: HTTPConnection) -> bool:
    """Whether it was found out who a request is from."""
    return isinstance(request.scope.get(_SCOPE), Principal)


def actor_of(request: HTTPConnection) -> str:
    """The name of who a request is from, for logs and the audit trail."""
    found = request.scope.get(_SCOPE)
    return found.name if isinstance(found, Principal) else ANONYMOUS

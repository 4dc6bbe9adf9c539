"""The principal of a request, and its rights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec
from starlette.requests import HTTPConnection

from lamella.service.catalog.records import main_name
from lamella.snapshot.errors import Unauthenticated
from lamella.snapshot.wire import ROLES, Grant, Role, WhoAmI

_RANK: Final[dict[Role, int]] = {role: rank for rank, role in enumerate(ROLES, 1)}


class Rights:
    """The grants of a principal. Only grants give rights. The highest role that covers a resource counts."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self.grants = tuple(grants)
        self._everywhere = 0
        self._namespaces: dict[str, int] = {}
        self._tables: dict[tuple[str, str], int] = {}
        self._entered: set[str] = set()
        for grant in self.grants:
            self._add(grant)

    def may(self, role: Role, namespace: str | None = None, table: str | None = None) -> bool:
        """Return whether the principal has a role on the server, on a namespace with all its tables, or on a table."""
        rank = self._everywhere
        if namespace is not None:
            rank = max(rank, self._namespaces.get(namespace, 0))
            if table is not None:  # a grant on a table holds for its branches
                rank = max(rank, self._tables.get((namespace, main_name(table)), 0))
        return rank >= _RANK[role]

    def readable(self, namespace: str, names: Sequence[str]) -> tuple[str, ...]:
        """Return those of a namespace's tables that the principal may read; a role on the namespace holds for all."""
        if self.may("read", namespace):
            return tuple(names)
        return tuple(name for name in names if self.may("read", namespace, name))

    def sees(self, namespace: str) -> bool:
        """Return whether the principal may know of a namespace: it has a role on it or on one of its tables."""
        return self._everywhere > 0 or namespace in self._entered

    def scopes(self, role: Role) -> tuple[tuple[str, str | None], ...] | None:
        """Return where the principal has the role: namespaces (with None) and tables; None: everywhere."""
        rank = _RANK[role]
        if self._everywhere >= rank:
            return None
        return (
            *((name, None) for name, granted in self._namespaces.items() if granted >= rank),
            *(scope for scope, granted in self._tables.items() if granted >= rank),
        )

    def _add(self, grant: Grant) -> None:
        rank = _RANK[grant.role]
        if grant.namespace is None:
            # a grant on a table without a namespace is ignored; it must not become a grant on all
            self._everywhere = max(self._everywhere, 0 if grant.table is not None else rank)
            return
        self._entered.add(grant.namespace)
        if grant.table is None:
            self._namespaces[grant.namespace] = max(rank, self._namespaces.get(grant.namespace, 0))
        else:
            scope = (grant.namespace, grant.table)
            self._tables[scope] = max(rank, self._tables.get(scope, 0))


_SCOPE: Final = "lamella.principal"
#: The name of unauthenticated requests in logs and the audit trail.
ANONYMOUS: Final = "anonymous"


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated caller.

    ``names``: all names that grants can be given to, its own first. ``expires_ms``: when it has to authenticate again.
    ``requests_per_s``: a rate limit of its own, if it has one.
    """

    names: tuple[str, ...]
    kind: Literal["open", "root", "key", "token"]
    rights: Rights
    expires_ms: int | None = None
    requests_per_s: float | None = None

    @property
    def name(self) -> str:
        """Return the name that logs, the audit trail and limits use."""
        return self.names[0]

    def described(self) -> WhoAmI:
        """Return what the principal may know of itself."""
        groups = tuple(name.removeprefix("group:") for name in self.names[1:])
        return WhoAmI(
            principal=self.name,
            kind=self.kind,
            groups=groups,
            grants=tuple(Grant(role=g.role, namespace=g.namespace, table=g.table) for g in self.rights.grants),
            expires_ms=self.expires_ms,
        )


_ALL: Final = Rights((Grant(role="admin"),))
#: The principal of every request to a service without authentication.
OPEN: Final = Principal(names=(ANONYMOUS,), kind="open", rights=_ALL)


def root(name: str) -> Principal:
    """Return a principal with every right."""
    return Principal(names=(name,), kind="root", rights=_ALL)


def set_principal(request: HTTPConnection, principal: Principal) -> None:
    """Store the principal of a request."""
    request.scope[_SCOPE] = principal


def principal_of(request: HTTPConnection) -> Principal:
    """Return the principal of a request. Raises Unauthenticated before authentication."""
    found = request.scope.get(_SCOPE)
    if not isinstance(found, Principal):
        raise Unauthenticated("the request was not authenticated")
    return found


def is_known(request: HTTPConnection) -> bool:
    """Return whether the request was authenticated."""
    return isinstance(request.scope.get(_SCOPE), Principal)


def actor_of(request: HTTPConnection) -> str:
    """Return the name of the request's principal for logs and the audit trail."""
    found = request.scope.get(_SCOPE)
    return found.name if isinstance(found, Principal) else ANONYMOUS

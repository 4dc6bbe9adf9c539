"""Who a request is from."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from starlette.requests import HTTPConnection

from lamella.service.access.rights import Rights
from lamella.snapshot.errors import Unauthenticated
from lamella.snapshot.wire import Grant, WhoAmI

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

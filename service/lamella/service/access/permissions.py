"""The permission that an operation needs: a role, and on what. An operation cannot be declared without one."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from starlette.requests import Request

from lamella.service.access.principal import Principal, principal_of
from lamella.service.catalog.records import no_namespace, no_table
from lamella.snapshot.errors import LamellaError, PermissionDenied
from lamella.snapshot.wire import Role

Place = Literal["nobody", "anybody", "server", "namespace", "table", "asked"]
_DECIDED: Final = "lamella.decided"


class Permission(msgspec.Struct, frozen=True):
    """``place``: what the role is needed on: the server, or the namespace or table in the path.

    ``nobody``: the operation is for everyone, known or not; ``anybody``: for everyone who is known, and shows each only
    what they may see; ``asked``: its handler decides by what the request says (:func:`require`), and has to.
    """

    place: Place
    role: Role | None = None

    def check(self, request: Request, principal: Principal) -> None:
        """Raises NamespaceNotFound or TableNotFound where the principal may not know of it, else PermissionDenied."""
        if self.role is None:
            return
        named = request.path_params
        if self.place == "table":
            check(principal, self.role, named["namespace"], named["table"])
        elif self.place == "namespace":
            check(principal, self.role, named["namespace"])
        else:
            check(principal, self.role)

    def check_decided(self, request: Request) -> None:
        """Raises LamellaError when the handler was to decide and has not: its answer must not leave the service."""
        if self.place == "asked" and not request.scope.get(_DECIDED):
            raise LamellaError("this operation did not decide who may ask for it")

    @property
    def text(self) -> str:
        """For the API's description."""
        if self.place == "nobody":
            return "Needs no key."
        if self.role is None:
            return "Needs any key; shows what its grants let it see." if self.place == "anybody" else ""
        return f"Needs `{self.role}` on the {self.place}."


NOBODY: Final = Permission("nobody")
ANYBODY: Final = Permission("anybody")
ASKED: Final = Permission("asked")


def on_table(role: Role) -> Permission:
    """A role on the table that the path names."""
    return Permission("table", role)


def on_namespace(role: Role) -> Permission:
    """A role on the namespace that the path names."""
    return Permission("namespace", role)


def on_server(role: Role) -> Permission:
    """A role on everything."""
    return Permission("server", role)


def require(request: Request, role: Role, namespace: str | None = None, table: str | None = None) -> None:
    """The decision of an operation that needs what its request says; raises as :func:`check`."""
    request.scope[_DECIDED] = True
    check(principal_of(request), role, namespace, table)


def require_sight(request: Request, namespace: str) -> Principal:
    """The decision of an operation for whoever may know of a namespace, and shows what that one may see of it.

    Raises NamespaceNotFound.
    """
    principal = decided(request)
    if not principal.rights.sees(namespace):
        raise no_namespace(namespace)
    return principal


def decided(request: Request) -> Principal:
    """Note that an operation shows each principal only what it may see, and give that principal."""
    request.scope[_DECIDED] = True
    return principal_of(request)


def check(principal: Principal, role: Role, namespace: str | None = None, table: str | None = None) -> None:
    """Raise unless the principal has the role there.

    Where it may not read, the answer is what it would be if nothing were there, word for word.

    Raises:
        NamespaceNotFound, TableNotFound: it may not know of them.
        PermissionDenied: it may, but not do this.
    """
    rights = principal.rights
    if rights.may(role, namespace, table):
        return
    if namespace is not None:
        if not rights.sees(namespace):
            raise no_namespace(namespace)
        if table is not None and not rights.may("read", namespace, table):
            raise no_table(namespace, table)
    where = "everything" if namespace is None else f"namespace {namespace!r}"
    if namespace is not None and table is not None:
        where = f"table {namespace}.{table}"
    raise PermissionDenied(f"{principal.name} would need the role {role!r} on {where}", role=role)

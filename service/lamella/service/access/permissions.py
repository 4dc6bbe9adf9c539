"""The check of the permission that an operation needs, by the request and who sent it."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from lamella.service.access.principal import Principal, principal_of
from lamella.service.catalog.records import no_namespace, no_table
from lamella.snapshot.errors import LamellaError, PermissionDenied
from lamella.snapshot.wire import Role
from lamella.snapshot.wire.operation import Permission

_DECIDED: Final = "lamella.decided"


def check_permission(permission: Permission, request: Request, principal: Principal) -> None:
    """Raises NamespaceNotFound or TableNotFound where the principal may not know of it, else PermissionDenied."""
    if permission.role is None:
        return
    named = request.path_params
    if permission.scope == "table":
        check(principal, permission.role, named["namespace"], named["table"])
    elif permission.scope == "namespace":
        check(principal, permission.role, named["namespace"])
    else:
        check(principal, permission.role)


def check_decided(permission: Permission, request: Request) -> None:
    """Raises LamellaError when the handler was to decide and has not: its answer must not leave the service."""
    if permission.scope == "request" and not request.scope.get(_DECIDED):
        raise LamellaError("this operation did not decide who may ask for it")


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

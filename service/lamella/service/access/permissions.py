"""The permission that an operation requires: a role on a resource. An operation cannot be declared without one."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from lamella.service.access.principal import Principal, principal_of
from lamella.service.catalog.records import no_namespace, no_table, no_view
from lamella.snapshot.errors import LamellaError, PermissionDenied
from lamella.snapshot.wire import Role
from lamella.snapshot.wire.operation import Permission

_DECIDED: Final = "lamella.decided"


def check_permission(permission: Permission, request: Request, principal: Principal) -> None:
    """Raises NamespaceNotFound, TableNotFound or ViewNotFound if the principal may not see the resource, else
    PermissionDenied."""
    if permission.role is None:
        return
    named = request.path_params
    if permission.scope == "table":
        check(principal, permission.role, named["namespace"], named["table"])
    elif permission.scope == "view":
        check(principal, permission.role, named["namespace"], view=named["view"])
    elif permission.scope == "namespace":
        check(principal, permission.role, named["namespace"])
    else:
        check(principal, permission.role)


def check_decided(permission: Permission, request: Request) -> None:
    """Raises LamellaError if the handler had to check permissions and did not: its answer must not be sent."""
    if permission.scope == "request" and not request.scope.get(_DECIDED):
        raise LamellaError("this operation did not decide who may ask for it")


def require(
    request: Request,
    role: Role,
    namespace: str | None = None,
    table: str | None = None,
    *,
    view: str | None = None,
) -> None:
    """Check a role that depends on the content of the request. Raises as :func:`check`."""
    request.scope[_DECIDED] = True
    check(principal_of(request), role, namespace, table, view=view)


def require_sight(request: Request, namespace: str) -> Principal:
    """Check that the principal may know of a namespace, and return it; the handler shows only what it may see.

    Raises NamespaceNotFound.
    """
    principal = decided(request)
    if not principal.rights.sees(namespace):
        raise no_namespace(namespace)
    return principal


def decided(request: Request) -> Principal:
    """Note that the handler filters its answer by principal, and return the principal."""
    request.scope[_DECIDED] = True
    return principal_of(request)


def check(
    principal: Principal,
    role: Role,
    namespace: str | None = None,
    table: str | None = None,
    *,
    view: str | None = None,
) -> None:
    """Raise unless the principal has the role there. Views have the grants of the tables' names.

    For a resource that the principal may not read, the error is exactly the one of a missing resource.

    Raises:
        NamespaceNotFound, TableNotFound, ViewNotFound: the principal may not know that it exists.
        PermissionDenied: the principal may see it, but not do this.
    """
    rights = principal.rights
    name = table if view is None else view
    if rights.may(role, namespace, name):
        return
    if namespace is not None:
        if not rights.sees(namespace):
            raise no_namespace(namespace)
        if name is not None and not rights.may("read", namespace, name):
            raise no_table(namespace, name) if view is None else no_view(namespace, name)
    where = "everything" if namespace is None else f"namespace {namespace!r}"
    if namespace is not None and name is not None:
        where = f"{'table' if view is None else 'view'} {namespace}.{name}"
    raise PermissionDenied(f"{principal.name} would need the role {role!r} on {where}", role=role)

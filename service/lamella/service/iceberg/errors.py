"""Errors in the form of Iceberg's REST specification, with the name of the exception that its clients raise.

Clients act on status and name: a 404 on a table means that the table does not exist, whatever the text says. So errors
that are not a 404 here have no such status there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from lamella.service.http.problem import Envelope
from lamella.snapshot.errors import (
    AlreadyExists,
    Conflict,
    InvalidRequest,
    LamellaError,
    LocationRefused,
    NamespaceNotEmpty,
    NamespaceNotFound,
    NotExpressible,
    NotFound,
    ObjectNotFound,
    OutcomeUnknown,
    PermissionDenied,
    PlanTaskNotFound,
    PropertyConflict,
    SnapshotNotFound,
    TableNotFound,
    TagNotFound,
    Unauthenticated,
    Unavailable,
    ViewNotFound,
)
from lamella.snapshot.iceberg.wire import IcebergError, IcebergErrorBody, OAuthError

#: The first matching class counts.
_TYPES: Final[tuple[tuple[type[LamellaError], str], ...]] = (
    (NamespaceNotFound, "NoSuchNamespaceException"),
    (TableNotFound, "NoSuchTableException"),
    (PlanTaskNotFound, "NoSuchPlanTaskException"),
    (ViewNotFound, "NoSuchViewException"),
    (SnapshotNotFound, "BadRequestException"),
    (TagNotFound, "BadRequestException"),
    (NotFound, "NotFoundException"),
    (NotExpressible, "UnsupportedOperationException"),
    (Unauthenticated, "NotAuthorizedException"),
    (PermissionDenied, "ForbiddenException"),
    (LocationRefused, "ForbiddenException"),
    (PropertyConflict, "UnprocessableEntityException"),
    (InvalidRequest, "BadRequestException"),
    (AlreadyExists, "AlreadyExistsException"),
    (NamespaceNotEmpty, "NamespaceNotEmptyException"),
    (Conflict, "CommitFailedException"),
    (OutcomeUnknown, "CommitStateUnknownException"),
    (Unavailable, "ServiceUnavailableException"),
)


def _named(error: LamellaError, kind: str = "table") -> str:
    return f"{error.details.get('namespace', '')}.{error.details.get(kind, '')}"


def _exists(error: LamellaError, path: str) -> str:
    wanted = "view" if _OF_VIEWS.search(path) else "table"
    for kind in ("table", "view"):
        if kind not in error.details:
            continue
        named = _named(error, kind)
        if "renamed" in error.details:
            return f"Cannot rename {error.details['renamed']} to {named}. {kind.capitalize()} already exists"
        same_name = "" if kind == wanted else " with same name"
        return f"{kind.capitalize()}{same_name} already exists: {named}"
    return f"Namespace already exists: {error.details.get('namespace', '')}"


#: Texts that the compatibility kit reads.
_KNOWN_TEXTS: Final[dict[type[LamellaError], Callable[[LamellaError, str], str]]] = {
    NamespaceNotFound: lambda error, _: f"Namespace does not exist: {error.details.get('namespace', '')}",
    NamespaceNotEmpty: lambda error, _: f"Namespace is not empty: {error.message}",
    TableNotFound: lambda error, _: f"Table does not exist: {_named(error)}",
    ViewNotFound: lambda error, _: f"View does not exist: {_named(error, 'view')}",
    AlreadyExists: _exists,
    ObjectNotFound: lambda error, _: f"Failed to open input stream for file: {error.details.get('location', '')}",
}
_RENAME: Final = "/rename"
_OF_VIEWS: Final = re.compile(r"/namespaces/[^/]+/(?:views|register-view)(?:/(?P<name>[^/]+))?$")


def iceberg_error(error: LamellaError, status: int, path: str) -> IcebergError:
    """Return the body of an error with that status at a path."""
    name = next((name for kind, name in _TYPES if isinstance(error, kind)), "ServiceFailureException")
    name = error.details.get("iceberg_type", name)
    known = _KNOWN_TEXTS.get(type(error))
    message = error.message if known is None else known(error, path)
    table = "" if path.endswith(_RENAME) else unquote(path).partition("/tables/")[2]
    view = _OF_VIEWS.search(path)
    if status == 406:
        name = "UnsupportedOperationException"
    elif "/plan/" in path and isinstance(error, PlanTaskNotFound):
        name = "NoSuchPlanIdException"
    elif table and isinstance(error, NamespaceNotFound):
        # Java's client looks for a table's metadata tables (`t.snapshots`) below it, and accepts only a missing table
        # as "no".
        name = "NoSuchTableException"
        message = f"Table does not exist: {error.details.get('namespace', '')}.{table.partition('/')[0]}"
    elif view is not None and view["name"] and isinstance(error, NamespaceNotFound):
        name = "NoSuchViewException"
        message = f"View does not exist: {error.details.get('namespace', '')}.{unquote(view['name'])}"
    return IcebergError(IcebergErrorBody(message=message, type=name, code=status))


def iceberg_status(kind: type[LamellaError], status: int) -> int:
    """Return the status of an error for Iceberg clients; ``status`` is the usual one."""
    if issubclass(kind, SnapshotNotFound | TagNotFound):
        return 400
    if issubclass(kind, PropertyConflict):
        return 422
    if issubclass(kind, OutcomeUnknown):
        return 500  # after 503, clients take it that nothing was committed
    return 406 if status == 405 else status  # an operation of the specification that the service does not have


def oauth_error(error: LamellaError, _status: int, _path: str) -> OAuthError:
    """Return the body of an error of the token endpoint (RFC 6749, section 5.2)."""
    kind = "server_error"
    if isinstance(error, Unauthenticated):
        kind = "invalid_client"
    elif isinstance(error, InvalidRequest):
        kind = str(error.details.get("oauth_error", "invalid_request"))
    elif isinstance(error, Unavailable):
        kind = "temporarily_unavailable"
    return OAuthError(error=kind, error_description=error.message)


#: The first that covers a path counts.
ENVELOPES: Final = (
    Envelope("/iceberg/v1/oauth", OAuthError, oauth_error),
    Envelope("/iceberg", IcebergError, iceberg_error, iceberg_status),
)

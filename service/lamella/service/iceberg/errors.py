"""Errors in the form of Iceberg's REST specification, with the name of the exception that its clients raise.

Clients act on status and name: a 404 on a table means that the table does not exist, whatever the text says. So errors
that are not a 404 here have no such status there.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from lamella.service.http.problem import Envelope
from lamella.snapshot.errors import (
    InvalidRequest,
    LamellaError,
    NamespaceNotFound,
    NotExpressible,
    NotFound,
    PermissionDenied,
    PlanTaskNotFound,
    SnapshotNotFound,
    TableNotFound,
    TagNotFound,
    Unauthenticated,
    Unavailable,
)
from lamella.snapshot.iceberg.wire import IcebergError, IcebergErrorBody, OAuthError

#: The first matching class counts.
_TYPES: Final[tuple[tuple[type[LamellaError], str], ...]] = (
    (NamespaceNotFound, "NoSuchNamespaceException"),
    (TableNotFound, "NoSuchTableException"),
    (PlanTaskNotFound, "NoSuchPlanTaskException"),
    (SnapshotNotFound, "BadRequestException"),
    (TagNotFound, "BadRequestException"),
    (NotFound, "NotFoundException"),
    (NotExpressible, "UnsupportedOperationException"),
    (Unauthenticated, "NotAuthorizedException"),
    (PermissionDenied, "ForbiddenException"),
    (InvalidRequest, "BadRequestException"),
    (Unavailable, "ServiceUnavailableException"),
)


def iceberg_error(error: LamellaError, status: int, path: str) -> IcebergError:
    """Return the body of an error with that status at a path."""
    name = next((name for kind, name in _TYPES if isinstance(error, kind)), "ServiceFailureException")
    message = error.message
    _, _, table = unquote(path).partition("/tables/")
    if status == 406:
        name = "UnsupportedOperationException"
    elif "/plan/" in path and isinstance(error, PlanTaskNotFound):
        name = "NoSuchPlanIdException"
    elif isinstance(error, NamespaceNotFound | TableNotFound):
        # The compatibility kit reads these texts. Java's client looks for a table's metadata tables (`t.snapshots`)
        # below it, and accepts only a missing table as "no".
        namespace = error.details.get("namespace", "")
        message = f"Namespace does not exist: {namespace}"
        if table:
            name, message = "NoSuchTableException", f"Table does not exist: {namespace}.{table.partition('/')[0]}"
    return IcebergError(IcebergErrorBody(message=message, type=name, code=status))


def iceberg_status(kind: type[LamellaError], status: int) -> int:
    """Return the status of an error for Iceberg clients; ``status`` is the usual one."""
    if issubclass(kind, SnapshotNotFound | TagNotFound):
        return 400
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

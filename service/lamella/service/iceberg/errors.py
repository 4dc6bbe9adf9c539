"""Errors as Iceberg's REST specification has them: with the name of the exception that its clients raise.

Clients tell by status and name what happened, and act on it: a 404 on a table means that there is none, whatever its
text says. So what is no 404 there is none here.
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

#: The first that an error is of counts.
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
    """The body of an error that is answered with a status at a path."""
    name = next((name for kind, name in _TYPES if isinstance(error, kind)), "ServiceFailureException")
    message = error.message
    _, _, table = unquote(path).partition("/tables/")
    if status == 406:
        name = "UnsupportedOperationException"
    elif "/plan/" in path and isinstance(error, PlanTaskNotFound):
        name = "NoSuchPlanIdException"
    elif isinstance(error, NamespaceNotFound | TableNotFound):
        # The compatibility kit reads these texts. Java's client looks for a table's metadata tables (`t.snapshots`)
        # below it, and takes only a missing table for a no.
        namespace = error.details.get("namespace", "")
        message = f"Namespace does not exist: {namespace}"
        if table:
            name, message = "NoSuchTableException", f"Table does not exist: {namespace}.{table.partition('/')[0]}"
    return IcebergError(IcebergErrorBody(message=message, type=name, code=status))


def iceberg_status(kind: type[LamellaError], status: int) -> int:
    """The status that an error has for Iceberg's clients, of which ``status`` is ours."""
    if issubclass(kind, SnapshotNotFound | TagNotFound):
        return 400
    return 406 if status == 405 else status  # an operation of the specification that is not served


def oauth_error(error: LamellaError, _status: int, _path: str) -> OAuthError:
    """The body of what the token endpoint refused (RFC 6749, section 5.2)."""
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

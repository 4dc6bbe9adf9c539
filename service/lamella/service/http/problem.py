"""Errors as RFC 9457 problem documents. One table maps error classes to HTTP statuses.

Below the paths of another protocol, errors have that protocol's form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.responses import Response

from lamella.snapshot.errors import (
    BlocksRefused,
    BodyTooLarge,
    Conflict,
    CorruptDeletes,
    HeadersTooLarge,
    InvalidRequest,
    LamellaError,
    LocationRefused,
    ManifestError,
    NotExpressible,
    NotFound,
    NotParquet,
    Overloaded,
    PermissionDenied,
    SchemaMismatch,
    SnapshotExpired,
    StoreError,
    TooSlow,
    Unauthenticated,
    Unavailable,
    ValueOutsideFile,
    from_code,
)
from lamella.snapshot.wire import Problem


class Envelope(msgspec.Struct, frozen=True):
    """The form of errors of another protocol. ``made`` returns the body for a status and path; ``kind`` is its type.

    ``status`` maps the usual status of an error to the one that it has in that protocol.
    """

    prefix: str
    kind: Any
    made: Callable[[LamellaError, int, str], object]
    status: Callable[[type[LamellaError], int], int] = lambda _kind, status: status

    def covers(self, path: str) -> bool:
        """Return whether errors at a path have this form."""
        return path == self.prefix or path.startswith(self.prefix + "/")


def envelope_of(path: str, envelopes: Sequence[Envelope]) -> Envelope | None:
    """The form of errors at a path, by the first that covers it; None: problem documents."""
    return next((each for each in envelopes if each.covers(path)), None)


#: HTTP status by class. Other classes have the status of their nearest listed ancestor. See docs/errors.md.
STATUS: Final[dict[type[LamellaError], int]] = {
    LamellaError: 500,
    InvalidRequest: 400,
    SchemaMismatch: 422,
    ValueOutsideFile: 422,
    BlocksRefused: 422,
    BodyTooLarge: 413,
    HeadersTooLarge: 431,
    LocationRefused: 403,
    NotExpressible: 406,
    Unauthenticated: 401,
    PermissionDenied: 403,
    NotParquet: 422,
    CorruptDeletes: 422,
    NotFound: 404,
    SnapshotExpired: 410,
    Conflict: 409,
    ManifestError: 500,
    StoreError: 502,
    Unavailable: 503,
    Overloaded: 429,
    TooSlow: 408,
}

MEDIA_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:lamella:error:"
_JSON: Final = "application/json"

_DECODER: Final = msgspec.json.Decoder(Problem)
_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)


def status_of(kind: type[LamellaError]) -> int:
    """Return the HTTP status of an error class."""
    return next(STATUS[ancestor] for ancestor in kind.__mro__ if ancestor in STATUS)


def title_of(kind: type[LamellaError]) -> str:
    """Return the title of a class, the same for all its problems."""
    return kind.code.replace("_", " ").capitalize()


def error_in(document: bytes) -> LamellaError:
    """Return the error that a problem document describes. Raises msgspec.DecodeError."""
    problem = _DECODER.decode(document)
    return from_code(problem.code, problem.detail, problem.details)


def problem_of(error: LamellaError, *, instance: str | None = None, status: int | None = None) -> Problem:
    """Return the problem document of an error; ``instance`` is the request's path."""
    kind = type(error)
    return Problem(
        type=TYPE_PREFIX + kind.code,
        title=title_of(kind),
        status=status_of(kind) if status is None else status,
        detail=error.message,
        code=kind.code,
        instance=instance,
        details=error.details,
    )


def problem_bytes(error: LamellaError, *, instance: str | None = None) -> tuple[int, bytes]:
    """Return the status and body that :func:`problem_response` sends for an error."""
    document = problem_of(error, instance=instance)
    return document.status, _ENCODER.encode(document)


def retry_after_s(error: Unavailable) -> int:
    """Return the value of ``Retry-After``: whole seconds, at least one."""
    return max(1, math.ceil(float(error.details.get("retry_after_s", 1))))


def problem_response(
    error: LamellaError,
    *,
    instance: str | None = None,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    envelopes: Sequence[Envelope] = (),
) -> Response:
    """Return the response for an error, with ``Retry-After`` if it is Unavailable.

    Below the paths of another protocol, of which there are ``envelopes``, it has that protocol's form.
    """
    document = problem_of(error, instance=instance, status=status)
    path = instance or ""
    envelope = envelope_of(path, envelopes)
    sent = dict(headers or {})
    if isinstance(error, Unavailable):
        sent["Retry-After"] = str(retry_after_s(error))
    if isinstance(error, Unauthenticated):
        sent["WWW-Authenticate"] = "Bearer"  # RFC 9110, section 11.6.1: required with 401
    if envelope is not None:
        answered = envelope.status(type(error), document.status)
        return Response(_ENCODER.encode(envelope.made(error, answered, path)), answered, sent, _JSON)
    return Response(_ENCODER.encode(document), document.status, sent, MEDIA_TYPE)

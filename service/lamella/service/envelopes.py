"""Errors in the form of other protocols, below the paths at which the service speaks them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from lamella.service.iceberg_envelope import iceberg_error, iceberg_status, oauth_error
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.iceberg.wire import IcebergError, OAuthError
from lamella.snapshot.sharing.items import SharingError


class Envelope(msgspec.Struct, frozen=True):
    """``made`` gives the body of an error that is answered with a status at a path; ``kind`` is its type.

    ``status`` gives the status that an error has there, of the one that it has elsewhere.
    """

    prefix: str
    kind: Any
    made: Callable[[LamellaError, int, str], object]
    status: Callable[[type[LamellaError], int], int] = lambda _kind, status: status

    def covers(self, path: str) -> bool:
        """Whether answers to requests for a path have this form."""
        return path == self.prefix or path.startswith(self.prefix + "/")


def _sharing(error: LamellaError, _status: int, _path: str) -> SharingError:
    return SharingError(error_code=error.code.upper(), message=error.message)


ENVELOPES: Final = (
    Envelope("/delta-sharing", SharingError, _sharing),
    Envelope("/iceberg/v1/oauth", OAuthError, oauth_error),  # before what it is below
    Envelope("/iceberg", IcebergError, iceberg_error, iceberg_status),
)


def envelope_of(path: str) -> Envelope | None:
    """The form of errors at a path; None: problem documents."""
    return next((each for each in ENVELOPES if each.covers(path)), None)

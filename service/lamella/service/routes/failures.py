"""What can be wrong with questions about a table, as routes declare it."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import (
    FilterTypeMismatch,
    InvalidFilter,
    InvalidRequest,
    LimitExceeded,
    ManifestError,
    NamespaceNotFound,
    SnapshotExpired,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
    Unavailable,
    UnknownColumn,
)

#: Of a question to a snapshot of a table.
OF_A_SNAPSHOT: Final = (
    InvalidRequest,
    NamespaceNotFound,
    TableNotFound,
    SnapshotNotFound,
    SnapshotExpired,
    ManifestError,
    StoreError,
    Unavailable,
)
#: Of a filter, beside those.
OF_A_FILTER: Final = (InvalidFilter, FilterTypeMismatch, UnknownColumn, LimitExceeded)

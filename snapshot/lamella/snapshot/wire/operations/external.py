"""Refreshes of external tables."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import (
    BlocksRefused,
    CommitConflict,
    DeletionPending,
    IdempotencyMismatch,
    InvalidRequest,
    InvalidSchema,
    LocationRefused,
    NotExpressible,
    ObjectNotFound,
    OutcomeUnknown,
    Overloaded,
    QuotaExceeded,
    StoreError,
    Unavailable,
)
from lamella.snapshot.wire import (
    ConversionAnswer,
    ConversionRequest,
    RefreshProgress,
    RefreshTable,
    RefreshTableAnswer,
)
from lamella.snapshot.wire.operation import OF_A_TABLE, TABLE, Operation, on_table

REFRESH_TABLE: Final = Operation(
    name="refresh_table",
    method="POST",
    path=TABLE + "/refresh",
    permission=on_table("write"),
    summary="Bring an external table up to date with its source",
    tag="Blocks",
    description="The source (a directory, a Delta or an Iceberg table) is compared with the table; new and changed "
    "files are read, and all changes are committed in one snapshot. If nothing changed, there is no new snapshot. A "
    "source that would give wrong rows is refused, with the files and the reason.",
    request_type=RefreshTable,
    answer_type=RefreshTableAnswer,
    errors=(
        InvalidRequest,
        LocationRefused,
        InvalidSchema,
        BlocksRefused,
        ObjectNotFound,
        Overloaded,
        *OF_A_TABLE,
        CommitConflict,
        DeletionPending,
        QuotaExceeded,
        IdempotencyMismatch,
        StoreError,
        Unavailable,
        OutcomeUnknown,
    ),
    resend="with_key",
)

REFRESH_PROGRESS: Final = Operation(
    name="refresh_progress",
    method="GET",
    path=TABLE + "/refresh",
    permission=on_table("read"),
    summary="Get the progress of a refresh",
    tag="Blocks",
    description="Returns the progress of a refresh that runs in the process that answers; with several processes, it "
    "may run in another one.",
    answer_type=RefreshProgress,
    errors=OF_A_TABLE,
)

CONVERT_TO_ICEBERG: Final = Operation(
    name="convert_to_iceberg",
    method="POST",
    path=TABLE + "/convert-to-iceberg",
    permission=on_table("maintain"),
    summary="Let Iceberg clients commit to a table",
    tag="Iceberg",
    description="Writes the manifests and the metadata of an Iceberg table with the same files, which stay where they "
    "are. From then on both sides write. The table keeps its history, tags and indexes; it cannot be converted back.",
    request_type=ConversionRequest,
    answer_type=ConversionAnswer,
    errors=(
        InvalidRequest,
        NotExpressible,
        Overloaded,
        *OF_A_TABLE,
        CommitConflict,
        QuotaExceeded,
        IdempotencyMismatch,
        StoreError,
        Unavailable,
        OutcomeUnknown,
    ),
    resend="with_key",
)

"""Registration and commits."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import (
    BlocksRefused,
    BodyTooLarge,
    CommitConflict,
    DuplicateBlock,
    FilterTypeMismatch,
    IdempotencyMismatch,
    InvalidFilter,
    InvalidRequest,
    LimitExceeded,
    LocationRefused,
    NamespaceNotFound,
    NewMatches,
    ObjectNotFound,
    OutcomeUnknown,
    QuotaExceeded,
    SchemaConflict,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
    Unavailable,
    UnknownColumn,
)
from lamella.snapshot.wire import CommitAnswer, CommitRequest, Register, RegisterAnswer
from lamella.snapshot.wire.operation import TABLE, Operation, on_table

_COMMON: Final = (
    InvalidRequest,
    LocationRefused,
    BlocksRefused,
    BodyTooLarge,
    DuplicateBlock,
    NamespaceNotFound,
    TableNotFound,
    IdempotencyMismatch,
    QuotaExceeded,
    StoreError,
    Unavailable,
    OutcomeUnknown,
)

REGISTER: Final = Operation(
    name="register",
    method="POST",
    path=TABLE + "/register",
    permission=on_table("write"),
    summary="Append Parquet files that exist",
    tag="Blocks",
    description="Each of `paths` is a file, a folder (its `*.parquet` files at any depth) or a glob. "
    "Footers are read in parallel and the files appended in one snapshot. A file that cannot be taken is "
    "listed under `refused` with the reason, and the others are registered, unless `strict` is true. "
    "With `verify` the statistics are taken from the values, all of which are read, not from the footers. "
    "When nothing could be registered the answer is an error and the table is as it was.",
    request_type=Register,
    answer_type=RegisterAnswer,
    errors=_COMMON,
    resend="with_key",
    is_large=True,
)

COMMIT: Final = Operation(
    name="commit",
    method="POST",
    path=TABLE + "/commits",
    permission=on_table("write"),
    summary="Add and remove blocks in one snapshot",
    tag="Blocks",
    description="All of it happens or nothing. Appends never conflict; a block that is to be removed and "
    "is no longer there does. The size of each added file is asked of the store, whatever the request "
    "says. `added_from` names objects `_tmp/<v7 UUID>_v1.blocks` below the table's folder that hold "
    "further blocks as JSON, one a line, for commits that are larger than a request can be; they come "
    "behind those of `added` and are treated alike. `index_parts` are what skip indexes know of the added "
    "blocks, for which they are filled by the same snapshot; those of an index that is no longer used are "
    "left out and named in the answer. With `no_new_matches` the commit is refused when blocks came since "
    "`base_snapshot_id` that may hold rows of a filter: for changes that rest on having seen all of these.",
    request_type=CommitRequest,
    answer_type=CommitAnswer,
    errors=(
        *_COMMON,
        InvalidFilter,
        UnknownColumn,
        FilterTypeMismatch,
        LimitExceeded,
        SnapshotNotFound,
        ObjectNotFound,
        CommitConflict,
        NewMatches,
        SchemaConflict,
    ),
    resend="with_key",
    is_large=True,
)

"""Registration, files that arrived, and commits."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import (
    BlocksRefused,
    BodyTooLarge,
    CommitConflict,
    DeletionPending,
    DuplicateBlock,
    FilterNotEvaluable,
    FilterTypeMismatch,
    IdempotencyMismatch,
    InvalidFilter,
    InvalidRequest,
    InvalidSchema,
    LimitExceeded,
    LocationRefused,
    NamespaceNotFound,
    NewMatches,
    NotProven,
    ObjectNotFound,
    OutcomeUnknown,
    Overloaded,
    PermissionDenied,
    QuotaExceeded,
    ReadConflict,
    SchemaConflict,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
    TransactionConflict,
    Unavailable,
    UnknownColumn,
    WriterFeatureMissing,
)
from lamella.snapshot.wire import (
    ArrivalsAnswer,
    ArrivalsRequest,
    CommitAnswer,
    CommitRequest,
    Register,
    RegisterAnswer,
    TransactionAnswer,
    TransactionRequest,
)
from lamella.snapshot.wire.operation import BY_REQUEST, OF_A_TABLE, TABLE, Operation, Parameter, on_table

_COMMON: Final = (
    InvalidRequest,
    LocationRefused,
    BlocksRefused,
    BodyTooLarge,
    DeletionPending,
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
    summary="Append existing Parquet files",
    tag="Blocks",
    description="Each of `paths` is a file, a folder (its `*.parquet` files at any depth) or a glob. Footers are read "
    "in parallel and the files appended in one snapshot. A file that cannot be registered is listed in `refused` with "
    "the reason, and the others are registered, unless `strict` is true. With `verify` all values are read, and the "
    "statistics are computed from the values instead of the footers. If nothing could be registered, the answer is an "
    "error and the table is unchanged.",
    request_type=Register,
    answer_type=RegisterAnswer,
    errors=(*_COMMON, NotProven),
    resend="with_key",
    is_large=True,
)

COMMIT: Final = Operation(
    name="commit",
    method="POST",
    path=TABLE + "/commits",
    permission=on_table("write"),
    summary="Add, remove and change blocks in one snapshot",
    tag="Blocks",
    description="The commit is atomic. Appends never conflict; removing a block that is no longer in the table does. "
    "The service gets the size of each added file from the store and ignores the size in the request. `added_from` "
    "names objects `_tmp/<v7 UUID>_v1.blocks` below the table's folder that hold more blocks as JSON, one per line, "
    "for commits that are too large for one request; they are added after those in `added`, in the same way. "
    "`index_parts` are index parts for the added blocks, so that the indexes cover them in the same snapshot; parts "
    "of an index that is no longer used are left out and named in the answer. With `no_new_matches` the commit is "
    "refused if blocks were added since `base_snapshot_id` that may hold rows matching a filter: for changes that "
    "depend on having read all matching rows; with `reads`, if such rows of any table may have changed. `deletes` "
    "deletes rows of blocks that stay in the table: concurrent deletions in one block are merged, unless one of them "
    "also changed a row that the other deletes. `schema_update` changes the columns in the same snapshot, before the "
    "blocks are added.",
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
        ReadConflict,
        SchemaConflict,
        NotProven,
        InvalidSchema,
        FilterNotEvaluable,
        WriterFeatureMissing,
    ),
    resend="with_key",
    is_large=True,
)

COMMIT_TRANSACTION: Final = Operation(
    name="commit_transaction",
    method="POST",
    path="/v1/transactions",
    permission=BY_REQUEST,
    summary="Commit to several tables at once",
    tag="Blocks",
    description="Requires `write` on each of the tables. All commits happen in the same moment, or none of them does, "
    "and one Idempotency-Key is for all. Each is what a commit to that table would be, and is "
    "checked by the same rules; with `reads` and `no_new_matches` the transaction is serializable over what it has "
    "read. If changes conflict with commits of others, the error `transaction_conflict` names each of them with the "
    "code that it would have by itself. Another error is that of the first table that has one.",
    request_type=TransactionRequest,
    answer_type=TransactionAnswer,
    errors=(*COMMIT.errors, TransactionConflict, PermissionDenied),
    resend="with_key",
    is_large=True,
)

REGISTER_ARRIVALS: Final = Operation(
    name="register_arrivals",
    method="POST",
    path=TABLE + "/arrivals",
    permission=on_table("write"),
    summary="Register files that arrived",
    tag="Blocks",
    description="The body is an S3 event notification, also as SNS or EventBridge sends it, or a list of locations. "
    "Each new data file that it names is registered, all of them in one snapshot; a file that the table has, or had, "
    "is counted and not added again, so that a message may come any number of times. A file of the table that was "
    "overwritten is refused with `block_replaced`. An external table is refreshed if a file below its location was "
    "created or deleted. Refused files are listed in the answer, which is no error: to send the message again would "
    "change nothing. Only if storage failed for a file of an event notification, or a writer was still at work on it, "
    "is the answer the error `store_error`: then the message should be sent again.",
    request_type=ArrivalsRequest,
    answer_type=ArrivalsAnswer,
    own_parameters=(
        Parameter(name="prefix", description="Only files whose location begins with this text."),
        Parameter(name="suffix", description="Only files whose name ends with this text. Default: `.parquet`."),
    ),
    errors=(
        InvalidRequest,
        LimitExceeded,
        LocationRefused,
        InvalidSchema,
        BodyTooLarge,
        ObjectNotFound,
        Overloaded,
        *OF_A_TABLE,
        CommitConflict,
        DeletionPending,
        NotProven,
        QuotaExceeded,
        SchemaConflict,
        StoreError,
        Unavailable,
        OutcomeUnknown,
    ),
    is_large=True,
)

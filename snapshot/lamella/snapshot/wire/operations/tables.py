"""Namespaces, tables, schemas and dropped tables."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import (
    AlreadyExists,
    BodyTooLarge,
    CommitConflict,
    FilterNotEvaluable,
    FilterTypeMismatch,
    IdempotencyMismatch,
    InvalidFilter,
    InvalidRequest,
    InvalidSchema,
    LimitExceeded,
    LocationRefused,
    ManifestError,
    NamespaceNotEmpty,
    NamespaceNotFound,
    NotParquet,
    NotProven,
    ObjectNotFound,
    OutcomeUnknown,
    QuotaExceeded,
    SchemaConflict,
    StoreError,
    TableNotFound,
    Unavailable,
    UnknownColumn,
)
from lamella.snapshot.wire import (
    ROLES,
    CreateNamespace,
    CreateTable,
    DroppedList,
    EvolveRequest,
    NamespaceChange,
    NamespaceInfo,
    NamespaceList,
    NamespaceQuota,
    RenameRequest,
    SchemaInfo,
    TableInfo,
    TableList,
    UndropRequest,
)
from lamella.snapshot.wire.operation import (
    AUTHENTICATED,
    BY_REQUEST,
    IF_NONE_MATCH,
    NAMESPACE,
    NAMESPACES,
    TABLE,
    TABLES,
    Nothing,
    Operation,
    Parameter,
    on_namespace,
    on_server,
    on_table,
)

_FLAG = {"type": "boolean"}

CREATE_NAMESPACE: Final = Operation(
    name="create_namespace",
    method="POST",
    path=NAMESPACES,
    permission=on_server("maintain"),
    summary="Create a namespace",
    tag="Namespaces",
    request_type=CreateNamespace,
    answer_type=NamespaceInfo,
    status=201,
    errors=(InvalidRequest, AlreadyExists, QuotaExceeded, IdempotencyMismatch),
    resend="with_key",
)

LIST_NAMESPACES: Final = Operation(
    name="list_namespaces",
    method="GET",
    path=NAMESPACES,
    permission=AUTHENTICATED,
    summary="List the namespaces",
    tag="Namespaces",
    answer_type=NamespaceList,
)

GET_NAMESPACE: Final = Operation(
    name="get_namespace",
    method="GET",
    path=NAMESPACE,
    permission=BY_REQUEST,
    summary="Get a namespace",
    tag="Namespaces",
    answer_type=NamespaceInfo,
    errors=(NamespaceNotFound,),
)

CHANGE_NAMESPACE: Final = Operation(
    name="change_namespace",
    method="POST",
    path=NAMESPACE + "/properties",
    permission=BY_REQUEST,
    summary="Set and remove properties of a namespace",
    tag="Namespaces",
    description="Other properties stay as they are. Quotas (`lamella.quota.*`) require `admin` on the server, other "
    "properties `maintain` on the namespace.",
    request_type=NamespaceChange,
    answer_type=NamespaceInfo,
    errors=(InvalidRequest, NamespaceNotFound, IdempotencyMismatch, Unavailable),
    resend="with_key",
)

NAMESPACE_QUOTA: Final = Operation(
    name="namespace_quota",
    method="GET",
    path=NAMESPACE + "/quota",
    permission=on_namespace("read"),
    summary="Get the usage and quotas of a namespace",
    tag="Namespaces",
    answer_type=NamespaceQuota,
    errors=(NamespaceNotFound,),
)

DROP_NAMESPACE: Final = Operation(
    name="drop_namespace",
    method="DELETE",
    path=NAMESPACE,
    permission=on_server("maintain"),
    summary="Drop an empty namespace",
    tag="Namespaces",
    answer_type=Nothing,
    status=204,
    errors=(NamespaceNotFound, NamespaceNotEmpty, IdempotencyMismatch),
    resend="with_key",
)

CREATE_TABLE: Final = Operation(
    name="create_table",
    method="POST",
    path=TABLES,
    permission=on_namespace("write"),
    summary="Create a table",
    tag="Tables",
    description="Its columns are given in `schema`, or read from the Parquet files at `schema_from`. "
    "The table starts with an empty snapshot.",
    request_type=CreateTable,
    answer_type=TableInfo,
    status=201,
    errors=(
        InvalidRequest,
        LocationRefused,
        InvalidSchema,
        InvalidFilter,
        FilterTypeMismatch,
        FilterNotEvaluable,
        LimitExceeded,
        UnknownColumn,
        NotParquet,
        ObjectNotFound,
        NamespaceNotFound,
        AlreadyExists,
        QuotaExceeded,
        IdempotencyMismatch,
        StoreError,
    ),
    resend="with_key",
    is_large=True,
)

LIST_TABLES: Final = Operation(
    name="list_tables",
    method="GET",
    path=TABLES,
    permission=BY_REQUEST,
    summary="List the tables of a namespace",
    tag="Tables",
    answer_type=TableList,
    errors=(NamespaceNotFound,),
)

GET_TABLE: Final = Operation(
    name="get_table",
    method="GET",
    path=TABLE,
    permission=on_table("read"),
    summary="Get the current state of a table",
    tag="Tables",
    answer_type=TableInfo,
    own_parameters=(
        IF_NONE_MATCH,
        Parameter(
            name="role",
            description="Answer 403 unless the caller has this role on the table. Ask with `write` before you write "
            "files for a commit.",
            schema={"type": "string", "enum": list(ROLES)},
        ),
    ),
    errors=(InvalidRequest, NamespaceNotFound, TableNotFound),
)

DROP_TABLE: Final = Operation(
    name="drop_table",
    method="DELETE",
    path=TABLE,
    permission=on_table("maintain"),
    summary="Drop a table",
    tag="Tables",
    description="The table is no longer listed and its name can be used again. No file is deleted yet. The table can "
    "be restored for `drop_grace_s` seconds; after that, a vacuum may remove the files that the service wrote for it. "
    "With `purge` the next vacuum may remove them, and the table cannot be restored. With `base_snapshot_id` the "
    "table is dropped only if this is its current snapshot.",
    answer_type=Nothing,
    status=204,
    own_parameters=(
        Parameter(name="purge", description="No grace period: the table cannot be restored.", schema=_FLAG),
        Parameter(name="base_snapshot_id", description="Only if this is the current snapshot."),
    ),
    errors=(InvalidRequest, NamespaceNotFound, TableNotFound, CommitConflict, IdempotencyMismatch),
    resend="with_key",
)

RENAME_TABLE: Final = Operation(
    name="rename_table",
    method="POST",
    path=TABLE + "/rename",
    permission=BY_REQUEST,
    summary="Rename a table, or move it to another namespace",
    tag="Tables",
    description="Only the name changes: the id, the files, the history, tags, indexes, jobs, schedules and policies "
    "stay, and commits that run at the same time succeed. Grants on the old name do not follow. Requires "
    "`maintain` on the table, and `write` on the namespace that gets the name.",
    request_type=RenameRequest,
    answer_type=TableInfo,
    errors=(
        InvalidRequest,
        BodyTooLarge,
        NamespaceNotFound,
        TableNotFound,
        AlreadyExists,
        QuotaExceeded,
        IdempotencyMismatch,
        ManifestError,
        StoreError,
        Unavailable,
        OutcomeUnknown,
    ),
    resend="with_key",
)

SHOW_SCHEMA: Final = Operation(
    name="show",
    method="GET",
    path=TABLE + "/schema",
    permission=on_table("read"),
    summary="Get the current and earlier columns of a table",
    tag="Tables",
    description="`schema` is the current schema; `schemas` has the earlier ones, oldest first. A block's file has the "
    "column names of the schema that it was written with: `schema_id` in prune answers.",
    answer_type=SchemaInfo,
    own_parameters=(IF_NONE_MATCH,),
    errors=(NamespaceNotFound, TableNotFound),
)

EVOLVE_SCHEMA: Final = Operation(
    name="evolve",
    method="POST",
    path=TABLE + "/schema",
    permission=on_table("write"),
    summary="Change the columns of a table",
    tag="Tables",
    description="Adds, drops, renames, widens or moves columns, adds and drops constraints, in one new snapshot; no "
    "data file is rewritten. A constraint is added only if statistics prove that no row violates it. The "
    "changes are applied in order, all or none. With `base_schema_id` they are made only if this is the current "
    "schema.",
    request_type=EvolveRequest,
    answer_type=SchemaInfo,
    errors=(
        InvalidRequest,
        InvalidSchema,
        InvalidFilter,
        FilterTypeMismatch,
        FilterNotEvaluable,
        LimitExceeded,
        UnknownColumn,
        BodyTooLarge,
        NamespaceNotFound,
        TableNotFound,
        SchemaConflict,
        NotProven,
        IdempotencyMismatch,
        StoreError,
        Unavailable,
        OutcomeUnknown,
    ),
    resend="with_key",
    is_large=True,
)

LIST_DROPPED: Final = Operation(
    name="list_dropped",
    method="GET",
    path=NAMESPACE + "/dropped",
    permission=on_namespace("maintain"),
    summary="List the dropped tables of a namespace",
    tag="Tables",
    description="Lists the tables that can be restored, last dropped first; also those of an earlier namespace with "
    "this name.",
    answer_type=DroppedList,
    errors=(NamespaceNotFound,),
)

UNDROP_TABLE: Final = Operation(
    name="undrop_table",
    method="POST",
    path=NAMESPACE + "/undrop",
    permission=on_namespace("maintain"),
    summary="Restore a dropped table",
    tag="Tables",
    description="Restores the table with its id, history and tags, under its old name or the name in `as`. `name` "
    "selects the last table dropped with this name.",
    request_type=UndropRequest,
    answer_type=TableInfo,
    errors=(
        InvalidRequest,
        BodyTooLarge,
        NamespaceNotFound,
        TableNotFound,
        AlreadyExists,
        QuotaExceeded,
        IdempotencyMismatch,
        ManifestError,
        StoreError,
        Unavailable,
        OutcomeUnknown,
    ),
    resend="with_key",
)

"""Namespaces, tables, schemas and dropped tables."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import (
    AlreadyExists,
    BodyTooLarge,
    CommitConflict,
    IdempotencyMismatch,
    InvalidRequest,
    InvalidSchema,
    LocationRefused,
    ManifestError,
    NamespaceNotEmpty,
    NamespaceNotFound,
    NotParquet,
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
    CreateNamespace,
    CreateTable,
    DroppedList,
    EvolveRequest,
    NamespaceChange,
    NamespaceInfo,
    NamespaceList,
    NamespaceQuota,
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
    summary="Look at a namespace",
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
    description="Others stay as they are. Quotas (`lamella.quota.*`) are for those with `admin` on the "
    "server, others for those with `maintain` on the namespace.",
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
    summary="How much there is in a namespace, and may be",
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
    description="Its columns are given in `schema`, or read from the Parquet file at `schema_from`. "
    "The table starts with an empty snapshot.",
    request_type=CreateTable,
    answer_type=TableInfo,
    status=201,
    errors=(
        InvalidRequest,
        LocationRefused,
        InvalidSchema,
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
    summary="Look at a table as it stands",
    tag="Tables",
    answer_type=TableInfo,
    own_parameters=(IF_NONE_MATCH,),
    errors=(NamespaceNotFound, TableNotFound),
)

DROP_TABLE: Final = Operation(
    name="drop_table",
    method="DELETE",
    path=TABLE,
    permission=on_table("maintain"),
    summary="Drop a table",
    tag="Tables",
    description="The table leaves the listing and its name is free again. No file is deleted now. The "
    "table can be undropped for a time (`drop_grace_s`), after which a vacuum may remove what the service "
    "wrote for it; with `purge` the next vacuum may, and the table cannot be undropped. With "
    "`base_snapshot_id` it is dropped only if that is its current snapshot.",
    answer_type=Nothing,
    status=204,
    own_parameters=(
        Parameter(name="purge", description="No grace: the table is not coming back.", schema=_FLAG),
        Parameter(name="base_snapshot_id", description="Only if this is the current snapshot."),
    ),
    errors=(InvalidRequest, NamespaceNotFound, TableNotFound, CommitConflict, IdempotencyMismatch),
    resend="with_key",
)

SHOW_SCHEMA: Final = Operation(
    name="show",
    method="GET",
    path=TABLE + "/schema",
    permission=on_table("read"),
    summary="Look at the columns of a table, now and before",
    tag="Tables",
    description="`schema` is in force; `schemas` were, oldest first. A block's file has the names of the "
    "schema that it was written with: `schema_id` in prune answers.",
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
    description="Add, drop, rename, widen or move columns, in one new snapshot; no file is written again. "
    "The changes are applied in order, all of them or none. With `base_schema_id` they are made only if "
    "that schema is in force.",
    request_type=EvolveRequest,
    answer_type=SchemaInfo,
    errors=(
        InvalidRequest,
        InvalidSchema,
        UnknownColumn,
        BodyTooLarge,
        NamespaceNotFound,
        TableNotFound,
        SchemaConflict,
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
    description="Those that can be undropped, newest drop first; also of an earlier namespace of that name.",
    answer_type=DroppedList,
    errors=(NamespaceNotFound,),
)

UNDROP_TABLE: Final = Operation(
    name="undrop_table",
    method="POST",
    path=NAMESPACE + "/undrop",
    permission=on_namespace("maintain"),
    summary="Bring a dropped table back",
    tag="Tables",
    description="With its id, history and tags, under its old name or the one in `as`. By `name` it is the "
    "last one dropped of that name.",
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

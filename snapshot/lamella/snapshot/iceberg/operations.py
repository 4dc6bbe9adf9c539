"""Iceberg's REST catalog: settings, namespaces, tables, scans and tokens."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from lamella.snapshot.errors import (
    AlreadyExists,
    CommitRequirementFailed,
    IdempotencyMismatch,
    InvalidPageToken,
    InvalidRequest,
    LocationRefused,
    ManifestError,
    NamespaceNotEmpty,
    NamespaceNotFound,
    NotExpressible,
    NotSignable,
    ObjectNotFound,
    OutcomeUnknown,
    PermissionDenied,
    PlanTaskNotFound,
    PropertyConflict,
    QuotaExceeded,
    StoreError,
    TableNotFound,
    TransactionConflict,
    Unauthenticated,
    Unavailable,
    ViewNotFound,
)
from lamella.snapshot.iceberg.wire import (
    AccessToken,
    CommitIcebergTable,
    CommitIcebergTransaction,
    CommitIcebergView,
    CommittedIcebergTable,
    CompletedPlan,
    CreateIcebergNamespace,
    CreateIcebergTable,
    CreateIcebergView,
    Credentials,
    FetchScanTasks,
    IcebergConfig,
    IcebergNamespace,
    IcebergNamespaces,
    IcebergTables,
    LoadedTable,
    LoadedView,
    PlanTableScan,
    RegisterIcebergTable,
    RegisterIcebergView,
    RenameIcebergTable,
    RequestToSign,
    ScanReport,
    ScanTasks,
    SignedRequest,
    TokenRequest,
    UpdatedIcebergNamespace,
    UpdateIcebergNamespace,
)
from lamella.snapshot.wire.operation import (
    AUTHENTICATED,
    BY_REQUEST,
    IF_NONE_MATCH,
    OF_A_FILTER,
    OF_A_SNAPSHOT,
    OF_A_TABLE,
    PUBLIC,
    Nothing,
    Operation,
    Parameter,
    on_namespace,
    on_server,
    on_table,
    on_view,
)

_ROOT: Final = "/iceberg/v1"
EXPORTS: Final = "/iceberg/v1/exports"
_NAMESPACES: Final = "/iceberg/v1/namespaces"
_NAMESPACE: Final = "/iceberg/v1/namespaces/{namespace}"
_TABLES: Final = "/iceberg/v1/namespaces/{namespace}/tables"
_TABLE: Final = "/iceberg/v1/namespaces/{namespace}/tables/{table}"
_VIEWS: Final = "/iceberg/v1/namespaces/{namespace}/views"
_VIEW: Final = "/iceberg/v1/namespaces/{namespace}/views/{view}"
_PAGE: Final = (
    Parameter(
        name="pageSize",
        description="Maximum number of names, if there is a `pageToken`. Default: all.",
        schema={"type": "integer"},
    ),
    Parameter(
        name="pageToken",
        description="`next-page-token` of the previous answer; empty: the first page. Without it, the answer has all "
        "names.",
    ),
)

_DELEGATION: Final = Parameter(
    name="X-Iceberg-Access-Delegation",
    location="header",
    description="How the client can use the table's files on S3, by commas: `vended-credentials`, `remote-signing`. "
    "The first one that the settings allow counts.",
)

_PLAN_ID: Final = _TABLE + "/plan/{plan_id}"
FORM: Final = "application/x-www-form-urlencoded"

ICEBERG_CONFIG: Final = Operation(
    name="iceberg_config",
    method="GET",
    path=_ROOT + "/config",
    permission=AUTHENTICATED,
    summary="Get the configuration for Iceberg clients",
    tag="Iceberg",
    answer_type=IcebergConfig,
    own_parameters=(
        Parameter(
            name="warehouse",
            description="`exports`: tables as they were last exported, for clients that plan scans themselves. "
            "Everything else is ignored.",
        ),
    ),
)

ICEBERG_NAMESPACES: Final = Operation(
    name="iceberg_namespaces",
    method="GET",
    path=_NAMESPACES,
    permission=AUTHENTICATED,
    summary="List the namespaces for Iceberg clients",
    tag="Iceberg",
    answer_type=IcebergNamespaces,
    own_parameters=(*_PAGE, Parameter(name="parent", description="Only namespaces one level below this one.")),
    errors=(InvalidRequest, InvalidPageToken, NamespaceNotFound),
)

ICEBERG_NAMESPACE: Final = Operation(
    name="iceberg_namespace",
    method="GET",
    path=_NAMESPACE,
    permission=BY_REQUEST,
    summary="Get a namespace for Iceberg clients",
    tag="Iceberg",
    answer_type=IcebergNamespace,
    errors=(NamespaceNotFound,),
)

ICEBERG_TABLES: Final = Operation(
    name="iceberg_tables",
    method="GET",
    path=_TABLES,
    permission=BY_REQUEST,
    summary="List a namespace's tables for Iceberg clients",
    tag="Iceberg",
    answer_type=IcebergTables,
    own_parameters=_PAGE,
    errors=(InvalidRequest, InvalidPageToken, NamespaceNotFound),
)

CREATE_ICEBERG_NAMESPACE: Final = Operation(
    name="create_iceberg_namespace",
    method="POST",
    path=_NAMESPACES,
    permission=on_server("maintain"),
    summary="Create a namespace",
    tag="Iceberg",
    description="Its name in Lamella has dots between the levels.",
    request_type=CreateIcebergNamespace,
    answer_type=IcebergNamespace,
    errors=(InvalidRequest, AlreadyExists, QuotaExceeded, IdempotencyMismatch),
    resend="with_key",
)

UPDATE_ICEBERG_NAMESPACE: Final = Operation(
    name="update_iceberg_namespace",
    method="POST",
    path=_NAMESPACE + "/properties",
    permission=BY_REQUEST,
    summary="Set and remove properties of a namespace",
    tag="Iceberg",
    request_type=UpdateIcebergNamespace,
    answer_type=UpdatedIcebergNamespace,
    errors=(InvalidRequest, PropertyConflict, NamespaceNotFound, IdempotencyMismatch, Unavailable),
    resend="with_key",
)

DROP_ICEBERG_NAMESPACE: Final = Operation(
    name="drop_iceberg_namespace",
    method="DELETE",
    path=_NAMESPACE,
    permission=on_server("maintain"),
    summary="Drop an empty namespace",
    tag="Iceberg",
    answer_type=Nothing,
    status=204,
    errors=(NamespaceNotFound, NamespaceNotEmpty, IdempotencyMismatch),
    resend="with_key",
)

_OF_A_CHANGE: Final = (
    InvalidRequest,
    LocationRefused,
    NamespaceNotFound,
    QuotaExceeded,
    IdempotencyMismatch,
    StoreError,
    Unavailable,
    OutcomeUnknown,
)

CREATE_ICEBERG_TABLE: Final = Operation(
    name="create_iceberg_table",
    method="POST",
    path=_TABLES,
    permission=on_namespace("write"),
    summary="Create a table that Iceberg clients commit to",
    tag="Iceberg",
    description="Columns and partition fields get new ids. With `stage-create`, the answer is the metadata of a table "
    "that does not exist yet; the client creates it by a commit.",
    request_type=CreateIcebergTable,
    answer_type=LoadedTable,
    own_parameters=(_DELEGATION,),
    errors=(*_OF_A_CHANGE, AlreadyExists, NotExpressible, NotSignable),
    resend="with_key",
)

REGISTER_ICEBERG_TABLE: Final = Operation(
    name="register_iceberg_table",
    method="POST",
    path=_NAMESPACE + "/register",
    permission=on_namespace("write"),
    summary="Add a table by its metadata file",
    tag="Iceberg",
    description="With `overwrite`, a table with this name gets the metadata, if its `table-uuid` is the same.",
    request_type=RegisterIcebergTable,
    answer_type=LoadedTable,
    own_parameters=(_DELEGATION,),
    errors=(*_OF_A_CHANGE, AlreadyExists, ObjectNotFound, ManifestError, NotExpressible, NotSignable),
    resend="with_key",
)

COMMIT_ICEBERG_TABLE: Final = Operation(
    name="commit_iceberg_table",
    method="POST",
    path=_TABLE,
    permission=on_table("write"),
    summary="Commit to a table",
    tag="Iceberg",
    description="Checks the requirements and applies the updates, all or nothing. New data files are registered as "
    "blocks. What Lamella cannot read is committed as well; its own readers then get an error, and Iceberg clients the "
    "rows.",
    request_type=CommitIcebergTable,
    answer_type=CommittedIcebergTable,
    errors=(*_OF_A_CHANGE, TableNotFound, CommitRequirementFailed, NotExpressible),
    resend="with_key",
    is_large=True,
)

COMMIT_ICEBERG_TRANSACTION: Final = Operation(
    name="commit_iceberg_transaction",
    method="POST",
    path=_ROOT + "/transactions/commit",
    permission=BY_REQUEST,
    summary="Commit to several tables, all or nothing",
    tag="Iceberg",
    description="As commits to each of the tables. An error names all tables that are no longer as required.",
    request_type=CommitIcebergTransaction,
    answer_type=Nothing,
    status=204,
    errors=(*_OF_A_CHANGE, TableNotFound, CommitRequirementFailed, TransactionConflict, NotExpressible),
    resend="with_key",
    is_large=True,
)

DROP_ICEBERG_TABLE: Final = Operation(
    name="drop_iceberg_table",
    method="DELETE",
    path=_TABLE,
    permission=on_table("maintain"),
    summary="Drop a table",
    tag="Iceberg",
    answer_type=Nothing,
    status=204,
    own_parameters=(
        Parameter(
            name="purgeRequested",
            description="The table cannot be undropped, and the next clean-up of dropped tables deletes its files. "
            "Default: false.",
            schema={"type": "boolean"},
        ),
    ),
    errors=(InvalidRequest, *OF_A_TABLE, IdempotencyMismatch),
    resend="with_key",
)

RENAME_ICEBERG_TABLE: Final = Operation(
    name="rename_iceberg_table",
    method="POST",
    path=_ROOT + "/tables/rename",
    permission=BY_REQUEST,
    summary="Rename a table, or move it to another namespace",
    tag="Iceberg",
    request_type=RenameIcebergTable,
    answer_type=Nothing,
    status=204,
    errors=(InvalidRequest, *OF_A_TABLE, AlreadyExists, QuotaExceeded, IdempotencyMismatch),
    resend="with_key",
)

ICEBERG_VIEWS: Final = Operation(
    name="iceberg_views",
    method="GET",
    path=_VIEWS,
    permission=BY_REQUEST,
    summary="List a namespace's views for Iceberg clients",
    tag="Iceberg",
    answer_type=IcebergTables,
    own_parameters=_PAGE,
    errors=(InvalidRequest, InvalidPageToken, NamespaceNotFound),
)

LOAD_ICEBERG_VIEW: Final = Operation(
    name="load_iceberg_view",
    method="GET",
    path=_VIEW,
    permission=on_view("read"),
    summary="Load a view's Iceberg metadata",
    tag="Iceberg",
    description="A view that Spark made has one version, in the dialect `spark`, and no metadata file.",
    answer_type=LoadedView,
    errors=(NamespaceNotFound, ViewNotFound, NotExpressible),
)

_OF_A_VIEW: Final = (
    InvalidRequest,
    LocationRefused,
    NamespaceNotFound,
    IdempotencyMismatch,
    StoreError,
    Unavailable,
    OutcomeUnknown,
)

CREATE_ICEBERG_VIEW: Final = Operation(
    name="create_iceberg_view",
    method="POST",
    path=_VIEWS,
    permission=on_namespace("write"),
    summary="Create a view for Iceberg clients",
    tag="Iceberg",
    description="Spark reads it, too: the query in the dialect `spark`, or else the first one.",
    request_type=CreateIcebergView,
    answer_type=LoadedView,
    errors=(*_OF_A_VIEW, AlreadyExists),
    resend="with_key",
)

REGISTER_ICEBERG_VIEW: Final = Operation(
    name="register_iceberg_view",
    method="POST",
    path=_NAMESPACE + "/register-view",
    permission=on_namespace("write"),
    summary="Add a view by its metadata file",
    tag="Iceberg",
    description="The view gets a new id, and a metadata file of its own.",
    request_type=RegisterIcebergView,
    answer_type=LoadedView,
    errors=(*_OF_A_VIEW, AlreadyExists, ObjectNotFound, ManifestError),
    resend="with_key",
)

COMMIT_ICEBERG_VIEW: Final = Operation(
    name="commit_iceberg_view",
    method="POST",
    path=_VIEW,
    permission=on_view("write"),
    summary="Commit to a view",
    tag="Iceberg",
    description="Checks the requirements and applies the updates, all or nothing.",
    request_type=CommitIcebergView,
    answer_type=LoadedView,
    errors=(*_OF_A_VIEW, ViewNotFound, CommitRequirementFailed, NotExpressible),
    resend="with_key",
)

DROP_ICEBERG_VIEW: Final = Operation(
    name="drop_iceberg_view",
    method="DELETE",
    path=_VIEW,
    permission=on_view("maintain"),
    summary="Drop a view",
    tag="Iceberg",
    description="A view cannot be restored; its metadata files stay.",
    answer_type=Nothing,
    status=204,
    errors=(NamespaceNotFound, ViewNotFound, IdempotencyMismatch, Unavailable, OutcomeUnknown),
    resend="with_key",
)

RENAME_ICEBERG_VIEW: Final = Operation(
    name="rename_iceberg_view",
    method="POST",
    path=_ROOT + "/views/rename",
    permission=BY_REQUEST,
    summary="Rename a view, or move it to another namespace",
    tag="Iceberg",
    request_type=RenameIcebergTable,
    answer_type=Nothing,
    status=204,
    errors=(
        InvalidRequest,
        NamespaceNotFound,
        ViewNotFound,
        AlreadyExists,
        IdempotencyMismatch,
        Unavailable,
        OutcomeUnknown,
    ),
    resend="with_key",
)

LOAD_ICEBERG_TABLE: Final = Operation(
    name="load_iceberg_table",
    method="GET",
    path=_TABLE,
    permission=on_table("read"),
    summary="Load a table's Iceberg metadata",
    tag="Iceberg",
    description="Format version 2. Snapshot ids are the numbers in the table's history; the newest 1,000 snapshots "
    "and tagged snapshots are included.",
    answer_type=LoadedTable,
    own_parameters=(
        Parameter(
            name="snapshots",
            description="`all`, or `refs`: only snapshots of branches and tags.",
            schema={"type": "string", "enum": ["all", "refs"]},
        ),
        _DELEGATION,
        IF_NONE_MATCH,
    ),
    errors=(*OF_A_SNAPSHOT, NotExpressible, NotSignable),
)

ICEBERG_CREDENTIALS: Final = Operation(
    name="iceberg_credentials",
    method="GET",
    path=_TABLE + "/credentials",
    permission=on_table("read"),
    summary="Credentials for a table's files on S3",
    tag="Iceberg",
    description="None, unless the settings say so. They are for reading, and for writing if the caller has the role "
    "`write` on the table.",
    answer_type=Credentials,
    errors=(*OF_A_TABLE, NotExpressible, NotSignable, StoreError),
)

SIGN_ICEBERG_REQUEST: Final = Operation(
    name="sign_iceberg_request",
    method="POST",
    path=_TABLE + "/sign",
    permission=on_table("read"),
    summary="Sign a request to S3",
    tag="Iceberg",
    description="For a request to an object in the table's folders, or a listing there; those that write need the role "
    "`write`. Only if the setting `iceberg_remote_signing` is on.",
    request_type=RequestToSign,
    answer_type=SignedRequest,
    own_parameters=(Parameter(name="staged", description="Of the address that a client got with a staged table."),),
    errors=(InvalidRequest, *OF_A_TABLE, LocationRefused, PermissionDenied, NotExpressible, NotSignable, StoreError),
    is_question=True,
    is_recorded=False,
)

PLAN_TABLE_SCAN: Final = Operation(
    name="plan_table_scan",
    method="POST",
    path=_TABLE + "/plan",
    permission=on_table("read"),
    summary="Plan a scan for an Iceberg client",
    tag="Iceberg",
    description="The answer is always `completed`: it has files, each with its residual filter, and plan tasks for "
    "files that do not fit. The residual is `true` for a file in which every row is proven to match.",
    request_type=PlanTableScan,
    answer_type=CompletedPlan,
    errors=(*OF_A_SNAPSHOT, *OF_A_FILTER, NotExpressible),
    is_question=True,
    is_large=True,
)

FETCH_SCAN_TASKS: Final = Operation(
    name="fetch_scan_tasks",
    method="POST",
    path=_TABLE + "/tasks",
    permission=on_table("read"),
    summary="Fetch a part of a plan",
    tag="Iceberg",
    description="Any replica can answer it. The answer may have more plan tasks if the filter is large.",
    request_type=FetchScanTasks,
    answer_type=ScanTasks,
    errors=(*OF_A_SNAPSHOT, PlanTaskNotFound),
    is_question=True,
    is_large=True,
)

FETCH_PLAN: Final = Operation(
    name="fetch_plan",
    method="GET",
    path=_PLAN_ID,
    permission=on_table("read"),
    summary="Fetch a plan again",
    tag="Iceberg",
    description="The plan is computed again from its id. Plans with large filters and plans for snapshot ranges "
    "cannot be fetched again.",
    answer_type=CompletedPlan,
    errors=(*OF_A_SNAPSHOT, PlanTaskNotFound),
)

CANCEL_PLAN: Final = Operation(
    name="cancel_plan",
    method="DELETE",
    path=_PLAN_ID,
    permission=on_table("read"),
    summary="Cancel a plan",
    tag="Iceberg",
    description="The service keeps no state for a plan, so this does nothing.",
    answer_type=Nothing,
    status=204,
    errors=(*OF_A_TABLE, PlanTaskNotFound),
    is_recorded=False,
)

REPORT_ICEBERG_METRICS: Final = Operation(
    name="report_iceberg_metrics",
    method="POST",
    path=_TABLE + "/metrics",
    permission=on_table("read"),
    summary="Report of a scan",
    tag="Iceberg",
    description="The filter of a scan that the client planned by itself is recorded without its constants, if filters "
    "are recorded. Reports of commits are accepted and not stored.",
    request_type=ScanReport,
    answer_type=Nothing,
    status=204,
    errors=(InvalidRequest, *OF_A_TABLE),
    is_recorded=False,
)

ICEBERG_TOKEN: Final = Operation(
    name="iceberg_token",
    method="POST",
    path=_ROOT + "/oauth/tokens",
    permission=PUBLIC,
    summary="OAuth2 client credentials for Iceberg clients",
    tag="Iceberg",
    description="`client_secret` is an API key, or a token of the issuer; `client_id` is ignored. The access token is "
    "the same text. Errors have the form of RFC 6749, with `error` and `error_description`.",
    request_type=TokenRequest,
    request_media_type=FORM,
    answer_type=AccessToken,
    errors=(InvalidRequest, Unauthenticated),
    is_recorded=False,
)

# The warehouse `exports`: the same names, and metadata of exports. Clients get its prefix from the configuration.


def _of_exports(other: Operation[Any], summary: str) -> Operation[Any]:
    return replace(other, name=f"{other.name}_of_exports", path=other.path.replace(_ROOT, EXPORTS), summary=summary)


ICEBERG_NAMESPACES_OF_EXPORTS: Final = _of_exports(ICEBERG_NAMESPACES, "List the namespaces for readers of exports")
ICEBERG_NAMESPACE_OF_EXPORTS: Final = _of_exports(ICEBERG_NAMESPACE, "Get a namespace for readers of exports")
ICEBERG_TABLES_OF_EXPORTS: Final = _of_exports(ICEBERG_TABLES, "List a namespace's tables for readers of exports")
LOAD_EXPORTED_TABLE: Final = Operation(
    name="load_exported_table",
    method="GET",
    path=_TABLE.replace(_ROOT, EXPORTS),
    permission=on_table("read"),
    summary="Load the Iceberg metadata of a table's last export",
    tag="Iceberg",
    description="The metadata file that the last export to the table's own folder wrote. Its snapshot may be older "
    "than the table's. Without an export: 406.",
    answer_type=LoadedTable,
    own_parameters=(IF_NONE_MATCH,),
    errors=(*OF_A_TABLE, NotExpressible),
)

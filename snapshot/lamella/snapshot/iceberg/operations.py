"""Iceberg's REST catalog: settings, namespaces, tables, scans and tokens."""

from __future__ import annotations

from typing import Any, Final

from lamella.snapshot.errors import (
    InvalidPageToken,
    InvalidRequest,
    NamespaceNotFound,
    NotExpressible,
    PlanTaskNotFound,
    Unauthenticated,
)
from lamella.snapshot.iceberg.wire import (
    AccessToken,
    CompletedPlan,
    Credentials,
    FetchScanTasks,
    IcebergConfig,
    IcebergNamespace,
    IcebergNamespaces,
    IcebergTables,
    LoadedTable,
    PlanTableScan,
    ScanTasks,
    TokenRequest,
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
    on_table,
)

_ROOT: Final = "/iceberg/v1"
_NAMESPACES: Final = "/iceberg/v1/namespaces"
_NAMESPACE: Final = "/iceberg/v1/namespaces/{namespace}"
_TABLES: Final = "/iceberg/v1/namespaces/{namespace}/tables"
_TABLE: Final = "/iceberg/v1/namespaces/{namespace}/tables/{table}"
_PAGE: Final = (
    Parameter(name="pageSize", description="So many names at most; all when not given.", schema={"type": "integer"}),
    Parameter(name="pageToken", description="`next-page-token` of the answer before; empty: the first page."),
)

_PLAN_ID: Final = _TABLE + "/plan/{plan_id}"
FORM: Final = "application/x-www-form-urlencoded"

ICEBERG_CONFIG: Final = Operation(
    name="iceberg_config",
    method="GET",
    path=_ROOT + "/config",
    permission=AUTHENTICATED,
    summary="What an Iceberg client is to know first",
    tag="Iceberg",
    description="A `warehouse` may be named; there is one.",
    answer_type=IcebergConfig,
    own_parameters=(Parameter(name="warehouse", description="Not looked at."),),
)

ICEBERG_NAMESPACES: Final = Operation(
    name="iceberg_namespaces",
    method="GET",
    path=_NAMESPACES,
    permission=AUTHENTICATED,
    summary="List the namespaces for Iceberg clients",
    tag="Iceberg",
    answer_type=IcebergNamespaces,
    own_parameters=(*_PAGE, Parameter(name="parent", description="Namespaces below this one: there are none.")),
    errors=(InvalidRequest, InvalidPageToken, NamespaceNotFound),
)

ICEBERG_NAMESPACE: Final = Operation(
    name="iceberg_namespace",
    method="GET",
    path=_NAMESPACE,
    permission=BY_REQUEST,
    summary="Look at a namespace as Iceberg clients do",
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

LOAD_ICEBERG_TABLE: Final = Operation(
    name="load_iceberg_table",
    method="GET",
    path=_TABLE,
    permission=on_table("read"),
    summary="Load a table's Iceberg metadata",
    tag="Iceberg",
    description="Format version 2. Snapshots have the numbers of the table's history as ids; the newest "
    "1,000 and tagged ones are there.",
    answer_type=LoadedTable,
    own_parameters=(
        Parameter(
            name="snapshots",
            description="`all`, or `refs`: only those that a branch or tag names.",
            schema={"type": "string", "enum": ["all", "refs"]},
        ),
        IF_NONE_MATCH,
    ),
    errors=(*OF_A_SNAPSHOT, NotExpressible),
)

ICEBERG_CREDENTIALS: Final = Operation(
    name="iceberg_credentials",
    method="GET",
    path=_TABLE + "/credentials",
    permission=on_table("read"),
    summary="Credentials for a table's storage: none",
    tag="Iceberg",
    description="The service gives its own to nobody; clients have theirs.",
    answer_type=Credentials,
    errors=OF_A_TABLE,
)

PLAN_TABLE_SCAN: Final = Operation(
    name="plan_table_scan",
    method="POST",
    path=_TABLE + "/plan",
    permission=on_table("read"),
    summary="Plan a scan of an Iceberg client",
    tag="Iceberg",
    description="The answer is always `completed`: files, each with what is left of the filter in it, and "
    "plan tasks for those that do not fit. A file in which every row is proven to match has `true`.",
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
    description="Any replica serves it. It may have further plan tasks where the filter is large.",
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
    description="It is made anew of its id. Plans of large filters and of ranges of snapshots are not "
    "known once they are answered.",
    answer_type=CompletedPlan,
    errors=(*OF_A_SNAPSHOT, PlanTaskNotFound),
)

CANCEL_PLAN: Final = Operation(
    name="cancel_plan",
    method="DELETE",
    path=_PLAN_ID,
    permission=on_table("read"),
    summary="Give up a plan",
    tag="Iceberg",
    description="Nothing is held for a plan, so nothing happens.",
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
    description="Taken, and not kept.",
    request_type=dict[str, Any],
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
    description="`client_secret` is an API key, or a token of the issuer; `client_id` is not looked at. "
    "The access token is the same text. Refused as RFC 6749 has it, with `error` and `error_description`.",
    request_type=TokenRequest,
    request_media_type=FORM,
    answer_type=AccessToken,
    errors=(InvalidRequest, Unauthenticated),
    is_recorded=False,
)

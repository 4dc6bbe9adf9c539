"""Delta Sharing: shares, and the version, metadata and files of tables."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import (
    InvalidPageToken,
    InvalidRequest,
    LimitExceeded,
    LocationRefused,
    NamespaceNotFound,
    NotExpressible,
    NotFound,
    NotSignable,
    Overloaded,
    SnapshotNotFound,
    TableNotFound,
)
from lamella.snapshot.sharing.answers import ShareAnswer, SharedSchemaList, SharedTable, SharedTableList, ShareList
from lamella.snapshot.sharing.requests import CAPABILITIES, VERSION, ShareQuery
from lamella.snapshot.wire.operation import (
    AUTHENTICATED,
    BY_REQUEST,
    NDJSON,
    OF_A_SNAPSHOT,
    Nothing,
    Operation,
    Parameter,
    on_table,
)

_SHARES: Final = "/delta-sharing/shares"
_SHARE: Final = "/delta-sharing/shares/{share}"
_SHARED_SCHEMAS: Final = "/delta-sharing/shares/{share}/schemas"
_SHARED_TABLES: Final = "/delta-sharing/shares/{share}/schemas/{namespace}/tables"
_SHARED_TABLE: Final = "/delta-sharing/shares/{share}/schemas/{namespace}/tables/{table}"
#: Items in one answer, at most and when the request does not say.
MAX_ITEMS: Final = 500
_PAGING: Final = (
    Parameter(
        name="maxResults",
        description=f"Maximum number of items in the answer; default and maximum: {MAX_ITEMS}.",
        schema={"type": "integer", "minimum": 1, "maximum": 1_000_000},
    ),
    Parameter(name="pageToken", description="`nextPageToken` of the previous answer."),
)

_ABLE: Final = Parameter(
    name=CAPABILITIES,
    location="header",
    description="What the recipient can read, such as `responseformat=delta,parquet;readerfeatures=timestampntz;"
    "includeEndStreamAction=true`; default: `responseformat=parquet`.",
)

_NO_TABLE: Final = (NotFound, NamespaceNotFound, TableNotFound)


LIST_SHARES: Final = Operation(
    name="list_shares",
    method="GET",
    path=_SHARES,
    permission=AUTHENTICATED,
    summary="List the shares",
    tag="Delta Sharing",
    description="There is one share, `lamella`, with everything that the caller may read.",
    answer_type=ShareList,
)

GET_SHARE: Final = Operation(
    name="get_share",
    method="GET",
    path=_SHARE,
    permission=AUTHENTICATED,
    summary="Get a share",
    tag="Delta Sharing",
    answer_type=ShareAnswer,
    errors=(NotFound,),
)

LIST_SHARED_SCHEMAS: Final = Operation(
    name="list_shared_schemas",
    method="GET",
    path=_SHARED_SCHEMAS,
    permission=AUTHENTICATED,
    summary="List the schemas of a share",
    tag="Delta Sharing",
    description="Schemas are namespaces.",
    answer_type=SharedSchemaList,
    own_parameters=_PAGING,
    errors=(NotFound, InvalidRequest, InvalidPageToken),
)

LIST_SHARED_TABLES: Final = Operation(
    name="list_shared_tables",
    method="GET",
    path=_SHARED_TABLES,
    permission=BY_REQUEST,
    summary="List the tables of a shared schema",
    tag="Delta Sharing",
    answer_type=SharedTableList,
    own_parameters=_PAGING,
    errors=(NotFound, NamespaceNotFound, InvalidRequest, InvalidPageToken),
)

LIST_ALL_SHARED_TABLES: Final = Operation(
    name="list_all_shared_tables",
    method="GET",
    path=_SHARE + "/all-tables",
    permission=AUTHENTICATED,
    summary="List all tables of a share",
    tag="Delta Sharing",
    answer_type=SharedTableList,
    own_parameters=_PAGING,
    errors=(NotFound, InvalidRequest, InvalidPageToken),
)

GET_SHARED_TABLE: Final = Operation(
    name="get_shared_table",
    method="GET",
    path=_SHARED_TABLE,
    permission=on_table("read"),
    summary="Get a shared table",
    tag="Delta Sharing",
    description=f"The header `{VERSION}` has its version; older recipients use HEAD for this.",
    answer_type=SharedTable,
    errors=_NO_TABLE,
)

SHARED_TABLE_VERSION: Final = Operation(
    name="shared_table_version",
    method="GET",
    path=_SHARED_TABLE + "/version",
    permission=on_table("read"),
    summary="Get the version of a shared table",
    tag="Delta Sharing",
    description=f"Returned in the header `{VERSION}`.",
    answer_type=Nothing,
    own_parameters=(
        Parameter(
            name="startingTimestamp",
            description="Return the first version at or after this time: ISO 8601; UTC if it has no time zone.",
        ),
    ),
    errors=(*_NO_TABLE, InvalidRequest, SnapshotNotFound),
)

SHARED_TABLE_METADATA: Final = Operation(
    name="shared_table_metadata",
    method="GET",
    path=_SHARED_TABLE + "/metadata",
    permission=on_table("read"),
    summary="Get the metadata of a shared table",
    tag="Delta Sharing",
    description="Lines of JSON: the protocol that a reader needs, and the columns.",
    answer_type=Nothing,
    media_type=NDJSON,
    own_parameters=(
        Parameter(name="version", description="Read this version.", schema={"type": "integer", "minimum": 0}),
        Parameter(
            name="timestamp", description="Read the table as of this time: ISO 8601; UTC if it has no time zone."
        ),
        _ABLE,
    ),
    errors=(NotFound, *OF_A_SNAPSHOT, NotExpressible),
)

QUERY_SHARED_TABLE: Final = Operation(
    name="query_shared_table",
    method="POST",
    path=_SHARED_TABLE + "/query",
    permission=on_table("read"),
    summary="Query the files of a shared table",
    tag="Delta Sharing",
    description="Lines of JSON: the same as for the metadata, then each file with a temporary URL that reads it "
    "without credentials. Every file with a row that may match the hints is included.",
    request_type=ShareQuery,
    answer_type=Nothing,
    media_type=NDJSON,
    own_parameters=(_ABLE,),
    errors=(
        NotFound,
        *OF_A_SNAPSHOT,
        InvalidPageToken,
        NotExpressible,
        LimitExceeded,
        LocationRefused,
        NotSignable,
        Overloaded,
    ),
    is_question=True,
    is_large=True,
)

SHARED_TABLE_CHANGES: Final = Operation(
    name="shared_table_changes",
    method="GET",
    path=_SHARED_TABLE + "/changes",
    permission=on_table("read"),
    summary="Get changes of a shared table (refused)",
    tag="Delta Sharing",
    description="Changes between versions are not shared.",
    answer_type=Nothing,
    media_type=NDJSON,
    errors=(*_NO_TABLE, NotExpressible),
)

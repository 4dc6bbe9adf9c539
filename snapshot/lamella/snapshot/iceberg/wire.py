"""Requests and answers of the Iceberg REST specification, as far as Lamella serves it.

Names and members follow ``open-api/rest-catalog-open-api.yaml`` of Apache Iceberg 1.11.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from lamella.snapshot.wire.limits import ColumnPaths

#: Maximum length of a plan task. Plans of requests that need longer ones have no parts.
MAX_CHARACTERS: Final = 1 << 20
Properties = Annotated[
    dict[Annotated[str, Meta(max_length=1024)], Annotated[str, Meta(max_length=1 << 20)]], Meta(max_length=10_000)
]
Names = Annotated[tuple[Annotated[str, Meta(max_length=1024)], ...], Meta(max_length=10_000)]
IcebergName = Annotated[str, Meta(max_length=256)]
#: The levels of a namespace.
Levels = Annotated[tuple[IcebergName, ...], Meta(min_length=1, max_length=64)]
#: Ids of snapshots: positive, of 63 bits.
SnapshotId = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class IcebergErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """``type`` is the name of the Java class that clients of this specification raise."""

    message: str
    type: str
    code: int


class IcebergError(msgspec.Struct, frozen=True):
    """The answer to every failed request."""

    error: IcebergErrorBody


class IcebergConfig(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """The client's configuration; ``overrides`` take precedence over its own settings.

    ``idempotency_key_lifetime``: how long an Idempotency-Key holds, as a duration of ISO 8601.
    """

    defaults: dict[str, str]
    overrides: dict[str, str]
    endpoints: tuple[str, ...]
    idempotency_key_lifetime: str | None = None


class IcebergNamespaces(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """Names of namespaces, each of one level."""

    namespaces: tuple[tuple[str, ...], ...]
    next_page_token: str | None = None


class IcebergNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace and its properties."""

    namespace: tuple[str, ...]
    properties: dict[str, str]


class IcebergIdentifier(msgspec.Struct, frozen=True, kw_only=True):
    """The name of a table."""

    namespace: Levels
    name: IcebergName


class IcebergTables(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """Names of tables."""

    identifiers: tuple[IcebergIdentifier, ...]
    next_page_token: str | None = None


class ScanReport(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What a client says of a scan or a commit (``report_type``); only what is used. Scans have a ``filter``."""

    report_type: Annotated[str, Meta(max_length=64)]
    filter: Any = None
    metrics: Annotated[dict[Annotated[str, Meta(max_length=256)], Any], Meta(max_length=1_000)] = {}


class StorageCredential(msgspec.Struct, frozen=True, kw_only=True):
    """Properties with credentials for the locations that start with ``prefix``."""

    prefix: str
    config: dict[str, str]


class LoadedTable(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A table in Iceberg's form. ``metadata_location``: its metadata file (None: a table that is not created yet), or
    the service's own manifest of the snapshot."""

    metadata_location: str | None
    metadata: dict[str, Any]
    config: dict[str, str]
    storage_credentials: tuple[StorageCredential, ...] = ()


class CreateIcebergNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """Requests a namespace; its levels are joined by dots."""

    namespace: Levels
    properties: Properties = {}


class UpdateIcebergNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """Sets and removes properties of a namespace."""

    removals: Names = ()
    updates: Properties = {}


class UpdatedIcebergNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """``missing``: properties to be removed that the namespace did not have."""

    updated: tuple[str, ...]
    removed: tuple[str, ...]
    missing: tuple[str, ...]


class CreateIcebergTable(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Requests a table. ``stage_create``: only return its metadata; the client creates the table by a commit."""

    name: IcebergName
    schema: dict[str, Any]
    location: Annotated[str, Meta(max_length=4096)] | None = None
    partition_spec: dict[str, Any] | None = None
    write_order: dict[str, Any] | None = None
    stage_create: bool = False
    properties: Properties = {}


class RegisterIcebergTable(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Adds a table by its metadata file. ``overwrite``: also if a table has the name."""

    name: IcebergName
    metadata_location: Annotated[str, Meta(max_length=4096)]
    overwrite: bool = False


class CommitIcebergTable(msgspec.Struct, frozen=True, kw_only=True):
    """A commit of a client: what it requires of the table, and the changes of the metadata.

    ``identifier``: the table, in a transaction.
    """

    identifier: IcebergIdentifier | None = None
    requirements: Annotated[tuple[dict[str, Any], ...], Meta(max_length=1_000)] = ()
    updates: Annotated[tuple[dict[str, Any], ...], Meta(max_length=100_000)]


class CommitIcebergTransaction(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Commits to several tables, all or nothing."""

    table_changes: Annotated[tuple[CommitIcebergTable, ...], Meta(min_length=1, max_length=100)]


class CommittedIcebergTable(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A table after a commit."""

    metadata_location: str
    metadata: dict[str, Any]


class RenameIcebergTable(msgspec.Struct, frozen=True, kw_only=True):
    """Gives a table another name."""

    source: IcebergIdentifier
    destination: IcebergIdentifier


class CreateIcebergView(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Requests a view. The version gets the id of the schema, and the number 1."""

    name: IcebergName
    location: Annotated[str, Meta(max_length=4096)] | None = None
    schema: dict[str, Any]
    view_version: dict[str, Any]
    properties: Properties = {}


class RegisterIcebergView(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Adds a view by its metadata file."""

    name: IcebergName
    metadata_location: Annotated[str, Meta(max_length=4096)]


class CommitIcebergView(msgspec.Struct, frozen=True, kw_only=True):
    """A commit of a client: what it requires of the view, and the changes of the metadata. The path names the view."""

    identifier: IcebergIdentifier | None = None
    requirements: Annotated[tuple[dict[str, Any], ...], Meta(max_length=1_000)] = ()
    updates: Annotated[tuple[dict[str, Any], ...], Meta(max_length=10_000)]


class LoadedView(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A view in Iceberg's form. ``metadata_location``: its metadata file; there is none of a view that Spark made."""

    metadata_location: str
    metadata: dict[str, Any]
    config: dict[str, str]


class IcebergPointer(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What the service stores as the answer to a commit: the metadata file, which never changes."""

    metadata_location: str


class PlanTableScan(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A scan plan request. At most one of ``snapshot_id`` and a range of snapshots; else the current one.

    ``select`` does not change the answer. ``use_snapshot_schema``: names are those of the snapshot's schema, and not of
    the table's. ``min_rows_requested``: this many rows are enough.
    """

    snapshot_id: SnapshotId | None = None
    select: ColumnPaths | None = None
    filter: Any = None
    case_sensitive: bool = True
    use_snapshot_schema: bool = False
    start_snapshot_id: SnapshotId | None = None
    end_snapshot_id: SnapshotId | None = None
    stats_fields: ColumnPaths | None = None
    min_rows_requested: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None = None


class FetchScanTasks(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Requests the files of one part of a plan."""

    plan_task: Annotated[str, Meta(max_length=MAX_CHARACTERS)]


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers by field id."""

    keys: tuple[int, ...]
    values: tuple[int, ...]


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Values by field id: Iceberg's binary form of a single value, hexadecimal."""

    keys: tuple[int, ...]
    values: tuple[str, ...]


class DataFile(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A block. It has statistics only for the requested fields, and only exact ones."""

    spec_id: int
    partition: tuple[Any, ...]
    content: Literal["data"]
    file_path: str
    file_format: Literal["parquet"]
    file_size_in_bytes: int
    record_count: int
    value_counts: Counts | None = None
    null_value_counts: Counts | None = None
    nan_value_counts: Counts | None = None
    lower_bounds: Bounds | None = None
    upper_bounds: Bounds | None = None


class DeletionVector(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Deleted rows of a data file: ``content_size_in_bytes`` bytes from ``content_offset`` of the file.

    ``file_size_in_bytes`` is a lower limit of the file's size; ``record_count`` is the number of deleted rows.
    """

    spec_id: int
    partition: tuple[Any, ...]
    content: Literal["position-deletes"]
    file_path: str
    file_format: Literal["puffin"]
    file_size_in_bytes: int
    record_count: int
    referenced_data_file: str
    content_offset: int
    content_size_in_bytes: int


class FileScanTask(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A file to read, and its residual filter: ``true`` if every row that is not deleted is proven to match.

    ``delete_file_references``: positions of its deletion vectors in ``delete_files`` of the answer, from 0.
    """

    data_file: DataFile
    residual_filter: Any
    delete_file_references: tuple[int, ...] = ()


class ScanTasks(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """Files, with the deletion vectors that they refer to, and further parts to be requested one by one."""

    delete_files: tuple[DeletionVector, ...] = ()
    file_scan_tasks: tuple[FileScanTask, ...]
    plan_tasks: tuple[str, ...] | None = None


class CompletedPlan(ScanTasks, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A plan that is complete with its answer."""

    status: Literal["completed"]
    plan_id: str


class Credentials(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Credentials for a table's storage, by prefix; empty if the service gives none."""

    storage_credentials: tuple[StorageCredential, ...]


#: Headers with all their values.
Headers = Annotated[
    dict[
        Annotated[str, Meta(max_length=256)],
        Annotated[tuple[Annotated[str, Meta(max_length=8192)], ...], Meta(max_length=16)],
    ],
    Meta(max_length=100),
]


class RequestToSign(msgspec.Struct, frozen=True, kw_only=True):
    """A request to object storage that a client wants to send.

    ``body``: only of a request whose body names the objects, DeleteObjects of S3.
    """

    region: Annotated[str, Meta(max_length=64)]
    uri: Annotated[str, Meta(max_length=8192)]
    method: Literal["PUT", "GET", "HEAD", "POST", "DELETE", "PATCH", "OPTIONS"]
    headers: Headers
    properties: Annotated[
        dict[Annotated[str, Meta(max_length=256)], Annotated[str, Meta(max_length=8192)]], Meta(max_length=100)
    ] = {}
    body: Annotated[str, Meta(max_length=1 << 20)] | None = None
    provider: Annotated[str, Meta(max_length=16)] | None = None


class SignedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request with the headers that make it valid."""

    uri: str
    headers: dict[str, tuple[str, ...]]


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of the token endpoint (RFC 6749, section 5.1)."""

    access_token: str
    issued_token_type: str
    token_type: Literal["bearer"] = "bearer"  # noqa: S105  # RFC 6750's name, and no secret
    expires_in: int | msgspec.UnsetType = msgspec.UNSET


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The form of the token endpoint (RFC 6749, section 4.4; RFC 8693, section 2.1)."""

    grant_type: str
    client_id: str | None = None
    client_secret: str | None = None
    scope: str | None = None
    subject_token: str | None = None
    subject_token_type: str | None = None


class OAuthError(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal of the token endpoint (RFC 6749, section 5.2)."""

    error: str
    error_description: str

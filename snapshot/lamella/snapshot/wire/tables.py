"""Requests and answers about namespaces, tables, schemas, external sources, and errors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from lamella.snapshot.html_tables import html_facts
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.schema import Check, Column, Schema
from lamella.snapshot.schema.evolution import MAX_CHECKS, SchemaChange
from lamella.snapshot.wire.commit import PathColumns, RefusedFile
from lamella.snapshot.wire.limits import (
    MAX_COLUMNS,
    MAX_LOCATIONS,
    FewPaths,
    Location,
    Moment,
    PartitionText,
    Properties,
    Word,
    Words,
)


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a probe; anything but 200 is a problem document."""

    status: Literal["started", "live", "ready"]


class ServiceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """``idempotency_ttl_s``: how long an answer can be replayed by its key; limits apply to one request."""

    version: str
    idempotency_ttl_s: int
    max_body_bytes: int
    page_size_max: int


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An RFC 9457 problem document; ``code`` names the class of :mod:`lamella.snapshot.errors`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str | None = None
    details: dict[str, Any] = {}


class CreateNamespace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST /v1/namespaces``."""

    name: Word
    properties: Properties = {}


class NamespaceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One namespace."""

    name: str
    properties: dict[str, str] = {}


class NamespaceChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST /v1/namespaces/{ns}/properties``: properties to set, and others to remove if they exist.

    ``lamella.quota.tables``, ``lamella.quota.blocks`` and ``lamella.quota.bytes`` are the namespace's quotas.
    """

    set: Properties = {}
    remove: Words = ()


class QuotaUse(msgspec.Struct, frozen=True, kw_only=True):
    """Current use, and the quota (None: no limit)."""

    used: int
    maximum: int | None = None


class NamespaceQuota(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/namespaces/{ns}/quota``: tables, and the blocks and bytes of their current snapshots together."""

    tables: QuotaUse
    blocks: QuotaUse
    bytes: QuotaUse


class NamespaceList(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/namespaces``."""

    namespaces: tuple[NamespaceInfo, ...]


class CreateTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST /v1/namespaces/{ns}/tables``: one of ``schema`` (its columns) and ``schema_from`` (a Parquet file, a
    folder or a glob: the columns of its first file, and those that folders such as ``year=2020`` name).

    ``source``: the table follows files of an external source. It has the source's columns; those of a directory are its
    first file's and its folders', unless they are given. ``cluster_kind``: "linear" by default. ``checks``: CHECK
    constraints.
    """

    name: Word
    schema: Annotated[tuple[Column, ...], Meta(max_length=MAX_COLUMNS)] | None = None
    schema_from: Location | None = None
    cluster_key: FewPaths = ()
    properties: Properties = {}
    source: ExternalSource | msgspec.UnsetType = msgspec.UNSET
    cluster_kind: ClusterKind | msgspec.UnsetType = msgspec.UNSET
    checks: Annotated[tuple[Check, ...], Meta(max_length=MAX_CHECKS)] | msgspec.UnsetType = msgspec.UNSET


class TableInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a table. ``location`` is its folder in the warehouse; jobs write blocks below
    ``location``/_b.

    ``schemas`` are the earlier schemas, oldest first; ``schema_ids_in_use`` those that blocks were written with.
    ``cluster_key_id``: of the cluster key, None if there is none; another key or kind has another id.
    ``distinct_of_values``: the approximate number of distinct values of a column, if it was measured, by dotted path.
    ``required_features``: what a reader of the blocks must support. ``constants_count``: the number of blocks with
    values of columns that their files do not hold, ``deletes_count`` of those with deleted rows. ``row_count`` includes
    deleted rows, ``live_row_count`` does not (None: unknown).
    """

    namespace: str
    name: str
    table_id: str
    location: str
    snapshot_id: str
    timestamp_ms: int
    schema: Schema
    cluster_key: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    row_count: int = 0
    block_count: int = 0
    segment_count: int = 0
    file_size_bytes: int = 0
    schemas: tuple[Schema, ...] = ()
    schema_ids_in_use: tuple[int, ...] = ()
    distinct_of_values: dict[str, int] = {}
    cluster_kind: ClusterKind = "linear"
    cluster_key_id: int | None = None
    required_features: tuple[str, ...] = ()
    constants_count: int = 0
    deletes_count: int = 0
    live_row_count: int | None = None

    @property
    def history(self) -> tuple[Schema, ...]:
        """Returns every schema the table has had, the current one last."""
        return (*self.schemas, self.schema)

    def _repr_html_(self) -> str:
        """Returns what the table is as a table, for notebooks."""
        facts = (
            ("snapshot", self.snapshot_id),
            ("rows", self.row_count if self.live_row_count is None else self.live_row_count),
            ("blocks", self.block_count),
            ("segments", self.segment_count),
            ("bytes", self.file_size_bytes),
            ("cluster key", f"{self.cluster_kind}({', '.join(self.cluster_key)})" if self.cluster_key else None),
            ("location", self.location),
        )
        return html_facts(f"Table {self.namespace}.{self.name}", facts) + self.schema._repr_html_()


class ClusterKeyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``PUT .../cluster-key``: the new cluster key, as dotted paths and expressions; none: no key.

    ``base_snapshot_id``: the snapshot whose key must still be current; otherwise the request fails with a conflict.
    """

    columns: FewPaths = ()
    kind: ClusterKind = "linear"
    base_snapshot_id: Word | None = None


class ClusterKeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster key of a snapshot; ``key_id`` None: it has none."""

    snapshot_id: str
    columns: tuple[str, ...] = ()
    kind: ClusterKind = "linear"
    key_id: int | None = None


class EvolveRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../schema``: changes, applied in order, all or none.

    ``base_schema_id``: the schema that must be current; otherwise the request fails with a conflict.
    """

    changes: Annotated[tuple[SchemaChange, ...], Meta(max_length=1_000)]
    base_schema_id: int | None = None


class SchemaInfo(msgspec.Struct, frozen=True, kw_only=True):
    """``GET .../schema``, and the answer of a change: the current schema and the earlier ones, oldest first."""

    snapshot_id: str
    schema: Schema
    schemas: tuple[Schema, ...] = ()
    schema_ids_in_use: tuple[int, ...] = ()

    @property
    def history(self) -> tuple[Schema, ...]:
        """Returns every schema the table has had, the current one last."""
        return (*self.schemas, self.schema)

    def _repr_html_(self) -> str:
        """Returns the current schema as a table, for notebooks."""
        return self.schema._repr_html_()


class TableList(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/namespaces/{ns}/tables``."""

    tables: tuple[str, ...]


SourceKind = Literal["directory", "delta", "iceberg", "hive"]
SourceMode = Literal["incremental", "full", "dry_run"]


class ExternalSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The source of an external table.

    ``directory``: ``location`` is a folder or a glob. ``delta``: the table's folder. ``iceberg``: ``location`` is a
    metadata file or the folder of a table with a ``version-hint.text``, or else ``catalog`` (one that the service
    knows) and ``table`` name it. ``hive``: the folder of a table of a Hive Metastore, whose columns and partitions each
    refresh brings. ``path_columns``: what to do with the value that a folder's name gives to a column
    (``day=2024-01-31``): read it, or ignore it. ``time_zone``: of timestamps in the names of folders and in the values
    of partitions.
    """

    kind: SourceKind
    location: Location | None = None
    catalog: Word | None = None
    table: Location | None = None
    path_columns: PathColumns = "read"
    time_zone: Moment = "UTC"


class HivePartition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A partition of a Hive table: its folder, and the text of its values in the order of ``partitioned_by`` (None: the
    null of that column, which a metastore writes as ``__HIVE_DEFAULT_PARTITION__``)."""

    location: Location
    values: Annotated[tuple[PartitionText | None, ...], Meta(max_length=100)]


class HiveTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a metastore says of a table with Parquet files.

    ``columns``: all of them, the partition columns among them. ``partitioned_by``: the names of the partition columns;
    none: the table's files are in its folder, and ``partitions`` is empty. ``partitions``: all of them. A folder of the
    table that is none of these has no rows of the table.
    """

    columns: Annotated[tuple[Column, ...], Meta(max_length=MAX_COLUMNS)]
    partitioned_by: FewPaths = ()
    partitions: Annotated[tuple[HivePartition, ...], Meta(max_length=MAX_LOCATIONS)] = ()


class RefreshTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../refresh``.

    ``incremental`` opens the files that are new or changed by size and content id; ``full`` opens all; ``dry_run``
    opens none, and changes nothing. ``strict``: change nothing if one file is refused (None: a Delta or Iceberg table
    is refreshed completely or not at all, as is a Hive table, and a directory as far as possible). ``verify``: as in a
    registration. ``location``: the current metadata file of an Iceberg table, or the folder of a Hive table.
    ``allow_empty``: accept a directory without any files, or a Hive table whose folders have none. ``hive``: what the
    metastore says of a Hive table, which every refresh of one needs.
    """

    mode: SourceMode = "incremental"
    strict: bool | None = None
    verify: bool = False
    location: Location | None = None
    allow_empty: bool = False
    hive: HiveTable | None = None


class RefreshTableAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a refresh did, or (``dry_run``) would do, in files.

    ``replaced``: files that were replaced at the same locations. ``refused``: files that are not in the table, and why.
    ``schema_changes``: changes of columns in the same refresh. ``changed`` False: the table is unchanged, and
    ``snapshot_id`` is not a new snapshot.
    """

    snapshot_id: str
    mode: SourceMode
    changed: bool
    added: int
    removed: int
    replaced: int
    unchanged: int
    source_version: str | None = None
    schema_changes: int = 0
    refused: tuple[RefusedFile, ...] = ()


class ConversionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../convert-to-iceberg``. ``dry_run``: only check whether the table can be converted."""

    dry_run: bool = False


class ConversionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The table's current snapshot, its numbers, and the metadata file of the Iceberg table; None: a dry run."""

    snapshot_id: str
    metadata_location: str | None
    block_count: int
    row_count: int


class RefreshProgress(msgspec.Struct, frozen=True, kw_only=True):
    """``GET .../refresh``: the refresh that this process is running, if any, and how many files it has opened."""

    running: bool
    phase: Literal["listing", "reading", "committing"] | None = None
    files_done: int = 0
    files_total: int = 0
    started_ms: int | None = None

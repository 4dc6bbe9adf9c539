# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/tables.py: change that file.
"""Methods for namespaces, tables and the contents of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from lamella.client.http.call import Columns, TableName
from lamella.client.http.results import Names
from lamella.client.http.sync.runner import CallRunner
from lamella.client.http.tables import (
    change_namespace_call,
    commit_call,
    config_call,
    create_namespace_call,
    create_table_call,
    drop_namespace_call,
    drop_table_call,
    dropped_tables_call,
    evolve_call,
    namespace_quota_call,
    namespaces_call,
    register_arrivals_call,
    register_call,
    rename_table_call,
    schema_call,
    segment_call,
    snapshot_call,
    table_call,
    tables_call,
    undrop_table_call,
)
from lamella.snapshot import wire
from lamella.snapshot.manifest import Block, ClusterKind, RowChange, Segment, Snapshot
from lamella.snapshot.schema import Check
from lamella.snapshot.schema.evolution import SchemaChange


class LakeTables:
    """Namespaces and tables; a part of :class:`lamella.client.Lamella`."""

    def config(self: CallRunner) -> wire.ServiceConfig:
        """The service's version and limits, and the lifetime of idempotency keys.

        Example:
            >>> lake.config().page_size_max
            1000
        """
        return self.run(config_call())

    def namespaces(self: CallRunner) -> tuple[wire.NamespaceInfo, ...]:
        """All namespaces.

        Example:
            >>> [namespace.name for namespace in lake.namespaces()]
            ['shop']
        """
        return self.run(namespaces_call()).namespaces

    def create_namespace(
        self: CallRunner,
        name: str,
        properties: Mapping[str, str] | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> wire.NamespaceInfo:
        """Create a namespace; raises AlreadyExists.

        Example:
            >>> lake.create_namespace("web", {"team": "sales"}).name
            'web'
        """
        return self.run(create_namespace_call(name, properties or {}), idempotency_key)

    def change_namespace(
        self: CallRunner,
        name: str,
        *,
        set: Mapping[str, str] | None = None,
        remove: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> wire.NamespaceInfo:
        """Set and remove properties of a namespace; others stay. Raises NamespaceNotFound.

        Only an admin of the whole service can set quotas (``lamella.quota.tables``, ``.blocks``, ``.bytes``).

        Example:
            >>> info = lake.change_namespace("shop", set={"team": "sales"})
            >>> info.properties["team"]
            'sales'
        """
        return self.run(change_namespace_call(name, set or {}, remove), idempotency_key)

    def namespace_quota(self: CallRunner, name: str) -> wire.NamespaceQuota:
        """The usage and quotas of a namespace; raises NamespaceNotFound.

        Example:
            >>> lake.namespace_quota("shop").tables
            QuotaUse(used=3, maximum=None)
        """
        return self.run(namespace_quota_call(name))

    def drop_namespace(self: CallRunner, name: str, *, idempotency_key: str | None = None) -> None:
        """Drop an empty namespace; raises NamespaceNotFound, NamespaceNotEmpty.

        Example:
            >>> namespace = lake.create_namespace("web")
            >>> lake.drop_namespace("web")
        """
        self.run(drop_namespace_call(name), idempotency_key)

    def tables(self: CallRunner, namespace: str) -> tuple[str, ...]:
        """The names of a namespace's tables; raises NamespaceNotFound.

        Example:
            >>> lake.tables("shop")
            ('arrivals', 'orders', 'rates')
        """
        return Names(self.run(tables_call(namespace)).tables)

    def create_table(
        self: CallRunner,
        name: str,
        *,
        schema: Columns | None = None,
        schema_from: str | None = None,
        cluster_key: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        cluster_kind: ClusterKind = "linear",
        checks: Sequence[Check] = (),
        idempotency_key: str | None = None,
    ) -> wire.TableInfo:
        """Create the table ``namespace.name``, from columns or from the URL of a Parquet file or folder.

        ``schema``: columns, names with their types (``{"id": "int64", "name": "string"}``), or a schema of pyarrow.
        The columns of a folder are those of its first file, and those that folders such as ``year=2020`` name.
        ``checks``: CHECK constraints; see ``docs/schema.md#constraints``.

        Raises AlreadyExists, NamespaceNotFound, InvalidSchema, UnknownColumn (in the cluster key), NotParquet,
        InvalidFilter (the condition of a constraint).

        Example:
            >>> columns = {"id": "int64", "day": "date"}
            >>> lake.create_table("shop.visits", schema=columns, cluster_key=["day"]).cluster_key
            ('day',)
        """
        call = create_table_call(
            TableName.parse(name), schema, schema_from, cluster_key, properties or {}, cluster_kind, checks
        )
        return self.run(call, idempotency_key)

    def drop_table(
        self: CallRunner,
        name: str,
        *,
        purge: bool = False,
        base_snapshot_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Drop a table; it can be restored for some time.

        ``purge``: it cannot be restored; the next vacuum removes the files that the service wrote for it.
        ``base_snapshot_id``: only if this is its current snapshot.

        Raises NamespaceNotFound, TableNotFound, CommitConflict (another snapshot is the current one).

        Example:
            >>> lake.drop_table("shop.orders")
            >>> lake.tables("shop")
            ('arrivals', 'rates')
        """
        self.run(drop_table_call(TableName.parse(name), purge, base_snapshot_id), idempotency_key)

    def rename_table(
        self: CallRunner, name: str, new_name: str, *, idempotency_key: str | None = None
    ) -> wire.TableInfo:
        """Rename a table; with another namespace in ``new_name`` it moves there. Nothing else of it changes.

        Raises NamespaceNotFound, TableNotFound, AlreadyExists (the name is taken), QuotaExceeded.

        Example:
            >>> lake.rename_table("shop.orders", "shop.sales").name
            'sales'
        """
        call = rename_table_call(TableName.parse(name), TableName.parse(new_name))
        return self.run(call, idempotency_key)

    def dropped_tables(self: CallRunner, namespace: str) -> tuple[wire.DroppedTable, ...]:
        """The dropped tables of a namespace that can be restored, last dropped first; raises NamespaceNotFound.

        Example:
            >>> lake.drop_table("shop.orders")
            >>> [dropped.name for dropped in lake.dropped_tables("shop")]
            ['orders']
        """
        return self.run(dropped_tables_call(namespace)).tables

    def undrop_table(
        self: CallRunner,
        name: str,
        *,
        table_id: str | None = None,
        as_name: str | None = None,
        idempotency_key: str | None = None,
    ) -> wire.TableInfo:
        """Restore a dropped table with its history and tags.

        ``name``: its former name, ``namespace.table``; the table of that name that was dropped last is restored.
        ``as_name``: a new table name. With ``table_id``, the table with this id is restored under ``name``.

        Raises TableNotFound, NamespaceNotFound, AlreadyExists (the name is taken).

        Example:
            >>> lake.drop_table("shop.orders")
            >>> lake.undrop_table("shop.orders").row_count
            15
        """
        return self.run(undrop_table_call(TableName.parse(name), table_id, as_name), idempotency_key)


class TableContents:
    """Columns, blocks and manifests of a table; a part of :class:`lamella.client.http.Table`."""

    _lake: CallRunner
    _name: TableName

    def info(self, *, role: wire.Role | None = None) -> wire.TableInfo:
        """The current state of the table; raises TableNotFound.

        ``role``: raises PermissionDenied unless the caller has this role on the table. Give ``"write"`` before you
        write files for a commit.

        Example:
            >>> info = table.info()
            >>> info.row_count, info.block_count
            (15, 4)
        """
        return self._lake.run(table_call(self._name, role))

    def schema(self) -> wire.SchemaInfo:
        """The table's current and earlier columns; raises TableNotFound.

        Example:
            >>> [column.name for column in table.schema().schema.columns]
            ['id', 'day', 'country', 'customer', 'price', 'amount', 'note']
        """
        return self._lake.run(schema_call(self._name))

    def evolve(
        self,
        changes: Sequence[SchemaChange],
        *,
        base_schema_id: int | None = None,
        idempotency_key: str | None = None,
    ) -> wire.SchemaInfo:
        """Change the table's columns in one new snapshot: all changes in order, or none. No data file is rewritten.

        ``changes``: :class:`~lamella.snapshot.schema.evolution.AddColumn` and the like. ``base_schema_id``: only if
        this is the current schema.

        Raises UnknownColumn, InvalidSchema, InvalidRequest (nothing would change), SchemaConflict, TableNotFound.

        Example:
            >>> from lamella.snapshot.schema.evolution import RenameColumn
            >>> changed = table.evolve([RenameColumn(column="note", name="remark")])
            >>> changed.schema.columns[-1].name
            'remark'
        """
        return self._lake.run(evolve_call(self._name, changes, base_schema_id), idempotency_key)

    def register(
        self,
        paths: Sequence[str],
        *,
        strict: bool = False,
        verify: bool = False,
        path_columns: wire.PathColumns = "read",
        time_zone: str = "UTC",
        other_formats: wire.OtherFormats = "refuse",
        take_replaced: bool = False,
        idempotency_key: str | None = None,
    ) -> wire.RegisterAnswer:
        """Append existing Parquet files, given as file, directory or glob URLs that the service can read.

        Files that cannot be registered are in ``refused`` of the answer. Raises BlocksRefused when no file could be
        registered, or with ``strict`` when any could not, and DuplicateBlock when all of these are in the table
        already; ``refused`` in the error's details lists them. Raises StoreError when the store failed.

        ``verify``: the service reads every value and computes the statistics from the values. Use it for files from
        writers that are not trusted, and for statistics that footers do not have (exact bounds, NaN, INT96).

        ``path_columns``: a folder such as ``year=2020`` gives its value to the column of that name in all rows of its
        files, which need not hold the column; "ignore" registers the files without it. ``time_zone``: of timestamps in
        the names of folders.

        ``other_formats``: a folder or glob is refused when its files belong to a Delta, Iceberg, Hudi or DuckLake
        table; "ignore" registers every Parquet file, also those whose rows were deleted or rewritten. Files that are
        given by their own URLs are not checked.

        ``take_replaced``: also register files that were in the table before and whose rows were replaced or removed by
        a rewrite, a delete or another commit. Rows that a compaction has moved to other files are then in the table
        twice.

        Example:
            >>> answer = table.register([f"{incoming}/july.parquet"])
            >>> answer.registered, answer.row_count
            (1, 2)
        """
        call = register_call(
            self._name,
            paths,
            strict=strict,
            verify=verify,
            path_columns=path_columns,
            time_zone=time_zone,
            other_formats=other_formats,
            take_replaced=take_replaced,
        )
        return self._lake.run(call, idempotency_key)

    def register_arrivals(
        self,
        files: Sequence[str],
        *,
        removed: Sequence[str] = (),
        prefix: str | None = None,
        suffix: str | None = None,
    ) -> wire.ArrivalsAnswer:
        """Register those of the files that the table does not have and never had, in one snapshot.

        ``files``: URLs of single files, never of folders or globs. Files that are in the table, or were, are counted in
        the answer and not added again, so the call may be repeated at any time, by several programs at once. Files that
        cannot be registered are in ``refused``, and are no error: ``block_replaced`` is one that was overwritten after
        it was registered. An external table is refreshed if one of ``files`` or of ``removed`` (deleted files) is below
        its location.

        ``prefix``: only files whose URL begins with it. ``suffix``: only files whose name ends with it, by default
        ``.parquet``. Hidden files and folders (``_temporary``) are ignored.

        Raises TableNotFound, InvalidRequest, NotProven (the table has constraints), QuotaExceeded, StoreError.

        Example:
            >>> found = table.register_arrivals([f"{incoming}/july.parquet"])
            >>> found.registered
            1
        """
        return self._lake.run(register_arrivals_call(self._name, files, removed, prefix, suffix))

    def commit(
        self,
        added: Iterable[Block | Mapping[str, Any] | msgspec.Raw] = (),
        removed: Sequence[str] = (),
        base_snapshot_id: str | None = None,
        operation: str = "append",
        properties: Mapping[str, str] | None = None,
        *,
        index_parts: Sequence[wire.IndexPartsSent] = (),
        no_new_matches: wire.NoNewMatches | None = None,
        added_from: Sequence[wire.BlockListSent] = (),
        take_replaced: bool = False,
        deletes: Sequence[wire.BlockDeletes] = (),
        row_change: RowChange | None = None,
        reads: Sequence[wire.TableRead] = (),
        schema_update: wire.SchemaUpdate | None = None,
        remove_properties: Sequence[str] = (),
        writer_features: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> wire.CommitAnswer:
        """Add blocks with their statistics, remove blocks by location, and delete rows of others, in one new snapshot.

        ``index_parts``: index parts for the added blocks; see :class:`~lamella.snapshot.wire.PartSent`.
        ``no_new_matches``: only if no block that may match a filter was added since ``base_snapshot_id``.
        ``added_from``: lists of more blocks, in the table's scratch folder;
        :func:`lamella.client.rewrite.block_lists.commit_blocks` writes them when they are needed.
        ``take_replaced``: as for :meth:`register`; without it, files that were removed from the table are refused.
        ``deletes``: deletion vectors of blocks that stay, with all deleted rows of ``base_snapshot_id`` and more.
        ``row_change``: what the commit does to rows ("append", "delete", "replace", "overwrite"); see
        :class:`~lamella.snapshot.wire.CommitRequest`. ``reads``: only if these rows have not changed.
        ``schema_update``: schema changes of the same snapshot, which come before ``added``.
        ``remove_properties``: properties of the table to remove, if it has them. ``writer_features``: what the writer
        of ``added`` supports; "constraints": it has checked each row by the table's constraints.

        Raises DuplicateBlock, CommitConflict (blocks to be removed or changed are gone, or others changed the same
        rows; NewMatches: matching blocks were added; ReadConflict: ``reads`` changed), SchemaConflict, ObjectNotFound.

        Example:
            >>> answer = table.commit(properties={"owner": "sales"}, operation="set")
            >>> table.info().properties["owner"]
            'sales'
        """
        call = commit_call(
            self._name,
            added,
            removed,
            base_snapshot_id,
            operation,
            properties or {},
            index_parts,
            no_new_matches,
            added_from,
            take_replaced,
            deletes,
            row_change,
            reads,
            schema_update,
            remove_properties,
            writer_features,
        )
        return self._lake.run(call, idempotency_key)

    def snapshot(self, snapshot_id: str) -> Snapshot:
        """The manifest of a snapshot, by id, tag or number; raises SnapshotNotFound.

        Example:
            >>> table.snapshot("may").summary.row_count
            12
        """
        return self._lake.run(snapshot_call(self._name, snapshot_id))

    def segment(
        self, segment_id: str, *, snapshot_id: str | None = None, reader_features: Sequence[str] = ()
    ) -> Segment:
        """The manifest of a segment of a snapshot, by default the current one.

        ``reader_features``: what the caller supports when it reads the blocks.

        Raises SegmentNotFound, SnapshotNotFound, ReaderFeatureMissing.

        Example:
            >>> snapshot = table.snapshot(table.info().snapshot_id)
            >>> segment = table.segment(snapshot.segments[0].segment_id)
            >>> len(segment.blocks)
            3
        """
        return self._lake.run(segment_call(self._name, segment_id, snapshot_id, reader_features))

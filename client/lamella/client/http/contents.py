"""What a table is and holds, and how that changes: its calls as methods of :class:`Table` and its async twin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from lamella.client.http import call as calls
from lamella.client.http.call import TableName
from lamella.client.http.running import Runs, RunsAsync
from lamella.snapshot import wire
from lamella.snapshot.manifest import Block, Segment, Snapshot
from lamella.snapshot.schema.evolution import SchemaChange


class TableContents:
    """Columns, blocks and manifests of a table; a part of :class:`lamella.client.Table`."""

    _lake: Runs
    _name: TableName

    def info(self) -> wire.TableInfo:
        """The table as it stands; raises TableNotFound."""
        return self._lake.run(calls.table(self._name))

    def schema(self) -> wire.SchemaInfo:
        """The table's columns, now and before; raises TableNotFound."""
        return self._lake.run(calls.schema(self._name))

    def evolve(
        self,
        changes: Sequence[SchemaChange],
        *,
        base_schema_id: int | None = None,
        idempotency_key: str | None = None,
    ) -> wire.SchemaInfo:
        """Change the table's columns, in one new snapshot: all changes in order, or none. No file is written again.

        ``changes``: :class:`~lamella.snapshot.schema.evolution.AddColumn` and the like. ``base_schema_id``: only if
        that schema is in force.

        Raises UnknownColumn, InvalidSchema, InvalidRequest (nothing would change), SchemaConflict, TableNotFound.
        """
        return self._lake.run(calls.evolve(self._name, changes, base_schema_id), idempotency_key)

    def register(
        self,
        paths: Sequence[str],
        *,
        strict: bool = False,
        verify: bool = False,
        path_columns: wire.PathColumns = "refuse",
        other_formats: wire.OtherFormats = "refuse",
        take_replaced: bool = False,
        idempotency_key: str | None = None,
    ) -> wire.RegisterAnswer:
        """Append Parquet files that exist, named by file, directory or glob URLs as the service sees them.

        Files that cannot be taken are in the answer's ``refused``. When none could be taken, or with ``strict`` when
        one could not, raises BlocksRefused, or DuplicateBlock when all of those are in the table already; ``refused``
        in its details lists them. Raises StoreError when the store itself was in the way.

        ``verify``: the service reads every value and takes the statistics from them: for files whose writer is not to
        be trusted, and for what footers leave out (exact bounds, NaN, INT96).

        ``path_columns``: a file below a folder such as ``year=2020`` is refused unless it holds this value in a column
        of that name; "ignore" takes it without the folder's value.

        ``other_formats``: a folder or glob is refused where its files are part of a Delta, Iceberg, Hudi or DuckLake
        table; "ignore" takes every Parquet file, also those whose rows were deleted or rewritten. Files that are named
        one by one are taken as they are.

        ``take_replaced``: also take files that were in the table and whose rows a rewrite, a delete or another commit
        has replaced or removed since. Rows that a compaction moved elsewhere are then in the table twice.
        """
        call = calls.register(
            self._name,
            paths,
            strict=strict,
            verify=verify,
            path_columns=path_columns,
            other_formats=other_formats,
            take_replaced=take_replaced,
        )
        return self._lake.run(call, idempotency_key)

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
        idempotency_key: str | None = None,
    ) -> wire.CommitAnswer:
        """Add blocks with their statistics, remove blocks by location, in one new snapshot.

        ``index_parts``: what skip indexes know of the added blocks; see :class:`~lamella.snapshot.wire.PartSent`.
        ``no_new_matches``: only if no block came since ``base_snapshot_id`` that may hold rows of a filter.
        ``added_from``: lists with further blocks, in the table's scratch folder;
        :func:`lamella.client.rewrite.block_lists.commit_blocks` makes them where they are needed.
        ``take_replaced``: as for :meth:`register`; without it a file that was in the table and left it is refused.

        Raises DuplicateBlock, CommitConflict (blocks to be removed are gone; NewMatches: blocks came), SchemaConflict,
        ObjectNotFound.
        """
        call = calls.commit(
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
        )
        return self._lake.run(call, idempotency_key)

    def snapshot(self, snapshot_id: str) -> Snapshot:
        """The manifest of a snapshot, by id or tag; raises SnapshotNotFound."""
        return self._lake.run(calls.snapshot(self._name, snapshot_id))

    def segment(self, segment_id: str, *, snapshot_id: str | None = None) -> Segment:
        """The manifest of a segment of a snapshot, by default the current one.

        Raises SegmentNotFound, SnapshotNotFound.
        """
        return self._lake.run(calls.segment(self._name, segment_id, snapshot_id))


class AsyncTableContents:
    """The asyncio twin of :class:`TableContents`."""

    _lake: RunsAsync
    _name: TableName

    async def info(self) -> wire.TableInfo:
        """As :meth:`Table.info`."""
        return await self._lake.run(calls.table(self._name))

    async def schema(self) -> wire.SchemaInfo:
        """As :meth:`Table.schema`."""
        return await self._lake.run(calls.schema(self._name))

    async def evolve(
        self,
        changes: Sequence[SchemaChange],
        *,
        base_schema_id: int | None = None,
        idempotency_key: str | None = None,
    ) -> wire.SchemaInfo:
        """As :meth:`Table.evolve`."""
        return await self._lake.run(calls.evolve(self._name, changes, base_schema_id), idempotency_key)

    async def register(
        self,
        paths: Sequence[str],
        *,
        strict: bool = False,
        verify: bool = False,
        path_columns: wire.PathColumns = "refuse",
        other_formats: wire.OtherFormats = "refuse",
        take_replaced: bool = False,
        idempotency_key: str | None = None,
    ) -> wire.RegisterAnswer:
        """As :meth:`Table.register`."""
        call = calls.register(
            self._name,
            paths,
            strict=strict,
            verify=verify,
            path_columns=path_columns,
            other_formats=other_formats,
            take_replaced=take_replaced,
        )
        return await self._lake.run(call, idempotency_key)

    async def commit(
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
        idempotency_key: str | None = None,
    ) -> wire.CommitAnswer:
        """As :meth:`Table.commit`."""
        call = calls.commit(
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
        )
        return await self._lake.run(call, idempotency_key)

    async def snapshot(self, snapshot_id: str) -> Snapshot:
        """As :meth:`Table.snapshot`."""
        return await self._lake.run(calls.snapshot(self._name, snapshot_id))

    async def segment(self, segment_id: str, *, snapshot_id: str | None = None) -> Segment:
        """As :meth:`Table.segment`."""
        return await self._lake.run(calls.segment(self._name, segment_id, snapshot_id))

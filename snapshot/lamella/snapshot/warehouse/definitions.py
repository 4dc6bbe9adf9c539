"""Tables as they are defined: made, with other columns, with another cluster key; no segment is written for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lamella.snapshot import commit as commits
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import ClusterKind, Snapshot, SnapshotPointer
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.cluster_key import cluster_columns
from lamella.snapshot.schema.evolution import SchemaChange
from lamella.snapshot.warehouse.changes import CommitResult
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.writing import ManifestWriter


class Definitions:
    """Writes such snapshots; a catalog decides afterwards whether they count."""

    def __init__(self, manifests: Manifests, writer: ManifestWriter, ids: Ids) -> None:
        self._manifests = manifests
        self._writer = writer
        self._ids = ids

    def create(
        self,
        table_id: str,
        schema: Schema,
        *,
        cluster_key: Sequence[str] = (),
        cluster_kind: ClusterKind = "linear",
        properties: Mapping[str, str] | None = None,
        now_ms: int,
    ) -> SnapshotPointer:
        """Write a table's first, empty snapshot."""
        first = commits.empty_snapshot(
            snapshot_id=str(self._ids.new()),
            table_id=table_id,
            schema=schema,
            cluster_key=cluster_key,
            cluster_kind=cluster_kind,
            properties=properties or {},
            now_ms=now_ms,
        )
        return self._writer.snapshot(first)[0]

    def evolve(
        self,
        base: SnapshotPointer,
        changes: Sequence[SchemaChange],
        *,
        base_schema_id: int | None = None,
        now_ms: int,
    ) -> CommitResult:
        """Write the snapshot that follows ``base`` under a changed schema; no segment is written again.

        Call again with a newer base when the pointer swap was lost: the changes then apply to that base's schema,
        unless ``base_schema_id`` insists on one.

        Raises:
            SchemaConflict: the schema of ``base`` is not ``base_schema_id``.
            UnknownColumn, InvalidSchema, InvalidRequest: a change that cannot be made.
        """
        following = commits.evolved_snapshot(
            self._manifests.snapshot(base),
            changes,
            snapshot_id=str(self._ids.new()),
            now_ms=now_ms,
            base_schema_id=base_schema_id,
            prev_manifest=base.manifest,
        )
        return self._follow(following)

    def cluster(
        self, base: SnapshotPointer, columns: Sequence[str], kind: ClusterKind = "linear", *, now_ms: int
    ) -> CommitResult:
        """Write the snapshot that follows ``base`` with another cluster key, none without ``columns``.

        Columns are spelled as in the schema of ``base``; no segment is written again. Raises UnknownColumn,
        InvalidRequest: see :func:`lamella.snapshot.schema.cluster_key.cluster_columns`.
        """
        snapshot = self._manifests.snapshot(base)
        following = commits.clustered_snapshot(
            snapshot,
            cluster_columns(snapshot.schema, columns),
            kind,
            snapshot_id=str(self._ids.new()),
            now_ms=now_ms,
            prev_manifest=base.manifest,
        )
        return self._follow(following)

    def _follow(self, following: Snapshot) -> CommitResult:
        pointer, written = self._writer.snapshot(following)
        return CommitResult(pointer=pointer, snapshot=written, added=0, removed=0)

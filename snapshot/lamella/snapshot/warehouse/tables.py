"""Table definitions, and rollback to an older snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from lamella.snapshot import commit as commits
from lamella.snapshot.cluster.key import key_texts
from lamella.snapshot.commit.snapshots import rolled_back_snapshot
from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import BlocksGone, ObjectNotFound
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import Block, ClusterKind, DeleteFile, SegmentRef, Snapshot, SnapshotPointer
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import SchemaChange
from lamella.snapshot.storage import Store
from lamella.snapshot.warehouse.commits import CommitResult
from lamella.snapshot.warehouse.manifest_writer import ManifestWriter
from lamella.snapshot.warehouse.manifests import Manifests


class Definitions:
    """Writes snapshots that define tables; a catalog decides afterwards whether they take effect."""

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
        """Write the snapshot that follows ``base`` with a changed schema; no segment is rewritten.

        Call again with a newer base if the pointer swap fails: the changes then apply to that base's schema, unless
        ``base_schema_id`` requires a specific one.

        Raises:
            SchemaConflict: the schema of ``base`` is not ``base_schema_id``.
            UnknownColumn, InvalidSchema, InvalidRequest: an invalid change.
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
        """Write the snapshot that follows ``base`` with another cluster key, or none without ``columns``.

        Columns are spelled as in the schema of ``base``; no segment is rewritten. Raises UnknownColumn, InvalidRequest:
        see :func:`lamella.snapshot.cluster.key.key_texts`.
        """
        snapshot = self._manifests.snapshot(base)
        following = commits.clustered_snapshot(
            snapshot,
            key_texts(snapshot.schema, columns),
            kind,
            snapshot_id=str(self._ids.new()),
            now_ms=now_ms,
            prev_manifest=base.manifest,
        )
        return self._follow(following)

    def _follow(self, following: Snapshot) -> CommitResult:
        pointer, written = self._writer.snapshot(following)
        return CommitResult(pointer=pointer, snapshot=written, added=0, removed=0)


#: Maximum number of blocks that an error names.
NAMED_BLOCKS: Final = 100
_WORKERS: Final = 16

#: Distinguishes a block from another one at the same location.
_Content = tuple[str | None, str | None, int, tuple[DeleteFile, ...]]


class Rollbacks:
    """Writes the snapshots of rollbacks; a catalog decides afterwards whether they take effect."""

    def __init__(self, manifests: Manifests, writer: ManifestWriter, store: Store, ids: Ids) -> None:
        self._manifests = manifests
        self._writer = writer
        self._store = store
        self._ids = ids

    def rollback(
        self,
        base: SnapshotPointer,
        target: SnapshotPointer,
        *,
        now_ms: int,
        allow: Callable[[Sequence[Block]], object] = len,
    ) -> CommitResult:
        """Write the snapshot that follows ``base`` and has the blocks and columns of ``target``, an earlier one.

        Every block that is not in ``base`` is checked in the store: its size and content id must be the recorded ones.
        ``allow`` is called with those blocks first, and raises if one of them must not be restored. ``added`` of the
        result are those blocks, ``removed`` the ones that only ``base`` has. Call again with a newer base if the
        pointer swap fails.

        Raises:
            BlocksGone: blocks are missing, or their files were replaced; ``blocks`` names them, ``reasons`` gives the
                reasons.
            InvalidSchema: ``target`` is not an earlier snapshot of the table.
            StoreError: storage failed.
        """
        current, restored = self._manifests.snapshot(base), self._manifests.snapshot(target)
        now = {ref.segment_id: ref for ref in self._manifests.refs(current)}
        then = {ref.segment_id: ref for ref in self._manifests.refs(restored)}
        leaving = self._blocks(ref for segment_id, ref in now.items() if segment_id not in then)
        coming = self._blocks(ref for segment_id, ref in then.items() if segment_id not in now)
        stay = {path for path, block in coming.items() if path in leaving and _same(block, leaving[path])}
        added = [block for path, block in coming.items() if path not in stay]
        allow(added)
        self._require(added)
        following = rolled_back_snapshot(
            current, restored, snapshot_id=str(self._ids.new()), now_ms=now_ms, prev_manifest=base.manifest
        )
        pointer, written = self._writer.snapshot(following)
        return CommitResult(pointer=pointer, snapshot=written, added=len(added), removed=len(leaving) - len(stay))

    def _blocks(self, refs: Iterable[SegmentRef]) -> dict[str, Block]:
        return {block.location: block for ref in refs for block in self._manifests.segment(ref).blocks}

    def _require(self, blocks: Sequence[Block]) -> None:
        if not blocks:
            return
        with ContextThreadPool(min(_WORKERS, len(blocks)), thread_name_prefix="lamella-rollback") as pool:
            found = list(pool.map(_trouble_with(self._store), blocks))
        gone = [(block.location, reason) for block, reason in zip(blocks, found, strict=True) if reason is not None]
        if gone:
            raise BlocksGone(
                f"{counted(len(gone), 'block')} of that snapshot missing or replaced, first "
                f"{gone[0][0]!r}: {gone[0][1]}",
                blocks=[location for location, _ in gone[:NAMED_BLOCKS]],
                reasons=[reason for _, reason in gone[:NAMED_BLOCKS]],
            )


def _trouble_with(store: Store) -> Callable[[Block], str | None]:
    """Returns a function that gives the reason why a block cannot be used, None if it can."""

    def trouble(block: Block) -> str | None:
        try:
            stat = store.stat(block.location)
        except ObjectNotFound:
            return "the file is gone"
        if stat.size_bytes != block.file_size:
            return f"the file has {stat.size_bytes} bytes, not {block.file_size}"
        if block.content_id is not None and stat.content_id != block.content_id:
            return "the file was replaced"
        for entry in block.deletes:
            try:
                store.stat(entry.location)
            except ObjectNotFound:
                return "the list of its deleted rows is gone"
        return None

    return trouble


def _same(one: Block, other: Block) -> bool:
    return _content(one) == _content(other)


def _content(block: Block) -> _Content:
    return block.content_id, block.footer_sha256, block.file_size, block.deletes

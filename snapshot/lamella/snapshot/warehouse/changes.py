"""Changing tables: the segments of new blocks, and the snapshots that follow others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from lamella.snapshot import commit as commits
from lamella.snapshot.errors import CommitConflict, DuplicateBlock
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import Block, SegmentRef, Snapshot, SnapshotPointer
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import SchemaChange, Versioned
from lamella.snapshot.sketch.layers import SketchLayers
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.writing import ManifestWriter


class CommitResult(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that was written and waits for the catalog to point at it."""

    pointer: SnapshotPointer
    snapshot: Snapshot
    added: int
    removed: int


class _OneSchema(msgspec.Struct, frozen=True):
    """A table that has had one schema, as far as is known here."""

    history: tuple[Schema, ...]


class Changes:
    """Writes what changes; a catalog decides afterwards whether it counts.

    ``segment_blocks``: blocks of a new segment. ``with_pages``: called with a table's schema and new segments.
    """

    def __init__(
        self,
        manifests: Manifests,
        writer: ManifestWriter,
        sketches: SketchLayers,
        ids: Ids,
        *,
        segment_blocks: int,
        with_pages: Callable[[Schema, Sequence[SegmentRef]], object] | None,
    ) -> None:
        self._manifests = manifests
        self._writer = writer
        self._sketches = sketches
        self._ids = ids
        self._segment_blocks = segment_blocks
        self._with_pages = with_pages

    def create(
        self,
        table_id: str,
        schema: Schema,
        *,
        cluster_key: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        now_ms: int,
    ) -> SnapshotPointer:
        """Write a table's first, empty snapshot."""
        first = commits.empty_snapshot(
            snapshot_id=str(self._ids.new()),
            table_id=table_id,
            schema=schema,
            cluster_key=cluster_key,
            properties=properties or {},
            now_ms=now_ms,
        )
        return self._writer.snapshot(first)[0]

    def prepare(self, table_id: str, table: Schema | Versioned, blocks: Sequence[Block]) -> tuple[SegmentRef, ...]:
        """Write the segments of new blocks, at most ``segment_blocks`` each; they belong to no snapshot yet.

        ``table``: a snapshot of the table, or its schema when no block was written with an older one. A block that
        does not say what it was written with was written with the current schema.

        Raises:
            InvalidSchema: a block that was written with a schema that is not known here.
        """
        layout = self._writer.layout(table_id)
        versions = _OneSchema(history=(table,)) if isinstance(table, Schema) else table
        current = versions.history[-1].schema_id
        dated = [
            msgspec.structs.replace(block, schema_id=current) if block.schema_id is None and current else block
            for block in blocks
        ]
        size = self._segment_blocks
        refs = tuple(
            self._writer.segment(layout, versions, dated[start : start + size]) for start in range(0, len(dated), size)
        )
        if self._with_pages is not None:
            self._with_pages(versions.history[-1], refs)
        return refs

    def commit(
        self,
        base: SnapshotPointer,
        *,
        added: Sequence[SegmentRef] = (),
        removed: Sequence[str] = (),
        read_at: SnapshotPointer | None = None,
        operation: str = "append",
        properties: Mapping[str, str] | None = None,
        now_ms: int,
    ) -> CommitResult:
        """Write the snapshot that follows ``base``; call again with a newer base when the pointer swap was lost.

        ``read_at`` is the snapshot that the writer read the removed blocks in: a file that was replaced at the same
        location since then is another block, and removing it would lose rows that the writer never saw.

        Raises:
            DuplicateBlock: an added block is in the table already, or twice in ``added``.
            CommitConflict: a removed block is not in ``base``, or not the one of ``read_at`` (``blocks`` names them).
            SchemaConflict: an added segment was prepared under a schema that ``base`` does not know.
        """
        snapshot = self._manifests.snapshot(base)
        if read_at is not None and removed and read_at.snapshot_id != base.snapshot_id:
            self._check_same(read_at, base, removed)
        locations = [block for ref in added for block in self._manifests.locations(ref.companion)]
        self._check_new(base, locations, removed)
        replaced = self._without(snapshot, removed)
        following = commits.next_snapshot(
            snapshot,
            snapshot_id=str(self._ids.new()),
            added=added,
            replaced=replaced,
            operation=operation,
            properties=properties,
            now_ms=now_ms,
        )
        layout = self._writer.layout(snapshot.table_id)
        following = self._sketches.of_snapshot(layout, snapshot, following)
        pointer, written = self._writer.snapshot(following)
        return CommitResult(pointer=pointer, snapshot=written, added=len(locations), removed=len(removed))

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
        )
        pointer, written = self._writer.snapshot(following)
        return CommitResult(pointer=pointer, snapshot=written, added=0, removed=0)

    def has_blocks(self, pointer: SnapshotPointer, locations: Iterable[str]) -> set[str]:
        """Which of these locations are blocks of the snapshot."""
        wanted = set(locations)
        found: set[str] = set()
        if not wanted:
            return found
        for ref in self._manifests.snapshot(pointer).segments:
            found.update(wanted.intersection(self._manifests.locations(ref.companion)))
        return found

    def _check_new(self, base: SnapshotPointer, locations: Sequence[str], removed: Sequence[str]) -> None:
        doubled = sorted(place for place, count in Counter(locations).items() if count > 1)
        present = [] if doubled else sorted(self.has_blocks(base, locations) - set(removed))
        if doubled or present:
            blocks = doubled or present
            where = "twice in the request" if doubled else "already in the table"
            raise DuplicateBlock(f"{len(blocks)} blocks are {where}, first {blocks[0]!r}", blocks=blocks[:100])

    def _check_same(self, read_at: SnapshotPointer, base: SnapshotPointer, removed: Sequence[str]) -> None:
        then, now = self._contents(read_at, removed), self._contents(base, removed)
        changed = sorted(place for place in removed if place not in then or then[place] != now.get(place))
        if changed:
            raise CommitConflict(
                f"{len(changed)} blocks to be removed are not those that were read, first {changed[0]!r}",
                blocks=changed[:100],
                snapshot_id=base.snapshot_id,
            )

    def _contents(self, pointer: SnapshotPointer, locations: Sequence[str]) -> dict[str, tuple[str | None, str | None]]:
        """Content id and footer hash of the blocks at these locations."""
        wanted = set(locations)
        found: dict[str, tuple[str | None, str | None]] = {}
        for ref in self._manifests.snapshot(pointer).segments:
            if wanted.intersection(self._manifests.locations(ref.companion)):
                for block in self._manifests.segment(ref).blocks:
                    if block.location in wanted:
                        found[block.location] = (block.content_id, block.footer_sha256)
        return found

    def _without(self, snapshot: Snapshot, removed: Sequence[str]) -> dict[str, SegmentRef | None]:
        """The segments that change when blocks are removed, by id; None where nothing is left."""
        missing = set(removed)
        replaced: dict[str, SegmentRef | None] = {}
        layout = self._writer.layout(snapshot.table_id)
        for ref in snapshot.segments:
            if not missing:
                break
            hit = missing.intersection(self._manifests.locations(ref.companion))
            if hit:
                missing -= hit
                left = [block for block in self._manifests.segment(ref).blocks if block.location not in hit]
                left = self._sketches.restored(layout, ref, left)
                replaced[ref.segment_id] = self._writer.segment(layout, snapshot, left) if left else None
        if missing:
            blocks = sorted(missing)
            raise CommitConflict(
                f"{len(blocks)} blocks to be removed are not in the table, first {blocks[0]!r}",
                blocks=blocks[:100],
                snapshot_id=snapshot.snapshot_id,
            )
        return replaced

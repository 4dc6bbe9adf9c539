"""Reads a table's state: resolves the requested snapshot, and returns manifests as they were written."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from lamella.service.catalog import Catalog, HistoryEntry, TableRecord, branch_name, main_name
from lamella.service.http.page_token import PageTokens, no_token
from lamella.snapshot.errors import (
    BranchNotFound,
    InvalidRequest,
    ManifestError,
    ObjectNotFound,
    SegmentNotFound,
    SnapshotNotFound,
    TagNotFound,
)
from lamella.snapshot.expression.spark_casts import instant_us, zone
from lamella.snapshot.ids import canonical_id
from lamella.snapshot.manifest import Snapshot, SnapshotPointer, require_features
from lamella.snapshot.manifest.codec import check_hash
from lamella.snapshot.near_names import did_you_mean
from lamella.snapshot.storage import Store
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import ClusterKeyInfo, SchemaInfo, SegmentBlocks, SnapshotInfo, SnapshotList, TableInfo

_MAX_MS = (1 << 63) - 1
#: Names of snapshots that are numbers, unless a tag has that name.
_NUMBER = re.compile("[0-9]{1,18}")
_OF = "this listing"


@contextmanager
def trusted_manifests() -> Iterator[None]:
    """Treat a missing object as damage, not as a client's mistake, while reading what the catalog points at."""
    try:
        yield
    except ObjectNotFound as error:
        raise ManifestError(f"an object of the table is missing: {error.message}", **error.details) from error


def table_info(record: TableRecord, snapshot: Snapshot) -> TableInfo:
    """Return a table at a snapshot, which is the complete one, since its segments are counted."""
    summary, key = snapshot.summary, snapshot.cluster_key
    return TableInfo(
        namespace=record.namespace,
        name=record.name,
        table_id=record.main_id,
        location=record.location,
        snapshot_id=snapshot.snapshot_id,
        timestamp_ms=snapshot.timestamp_ms,
        schema=snapshot.schema,
        cluster_key=() if key is None else key.columns,
        cluster_kind="linear" if key is None else key.kind,
        cluster_key_id=None if key is None else key.key_id,
        properties=snapshot.properties,
        row_count=summary.row_count,
        block_count=summary.block_count,
        segment_count=snapshot.segment_count,
        file_size_bytes=summary.compressed_byte_size,
        schemas=snapshot.history[:-1],
        schema_ids_in_use=snapshot.schema_ids_in_use,
        required_features=snapshot.features,
        constants_count=summary.constants_count,
        deletes_count=summary.deletes_count,
        live_row_count=summary.live_row_count,
        distinct_of_values={
            leaf.name: stats.distinct_of_values
            for leaf in snapshot.schema.leaves()
            if (stats := summary.col_stats.get(leaf.id)) is not None and stats.distinct_of_values is not None
        },
    )


def cluster_key_info(snapshot: Snapshot) -> ClusterKeyInfo:
    """Return the cluster key of a snapshot."""
    key = snapshot.cluster_key
    if key is None:
        return ClusterKeyInfo(snapshot_id=snapshot.snapshot_id)
    return ClusterKeyInfo(snapshot_id=snapshot.snapshot_id, columns=key.columns, kind=key.kind, key_id=key.key_id)


def schema_info(snapshot: Snapshot) -> SchemaInfo:
    """Return the schemas of a table as of a snapshot."""
    return SchemaInfo(
        snapshot_id=snapshot.snapshot_id,
        schema=snapshot.schema,
        schemas=snapshot.history[:-1],
        schema_ids_in_use=snapshot.schema_ids_in_use,
    )


def history_entry(seq: int, pointer: SnapshotPointer, snapshot: Snapshot) -> HistoryEntry:
    """Return the catalog's row for a snapshot."""
    return HistoryEntry(
        seq=seq,
        pointer=pointer,
        prev_snapshot_id=snapshot.prev_snapshot_id,
        operation=snapshot.operation,
        row_count=snapshot.summary.row_count,
        block_count=snapshot.summary.block_count,
        segment_count=snapshot.segment_count,
        file_size_bytes=snapshot.summary.compressed_byte_size,
    )


def instant_ms(timestamp: int | str, time_zone: str) -> int:
    """Return a request's ``timestamp`` in Unix milliseconds: a number as it is, text as ISO 8601.

    Text without a zone is read in ``time_zone``.

    Raises:
        InvalidRequest: no such time or time zone.
    """
    if isinstance(timestamp, int):
        if not 0 <= timestamp <= _MAX_MS:
            raise InvalidRequest(f"timestamp {timestamp} is not a time in Unix milliseconds", timestamp=timestamp)
        return timestamp
    if zone(time_zone) is None:
        raise InvalidRequest(f"there is no time zone {time_zone!r}", time_zone=time_zone)
    found = instant_us(timestamp, time_zone)
    if found is None:
        raise InvalidRequest(
            f"{timestamp!r} is not a time such as 2026-01-31T12:00:00Z", timestamp=timestamp, time_zone=time_zone
        )
    return found // 1000


def instant_of(text: str) -> int | str:
    """Convert a time in a query to the form of a body: digits alone are Unix milliseconds."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else text


class History:
    """Finds snapshots of tables, by id, tag or time.

    ``clock`` returns Unix milliseconds; it decides which tags have expired.
    """

    def __init__(
        self, catalog: Catalog, warehouse: Warehouse, store: Store, clock: Callable[[], int], tokens: PageTokens
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._clock = clock
        self._tokens = tokens

    def pointer(
        self,
        record: TableRecord,
        *,
        snapshot_id: str | None = None,
        timestamp: int | str | None = None,
        time_zone: str = "UTC",
    ) -> SnapshotPointer:
        """Return the requested snapshot; by default the current one.

        ``snapshot_id``: an id, tag or number.

        Raises:
            InvalidRequest: both an id and a time, or an invalid time.
            SnapshotNotFound: not in the table's history (SnapshotExpired: not any more), no such tag, or before the
                table's first snapshot.
        """
        if snapshot_id is None and timestamp is None:
            return record.pointer
        if timestamp is None and snapshot_id == record.pointer.snapshot_id:
            return record.pointer
        return self.entry(record, snapshot_id=snapshot_id, timestamp=timestamp, time_zone=time_zone).pointer

    def entry(
        self,
        record: TableRecord,
        *,
        snapshot_id: str | None = None,
        timestamp: int | str | None = None,
        time_zone: str = "UTC",
    ) -> HistoryEntry:
        """Return the requested snapshot with its position in the history, as :meth:`pointer`."""
        if snapshot_id is not None and timestamp is not None:
            raise InvalidRequest("give snapshot_id or timestamp, not both")
        if timestamp is not None:
            return self._catalog.snapshot_at(record.table_id, instant_ms(timestamp, time_zone))
        if snapshot_id is None:
            return self._catalog.snapshot(record.table_id, record.pointer.snapshot_id)
        canonical = canonical_id(snapshot_id)
        if canonical is not None:
            return self._catalog.snapshot(record.table_id, canonical)
        try:
            return self._catalog.tagged(record.table_id, snapshot_id, now_ms=self._clock())
        except TagNotFound as error:
            head = self._branch(record, snapshot_id)
            if head is not None:
                return self._catalog.snapshot(head.table_id, head.pointer.snapshot_id)
            if _NUMBER.fullmatch(snapshot_id):
                return self._catalog.numbered(record.table_id, int(snapshot_id))
            raise SnapshotNotFound(
                f"the table has no tag or branch {snapshot_id!r}, and it is not an id, which is a UUID, or a number",
                snapshot_id=snapshot_id,
                **self._near_tag(record, snapshot_id),
            ) from error

    def _branch(self, record: TableRecord, name: str) -> TableRecord | None:
        """Return the branch of that name of a table."""
        try:
            return self._catalog.table(record.namespace, branch_name(main_name(record.name), name))
        except (BranchNotFound, InvalidRequest):
            return None

    def _near_tag(self, record: TableRecord, name: str) -> dict[str, str]:
        names = [tag.name for tag in self._catalog.tags(record.table_id, now_ms=self._clock())]
        names += [branch.name for branch in self._catalog.branches(record.main_id)]
        return did_you_mean(name, names)

    def page(
        self, record: TableRecord, *, page_size: int, page_token: str | None, newest: HistoryEntry | None = None
    ) -> SnapshotList:
        """Return a page of the history, newest first, starting at ``newest`` or after the token's page.

        Raises InvalidPageToken for an invalid token.
        """
        before_seq = None if newest is None else newest.seq + 1
        if page_token is not None:
            before_seq = self._seq_of(record, page_token)
        entries = self._catalog.history(record.table_id, before_seq=before_seq, limit=page_size + 1)
        shown = entries[:page_size]
        names: dict[str, list[str]] = defaultdict(list)
        for tag in self._catalog.tags(record.table_id, now_ms=self._clock()):
            names[tag.snapshot_id].append(tag.name)
        more = len(entries) > page_size
        return SnapshotList(
            snapshots=tuple(_info(entry, names.get(entry.pointer.snapshot_id, ())) for entry in shown),
            next_page_token=self._tokens.write(b"%d" % shown[-1].seq, _OF, record.table_id) if more else None,
        )

    def _seq_of(self, record: TableRecord, token: str) -> int:
        number = self._tokens.read(token, _OF, record.table_id)
        if not (number.isdigit() and len(number) <= 18):
            raise no_token(_OF)
        return int(number)

    def snapshot_json(self, record: TableRecord, snapshot_id: str) -> bytes:
        """Return a snapshot's manifest, byte for byte."""
        manifest = self.pointer(record, snapshot_id=snapshot_id).manifest
        with trusted_manifests():
            data = self._store.read(manifest.location)
        check_hash(data, manifest.sha256, manifest.location)
        return data

    def segment_json(
        self, record: TableRecord, segment_id: str, snapshot_id: str | None, reader_features: Sequence[str] = ()
    ) -> bytes:
        """Return the manifest of a segment of that (or the current) snapshot, byte for byte."""
        pointer = self.pointer(record, snapshot_id=snapshot_id)
        with trusted_manifests():
            require_features(self._warehouse.head(pointer).features, reader_features)
            return self._warehouse.segment_bytes(pointer, _segment_id(segment_id))

    def segment_blocks(
        self, record: TableRecord, segment_id: str, snapshot_id: str | None, reader_features: Sequence[str] = ()
    ) -> SegmentBlocks:
        """Return the addresses of the blocks of a segment of that (or the current) snapshot."""
        pointer = self.pointer(record, snapshot_id=snapshot_id)
        with trusted_manifests():
            return self._warehouse.blocks_of(pointer, _segment_id(segment_id), reader_features)


def _segment_id(text: str) -> str:
    canonical = canonical_id(text)
    if canonical is None:
        raise SegmentNotFound(f"the snapshot has no segment {text!r}; ids are UUIDs", segment_id=text)
    return canonical


def _info(entry: HistoryEntry, tags: Sequence[str]) -> SnapshotInfo:
    return SnapshotInfo(
        snapshot_id=entry.pointer.snapshot_id,
        prev_snapshot_id=entry.prev_snapshot_id,
        timestamp_ms=entry.pointer.timestamp_ms,
        operation=entry.operation,
        row_count=entry.row_count,
        block_count=entry.block_count,
        segment_count=entry.segment_count,
        file_size_bytes=entry.file_size_bytes,
        tags=tuple(tags),
        number=entry.seq,
    )

"""Tags: names for snapshots. A snapshot does not expire while a tag names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from lamella.service.catalog import Catalog, TableRecord, TagRecord
from lamella.service.history.history import History
from lamella.service.http.idempotency import IdempotencyKey, StoredResponse
from lamella.service.tables.names import check_name
from lamella.snapshot.errors import InvalidRequest, TagNotFound
from lamella.snapshot.near_names import did_you_mean
from lamella.snapshot.wire import TagInfo, TagList, TagRequest

_MAX_MS: Final = (1 << 53) - 1


class Tags:
    """Manages the tags of tables."""

    def __init__(self, catalog: Catalog, history: History, clock: Callable[[], int]) -> None:
        self._catalog = catalog
        self._history = history
        self._clock = clock

    def list(self, table: TableRecord) -> TagList:
        """Return the tags that have not expired, by name."""
        found = self._catalog.tags(table.table_id, now_ms=self._clock())
        return TagList(tags=tuple(_info(tag) for tag in found))

    def put(self, table: TableRecord, request: TagRequest, idempotency_key: IdempotencyKey) -> StoredResponse:
        """Create or move a tag.

        Raises:
            InvalidRequest: the name, an invalid or past expiry, or two of them; an id and a timestamp.
            SnapshotNotFound: no such snapshot, or it has expired.
            AlreadyExists: the tag exists, and ``move`` was not set.
            TagNotFound: there is none to move.
        """
        name = check_name("tag", request.name)
        now_ms = self._clock()
        expires_at_ms = _end(request, now_ms)
        entry = self._history.entry(
            table, snapshot_id=request.snapshot_id, timestamp=request.timestamp, time_zone=request.time_zone
        )
        created_at_ms = now_ms
        if request.move:
            with self._near_names(table, name):
                before = self._catalog.tag(table.table_id, name, now_ms=now_ms)
            created_at_ms = before.created_at_ms
            expires_at_ms = before.expires_at_ms if expires_at_ms is None else expires_at_ms
        tag = TagRecord(
            table_id=entry.table_id,
            name=name,
            seq=entry.seq,
            snapshot_id=entry.pointer.snapshot_id,
            timestamp_ms=entry.pointer.timestamp_ms,
            created_at_ms=created_at_ms,
            expires_at_ms=expires_at_ms,
        )
        stored_response = idempotency_key.store_as(200 if request.move else 201, _info(tag))
        self._catalog.put_tag(tag, move=request.move, now_ms=now_ms, remember=stored_response.stored)
        return stored_response

    def drop(self, table: TableRecord, name: str, idempotency_key: IdempotencyKey) -> StoredResponse:
        """Delete a tag; the snapshot then expires by the table's retention. Raises TagNotFound."""
        stored_response = idempotency_key.store_as(204)
        with self._near_names(table, name):
            self._catalog.drop_tag(table.table_id, name, now_ms=self._clock(), remember=stored_response.stored)
        return stored_response

    @contextmanager
    def _near_names(self, table: TableRecord, name: str) -> Iterator[None]:
        """Add the nearest tag to the error of one that does not exist."""
        try:
            yield
        except TagNotFound as error:
            error.details.update(did_you_mean(name, [tag.name for tag in self.list(table).tags]))
            raise


def _end(request: TagRequest, now_ms: int) -> int | None:
    """Return when the tag expires."""
    if request.expires_at_ms is not None and request.max_age_ms is not None:
        raise InvalidRequest("give expires_at_ms or max_age_ms, not both")
    end_ms = request.expires_at_ms
    if request.max_age_ms is not None:
        end_ms = now_ms + request.max_age_ms
    if end_ms is not None and not now_ms < end_ms <= _MAX_MS:
        raise InvalidRequest("a tag must expire in the future, in at most 285,000 years", now_ms=now_ms)
    return end_ms


def _info(tag: TagRecord) -> TagInfo:
    return TagInfo(
        name=tag.name,
        snapshot_id=tag.snapshot_id,
        timestamp_ms=tag.timestamp_ms,
        created_at_ms=tag.created_at_ms,
        expires_at_ms=tag.expires_at_ms,
    )

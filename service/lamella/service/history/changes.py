"""Change streams: the blocks added and removed after a snapshot, commit by commit or in total, in pages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from lamella.service.catalog import Catalog, HistoryEntry, TableRecord
from lamella.service.history.history import History, trusted_manifests
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import InvalidPageToken, InvalidRequest, NotAppendOnly, SnapshotExpired
from lamella.snapshot.manifest import RowChange
from lamella.snapshot.tokens import SignedTokens
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import ChangesAnswer, DiffAnswer, DiffRequest, SnapshotChanges
from lamella.snapshot.wire.operations.history import MAX_SNAPSHOTS

_VERSION: Final = 1


class ChangesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query of changes: between which snapshots, of which blocks, and how they are combined.

    ``net``: the difference of the two ends, not of each snapshot from the one before. ``append_only``: fail if blocks
    (that may match) were removed. ``page_size``: blocks in one answer.
    """

    since: str | None
    since_timestamp: int | str | None
    until: str | None
    until_timestamp: int | str | None
    filter: Any
    columns: tuple[str, ...] | None
    net: bool
    append_only: bool
    time_zone: str
    case_sensitive: bool
    page_size: int
    page_token: str | None
    reader_features: tuple[str, ...] = ()


class _Token(msgspec.Struct, frozen=True, array_like=True):
    """``seq`` of the snapshot whose blocks come next, and how many of them were answered already."""

    version: int
    since_id: str
    until_id: str
    seq: int
    done: int
    query: bytes


#: Made here, once: two threads that decode a struct for the first time at once crash the process (msgspec 0.22).
_TOKEN = msgspec.msgpack.Decoder(_Token)


class ChangeStream:
    """Answers change queries from a table's history."""

    def __init__(self, catalog: Catalog, warehouse: Warehouse, history: History, tokens: SignedTokens) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._history = history
        self._tokens = tokens

    def page(self, table: TableRecord, query: ChangesQuery) -> ChangesAnswer:
        """Return one page. Names and types in the filter are those of the last snapshot.

        Raises:
            InvalidRequest: no ``since``, or one after ``until``; a filter that cannot be used.
            SnapshotNotFound: no such snapshot; SnapshotExpired: one of the two, or without ``net`` one in between.
            NotAppendOnly: with ``append_only``. The changes before it are answered first, as a page that ends there.
            InvalidPageToken: of another request.
        """
        token = None if query.page_token is None else self._read(query)
        since, until = self._ends(table, query, token)
        seq, done = (0, 0) if token is None else (token.seq, token.done)
        found: list[SnapshotChanges] = []
        left = query.page_size
        for before, after in self._steps(since, until, query, seq):
            if not left or len(found) == MAX_SNAPSHOTS:
                return self._answer(query, since, until, found, (after.seq, 0))
            difference = self._difference(before, after, until, query)
            if query.append_only and difference.removed:
                if found:
                    return self._answer(query, since, until, found, (after.seq, 0))
                raise _rewritten(after, len(difference.removed), query)
            changes, rest = _cut(before, after, difference, query, done, left)
            if not query.net:
                changes = msgspec.structs.replace(changes, row_changes=self._row_changes(after))
            found.append(changes)
            if rest:
                return self._answer(query, since, until, found, (after.seq, done + left))
            left -= len(changes.added) + len(changes.removed)
            done = 0
        return self._answer(query, since, until, found, None)

    def _ends(self, table: TableRecord, query: ChangesQuery, token: _Token | None) -> tuple[HistoryEntry, HistoryEntry]:
        if token is not None:
            ends = (token.since_id, token.until_id)
            since, until = (self._history.entry(table, snapshot_id=end) for end in ends)
            return since, until
        if query.since is None and query.since_timestamp is None:
            raise InvalidRequest("since or since_timestamp is missing", parameter="since")
        zone = query.time_zone
        since = self._history.entry(table, snapshot_id=query.since, timestamp=query.since_timestamp, time_zone=zone)
        until = self._history.entry(table, snapshot_id=query.until, timestamp=query.until_timestamp, time_zone=zone)
        if not query.net and not self._is_before(since, until):
            raise InvalidRequest(
                "since is not a snapshot of the branch that until is of; net returns the difference of any two",
                since=since.pointer.snapshot_id,
                until=until.pointer.snapshot_id,
            )
        if since.table_id == until.table_id and since.seq > until.seq:
            raise InvalidRequest(
                "since is a later snapshot than until",
                since=since.pointer.snapshot_id,
                until=until.pointer.snapshot_id,
            )
        return since, until

    def _is_before(self, since: HistoryEntry, until: HistoryEntry) -> bool:
        """Return whether a snapshot is in the history of another one's branch."""
        if since.table_id == until.table_id:
            return True
        found = self._catalog.history(until.table_id, before_seq=since.seq + 1, limit=1)
        return [each.pointer.snapshot_id for each in found] == [since.pointer.snapshot_id]

    def _steps(
        self, since: HistoryEntry, until: HistoryEntry, query: ChangesQuery, seq: int
    ) -> Iterator[tuple[HistoryEntry, HistoryEntry]]:
        """Yield pairs of successive snapshots, oldest first, starting with ``seq``."""
        if since.pointer == until.pointer:
            return
        if query.net:
            yield since, until
            return
        at = max(since.seq, seq - 1)
        before: HistoryEntry | None = None
        while at < until.seq:
            upto = min(until.seq, at + MAX_SNAPSHOTS)
            entries = self._catalog.history(until.table_id, before_seq=upto + 1, limit=upto - at + 1)[::-1]
            if [entry.seq for entry in entries] != list(range(at, upto + 1)):
                raise SnapshotExpired(
                    "a snapshot in between has expired; use net for the difference of the two ends",
                    since=since.pointer.snapshot_id,
                    until=until.pointer.snapshot_id,
                )
            for after in entries:
                if before is not None and after.seq > before.seq:
                    yield before, after
                before = after
            at = upto

    def _difference(
        self, before: HistoryEntry, after: HistoryEntry, until: HistoryEntry, query: ChangesQuery
    ) -> DiffAnswer:
        request = DiffRequest(
            filter=query.filter,
            columns=query.columns,
            time_zone=query.time_zone,
            case_sensitive=query.case_sensitive,
            reader_features=query.reader_features,
        )
        with trusted_manifests():
            return self._warehouse.diff(before.pointer, after.pointer, request, seen_from=until.pointer)

    def _row_changes(self, after: HistoryEntry) -> tuple[RowChange, ...] | None:
        with trusted_manifests():
            found = self._warehouse.head(after.pointer).row_changes
        return None if found is msgspec.UNSET else found

    def _answer(
        self,
        query: ChangesQuery,
        since: HistoryEntry,
        until: HistoryEntry,
        found: list[SnapshotChanges],
        following: tuple[int, int] | None,
    ) -> ChangesAnswer:
        since_id, until_id = since.pointer.snapshot_id, until.pointer.snapshot_id
        token = None
        if following is not None:
            body = _Token(_VERSION, since_id, until_id, *following, _digest(query))
            token = self._tokens.write(msgspec.msgpack.encode(body))
        return ChangesAnswer(
            since_snapshot_id=since_id, until_snapshot_id=until_id, changes=tuple(found), next_page_token=token
        )

    def _read(self, query: ChangesQuery) -> _Token:
        body = self._tokens.read(query.page_token or "")
        try:
            token = _TOKEN.decode(body)
        except msgspec.MsgspecError as error:
            raise InvalidPageToken("the page token is from another version of this service") from error
        if token.version != _VERSION:
            raise InvalidPageToken("the page token is from another version of this service")
        if token.query != _digest(query):
            raise InvalidPageToken("the page token belongs to another request; repeat the same request with it")
        return token


def _cut(
    before: HistoryEntry, after: HistoryEntry, difference: DiffAnswer, query: ChangesQuery, done: int, max_blocks: int
) -> tuple[SnapshotChanges, bool]:
    """Return the first ``max_blocks`` blocks of a difference after ``done``, and whether more are left."""
    count = len(difference.added)
    end = done + max_blocks
    rest = end < count + len(difference.removed)
    changes = SnapshotChanges(
        snapshot_id=after.pointer.snapshot_id,
        from_snapshot_id=before.pointer.snapshot_id,
        timestamp_ms=after.pointer.timestamp_ms,
        operation="net" if query.net else after.operation,
        added=difference.added[done:end],
        removed=difference.removed[max(0, done - count) : max(0, end - count)],
        continues=rest,
        number=after.seq,
    )
    return changes, rest


def _rewritten(after: HistoryEntry, removed: int, query: ChangesQuery) -> NotAppendOnly:
    what = "since then" if query.net else f"by snapshot {after.pointer.snapshot_id} ({after.operation})"
    return NotAppendOnly(
        f"{counted(removed, 'block was', 'blocks were')} removed {what}",
        snapshot_id=after.pointer.snapshot_id,
        operation=after.operation,
        removed=removed,
    )


def _digest(query: ChangesQuery) -> bytes:
    """Return a digest of what must be the same on every page."""
    same = msgspec.structs.replace(query, page_size=0, page_token=None)
    return hashlib.sha256(msgspec.json.encode(same, order="sorted")).digest()[:16]

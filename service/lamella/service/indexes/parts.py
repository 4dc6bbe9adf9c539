"""Parts of skip indexes: built here from files, added from elsewhere, merged.

Writing and committing are separate: parts are written first, and then a snapshot refers to them. A process that dies in
between leaves objects that nothing refers to, and the index unchanged. Each request is complete by itself and can be
repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from lamella.service.catalog import Catalog, CommitGuard, TableRecord
from lamella.service.commits.committer import Committer
from lamella.service.config.settings import Settings
from lamella.service.history.history import History, trusted_manifests
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse, answered
from lamella.service.http.page_token import PageTokens, no_token
from lamella.service.indexes.part_check import PartCheck, require_distinct, require_name
from lamella.service.process.deadline import time_is_up
from lamella.snapshot.errors import InvalidPageToken, InvalidRequest
from lamella.snapshot.index.directory import Directory
from lamella.snapshot.manifest import SnapshotPointer, TableIndex
from lamella.snapshot.manifest.block_key import no_keys
from lamella.snapshot.storage import Store
from lamella.snapshot.warehouse import CommitResult, Warehouse
from lamella.snapshot.warehouse.index_refresh import RefreshPosition
from lamella.snapshot.warehouse.indexing import index_named, index_with_id
from lamella.snapshot.wire import (
    LeftOutBlock,
    OptimiseAnswer,
    OptimiseRequest,
    PartsAnswer,
    PartsRequest,
    RefreshAnswer,
    RefreshMode,
    RefreshRequest,
)

#: Commits what was built.
Commit = Callable[[IdempotencyKey], StoredResponse | Pending]


class _Token(msgspec.Struct, frozen=True, array_like=True):
    """Where a refresh continues: on which snapshot, of which index, with which options, and at which position."""

    snapshot_id: str
    index_id: str
    mode: RefreshMode
    position: RefreshPosition


_TOKEN: Final = msgspec.json.Decoder(_Token)
_OF: Final = "a refresh"


class IndexParts:
    """Adds entries to indexes. Every method does the work and returns what commits it; ``timer`` returns seconds."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        warehouse: Warehouse,
        store: Store,
        history: History,
        committer: Committer,
        clock: Callable[[], int],
        settings: Settings,
        tokens: PageTokens,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = tokens
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._history = history
        self._committer = committer
        self._clock = clock
        self._threads = settings.index_threads
        self._parts = PartCheck(warehouse, store, threads=settings.ingest_threads)
        self._max_blocks = settings.index_refresh_blocks
        self._timer = timer

    def refresh(self, record: TableRecord, name: str, request: RefreshRequest) -> Commit:
        """Do a part of a refresh.

        Raises:
            IndexNotFound: no such index, or it was dropped.
            InvalidRequest: invalid limits, or the index cannot be used with the table's columns any more.
            InvalidPageToken: the token is invalid, or of another refresh.
            SnapshotExpired: the refresh took so long that its snapshot has expired.
            StoreError: storage failed; nothing was committed.
        """
        until = time_is_up(request.max_ms, self._timer)
        guard = self._guard(record)
        with trusted_manifests():
            index = index_named(self._warehouse.head(record.pointer).skip_indexes, name)
            token = self._token(record, index, request)
            pinned = self._history.pointer(record, snapshot_id=token.snapshot_id)
            built = self._warehouse.index_refresh.run(
                pinned,
                index,
                request.mode,
                token.position,
                max_blocks=self._blocks(request.max_blocks),
                workers=self._threads,
                until=until,
            )
            is_last = built.following is None
            is_whole = is_last and request.mode != "incremental"
            forget = built.left_out_keys if request.mode == "full" else no_keys()
            if is_whole:
                forget = np.concatenate([forget, self._warehouse.index_blocks.gone(record.pointer, index)])
            coverage = None
            if is_last:
                more = Directory.of(built.parts)
                (coverage,) = self._warehouse.index_blocks.coverage(record.pointer, [index], more=more, forget=forget)
        changes = bool(built.parts or len(forget) or (is_whole and coverage is not None and coverage.unused_entries))
        if is_whole and coverage is not None:
            coverage = msgspec.structs.replace(coverage, unused_entries=0)

        def answer(snapshot_id: str) -> RefreshAnswer:
            return RefreshAnswer(
                snapshot_id=snapshot_id,
                mode=request.mode,
                indexed=sum(ref.block_count for ref, _ in built.parts),
                row_count=built.row_count,
                parts=len(built.parts),
                size_bytes=sum(ref.size_bytes for ref, _ in built.parts),
                left_out=tuple(LeftOutBlock(location=each.location, reason=each.reason) for each in built.left_out),
                remaining=built.remaining,
                coverage=coverage,
                next_page_token=None
                if built.following is None
                else self._tokens.write_position(
                    msgspec.structs.replace(token, position=built.following), _OF, record.table_id
                ),
            )

        def step(base: SnapshotPointer) -> CommitResult:
            return self._warehouse.indexing.add_parts(
                base, index.index_id, built.parts, forget=forget, compact=is_whole, now_ms=self._clock()
            )

        return self._commit(record, guard, step if changes else None, answer)

    def take_up(self, record: TableRecord, name: str, request: PartsRequest) -> Commit:
        """Check parts that were built elsewhere: each must exist, be intact, and belong to this index.

        Raises:
            IndexNotFound: no such index, it was dropped, or it has been replaced.
            InvalidRequest: a part is not in the table's folder, or does not belong to this index.
            ObjectNotFound: a part does not exist.
            StoreError: storage failed.
        """
        guard = self._guard(record, require_distinct(request.parts))
        with trusted_manifests():
            head = self._warehouse.head(record.pointer)
        index_named(head.skip_indexes, name)
        index = index_with_id(head.skip_indexes, request.index_id)
        require_name(index, name)
        parts = self._parts.of_index(record.main_id, head, index, request.parts)

        def answer(snapshot_id: str) -> PartsAnswer:
            return PartsAnswer(
                snapshot_id=snapshot_id, parts=len(parts), blocks=sum(ref.block_count for ref, _ in parts)
            )

        def step(base: SnapshotPointer) -> CommitResult:
            return self._warehouse.indexing.add_parts(base, index.index_id, parts, now_ms=self._clock())

        return self._commit(record, guard, step, answer)

    def optimise(self, record: TableRecord, name: str, request: OptimiseRequest) -> Commit:
        """Merge some parts.

        Raises:
            IndexNotFound: no such index, or it was dropped.
            InvalidRequest: invalid limits, or the index's kind is not installed.
            StoreError: storage failed; nothing was committed.
        """
        until = time_is_up(request.max_ms, self._timer)
        guard = self._guard(record)
        with trusted_manifests():
            index = index_named(self._warehouse.head(record.pointer).skip_indexes, name)
            made = self._warehouse.index_regrouping.run(record.pointer, index, until=until)
            is_last = not made.remaining
            forget = made.lost
            if is_last:
                forget = np.concatenate([forget, self._warehouse.index_blocks.gone(record.pointer, index)])
        changes = bool(made.parts or len(forget) or (is_last and len(index.directories) > 1))

        def answer(snapshot_id: str) -> OptimiseAnswer:
            return OptimiseAnswer(
                snapshot_id=snapshot_id,
                regrouped=len(made.parts),
                moved_from=len(made.moved_from),
                lost=len(made.lost),
                remaining=made.remaining,
            )

        def step(base: SnapshotPointer) -> CommitResult:
            return self._warehouse.indexing.add_parts(
                base,
                index.index_id,
                made.parts,
                moved_from=made.moved_from,
                forget=forget,
                compact=is_last,
                now_ms=self._clock(),
            )

        return self._commit(record, guard, step if changes else None, answer)

    def _commit(
        self,
        record: TableRecord,
        guard: CommitGuard,
        step: Callable[[SnapshotPointer], CommitResult] | None,
        answer: Callable[[str], msgspec.Struct],
    ) -> Commit:
        """Return what commits a step; None: nothing has to be changed."""

        def commit(idempotency_key: IdempotencyKey) -> StoredResponse | Pending:
            if step is None:
                return answered(self._catalog, idempotency_key, answer(record.pointer.snapshot_id))
            return self._committer.alone(
                record, step, lambda result: answer(result.pointer.snapshot_id), idempotency_key, guard=guard
            )

        return commit

    def _guard(self, record: TableRecord, locations: list[str] | None = None) -> CommitGuard:
        return self._catalog.guard(record.table_id, locations or (), since_ms=self._clock())

    def _token(self, record: TableRecord, index: TableIndex, request: RefreshRequest) -> _Token:
        if request.page_token is None:
            return _Token(record.pointer.snapshot_id, index.index_id, request.mode, RefreshPosition())
        token = self._tokens.read_position(_TOKEN, request.page_token, _OF, record.table_id)
        if min(token.position.group, token.position.row, token.position.remaining or 0) < 0:
            raise no_token(_OF)
        if (token.index_id, token.mode) != (index.index_id, request.mode):
            raise InvalidPageToken("page_token belongs to another refresh", parameter="page_token")
        return token

    def _blocks(self, payload: int | None) -> int:
        if payload is None:
            return self._max_blocks
        if not 1 <= payload <= self._max_blocks:
            raise InvalidRequest(
                f"max_blocks must be a number from 1 to {self._max_blocks}, not {payload}", parameter="max_blocks"
            )
        return payload

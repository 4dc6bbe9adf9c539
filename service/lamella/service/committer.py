"""Registrations and commits: from a request to a new current snapshot.

Files are read and segments written first; then the snapshot; then one transaction of the catalog makes it current,
puts it into the history and stores the answer under the request's idempotency key. When another commit comes first,
the same segments are committed on its snapshot, so appends never conflict. A process that dies on the way leaves the
table as it was, and objects that nothing refers to.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from lamella.service.blocks import check_block, read_blocks
from lamella.service.catalog import Catalog, TableRecord
from lamella.service.idempotency import Claim, Sealed
from lamella.service.metrics import Metrics
from lamella.service.state import History, history_entry, schema_info, trusted_manifests
from lamella.snapshot.errors import (
    BlocksRefused,
    Conflict,
    DuplicateBlock,
    InvalidRequest,
    LamellaError,
    StoreError,
    Unavailable,
)
from lamella.snapshot.layout import Store
from lamella.snapshot.layout.location import normal
from lamella.snapshot.manifest import Block, SnapshotPointer
from lamella.snapshot.parquet import ingest
from lamella.snapshot.schema.evolution import schema_at
from lamella.snapshot.warehouse import CommitResult, Warehouse
from lamella.snapshot.wire import CommitAnswer, CommitRequest, EvolveRequest, RefusedFile, Register, RegisterAnswer

_OPERATION: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_FIRST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.5
_NAMED_BLOCKS: Final = 100


class _TableLock:
    """Lets the commits of one table go one after another within this process; others are met at the pointer."""

    def __init__(self) -> None:
        self.held = threading.Lock()


class Committer:
    """The one place where tables change."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        warehouse: Warehouse,
        store: Store,
        history: History,
        metrics: Metrics,
        clock: Callable[[], int],
        threads: int,
        deadline_s: float,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._history = history
        self._metrics = metrics
        self._clock = clock
        self._threads = threads
        self._deadline_s = deadline_s
        self._random = random.SystemRandom()
        self._locks: weakref.WeakValueDictionary[str, _TableLock] = weakref.WeakValueDictionary()
        self._locks_lock = threading.Lock()

    def register(self, table: TableRecord, request: Register, claim: Claim) -> Sealed:
        """Append the Parquet files that ``paths`` name.

        Raises:
            InvalidRequest: no path at all.
            BlocksRefused: nothing was registered, or (``strict``) not everything could be.
            DuplicateBlock: the same, and the only reason is that the files are in the table already.
            StoreError: nothing was registered, and storage failed for some of the files.
        """
        if not request.paths:
            raise InvalidRequest("paths is empty")
        found, refused = self._expand(request.paths)
        with trusted_manifests():
            schema = self._warehouse.snapshot(table.pointer).schema
            present = self._warehouse.has_blocks(table.pointer, found)
        refused += [_duplicate(location) for location in found if location in present]
        fresh = [location for location in found if location not in present]
        # Footers wait for the store, values keep a core busy each.
        workers = min(self._threads, os.cpu_count() or 1) if request.verify else self._threads
        blocks, unreadable = ingest(self._store, fresh, schema, workers=workers, verify=request.verify)
        refused += unreadable
        blocks, changed = self._unchanged(blocks)
        refused += changed

        def land(blocks: Sequence[Block], refused: Sequence[RefusedFile]) -> Sealed:
            self._refuse(refused, all_or_nothing=request.strict or not blocks)
            leaves = self._warehouse.prepare(table.table_id, schema, blocks)

            def step(base: SnapshotPointer) -> CommitResult:
                return self._warehouse.commit(base, added=leaves, operation="append", now_ms=self._clock())

            def answer(result: CommitResult) -> RegisterAnswer:
                return RegisterAnswer(
                    snapshot_id=result.pointer.snapshot_id,
                    registered=len(blocks),
                    row_count=sum(block.row_count for block in blocks),
                    file_size_bytes=sum(block.file_size for block in blocks),
                    refused=tuple(refused),
                )

            try:
                sealed = self._land(table, step, answer, claim)
            except DuplicateBlock:
                # Another request registered some of these files meanwhile; the others still can be.
                with trusted_manifests():
                    current = self._catalog.table_by_id(table.table_id).pointer
                    taken = self._warehouse.has_blocks(current, [block.location for block in blocks])
                if not taken:
                    raise
                return land(
                    [block for block in blocks if block.location not in taken],
                    [*refused, *(_duplicate(location) for location in sorted(taken))],
                )
            self._count_refused(refused)
            return sealed

        return land(blocks, refused)

    def commit(self, table: TableRecord, request: CommitRequest, claim: Claim) -> Sealed:
        """Add and remove blocks in one snapshot; all of it or nothing.

        Raises:
            InvalidRequest: nothing to do, or a member that cannot be.
            BlocksRefused: an added block's file or statistics; ``refused`` lists each with its reason.
            DuplicateBlock: an added block is in the table already, or twice in the request.
            CommitConflict: a removed block is no longer in the table, or no longer the file that was read at the base.
            SnapshotNotFound: ``base_snapshot_id`` is not in the table's history.
        """
        if not (request.added or request.removed or request.properties):
            raise InvalidRequest("the commit adds, removes and sets nothing")
        if _OPERATION.fullmatch(request.operation) is None:
            raise InvalidRequest(f"{request.operation!r} is not an operation: a word such as 'append' or 'compact'")
        read_at = None
        if request.base_snapshot_id is not None:
            read_at = self._history.pointer(table, snapshot_id=request.base_snapshot_id)
        removed = [normal(location) for location in request.removed]
        _refuse_doubled("removed", removed, InvalidRequest)
        with trusted_manifests():
            versions = self._warehouse.snapshot(table.pointer)
            unsaid = self._warehouse.head(read_at or table.pointer).schema.schema_id

        def checked(block: Block) -> Block:
            schema_id = unsaid if block.schema_id is None else block.schema_id
            block = check_block(block, schema_at(versions, schema_id).by_id())
            stat = self._store.stat(block.location)
            return msgspec.structs.replace(
                block, file_size=stat.size_bytes, content_id=stat.content_id, schema_id=schema_id
            )

        sent = read_blocks(request.added)
        blocks, refused = self._each(sent, checked)
        self._refuse(refused, all_or_nothing=True)
        _refuse_doubled("added", [block.location for block in blocks], DuplicateBlock)
        leaves = self._warehouse.prepare(table.table_id, versions, blocks)

        def step(base: SnapshotPointer) -> CommitResult:
            return self._warehouse.commit(
                base,
                added=leaves,
                removed=removed,
                read_at=read_at,
                operation=request.operation,
                properties=request.properties,
                now_ms=self._clock(),
            )

        def answer(result: CommitResult) -> CommitAnswer:
            return CommitAnswer(
                snapshot_id=result.pointer.snapshot_id,
                prev_snapshot_id=result.snapshot.prev_snapshot_id,
                added=result.added,
                removed=result.removed,
                row_count=result.snapshot.summary.row_count,
                block_count=result.snapshot.summary.block_count,
            )

        return self._land(table, step, answer, claim)

    def evolve(self, table: TableRecord, request: EvolveRequest, claim: Claim) -> Sealed:
        """Change the table's schema in one snapshot; no block and no segment is written again.

        When another commit comes first, the changes are made to the schema that it left, unless ``base_schema_id``
        insists on one.

        Raises:
            InvalidRequest: no change, or nothing that would change.
            UnknownColumn, InvalidSchema: a change that cannot be made; the message names the column.
            SchemaConflict: the schema in force is not ``base_schema_id``.
        """

        def step(base: SnapshotPointer) -> CommitResult:
            return self._warehouse.evolve(
                base, request.changes, base_schema_id=request.base_schema_id, now_ms=self._clock()
            )

        return self._land(table, step, lambda result: schema_info(result.snapshot), claim)

    def _land(
        self,
        table: TableRecord,
        step: Callable[[SnapshotPointer], CommitResult],
        answer: Callable[[CommitResult], msgspec.Struct],
        claim: Claim,
    ) -> Sealed:
        """Commit on the current snapshot, and again on a newer one each time another commit came first."""
        deadline = time.monotonic() + self._deadline_s
        pause_s = _FIRST_PAUSE_S
        with self._lock_of(table.table_id).held:
            while True:
                record = self._catalog.table_by_id(table.table_id)
                with trusted_manifests():
                    result = step(record.pointer)
                sealed = claim.seal(200, answer(result))
                entry = history_entry(record.version + 1, result.pointer, result.snapshot)
                if self._catalog.advance(record.table_id, entry, remember=sealed.stored):
                    self._metrics.committed(added=result.added, removed=result.removed)
                    return sealed
                if time.monotonic() > deadline:
                    raise Unavailable("the table is being committed to by too many others at once", retry_after_s=1)
                self._metrics.commit_retries.inc()
                time.sleep(self._random.uniform(0, pause_s))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _lock_of(self, table_id: str) -> _TableLock:
        with self._locks_lock:
            lock = self._locks.get(table_id)
            if lock is None:
                lock = self._locks[table_id] = _TableLock()
            return lock

    def _expand(self, paths: Sequence[str]) -> tuple[list[str], list[RefusedFile]]:
        """Every location that the paths name, once each, in their order."""
        found: dict[str, None] = {}
        refused = []
        for path in paths:
            try:
                locations = self._store.expand(path)
            except LamellaError as error:
                refused.append(RefusedFile(path=path, code=error.code, reason=error.message))
                continue
            for location in locations:
                if location in found:
                    reason = "the file is named twice in the request"
                    refused.append(RefusedFile(path=location, code=DuplicateBlock.code, reason=reason))
                found[location] = None
        return list(found), refused

    def _unchanged(self, blocks: Sequence[Block]) -> tuple[list[Block], list[RefusedFile]]:
        """The blocks whose files still are what their statistics came from."""

        def checked(block: Block) -> Block:
            stat = self._store.stat(block.location)
            if (stat.size_bytes, stat.content_id) != (block.file_size, block.content_id):
                raise Conflict("the file changed while it was being registered")
            return block

        return self._each(blocks, checked)

    def _each(self, blocks: Sequence[Block], check: Callable[[Block], Block]) -> tuple[list[Block], list[RefusedFile]]:
        """What ``check`` makes of the blocks, several at a time, and what it raised for the others; in their order."""

        def attempt(block: Block) -> Block | RefusedFile:
            try:
                return check(block)
            except LamellaError as error:
                return RefusedFile(path=block.location, code=error.code, reason=error.message)

        if not blocks:
            return [], []
        with ThreadPoolExecutor(min(self._threads, len(blocks))) as pool:
            done = list(pool.map(attempt, blocks))
        return [b for b in done if isinstance(b, Block)], [r for r in done if isinstance(r, RefusedFile)]

    def _refuse(self, refused: Sequence[RefusedFile], *, all_or_nothing: bool) -> None:
        """Raise the error that says best why nothing was done."""
        if not refused or not all_or_nothing:
            return
        self._count_refused(refused)
        codes = {entry.code for entry in refused}
        listed = [msgspec.structs.asdict(entry) for entry in refused]
        first = refused[0]
        text = f"{len(refused)} files were refused, first {first.path!r}: {first.reason}"
        if codes == {DuplicateBlock.code}:
            raise DuplicateBlock(text, blocks=[entry.path for entry in refused][:_NAMED_BLOCKS], refused=listed)
        if StoreError.code in codes:
            raise StoreError(text, refused=listed)
        raise BlocksRefused(text, refused=listed)

    def _count_refused(self, refused: Sequence[RefusedFile]) -> None:
        for entry in refused:
            self._metrics.files_refused.labels(entry.code).inc()


def _duplicate(location: str) -> RefusedFile:
    return RefusedFile(path=location, code=DuplicateBlock.code, reason="the file is in the table already")


def _refuse_doubled(member: str, locations: Sequence[str], kind: type[LamellaError]) -> None:
    doubled = sorted(place for place, count in Counter(locations).items() if count > 1)
    if doubled:
        raise kind(f"{member} names {doubled[0]!r} twice", blocks=doubled[:_NAMED_BLOCKS])

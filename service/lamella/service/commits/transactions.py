"""Transactions: changes of several tables that become current together, or not at all.

The queues of the tables are held while a transaction is committed, so that changes of this process wait for it and do
not overtake it. Each table's snapshot is written as for a commit of its own. Then one transaction of the catalog swaps
all pointers, and stores the answer under the request's idempotency key. If another process commits to one of the tables
first, that table's snapshot is written again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import msgspec

from lamella.service.catalog import Catalog, CommitGuard, PointerSwap, TableRecord
from lamella.service.commits.group import Attempt, GroupCommit, SharedSegments, Waiting
from lamella.service.commits.queue import BlockChange, CommitQueue, Entry, Step
from lamella.service.history.history import history_entry, trusted_manifests
from lamella.service.http.idempotency import IdempotencyKey, StoredResponse, replay_of
from lamella.service.telemetry.metrics import Metrics
from lamella.service.telemetry.tracing import Traces
from lamella.snapshot.errors import (
    Conflict,
    IdempotencyMismatch,
    LamellaError,
    OutcomeUnknown,
    TableNotFound,
    TransactionConflict,
    Unavailable,
)
from lamella.snapshot.warehouse import CommitResult, Warehouse
from lamella.snapshot.wire import CommitRequest, TableCommitted, TransactionAnswer

_FIRST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.25


class TableChange(NamedTuple):
    """A change of one table. ``table``: its name, as the request has it."""

    table: str
    table_id: str
    change: BlockChange | Step


#: Makes the response to a transaction of what each change committed.
MakeResponse = Callable[[Sequence[tuple[TableChange, CommitResult]]], StoredResponse]


class _Prepared(NamedTuple):
    """A snapshot that was written for a table at some version."""

    record: TableRecord
    guard: CommitGuard
    attempt: Attempt


class Transactions:
    """Commits changes of several tables; a call takes the thread that it is made in."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        warehouse: Warehouse,
        group: GroupCommit,
        queue: CommitQueue[BlockChange | Step, StoredResponse],
        metrics: Metrics,
        traces: Traces,
        clock: Callable[[], int],
        threads: int,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._group = group
        self._queue = queue
        self._metrics = metrics
        self._traces = traces
        self._clock = clock
        self._random = random.SystemRandom()
        self._writers = ThreadPoolExecutor(threads, thread_name_prefix="lamella-transaction")

    def check(
        self,
        changes: Sequence[tuple[str, TableRecord, CommitRequest]],
        check: Callable[[TableRecord, CommitRequest], BlockChange],
    ) -> list[TableChange]:
        """Check the commits of the tables, several at once. Raises as :meth:`commit`."""

        def one(each: tuple[str, TableRecord, CommitRequest]) -> BlockChange | LamellaError:
            try:
                return check(each[1], each[2])
            except LamellaError as error:
                return error

        found = list(self._writers.map(one, changes))
        errors = [
            (name, each) for (name, _, _), each in zip(changes, found, strict=True) if isinstance(each, LamellaError)
        ]
        if errors:
            raise error_of(errors)
        return [
            TableChange(name, table.table_id, change)
            for (name, table, _), change in zip(changes, found, strict=True)
            if not isinstance(change, LamellaError)
        ]

    def commit(
        self,
        changes: Sequence[TableChange],
        idempotency_key: IdempotencyKey,
        *,
        deadline_s: float,
        response: MakeResponse | None = None,
    ) -> StoredResponse:
        """Commit the changes, one for each of several tables. ``deadline_s``: of the monotonic clock.

        ``response``: None for that of ``POST /v1/transactions``.

        Raises:
            TransactionConflict: changes conflict with commits of others; all of them are named.
            Unavailable: the tables' turns did not come in time, or a clean-up was running; nothing was committed.
            LamellaError: the error of another kind that the first of the changes has by itself; its details name the
                table.
        """
        with self._queue.holding((each.table_id for each in changes), deadline_s=deadline_s):
            earlier = replay_of(self._catalog, idempotency_key)
            if earlier is not None:
                return earlier
            return self._commit(changes, idempotency_key, deadline_s, response or _answered(idempotency_key))

    def close(self) -> None:
        """Finish what runs."""
        self._writers.shutdown()

    def _commit(
        self,
        changes: Sequence[TableChange],
        idempotency_key: IdempotencyKey,
        deadline_s: float,
        response: MakeResponse,
    ) -> StoredResponse:
        entries: dict[str, Waiting] = {
            each.table_id: Entry(each.change, blocks=0, alone=True, queued_s=0.0, deadline_s=deadline_s)
            for each in changes
        }
        segments = {each.table_id: SharedSegments(self._warehouse) for each in changes}
        since_ms = self._clock()
        prepared: dict[str, _Prepared] = {}
        pause_s = _FIRST_PAUSE_S
        while True:
            if time.monotonic() > deadline_s:
                raise Unavailable("too many concurrent commits to the tables", retry_after_s=1)
            errors: dict[str, LamellaError] = {}
            prepared = self._prepare(changes, entries, segments, prepared, since_ms, errors)
            unchanged = self._reads(changes, entries, errors)
            if errors:
                raise error_of([(each.table, errors[each.table_id]) for each in changes if each.table_id in errors])
            stored_response = response([(each, prepared[each.table_id].attempt.applied[0][1]) for each in changes])
            try:
                is_current = self._swap(prepared, stored_response, unchanged)
            except IdempotencyMismatch:
                earlier = replay_of(self._catalog, idempotency_key)
                if earlier is None:
                    raise
                return earlier
            if is_current:
                for each in prepared.values():
                    each.attempt.count(self._metrics)
                return stored_response
            self._metrics.commit_retries.inc()
            # Partly random: with fixed delays, one of two processes could win every time.
            time.sleep(self._random.uniform(0, pause_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _prepare(
        self,
        changes: Sequence[TableChange],
        entries: Mapping[str, Waiting],
        segments: Mapping[str, SharedSegments],
        earlier: Mapping[str, _Prepared],
        since_ms: int,
        errors: dict[str, LamellaError],
    ) -> dict[str, _Prepared]:
        """Write the snapshots that follow the current ones, several at once, but those that were written already."""
        table_ids = [each.table_id for each in changes]
        guards = self._catalog.guards(table_ids, since_ms=since_ms)
        records = self._catalog.tables_by_id(table_ids)

        def one(each: TableChange) -> _Prepared | LamellaError:
            entry, guard, record = entries[each.table_id], guards[each.table_id], records.get(each.table_id)
            if record is None:
                return TableNotFound("the table was dropped", table_id=each.table_id)
            try:
                before = earlier.get(each.table_id)
                is_same = before is not None and before.record.version == record.version
                if before is not None and is_same and before.attempt.refs is None:
                    return before
                if not self._group.unswept([entry], guard):
                    entry.answered.result()
                self._metrics.commit_attempts.inc()
                with trusted_manifests(), self._warehouse.together():
                    attempt = self._group.merge(record, [entry], segments[each.table_id])
            except LamellaError as error:
                return error
            if attempt.refused:
                return attempt.refused[0][1]
            return _Prepared(record, guard, attempt)

        with self._traces.span("commit prepare", {"lamella.tables": len(changes)}):
            found = dict(zip(table_ids, self._writers.map(one, changes), strict=True))
        errors.update({table_id: each for table_id, each in found.items() if isinstance(each, LamellaError)})
        return {table_id: each for table_id, each in found.items() if not isinstance(each, LamellaError)}

    def _reads(
        self, changes: Sequence[TableChange], entries: Mapping[str, Waiting], errors: dict[str, LamellaError]
    ) -> dict[str, int]:
        """Return the versions of tables that the changes depend on, read after those that they were written for."""
        unchanged: dict[str, int] = {}
        for each in changes:
            versions, error = self._group.reads([entries[each.table_id]])
            if error is not None:
                errors.setdefault(each.table_id, error)
            for table_id, version in versions.items():
                # The older of two: the swap fails if the table has changed in between.
                unchanged[table_id] = min(version, unchanged.get(table_id, version))
        return unchanged

    def _swap(
        self, prepared: Mapping[str, _Prepared], stored_response: StoredResponse, unchanged: Mapping[str, int]
    ) -> bool:
        """Make the snapshots current; False if another commit came first to one of the tables."""
        swaps, refs = [], []
        for table_id, (record, guard, attempt) in prepared.items():
            assert attempt.result is not None  # noqa: S101  # what was refused is an error
            if attempt.refs is not None:
                refs.append(attempt.refs)
            # A clean-up may have run since objects were written that are older than this attempt.
            own = min([guard.since_ms, *attempt.wrote_since_ms])
            swaps.append(
                PointerSwap(
                    table_id=table_id,
                    branch_of=record.branch_of,
                    entry=history_entry(record.version + 1, attempt.result.pointer, attempt.result.snapshot),
                    guard=msgspec.structs.replace(guard, since_ms=own, adds_files=attempt.adds_files),
                )
            )
        with self._traces.span("commit swap", {"lamella.tables": len(swaps)}):
            try:
                return self._catalog.advance_all(swaps, remember=stored_response.stored, unchanged=unchanged, refs=refs)
            except OutcomeUnknown:
                # All entries are in the histories, or none.
                if self._group.is_in_history(swaps[0].table_id, swaps[0].entry.pointer.snapshot_id):
                    return True
                raise


def _answered(idempotency_key: IdempotencyKey) -> MakeResponse:
    def response(committed: Sequence[tuple[TableChange, CommitResult]]) -> StoredResponse:
        tables = tuple(
            TableCommitted(table=each.table, **msgspec.structs.asdict(each.change.answer(result)))
            for each, result in committed
        )
        return idempotency_key.store_as(200, TransactionAnswer(tables=tables))

    return response


def error_of(refused: Sequence[tuple[str, LamellaError]]) -> LamellaError:
    """Return the error of a transaction from those of its changes, by table."""
    for table, error in refused:
        if not isinstance(error, Conflict):
            error.details.setdefault("table", table)
            return error
    conflicts = [
        {"table": table, "code": error.code, "detail": error.message, "details": error.details}
        for table, error in refused
    ]
    named = ", ".join(table for table, _ in refused)
    return TransactionConflict(
        f"nothing was committed, because of {named}: {refused[0][1].message}", conflicts=conflicts
    )

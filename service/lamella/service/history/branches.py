"""Branches: a table's other heads. Each is committed to, read, and cleaned up like a table, and shares its files.

A branch has the columns and the cluster key of its table, so ids of columns mean the same in all branches, and what was
written to one can be taken over by another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import (
    BRANCH_SIGN,
    MAIN,
    BranchRecord,
    Catalog,
    HistoryEntry,
    TableRecord,
    branch_record,
    current_table,
    main_name,
)
from lamella.service.commits.committer import Committer
from lamella.service.history.history import History, trusted_manifests
from lamella.service.http.admission import read_json
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse
from lamella.service.http.mutations import Mutations
from lamella.service.http.routing import ServedOperation, json_response, require_json
from lamella.service.process.threads import Threads
from lamella.service.tables.names import check_name
from lamella.snapshot.errors import InvalidRequest, SnapshotExpired, Unavailable
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.source import HOSTED, KIND, SNAPSHOT, refuse_branch_change
from lamella.snapshot.warehouse import CommitResult, Warehouse
from lamella.snapshot.warehouse.commits import CHERRY_PICK
from lamella.snapshot.wire import (
    BranchInfo,
    BranchList,
    BranchRequest,
    CherryPickAnswer,
    CherryPickRequest,
    FastForwardAnswer,
    FastForwardRequest,
)
from lamella.snapshot.wire.operations import branches as operations

_MAX_MS: Final = (1 << 53) - 1
#: How often a fast-forward is tried while others commit to one of the two branches.
_TRIES: Final = 20


class Branches:
    """Creates, lists and drops the branches of tables, and moves commits between them."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        warehouse: Warehouse,
        history: History,
        committer: Committer,
        ids: Ids,
        clock: Callable[[], int],
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._history = history
        self._committer = committer
        self._ids = ids
        self._clock = clock

    def list(self, table: TableRecord) -> BranchList:
        """Return the branches of a table, ``main`` first."""
        main = self._main(table)
        others = self._catalog.branches(main.table_id)
        return BranchList(branches=(self._info(main, main), *(self._info(each.record, main, each) for each in others)))

    def create(self, table: TableRecord, request: BranchRequest, idempotency_key: IdempotencyKey) -> StoredResponse:
        """Create a branch at a snapshot of the table, by default the current one of ``table``, which may be a branch.

        Raises:
            InvalidRequest: the name; an id and a timestamp; a table that follows a source or has Iceberg clients.
            SnapshotNotFound: no such snapshot, or it has expired.
            AlreadyExists: a branch or a tag has the name, and ``replace`` was not set.
        """
        name = check_name("branch", request.name)
        if name == MAIN:
            raise InvalidRequest(
                "every table has the branch main; its name cannot be given to another one", branch=name
            )
        if request.max_idle_ms is not None and not 0 < request.max_idle_ms <= _MAX_MS:
            raise InvalidRequest(
                "max_idle_ms must be a number of milliseconds above 0", max_idle_ms=request.max_idle_ms
            )
        main = self._main(table)
        self._refuse_followers(main)
        source = self._history.entry(
            table, snapshot_id=request.snapshot_id, timestamp=request.timestamp, time_zone=request.time_zone
        )
        now_ms = self._clock()
        record = branch_record(main, name, str(self._ids.new()), source, now_ms=now_ms)
        fork_seq = self._catalog.fork_seq(source.table_id)
        branch = BranchRecord(
            record=record, fork_seq=source.seq if fork_seq is None else fork_seq, max_idle_ms=request.max_idle_ms
        )
        # Its own history is not stored yet, and is that of the source up to here.
        info = msgspec.structs.replace(
            self._info(record, main, branch), can_fast_forward=self._is_ahead(record, main, source.table_id)
        )
        stored_response = idempotency_key.store_as(201, info)
        self._catalog.create_branch(
            branch, source, replace=request.replace, now_ms=now_ms, remember=stored_response.stored
        )
        return stored_response

    def drop(self, table: TableRecord, name: str, idempotency_key: IdempotencyKey) -> StoredResponse:
        """Drop a branch. Raises InvalidRequest (``main``, or a branch of Iceberg clients), BranchNotFound."""
        if name == MAIN:
            raise InvalidRequest("main is the table itself; drop the table", branch=name)
        record = self._branch(table, name)
        with trusted_manifests():
            refuse_branch_change(self._warehouse.head(record.pointer).properties)
        stored_response = idempotency_key.store_as(204)
        self._catalog.drop_branch(record, now_ms=self._clock(), remember=stored_response.stored)
        return stored_response

    def fast_forward(
        self, table: TableRecord, request: FastForwardRequest, idempotency_key: IdempotencyKey
    ) -> StoredResponse:
        """Make a branch's current snapshot that of ``table``, which is a table or another one of its branches.

        Raises:
            InvalidRequest: both are the same, or one is of a table that has a source or Iceberg clients.
            BranchNotFound: there is no such branch.
            CommitConflict: ``table`` has commits that the branch does not have.
            QuotaExceeded, Unavailable.
        """
        self._refuse_followers(self._main(table))
        for _ in range(_TRIES):
            source = self._branch(table, request.to)
            if source.table_id == table.table_id:
                raise InvalidRequest(f"{table.name} cannot be fast-forwarded to itself", branch=request.to)
            with trusted_manifests():
                summary = self._warehouse.head(source.pointer).summary
            answer = FastForwardAnswer(
                snapshot_id=source.pointer.snapshot_id,
                prev_snapshot_id=table.pointer.snapshot_id,
                snapshots=max(source.version - table.version, 0),
                row_count=summary.row_count,
                block_count=summary.block_count,
            )
            stored_response = idempotency_key.store_as(200, answer, snapshot_id=source.pointer.snapshot_id)
            if self._catalog.fast_forward(table, source, now_ms=self._clock(), remember=stored_response.stored):
                self._committer.note(table.table_id)
                return stored_response
            table = self._catalog.table_by_id(table.table_id)
        raise Unavailable("too many concurrent commits to the branches", retry_after_s=1)

    def cherry_pick(self, table: TableRecord, request: CherryPickRequest, idempotency_key: IdempotencyKey) -> Pending:
        """Repeat the changes of a snapshot in ``table``, which is a table or one of its branches.

        Raises, at once or when awaited: InvalidRequest: the snapshot is in the history already, or has no changes that
        can be repeated. SnapshotNotFound: no such snapshot; SnapshotExpired: the one before it. CommitConflict,
        DuplicateBlock, NewMatches, SchemaConflict: the change cannot be made there.
        """
        # Before the histories are read: a clean-up that deletes a block after that is noticed.
        guard = self._catalog.guard(table.table_id, (), since_ms=self._clock())
        picked = self._history.entry(table, snapshot_id=request.snapshot_id)
        picked_id = picked.pointer.snapshot_id
        # Of a snapshot that was picked itself, what counts is where its changes come from.
        is_picked = picked.operation.startswith(CHERRY_PICK)
        operation = picked.operation if is_picked else CHERRY_PICK + picked_id
        origin_id = operation.removeprefix(CHERRY_PICK)
        self._refuse_twice(table, origin_id, operation)
        before = self._before(picked)

        def step(base: SnapshotPointer) -> CommitResult:
            self._refuse_twice(table, origin_id, operation)
            return self._warehouse.cherry_pick(
                base,
                before.pointer,
                picked.pointer,
                operation=operation,
                strict=request.strict,
                now_ms=self._clock(),
            )

        def answer(result: CommitResult) -> CherryPickAnswer:
            return CherryPickAnswer(
                snapshot_id=result.pointer.snapshot_id,
                prev_snapshot_id=result.snapshot.prev_snapshot_id or "",
                picked_snapshot_id=picked_id,
                added=result.added,
                removed=result.removed,
                changed=result.changed,
                row_count=result.snapshot.summary.row_count,
                block_count=result.snapshot.summary.block_count,
            )

        with trusted_manifests():
            self._refuse_followers(self._main(table))
        return self._committer.alone(table, step, answer, idempotency_key, required=before, guard=guard)

    def _main(self, table: TableRecord) -> TableRecord:
        return table if table.branch_of is None else self._catalog.table_by_id(table.branch_of)

    def _branch(self, table: TableRecord, name: str) -> TableRecord:
        """Return a branch of a table by its name. Raises BranchNotFound."""
        return self._catalog.table(table.namespace, f"{main_name(table.name)}{BRANCH_SIGN}{name}")

    def _refuse_followers(self, main: TableRecord) -> None:
        """Raise InvalidRequest for a table whose commits are not Lamella's own."""
        with trusted_manifests():
            properties = self._warehouse.head(main.pointer).properties
        if properties.get(HOSTED):
            raise InvalidRequest("this is a table of Iceberg clients: create and move its branches by one of them")
        if properties.get(KIND):
            raise InvalidRequest("the table follows a source outside of Lamella, so it has no branches of its own")

    def _refuse_twice(self, table: TableRecord, snapshot_id: str, operation: str) -> None:
        """Raise InvalidRequest if a table or branch has the changes of a snapshot: it would get its rows twice."""
        if self._catalog.has_commit(table.table_id, snapshot_id, operation):
            raise InvalidRequest(f"{table.name} has the changes of that snapshot already", snapshot_id=snapshot_id)

    def _before(self, entry: HistoryEntry) -> HistoryEntry:
        """Return the snapshot before another one. Raises InvalidRequest, SnapshotExpired."""
        if entry.prev_snapshot_id is None:
            raise InvalidRequest("the first snapshot of a table has no changes", snapshot_id=entry.pointer.snapshot_id)
        found = self._catalog.history(entry.table_id, before_seq=entry.seq, limit=1)
        if not found or found[0].pointer.snapshot_id != entry.prev_snapshot_id:
            raise SnapshotExpired(
                "the snapshot before that one has expired, so its changes are unknown",
                snapshot_id=entry.prev_snapshot_id,
            )
        return found[0]

    def _info(self, record: TableRecord, main: TableRecord, branch: BranchRecord | None = None) -> BranchInfo:
        with trusted_manifests():
            head = self._warehouse.head(record.pointer)
        of_iceberg = head.properties.get(SNAPSHOT)
        return BranchInfo(
            name=MAIN if branch is None else branch.name,
            snapshot_id=record.pointer.snapshot_id,
            timestamp_ms=record.pointer.timestamp_ms,
            number=record.version,
            row_count=head.summary.row_count,
            block_count=head.summary.block_count,
            created_at_ms=record.created_at_ms,
            fork_number=None if branch is None else branch.fork_seq,
            max_idle_ms=None if branch is None else branch.max_idle_ms,
            can_fast_forward=of_iceberg is None
            and branch is not None
            and self._is_ahead(record, main, record.table_id),
            iceberg_snapshot_id=of_iceberg,
        )

    def _is_ahead(self, record: TableRecord, main: TableRecord, history_id: str) -> bool:
        """Return whether a branch has all snapshots of the table, and more; ``history_id``: where its history is."""
        if record.version <= main.version:
            return False
        found = self._catalog.history(history_id, before_seq=main.version + 2, limit=2)
        return any(
            (each.seq == main.version and each.pointer.snapshot_id == main.pointer.snapshot_id)
            or (each.seq == main.version + 1 and each.prev_snapshot_id == main.pointer.snapshot_id)
            for each in found
        )


_CREATE: Final = msgspec.json.Decoder(BranchRequest)
_FAST_FORWARD: Final = msgspec.json.Decoder(FastForwardRequest)
_CHERRY_PICK: Final = msgspec.json.Decoder(CherryPickRequest)


class BranchRoutes:
    """Routes of branches."""

    def __init__(self, *, catalog: Catalog, readers: Threads, mutations: Mutations, branches: Branches) -> None:
        self._catalog = catalog
        self._readers = readers
        self._mutations = mutations
        self._branches = branches

    async def list_branches(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        found = await self._readers.run(lambda: self._branches.list(current_table(self._catalog, namespace, name)))
        return json_response(found)

    async def create_branch(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        table = self._table_of(request)
        return await self._mutations.run(
            request, lambda key: self._branches.create(table(), read_json(_CREATE, body), key), body
        )

    async def drop_branch(self, request: Request) -> Response:
        table, branch = self._table_of(request), request.path_params["branch"]
        return await self._mutations.run(request, lambda key: self._branches.drop(table(), branch, key))

    async def fast_forward(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        table = self._table_of(request)
        return await self._mutations.run(
            request, lambda key: self._branches.fast_forward(table(), read_json(_FAST_FORWARD, body), key), body
        )

    async def cherry_pick(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        table = self._table_of(request)
        return await self._mutations.run(
            request, lambda key: self._branches.cherry_pick(table(), read_json(_CHERRY_PICK, body), key), body
        )

    def _table_of(self, request: Request) -> Callable[[], TableRecord]:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        return lambda: self._catalog.table(namespace, name)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.LIST_BRANCHES, self.list_branches),
            ServedOperation(operations.CREATE_BRANCH, self.create_branch),
            ServedOperation(operations.DROP_BRANCH, self.drop_branch),
            ServedOperation(operations.FAST_FORWARD, self.fast_forward),
            ServedOperation(operations.CHERRY_PICK, self.cherry_pick),
        )

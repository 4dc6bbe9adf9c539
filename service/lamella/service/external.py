"""External tables: brought up to date with the files of their source, which stay somebody else's.

A refresh asks the source, compares, reads the files that are new or others by now, and commits all of it as one
snapshot: what was added, removed and replaced, and changes of the columns. So a reader sees one state of the source.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal

import msgspec

from lamella.service.catalog import Catalog, TableRecord
from lamella.service.committer import Committer
from lamella.service.idempotency import Claim, Sealed, answered
from lamella.service.intake import Intake
from lamella.service.location_rules import LocationRules
from lamella.service.ownership import require_own
from lamella.service.pending import Pending, finished
from lamella.service.refresh_plan import Outcome, RefreshPlan, outcome_of, plan_refresh
from lamella.service.settings import Settings
from lamella.service.state import trusted_manifests
from lamella.snapshot.errors import CommitConflict, DuplicateBlock, LamellaError, SchemaConflict
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import Block, SegmentRef, SnapshotPointer
from lamella.snapshot.source import Reader, Taken, take
from lamella.snapshot.warehouse import CommitResult, Warehouse
from lamella.snapshot.wire import RefreshProgress, RefreshTable, RefreshTableAnswer

OPERATION: Final = "refresh"
#: How often a refresh is made when other changes keep coming first.
_TRIES: Final = 4


class External:
    """Refreshes external tables."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        warehouse: Warehouse,
        store: Store,
        reader: Reader,
        committer: Committer,
        intake: Intake,
        rules: LocationRules,
        clock: Callable[[], int],
        settings: Settings,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._reader = reader
        self._committer = committer
        self._intake = intake
        self._rules = rules
        self._clock = clock
        self._threads = settings.ingest_threads
        self._lock = threading.Lock()
        self._under_way: dict[str, _Watch] = {}

    def refresh(self, table: TableRecord, request: RefreshTable, claim: Claim) -> Sealed | Pending:
        """Bring a table up to date with its source; all of it or nothing.

        Raises, here or when it is waited for:
            InvalidRequest: the table has no source, or the source cannot be followed; nothing was changed.
            LocationRefused: the source is where the table may have no files.
            InvalidSchema: the source's columns changed in a way that a table cannot follow.
            BlocksRefused: a file was refused where none may be; ``refused`` lists each with its reason.
            ObjectNotFound, StoreError: the source is not there, or could not be read.
            Unavailable, CommitConflict: others kept coming first, or a clean-up was at work.
        """
        return self._refresh(table.table_id, request, claim, _TRIES)

    def progress(self, table: TableRecord) -> RefreshProgress:
        """How far the refresh is that this process has under way."""
        with self._lock:
            watch = self._under_way.get(table.table_id)
        return RefreshProgress(running=False) if watch is None else watch.shown()

    def _refresh(self, table_id: str, request: RefreshTable, claim: Claim, tries: int) -> Sealed | Pending:
        with self._watched(table_id) as watch:
            record = self._catalog.table_by_id(table_id)
            with trusted_manifests():
                head = self._warehouse.head(record.pointer)
            places = self._rules.of(record.namespace, table_id)
            plan = plan_refresh(self._warehouse, self._reader, places, record.pointer, head, request)
            if request.mode == "dry_run":
                return answered(self._catalog, claim, plan.expected(record.pointer.snapshot_id))
            guard = self._catalog.guard(table_id, [file.location for file in plan.to_read], since_ms=self._clock())
            taken = self._taken(table_id, plan, request, watch)
            outcome = outcome_of(self._warehouse, record.pointer, plan, taken, is_full=request.mode == "full")
            self._intake.refuse(outcome.refused, all_or_nothing=plan.strict or outcome.storage_failed)
            self._intake.count(outcome.refused)
            if outcome.is_nothing:
                unchanged = outcome.answer(record.pointer.snapshot_id, request.mode, changed=False)
                return answered(self._catalog, claim, unchanged)
            step = self._step(record, plan, outcome)

            def answer(result: CommitResult) -> RefreshTableAnswer:
                return outcome.answer(result.pointer.snapshot_id, request.mode, changed=True)

            def again(error: LamellaError) -> Pending:
                if not isinstance(error, CommitConflict | DuplicateBlock | SchemaConflict) or tries <= 1:
                    raise error
                following = self._refresh(table_id, request, claim, tries - 1)
                return following if isinstance(following, Pending) else finished(following)

            watch.phase = "committing"
            pending = self._committer.alone(record, step, answer, claim, guard=guard)
        return Pending(pending.answered, again)

    def _taken(self, table_id: str, plan: RefreshPlan, request: RefreshTable, watch: _Watch) -> Taken:
        """The files as blocks; what is said of those that cannot be any."""
        watch.total = len(plan.to_read)
        watch.phase = "reading"
        taken = take(
            self._store,
            plan.to_read,
            plan.state,
            plan.evolution,
            workers=self._threads,
            verify=request.verify,
            on_done=watch.one,
        )

        def owned(block: Block) -> Block:
            require_own(self._warehouse, table_id, block.location)
            return block

        blocks, foreign = self._intake.each_at_once(taken.blocks, owned)
        blocks, changed = self._intake.unchanged(blocks)
        return Taken(blocks, [*taken.refused, *foreign, *changed])

    def _step(
        self, record: TableRecord, plan: RefreshPlan, outcome: Outcome
    ) -> Callable[[SnapshotPointer], CommitResult]:
        """Writes the snapshot that follows one with the blocks that the plan was made for."""
        prepared: list[Sequence[SegmentRef]] = []

        def step(base: SnapshotPointer) -> CommitResult:
            self._require_same(record.pointer, base, plan)
            if not prepared:
                versions = self._warehouse.seen_after(base, plan.evolution.steps)
                prepared.append(self._warehouse.prepare(record.table_id, versions, outcome.blocks))
            return self._warehouse.commit(
                base,
                added=prepared[0],
                removed=outcome.removed,
                read_at=record.pointer,
                operation=OPERATION,
                properties=outcome.properties,
                schemas=plan.evolution.steps,
                now_ms=self._clock(),
            )

        return step

    def _require_same(self, read_at: SnapshotPointer, base: SnapshotPointer, plan: RefreshPlan) -> None:
        """Raise when the blocks or columns changed since the source was compared with them."""
        if base.snapshot_id == read_at.snapshot_id:
            return
        then, now = self._warehouse.snapshot(read_at), self._warehouse.snapshot(base)
        if then.schema.schema_id != now.schema.schema_id:
            schema_id = now.schema.schema_id
            raise SchemaConflict(
                "the table's columns changed meanwhile", schema_id=schema_id, snapshot_id=base.snapshot_id
            )
        if (then.groups, then.segments, then.properties) != (now.groups, now.segments, now.properties):
            raise CommitConflict(
                "the table changed while its source was read",
                blocks=list(plan.difference.removed[:1]),
                snapshot_id=base.snapshot_id,
                snapshot_is="current",
            )

    @contextmanager
    def _watched(self, table_id: str) -> Iterator[_Watch]:
        watch = _Watch(self._clock())
        with self._lock:
            self._under_way[table_id] = watch
        try:
            yield watch
        finally:
            with self._lock:
                if self._under_way.get(table_id) is watch:
                    del self._under_way[table_id]


class _Watch(msgspec.Struct):
    """How far a refresh is; written by its thread, read by others."""

    started_ms: int
    phase: Literal["listing", "reading", "committing"] = "listing"
    total: int = 0
    done: int = 0

    def one(self) -> None:
        """One more file."""
        self.done += 1

    def shown(self) -> RefreshProgress:
        """As others see it."""
        return RefreshProgress(
            running=True,
            phase=self.phase,
            files_done=self.done,
            files_total=self.total,
            started_ms=self.started_ms,
        )

"""External tables: compares a table with its source and refreshes it. The source's files belong to somebody else.

A refresh lists the source, compares, reads the files that are new or changed, and commits everything as one snapshot:
added, removed and replaced files, and changes of the columns. So a reader sees one state of the source.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Final, Literal

import msgspec

from lamella.service.catalog import Catalog, CommitGuard, TableRecord
from lamella.service.commits.blocks import FileChecker
from lamella.service.commits.committer import Committer
from lamella.service.config.settings import Settings
from lamella.service.history.history import trusted_manifests
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse, answered, finished
from lamella.service.tables.names import LocationRules, require_own
from lamella.snapshot.deletes import VectorFile
from lamella.snapshot.errors import (
    CommitConflict,
    DuplicateBlock,
    InvalidRequest,
    LamellaError,
    ObjectNotFound,
    SchemaConflict,
    StoreError,
)
from lamella.snapshot.manifest import Block, SegmentRef, Snapshot, SnapshotPointer
from lamella.snapshot.manifest.block_key import Identity
from lamella.snapshot.source import (
    AFTER,
    HOSTED,
    LOCATION,
    REFUSED,
    SNAPSHOT,
    UNREAD,
    VERSION,
    Difference,
    Evolution,
    Reader,
    SourceBlocks,
    SourceFile,
    SourceState,
    difference,
    evolution,
    hive_difference,
    partition_types_change,
    source_of,
    take,
)
from lamella.snapshot.storage import AllowedLocations, Store, normal
from lamella.snapshot.warehouse import CommitResult, Warehouse
from lamella.snapshot.wire import (
    ExternalSource,
    RefreshProgress,
    RefreshTable,
    RefreshTableAnswer,
    RefusedFile,
    SourceMode,
)

#: The operation of a refresh's snapshot.
OPERATION: Final = "refresh"


class RefreshPlan(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What a refresh has to do. ``head``: the table as it was compared; ``rereads``: every file is opened."""

    source: ExternalSource
    head: Snapshot
    state: SourceState
    evolution: Evolution
    difference: Difference
    strict: bool
    rereads: bool
    mode: SourceMode

    @cached_property
    def to_read(self) -> tuple[SourceFile, ...]:
        """Return the files to open."""
        found = (*self.difference.added, *self.difference.replaced)
        return (*found, *self.difference.unchanged) if self.rereads else found

    def expected(self, snapshot_id: str) -> RefreshTableAnswer:
        """Return what a refresh would do, as far as that is known without opening a file."""
        again = len(self.difference.unchanged) if self.evolution.rereads else 0
        return RefreshTableAnswer(
            snapshot_id=snapshot_id,
            mode=self.mode,
            changed=False,
            added=len(self.difference.added),
            removed=len(self.difference.removed),
            replaced=len(self.difference.replaced) + again,
            unchanged=len(self.difference.unchanged) - again,
            source_version=self.state.version,
            schema_changes=sum(map(len, self.evolution.steps)),
            refused=self.state.refused,
        )


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a refresh commits. ``added``, ``gone``, ``replaced``, ``unchanged``: numbers of files."""

    blocks: tuple[Block, ...]
    removed: tuple[str, ...]
    refused: tuple[RefusedFile, ...]
    properties: dict[str, str]
    added: int
    gone: int
    replaced: int
    unchanged: int
    source_version: str | None
    schema_changes: int

    @property
    def is_nothing(self) -> bool:
        """Return whether the table is up to date already."""
        return not (self.blocks or self.removed or self.properties or self.schema_changes)

    @property
    def storage_failed(self) -> bool:
        """Return whether a file could not be read because of the storage, so that its state is unknown."""
        return any(each.code == StoreError.code for each in self.refused)

    def answer(self, snapshot_id: str, mode: SourceMode, *, changed: bool) -> RefreshTableAnswer:
        """Return the answer for the caller."""
        return RefreshTableAnswer(
            snapshot_id=snapshot_id,
            mode=mode,
            changed=changed,
            added=self.added,
            removed=self.gone,
            replaced=self.replaced,
            unchanged=self.unchanged,
            source_version=self.source_version,
            schema_changes=self.schema_changes,
            refused=self.refused,
        )


def plan_refresh(
    warehouse: Warehouse,
    reader: Reader,
    allowed: AllowedLocations,
    pointer: SnapshotPointer,
    head: Snapshot,
    request: RefreshTable,
    *,
    snapshot_id: int | None = None,
) -> RefreshPlan:
    """List the source of a table and compare; opens no data file. ``snapshot_id``: of an Iceberg table; None: the
    current one.

    Raises:
        InvalidRequest: the table has no source, or one that cannot be followed, or that lists no file any more.
        LocationRefused: the table may not use files at the source's location.
        InvalidSchema: the source's columns changed in a way that a table cannot follow.
        ObjectNotFound, StoreError: the source does not exist, or could not be read.
    """
    source = source_of(head.properties)
    if source is None:
        raise InvalidRequest("the table has no source: its files were registered one by one")
    if request.location is not None:
        if source.kind not in ("iceberg", "hive") or source.location is None:
            raise InvalidRequest("location is only for Hive tables, and Iceberg tables known by a metadata file")
        source = msgspec.structs.replace(source, location=normal(request.location))
    if request.hive is not None and source.kind != "hive":
        raise InvalidRequest("hive is only for tables of a Hive Metastore")
    state = reader.read(source, head.properties, allowed, request.hive, snapshot_id=snapshot_id)
    if _may_be_unmounted(source, state, request) and head.summary.block_count and not request.allow_empty:
        raise InvalidRequest(
            f"{source.location} lists no Parquet file, and the table has {head.summary.block_count}; if that is so, "
            "say allow_empty",
            location=source.location,
        )
    steps = evolution(head, head.properties, state)
    if partition_types_change(state, steps):
        steps = msgspec.structs.replace(steps, rereads=True)
    if request.mode == "incremental" and not steps.rereads and _has_version(head, state):
        found = Difference(added=(), removed=(), replaced=(), unchanged=state.files)
    else:
        with trusted_manifests():
            known = _known_files(warehouse, pointer)
            if source.kind == "hive":
                found = hive_difference([*known], state, steps.history[-1], time_zone=source.time_zone)
            else:
                found = difference(known, state.files)
    return RefreshPlan(
        source=source,
        head=head,
        state=state,
        evolution=steps,
        difference=found,
        strict=source.kind != "directory" if request.strict is None else request.strict,
        rereads=request.mode == "full" or steps.rereads,
        mode=request.mode,
    )


def _may_be_unmounted(source: ExternalSource, state: SourceState, request: RefreshTable) -> bool:
    """Return whether folders that should have files have none: their disk may not be mounted."""
    if source.kind == "directory":
        return not state.files
    hive = request.hive
    return not state.files and hive is not None and (not hive.partitioned_by or bool(hive.partitions))


def _has_version(head: Snapshot, state: SourceState) -> bool:
    """Return whether the table has all files of the source's version: a log never changes what a version was.

    The last commit must have been a refresh that refused nothing; after others, the files are compared.
    """
    return (
        state.version is not None
        and head.operation == OPERATION
        and head.properties.get(VERSION) == state.version
        and head.properties.get(REFUSED, "0") == "0"
        and not state.refused
        and head.summary.block_count == len(state.files)
    )


def outcome_of(
    warehouse: Warehouse, pointer: SnapshotPointer, plan: RefreshPlan, taken: SourceBlocks, *, is_full: bool
) -> Outcome:
    """Return what to commit after the files were read.

    A listed file that is missing by now counts as removed if only the listing named it.
    """
    found = plan.difference
    is_listed = plan.source.kind not in ("directory", "hive")
    refused = [*plan.state.refused, *(r for r in taken.refused if is_listed or r.code != ObjectNotFound.code)]
    added_locations = {file.location for file in found.added}
    fresh = {block.location: block for block in taken.blocks}
    same: set[str] = set()
    if is_full and not plan.evolution.rereads:
        with trusted_manifests():
            same = {block.location for block in _blocks(warehouse, pointer) if _is_same(block, fresh)}
    blocks = tuple(block for block in taken.blocks if block.location not in same)
    reread = [file.location for file in plan.to_read if file.location not in added_locations]
    lost = [location for location in reread if location not in fresh]
    replaced = [location for location in reread if location in fresh and location not in same]
    unread = 0 if plan.rereads else len(found.unchanged)
    properties = dict(plan.evolution.properties)
    before = plan.head.properties
    if plan.source.location is not None and before.get(LOCATION) != plan.source.location:
        properties[LOCATION] = plan.source.location
    if int(before.get(REFUSED, "0")) != len(refused):
        properties[REFUSED] = str(len(refused))
    if before.get(UNREAD):
        properties[UNREAD] = ""
    outcome = Outcome(
        blocks=blocks,
        removed=(*found.removed, *lost, *replaced),
        refused=tuple(refused),
        properties=properties,
        added=len(blocks) - len(replaced),
        gone=len(found.removed) + len(lost),
        replaced=len(replaced),
        unchanged=unread + len(same),
        source_version=plan.state.version,
        schema_changes=sum(map(len, plan.evolution.steps)),
    )
    if outcome.is_nothing or plan.state.version is None:
        return outcome
    return msgspec.structs.replace(outcome, properties={**properties, VERSION: plan.state.version})


def _is_same(known: Block, fresh: dict[str, Block]) -> bool:
    block = fresh.get(known.location)
    if block is None or block.written_with != known.written_with:
        return False
    return msgspec.structs.replace(block, schema_id=known.schema_id, sketches={}) == known


def _known_files(warehouse: Warehouse, pointer: SnapshotPointer) -> Iterator[Identity]:
    for ref in warehouse.segments(pointer):
        yield from warehouse.identities(ref)


def _blocks(warehouse: Warehouse, pointer: SnapshotPointer) -> Iterator[Block]:
    for ref in warehouse.segments(pointer):
        yield from warehouse.segment(ref).blocks


#: Returns further properties of a snapshot, by the others.
MoreProperties = Callable[[dict[str, str]], dict[str, str]]
#: How often a refresh is tried if other changes are committed first.
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
        intake: FileChecker,
        rules: LocationRules,
        clock: Callable[[], int],
        settings: Settings,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._reader = reader
        self._committer = committer
        self._file_checker = intake
        self._rules = rules
        self._clock = clock
        self._threads = settings.ingest_threads
        self._lock = threading.Lock()
        self._under_way: dict[str, _Watch] = {}

    def refresh(
        self, table: TableRecord, request: RefreshTable, idempotency_key: IdempotencyKey
    ) -> StoredResponse | Pending:
        """Bring a table up to date with its source, all or nothing.

        Raises, here or when awaited: InvalidRequest: the table has no source, or the source cannot be followed; nothing
        was changed. LocationRefused: the table may not use files at the source's location. InvalidSchema: the source's
        columns changed in a way that a table cannot follow. BlocksRefused: a file was refused, which the mode does not
        allow; ``refused`` lists each with its reason. ObjectNotFound, StoreError: the source does not exist, or could
        not be read. Unavailable, CommitConflict: other commits always came first, or a clean-up was running.
        """
        return self._refresh(table.table_id, request, idempotency_key, _TRIES)

    def progress(self, table: TableRecord) -> RefreshProgress:
        """Return the progress of the refresh that runs in this process."""
        with self._lock:
            watch = self._under_way.get(table.table_id)
        return RefreshProgress(running=False) if watch is None else watch.shown()

    def _refresh(
        self, table_id: str, request: RefreshTable, idempotency_key: IdempotencyKey, tries: int
    ) -> StoredResponse | Pending:
        with self._watched(table_id) as watch:
            record = self._catalog.table_by_id(table_id)
            with trusted_manifests():
                head = self._warehouse.head(record.pointer)
            if head.properties.get(HOSTED):
                if request.location is not None:
                    raise InvalidRequest("this is a table of Iceberg clients: they decide which metadata file it has")
                if not head.properties.get(UNREAD):  # its metadata may lack what Lamella's writers changed since
                    same = RefreshTableAnswer(
                        snapshot_id=record.pointer.snapshot_id,
                        mode=request.mode,
                        changed=False,
                        added=0,
                        removed=0,
                        replaced=0,
                        unchanged=head.summary.block_count,
                    )
                    return answered(self._catalog, idempotency_key, same)
            allowed = self._rules.of(record.namespace, record.main_id)
            number = head.properties.get(SNAPSHOT)
            snapshot_id = None if number is None else int(number)
            plan = plan_refresh(
                self._warehouse, self._reader, allowed, record.pointer, head, request, snapshot_id=snapshot_id
            )
            if request.mode == "dry_run":
                return answered(self._catalog, idempotency_key, plan.expected(record.pointer.snapshot_id))
            guard, outcome = self._read(record, plan, request, watch)
            if outcome.is_nothing:
                unchanged = outcome.answer(record.pointer.snapshot_id, request.mode, changed=False)
                return answered(self._catalog, idempotency_key, unchanged)
            step = self._step(record, plan, outcome, OPERATION)

            def answer(result: CommitResult) -> RefreshTableAnswer:
                return outcome.answer(result.pointer.snapshot_id, request.mode, changed=True)

            def again(error: LamellaError) -> Pending:
                if not isinstance(error, CommitConflict | DuplicateBlock | SchemaConflict) or tries <= 1:
                    raise error
                following = self._refresh(table_id, request, idempotency_key, tries - 1)
                return following if isinstance(following, Pending) else finished(following)

            watch.phase = "committing"
            pending = self._committer.alone(record, step, answer, idempotency_key, guard=guard)
        return Pending(pending.answered, again)

    def changed_to(
        self,
        record: TableRecord,
        head: Snapshot,
        location: str,
        operation: str,
        more: MoreProperties,
        *,
        rereads: bool,
        snapshot_id: int | None = None,
        columns_of: Snapshot | None = None,
    ) -> tuple[Callable[[SnapshotPointer], CommitResult], CommitGuard]:
        """Return the step that brings an Iceberg table to another metadata file, all or nothing, and its guard.

        ``operation``: of its snapshot. ``more``: further properties of it. ``rereads``: every file is opened. Raises as
        :meth:`refresh`. Of a branch, ``snapshot_id`` is what it is brought to, ``columns_of`` the current snapshot of
        its table, and ``head`` its own with the columns of that.
        """
        mode: SourceMode = "full" if rereads else "incremental"
        request = RefreshTable(location=location, allow_empty=True, strict=True, mode=mode)
        with self._watched(record.table_id) as watch:
            allowed = self._rules.of(record.namespace, record.main_id)
            plan = None if rereads else self._change_plan(record, head, location, allowed, snapshot_id)
            if plan is None:
                plan = plan_refresh(
                    self._warehouse, self._reader, allowed, record.pointer, head, request, snapshot_id=snapshot_id
                )
            guard, outcome = self._read(record, plan, request, watch)
        return self._step(record, plan, outcome, operation, more, columns_of), guard

    def _change_plan(
        self,
        record: TableRecord,
        head: Snapshot,
        location: str,
        allowed: AllowedLocations,
        snapshot_id: int | None,
    ) -> RefreshPlan | None:
        """Return the plan that only looks at what changed since the table's metadata file; None: there is none."""
        if head.properties.get(UNREAD) or head.properties.get(REFUSED, "0") != "0":
            return None
        found = self._reader.iceberg_change(location, head.properties, allowed, snapshot_id)
        source = source_of(head.properties)
        if found is None or source is None:
            return None
        state, change = found
        steps = evolution(head, head.properties, state)
        named = [file.location for file in change.added]
        with trusted_manifests():
            if steps.rereads or self._warehouse.has_blocks(record.pointer, named):
                return None
            # A file without remaining rows is no block.
            removed = self._warehouse.has_blocks(record.pointer, change.removed)
        return RefreshPlan(
            source=msgspec.structs.replace(source, location=normal(location)),
            head=head,
            state=state,
            evolution=steps,
            difference=msgspec.structs.replace(change, removed=tuple(sorted(removed))),
            strict=True,
            rereads=False,
            mode="incremental",
        )

    def _read(
        self, record: TableRecord, plan: RefreshPlan, request: RefreshTable, watch: _Watch
    ) -> tuple[CommitGuard, Outcome]:
        """Return the guard of a refresh, made before files were read, and what it commits."""
        locations = [file.location for file in plan.to_read]
        guard = self._catalog.guard(record.main_id, locations, since_ms=self._clock())
        taken = self._taken(record.main_id, plan, request, watch)
        compares = request.mode == "full" or plan.difference.unsure
        outcome = outcome_of(self._warehouse, record.pointer, plan, taken, is_full=compares)
        self._file_checker.refuse(outcome.refused, all_or_nothing=plan.strict or outcome.storage_failed)
        self._file_checker.count(outcome.refused)
        return guard, outcome

    def _taken(self, table_id: str, plan: RefreshPlan, request: RefreshTable, watch: _Watch) -> SourceBlocks:
        """Return the files as blocks, and the refused files."""
        watch.total = len(plan.to_read)
        watch.phase = "reading"
        vectors = VectorFile(self._warehouse.new_deletes_location(table_id))
        taken = take(
            self._store,
            plan.to_read,
            plan.state,
            plan.evolution,
            workers=self._threads,
            verify=request.verify,
            time_zone=plan.source.time_zone,
            vectors=vectors,
            on_done=watch.one,
        )
        if len(vectors):
            self._store.put(vectors.location, vectors.finished())

        def owned(block: Block) -> Block:
            require_own(self._warehouse, table_id, block.location)
            return block

        blocks, foreign = self._file_checker.each_at_once(taken.blocks, owned)
        changed = self._file_checker.changed(blocks)
        gone = {each.path for each in changed}
        blocks = [block for block in blocks if block.location not in gone]
        return SourceBlocks(blocks, [*taken.refused, *foreign, *changed])

    def _step(
        self,
        record: TableRecord,
        plan: RefreshPlan,
        outcome: Outcome,
        operation: str,
        more: MoreProperties = lambda _: {},
        columns_of: Snapshot | None = None,
    ) -> Callable[[SnapshotPointer], CommitResult]:
        """Return the step that writes the next snapshot, if the base still has the blocks of the plan."""
        prepared: list[Sequence[SegmentRef]] = []

        def step(base: SnapshotPointer) -> CommitResult:
            self._require_same(record.pointer, base, plan)
            if not prepared:
                versions = self._warehouse.seen_after(base, plan.evolution.steps, columns_of)
                prepared.append(self._warehouse.prepare(record.main_id, versions, outcome.blocks))
            properties = dict(outcome.properties)
            if plan.head.properties.get(HOSTED):
                properties[AFTER] = base.snapshot_id
            properties |= more({**plan.head.properties, **properties})
            return self._warehouse.commit(
                base,
                added=prepared[0],
                removed=outcome.removed,
                read_at=record.pointer,
                operation=operation,
                properties=properties,
                schemas=plan.evolution.steps,
                columns_of=columns_of,
                now_ms=self._clock(),
            )

        return step

    def _require_same(self, read_at: SnapshotPointer, base: SnapshotPointer, plan: RefreshPlan) -> None:
        """Raise if the blocks or columns changed since they were compared with the source."""
        if base.snapshot_id == read_at.snapshot_id:
            return
        then, now = self._warehouse.snapshot(read_at), self._warehouse.snapshot(base)
        if then.schema.schema_id != now.schema.schema_id:
            schema_id = now.schema.schema_id
            raise SchemaConflict(
                "the table's columns changed during the refresh", schema_id=schema_id, snapshot_id=base.snapshot_id
            )
        if (then.groups, then.segments, then.properties) != (now.groups, now.segments, now.properties):
            raise CommitConflict(
                "the table changed during the refresh",
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
    """The progress of a refresh; written by its thread, read by others."""

    started_ms: int
    phase: Literal["listing", "reading", "committing"] = "listing"
    total: int = 0
    done: int = 0

    def one(self) -> None:
        """Count one more file."""
        self.done += 1

    def shown(self) -> RefreshProgress:
        """Return the progress for the API."""
        return RefreshProgress(
            running=True,
            phase=self.phase,
            files_done=self.done,
            files_total=self.total,
            started_ms=self.started_ms,
        )

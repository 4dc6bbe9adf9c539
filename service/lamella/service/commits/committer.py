"""Registrations and commits: from a request to a new current snapshot.

The request's own thread checks the files first. Then the change waits in its table's queue, where a leader merges it
with others into one snapshot. One transaction of the catalog makes the snapshot current, adds it to the history and
stores every caller's answer under its idempotency key. If another process commits first, the same segments are
committed on its snapshot, so appends never conflict. A process that dies before the transaction leaves the table
unchanged, and objects that nothing refers to.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple

import msgspec

from lamella.service.catalog import Catalog, CommitGuard, HistoryEntry, TableRecord
from lamella.service.commits.blocks import Added, AddedBlocks, FileChecker, check_request, duplicate, once, replaced
from lamella.service.commits.group import GroupCommit
from lamella.service.commits.queue import BlockChange, CheckedRead, CommitQueue, MakeAnswer, MakeRefs, Step
from lamella.service.commits.transactions import MakeResponse, TableChange, Transactions
from lamella.service.config.settings import Settings
from lamella.service.history.history import History, schema_info, trusted_manifests
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse
from lamella.service.indexes.part_check import PartCheck, left_out_parts
from lamella.service.process.deadline import begin_within_s
from lamella.service.tables.names import LocationRules, refused_foreign, refused_locations, require_own, split_name
from lamella.service.telemetry.metrics import Metrics
from lamella.service.telemetry.tracing import Traces
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import DuplicateBlock, InvalidRequest, LamellaError, NotProven, ObjectNotFound
from lamella.snapshot.manifest import FEATURES, Block, SnapshotPointer
from lamella.snapshot.manifest.block_arrays import BlockSequence, footer_hashes_of, locations_of
from lamella.snapshot.parquet import ingest_arrays
from lamella.snapshot.parquet.block import optional_in_files
from lamella.snapshot.row_checks import check_filter, violation
from lamella.snapshot.schema.evolution import AddCheck
from lamella.snapshot.schema.spark_types import spark_notes
from lamella.snapshot.source import (
    HOSTED,
    columns_named,
    location_columns,
    refuse_added,
    refuse_checks,
    refuse_columns,
    refuse_registered,
    require_columns,
    with_folders,
)
from lamella.snapshot.storage import Store, TableLayout
from lamella.snapshot.storage.location import parse
from lamella.snapshot.warehouse import CommitResult, Warehouse
from lamella.snapshot.wire import (
    CommitAnswer,
    CommitRequest,
    EvolveRequest,
    PruneRequest,
    RefusedFile,
    Register,
    RegisterAnswer,
    TableRead,
)

_LOCAL_WRITERS: Final = 2
#: Threads that write the snapshots of transactions to a remote store, which they wait for most of the time.
_REMOTE_WRITERS: Final = 32


EvolveHosted = Callable[[TableRecord, EvolveRequest, IdempotencyKey], Pending]


class TableStep(NamedTuple):
    """A step of one of several tables. ``name``: the table's, as the request has it."""

    name: str
    record: TableRecord
    step: Callable[[SnapshotPointer], CommitResult]
    guard: CommitGuard | None
    refs: MakeRefs | None


class Committer:
    """All changes of tables go through here. The methods return answers that are still pending."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        warehouse: Warehouse,
        store: Store,
        history: History,
        rules: LocationRules,
        metrics: Metrics,
        traces: Traces,
        clock: Callable[[], int],
        settings: Settings,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._history = history
        self._rules = rules
        self._clock = clock
        self._metrics = metrics
        self._traces = traces
        self._threads = settings.ingest_threads
        self._deadline_s = settings.commit_deadline_s
        self._file_checker = FileChecker(store, metrics, settings.ingest_threads)
        self._added = AddedBlocks(
            catalog=catalog, warehouse=warehouse, store=store, intake=self._file_checker, settings=settings
        )
        self._parts = PartCheck(warehouse, store, threads=settings.ingest_threads)
        group = GroupCommit(catalog=catalog, warehouse=warehouse, metrics=metrics, traces=traces, clock=clock)
        self._note_commit: Callable[[str], None] | None = None
        self._evolve_hosted: EvolveHosted | None = None
        self._queue: CommitQueue[BlockChange | Step, StoredResponse] = CommitQueue(
            group.run_group,
            threads=settings.write_threads,
            max_changes=settings.commit_group,
            max_blocks=settings.commit_group_blocks,
            batch_wait_s=settings.commit_batch_wait_ms / 1000,
        )
        self._transactions = Transactions(
            catalog=catalog,
            warehouse=warehouse,
            group=group,
            queue=self._queue,
            metrics=metrics,
            traces=traces,
            clock=clock,
            # Snapshots on local files keep a processor busy: more threads only take it from each other.
            threads=_LOCAL_WRITERS if parse(settings.warehouse_url).scheme == "file" else _REMOTE_WRITERS,
        )

    def register(
        self,
        table: TableRecord,
        request: Register,
        idempotency_key: IdempotencyKey,
        *,
        assume_files: bool = True,
        only_files: bool = False,
    ) -> Pending:
        """Append the Parquet files that ``paths`` name.

        Raises, here or when awaited: InvalidRequest: ``paths`` is empty. LocationRefused: a path outside of the
        locations that the table may use; no file was read. BlocksRefused: nothing was registered, or (``strict``) some
        files were refused. DuplicateBlock: the same, and the only reason is that the files are in the table already.
        StoreError: nothing was registered, and storage failed for some of the files. Unavailable: its turn did not come
        in time, or a clean-up was running; nothing was registered.

        ``assume_files``: see :meth:`~lamella.service.commits.blocks.FileChecker.expand`. ``only_files``: each path is
        the normalized location of one file, whatever characters it has, and never a folder or a glob; a location that
        is not allowed is refused, and the others are registered.
        """
        if not request.paths:
            raise InvalidRequest("paths is empty")
        takes_replaced = request.take_replaced is True
        allowed = self._rules.of(table.namespace, table.main_id)
        plain = request.other_formats != "ignore"
        listed: dict[str, str] = {path: path for path in request.paths}
        refused: list[RefusedFile] = []
        if not only_files:
            for path in request.paths:
                allowed.require_all_below(path)
            listed, refused = self._file_checker.expand(request.paths, plain=plain, assume_files=assume_files)
        found, outside = refused_locations(allowed, listed)
        refused += outside
        guard = self._catalog.guard(table.table_id, found, since_ms=self._clock())
        with trusted_manifests():
            head = self._warehouse.head(table.pointer)
            refuse_registered(head.properties)
            schema = head.schema
            if schema.has_constraints:
                raise NotProven(
                    "the table has constraints or text of limited length, and files are registered without reading"
                    " their rows; append the rows instead (lamella append), which checks each of them"
                )
            present = self._warehouse.has_blocks(table.pointer, found)
            # Files that may not be registered whatever their version; for the others the footers have to be read first.
            gone = set() if takes_replaced else self._warehouse.replaced(table.pointer, dict.fromkeys(found))
        refused += [duplicate(location) for location in found if location in present]
        refused += [replaced(location) for location in found if location in gone - present]
        fresh = [location for location in found if location not in present | gone]

        def removed_before(pointer: SnapshotPointer, blocks: Sequence[Block]) -> set[str]:
            """Return the locations of blocks whose files were in the table before and may not return."""
            if takes_replaced:
                return set()
            return self._warehouse.replaced(pointer, footer_hashes_of(blocks))

        time_zone = "UTC" if request.time_zone is msgspec.UNSET else request.time_zone
        folders = {} if request.path_columns == "ignore" else {each: location_columns(each) for each in fresh}
        named = dict.fromkeys(value for values in folders.values() for value in values)
        may_lack = optional_in_files(schema, columns_named(schema, named))

        def checked(block: Block) -> Block:
            require_own(self._warehouse, table.main_id, block.location)
            whole = with_folders(block, schema, folders.get(block.location, ()), time_zone=time_zone)
            require_columns(whole, schema)
            return whole

        # Footers wait for the store; indexed values keep a core busy.
        workers = min(self._threads, os.cpu_count() or 1) if request.verify else self._threads
        with self._traces.span("read files", {"lamella.files": len(fresh)}):
            read, unreadable = ingest_arrays(self._store, fresh, may_lack, workers=workers, verify=request.verify)
        missing = [listed[each.path] for each in unreadable if each.code == ObjectNotFound.code]
        if assume_files and missing and not only_files:
            # What is not there as a file may be a folder.
            below, absent = self._file_checker.expand(missing, plain=plain, assume_files=False)
            if below:
                return self.register(table, request, idempotency_key, assume_files=False)
            unreadable = [*(each for each in unreadable if each.code != ObjectNotFound.code), *absent]
        refused += unreadable
        if named:
            whole, unfit = self._file_checker.each_at_once(read, checked)
            blocks = BlockSequence.of(whole)
        else:
            unfit = refused_foreign(self._warehouse, table.main_id, read.locations)
            blocks = read.without({each.path for each in unfit})
        refused += unfit
        changed: list[RefusedFile] = []
        if request.verify or not self._file_checker.have_read_versions(blocks):
            changed = self._file_checker.changed(blocks)
            blocks = blocks.without({each.path for each in changed})
        with trusted_manifests():
            returned = removed_before(table.pointer, blocks)
        blocks = blocks.without(returned)
        refused = once([*refused, *changed, *map(replaced, sorted(returned))])

        def enrol(blocks: BlockSequence, refused: Sequence[RefusedFile]) -> Pending:
            self._file_checker.refuse(refused, all_or_nothing=request.strict or not blocks)

            def answer(result: CommitResult) -> RegisterAnswer:
                return RegisterAnswer(
                    snapshot_id=result.pointer.snapshot_id,
                    registered=len(blocks),
                    row_count=sum(blocks.row_counts),
                    file_size_bytes=sum(blocks.file_sizes),
                    refused=tuple(refused),
                    notes=spark_notes(result.snapshot.schema),
                )

            def again(error: LamellaError) -> Pending:
                if not isinstance(error, DuplicateBlock):
                    raise error
                # Another request registered some of these files meanwhile; the others can still be registered.
                with trusted_manifests():
                    current = self._catalog.table_by_id(table.table_id).pointer
                    taken = self._warehouse.has_blocks(current, blocks.locations)
                    returned = removed_before(current, blocks) - taken
                if not taken and not returned:
                    raise error
                more = [*map(duplicate, sorted(taken)), *map(replaced, sorted(returned))]
                return enrol(blocks.without(taken | returned), [*refused, *more])

            change = BlockChange(
                idempotency_key=idempotency_key, answer=answer, blocks=blocks, guard=guard, only_new=not takes_replaced
            )
            answered = self._submit(table, change, len(blocks))
            if refused:
                answered.add_done_callback(lambda done: self._count_if_done(done, refused))
            return Pending(answered, again)

        return enrol(blocks, refused)

    def commit(
        self,
        table: TableRecord,
        request: CommitRequest,
        idempotency_key: IdempotencyKey,
        *,
        require_read: Callable[[str, str], None],
    ) -> Pending:
        """Add, remove and change blocks in one snapshot, all or nothing.

        ``require_read``: called with namespace and name of tables that the commit depends on; raises if the caller may
        not read them.

        Raises, here or when awaited: InvalidRequest: nothing to do, an invalid member, or a list of blocks that does
        not match its description. LocationRefused: the location of an added block is not allowed; it was not read.
        BlocksRefused: an added block's file or statistics; ``refused`` lists each with its reason. DuplicateBlock: an
        added block is in the table already, or twice in the request; or its file was in the table before and left it,
        and ``take_replaced`` is not set. CommitConflict: a removed or changed block is no longer in the table, or no
        longer the file that was read at the base; or others changed the rows to be deleted. SnapshotNotFound:
        ``base_snapshot_id`` is not in the table's history. NewMatches: blocks were added since then that may match
        ``no_new_matches``. ReadConflict: what the commit depends on may have changed. SchemaConflict: with
        ``no_new_matches`` or ``reads``, the columns changed since then; or a rollback removed the columns that the
        added blocks were written with; or others changed the columns that ``schema_update`` changes. InvalidSchema: a
        change of ``schema_update`` that cannot be made. InvalidFilter, UnknownColumn, FilterTypeMismatch,
        LimitExceeded: a filter. LimitExceeded: more blocks in lists than one commit may add. ObjectNotFound,
        StoreError: a list of blocks, or a part of an index. Unavailable: its turn did not come in time, or a clean-up
        was running; nothing was committed.
        """
        change = self._change(table, request, idempotency_key, require_read)
        return Pending(self._submit(table, change, change.added + len(change.removed) + len(change.deletes)))

    def transaction(
        self,
        changes: Sequence[tuple[str, TableRecord, CommitRequest]],
        idempotency_key: IdempotencyKey,
        *,
        require_read: Callable[[str, str], None],
    ) -> StoredResponse:
        """Commit to several tables at once, all or nothing; ``changes`` with the tables' names in the request.

        Raises:
            InvalidRequest: a table is named twice.
            TransactionConflict: changes conflict with commits of others; all of them are named.
            LamellaError: of another kind, as :meth:`commit` for the first table that has one, which ``table`` in the
                details names.
        """
        doubled = [name for name, count in Counter(record.table_id for _, record, _ in changes).items() if count > 1]
        if doubled:
            twice = next(name for name, record, _ in changes if record.table_id == doubled[0])
            raise InvalidRequest(f"the transaction names {twice} twice; put all changes of a table into one commit")
        deadline_s = time.monotonic() + begin_within_s(self._deadline_s)
        ended = self._metrics.process.commit_begun()
        try:
            none = IdempotencyKey(None, "", "", 0)  # the transaction's own key counts
            checked = self._transactions.check(
                changes, lambda table, request: self._change(table, request, none, require_read)
            )
            done = self._transactions.commit(checked, idempotency_key, deadline_s=deadline_s)
        finally:
            ended()
        if self._note_commit is not None:
            for _, table, _ in changes:
                self._note_commit(table.table_id)
        return done

    def _change(
        self,
        table: TableRecord,
        request: CommitRequest,
        idempotency_key: IdempotencyKey,
        require_read: Callable[[str, str], None],
    ) -> BlockChange:
        """Check a commit and its files. Raises as :meth:`commit`."""
        payload = check_request(request)
        read_at = None
        if request.base_snapshot_id is not None:
            read_at = self._history.pointer(table, snapshot_id=request.base_snapshot_id)
        lists = self._added.lists(table.main_id, payload.lists)
        with trusted_manifests():
            versions = self._warehouse.head(table.pointer)
            if request.added or lists or request.removed or payload.deletes:
                refuse_added(versions.properties)
            default_schema_id = (versions if read_at is None else self._warehouse.head(read_at)).schema.schema_id
            if payload.schema_update is not None:
                refuse_columns(versions.properties)
                if any(isinstance(change, AddCheck) for change in payload.schema_update.changes):
                    refuse_checks(versions.properties)
                versions = self._warehouse.seen_with(table.pointer, payload.schema_update)
                default_schema_id = payload.schema_update.schema_id
            if payload.no_new_matches is not None and read_at is not None:
                # The check that counts comes later; this one refuses an invalid filter before files are read.
                self._warehouse.new_matches(read_at, read_at, payload.no_new_matches)
        allowed = self._rules.of(table.namespace, table.main_id)
        reads = tuple(self._checked_read(read, require_read) for read in payload.reads)
        # The guard of the deletes comes first: it must be older than whatever is looked at.
        deletes, guard = self._added.more_deletes(
            table.main_id, allowed, payload.deletes, read_at or table.pointer, since_ms=self._clock()
        )
        added = self._added.taken(
            table.main_id,
            allowed,
            request,
            lists,
            payload.part_locations,
            versions=versions,
            default_schema_id=default_schema_id,
            since_ms=self._clock(),
        )
        if versions.properties.get(HOSTED):
            _require_of_iceberg(added, TableLayout(table.location).blocks, has_deletes=bool(payload.deletes))
        parts = self._parts.of_commit(table.main_id, versions, payload.index_parts, added.keys)

        def answer(result: CommitResult) -> CommitAnswer:
            return CommitAnswer(
                snapshot_id=result.pointer.snapshot_id,
                prev_snapshot_id=result.snapshot.prev_snapshot_id,
                added=result.added,
                removed=result.removed,
                row_count=result.snapshot.summary.row_count,
                block_count=result.snapshot.summary.block_count,
                left_out_parts=left_out_parts(result.snapshot, payload.index_parts, parts),
                changed=result.changed,
            )

        return BlockChange(
            idempotency_key=idempotency_key,
            answer=answer,
            blocks=added.blocks,
            segments=added.segments,
            removed=payload.removed,
            read_at=read_at,
            operation=request.operation,
            properties=request.properties,
            removed_properties=payload.removed_properties,
            index_parts=parts.additions,
            no_new_matches=payload.no_new_matches,
            guard=guard or added.guard,
            only_new=request.take_replaced is not True,
            deletes=deletes,
            row_change=payload.row_change,
            reads=reads,
            schema_update=payload.schema_update,
        )

    def _checked_read(self, read: TableRead, require_read: Callable[[str, str], None]) -> CheckedRead:
        """Return what a commit depends on. Raises InvalidRequest, TableNotFound, PermissionDenied, SnapshotNotFound,
        and the errors of an invalid filter."""
        namespace, name = split_name(read.table)
        require_read(namespace, name)
        record = self._catalog.table(namespace, name)
        pointer = self._history.pointer(record, snapshot_id=read.snapshot_id)
        with trusted_manifests():
            self._warehouse.changed_reads(pointer, pointer, read)
        return CheckedRead(record.table_id, pointer, read)

    def evolve(self, table: TableRecord, request: EvolveRequest, idempotency_key: IdempotencyKey) -> Pending:
        """Change the table's schema in one snapshot, without rewriting blocks or segments.

        If another commit comes first, the changes are applied to its schema, unless ``base_schema_id`` requires another
        one.

        Raises, when awaited: InvalidRequest: no change, or changes without effect. UnknownColumn, InvalidSchema: a
        change that cannot be made; the message names the column. SchemaConflict: the current schema is not
        ``base_schema_id``. NotProven: a column becomes required, or a constraint is added, and a row may violate it.
        """
        with trusted_manifests():
            is_hosted = bool(self._warehouse.head(table.pointer).properties.get(HOSTED))
        if is_hosted and self._evolve_hosted is not None:
            return self._evolve_hosted(table, request, idempotency_key)

        def step(base: SnapshotPointer) -> CommitResult:
            head = self._warehouse.head(base)
            refuse_columns(head.properties)
            for change in request.changes:
                if isinstance(change, AddCheck):
                    refuse_checks(head.properties)
                    check_filter(change, head.schema)
                    self._require_proven(base, change)
            return self._warehouse.evolve(
                base, request.changes, base_schema_id=request.base_schema_id, now_ms=self._clock()
            )

        return self.alone(table, step, lambda result: schema_info(result.snapshot), idempotency_key)

    def _require_proven(self, base: SnapshotPointer, change: AddCheck) -> None:
        """Raise NotProven if a row of a snapshot may violate a new constraint."""
        request = PruneRequest(
            filter=violation(change), time_zone=change.time_zone, reader_features=FEATURES, limit=None
        )
        found = self._warehouse.find(base, request)
        if found.block_count:
            raise NotProven(
                f"{counted(found.block_count, 'block')} may have rows for which {change.condition} is false. Add the"
                " constraint by Table.add_check, `lamella schema add-check` or ALTER TABLE ... ADD CONSTRAINT, which"
                " read these blocks",
                constraint=change.name,
            )

    def alone(
        self,
        table: TableRecord,
        step: Callable[[SnapshotPointer], CommitResult],
        answer: MakeAnswer,
        idempotency_key: IdempotencyKey,
        *,
        required: HistoryEntry | None = None,
        guard: CommitGuard | None = None,
        refs: MakeRefs | None = None,
    ) -> Pending:
        """Queue a commit that has a snapshot of its own, such as a schema change or a rollback.

        ``step`` writes the snapshot that follows a base. It is called again with a newer base if another process
        commits first; its errors are the answer. ``required``: only while this snapshot is in the history. ``guard``:
        made before the objects that the step uses were written, if it uses any. ``refs``: see
        :class:`~lamella.service.commits.queue.Step`.
        """
        change = Step(
            idempotency_key=idempotency_key, answer=answer, step=step, required=required, guard=guard, refs=refs
        )
        return Pending(self._submit(table, change, 0))

    def steps_together(
        self,
        steps: Sequence[TableStep],
        idempotency_key: IdempotencyKey,
        response: MakeResponse,
    ) -> StoredResponse:
        """Commit a snapshot to each of several tables, all or nothing.

        Raises as :meth:`transaction`; the errors of a step count as those of a commit.
        """
        changes = [
            TableChange(
                each.name,
                each.record.table_id,
                Step(idempotency_key=idempotency_key, answer=_result, step=each.step, guard=each.guard, refs=each.refs),
            )
            for each in steps
        ]
        deadline_s = time.monotonic() + begin_within_s(self._deadline_s)
        done = self._transactions.commit(changes, idempotency_key, deadline_s=deadline_s, response=response)
        for change in changes:
            self.note(change.table_id)
        return done

    def evolve_hosted_by(self, evolve: EvolveHosted) -> None:
        """Have the columns of tables of Iceberg clients changed by ``evolve``, as :meth:`evolve` does others."""
        self._evolve_hosted = evolve

    def after_commits(self, note: Callable[[str], None]) -> None:
        """Call ``note`` with the id of a table after each of its commits. It must return at once, and not fail."""
        self._note_commit = note

    def note(self, table_id: str) -> None:
        """Report a commit that was made without this class to :meth:`after_commits`."""
        if self._note_commit is not None:
            self._note_commit(table_id)

    def close(self) -> None:
        """Finish what is waiting, and accept nothing more."""
        self._transactions.close()
        self._queue.close()

    def _submit(self, table: TableRecord, change: BlockChange | Step, blocks: int) -> Future[StoredResponse]:
        deadline_s = time.monotonic() + begin_within_s(self._deadline_s)
        alone = isinstance(change, Step) or change.is_alone
        ended = self._metrics.process.commit_begun()
        entry = self._queue.submit(
            table.table_id,
            change,
            blocks=blocks,
            alone=alone,
            deadline_s=deadline_s,
            span_context=self._traces.here(),
        )
        entry.answered.add_done_callback(lambda _: ended())
        if self._note_commit is not None:
            note = self._note_commit
            entry.answered.add_done_callback(lambda done: note(table.table_id) if _succeeded(done) else None)
        return entry.answered

    def _count_if_done(self, done: Future[StoredResponse], refused: Sequence[RefusedFile]) -> None:
        if _succeeded(done):
            self._file_checker.count(refused)


def _require_of_iceberg(added: Added, folder: str, *, has_deletes: bool) -> None:
    """Raise InvalidRequest for a change of a table of Iceberg clients that Iceberg could not state.

    ``folder``: of the files that Lamella's own writers number as the table does.
    """
    if has_deletes:
        raise InvalidRequest(
            "this is a table of Iceberg clients, where Lamella rewrites blocks with deleted rows: use copy-on-write"
        )
    if added.segments or not all(each.startswith(f"{folder}/") for each in locations_of(added.blocks)):
        raise InvalidRequest("this is a table of Iceberg clients: add other files by one of them (add_files)")


def _result(result: CommitResult) -> CommitResult:
    return result


def _succeeded(done: Future[StoredResponse]) -> bool:
    return not done.cancelled() and done.exception() is None

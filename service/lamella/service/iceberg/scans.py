"""Finds snapshots by their Iceberg ids, and plans scans of Iceberg clients in parts that any replica can serve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Any, Final

import msgspec

from lamella.service.catalog import BranchRecord, Catalog, HistoryEntry, TableRecord
from lamella.service.history.history import trusted_manifests
from lamella.service.iceberg.hosted import HostedTables
from lamella.service.iceberg.hosted_scans import HostedScans
from lamella.snapshot.errors import (
    InvalidPageToken,
    InvalidRequest,
    LimitExceeded,
    NotExpressible,
    PlanTaskNotFound,
    SnapshotExpired,
    SnapshotNotFound,
)
from lamella.snapshot.iceberg.filter import IcebergResiduals, filter_for
from lamella.snapshot.iceberg.metadata import (
    FIRST_OF_BRANCHES,
    PastSnapshot,
    branch_snapshot_id,
    constant_columns,
    described_constants,
    ending_of,
    readable_schemas,
    require_client,
    require_named,
    require_types,
    table_metadata,
)
from lamella.snapshot.iceberg.scan_plan import (
    END,
    MAX_BYTES,
    START,
    FileMembers,
    PlannedBlock,
    PlanTask,
    PlanTasks,
    ScanTaskList,
    blocks_of,
    enough,
    part_sizes,
    ranges,
    spread,
    task_bytes,
    within,
)
from lamella.snapshot.iceberg.wire import MAX_CHARACTERS, PlanTableScan
from lamella.snapshot.manifest import CONSTANTS, DELETES, Snapshot
from lamella.snapshot.prune.paging import Position
from lamella.snapshot.prune.result import PruneResult
from lamella.snapshot.schema import Schema
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import DiffAnswer, DiffRequest, PruneRequest

#: The newest snapshots, which the metadata lists in addition to the tagged ones.
MAX_SNAPSHOTS: Final = 1_000
#: The newest snapshots of each branch, which it lists as well.
_OF_BRANCH: Final = 100


class IcebergHistory:
    """Reads the history for Iceberg clients. Every method blocks on the catalog.

    ``clock`` returns Unix milliseconds; it decides which tags have expired.
    """

    def __init__(self, catalog: Catalog, warehouse: Warehouse, clock: Callable[[], int]) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._clock = clock

    def entry(self, record: TableRecord, number: int) -> HistoryEntry:
        """Return the snapshot with an Iceberg id. Raises InvalidRequest if there is none (any more)."""
        found: HistoryEntry | None = None
        if FIRST_OF_BRANCHES <= number < 2 * FIRST_OF_BRANCHES:
            found = self._catalog.snapshot_ending(record.table_id, ending_of(number))
        elif 1 <= number <= record.version:
            at_most = self._catalog.history(record.table_id, before_seq=number + 1, limit=1)
            found = next((entry for entry in at_most if entry.seq == number), None)
        if found is None:
            raise InvalidRequest(
                f"the table has no snapshot with the id {number}, or it has expired", snapshot_id=number
            )
        return found

    def head(self, entry: HistoryEntry) -> Snapshot:
        """Return a snapshot without its segments."""
        with trusted_manifests():
            return self._warehouse.head(entry.pointer)

    def readable(self, record: TableRecord, head: Snapshot) -> None:
        """Raise NotExpressible for a snapshot of the table that no Iceberg client would read correctly."""
        with trusted_manifests():
            current = self._warehouse.head(record.pointer)
        schemas = readable_schemas(current)
        if head.snapshot_id == current.snapshot_id:
            return
        require_named(head)
        require_types(head.schema, _written_with(head))
        columns, others = constant_columns(head), partial(self._heads_of_branches, record)
        if not columns <= constant_columns(current) and not columns <= described_constants(current, others()):
            raise NotExpressible(
                "the snapshot has constants in other columns than the current one, whose metadata describes partitions"
            )
        if head.summary.deletes_count and not any(each.summary.deletes_count for each in (current, *others())):
            raise NotExpressible(
                "the snapshot has deleted rows that are still in its files, and the current one has none: its metadata "
                "is of a version without deletion vectors",
                features=[DELETES],
            )
        if schemas is None:
            raise NotExpressible(
                "two columns of this table have had the same name, so that only its current snapshot can be read as "
                "Iceberg: files of earlier ones identify columns by name"
            )
        if head.schema.schema_id not in schemas:
            raise NotExpressible("the snapshot has a column that Iceberg has no type for")

    def metadata(self, record: TableRecord, *, only_refs: bool) -> dict[str, Any]:
        """Return the table's metadata. Raises NotExpressible."""
        with trusted_manifests():
            head = self._warehouse.head(record.pointer)
        branches = [] if record.branch_of is not None else self._catalog.branches(record.table_id)
        # The metadata does not list a snapshot that was committed meanwhile.
        tags = self._catalog.tags(record.table_id, now_ms=self._clock())
        own = [tag for tag in tags if tag.table_id == record.table_id and tag.seq <= record.version]
        others = [] if record.branch_of is not None else [tag for tag in tags if tag.table_id != record.table_id]
        before = record.version + 1
        newest = self._catalog.history(record.table_id, before_seq=before, limit=1 if only_refs else MAX_SNAPSHOTS)
        listed = {entry.seq: entry for entry in newest}
        forks = {branch.record.table_id: branch.fork_seq for branch in branches}
        for tag in others:
            if tag.table_id not in forks:  # a branch that was dropped
                forks[tag.table_id] = self._catalog.fork_seq(tag.table_id) or 0
        begun_at = {each.fork_seq for each in branches if each.record.version == each.fork_seq}
        begun_at |= {tag.seq for tag in others if tag.seq == forks[tag.table_id]}
        for seq in sorted({tag.seq for tag in own} | begun_at):
            if seq not in listed:
                listed |= {e.seq: e for e in self._catalog.history(record.table_id, before_seq=seq + 1, limit=1)}
        entries = [listed[seq] for seq in sorted(listed)]
        past = self._past(entries, head.history)
        known = {each.number for each in past}
        of_each = 1 if only_refs else max(1, min(_OF_BRANCH, MAX_SNAPSHOTS // max(1, len(branches))))
        histories = [(each.record.table_id, each.record.version, of_each) for each in branches]
        for table_id, seq, limit in [*histories, *((tag.table_id, tag.seq, 1) for tag in others)]:
            rows = self._catalog.history(table_id, before_seq=seq + 1, limit=limit)
            ours = [entry for entry in reversed(rows) if entry.seq > forks[table_id]]
            for each in self._past(ours, head.history, fork_seq=forks[table_id]):
                if each.number not in known:
                    past.append(each)
                    known.add(each.number)
        numbers = {
            each.name: _number(each.record.pointer.snapshot_id, each.record.version, each.fork_seq) for each in branches
        }
        return table_metadata(
            head,
            past,
            {
                **{tag.name: tag.seq for tag in own},
                **{tag.name: _number(tag.snapshot_id, tag.seq, forks[tag.table_id]) for tag in others},
            },
            current=record.version,
            location=record.location,
            only_refs=only_refs,
            branches=numbers,
            heads=dict(zip(numbers.values(), self._heads(branches), strict=True)),
        )

    def _heads_of_branches(self, record: TableRecord) -> list[Snapshot]:
        """Return the current snapshots of the branches that the metadata of a table has."""
        return [] if record.branch_of is not None else self._heads(self._catalog.branches(record.table_id))

    def _heads(self, branches: Iterable[BranchRecord]) -> list[Snapshot]:
        with trusted_manifests():
            return [self._warehouse.head(each.record.pointer) for each in branches]

    def _past(
        self, entries: Sequence[HistoryEntry], schemas: Sequence[Schema], *, fork_seq: int | None = None
    ) -> list[PastSnapshot]:
        """Return the entries of snapshots of the table, or of a branch that begins at ``fork_seq``."""
        schema_ids = self._schema_ids(entries) if len(schemas) > 1 else [schemas[0].schema_id] * len(entries)
        return [
            PastSnapshot(
                number=entry.seq if fork_seq is None else branch_snapshot_id(entry.pointer.snapshot_id),
                parent=_parent_of(entry, fork_seq),
                sequence=entry.seq,
                timestamp_ms=entry.since_ms,
                operation=entry.operation,
                row_count=entry.row_count,
                block_count=entry.block_count,
                file_size_bytes=entry.file_size_bytes,
                schema_id=schema_id,
            )
            for entry, schema_id in zip(entries, schema_ids, strict=True)
        ]

    def _schema_ids(self, entries: Sequence[HistoryEntry]) -> list[int]:
        """Return the schema id of each.

        Ids only grow in a history, so only snapshots around a change have to be read.
        """
        found = [0] * len(entries)

        def fill(low: int, high: int) -> None:
            if high - low > 1 and found[low] == found[high]:
                found[low + 1 : high] = [found[low]] * (high - low - 1)
            elif high - low > 1:
                middle = (low + high) // 2
                found[middle] = self.head(entries[middle]).schema.schema_id
                fill(low, middle)
                fill(middle, high)

        if entries:
            found[0], found[-1] = (self.head(entries[at]).schema.schema_id for at in (0, -1))
            fill(0, len(entries) - 1)
        return found


def _parent_of(entry: HistoryEntry, fork_seq: int | None) -> int | None:
    """Return the Iceberg id of the snapshot before one of the table, or of a branch that begins at ``fork_seq``."""
    if entry.prev_snapshot_id is None or fork_seq is None:
        return None if entry.prev_snapshot_id is None else entry.seq - 1
    return _number(entry.prev_snapshot_id, entry.seq - 1, fork_seq)


def _written_with(head: Snapshot) -> list[Schema]:
    """Return the schemas that files of a snapshot were written with."""
    return [schema for schema in head.history if schema.schema_id in head.schema_ids_in_use]


def _number(snapshot_id: str, seq: int, fork_seq: int) -> int:
    """Return the Iceberg id of a snapshot of a branch that begins at ``fork_seq``, where it is one of the table."""
    return seq if seq <= fork_seq else branch_snapshot_id(snapshot_id)


#: Most snapshots in an incremental scan.
MAX_STEPS: Final = 1_000
#: Most blocks that one of them adds and removes.
_MAX_CHANGED: Final = 250_000
#: Longest id of a plan that can be fetched again.
_MAX_ID: Final = 2_000
#: What plans express: constants as partitions, deleted rows as deletion vectors.
_FEATURES: Final = (CONSTANTS, DELETES)
#: Operations that replace blocks by others with the same rows.
_SAME_ROWS: Final = frozenset({"analyze", "compact", "purge", "recluster"})

Note = Callable[[TableRecord, PlanTableScan, PruneResult], None]
#: What a prune keeps, what is left of the filter, and what a task takes at most, in bytes.
_Planned = tuple[PruneResult, IcebergResiduals, int]


class _Scan(msgspec.Struct, frozen=True, kw_only=True):
    """A scan of one snapshot; ``spoken``: the schema that its names refer to."""

    entry: HistoryEntry
    head: Snapshot
    spoken: Schema
    spoken_by: str
    request: PlanTableScan


class IcebergScans:
    """Plans scans of tables that the caller may read; every method blocks on the catalog.

    ``note`` is called for each plan of a snapshot.
    """

    def __init__(
        self,
        catalog: Catalog,
        warehouse: Warehouse,
        history: IcebergHistory,
        hosted: HostedTables,
        hosted_scans: HostedScans,
        secret: bytes,
        note: Note,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._history = history
        self._hosted = hosted
        self._hosted_scans = hosted_scans
        self._tasks = PlanTasks(secret)
        self._note = note

    def plan(
        self, record: TableRecord, request: PlanTableScan, max_tests: int | None = None, *, user_agent: str = ""
    ) -> Iterator[bytes]:
        """Return a complete plan as JSON, piece by piece: its first files, and tokens for the others.

        ``user_agent``: the client, as it names itself.

        Raises:
            InvalidRequest: no such snapshot; an invalid filter (its subclasses); a range of snapshots of which one does
                more than add files.
            NotExpressible: no Iceberg client, or not this one, would read the snapshot correctly.
            LimitExceeded: a range of too many snapshots.
            NotNow: it takes more than ``max_tests``.
        """
        table = self._hosted.table(record)
        if table is not None:
            members = self._hosted_scans.plan(record, table, request, max_tests, user_agent=user_agent)
            return self._completed(members, f"{_WITHOUT_ID}{record.pointer.snapshot_id}")
        if request.start_snapshot_id is not None or request.end_snapshot_id is not None:
            return self._incremental(record, request, max_tests, user_agent)
        scan = self._scan_of(record, request)
        require_client(scan.head, user_agent)
        task = self._tasks.first(record.table_id, scan.head.snapshot_id, scan.spoken_by, request)
        return self._completed(self._first(record, scan, task, max_tests), self._plan_id(task))

    def tasks(self, record: TableRecord, token: str, max_tests: int | None = None) -> Iterator[bytes]:
        """Return the files of one part of a plan as JSON.

        Raises PlanTaskNotFound if the token is not of a part for the table, NotNow for more than ``max_tests``.
        """
        task, request = self._read(record, token)
        scan = self._again(record, task, request)
        return _object(self._part(scan, task, self._found(scan, max_tests)))

    def fetched(self, record: TableRecord, plan_id: str, max_tests: int | None = None) -> Iterator[bytes]:
        """Return a plan again. Raises PlanTaskNotFound, NotNow for more than ``max_tests``."""
        task, request = self._read(record, plan_id)
        if (task.start, task.stop) != (START, END):
            raise PlanTaskNotFound("this is a plan task, not a plan id")
        first = self._first(record, self._again(record, task, request), task, max_tests)
        return self._completed(first, plan_id)

    def cancel(self, record: TableRecord, plan_id: str) -> None:
        """Do nothing, since plans have no state. Raises PlanTaskNotFound."""
        if not plan_id.startswith(_WITHOUT_ID):
            self._read(record, plan_id)

    def _scan_of(self, record: TableRecord, request: PlanTableScan) -> _Scan:
        number = record.version if request.snapshot_id is None else request.snapshot_id
        return self._scan_at(record, self._history.entry(record, number), request)

    def _scan_at(self, record: TableRecord, entry: HistoryEntry, request: PlanTableScan) -> _Scan:
        spoken_by = entry.pointer if request.use_snapshot_schema else record.pointer
        head = self._history.head(entry)
        self._history.readable(record, head)
        with trusted_manifests():
            spoken = self._warehouse.head(spoken_by).schema
        if entry.table_id != record.table_id:  # clients read a branch with the columns of its table
            require_types(spoken, _written_with(head))
        return _Scan(entry=entry, head=head, spoken=spoken, spoken_by=spoken_by.snapshot_id, request=request)

    def _again(self, record: TableRecord, task: PlanTask, request: PlanTableScan) -> _Scan:
        """Return the scan that a task is a part of; its names refer to the schema of that time."""
        try:
            entry, spoken_by = (
                self._catalog.snapshot(record.table_id, each) for each in (task.snapshot_id, task.spoken)
            )
        except (SnapshotNotFound, SnapshotExpired) as error:
            raise PlanTaskNotFound("the snapshot of this plan is no longer in the table's history") from error
        head = self._history.head(entry)
        spoken = self._history.head(spoken_by).schema
        return _Scan(entry=entry, head=head, spoken=spoken, spoken_by=task.spoken, request=request)

    def _read(self, record: TableRecord, token: str) -> tuple[PlanTask, PlanTableScan]:
        try:
            task, request = self._tasks.read(token)
        except InvalidPageToken as error:
            raise PlanTaskNotFound("this is not a plan task of this service") from error
        if task.table_id != record.table_id:
            raise PlanTaskNotFound("this plan task belongs to another table")
        return task, request

    def _plan_id(self, task: PlanTask) -> str:
        written = self._tasks.write(task)
        return written if len(written) <= _MAX_ID else f"{_WITHOUT_ID}{task.snapshot_id}"

    def _first(self, record: TableRecord, scan: _Scan, task: PlanTask, max_tests: int | None) -> Iterator[bytes]:
        """Return the whole plan if it is small enough, otherwise its first part."""
        planned = self._found(scan, max_tests)
        found, residuals, each_bytes = planned
        self._note(record, scan.request, found)
        wanted = scan.request.min_rows_requested
        if wanted:
            few = enough(found.parts(), residuals, wanted, part_sizes(each_bytes, 1)[0])
            if few is not None:
                return self._tasks_of(few, scan).members()
        return self._part(scan, task, planned)

    def _part(self, scan: _Scan, task: PlanTask, planned: _Planned) -> Iterator[bytes]:
        found, residuals, each_bytes = planned
        parts = tuple(found.parts())
        token_characters = len(self._tasks.write(task))
        cuts = [(task.start, task.stop)]
        max_tasks, max_tokens = part_sizes(each_bytes, token_characters)
        if token_characters < MAX_CHARACTERS:
            cuts = ranges(parts, task.start, task.stop, max_tasks)
        else:
            _require_few(found.block_count, each_bytes)
        mine = blocks_of(within(parts, *cuts[0]), residuals)
        tokens = [self._token(task, *cut) for cut in spread(cuts[1:], max_tokens)] if len(cuts) > 1 else []
        return self._tasks_of(mine, scan).members(tokens)

    def _tasks_of(self, blocks: Iterable[PlannedBlock], scan: _Scan) -> ScanTaskList:
        tasks = ScanTaskList()
        tasks.add(blocks, scan.head, self._members(scan))
        return tasks

    def _token(self, task: PlanTask, start: Position, stop: Position) -> str:
        return self._tasks.write(msgspec.structs.replace(task, start=start, stop=stop))

    def _found(self, scan: _Scan, max_tests: int | None) -> _Planned:
        """Return the result of the prune, the residual filter, and the largest size of a task in bytes."""
        request, schema = scan.request, scan.head.schema
        sensitive = request.case_sensitive
        filter = filter_for(request.filter, scan.spoken, schema, case_sensitive=sensitive)
        residuals = IcebergResiduals(filter, schema, case_sensitive=sensitive)
        columns = len(scan.spoken.select(request.stats_fields or (), case_sensitive=sensitive))
        with trusted_manifests():
            found = self._warehouse.find_predicate(
                scan.entry.pointer,
                filter.predicate,
                PruneRequest(case_sensitive=sensitive, reader_features=_FEATURES),
                max_tests=max_tests,
            )
        has_deletes = bool(scan.head.summary.deletes_count)
        return found, residuals, task_bytes(filter.size_bytes, columns, has_deletes=has_deletes)

    def _members(self, scan: _Scan) -> FileMembers | None:
        names = scan.request.stats_fields
        if not names:
            return None
        ids = scan.spoken.select(names, case_sensitive=scan.request.case_sensitive)
        pointer = scan.entry.pointer
        return FileMembers(scan.head, ids, lambda row: self._warehouse.blocks_at(pointer, row))

    def _incremental(
        self, record: TableRecord, request: PlanTableScan, max_tests: int | None, user_agent: str
    ) -> Iterator[bytes]:
        start, end = request.start_snapshot_id, request.end_snapshot_id
        if start is None or end is None or request.snapshot_id is not None:
            raise InvalidRequest("give start-snapshot-id and end-snapshot-id, or snapshot-id, or none of them")
        first, last = (self._history.entry(record, each) for each in (start, end))
        if first.seq > last.seq:
            raise InvalidRequest("start-snapshot-id is a later snapshot than end-snapshot-id")
        steps = last.seq - first.seq
        if steps > MAX_STEPS:
            raise LimitExceeded(
                f"an incremental scan reads at most {MAX_STEPS} snapshots",
                limit="changes_snapshots",
                maximum=MAX_STEPS,
            )
        entries = self._catalog.history(last.table_id, before_seq=last.seq + 1, limit=steps + 1)[::-1]
        if [entry.seq for entry in entries] != list(range(first.seq, last.seq + 1)):
            raise InvalidRequest(f"a snapshot between {start} and {end} has expired", snapshot_id=start)
        if entries[0].pointer.snapshot_id != first.pointer.snapshot_id:
            raise InvalidRequest(f"{start} is not in the history of {end}, but of another branch", snapshot_id=start)
        count = 0
        tasks = ScanTaskList()
        for before, after in pairwise(entries):
            appended = self._appended(record, request, before, after, max_tests)
            if appended is None:
                continue
            blocks, scan, each_bytes = appended
            require_client(scan.head, user_agent)
            count += len(blocks)
            _require_few(count, each_bytes)
            tasks.add(blocks, scan.head, self._members(scan))
        return self._completed(tasks.members(), f"{_WITHOUT_ID}{entries[-1].pointer.snapshot_id}")

    def _appended(
        self,
        record: TableRecord,
        request: PlanTableScan,
        before: HistoryEntry,
        after: HistoryEntry,
        max_tests: int | None,
    ) -> tuple[list[PlannedBlock], _Scan, int] | None:
        """Return the blocks that a snapshot added and that may match, and the largest size of the task of one; None if
        there are none."""
        with trusted_manifests():
            change = self._warehouse.diff(
                before.pointer,
                after.pointer,
                DiffRequest(reader_features=_FEATURES),
                max_blocks=_MAX_CHANGED,
                max_tests=max_tests,
            )
        if not change.added or _has_same_rows(after, change):
            return None
        if change.removed:
            raise InvalidRequest(
                f"snapshot {after.seq} ({after.operation}) both adds and removes files, so its new "
                f"rows are unknown: scan "
                "up to the snapshot before it, and from it on",
                snapshot_id=after.seq,
            )
        scan = self._scan_at(record, after, msgspec.structs.replace(request, use_snapshot_schema=False))
        found, residuals, each_bytes = self._found(scan, max_tests)
        added = {block.location for block in change.added}
        blocks = [
            block
            for block in blocks_of(found.parts(), residuals)
            if block.part.sidecar.text_at("location", block.row) in added
        ]
        return (blocks, scan, each_bytes) if blocks else None

    def _completed(self, members: Iterator[bytes], plan_id: str) -> Iterator[bytes]:
        return _object(chain([b'"status":"completed","plan-id":%b,' % msgspec.json.encode(plan_id)], members))


#: Such a plan was answered as a whole, and cannot be fetched again.
_WITHOUT_ID: Final = "answered-"


def _require_few(count: int, each_bytes: int) -> None:
    """Raise LimitExceeded if a plan without parts would have so many files."""
    max_files = MAX_BYTES // max(1, each_bytes)
    if count > max_files:
        raise LimitExceeded(
            f"a plan without parts may have {max_files} files of {each_bytes} bytes each: use a shorter filter, "
            "fewer snapshots or fewer statistics",
            limit="plan_bytes",
            maximum=MAX_BYTES,
        )


def _has_same_rows(after: HistoryEntry, change: DiffAnswer) -> bool:
    """Return whether a snapshot only rewrote rows into other files."""
    if after.operation not in _SAME_ROWS:
        return False
    added, removed = ([block.live_row_count for block in blocks] for blocks in (change.added, change.removed))
    if None in added or None in removed:
        return False
    return sum(filter(None, added)) == sum(filter(None, removed))


def _object(members: Iterable[bytes]) -> Iterator[bytes]:
    yield b"{"
    yield from members
    yield b"}"

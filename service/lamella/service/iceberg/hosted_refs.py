"""Branches and tags in the metadata of Iceberg tables, as branches and tags of Lamella.

A branch stands for the ref of its name: its current snapshot has the files of the ref's. It follows in the transaction
in which a commit makes the metadata current that moves the ref, so readers of both sides see the same. Refs whose names
Lamella does not allow, or which a branch or a tag of Lamella has, are for Iceberg clients only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec
from structlog.typing import FilteringBoundLogger

from lamella.service.catalog import (
    BranchRecord,
    Catalog,
    CommitGuard,
    HistoryEntry,
    NewBranch,
    PointerSwap,
    RefChanges,
    TableRecord,
    TagRecord,
    branch_name,
    branch_record,
)
from lamella.service.commits.queue import MakeRefs
from lamella.service.external.external import External
from lamella.service.history.history import history_entry, trusted_manifests
from lamella.service.iceberg.registered import RegisteredSnapshots, iceberg_branches, iceberg_snapshot_of
from lamella.service.tables.names import Kind, check_name
from lamella.snapshot.errors import (
    CommitConflict,
    InvalidRequest,
    LamellaError,
    SchemaConflict,
    StoreError,
    Unavailable,
)
from lamella.snapshot.iceberg.metadata import MAIN, NAME_MAPPING
from lamella.snapshot.iceberg.table_metadata import Json
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.source import (
    AFTER,
    FIELDS,
    LOCATION,
    READ_ONLY,
    SCHEMAS,
    SNAPSHOT,
    UNREAD,
)
from lamella.snapshot.warehouse import CommitResult, Warehouse

_Found = TypeVar("_Found")

#: How often a commit's files are read before its table is left unread, if the storage fails.
_READING_TRIES: Final = 3
_MAX_REASON: Final = 1_000
#: How many snapshots of a history are looked at for the one that a new branch continues, or that a tag names.
_STEPS: Final = 200
#: Snapshots of a branch in the metadata that a new branch of Lamella may continue.
_ANCESTORS: Final = 1_000
_IS_BRANCH: Final = "it is a branch of an Iceberg table"
_COMPARED: Final = "its files are being compared"
_COLUMN_IDS: Final[tuple[str, ...]] = (FIELDS, SCHEMAS)
_COLUMNS: Final = "the columns of the table cannot be read"
#: The parts of the metadata that the columns of all branches depend on.
_OF_COLUMNS: Final = ("schemas", "current-schema-id")


def read_or_reason(read: Callable[[], _Found]) -> _Found | LamellaError:
    """Return what is read of a commit's files, or why Lamella cannot read them.

    Raises Unavailable: another attempt may succeed.
    """
    for tries_left in reversed(range(_READING_TRIES)):
        try:
            return read()
        except Unavailable:
            raise
        except LamellaError as error:
            if not isinstance(error, StoreError) or not tries_left:  # the storage may only have failed once
                return error
    raise AssertionError  # the last attempt returns


def reason_of(error: LamellaError) -> str:
    """Return why a commit cannot be read, in a sentence; the first refused file stands for all."""
    refused = error.details.get("refused")
    if refused:
        first = refused[0]
        path, reason = (first["path"], first["reason"]) if isinstance(first, Mapping) else (first.path, first.reason)
        return f"{path}: {reason}"[:_MAX_REASON]
    return error.message[:_MAX_REASON] or error.code


def has_other_refs(metadata: Json | None) -> bool:
    """Return whether metadata has branches or tags other than ``main``."""
    return metadata is not None and any(name != MAIN for name in metadata["refs"])


class _Move(NamedTuple):
    """The next snapshot of a branch. ``source``: what a new branch continues; None: ``record`` exists."""

    record: TableRecord
    number: int
    step: Callable[[], CommitResult]
    unread: Callable[[LamellaError], CommitResult]
    guard: CommitGuard
    source: HistoryEntry | None


class _Metadata(NamedTuple):
    """Metadata before and after a commit. ``location``: of the new file. ``rereads``: files may have other columns."""

    before: Json | None
    after: Json
    location: str
    rereads: bool


class HostedRefs:
    """Makes the branches and tags of a table follow its metadata. ``clock`` returns Unix milliseconds."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        warehouse: Warehouse,
        external: External,
        ids: Ids,
        clock: Callable[[], int],
        log: FilteringBoundLogger,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._external = external
        self._ids = ids
        self._clock = clock
        self._log = log
        self._registered = RegisteredSnapshots(catalog, warehouse)

    def following(
        self,
        record: TableRecord,
        head: Snapshot,
        before: Json | None,
        after: Json,
        location: str,
        *,
        rereads: bool,
    ) -> MakeRefs | None:
        """Return what happens to the branches and tags of a table when a metadata file becomes current.

        ``record``, ``head``: the table. ``before``: the current metadata; None: nothing of it is registered.
        ``location``: of the new file. ``rereads``: files without field ids may have other columns than before.

        Raises Unavailable: another attempt may succeed. What is returned raises CommitConflict if a branch has changed
        meanwhile.
        """
        if not (has_other_refs(before) or has_other_refs(after)):
            return None
        metadata = _Metadata(before, after, location, rereads)
        now_ms = self._clock()
        all_branches = {each.name: each for each in self._catalog.branches(record.table_id)}
        known = iceberg_branches(self._catalog, self._warehouse, record.table_id)
        wanted = _refs(after, "branch")
        dropped = {name: branch for name, branch in known.items() if name not in wanted}
        tags = {each.name: each for each in self._catalog.tags(record.table_id, now_ms=now_ms)}
        dropped_tags = self._dropped_tags(tags, metadata)
        taken = (all_branches.keys() - known.keys()) | (tags.keys() - dropped_tags.keys())
        moves: dict[str, _Move] = {}
        stay: dict[int, tuple[str, int]] = {}
        for name, number in wanted.items():
            if name == MAIN or name in taken or not _has_name(record, name):
                continue
            branch = known.get(name)
            if branch is not None and self._is_there(branch, number, head, metadata):
                stay[number] = (branch.record.table_id, branch.record.version)
            else:
                moves[name] = self._move(record, head, branch, name, number, metadata)
        names = (all_branches.keys() - dropped.keys()) | moves.keys() | {MAIN}
        new_tags = {
            name: number
            for name, number in _refs(after, "tag").items()
            if _refs(before, "tag").get(name) != number
            and name not in names
            and name not in tags.keys() - dropped_tags.keys()
            and _is_allowed("tag", name)
        }
        tagged = {
            number: stay[number] if number in stay else self._entry(record, number)
            for number in dict.fromkeys(new_tags.values())
        }
        versions = {each.record.table_id: each.record.version for each in all_branches.values()}
        if not (moves or dropped or dropped_tags or new_tags):
            return None

        def refs(result: CommitResult) -> RefChanges:
            self._require_same(record, versions, result)
            made = {name: self._made(each, result) for name, each in moves.items()}
            at: dict[int, tuple[str, int] | None] = dict(tagged)
            for name, done in made.items():
                if not done.snapshot.properties.get(UNREAD):
                    at[moves[name].number] = (moves[name].record.table_id, moves[name].record.version + 1)
            if not result.snapshot.properties.get(UNREAD) and "current-snapshot-id" in after:
                at[after["current-snapshot-id"]] = (record.table_id, record.version + 1)
            return RefChanges(
                swaps=tuple(_swap(moves[name], made[name]) for name in made if moves[name].source is None),
                created=tuple(self._new(moves[name], made[name]) for name in made if moves[name].source is not None),
                dropped=tuple(each.record.table_id for each in dropped.values()),
                tags=tuple(self._tag(name, *found) for name, number in new_tags.items() if (found := at[number])),
                dropped_tags=tuple(dropped_tags.values()),
                now_ms=self._clock(),
            )

        return refs

    def _is_there(self, branch: BranchRecord, number: int, head: Snapshot, metadata: _Metadata) -> bool:
        """Return whether a branch has the files of its ref, and the columns of its table."""
        before, after = metadata.before, metadata.after
        if before is None or metadata.rereads or any(before.get(each) != after.get(each) for each in _OF_COLUMNS):
            return False
        if before["properties"].get(NAME_MAPPING) != after["properties"].get(NAME_MAPPING):
            return False
        with trusted_manifests():
            own = self._warehouse.head(branch.record.pointer)
        return iceberg_snapshot_of(own) == number and own.history == head.history

    def _move(
        self,
        record: TableRecord,
        head: Snapshot,
        branch: BranchRecord | None,
        name: str,
        number: int,
        metadata: _Metadata,
    ) -> _Move:
        """Return what brings a branch (None: a new one) to an Iceberg snapshot."""
        now_ms = self._clock()
        guard = self._catalog.guard(record.table_id, (), since_ms=now_ms)
        source: HistoryEntry | None = None
        if branch is not None:
            own = branch.record
        else:
            source = self._source(record, number, metadata.after)
            own = branch_record(record, name, str(self._ids.new()), source, now_ms=now_ms)
        with trusted_manifests():
            at = self._warehouse.head(own.pointer)
        seen = _with_columns_of(at, head, metadata.before)
        operation = _operation(metadata.after, number) if iceberg_snapshot_of(at) != number else "update"

        def more(properties: dict[str, str]) -> dict[str, str]:
            columns = {each: properties[each] for each in _COLUMN_IDS if each in properties}
            return {**columns, READ_ONLY: _IS_BRANCH, SNAPSHOT: str(number)}

        def unread(error: LamellaError) -> CommitResult:
            properties = {
                LOCATION: metadata.location,
                AFTER: own.pointer.snapshot_id,
                UNREAD: reason_of(error),
                READ_ONLY: _IS_BRANCH,
                SNAPSHOT: str(number),
            }
            return self._warehouse.commit(own.pointer, operation=operation, properties=properties, now_ms=self._clock())

        read = read_or_reason(
            lambda: self._external.changed_to(
                own,
                seen,
                metadata.location,
                operation,
                more,
                rereads=metadata.rereads,
                snapshot_id=number,
                columns_of=head,
            )
        )
        if isinstance(read, LamellaError):
            error = read
            self._log.info("a branch of an Iceberg table cannot be read", table=own.name, reason=error.message)
            return _Move(own, number, lambda: unread(error), unread, guard, source)
        step, guard = read
        return _Move(own, number, lambda: step(own.pointer), unread, guard, source)

    def _source(self, record: TableRecord, number: int, metadata: Json) -> HistoryEntry:
        """Return the snapshot that a new branch at an Iceberg snapshot continues: its own or an ancestor's, if one is
        registered, otherwise the table's current one. All files are compared with those of that, whatever it is.
        """
        found = self._registered.at(record, number, steps=_STEPS)
        if found is None:
            found = self._registered.newest_of(record, set(_ancestors(metadata, number)), steps=_STEPS)
        return found or self._catalog.snapshot(record.table_id, record.pointer.snapshot_id)

    def _made(self, move: _Move, result: CommitResult) -> CommitResult:
        """Write the snapshot of a branch; ``result``: that of the table, whose columns it has."""
        made = move.step()
        history = made.snapshot.history
        if result.snapshot.history[: len(history)] == history:
            return made
        # They were read while those of the table could not be.
        return move.unread(SchemaConflict(_COLUMNS, schema_id=history[-1].schema_id))

    def _new(self, move: _Move, made: CommitResult) -> NewBranch:
        assert move.source is not None  # noqa: S101  # the caller looked
        source = move.source
        fork_seq = self._catalog.fork_seq(source.table_id)
        own = msgspec.structs.replace(move.record, version=source.seq + 1, pointer=made.pointer)
        branch = BranchRecord(record=own, fork_seq=source.seq if fork_seq is None else fork_seq)
        return NewBranch(branch=branch, source=source, entry=_entry_of(move, made), guard=_guard(move))

    def _require_same(self, record: TableRecord, versions: Mapping[str, int], result: CommitResult) -> None:
        """Raise CommitConflict if the table or one of its branches is not as it was when the files were read."""
        now = {each.record.table_id: each.record.version for each in self._catalog.branches(record.table_id)}
        if now != versions or result.snapshot.prev_snapshot_id != record.pointer.snapshot_id:
            raise CommitConflict(
                "another commit to the table or one of its branches came first",
                blocks=[],
                snapshot_id=record.pointer.snapshot_id,
                snapshot_is="current",
            )

    def _dropped_tags(self, tags: Mapping[str, TagRecord], metadata: _Metadata) -> dict[str, TagRecord]:
        """Return the tags of Lamella that stood for tags in the metadata which are gone, or at another snapshot."""
        found: dict[str, TagRecord] = {}
        after = _refs(metadata.after, "tag")
        for name, number in _refs(metadata.before, "tag").items():
            tag = tags.get(name)
            if after.get(name) != number and tag is not None:
                with trusted_manifests():
                    entry = self._catalog.snapshot(tag.table_id, tag.snapshot_id)
                    if iceberg_snapshot_of(self._warehouse.head(entry.pointer)) == number:
                        found[name] = tag
        return found

    def _entry(self, record: TableRecord, number: int) -> tuple[str, int] | None:
        """Return the table or branch, and the number there, of a registered snapshot."""
        entry = self._registered.at(record, number, steps=_STEPS)
        return None if entry is None else (entry.table_id, entry.seq)

    def _tag(self, name: str, table_id: str, seq: int) -> TagRecord:
        now_ms = self._clock()
        return TagRecord(
            table_id=table_id, name=name, seq=seq, snapshot_id="", timestamp_ms=now_ms, created_at_ms=now_ms
        )


def _refs(metadata: Json | None, kind: str) -> dict[str, int]:
    """Return the snapshots of the branches, or of the tags, of a table."""
    refs = {} if metadata is None else metadata["refs"]
    return {name: ref["snapshot-id"] for name, ref in refs.items() if ref["type"] == kind}


def _is_allowed(kind: Kind, name: str) -> bool:
    try:
        check_name(kind, name)
    except InvalidRequest:
        return False
    return True


def _has_name(record: TableRecord, name: str) -> bool:
    """Return whether Lamella may have a branch of that name of a table."""
    try:
        branch_name(record.name, name)
    except InvalidRequest:
        return False
    return _is_allowed("branch", name)


def _ancestors(metadata: Json, number: int) -> Iterator[int]:
    """Yield the ids of a snapshot and of those before it, as far as the metadata has them."""
    parents = {each["snapshot-id"]: each.get("parent-snapshot-id") for each in metadata["snapshots"]}
    for _ in range(_ANCESTORS):
        if number not in parents:
            return
        yield number
        number = parents[number]


def _operation(metadata: Json, number: int) -> str:
    """Return the operation of an Iceberg snapshot."""
    snapshot = next(each for each in metadata["snapshots"] if each["snapshot-id"] == number)
    return str(snapshot.get("summary", {}).get("operation", "update"))


def _with_columns_of(at: Snapshot, head: Snapshot, before: Json | None) -> Snapshot:
    """Return a branch's snapshot as if it had been made with the columns and the metadata file of its table."""
    number = iceberg_snapshot_of(at)
    others = {name: text for name, text in at.properties.items() if name not in _COLUMN_IDS}
    properties = {
        **others,
        **{name: head.properties[name] for name in (*_COLUMN_IDS, LOCATION) if name in head.properties},
        SNAPSHOT: str(number),
    }
    is_listed = before is not None and any(each["snapshot-id"] == number for each in before["snapshots"])
    if not is_listed:
        properties[UNREAD] = _COMPARED  # so that nothing follows from the metadata before
    return msgspec.structs.replace(at, schema=head.schema, schemas=head.schemas, properties=properties)


def _entry_of(move: _Move, made: CommitResult) -> HistoryEntry:
    return history_entry(move.record.version + 1, made.pointer, made.snapshot)


def _guard(move: _Move) -> CommitGuard:
    return msgspec.structs.replace(move.guard, adds_files=True)


def _swap(move: _Move, made: CommitResult) -> PointerSwap:
    return PointerSwap(
        table_id=move.record.table_id,
        branch_of=move.record.branch_of,
        entry=_entry_of(move, made),
        guard=_guard(move),
    )

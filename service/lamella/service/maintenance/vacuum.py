"""Vacuum: expires snapshots in the catalog, then marks what no snapshot needs, checks again, and deletes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Final

import msgspec

from lamella.service.catalog import BRANCH_SIGN, MAIN, Catalog, DroppedTable, HistoryEntry, SweepMark, TableRecord
from lamella.service.catalog.snapshots import LEASE_GRACE_MS
from lamella.service.history.history import trusted_manifests
from lamella.service.http.page_token import PageTokens, no_token
from lamella.service.maintenance.iceberg_files import ICEBERG_FOLDER, IcebergFiles, NamedFiles
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import BranchNotFound, InvalidRequest, ManifestError, ObjectNotFound, StoreError
from lamella.snapshot.manifest import Block, SnapshotPointer
from lamella.snapshot.source import HOSTED, KIND, LOCATION, VERSION
from lamella.snapshot.storage import AllLocations, AllowedLocations, ListedObject, Store
from lamella.snapshot.vacuum import (
    BlockSet,
    ClassifiedObject,
    Decision,
    LiveSet,
    Retention,
    Tally,
    decide,
    duration_ms,
    judged,
    object_name,
    read_retention,
    versions,
)
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import LeftObject, ObjectCount, SnapshotDecision, VacuumAnswer, VacuumRequest

#: Most objects named in one answer; the others are only counted.
NAMED: Final = 20
_OF: Final = "this table's vacuum"


class VacuumReport:
    """Counts during a clean-up."""

    def __init__(self, *, executed: bool, before_ms: int) -> None:
        self._executed = executed
        self._before_ms = before_ms
        self._garbage: dict[str, Tally] = {}
        self._others = {"live": Tally(), "young": Tally(), "unknown": Tally()}
        self._unknowns: list[str] = []
        self._left: list[LeftObject] = []
        self.fates: tuple[SnapshotDecision, ...] = ()
        self.tables: list[str] = []

    def count_used(self, found: ClassifiedObject) -> None:
        """Count an object that is in use."""
        self._others[found.verdict] = self._others[found.verdict].plus(found.size_bytes)
        if found.verdict == "unknown" and len(self._unknowns) < NAMED:
            self._unknowns.append(found.location)

    def count_deleted(self, kind: str, size_bytes: int) -> None:
        """Count an object that was deleted, or would be."""
        self._garbage[kind] = self._garbage.get(kind, Tally()).plus(size_bytes)

    def note_left(self, location: str, reason: str) -> None:
        """Report an object that nothing uses and that is not deleted."""
        if len(self._left) < NAMED:
            self._left.append(LeftObject(location=location, reason=reason))

    def decided(self, decisions: tuple[Decision, ...], expired: set[int] | None, branch: str | None = None) -> None:
        """Report the decision for each snapshot of a branch (None: ``main``); ``expired``: those that were expired
        (None: dry run).
        """
        fates = list(self.fates)
        for decision in decisions:
            expires, reason = decision.expires, decision.reason
            if expired is not None and expires and decision.version.seq not in expired:
                expires, reason = False, "tagged, leased or expired meanwhile"
            version = decision.version
            fates.append(
                SnapshotDecision(
                    snapshot_id=version.snapshot_id,
                    timestamp_ms=version.timestamp_ms,
                    expires=expires,
                    reason=reason,
                    branch=branch,
                )
            )
        self.fates = tuple(fates)

    def answer(self, *, next_page_token: str | None) -> VacuumAnswer:
        """Return the answer; without a token this was the last part."""
        return VacuumAnswer(
            executed=self._executed,
            before_ms=self._before_ms,
            snapshots=self.fates,
            garbage={kind: _count(tally) for kind, tally in sorted(self._garbage.items())},
            live=_count(self._others["live"]),
            young=_count(self._others["young"]),
            unknown=_count(self._others["unknown"]),
            unknowns=tuple(self._unknowns),
            left=tuple(self._left),
            tables=tuple(self.tables),
            next_page_token=next_page_token,
        )


def write_token(tokens: PageTokens, location: str, folder: str) -> str:
    """Return the token for the part after a location in a folder."""
    return tokens.write(location.encode(), _OF, folder)


def read_token(tokens: PageTokens, token: str, folder: str) -> str:
    """Return the location after which a part starts.

    Raises InvalidPageToken for an invalid token, or another folder's.
    """
    location = tokens.read(token, _OF, folder).decode("utf-8", "replace")
    if not location.startswith(folder + "/"):
        raise no_token(_OF)
    return location


def _count(tally: Tally) -> ObjectCount:
    return ObjectCount(**msgspec.structs.asdict(tally))


_UNNAMED: Final = "its manifest is missing, so the external files of this snapshot alone are unknown; they stay"
_OUTSIDE: Final = "the table may not use its location (any more), so the file is not the table's to delete"
_NOT_REGISTERED: Final = "it is unknown whether this is the file that was committed"
_NAMED_BY_OTHERS: Final = "the Iceberg metadata of another table names files in it"
_FOLLOWED: Final = "the table follows a source, whose files do not belong to Lamella; they stay"


class ExternalBlocks:
    """Looks at the blocks of every table, since a file may be registered in several."""

    def __init__(self, catalog: Catalog, warehouse: Warehouse, store: Store, iceberg: IcebergFiles) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._iceberg = iceberg

    def needed(self, *, without: AbstractSet[str] = frozenset()) -> BlockSet:
        """Return the blocks of all snapshots of all tables, except those snapshots; dropped tables count until their
        purge.

        Raises:
            ManifestError, HashMismatch, UnsupportedFormat, StoreError: one of them cannot be read.
        """
        tables = self._catalog.tables_with_files()

        def is_expired(pointer: SnapshotPointer) -> bool:
            return all(
                entry.pointer != pointer for table_id in tables for entry in self._catalog.whole_history(table_id)
            )

        found = BlockSet(self._warehouse, is_expired)
        for table_id in tables:
            pointers = (entry.pointer for entry in self._catalog.whole_history(table_id))
            found.add(pointer for pointer in pointers if pointer.snapshot_id not in without)
        return found

    def of(
        self,
        table_id: str,
        gone: Sequence[HistoryEntry],
        allowed: AllowedLocations,
        report: VacuumReport,
        *,
        without: AbstractSet[str],
        now_ms: int,
        half_deleted: bool = False,
        purged: TableRecord | None = None,
    ) -> list[SweepMark]:
        """Return the files that only the snapshots ``gone`` use and that are still the registered files.

        Files outside of ``allowed`` stay. ``half_deleted``: an earlier part condemned these files and then deleted some
        of the snapshots' manifests. ``purged``: the table, if the files of its Iceberg clients are deleted with it.

        Raises as :meth:`needed`.
        """
        if not gone:
            return []
        needed = self.needed(without=without)
        in_metadata = self._iceberg.of_others(table_id, now_ms)
        deletion_marks: dict[str, SweepMark] = {}
        for block in self._blocks(gone, needed, None if half_deleted else report, with_iceberg=purged is not None):
            is_used = block.location in needed or block.location in in_metadata
            if is_used or block.location in deletion_marks or self._is_inside(block.location):
                continue
            reason = self._changed(block) if allowed.allows(block.location) else _OUTSIDE
            if reason is None:
                deletion_marks[block.location] = SweepMark(
                    location=block.location,
                    table_id=table_id,
                    kind="external",
                    size_bytes=block.file_size,
                    marked_at_ms=now_ms,
                )
            elif reason:
                report.note_left(block.location, reason)
        named = NamedFiles(set(), set())
        if purged is not None:
            with suppress(ObjectNotFound):  # an earlier part has deleted metadata, and the files before it
                named = self._iceberg.of(purged)
        for location in sorted((named.data | named.others) - deletion_marks.keys() - in_metadata):
            if location in needed or self._is_inside(location):
                continue
            if location in named.data:
                report.note_left(location, _NOT_REGISTERED)
            elif not allowed.allows(location):
                report.note_left(location, _OUTSIDE)
            else:
                with suppress(ObjectNotFound):
                    size_bytes = self._store.stat(location).size_bytes
                    deletion_marks[location] = SweepMark(
                        location=location,
                        table_id=table_id,
                        kind="external",
                        size_bytes=size_bytes,
                        marked_at_ms=now_ms,
                    )
        return list(deletion_marks.values())

    def _blocks(
        self, gone: Sequence[HistoryEntry], needed: BlockSet, report: VacuumReport | None, *, with_iceberg: bool
    ) -> Iterable[Block]:
        seen: set[str] = set()
        for entry in gone:
            try:
                properties = self._warehouse.head(entry.pointer).properties
                if KIND in properties and not (with_iceberg and properties.get(HOSTED)):
                    if report is not None:
                        report.note_left(entry.pointer.manifest.location, _FOLLOWED)
                    continue
                for ref in needed.others(entry.pointer):
                    if ref.segment_id not in seen:
                        yield from self._warehouse.segment(ref).blocks
                        seen.add(ref.segment_id)
            except ObjectNotFound:
                # It is out of the history, so another clean-up may delete it at any time.
                if report is not None:
                    report.note_left(entry.pointer.manifest.location, _UNNAMED)

    def _is_inside(self, location: str) -> bool:
        """Return whether a location is in the warehouse: the clean-ups of tables handle those files."""
        return location.startswith(self._warehouse.table_location(""))

    def _changed(self, block: Block) -> str | None:
        """Return why the file must stay; None: it may be deleted; empty: it is deleted already."""
        if block.content_id is None:
            return "it is unknown whether this is the file that was registered"
        try:
            stat = self._store.stat(block.location)
        except ObjectNotFound:
            return ""
        if stat.content_id != block.content_id:
            return "another file has replaced the registered one"
        return None


#: Most objects in one delete request to the store.
BATCH: Final = 1_000
_EXTERNAL: Final = "external"
_ICEBERG: Final = "iceberg"


class Sweep:
    """One table's deletions in one part of a clean-up; without ``execute`` they are only counted.

    ``root``: its folder. ``removal_scheduled``: it is a dropped table, of which nothing is in use. ``newest_ms``: the
    latest time in the names of the condemned objects. ``young``: some object was too young to be judged.
    """

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        metrics: Metrics,
        external: ExternalBlocks,
        iceberg: IcebergFiles,
        allowed: AllowedLocations,
        table_id: str,
        report: VacuumReport,
        *,
        root: str,
        execute: bool,
        removal_scheduled: bool,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._metrics = metrics
        self._external = external
        self._iceberg = iceberg
        self._allowed = allowed
        self._report = report
        self._root = root
        self._execute = execute
        self._is_removed = removal_scheduled
        self.table_id = table_id
        self.newest_ms = 0
        self.young = False

    def mark_for_deletion(self, objects: Sequence[SweepMark]) -> None:
        """Mark objects for deletion; no commit uses them after this."""
        if not self._execute:
            for one in objects:
                self._report.count_deleted(one.kind, one.size_bytes)
        elif objects:
            self._catalog.mark_for_deletion(self.table_id, objects, watermark_ms=self.newest_ms)

    def finish(self, live: LiveSet, now_ms: int) -> bool:
        """Delete everything that is condemned, also by an earlier part that was interrupted; True if all of it is
        deleted.

        The set of used objects is read again first: it has every commit that became current before the objects were
        condemned, and no later commit can use one of them.
        """
        if not self._execute:
            return True
        if not self._is_removed:
            live.add(entry.pointer for entry in _all_entries(self._catalog, self.table_id))
        blocks: BlockSet | None = None
        in_metadata: set[str] | None = None
        clean = True
        for batch in self._batches():
            if blocks is None and any(one.kind == _EXTERNAL for one in batch):
                blocks = self._external.needed()
            if in_metadata is None and any(one.kind in (_EXTERNAL, _ICEBERG) for one in batch):
                in_metadata = self._iceberg.of_others(self.table_id, now_ms)
            removal_scheduled = {
                one.location: one
                for one in batch
                if one.location not in (in_metadata or ()) and not self._is_needed(one, live, blocks)
            }
            failed = self._store.delete_many(removal_scheduled)
            for location, reason in failed.items():
                clean = False
                self._report.note_left(location, reason)
            for location, one in removal_scheduled.items():
                if location not in failed:
                    self._report.count_deleted(one.kind, one.size_bytes)
                    self._metrics.vacuumed(one.kind, one.size_bytes)
            done = [one.location for one in batch if one.location not in failed]
            self._catalog.unmark(self.table_id, done)
        return clean

    def _is_needed(self, one: SweepMark, live: LiveSet, blocks: BlockSet | None) -> bool:
        if one.kind == _EXTERNAL:
            # Location rules may have changed since it was condemned.
            return blocks is None or one.location in blocks or not self._allowed.allows(one.location)
        if one.kind == _ICEBERG:
            return not one.location.startswith(f"{self._root}/{ICEBERG_FOLDER}/")
        name = object_name(self._root, one.location)
        return name is None or live.holds(
            name, one.location
        )  # files outside of the folder are not this table's to delete

    def _batches(self) -> Iterator[list[SweepMark]]:
        after = ""
        while batch := self._catalog.deletion_marks(self.table_id, after=after, limit=BATCH):
            yield batch
            after = batch[-1].location


#: A part ends after about this time, not counting the time for reading snapshots.
PART_S: Final = 10.0


class Vacuum:
    """Cleans up tables, part by part.

    ``min_age_ms``: younger objects are never deleted; must be longer than any commit or job takes. ``max_objects``:
    objects in one part, if the request does not say.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        warehouse: Warehouse,
        store: Store,
        metrics: Metrics,
        clock: Callable[[], int],
        retention: Retention,
        min_age_ms: int,
        drop_grace_ms: int,
        max_objects: int,
        locations_of: Callable[[TableRecord], AllowedLocations] = lambda _: AllLocations(),
        tokens: PageTokens | None = None,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._retention = retention
        self._min_age_ms = min_age_ms
        self._drop_grace_ms = drop_grace_ms
        self._max_objects = max_objects
        self._timer = timer
        self._iceberg = IcebergFiles(catalog, warehouse, store, locations_of)
        self._external = ExternalBlocks(catalog, warehouse, store, self._iceberg)
        self._locations_of = locations_of
        self._tokens = PageTokens() if tokens is None else tokens

    def vacuum(self, record: TableRecord, request: VacuumRequest) -> VacuumAnswer:
        """Do one part of the clean-up of a table with all its branches; ``record`` is the table or one of them.

        Raises:
            InvalidRequest: an invalid age or number, or a table that is not in this warehouse.
            InvalidPageToken: the token is invalid, or of another table.
            ManifestError, StoreError: the objects in use cannot be determined; nothing was deleted in this part.
        """
        record = self._main(record)
        root = self._owned(record)
        now_ms = self._clock()
        report = VacuumReport(executed=request.execute, before_ms=now_ms - self._min_age_ms)
        behind = None if request.page_token is None else read_token(self._tokens, request.page_token, root)
        if behind is None and request.execute:
            self._end_branches(record, now_ms)
        branches = [each.record for each in self._catalog.branches(record.table_id)]
        gone: list[HistoryEntry] = []
        is_enabled = True
        listed = self._of_iceberg(record)
        for head in (record, *branches):
            entries = self._catalog.whole_history(head.table_id)
            retention, decisions = self._decide(
                head, entries, request, now_ms, others=(record, *branches), listed=listed
            )
            going = {decision.version.seq for decision in decisions if decision.expires}
            if behind is None:
                if request.execute and going:
                    going = set(self._catalog.expire_snapshots(head.table_id, sorted(going), now_ms=now_ms))
                    self._metrics.snapshots_expired.inc(len(going))
                branch = head.name.partition(BRANCH_SIGN)[2] or None
                report.decided(decisions, going if request.execute else None, branch)
            gone += [entry for entry in entries if entry.seq in going]
            is_enabled = retention.enabled if head is record else is_enabled
        if not is_enabled:
            return report.answer(next_page_token=None)
        sweep = self._sweep(record, report, request, removal_scheduled=False)
        live = self._live(record.table_id)
        with trusted_manifests():
            going_rows = {(entry.table_id, entry.seq) for entry in gone}
            stays = [
                entry
                for entry in _all_entries(self._catalog, record.table_id)
                if request.execute or (entry.table_id, entry.seq) not in going_rows
            ]
            live.add(entry.pointer for entry in stays)
            if request.include_external_blocks and behind is None:
                without: set[str] = set()
                if not request.execute:
                    left_ids = {entry.pointer.snapshot_id for entry in stays}
                    without = {entry.pointer.snapshot_id for entry in gone} - left_ids
                allowed = self._locations_of(record)
                deletion_marks = self._external.of(
                    record.table_id, gone, allowed, report, without=without, now_ms=now_ms
                )
                sweep.mark_for_deletion(deletion_marks)
            behind = self._look(root, behind, live, sweep, report, request)
            sweep.finish(live, now_ms)
        return report.answer(next_page_token=None if behind is None else write_token(self._tokens, behind, root))

    def preview_decisions(self, record: TableRecord, entries: Sequence[HistoryEntry]) -> tuple[Decision, ...]:
        """Return what a clean-up would decide now on each snapshot of a table's history; changes nothing.

        Raises InvalidRequest (a retention property), ManifestError, StoreError, Unavailable.
        """
        main = self._main(record)
        others = (main, *(each.record for each in self._catalog.branches(main.table_id)))
        listed = self._of_iceberg(main)
        return self._decide(record, entries, VacuumRequest(), self._clock(), others=others, listed=listed)[1]

    def purge_dropped(self, request: VacuumRequest) -> VacuumAnswer:
        """Do one part of the clean-up of dropped tables whose grace period is over. Raises as :meth:`vacuum`."""
        if request.older_than is not None or request.page_token is not None:
            raise InvalidRequest(
                "dropped tables are purged after their grace period; older_than and page_token have no meaning here"
            )
        now_ms = self._clock()
        report = VacuumReport(executed=request.execute, before_ms=now_ms - self._min_age_ms)
        dropped_before_ms = now_ms - self._drop_grace_ms
        left_over = False
        for found in self._catalog.dropped_before(dropped_before_ms):
            record = found.record
            root = self._owned(record)
            active_leases = self._catalog.leases(record.table_id, now_ms=now_ms - LEASE_GRACE_MS)
            if active_leases and not found.removal_scheduled:
                report.note_left(root, f"leased by {', '.join(sorted({lease.owner for lease in active_leases}))}")
                continue
            if request.execute and not self._catalog.schedule_removal(
                record.table_id, dropped_before_ms=dropped_before_ms, now_ms=now_ms
            ):
                continue  # it was undropped meanwhile
            report.tables.append(record.table_id)
            sweep = self._sweep(record, report, request, removal_scheduled=True)
            live = self._live(record.table_id)
            if request.include_external_blocks:
                with trusted_manifests():
                    gone = _all_entries(self._catalog, record.table_id)
                    without = {entry.pointer.snapshot_id for entry in gone}
                    external = self._external.of(
                        record.table_id,
                        gone,
                        self._locations_of(record),
                        report,
                        without=without,
                        now_ms=now_ms,
                        half_deleted=found.removal_scheduled,
                        purged=record if found.is_purged else None,
                    )
                    sweep.mark_for_deletion(external)
            try:
                is_last = self._look_at_iceberg(found, root, sweep, report, request, now_ms)
            except (ManifestError, StoreError) as error:
                report.note_left(root, f"it is unknown which files Iceberg clients use: {error.message}")
                continue
            if is_last is not True:
                left_over = left_over or is_last is None
                sweep.finish(live, now_ms)
                continue
            behind = self._look(root, None, live, sweep, report, request)
            clean = sweep.finish(live, now_ms)
            if behind is not None:
                left_over = True
                continue
            if request.execute and clean and not sweep.young:
                self._catalog.forget_table(record.table_id)
        # The token only says that there is more; this request accepts none.
        return report.answer(next_page_token=write_token(self._tokens, "", "dropped") if left_over else None)

    def _main(self, record: TableRecord) -> TableRecord:
        """Return the table that a branch belongs to, or the table itself."""
        return record if record.branch_of is None else self._catalog.table_by_id(record.branch_of)

    def _end_branches(self, record: TableRecord, now_ms: int) -> None:
        """Drop the branches of a table that had no commit for too long, and forget those that were dropped."""
        for each in self._catalog.branches(record.table_id):
            last_ms = max(each.record.pointer.timestamp_ms, each.record.created_at_ms)
            if each.max_idle_ms is not None and last_ms + each.max_idle_ms <= now_ms:
                with suppress(BranchNotFound):  # dropped meanwhile
                    self._catalog.drop_branch(each.record, now_ms=now_ms)
        # Readers that got blocks before the drop may still read them.
        grace_ms = max(self._drop_grace_ms, self._min_age_ms)
        for head in self._catalog.dropped_branches(record.table_id, before_ms=now_ms - grace_ms):
            seqs = [entry.seq for entry in self._catalog.whole_history(head)]
            self._catalog.expire_snapshots(head, seqs, now_ms=now_ms)
            self._catalog.forget_branch(head, now_ms=now_ms)

    def _look_at_iceberg(
        self, found: DroppedTable, root: str, sweep: Sweep, report: VacuumReport, request: VacuumRequest, now_ms: int
    ) -> bool | None:
        """Mark the files of Iceberg clients in a dropped table's folder, if it is purged.

        Returns True if the table's own objects may go now; until then they stay, since they tell that the table is one
        of Iceberg clients. False: a later run may go on; None: the next part of this one.

        Raises ManifestError, StoreError: it is unknown which files other tables use.
        """
        try:
            if self._iceberg.metadata_file(found.record) is None:
                return True
        except (ObjectNotFound, ManifestError):  # an earlier part has come to the table's own objects, or it is damaged
            return True
        used = {each for each in self._iceberg.of_others(sweep.table_id, now_ms) if each.startswith(f"{root}/")}
        if used:
            report.note_left(root, _NAMED_BY_OTHERS)
        if not found.is_purged:
            return not used
        deadline_s, before_ms, limit = self._timer() + PART_S, now_ms - self._min_age_ms, self._object_limit(request)
        marks: list[SweepMark] = []
        is_young = False
        for each in self._store.list(f"{root}/{ICEBERG_FOLDER}/"):
            # Without progress, the next part would end at the same place.
            if request.execute and marks and (len(marks) >= limit or self._timer() > deadline_s):
                sweep.mark_for_deletion(marks)
                return None
            if each.location in used:
                continue
            if each.modified_ms >= before_ms:
                is_young = True
                continue
            marks.append(
                SweepMark(
                    location=each.location,
                    table_id=sweep.table_id,
                    kind=_ICEBERG,
                    size_bytes=each.size_bytes,
                    marked_at_ms=now_ms,
                )
            )
        sweep.mark_for_deletion(marks)
        return not used and not is_young

    def _live(self, table_id: str) -> LiveSet:
        def is_expired(pointer: SnapshotPointer) -> bool:
            return all(entry.pointer != pointer for entry in _all_entries(self._catalog, table_id))

        return LiveSet(self._warehouse, self._warehouse.table_location(table_id), is_expired)

    def _sweep(
        self, record: TableRecord, report: VacuumReport, request: VacuumRequest, *, removal_scheduled: bool
    ) -> Sweep:
        return Sweep(
            self._catalog,
            self._store,
            self._metrics,
            self._external,
            self._iceberg,
            self._locations_of(record),
            record.table_id,
            report,
            root=self._warehouse.table_location(record.table_id),
            execute=request.execute,
            removal_scheduled=removal_scheduled,
        )

    def _look(
        self,
        root: str,
        behind: str | None,
        live: LiveSet,
        sweep: Sweep,
        report: VacuumReport,
        request: VacuumRequest,
    ) -> str | None:
        """Judge the objects in the folder; return the last location looked at, None at the folder's end."""
        max_objects = self._object_limit(request)
        deadline_s = self._timer() + PART_S
        before_ms = self._clock() - self._min_age_ms
        last: str | None = None
        ended = True

        def listed() -> Iterator[ListedObject]:
            nonlocal last, ended
            for number, found in enumerate(self._store.list(root + "/", start_after=behind)):
                if number == max_objects or (number and self._timer() > deadline_s):
                    ended = False
                    return
                last = found.location
                yield found

        garbage = []
        for found in judged(listed(), root, live, before_ms=before_ms):
            if found.verdict != "garbage" or found.name is None:
                report.count_used(found)
                sweep.young = sweep.young or found.verdict == "young"
                continue
            garbage.append(
                SweepMark(
                    location=found.location,
                    table_id=sweep.table_id,
                    kind=found.name.kind,
                    size_bytes=found.size_bytes,
                    marked_at_ms=self._clock(),
                )
            )
            sweep.newest_ms = max(sweep.newest_ms, found.name.made_ms)
        sweep.mark_for_deletion(garbage)
        return None if ended else last

    def _object_limit(self, request: VacuumRequest) -> int:
        if request.max_objects is None:
            return self._max_objects
        if not 1 <= request.max_objects <= self._max_objects:
            raise InvalidRequest(
                f"max_objects must be a number from 1 to {self._max_objects}, not {request.max_objects}"
            )
        return request.max_objects

    def _decide(
        self,
        record: TableRecord,
        entries: Sequence[HistoryEntry],
        request: VacuumRequest,
        now_ms: int,
        *,
        others: Sequence[TableRecord],
        listed: AbstractSet[str],
    ) -> tuple[Retention, tuple[Decision, ...]]:
        """Return the decisions on the snapshots of a table or branch.

        ``others``: the branches of the table. ``listed``: the snapshots in its Iceberg metadata.
        """
        with trusted_manifests():
            properties = self._warehouse.head(record.pointer).properties
        retention = read_retention(properties, self._retention)
        if request.older_than is not None:
            older_ms = duration_ms(request.older_than)
            retention = Retention(max_age_ms=older_ms, min_snapshots=retention.min_snapshots, enabled=retention.enabled)
        # Nothing that was current within the minimum age: readers that got its blocks may still read them.
        retention = Retention(
            max_age_ms=max(retention.max_age_ms, self._min_age_ms),
            min_snapshots=retention.min_snapshots,
            enabled=retention.enabled,
        )
        tags = _by_snapshot((tag.snapshot_id, tag.name) for tag in self._catalog.tags(record.table_id, now_ms=now_ms))
        for snapshot_id in self._with_files_of(entries, listed):
            tags = {**tags, snapshot_id: [*tags.get(snapshot_id, ()), "a snapshot in the Iceberg metadata"]}
        for other in others:
            # A fast-forward needs it, to see that one continues the other.
            if other.table_id != record.table_id:
                current = other.pointer.snapshot_id
                name = other.name.partition(BRANCH_SIGN)[2] or MAIN
                tags = {**tags, current: [*tags.get(current, ()), f"of branch {name}"]}
        active_leases = self._catalog.leases(record.table_id, now_ms=now_ms - LEASE_GRACE_MS)
        history = versions((e.seq, e.pointer.snapshot_id, e.since_ms, e.until_ms) for e in entries)
        leases = _by_snapshot((lease.snapshot_id, lease.owner) for lease in active_leases)
        return retention, decide(history, retention, tags=tags, leases=leases, now_ms=now_ms)

    def _of_iceberg(self, main: TableRecord) -> set[str]:
        """Return the Iceberg snapshots in the metadata of a table of Iceberg clients; of other tables, none."""
        with trusted_manifests():
            properties = self._warehouse.head(main.pointer).properties
        if not properties.get(HOSTED):
            return set()
        metadata = msgspec.json.decode(self._store.read(properties[LOCATION]), type=_Listed)
        return {str(each.snapshot_id) for each in metadata.snapshots}

    def _with_files_of(self, entries: Sequence[HistoryEntry], listed: AbstractSet[str]) -> list[str]:
        """Return the snapshots of a table or branch that have the blocks of Iceberg snapshots: these are in use."""
        if not listed:
            return []
        with trusted_manifests():
            found = ((entry, self._warehouse.head(entry.pointer).properties.get(VERSION, "")) for entry in entries)
            return [entry.pointer.snapshot_id for entry, version in found if version.rpartition("#")[2] in listed]

    def _owned(self, record: TableRecord) -> str:
        """Return the table's folder, which must be the one that this warehouse gives it."""
        root = self._warehouse.table_location(record.table_id)
        if record.location != root or not record.table_id or "/" in record.table_id:
            raise InvalidRequest(
                f"table '{record.namespace}.{record.name}' is at {record.location}, which is not its folder in this "
                "warehouse; nothing is deleted there",
                location=record.location,
            )
        return root


def _all_entries(catalog: Catalog, table_id: str) -> list[HistoryEntry]:
    """Return the snapshots of a table and of its branches, also of branches that were dropped."""
    return [entry for head in catalog.heads(table_id) for entry in catalog.whole_history(head)]


class _ListedSnapshot(msgspec.Struct, rename="kebab"):
    snapshot_id: int


class _Listed(msgspec.Struct):
    """The snapshots of an Iceberg table's metadata."""

    snapshots: list[_ListedSnapshot] = []


def _by_snapshot(pairs: Iterator[tuple[str, str]]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for snapshot_id, name in pairs:
        found.setdefault(snapshot_id, []).append(name)
    return found

"""Group commit: changes of a table are merged into one snapshot, made current by one swap, and answered one by one.

The appends of a group share segments, since a segment for every small append would cost more than the rest of the
commit. A change that cannot be made is refused alone. If another process swapped the pointer first, the group is merged
again on the winner's snapshot, with the segments that were written already.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

import msgspec

from lamella.service.catalog import Catalog, CommitGuard, HistoryEntry, RefChanges, TableRecord, main_name
from lamella.service.commits.queue import BlockChange, Entry, Step
from lamella.service.history.history import history_entry, trusted_manifests
from lamella.service.http.idempotency import StoredResponse, replay_of
from lamella.service.telemetry.metrics import Metrics
from lamella.service.telemetry.tracing import Traces
from lamella.snapshot.errors import (
    IdempotencyMismatch,
    LamellaError,
    OutcomeUnknown,
    QuotaExceeded,
    SchemaConflict,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
    Unavailable,
)
from lamella.snapshot.manifest import SegmentRef, SnapshotPointer
from lamella.snapshot.manifest.block_arrays import BlockSequence, joined_blocks, locations_of
from lamella.snapshot.source import refuse_nulls, refuse_unwritable
from lamella.snapshot.warehouse import ChangeSet, CommitResult, Warehouse

Waiting = Entry[BlockChange | Step, StoredResponse]


class SharedSegments:
    """Writes the segments that the changes of a group share."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._written: dict[tuple[int, ...], tuple[SegmentRef, ...]] = {}

    def change_sets(
        self, base: SnapshotPointer, group: Sequence[Waiting]
    ) -> tuple[list[ChangeSet], list[list[Waiting]]]:
        """Return the change sets to apply to ``base``, and for each the entries that it contains.

        Appends that cannot fail on ``base`` share the first change set. Any other change has its own, so that it can be
        refused alone.
        """
        shared, own = self._sorted(base, group)
        members = [shared] if shared else []
        members += [[entry] for entry in own]
        return [self._change_set(base, entries) for entries in members], members

    def _sorted(self, base: SnapshotPointer, group: Sequence[Waiting]) -> tuple[list[Waiting], list[Waiting]]:
        plain = [entry for entry in group if _change(entry).is_plain_append]
        if len(plain) < 2:
            return [], list(group)
        named = [location for entry in plain for location in locations_of(_change(entry).blocks)]
        taken = self._warehouse.has_blocks(base, named)
        new = joined_blocks([_change(entry).blocks for entry in plain if _change(entry).only_new])
        replaced = self._warehouse.coming_back(base, new)
        safe: set[int] = set()
        for entry in plain:
            locations = locations_of(_change(entry).blocks)
            comes_back = _change(entry).only_new and not replaced.isdisjoint(locations)
            if len(set(locations)) == len(locations) and taken.isdisjoint(locations) and not comes_back:
                taken.update(locations)
                safe.add(id(entry))
        return [entry for entry in group if id(entry) in safe], [entry for entry in group if id(entry) not in safe]

    def _change_set(self, base: SnapshotPointer, entries: Sequence[Waiting]) -> ChangeSet:
        first = _change(entries[0])
        return ChangeSet(
            added=first.segments or self._segments(base, entries),
            removed=first.removed,
            read_at=first.read_at,
            operation=first.operation,
            properties=first.properties,
            removed_properties=first.removed_properties,
            index_parts=first.index_parts,
            no_new_matches=first.no_new_matches,
            only_new=first.only_new and len(entries) == 1,
            deletes=first.deletes,
            row_change=first.row_change,
        )

    def _segments(self, base: SnapshotPointer, entries: Sequence[Waiting]) -> tuple[SegmentRef, ...]:
        key = tuple(id(entry) for entry in entries)
        found = self._written.get(key)
        if found is None:
            blocks = joined_blocks([_change(entry).blocks for entry in entries])
            versions = self._warehouse.seen_with(base, _change(entries[0]).schema_update)
            table_id = self._warehouse.head(base).table_id  # of a branch, that of its table
            found = self._written[key] = self._warehouse.prepare(table_id, versions, blocks) if blocks else ()
        return found


def _change(entry: Waiting) -> BlockChange:
    return cast(BlockChange, entry.change)  # a step is always alone in its group


_FIRST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.25
#: How long, and for how many tables, a reached quota is checked before anything is written.
_FULL_S: Final = 5.0
_MAX_FULL: Final = 1_024


class GroupCommit:
    """Commits groups: :meth:`run_group` answers every entry that it gets."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        warehouse: Warehouse,
        metrics: Metrics,
        traces: Traces,
        clock: Callable[[], int],
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._metrics = metrics
        self._traces = traces
        self._clock = clock
        self._random = random.SystemRandom()
        #: By table: until when its quota is checked before writing.
        self._full: dict[str, float] = {}

    def run_group(self, table_id: str, group: Sequence[Waiting]) -> None:
        """Commit what can be committed of a group, in one snapshot if possible, and answer every entry."""
        now_s = time.monotonic()
        self._metrics.group_size.observe(len(group))
        for entry in group:
            self._metrics.queue_seconds.observe(now_s - entry.queued_s)
            self._traces.waited(entry.span_context, "commit queue", now_s - entry.queued_s)
        contexts = [entry.span_context for entry in group]
        with self._traces.for_all(contexts, "commit", {"lamella.commit.changes": len(group)}):
            for number, part in enumerate(_without_twins(group)):
                try:
                    self._commit(table_id, self._without_replays(part) if number else part)
                except Exception as error:
                    for entry in part:
                        self._refuse(entry, error)

    def _commit(self, table_id: str, group: Sequence[Waiting]) -> None:
        """Commit on the current snapshot, and again on a newer one each time another process came first."""
        leaves = SharedSegments(self._warehouse)
        since_ms = self._clock()
        pause_s = _FIRST_PAUSE_S
        attempts = 0
        while group := self._in_time(group):
            guard = self._catalog.guard(table_id, (), since_ms=since_ms)
            group = self.unswept(group, guard)
            if not group:
                return
            group = self._within_quota(table_id, group)
            if not group:
                return
            record = self._catalog.table_by_id(table_id)
            self._metrics.commit_attempts.inc()
            attempts += 1
            numbered = {"lamella.commit.attempt": attempts}
            unchanged, refused = self.reads(group)
            if refused is not None:
                raise refused
            try:
                with self._traces.span("commit prepare", numbered), trusted_manifests(), self._warehouse.together():
                    attempt = self.merge(record, group, leaves)
            except Exception as error:
                if len(group) == 1 or isinstance(error, Unavailable | TableNotFound):
                    raise
                self._isolate(table_id, group, error)
                return
            try:
                with self._traces.span("commit swap", numbered) as span:
                    is_current = attempt.result is None or self._swap(record, attempt.result, attempt, guard, unchanged)
                    if span is not None:
                        span.note({"lamella.commit.is_current": is_current})
                if is_current:
                    attempt.answer(self._metrics)
                    return
            except IdempotencyMismatch:
                group = self._without_replays(group)
            except QuotaExceeded as error:
                if len(self._full) >= _MAX_FULL:
                    self._full = {}
                self._full[table_id] = time.monotonic() + _FULL_S
                if len(group) == 1:
                    raise
                self._isolate(table_id, group, error)
                return
            else:
                self._metrics.commit_retries.inc()
            # Partly random: with fixed delays, one of two processes could win every time.
            time.sleep(self._random.uniform(0, pause_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def merge(self, record: TableRecord, group: Sequence[Waiting], leaves: SharedSegments) -> Attempt:
        """Write the snapshot that follows a table's current one.

        Raises:
            SchemaConflict: a branch would get columns that its table does not have.
        """
        attempt = self._merged(record.pointer, group, leaves)
        if record.branch_of is not None and attempt.result is not None:
            self._check_branch(record, attempt.result)
        return attempt

    def _check_branch(self, record: TableRecord, result: CommitResult) -> None:
        """Raise SchemaConflict unless a branch's columns and cluster keys are those that its table has or had.

        So ids of columns, schemas and keys mean the same in all branches.
        """
        after, before = result.snapshot, self._warehouse.head(record.pointer)
        if after.history == before.history and after.cluster_key == before.cluster_key:
            return
        assert record.branch_of is not None  # noqa: S101  # the caller looked
        main = self._warehouse.head(self._catalog.table_by_id(record.branch_of).pointer)
        is_known = main.history[: len(after.history)] == after.history
        if not is_known or after.cluster_key not in (before.cluster_key, main.cluster_key):
            raise SchemaConflict(
                "the columns and the cluster key belong to the table, not to one of its branches: change those of the"
                f" table first, then make the same change in {record.name}",
                table=main_name(record.name),
            )

    def _merged(self, base: SnapshotPointer, group: Sequence[Waiting], leaves: SharedSegments) -> Attempt:
        first = group[0]
        if isinstance(first.change, Step):
            result = first.change.step(base)
            refs = None if first.change.refs is None else first.change.refs(result)
            return Attempt(result, [(first, result)], [], first.change.required, refs)
        if any(entry.change.changes_blocks for entry in group if isinstance(entry.change, BlockChange)):
            # A commit of an Iceberg client may have come since the request was checked.
            properties = self._warehouse.head(base).properties
            refuse_unwritable(properties)
            for entry in group:
                refuse_nulls(properties, entry.change.blocks if isinstance(entry.change, BlockChange) else ())
        sets, members = leaves.change_sets(base, group)
        # An entry with schema changes is alone in its group.
        update = first.change.schema_update
        done = self._warehouse.commit_many(base, sets, update=update, now_ms=self._clock())
        attempt = Attempt(done.result, [], [], None)
        for entries, outcome in zip(members, done.outcomes, strict=True):
            for entry in entries:
                if isinstance(outcome, LamellaError):
                    if len(entries) > 1:
                        raise outcome  # the entries are tried one by one, since not all of them are to blame
                    attempt.refused.append((entry, outcome))
                else:
                    assert done.result is not None and isinstance(entry.change, BlockChange)  # noqa: S101, PT018  # landed
                    own = msgspec.structs.replace(
                        done.result,
                        added=entry.change.added,
                        removed=outcome.removed if len(entries) == 1 else 0,
                        changed=outcome.changed,
                    )
                    attempt.applied.append((entry, own))
        return attempt

    def reads(self, group: Sequence[Waiting]) -> tuple[dict[str, int], LamellaError | None]:
        """Return the versions of tables that a group depends on, and the error if it depends on what has changed."""
        records: dict[str, TableRecord] = {}
        for entry in group:
            for each in entry.change.reads if isinstance(entry.change, BlockChange) else ():
                if each.table_id not in records:
                    records[each.table_id] = self._catalog.table_by_id(each.table_id)
                with trusted_manifests():
                    error = self._warehouse.changed_reads(each.pointer, records[each.table_id].pointer, each.read)
                if error is not None:
                    return {}, error
        return {table_id: record.version for table_id, record in records.items()}, None

    def _swap(
        self,
        record: TableRecord,
        result: CommitResult,
        attempt: Attempt,
        guard: CommitGuard,
        unchanged: Mapping[str, int],
    ) -> bool:
        """Make the attempt's snapshot current, with all answers; False if another commit came first.

        ``unchanged``: versions that tables which the attempt depends on must still have.
        """
        attempt.stored_response = [
            entry.change.idempotency_key.store_as(200, entry.change.answer(own), snapshot_id=result.pointer.snapshot_id)
            for entry, own in attempt.applied
        ]
        rows = [
            stored_response.stored for stored_response in attempt.stored_response if stored_response.stored is not None
        ]
        after = history_entry(record.version + 1, result.pointer, result.snapshot)
        # A clean-up may have run since objects were written that are older than this attempt.
        since_ms = min([guard.since_ms, *attempt.wrote_since_ms])
        try:
            return self._catalog.advance(
                record.table_id,
                after,
                branch_of=record.branch_of,
                required=attempt.required,
                guard=msgspec.structs.replace(guard, since_ms=since_ms, adds_files=attempt.adds_files),
                remember=rows,
                unchanged=unchanged,
                refs=attempt.refs,
            )
        except OutcomeUnknown:
            # An entry in the history was committed, with its answer; the others may still be committed.
            if self.is_in_history(record.table_id, result.pointer.snapshot_id):
                return True
            raise

    def is_in_history(self, table_id: str, snapshot_id: str) -> bool:
        """Return whether a snapshot is in the history of a table, as far as the catalog answers."""
        try:
            self._catalog.snapshot(table_id, snapshot_id)
        except (SnapshotNotFound, Unavailable):
            return False
        return True

    def _in_time(self, group: Sequence[Waiting]) -> Sequence[Waiting]:
        """Return the entries whose deadline has not passed; refuse the others."""
        now_s = time.monotonic()
        for entry in group:
            if now_s > entry.deadline_s:
                self._refuse(entry, Unavailable("too many concurrent commits to the table", retry_after_s=1))
        return [entry for entry in group if not entry.answered.done()]

    def unswept(self, group: Sequence[Waiting], now: CommitGuard) -> Sequence[Waiting]:
        """Return the entries whose files no clean-up can have deleted since they were checked; refuse the others."""
        for entry in group:
            then = entry.change.guard
            if then is not None and then.epochs != now.epochs:
                text = "a clean-up deleted files during this commit; send it again"
                self._refuse(entry, Unavailable(text, retry_after_s=0))
        return [entry for entry in group if not entry.answered.done()]

    def _without_replays(self, group: Sequence[Waiting]) -> Sequence[Waiting]:
        """Return the entries whose key is new; the others get the stored answer."""
        for entry in group:
            try:
                earlier = replay_of(self._catalog, entry.change.idempotency_key)
            except IdempotencyMismatch as error:
                self._refuse(entry, error)
            else:
                if earlier is not None:
                    entry.answer(earlier)
        return [entry for entry in group if not entry.answered.done()]

    def _within_quota(self, table_id: str, group: Sequence[Waiting]) -> Sequence[Waiting]:
        """Return the entries that fit into a quota that was reached a moment ago; refuse the others before writing.

        Only appends are checked here: a change that also removes blocks is checked in the swap.
        """
        until_s = self._full.get(table_id)
        if until_s is None:
            return group
        if time.monotonic() > until_s:
            self._full.pop(table_id, None)
            return group
        for entry in group:
            change = entry.change
            if isinstance(change, BlockChange) and change.added and not change.removed:
                size_bytes = sum(BlockSequence.of(change.blocks).file_sizes)
                try:
                    self._catalog.check_growth(table_id, blocks=change.added, size_bytes=size_bytes)
                except QuotaExceeded as error:
                    self._refuse(entry, error)
        return [entry for entry in group if not entry.answered.done()]

    def _isolate(self, table_id: str, group: Sequence[Waiting], error: Exception) -> None:
        """Retry the parts of a group that failed as a whole, so that only the failing ones are refused.

        A write failure of the shared appends is reported to all of them, so that a store that is down is not called
        once for each entry.
        """
        shared = [entry for entry in group if isinstance(entry.change, BlockChange) and entry.change.is_plain_append]
        own = [entry for entry in group if entry not in shared]
        parts: list[Sequence[Waiting]] = [[entry] for entry in own]
        if isinstance(error, StoreError) and not own:
            raise error
        parts[:0] = [shared] if own and shared else [[entry] for entry in shared]
        for part in parts:
            try:
                self._commit(table_id, part)
            except Exception as failed:
                for entry in part:
                    self._refuse(entry, failed)

    def _refuse(self, entry: Waiting, error: Exception) -> None:
        if entry.answered.done():
            return
        code = error.code if isinstance(error, LamellaError) else LamellaError.code
        if isinstance(error, QuotaExceeded):
            self._metrics.limits.quotas_reached.labels(error.details["limit"]).inc()
        self._metrics.commits_rejected.labels(code).inc()
        entry.refuse(error)


class Attempt:
    """A snapshot that was written for some entries, and the answers that they get if it becomes current."""

    def __init__(
        self,
        result: CommitResult | None,
        applied: list[tuple[Waiting, CommitResult]],
        refused: list[tuple[Waiting, LamellaError]],
        required: HistoryEntry | None,
        refs: RefChanges | None = None,
    ) -> None:
        self.result = result
        self.applied = applied
        self.refused = refused
        self.required = required
        self.refs = refs
        self.stored_response: list[StoredResponse] = []

    @property
    def adds_files(self) -> bool:
        """Return whether it adds blocks or other objects that a clean-up might have deleted."""
        return any(entry.change.adds_files for entry, _ in self.applied)

    @property
    def wrote_since_ms(self) -> list[int]:
        """Return, for entries that wrote objects themselves, the times since which they wrote."""
        times = (entry.change.wrote_since_ms for entry, _ in self.applied)
        return [since_ms for since_ms in times if since_ms is not None]

    def count(self, metrics: Metrics) -> None:
        """Count the commit."""
        if self.result is not None:
            metrics.committed(added=self.result.added, removed=self.result.removed)

    def answer(self, metrics: Metrics) -> None:
        """Answer every entry."""
        self.count(metrics)
        for (entry, _), stored_response in zip(self.applied, self.stored_response, strict=True):
            entry.answer(stored_response)
        for entry, error in self.refused:
            metrics.commits_rejected.labels(error.code).inc()
            entry.refuse(error)


def _without_twins(group: Sequence[Waiting]) -> list[list[Waiting]]:
    """Split the group so that no part has a key twice: the second entry gets the stored answer of the first."""
    parts: list[list[Waiting]] = [[]]
    keys: list[set[tuple[str, str]]] = [set()]
    for entry in group:
        idempotency_key = entry.change.idempotency_key
        name = (idempotency_key.key or "", idempotency_key.scope)
        at = 0
        while idempotency_key.key is not None and name in keys[at]:
            at += 1
            if at == len(parts):
                parts.append([])
                keys.append(set())
        parts[at].append(entry)
        keys[at].add(name)
    return parts

"""Clustering of tables: the cluster key, how well blocks follow it, and which blocks share a segment."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from lamella.service.catalog import Catalog, TableRecord
from lamella.service.commits.committer import Committer
from lamella.service.history.history import History, cluster_key_info, trusted_manifests
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse, answered, finished
from lamella.service.process.deadline import time_is_up
from lamella.service.usage.filters import FilterRecorder, as_recorded
from lamella.snapshot.cluster.key import key_texts
from lamella.snapshot.errors import CommitConflict, InvalidRequest, LamellaError
from lamella.snapshot.manifest import ClusterKey, ClusterKind, SnapshotPointer
from lamella.snapshot.warehouse import CommitResult, Warehouse
from lamella.snapshot.warehouse.layouts import Regrouped, Where
from lamella.snapshot.warehouse.regroup import Written
from lamella.snapshot.wire import ClusteringAnswer, ClusterKeyInfo, ClusterKeyRequest, RegroupAnswer, RegroupRequest
from lamella.snapshot.wire.operations.clustering import RECORDED


class Clustering:
    """Reports the clustering of tables and changes it without rewriting blocks; ``timer`` returns seconds."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        warehouse: Warehouse,
        history: History,
        committer: Committer,
        recorder: FilterRecorder,
        clock: Callable[[], int],
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._history = history
        self._committer = committer
        self._recorder = recorder
        self._clock = clock
        self._timer = timer

    def key(self, record: TableRecord) -> ClusterKeyInfo:
        """Return the current cluster key."""
        with trusted_manifests():
            return cluster_key_info(self._warehouse.head(record.pointer))

    def set_key(
        self, record: TableRecord, request: ClusterKeyRequest, idempotency_key: IdempotencyKey
    ) -> StoredResponse | Pending:
        """Set or remove a table's cluster key, in one snapshot. Writes nothing if the table has that key.

        Raises, at once or when awaited: UnknownColumn, InvalidRequest: the columns; or a kind without columns.
        SnapshotNotFound: ``base_snapshot_id``. CommitConflict: the key is not that of ``base_snapshot_id``;
        ``snapshot_id`` is the current snapshot.
        """
        if request.kind != "linear" and not request.columns:
            raise InvalidRequest("a kind without columns: name the columns of the cluster key")
        expected = None
        if request.base_snapshot_id is not None:
            expected = self._history.pointer(record, snapshot_id=request.base_snapshot_id)

        def check(base: SnapshotPointer) -> None:
            if expected is None:
                return
            then, now = (_key_id(self._warehouse.head(pointer).cluster_key) for pointer in (expected, base))
            if then != now:
                raise CommitConflict(
                    "the table's cluster key has changed since base_snapshot_id",
                    blocks=[],
                    snapshot_id=base.snapshot_id,
                    snapshot_is="current",
                )

        def step(base: SnapshotPointer) -> CommitResult:
            check(base)
            return self._warehouse.cluster(base, request.columns, request.kind, now_ms=self._clock())

        with trusted_manifests():
            head = self._warehouse.head(record.pointer)
            check(record.pointer)
        columns = key_texts(head.schema, request.columns)
        now = head.cluster_key
        if (columns, request.kind) == (() if now is None else now.columns, "linear" if now is None else now.kind):
            return answered(self._catalog, idempotency_key, cluster_key_info(head))
        return self._committer.alone(record, step, lambda result: cluster_key_info(result.snapshot), idempotency_key)

    def figures(
        self,
        record: TableRecord,
        columns: Sequence[str],
        kind: ClusterKind,
        *,
        snapshot_id: str | None = None,
        where: Where | None = None,
        recorded: int = RECORDED,
    ) -> ClusteringAnswer:
        """Return the clustering metrics of a snapshot for its key, or for another one.

        Raises as :meth:`lamella.snapshot.warehouse.layouts.Layouts.clustering`, and SnapshotNotFound.
        """
        pointer = self._history.pointer(record, snapshot_id=snapshot_id)
        filters = [as_recorded(each) for each in self._recorder.filters(record.table_id, recorded)] if recorded else []
        with trusted_manifests():
            return self._warehouse.layouts.clustering(pointer, columns, kind, where=where, recorded=filters)

    def average_depth(self, record: TableRecord) -> float | None:
        """Return the average depth of a table's blocks on its cluster key; None without a key."""
        with trusted_manifests():
            return self._warehouse.layouts.average_depth(record.pointer)

    def regroup(
        self, record: TableRecord, request: RegroupRequest, idempotency_key: IdempotencyKey
    ) -> StoredResponse | Pending:
        """Move blocks into other segments, for a part of the groups where that is worth it.

        Segments are written first; then one snapshot replaces the old ones with them. A group is skipped if somebody
        else rewrote one of its segments meanwhile.

        Raises, at once or when awaited: InvalidRequest, UnknownColumn: limits that make no sense, an invalid key, or
        the table has none. StoreError: storage failed; nothing was committed. Unavailable: its turn did not come in
        time, or a clean-up was running; nothing was committed.
        """
        until = time_is_up(request.max_ms, self._timer)
        guard = self._catalog.guard(record.table_id, (), since_ms=self._clock())
        with trusted_manifests():
            made = self._warehouse.layouts.regroup(record.pointer, request, until=until)
        if not made.written:
            nothing = _regrouped(record.pointer.snapshot_id, made, (), is_dry=request.dry_run)
            return answered(self._catalog, idempotency_key, nothing)
        done: list[Written] = []

        def step(base: SnapshotPointer) -> CommitResult:
            result, applied = self._warehouse.rearranging.commit(base, made.written, now_ms=self._clock())
            done[:] = applied
            return result

        def again(error: LamellaError) -> Pending:
            if not isinstance(error, CommitConflict):
                raise error
            current = self._catalog.table_by_id(record.table_id).pointer.snapshot_id
            return finished(answered(self._catalog, idempotency_key, _regrouped(current, made, ())))

        pending = self._committer.alone(
            record,
            step,
            lambda result: _regrouped(result.pointer.snapshot_id, made, done),
            idempotency_key,
            guard=guard,
        )
        return Pending(pending.answered, again)


def _regrouped(snapshot_id: str, made: Regrouped, done: Sequence[Written], *, is_dry: bool = False) -> RegroupAnswer:
    """Return the answer for a part; ``done`` are the written groups that the snapshot contains."""
    groups = made.plan.groups
    chosen = [number for number, each in enumerate(made.written) if any(each is one for one in done)]
    if is_dry:
        chosen = list(range(len(groups)))
    replaced = sum(len(groups[number].segments) for number in chosen)
    planned = made.plan.remaining + sum(len(group.segments) for group in groups)
    saved = sum(groups[number].opened_before - groups[number].opened_after for number in chosen)
    measured = None if not done else made.before
    gained = sum(made.gains[number] for number in chosen) if done else 0.0
    return RegroupAnswer(
        snapshot_id=snapshot_id,
        groups=len(chosen),
        replaced=replaced,
        made=sum(len(groups[number].blocks) for number in chosen),
        blocks=sum(made.blocks[number] for number in chosen),
        predicted_before=made.plan.opened_before,
        predicted_after=made.plan.opened_before - saved,
        reason=made.plan.reason,
        remaining=planned - replaced,
        given_up=0 if is_dry else len(made.written) - len(done),
        measured_before=measured,
        measured_after=None if measured is None else measured - gained,
    )


def _key_id(key: ClusterKey | None) -> int | None:
    return None if key is None else key.key_id

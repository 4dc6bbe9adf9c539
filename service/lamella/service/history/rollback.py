"""Rolls tables back: a new snapshot with the blocks of an older one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lamella.service.catalog import HistoryEntry, TableRecord
from lamella.service.commits.committer import Committer
from lamella.service.history.history import History, trusted_manifests
from lamella.service.http.idempotency import IdempotencyKey, Pending
from lamella.service.tables.names import LocationRules, require_allowed
from lamella.snapshot.errors import CommitConflict, InvalidRequest
from lamella.snapshot.ids import canonical_id
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.source import HOSTED, refuse_rollback
from lamella.snapshot.warehouse import CommitResult, Warehouse
from lamella.snapshot.wire import RollbackAnswer, RollbackRequest

HostedRollback = Callable[[TableRecord, RollbackRequest, HistoryEntry, IdempotencyKey], Pending]


class Rollback:
    """Undoes what was committed after a snapshot, without removing anything from the history."""

    def __init__(
        self,
        *,
        warehouse: Warehouse,
        history: History,
        committer: Committer,
        rules: LocationRules,
        clock: Callable[[], int],
    ) -> None:
        self._warehouse = warehouse
        self._history = history
        self._committer = committer
        self._rules = rules
        self._clock = clock
        self._hosted: HostedRollback | None = None

    def hosted_by(self, rollback: HostedRollback) -> None:
        """Have tables of Iceberg clients rolled back by ``rollback``, as :meth:`run` does others."""
        self._hosted = rollback

    def run(self, table: TableRecord, request: RollbackRequest, idempotency_key: IdempotencyKey) -> Pending:
        """Make the new snapshot current. Concurrent commits are undone too, unless there is a base.

        Raises, at once or when awaited: InvalidRequest: both or none of ``snapshot_id`` and ``timestamp``, or the
        current snapshot. SnapshotNotFound: no such snapshot, or it has expired. CommitConflict: ``base_snapshot_id`` is
        not the current snapshot; ``snapshot_id`` is. BlocksGone: files of that snapshot are missing or were replaced.
        LocationRefused: the table may not use the location of a file any more.
        """
        if (request.snapshot_id is None) == (request.timestamp is None):
            raise InvalidRequest("give exactly one of snapshot_id and timestamp")
        target = self._history.entry(
            table, snapshot_id=request.snapshot_id, timestamp=request.timestamp, time_zone=request.time_zone
        )
        target_id = target.pointer.snapshot_id
        with trusted_manifests():
            is_hosted = bool(self._warehouse.head(table.pointer).properties.get(HOSTED))
        if is_hosted and self._hosted is not None:
            _check(request, table.pointer.snapshot_id, target_id)
            return self._hosted(table, request, target, idempotency_key)
        allow = partial(require_allowed, self._rules.of(table.namespace, table.main_id))

        def step(base: SnapshotPointer) -> CommitResult:
            _check(request, base.snapshot_id, target_id)
            refuse_rollback(self._warehouse.head(base).properties)
            return self._warehouse.rollback(base, target.pointer, now_ms=self._clock(), allow=allow)

        return self._committer.alone(table, step, partial(rollback_answer, target_id), idempotency_key, required=target)


def rollback_answer(target_id: str, result: CommitResult) -> RollbackAnswer:
    """Return the answer to a rollback to the snapshot ``target_id``."""
    return RollbackAnswer(
        snapshot_id=result.pointer.snapshot_id,
        prev_snapshot_id=result.snapshot.prev_snapshot_id or "",
        restored_snapshot_id=target_id,
        added=result.added,
        removed=result.removed,
        row_count=result.snapshot.summary.row_count,
        block_count=result.snapshot.summary.block_count,
    )


def require_base(request: RollbackRequest, base_id: str, *others: str | None) -> None:
    """Raise CommitConflict unless the base of a request, if it has one, is the current snapshot, or one of ``others``
    which stand for it."""
    wanted = request.base_snapshot_id
    if wanted is not None and (canonical_id(wanted) or wanted) not in (base_id, *others):
        raise CommitConflict(
            f"the current snapshot is {base_id}, not {wanted}", blocks=[], snapshot_id=base_id, snapshot_is="current"
        )


def _check(request: RollbackRequest, base_id: str, target_id: str) -> None:
    require_base(request, base_id)
    if target_id == base_id:
        raise InvalidRequest("that snapshot is the current one", snapshot_id=base_id)

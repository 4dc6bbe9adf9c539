"""Automatic upkeep of tables: decides by the policy's rule ``auto``, keeps the ledger, and measures what was done.

The service decides and measures; a job of kind "auto" (or ``lamella auto run``) does one action after another. A table
has one action at a time, held by the lease of the one who does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from lamella.service.advice.advice import Advice
from lamella.service.catalog import AutoRecord, Catalog, RecordedFilter, StoredJson, TableRecord
from lamella.service.history.history import trusted_manifests
from lamella.service.telemetry.metrics import Metrics
from lamella.service.usage.filters import FilterRecorder, as_recorded
from lamella.snapshot.advice.auto import budget_of, change_of, check_rule, failed, outcome_of, verdicts_of
from lamella.snapshot.errors import ActionNotFound, InvalidRequest, JobLeaseLost, PolicyNotFound
from lamella.snapshot.ids import Ids, canonical_id
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import (
    AutoAction,
    AutoBudget,
    AutoLedger,
    AutoPlan,
    AutoReport,
    AutoRequest,
    AutoRule,
    AutoStart,
    CandidatesRequest,
    Policy,
)
from lamella.snapshot.workload.recorded_filters import Recorded

#: Actions of a table that stay in the ledger.
_LEDGER: Final = 500
#: Candidates that are decided about.
_CANDIDATES: Final = 100
_DAY_MS: Final = 86_400_000
_LOST: Final = "nothing was reported before its lease ended"
_POLICY: Final = StoredJson(Policy, "a policy")
_ACTION: Final = StoredJson(AutoAction, "an action of automatic upkeep")


class _Filters(msgspec.Struct, frozen=True):
    """The filters that an action was decided by, and the seed of the constants that were drawn for them."""

    recorded: tuple[Recorded, ...]
    seed: int


_FILTERS: Final = StoredJson(_Filters, "the filters of an action")


class Auto:
    """Plans, begins and ends actions. ``clock`` returns Unix milliseconds."""

    def __init__(
        self,
        *,
        advice: Advice,
        catalog: Catalog,
        recorder: FilterRecorder,
        warehouse: Warehouse,
        metrics: Metrics,
        ids: Ids,
        clock: Callable[[], int],
    ) -> None:
        self._advice = advice
        self._catalog = catalog
        self._recorder = recorder
        self._warehouse = warehouse
        self._metrics = metrics
        self._ids = ids
        self._clock = clock

    def ledger(self, table: TableRecord) -> AutoLedger:
        """Return the actions of a table, and its rule."""
        return AutoLedger(actions=self._actions(table), rule=self._rule(table))

    def plan(self, table: TableRecord, request: AutoRequest) -> AutoPlan:
        """Return the decisions about all candidates. Raises InvalidRequest, ManifestError, StoreError, Unavailable."""
        own = self._rule(table)
        rule = request.rule or own or AutoRule()
        check_rule(rule, "$.rule")
        given = CandidatesRequest(
            top=_CANDIDATES, recorded=request.recorded, sample_blocks=request.sample_blocks, seed=request.seed
        )
        actions = self._actions(table)
        plan, _ = self._plan(table, rule, given, actions)
        blocked = ""
        if any(each.state in ("running", "undoing") for each in actions):
            blocked = "an action is running"
        elif rule.dry_run:
            blocked = "the rule is a dry run"
        return msgspec.structs.replace(plan, has_policy=own is not None, blocked=blocked)

    def start(self, table: TableRecord, request: AutoStart) -> AutoPlan:
        """Begin the next action; the answer has none if nothing is to be done, or cannot be begun.

        Raises InvalidRequest: the table has no rule ``auto``, or the runner's id; ManifestError, StoreError,
        Unavailable.
        """
        runner = canonical_id(request.runner)
        if runner is None:
            raise InvalidRequest("runner is a UUID that the caller makes", path="$.runner")
        rule = self._rule(table)
        if rule is None:
            raise InvalidRequest("the table's policy has no rule auto; add one with `lamella policy set`", path="$")
        busy = self._busy(table, request, runner)
        if busy is not None:
            snapshot = self._head(table)
            actions = self._actions(table)
            return AutoPlan(
                snapshot_id=snapshot.snapshot_id,
                rule=rule,
                has_policy=True,
                budget=self._budget(rule, snapshot, actions),
                verdicts=(),
                action=busy if isinstance(busy, AutoAction) else None,
                blocked=busy if isinstance(busy, str) else "",
            )
        given = CandidatesRequest(
            top=_CANDIDATES, recorded=request.recorded, sample_blocks=request.sample_blocks, seed=request.seed
        )
        actions = self._actions(table)
        plan, filters = self._plan(table, rule, given, actions)
        if rule.dry_run:
            return msgspec.structs.replace(plan, blocked="the rule is a dry run")
        first = next((each.candidate for each in plan.verdicts if each.decision == "do"), None)
        if first is None:
            return plan
        now_ms, key = self._clock(), self._head(table).cluster_key
        action = AutoAction(
            action_id=str(self._ids.new()),
            state="running",
            change=change_of(first),
            candidate=first,
            snapshot_id=plan.snapshot_id,
            started_ms=now_ms,
            was_cluster_key=() if key is None else key.columns,
            was_cluster_kind="linear" if key is None else key.kind,
        )
        record = AutoRecord(
            action_id=action.action_id,
            table_id=table.table_id,
            started_ms=now_ms,
            runner=runner,
            lease_expires_ms=now_ms + request.lease_s * 1000,
            action=_text(action),
            filters=_text(_Filters(filters, request.seed)),
        )
        if not self._catalog.begin_auto(record, at_most=_LEDGER):
            return msgspec.structs.replace(plan, blocked="an action was begun meanwhile")
        return msgspec.structs.replace(plan, action=action)

    def report(self, table: TableRecord, action_id: str, request: AutoReport) -> AutoAction:
        """Extend the lease of an action, or end it; one that was done is measured on the table's current snapshot.

        Raises ActionNotFound; JobLeaseLost: it has ended, or belongs to another runner; ManifestError, StoreError,
        Unavailable: it could not be measured, and can be reported again.
        """
        records = self._catalog.auto_actions(table.table_id, limit=_LEDGER)
        record = next((each for each in records if each.action_id == canonical_id(action_id)), None)
        if record is None:
            raise ActionNotFound(f"the table has no action {action_id!r}", action_id=action_id)
        action = _ACTION.decode(record.action)
        if record.runner != canonical_id(request.runner):
            raise JobLeaseLost("the action belongs to another runner", action_id=action_id)
        if record.lease_expires_ms is None:
            if request.outcome == "running" or (request.outcome == "failed") != (action.state == "failed"):
                raise JobLeaseLost("the action has ended", action_id=action_id)
            return action  # the same report again
        now_ms = self._clock()
        earlier = [each for each in self._actions(table) if each.action_id != action.action_id]
        action = msgspec.structs.replace(action, rewritten_bytes=max(action.rewritten_bytes, request.rewritten_bytes))
        if request.outcome == "failed":
            action = failed(action, request.reason, earlier, now_ms)
        elif request.outcome == "undone":
            if action.state != "undoing":
                raise InvalidRequest("only an action with the state undoing can be undone", path="$.outcome")
            action = msgspec.structs.replace(action, state="undone", finished_ms=now_ms)
        elif request.outcome == "done" and action.state == "running":
            action = self._outcome(table, record, action, earlier, now_ms)
        has_ended = action.finished_ms is not None and action.state != "undoing"
        changed = msgspec.structs.replace(
            record,
            action=_text(action),
            lease_expires_ms=None if has_ended else now_ms + request.lease_s * 1000,
        )
        if not self._catalog.put_auto(changed, runner=record.runner):
            raise JobLeaseLost("the action has ended", action_id=action_id)
        if has_ended:
            self._metrics.auto_actions.labels(action.candidate.kind, action.state).inc()
        return action

    def _outcome(
        self, table: TableRecord, record: AutoRecord, action: AutoAction, earlier: Sequence[AutoAction], now_ms: int
    ) -> AutoAction:
        measured, missing = None, ""
        if action.candidate.gain is not None:
            filters = _FILTERS.decode(record.filters)
            measured, missing = self._advice.measured(table, action.snapshot_id, filters.recorded, seed=filters.seed)
        head = self._head(table)
        sizes = {each.name: each.size_bytes for each in head.skip_indexes}
        name = action.candidate.index_name
        action = msgspec.structs.replace(
            action,
            done_snapshot_id=head.snapshot_id,
            index_bytes=sizes.get(name, 0) if name is not None and action.candidate.kind == "index" else 0,
        )
        return outcome_of(action, measured, missing, earlier, now_ms)

    def _busy(self, table: TableRecord, request: AutoStart, runner: str) -> AutoAction | str | None:
        """Return the runner's own action, or one to undo whose runner has died, or why another cannot be begun; None:
        the table has no action that is not finished.
        """
        now_ms = self._clock()
        for record in self._catalog.auto_actions(table.table_id, limit=_LEDGER):
            if record.lease_expires_ms is None:
                continue
            action = _ACTION.decode(record.action)
            if record.runner == runner:
                return action
            if record.lease_expires_ms > now_ms:
                return f"an action is running: {action.change}"
            if action.state == "undoing":
                taken = msgspec.structs.replace(record, runner=runner, lease_expires_ms=now_ms + request.lease_s * 1000)
                if self._catalog.put_auto(taken, runner=record.runner):
                    return action
                return "an action is running"
            earlier = [each for each in self._actions(table) if each.action_id != action.action_id]
            # Its last report may be older than its last commit: the budget counts all that it may have rewritten.
            max_bytes = max(action.rewritten_bytes, action.candidate.cost.rewritten_bytes)
            lost = failed(msgspec.structs.replace(action, rewritten_bytes=max_bytes), _LOST, earlier, now_ms)
            ended = msgspec.structs.replace(record, action=_text(lost), lease_expires_ms=None)
            if self._catalog.put_auto(ended, runner=record.runner):
                self._metrics.auto_actions.labels(lost.candidate.kind, lost.state).inc()
        return None

    def _plan(
        self, table: TableRecord, rule: AutoRule, given: CandidatesRequest, actions: Sequence[AutoAction]
    ) -> tuple[AutoPlan, tuple[Recorded, ...]]:
        head = self._head(table)
        budget = self._budget(rule, head, actions)
        now_ms = self._clock()
        window_ms = int(rule.payback_days * _DAY_MS)
        filters = recent(self._recorder.filters(table.table_id, given.recorded), window_ms, now_ms)
        limit = min(budget.rewritten_bytes_left or budget.rewritten_bytes_limit, head.summary.compressed_byte_size)
        if 0 < limit < head.summary.compressed_byte_size:
            given = msgspec.structs.replace(given, max_bytes=limit)
        answer = self._advice.candidates(table, given, filters)
        plan = AutoPlan(
            snapshot_id=answer.snapshot_id,
            rule=rule,
            has_policy=True,
            budget=budget,
            verdicts=tuple(verdicts_of(rule, answer, actions, budget, now_ms)),
            filters=answer.filters,
            left_out=answer.left_out,
        )
        return plan, filters

    def _budget(self, rule: AutoRule, head: Snapshot, actions: Sequence[AutoAction]) -> AutoBudget:
        sizes = {each.name: each.size_bytes for each in head.skip_indexes if each.dropped_ms is None}
        return budget_of(rule, actions, head.summary.compressed_byte_size, sizes, self._clock())

    def _actions(self, table: TableRecord) -> tuple[AutoAction, ...]:
        found = self._catalog.auto_actions(table.table_id, limit=_LEDGER)
        return tuple(_ACTION.decode(each.action) for each in found)

    def _rule(self, table: TableRecord) -> AutoRule | None:
        try:
            return _POLICY.decode(self._catalog.policy(table.table_id).policy).auto
        except PolicyNotFound:
            return None

    def _head(self, table: TableRecord) -> Snapshot:
        with trusted_manifests():
            return self._warehouse.head(table.pointer)


def recent(filters: Sequence[RecordedFilter], window_ms: int, now_ms: int) -> tuple[Recorded, ...]:
    """Return the filters that were used in the time before now, each with its uses in that time.

    The times of single uses are not recorded: those of a filter that is older are spread evenly over its age.
    """
    found = []
    for each in filters:
        if each.last_ms <= now_ms - window_ms:
            continue
        age_ms = max(now_ms - each.first_ms, 1)
        times = round(each.times * min(1.0, window_ms / age_ms))
        found.append(msgspec.structs.replace(as_recorded(each), times=max(times, 1)))
    return tuple(found)


def _text(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()

"""Automatic upkeep: does the actions that the service decides, one after another, and reports each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

import msgspec

from lamella.client.jobs.context import JobContext
from lamella.client.jobs.rewrite import Bounds, RewriteResult, compact, purge, recluster
from lamella.snapshot.errors import CommitConflict, JobCancelled, LamellaError, SnapshotNotFound
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.wire import AutoAction, AutoPlan, AutoReport, AutoStart

#: How long an action may be silent, and how often it is reported at most.
_LEASE_S: Final = 1_800
_REPORT_S: Final = 60.0
#: Blocks that are read for each index or cluster key that cannot be predicted from manifests.
_SAMPLED_BLOCKS: Final = 16
#: An index is optimised if it knows so many times the blocks that the table has, or has more parts than ``_PARTS`` and
#: one for each ``_BLOCKS_OF_PART`` blocks: every refresh adds a part, and replaced blocks stay in old ones.
_DEAD: Final = 1.5
_PARTS: Final = 16
_BLOCKS_OF_PART: Final = 256
#: Runs of a recluster after a change of the cluster key; it ends earlier when nothing is left.
_RUNS: Final = 10


class AutoResult(msgspec.Struct, frozen=True, kw_only=True):
    """The actions of one run, in order, and the plan after which nothing was left to do; None: ``max_actions`` were
    done."""

    actions: tuple[AutoAction, ...] = ()
    plan: AutoPlan | None = None


def run_auto(
    context: JobContext, *, new_id: Callable[[], str], timer: Callable[[], float], max_actions: int | None = None
) -> AutoResult:
    """Do actions until none is worth its cost or a budget is used up; an action that fails is entered into the ledger,
    and the next one is tried.

    ``new_id`` returns a UUID; ``timer`` returns seconds.

    Raises:
        TableNotFound, NamespaceNotFound.
        InvalidRequest: the table's policy has no rule ``auto``.
        JobCancelled: raised between two commits; committed work stays.
    """
    done: list[AutoAction] = []
    table = context.lake.table(context.table)
    while max_actions is None or len(done) < max_actions:
        context.check()
        runner = new_id()
        plan = table.start_auto(AutoStart(runner=runner, lease_s=_LEASE_S))
        if plan.action is None and any(each.decision == "unknown" for each in plan.verdicts):
            plan = table.start_auto(AutoStart(runner=runner, lease_s=_LEASE_S, sample_blocks=_SAMPLED_BLOCKS))
        if plan.action is None:
            return AutoResult(actions=tuple(done), plan=plan)
        done.append(_Run(context, plan.action, plan.budget.rewritten_bytes_left, runner, timer).run())
    return AutoResult(actions=tuple(done))


class _Run:
    """One action."""

    def __init__(
        self, context: JobContext, action: AutoAction, bytes_left: int, runner: str, timer: Callable[[], float]
    ) -> None:
        self._action = action
        self._bytes_left = bytes_left
        self._runner = runner
        self._timer = timer
        self._reported_s = timer()
        self._rewritten_bytes = 0
        self._has_created = False
        self._table = context.lake.table(context.table)
        self._shown = context.on_progress
        self._context = msgspec.structs.replace(context, on_progress=self._progress)

    def run(self) -> AutoAction:
        """Do it and report it; returns it as it ended."""
        action = self._action
        if action.state != "undoing":
            try:
                self._do()
            except JobCancelled:
                with suppress(LamellaError):
                    self._report("failed", "the job was cancelled")
                raise
            except LamellaError as error:
                self._drop_begun_index()
                return self._report("failed", error.message)
            action = self._report("done")
        if action.state == "undoing":
            self._undo(action)
            action = self._report("undone")
        return action

    def _do(self) -> None:
        candidate, table = self._action.candidate, self._table
        match candidate.kind:
            case "recluster":
                self._add(recluster(self._context, self._bounds()))
            case "compact":
                self._add(compact(self._context, self._bounds()))
            case "purge":
                self._add(purge(self._context, self._bounds()))
            case "cluster_key":
                table.cluster_by(candidate.cluster_key, base_snapshot_id=self._action.snapshot_id)
                for _ in range(_RUNS):
                    left = self._bytes_left - self._rewritten_bytes
                    if left <= 0 or not self._add(recluster(self._context, Bounds(max_bytes=left))).tasks:
                        break
            case "index":
                if candidate.index is None or candidate.index_name is None:
                    raise AssertionError("a candidate of this kind names an index")
                index = candidate.index
                table.create_index(
                    candidate.index_name,
                    index.kind,
                    index.expression,
                    options=index.options,
                    time_zone=index.time_zone,
                )
                self._has_created = True
                self._refresh(candidate.index_name)
            case "index_refresh":
                self._refresh(str(candidate.index_name))
            case "drop_index":
                table.drop_index(str(candidate.index_name))
            case "vacuum":
                table.vacuum(execute=True, on_part=lambda _: self._progress(0, 0, "objects"))

    def _bounds(self) -> Bounds:
        return Bounds(max_bytes=self._action.candidate.arguments.get("max_bytes"))

    def _add(self, result: RewriteResult) -> RewriteResult:
        self._rewritten_bytes += result.bytes_before
        return result

    def _refresh(self, name: str) -> None:
        self._table.refresh_index(
            name, on_part=lambda part: self._progress(part.indexed, part.indexed + part.remaining, "blocks")
        )
        info = self._table.index(name)
        if info.coverage is None or not info.size_bytes:
            return
        known = info.size_bytes / info.bytes_per_block
        if known > _DEAD * info.coverage.indexed or info.parts > _PARTS + info.coverage.blocks / _BLOCKS_OF_PART:
            self._table.optimise_index(name, on_part=lambda part: self._progress(0, part.remaining, "segments"))

    def _undo(self, action: AutoAction) -> None:
        if action.candidate.kind == "index":
            self._table.drop_index(str(action.candidate.index_name))
        elif action.candidate.kind == "cluster_key":
            kind = cast("ClusterKind", action.was_cluster_kind)
            with suppress(CommitConflict, SnapshotNotFound):  # somebody has set another key since: that one stays
                self._table.cluster_by(action.was_cluster_key, kind, base_snapshot_id=action.done_snapshot_id)

    def _drop_begun_index(self) -> None:
        """Drop an index that could not be built. One that could not be created may be somebody else's."""
        if self._has_created:
            with suppress(LamellaError):
                self._table.drop_index(str(self._action.candidate.index_name))

    def _progress(self, done: int, total: int, unit: str) -> None:
        self._context.check()
        if self._shown is not None:
            self._shown(done, total, unit)
        if self._timer() - self._reported_s >= _REPORT_S:
            self._report("running")

    def _report(self, outcome: str, reason: str = "") -> AutoAction:
        self._reported_s = self._timer()
        report = msgspec.convert(
            {
                "runner": self._runner,
                "outcome": outcome,
                "lease_s": _LEASE_S,
                "rewritten_bytes": self._rewritten_bytes,
                "reason": reason[:10_000],
            },
            AutoReport,
        )
        return self._table.report_auto(self._action.action_id, report)

"""Compaction, reclustering and purges: rewrite planned blocks and commit the replacements.

Tasks are independent, and several are committed together. When another writer removed blocks that a task was to
replace, that task is dropped and the others are committed: writers never wait for maintenance, and a conflict costs
maintenance only the affected blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from lamella.client.jobs.context import JobContext
from lamella.client.rewrite.block_writer import WrittenBlocks
from lamella.client.rewrite.commit import TableState, commit_result
from lamella.client.rewrite.engine import ScratchSpace, merge_runs, sample_keys, scratch_space
from lamella.client.rewrite.source import Source, grouped, spread
from lamella.client.rewrite.stages import Bin, RewriteBin, SortBlocks
from lamella.client.rewrite.target import Target
from lamella.snapshot.cluster.extent import UNIMPROVABLE_LEVEL, extents
from lamella.snapshot.cluster.key import key_terms, key_zones
from lamella.snapshot.cluster.selection import unimprovable
from lamella.snapshot.columnar.zones import Zones, zones_of
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import CommitConflict, LamellaError
from lamella.snapshot.manifest import FEATURES, ClusterStats
from lamella.snapshot.schema import Leaf
from lamella.snapshot.wire import PlanAnswer, PlannedTask, RewriteJob

#: Maximum ratio of a block's rows in memory to its file size.
_EXPANSION: Final = 6
#: File bytes committed together; an interrupted job loses at most this much work.
_COMMIT_BYTES: Final = 8 << 30
#: Attempts to commit again without the tasks whose blocks were removed.
_TRIES: Final = 8


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A task that failed because of one of its blocks, which are unchanged."""

    blocks: tuple[str, ...]
    reason: str


class RewriteResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a job. ``snapshot_id``: its last snapshot; None: it made none.

    ``conflicts``: tasks dropped because another writer removed some of their blocks. ``reason``, ``remaining_blocks``,
    ``remaining_bytes``: the plan's account of what is left.
    """

    tasks: int = 0
    blocks_before: int = 0
    blocks_after: int = 0
    rows: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    conflicts: int = 0
    failures: tuple[Failure, ...] = ()
    snapshot_id: str | None = None
    reason: str = ""
    remaining_blocks: int = 0
    remaining_bytes: int = 0


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a run; None: the service's defaults. ``where``: only blocks that may match this filter."""

    where: str | None = None
    max_bytes: int | None = None
    max_blocks: int | None = None
    target_depth: int | None = None
    min_gain: float | None = None
    min_deleted_share: float | None = None


def compact(context: JobContext, bounds: Bounds = Bounds()) -> RewriteResult:  # noqa: B008  # a frozen value
    """Merge small blocks and split large ones; neighbours on the cluster key are merged with each other.

    Raises:
        TableNotFound, NamespaceNotFound, InvalidFilter, UnknownColumn.
        InvalidSchema: the table has columns that cannot be written.
        JobCancelled: raised between two commits; committed work stays.
        OutcomeUnknown: the last commit may have happened.
    """
    return _rewrite_outcome(context, "compact", bounds)


def recluster(
    context: JobContext,
    bounds: Bounds = Bounds(),  # noqa: B008  # a frozen value
    *,
    max_runs: int = 1,
) -> RewriteResult:
    """Rewrite blocks in the order of the cluster key, by gain per byte, until no gain is worth its cost.

    ``max_runs``: maximum number of runs, each of which plans anew and sees what the previous one wrote; ends earlier
    when nothing is left.

    Raises: as :func:`compact`; InvalidRequest: the table has no cluster key.
    """
    result = _rewrite_outcome(context, "recluster", bounds)
    for _ in range(max_runs - 1):
        following = _rewrite_outcome(context, "recluster", bounds)
        result = _added(result, following)
        if not following.tasks:
            break
    return result


def purge(context: JobContext, bounds: Bounds = Bounds()) -> RewriteResult:  # noqa: B008  # a frozen value
    """Write blocks anew without their deleted rows, each by itself, those with the largest share of them first.

    Raises: as :func:`compact`.
    """
    return _rewrite_outcome(context, "purge", bounds)


def plan(context: JobContext, job: RewriteJob, bounds: Bounds) -> PlanAnswer:
    """Return what the job would do now."""
    return context.lake.table(context.table).plan(
        job,
        filter=bounds.where,
        max_bytes=bounds.max_bytes,
        max_blocks=bounds.max_blocks,
        target_rows=context.sizes.block_rows,
        target_bytes=context.sizes.block_bytes,
        target_depth=bounds.target_depth,
        min_gain=bounds.min_gain,
        min_deleted_share=bounds.min_deleted_share,
        reader_features=FEATURES,
    )


class _BinOutcome(msgspec.Struct, frozen=True):
    """A task and the blocks written for it."""

    task: PlannedTask
    written: tuple[WrittenBlocks, ...]


def _rewrite_outcome(context: JobContext, job: RewriteJob, bounds: Bounds) -> RewriteResult:
    planned = plan(context, job, bounds)
    result = RewriteResult(
        reason=planned.reason, remaining_blocks=planned.remaining_blocks, remaining_bytes=planned.remaining_bytes
    )
    if not planned.tasks:
        return result
    state = TableState.read(context.lake, context.table, snapshot_id=planned.snapshot_id)
    target = state.target(
        block_rows=context.sizes.block_rows,
        block_bytes=context.sizes.block_bytes,
        memory_bytes=context.sizes.memory_bytes,
        compression=context.compression,
        storage_options=context.storage_options,
    )
    target.check()
    work = _Work(context, state, target, job)
    total = sum(task.file_size_bytes for task in planned.tasks)
    done_bytes = 0
    with scratch_space(target, is_near=context.engine.is_near, folder=context.scratch) as space:
        for some in grouped(planned.tasks, lambda task: task.file_size_bytes, _COMMIT_BYTES):
            context.check()
            done, failures = work.written(space, some)
            context.check()
            result = work.committed(result, done, failures)
            space.clear()
            done_bytes += sum(task.file_size_bytes for task in some)
            context.progress(done_bytes, total, "bytes")
    return result


class _Work:
    def __init__(self, context: JobContext, state: TableState, target: Target, job: RewriteJob) -> None:
        self._context = context
        self._state = state
        self._target = target
        self._job = job

    def written(self, space: ScratchSpace, tasks: Sequence[PlannedTask]) -> tuple[list[_BinOutcome], list[Failure]]:
        """Run some tasks; returns their outcomes and the failures."""
        done: list[_BinOutcome] = []
        failures: list[Failure] = []
        small = [task for task in tasks if task.file_size_bytes * _EXPANSION <= self._target.memory_bytes]
        for task in tasks:
            if task not in small:
                self._large(space, task, done, failures)
        # Blocks are written with one level per task.
        for level in sorted({task.level for task in small}):
            self._small(space, [task for task in small if task.level == level], level, done, failures)
        return done, failures

    def committed(
        self, result: RewriteResult, done: Sequence[_BinOutcome], failures: Sequence[Failure]
    ) -> RewriteResult:
        """Commit the finished tasks that can be committed."""
        for each in done:
            rows = sum(written.row_count for written in each.written)
            expected = self._row_count(each.task)
            if rows != expected:
                raise LamellaError(
                    f"{counted(rows, 'row was', 'rows were')} written in the place of {expected}; nothing was committed"
                )
        committed_tasks, snapshot_id = self._commit([self._mark_inseparable(each) for each in done])
        return msgspec.structs.replace(
            result,
            tasks=result.tasks + len(committed_tasks),
            blocks_before=result.blocks_before + sum(len(each.task.blocks) for each in committed_tasks),
            blocks_after=result.blocks_after + sum(len(w.blocks) for each in committed_tasks for w in each.written),
            rows=result.rows + sum(map(self._row_count, (each.task for each in committed_tasks))),
            bytes_before=result.bytes_before + sum(each.task.file_size_bytes for each in committed_tasks),
            bytes_after=result.bytes_after + sum(w.size_bytes for each in committed_tasks for w in each.written),
            conflicts=result.conflicts + len(done) - len(committed_tasks),
            failures=(*result.failures, *failures),
            snapshot_id=snapshot_id or result.snapshot_id,
        )

    def _row_count(self, task: PlannedTask) -> int:
        """Return the number of a task's rows that are not deleted."""
        store = self._target.store()
        return sum(Source.of(block).live_row_count(store) for block in task.blocks)

    def _mark_inseparable(self, done: _BinOutcome) -> _BinOutcome:
        """Return the outcome with blocks marked that sorting could not separate, or they would be selected again and
        again."""
        key = self._target.cluster
        if key is None or self._job != "recluster":
            return done
        schema = self._state.snapshot.schema
        terms = key_terms(schema, self._target.order.keys)
        new = [block for each in done.written for block in each.blocks]
        # For a linear key the source blocks do not matter, and the plan does not list them.
        taken = zip(done.task.blocks, done.task.col_stats, strict=False)
        old = [(block.row_count, stats) for block, stats in taken]
        facts = [*old, *((block.row_count, block.col_stats) for block in new)]

        def lookup(leaf: Leaf) -> Zones:
            return zones_of(leaf.dtype, [(rows, stats.get(leaf.id)) for rows, stats in facts])

        zones = [key_zones(term, lookup, len(facts)) for term in terms]
        is_new = np.arange(len(old) + len(new)) >= len(old)
        found = unimprovable(extents(self._state.cluster_kind, zones), is_new)[is_new]
        if not found.any():
            return done
        marks = iter(found.tolist())
        stats = ClusterStats(key_id=key.key_id, level=UNIMPROVABLE_LEVEL)
        written = tuple(
            msgspec.structs.replace(
                each,
                blocks=tuple(
                    msgspec.structs.replace(block, cluster_stats=stats) if next(marks) else block
                    for block in each.blocks
                ),
            )
            for each in done.written
        )
        return _BinOutcome(done.task, written)

    def _commit(self, done: list[_BinOutcome]) -> tuple[list[_BinOutcome], str | None]:
        """Return the committed tasks and the snapshot; tasks whose blocks were removed or replaced are left out."""
        handle = self._context.lake.table(self._context.table)
        for _ in range(_TRIES):
            if not done:
                break
            try:
                answer = commit_result(
                    self._context.lake,
                    self._state,
                    self._target,
                    [written for each in done for written in each.written],
                    operation=self._job,
                    row_change="replace",
                    removed=[block.location for each in done for block in each.task.blocks],
                )
            except CommitConflict:
                locations = [block.location for each in done for block in each.task.blocks]
                found = handle.blocks(locations, reader_features=FEATURES)
                now = {(block.location, block.content_id, block.deletes) for block in found.blocks}
                left = [
                    each
                    for each in done
                    if now.issuperset((block.location, block.content_id, block.deletes) for block in each.task.blocks)
                ]
                if len(left) == len(done):
                    raise
                done = left
            else:
                return done, answer.snapshot_id
        return [], None

    def _small(
        self,
        space: ScratchSpace,
        tasks: Sequence[PlannedTask],
        level: int,
        done: list[_BinOutcome],
        failures: list[Failure],
    ) -> None:
        """Tasks that each fit into memory, run in parallel."""
        target = self._of_level(level)
        stage = RewriteBin(target=target, scratch=space.scratch)
        bins = [Bin(sources=tuple(map(Source.of, task.blocks)), pieces=task.pieces) for task in tasks]
        for number, found in self._context.engine.run(stage, bins):
            self._context.check()
            if found.failed is not None:
                failures.append(_failure(tasks[number], found.failed))
                continue
            space.used(written=[found.written])
            done.append(_BinOutcome(tasks[number], (found.written,)))

    def _large(self, space: ScratchSpace, task: PlannedTask, done: list[_BinOutcome], failures: list[Failure]) -> None:
        """A task that is sorted externally."""
        engine = self._context.engine
        target = self._of_level(task.level)
        sources = [Source.of(block) for block in task.blocks]
        if target.order.needs_curve:
            target = self._along_curve(space, target, sources)
        runs = []
        max_bytes = target.memory_bytes // _EXPANSION
        parts = spread(sources, lambda source: source.file_size, max_bytes, engine.parallelism)
        bins = [Bin(sources=tuple(some)) for some in parts]
        for _, found in engine.run(SortBlocks(target=target, scratch=space.scratch), bins):
            self._context.check()
            space.used(found.runs)
            if found.failed is not None:
                failures.append(_failure(task, found.failed))
                return
            runs.extend(found.runs)
        written = merge_runs(engine, target, space, runs, progress=lambda _done, _total: self._context.check())
        done.append(_BinOutcome(task, tuple(written)))

    def _of_level(self, level: int) -> Target:
        cluster = self._target.cluster
        if cluster is None:
            return self._target
        own = ClusterStats(key_id=cluster.key_id, level=level)
        return msgspec.structs.replace(self._target, cluster=own)

    def _along_curve(self, space: ScratchSpace, target: Target, sources: Sequence[Source]) -> Target:
        keys = sample_keys(self._context.engine, target, space.scratch, sources)
        if keys is None:
            return target
        return msgspec.structs.replace(target, order=target.order.along(keys, target.schema))


def _added(one: RewriteResult, other: RewriteResult) -> RewriteResult:
    """Return the sum of two consecutive results."""
    names = ("tasks", "blocks_before", "blocks_after", "rows", "bytes_before", "bytes_after", "conflicts")
    sums = {name: getattr(one, name) + getattr(other, name) for name in names}
    return msgspec.structs.replace(
        other,
        **sums,
        failures=(*one.failures, *other.failures),
        snapshot_id=other.snapshot_id or one.snapshot_id,
    )


def _failure(task: PlannedTask, reason: str) -> Failure:
    return Failure(blocks=tuple(block.location for block in task.blocks), reason=reason)

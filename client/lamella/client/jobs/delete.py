"""Row deletion: blocks whose rows all match are removed without being read; only blocks that may match partly are read.
Of these a few rows are deleted by a deletion vector; a block that would lose many is rewritten.

When another writer replaced blocks in the meantime (a compaction, say), only the replacing blocks are read again:
results for blocks that still exist stay valid, since blocks never change. What others deleted of the same blocks is
merged by the service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from lamella.client.jobs.context import JobContext
from lamella.client.rewrite.block_writer import WrittenBlocks
from lamella.client.rewrite.commit import TableState, commit_result
from lamella.client.rewrite.engine import ScratchSpace, scratch_space
from lamella.client.rewrite.source import Source, grouped, spread
from lamella.client.rewrite.stages import Bin, BlockRemoval, RemoveRows
from lamella.snapshot.delete_policy import DeleteMode, delete_policy_of
from lamella.snapshot.deletes import Positions, decode_vector
from lamella.snapshot.errors import BlockReplaced, CommitConflict, InvalidRequest
from lamella.snapshot.manifest import FEATURES
from lamella.snapshot.storage import Store
from lamella.snapshot.wire import BlockFacts, SchemaUpdate

#: Attempts to delete on a newer snapshot.
_TRIES: Final = 20
#: File bytes that one task reads, at most.
_TASK_BYTES: Final = 256 << 20
_PAGE_BLOCKS: Final = 10_000


class DeleteResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a delete. ``snapshot_id``: the snapshot without the rows; if no row matched, the snapshot that was
    read.

    ``dropped``: blocks removed without being read; ``read``: other blocks that were read, of which ``vectors`` got
    deletion vectors, ``rewritten`` were rewritten and ``emptied`` were removed because every row matched. ``tries``:
    number of attempts, more than one when another writer committed first.
    """

    rows: int = 0
    dropped: int = 0
    read: int = 0
    emptied: int = 0
    rewritten: int = 0
    vectors: int = 0
    bytes_written: int = 0
    tries: int = 1
    snapshot_id: str


class _CandidateBlocks(msgspec.Struct, frozen=True):
    """The blocks that a filter may match: those proven to match in every row, and those that may match in some."""

    everywhere: tuple[BlockFacts, ...]
    somewhere: tuple[BlockFacts, ...]


def delete_rows(
    context: JobContext,
    where: str | Any,
    *,
    time_zone: str = "UTC",
    case_sensitive: bool = False,
    added: Sequence[WrittenBlocks] = (),
    operation: str = "delete",
    properties: Mapping[str, str] | None = None,
    mode: DeleteMode | None = None,
    schema_update: SchemaUpdate | None = None,
) -> DeleteResult:
    """Delete the rows that match a filter (SQL text or JSON tree) in one commit, which also has ``added`` blocks and
    schema changes.

    ``mode``: whether blocks are rewritten; see :class:`lamella.snapshot.delete_policy.DeletePolicy`. None: as the
    table's properties say.

    Rows that others add in the meantime stay, as if added after the delete.

    Raises:
        FilterNotEvaluable: a part of the filter cannot be decided row by row; the error names it. Nothing was done.
        EvaluationFailed: a value needed by the filter cannot be computed for some row.
        InvalidFilter, UnknownColumn, FilterTypeMismatch, TableNotFound, NamespaceNotFound.
        BlockReplaced: a file is not the one that was registered.
        CommitConflict: other writers committed first on every attempt; nothing was done.
        SchemaConflict: others changed the columns that ``schema_update`` changes; nothing was done.
        OutcomeUnknown: the commit may have happened.
    """
    known: dict[BlockFacts, BlockRemoval] = {}
    for attempt in range(1, _TRIES + 1):
        state = TableState.read(context.lake, context.table).with_update(schema_update)
        target = state.target(
            block_rows=context.sizes.block_rows,
            block_bytes=context.sizes.block_bytes,
            compression=context.compression,
            storage_options=context.storage_options,
        )
        target.check()
        policy = delete_policy_of(state.snapshot.properties, mode=mode)
        outcome = _candidates(context, state, where, time_zone, case_sensitive)
        with scratch_space(target, is_near=context.engine.is_near, folder=context.scratch) as space:
            stage = RemoveRows(
                target=target,
                scratch=space.scratch,
                filter=where,
                policy=policy,
                time_zone=time_zone,
                case_sensitive=case_sensitive,
            )
            stage.row_filter()  # raises for filters that cannot be decided, before any read
            _rewrite_blocks(context, stage, space, [each for each in outcome.somewhere if each not in known], known)
            changed = [(known[each], each) for each in outcome.somewhere if known[each].disposition != "stays"]
            vectors = {each.location: _positions(each, block) for each, block in changed if each.vector is not None}
            removed = [each.location for each in outcome.everywhere]
            removed += [each.location for each, _ in changed if each.vector is None]
            result = _result(outcome, [each for each, _ in changed], attempt, state, target.store())
            if not (removed or vectors or added or state.schema_update):
                return result
            written = [*added, *(each.written for each, _ in changed)]
            try:
                answer = commit_result(
                    context.lake,
                    state,
                    target,
                    written,
                    operation=operation,
                    removed=removed,
                    deletes=vectors,
                    row_change=None if added else "delete",
                    properties=properties,
                )
            except CommitConflict:
                context.check()
                if attempt == _TRIES:
                    raise
                # Index entries are in scratch space, which is deleted; blocks without entries are always read.
                known = {each: _without_parts(of) for each, of in known.items()}
                continue
            return msgspec.structs.replace(result, snapshot_id=answer.snapshot_id)
    raise AssertionError("unreachable")


def _candidates(
    context: JobContext, state: TableState, where: Any, time_zone: str, case_sensitive: bool
) -> _CandidateBlocks:
    handle = context.lake.table(context.table)
    everywhere: list[str] = []
    somewhere: list[str] = []
    for page in handle.prune_pages(
        where,
        page_size=_PAGE_BLOCKS,
        snapshot_id=state.snapshot.snapshot_id,
        time_zone=time_zone,
        case_sensitive=case_sensitive,
        reader_features=FEATURES,
    ):
        for block in page.records():
            (everywhere if block.verdict == "ALL" else somewhere).append(block.location)
    facts = handle.blocks([*everywhere, *somewhere], snapshot_id=state.snapshot.snapshot_id, reader_features=FEATURES)
    if facts.missing:
        raise InvalidRequest(f"{facts.missing[0]} is not in snapshot {facts.snapshot_id}")
    return _CandidateBlocks(facts.blocks[: len(everywhere)], facts.blocks[len(everywhere) :])


def _rewrite_blocks(
    context: JobContext,
    stage: RemoveRows,
    space: ScratchSpace,
    blocks: Sequence[BlockFacts],
    known: dict[BlockFacts, BlockRemoval],
) -> None:
    """Read blocks, and rewrite those of which some but not all rows match."""
    if blocks and stage.policy.mode == "copy-on-write":
        tasks = spread(blocks, lambda block: block.file_size, _TASK_BYTES, context.engine.parallelism)
    else:  # a few columns of a group are read sooner than processes start
        tasks = list(grouped(blocks, lambda block: block.file_size, _TASK_BYTES))
    done = 0
    for number, outcome in context.engine.run(stage, [Bin(sources=tuple(map(Source.of, task))) for task in tasks]):
        context.check()
        if outcome.failed is not None:
            raise BlockReplaced(outcome.failed)
        space.used(written=[each.written for each in outcome.blocks])
        known.update(zip(tasks[number], outcome.blocks, strict=True))
        done += len(outcome.blocks)
        context.progress(done, len(blocks), "blocks")


def _without_parts(outcome: BlockRemoval) -> BlockRemoval:
    return msgspec.structs.replace(outcome, written=WrittenBlocks(blocks=outcome.written.blocks))


def _positions(removal: BlockRemoval, block: BlockFacts) -> Positions:
    assert removal.vector is not None  # noqa: S101  # the caller looked
    return decode_vector(removal.vector, block.row_count, location=block.location)


def _result(
    outcome: _CandidateBlocks, changed: Sequence[BlockRemoval], attempt: int, state: TableState, store: Store
) -> DeleteResult:
    dropped_rows = sum(Source.of(each).live_row_count(store) for each in outcome.everywhere)
    return DeleteResult(
        rows=dropped_rows + sum(each.matched for each in changed),
        dropped=len(outcome.everywhere),
        read=len(outcome.somewhere),
        emptied=sum(each.disposition == "goes" for each in changed),
        rewritten=sum(each.disposition == "rewritten" for each in changed),
        vectors=sum(each.disposition == "vector" for each in changed),
        bytes_written=sum(each.written.size_bytes for each in changed),
        tries=attempt,
        snapshot_id=state.snapshot.snapshot_id,
    )

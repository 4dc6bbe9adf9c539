"""Deleting rows: blocks whose rows all match are removed by metadata alone; only blocks that may have some are read.

When another writer replaced blocks meanwhile (a compaction, say), only what took their place is looked at again: what
was done for blocks that are still there holds, since blocks never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from lamella.client.jobs.context import JobContext
from lamella.client.rewrite.block_writer import WrittenBlocks
from lamella.client.rewrite.commit import TableState, commit_result
from lamella.client.rewrite.engine import ScratchSpace, scratch_space
from lamella.client.rewrite.source import Source
from lamella.client.rewrite.stages import Bin, BlockRemoval, RemoveRows
from lamella.snapshot.errors import BlockReplaced, CommitConflict, InvalidRequest
from lamella.snapshot.wire import BlockFacts

#: How often a delete is tried again on a newer snapshot.
_TRIES: Final = 20
#: Bytes of files that one task reads.
_TASK_BYTES: Final = 256 << 20
_PAGE_BLOCKS: Final = 10_000


class DeleteResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was deleted. ``snapshot_id``: the snapshot without the rows; when none matched, the one looked at.

    ``dropped``: blocks that went by metadata alone; ``read``: others, of which ``rewritten`` were written anew and
    ``emptied`` went after all. ``tries``: how often another writer came first, and once more.
    """

    rows: int = 0
    dropped: int = 0
    read: int = 0
    emptied: int = 0
    rewritten: int = 0
    bytes_written: int = 0
    tries: int = 1
    snapshot_id: str


class _Found(msgspec.Struct, frozen=True):
    """The blocks of a snapshot that a filter may be true in: everywhere, proven, or somewhere."""

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
) -> DeleteResult:
    """Delete the rows for which a filter (SQL text or JSON tree) is true, in one commit; ``added`` comes with it.

    Rows that others add meanwhile stay, as if they had come after the delete.

    Raises:
        FilterNotEvaluable: a part of the filter cannot be decided row by row; names it. Nothing was done.
        EvaluationFailed: in some row a value that is needed cannot be computed.
        InvalidFilter, UnknownColumn, FilterTypeMismatch, TableNotFound, NamespaceNotFound.
        BlockReplaced: a file is not the one that was registered.
        CommitConflict: others were faster, again and again; nothing was done.
        OutcomeUnknown: the commit may have happened.
    """
    known: dict[BlockFacts, BlockRemoval] = {}
    for attempt in range(1, _TRIES + 1):
        state = TableState.read(context.lake, context.table)
        target = state.target(
            block_rows=context.sizes.block_rows,
            block_bytes=context.sizes.block_bytes,
            compression=context.compression,
            storage_options=context.storage_options,
        )
        target.check()
        found = _candidates(context, state, where, time_zone, case_sensitive)
        with scratch_space(target, is_near=context.engine.is_near, folder=context.scratch) as space:
            stage = RemoveRows(
                target=target,
                scratch=space.scratch,
                filter=where,
                time_zone=time_zone,
                case_sensitive=case_sensitive,
            )
            stage.row_filter()  # refuses what cannot be decided before anything is read
            _look(context, stage, space, [each for each in found.somewhere if each not in known], known)
            changed = [known[each] for each in found.somewhere if known[each].fate != "stays"]
            removed = [each.location for each in found.everywhere] + [each.location for each in changed]
            result = _result(found, changed, attempt, state)
            if not removed and not added:
                return result
            written = [*added, *(each.written for each in changed)]
            try:
                answer = commit_result(
                    context.lake,
                    state,
                    target,
                    written,
                    operation=operation,
                    removed=removed,
                    properties=properties,
                )
            except CommitConflict:
                context.check()
                if attempt == _TRIES:
                    raise
                # Entries of indexes are in scratch space, which goes; blocks without any are always read.
                known = {each: _without_parts(of) for each, of in known.items()}
                continue
            return msgspec.structs.replace(result, snapshot_id=answer.snapshot_id)
    raise AssertionError("unreachable")


def _candidates(context: JobContext, state: TableState, where: Any, time_zone: str, case_sensitive: bool) -> _Found:
    handle = context.lake.table(context.table)
    everywhere: list[str] = []
    somewhere: list[str] = []
    for page in handle.prune_pages(
        where,
        page_size=_PAGE_BLOCKS,
        snapshot_id=state.snapshot.snapshot_id,
        time_zone=time_zone,
        case_sensitive=case_sensitive,
    ):
        for block in page.records():
            (everywhere if block.verdict == "ALL" else somewhere).append(block.location)
    facts = handle.blocks([*everywhere, *somewhere], snapshot_id=state.snapshot.snapshot_id)
    if facts.missing:
        raise InvalidRequest(f"{facts.missing[0]} is not in snapshot {facts.snapshot_id}")
    return _Found(facts.blocks[: len(everywhere)], facts.blocks[len(everywhere) :])


def _look(
    context: JobContext,
    stage: RemoveRows,
    space: ScratchSpace,
    blocks: Sequence[BlockFacts],
    known: dict[BlockFacts, BlockRemoval],
) -> None:
    """Read blocks, and write those anew of which some rows stay and some do not."""
    tasks = list(_tasks(blocks))
    done = 0
    for number, found in context.engine.run(stage, [Bin(sources=tuple(map(Source.of, task))) for task in tasks]):
        context.check()
        if found.failed is not None:
            raise BlockReplaced(found.failed)
        space.used(written=[each.written for each in found.blocks])
        known.update(zip(tasks[number], found.blocks, strict=True))
        done += len(found.blocks)
        context.progress(done, len(blocks), "blocks")


def _tasks(blocks: Sequence[BlockFacts]) -> Iterator[list[BlockFacts]]:
    some: list[BlockFacts] = []
    size_bytes = 0
    for block in blocks:
        if some and size_bytes + block.file_size > _TASK_BYTES:
            yield some
            some, size_bytes = [], 0
        some.append(block)
        size_bytes += block.file_size
    if some:
        yield some


def _without_parts(found: BlockRemoval) -> BlockRemoval:
    return msgspec.structs.replace(found, written=WrittenBlocks(blocks=found.written.blocks))


def _result(found: _Found, changed: Sequence[BlockRemoval], attempt: int, state: TableState) -> DeleteResult:
    return DeleteResult(
        rows=sum(each.row_count for each in found.everywhere) + sum(each.matched for each in changed),
        dropped=len(found.everywhere),
        read=len(found.somewhere),
        emptied=sum(each.fate == "goes" for each in changed),
        rewritten=sum(each.fate == "rewritten" for each in changed),
        bytes_written=sum(each.written.size_bytes for each in changed),
        tries=attempt,
        snapshot_id=state.snapshot.snapshot_id,
    )

"""Analysis: reads the values of blocks whose statistics are incomplete or inexact, and commits what they prove.

Rows and files stay as they are: a commit replaces blocks by themselves with better statistics. A block that others
removed, or deleted rows of, meanwhile is left out. What was committed is complete, so a job that was interrupted goes
on where it was when it is run again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from lamella.client.jobs.context import JobContext
from lamella.client.rewrite.commit import TableState, commit_blocks
from lamella.client.rewrite.sort import Scratch
from lamella.client.rewrite.source import grouped
from lamella.client.rewrite.stages import Stage
from lamella.snapshot.errors import BlockReplaced, CommitConflict, InvalidRequest, LamellaError, StoreError
from lamella.snapshot.manifest import (
    FEATURES,
    WRITER_FEATURES,
    Block,
    ObjectRef,
    SegmentRef,
    Snapshot,
    decode_segment,
)
from lamella.snapshot.parquet.block import optional_in_files
from lamella.snapshot.parquet.file_values import with_scanned_columns
from lamella.snapshot.parquet.footer import read_footer
from lamella.snapshot.schema import DataType, Schema
from lamella.snapshot.sketch import family_of
from lamella.snapshot.sketch.layers import read_blocks
from lamella.snapshot.source import KIND
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.storage import FsspecStore, Store
from lamella.snapshot.warehouse.manifests import Manifests

#: Bytes of files, and blocks, that are committed together.
_COMMIT_BYTES: Final = 8 << 30
_COMMIT_BLOCKS: Final = 1000
#: Bytes of files that a task reads.
_TASK_BYTES: Final = 256 << 20
#: Attempts to commit again without the blocks that others changed.
_TRIES: Final = 8
_CACHE_BYTES: Final = 64 << 20


class LeftBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A block that could not be read, and is as it was."""

    location: str
    reason: str


class AnalyzeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an analysis did. ``blocks``: how many have better statistics, with ``rows`` in files of ``file_bytes``.

    ``unchanged``: blocks whose values proved nothing more. ``conflicts``: blocks that others changed meanwhile.
    ``remaining_blocks``: blocks beyond the limits. ``snapshot_id``: the last snapshot; None: it made none.
    """

    blocks: int = 0
    rows: int = 0
    file_bytes: int = 0
    unchanged: int = 0
    conflicts: int = 0
    failures: tuple[LeftBlock, ...] = ()
    remaining_blocks: int = 0
    snapshot_id: str | None = None


class BlocksToRead(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks of one segment: its manifest and sketches, and the numbers of the blocks in it with the ids of the columns
    to read of each."""

    manifest: ObjectRef
    sketches: str
    columns: dict[int, tuple[int, ...]]


class ReadResult(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks with the statistics of their values."""

    blocks: tuple[Block, ...] = ()
    unchanged: int = 0
    failures: tuple[LeftBlock, ...] = ()


class ReadValues(Stage, frozen=True, kw_only=True):
    """Reads columns of blocks, one at a time, in batches of rows."""

    task_type: ClassVar[Any] = BlocksToRead
    result_type: ClassVar[Any] = ReadResult

    def __call__(self, task: BlocksToRead) -> ReadResult:
        store = self.target.store()
        data = store.read(task.manifest.location)
        listed = decode_segment(data, sha256=task.manifest.sha256, location=task.manifest.location).blocks
        sketches = read_blocks(store, task.sketches) if any(map(_has_sketches, listed)) else {}
        blocks: list[Block] = []
        failures: list[LeftBlock] = []
        unchanged = 0
        for number, column_ids in task.columns.items():
            block = listed[number]
            known = msgspec.structs.replace(block, sketches=sketches.get(block.location, {}))
            try:
                found = _with_values(store, self.schemas[block.written_with], known, column_ids)
            except StoreError:
                raise
            except LamellaError as error:
                failures.append(LeftBlock(location=block.location, reason=error.message))
                continue
            if found == known:
                unchanged += 1
            else:
                blocks.append(found)
        return ReadResult(blocks=tuple(blocks), unchanged=unchanged, failures=tuple(failures))


def _has_sketches(block: Block) -> bool:
    return any(stats.distinct_of_values is not None for stats in block.col_stats.values())


def _with_values(store: Store, schema: Schema, block: Block, column_ids: Collection[int]) -> Block:
    footer = read_footer(store, block.location)
    if block.footer_sha256 not in (None, footer.sha256) or footer.stat.size_bytes != block.file_size:
        raise BlockReplaced(
            f"{block.location} is not the file that the table's statistics come from", location=block.location
        )
    found = with_scanned_columns(store, footer, optional_in_files(schema, block.constants), block, column_ids)
    # What is known by the partition of an Iceberg file is not seen in its values.
    stats = {
        column_id: msgspec.structs.replace(each, bucket=before.bucket)
        for column_id, each in found.col_stats.items()
        if (before := block.col_stats.get(column_id)) is not None and before.bucket != each.bucket
    }
    return msgspec.structs.replace(found, col_stats=found.col_stats | stats)


def is_incomplete(stats: ColumnStats | None, dtype: DataType) -> bool:
    """Return whether the values of a column of a block can prove more than its statistics say."""
    if stats is None or stats.source in ("footer", "partition"):
        return True
    counts = family_of(dtype) is not None
    return stats.source == "scan" and stats.reason is None and counts and stats.distinct_of_values is None


def analyze(
    context: JobContext,
    columns: Sequence[str] | None = None,
    *,
    max_bytes: int | None = None,
    max_blocks: int | None = None,
) -> AnalyzeResult:
    """Read the values of blocks that lack exact statistics or counts of distinct values of some columns (None: all).

    ``max_bytes``, ``max_blocks``: maximum to read, of whole files.

    Raises:
        TableNotFound, NamespaceNotFound, UnknownColumn.
        InvalidRequest: the table follows a source; see ``refresh``.
        JobCancelled: raised between two commits; committed work stays.
        OutcomeUnknown: the last commit may have happened.
    """
    state = TableState.read(context.lake, context.table)
    if KIND in state.snapshot.properties:
        raise InvalidRequest(
            f"{context.table} follows a source, whose files a refresh reads: refresh the table with full and verify"
        )
    found = list(_incomplete(state, FsspecStore(context.storage_options), _column_ids(state.snapshot, columns)))
    chosen = _within(found, max_bytes, max_blocks)
    result = AnalyzeResult(remaining_blocks=len(found) - len(chosen))
    total = sum(each.file_size for each in chosen)
    target = state.target(indexes=False, storage_options=context.storage_options)
    stage = ReadValues(target=target, scratch=Scratch(target.layout.scratch))
    done_bytes = 0
    for some in _together(chosen):
        context.check()
        blocks: list[Block] = []
        for _, read in context.engine.run(stage, _tasks(state, some, context.engine.parallelism)):
            context.check()
            blocks += read.blocks
            result = msgspec.structs.replace(
                result, unchanged=result.unchanged + read.unchanged, failures=result.failures + read.failures
            )
        result = _committed(context, state, target.store(), result, blocks)
        done_bytes += sum(each.file_size for each in some)
        context.progress(done_bytes, total, "bytes")
    return result


class _Incomplete(msgspec.Struct, frozen=True):
    """A block to read: its segment, its number there, and the columns."""

    ref: SegmentRef
    number: int
    file_size: int
    column_ids: tuple[int, ...]


def _column_ids(snapshot: Snapshot, columns: Sequence[str] | None) -> dict[int, DataType]:
    """Return the types of columns by id: of those that are named, or of all that can have bounds."""
    leaves = snapshot.schema.leaves() if columns is None else [snapshot.schema.leaf(name) for name in columns]
    if columns is not None:
        for leaf in leaves:
            if leaf.repeated or leaf.dtype.order is None:
                raise InvalidRequest(f"column {leaf.name!r} has no statistics of values: its type is {leaf.dtype}")
    return {leaf.id: leaf.dtype for leaf in leaves if not leaf.repeated and leaf.dtype.order is not None}


def _incomplete(state: TableState, store: Store, wanted: Mapping[int, DataType]) -> Iterator[_Incomplete]:
    manifests = Manifests(store, _CACHE_BYTES)
    written = {schema.schema_id: schema.by_id() for schema in state.snapshot.history}
    for ref in manifests.refs(state.snapshot):
        counted = (ref.summary.col_stats.get(column_id) for column_id in wanted)
        if all(stats is not None and stats.distinct_of_values is not None for stats in counted):
            continue  # only what was read has counts
        for number, block in enumerate(manifests.segment(ref).blocks):
            leaves = written[block.written_with]
            column_ids = tuple(
                column_id
                for column_id in wanted
                if column_id in leaves and is_incomplete(block.col_stats.get(column_id), leaves[column_id].dtype)
            )
            if column_ids and block.row_count:
                yield _Incomplete(ref, number, block.file_size, column_ids)


def _within(found: Sequence[_Incomplete], max_bytes: int | None, max_blocks: int | None) -> list[_Incomplete]:
    """Return as many as the limits allow, but at least one."""
    chosen: list[_Incomplete] = []
    size_bytes = 0
    for each in found[:max_blocks]:
        size_bytes += each.file_size
        if chosen and max_bytes is not None and size_bytes > max_bytes:
            break
        chosen.append(each)
    return chosen


def _together(chosen: Sequence[_Incomplete]) -> Iterator[list[_Incomplete]]:
    """Yield what is committed together."""
    for some in grouped(chosen, lambda each: each.file_size, _COMMIT_BYTES):
        for start in range(0, len(some), _COMMIT_BLOCKS):
            yield some[start : start + _COMMIT_BLOCKS]


def _tasks(state: TableState, some: Sequence[_Incomplete], parallelism: int) -> list[BlocksToRead]:
    layout = state.target(indexes=False).layout
    share = max(1, min(_TASK_BYTES, sum(each.file_size for each in some) // (2 * parallelism)))
    by_segment: dict[str, list[_Incomplete]] = {}
    for each in some:
        by_segment.setdefault(each.ref.segment_id, []).append(each)
    return [
        BlocksToRead(
            manifest=part[0].ref.manifest,
            sketches=layout.sketches(part[0].ref.segment_id),
            columns={each.number: each.column_ids for each in part},
        )
        for of_segment in by_segment.values()
        for part in grouped(of_segment, lambda each: each.file_size, share)
    ]


def _committed(
    context: JobContext, state: TableState, store: Store, result: AnalyzeResult, blocks: list[Block]
) -> AnalyzeResult:
    """Commit the blocks that nobody has changed."""
    count = len(blocks)
    snapshot_id = None
    for _ in range(_TRIES):
        if not blocks:
            break
        try:
            snapshot_id = commit_blocks(
                context.lake,
                context.table,
                blocks,
                store=store,
                location=state.info.location,
                removed=[block.location for block in blocks],
                base_snapshot_id=state.snapshot.snapshot_id,
                operation="analyze",
                row_change="replace",
                # Rows that were checked are the same rows.
                writer_features=WRITER_FEATURES if any(each.has_constraints for each in state.snapshot.history) else (),
            ).snapshot_id
            break
        except CommitConflict:
            left = _unchanged(context, blocks)
            if len(left) == len(blocks):
                raise
            blocks = left
    else:
        blocks = []
    return msgspec.structs.replace(
        result,
        blocks=result.blocks + len(blocks),
        rows=result.rows + sum(block.row_count for block in blocks),
        file_bytes=result.file_bytes + sum(block.file_size for block in blocks),
        conflicts=result.conflicts + count - len(blocks),
        snapshot_id=snapshot_id or result.snapshot_id,
    )


def _unchanged(context: JobContext, blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks that are in the table as they were read."""
    table = context.lake.table(context.table)
    facts = table.blocks([block.location for block in blocks], reader_features=FEATURES).blocks
    now = {(each.location, each.content_id, each.deletes) for each in facts}
    return [block for block in blocks if (block.location, block.content_id, block.deletes) in now]

"""Block addresses, for answers of shape "ranges" and for rewrite jobs: the calls.

Their methods are in :mod:`lamella.client.http.aio.blocks`. A segment's blocks never change, so they are requested once
and cached.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypedDict

import msgspec

from lamella.client.filters import plain_filter
from lamella.client.http.call import Call, TableName, make_call, text_tuple
from lamella.client.http.results import PruneResult
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.manifest import DeleteFile
from lamella.snapshot.stats import Bound
from lamella.snapshot.wire import (
    BlockColumns,
    BlockRanges,
    BlocksAnswer,
    BlocksRequest,
    PlanAnswer,
    PlanRequest,
    RewriteJob,
    SegmentBlocks,
    operations,
)

# From ranges to addresses, for answers of ``shape`` "ranges".

#: Blocks whose addresses a client caches; about 250 bytes each.
_MAX_BLOCKS: Final = 1_000_000


class AddressCache:
    """A thread-safe LRU cache of the addresses of segments' blocks."""

    def __init__(self, max_blocks: int = _MAX_BLOCKS) -> None:
        self._max_blocks = max_blocks
        self._blocks = 0
        self._segments: OrderedDict[str, SegmentBlocks] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, segment_id: str) -> SegmentBlocks | None:
        """The blocks of a segment; None when they are not cached."""
        with self._lock:
            found = self._segments.get(segment_id)
            if found is not None:
                self._segments.move_to_end(segment_id)
            return found

    def put(self, blocks: SegmentBlocks) -> None:
        """Add the blocks of a segment."""
        with self._lock:
            if blocks.segment_id in self._segments:
                return
            self._segments[blocks.segment_id] = blocks
            self._blocks += len(blocks.location)
            while self._blocks > self._max_blocks:
                _, gone = self._segments.popitem(last=False)
                self._blocks -= len(gone.location)


def segment_blocks_call(
    name: TableName, segment_id: str, snapshot_id: str, reader_features: Sequence[str]
) -> Call[SegmentBlocks]:
    """The addresses of a segment's blocks."""
    query = {"snapshot_id": snapshot_id, "reader_features": ",".join(reader_features) or None}
    return make_call(operations.history.GET_SEGMENT_BLOCKS, name, segment_id=segment_id, query=query)


def ranges_of(pruned: PruneResult) -> BlockRanges:
    """The ranges of an answer; raises InvalidRequest when it has none."""
    if pruned.block_ranges is None:
        raise InvalidRequest('only answers of shape "ranges" can be resolved')
    return pruned.block_ranges


def resolve_ranges(pruned: PruneResult, segments: Mapping[str, SegmentBlocks]) -> PruneResult:
    """The same answer with its blocks as columns; ``segments`` has all segments that it names, by id."""
    ranges = ranges_of(pruned)
    columns = BlockColumns(location=[], row_count=[], file_size=[], verdict=[])
    schema_ids: list[int] = []
    constants: list[dict[int, Bound | None] | None] = []
    deletes: list[tuple[DeleteFile, ...] | None] = []
    runs = zip(ranges.segment, ranges.first, ranges.block_count, ranges.verdict, strict=True)
    for segment, first, count, verdict in runs:
        blocks = segments[ranges.segment_id[segment]]
        end = first + count
        columns.location.extend(blocks.location[first:end])
        columns.row_count.extend(blocks.row_count[first:end])
        columns.file_size.extend(blocks.file_size[first:end])
        columns.verdict.extend([verdict] * count)
        schema_ids.extend(blocks.schema_id[first:end])
        constants.extend([None] * count if blocks.constants is None else blocks.constants[first:end])
        deletes.extend([None] * count if blocks.deletes is None else blocks.deletes[first:end])
    if any(each != ranges.schema_id for each in schema_ids):
        older = [None if each == ranges.schema_id else each for each in schema_ids]
        columns = msgspec.structs.replace(columns, schema_id=older)
    if any(constants):
        columns = msgspec.structs.replace(columns, constants=constants)
    if any(deletes):
        columns = msgspec.structs.replace(columns, deletes=deletes)
    return msgspec.structs.replace(pruned, block_ranges=None, block_columns=columns)


#: Locations in one request; the service accepts no more.
_AT_ONCE: Final = 10_000
#: The same with signed URLs; a service may be configured to return fewer.
_SIGNED_AT_ONCE: Final = 1_000


class PlanOptions(TypedDict, total=False):
    """The keyword arguments of a plan; see :class:`lamella.snapshot.wire.PlanRequest`."""

    snapshot_id: str | None
    filter: Any
    time_zone: str
    case_sensitive: bool
    max_bytes: int | None
    max_blocks: int | None
    target_rows: int | None
    target_bytes: int | None
    target_depth: int | None
    min_gain: float | None
    min_deleted_share: float | None
    reader_features: tuple[str, ...]


def plan_call(name: TableName, job: RewriteJob, options: PlanOptions) -> Call[PlanAnswer]:
    """The call for a plan."""
    request = PlanRequest(job=job, **options)
    plain = plain_filter(request.filter, request.time_zone)
    return make_call(operations.clustering.PLAN, name, body=msgspec.structs.replace(request, filter=plain))


def blocks_calls(
    name: TableName,
    locations: Sequence[str],
    snapshot_id: str | None,
    *,
    sign_urls: bool,
    reader_features: Sequence[str],
) -> Iterator[Call[BlocksAnswer]]:
    """The calls that look up blocks, each for some of the locations."""
    at_once = _SIGNED_AT_ONCE if sign_urls else _AT_ONCE
    for start in range(0, max(len(locations), 1), at_once):
        some = tuple(locations[start : start + at_once])
        request = BlocksRequest(
            locations=some,
            snapshot_id=snapshot_id,
            sign_urls=sign_urls,
            reader_features=text_tuple("reader_features", reader_features),
        )
        yield make_call(operations.clustering.BLOCKS, name, body=request)


def join_answers(parts: Sequence[BlocksAnswer]) -> BlocksAnswer:
    """Join the answers of several calls into one."""
    return BlocksAnswer(
        snapshot_id=parts[0].snapshot_id,
        blocks=tuple(block for part in parts for block in part.blocks),
        missing=tuple(location for part in parts for location in part.missing),
        url_expires_ms=min((part.url_expires_ms for part in parts if part.url_expires_ms is not None), default=None),
    )

"""From ranges to addresses: what :class:`Table` and its async twin make of answers of ``shape`` "ranges".

A segment's blocks never change, so they are asked for once and kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from lamella.client.http.call import Call, TableName
from lamella.client.http.pruned import Pruned
from lamella.client.http.running import Runs, RunsAsync
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.wire import BlockColumns, BlockRanges, SegmentBlocks

#: Blocks whose addresses a client keeps; about 250 bytes each.
_KEPT_BLOCKS: Final = 1_000_000


class Addresses:
    """The addresses of segments' blocks, those that were not used for longest go first. Thread-safe."""

    def __init__(self, most_blocks: int = _KEPT_BLOCKS) -> None:
        self._most_blocks = most_blocks
        self._blocks = 0
        self._held: OrderedDict[str, SegmentBlocks] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, segment_id: str) -> SegmentBlocks | None:
        """The blocks of a segment, if they are here."""
        with self._lock:
            found = self._held.get(segment_id)
            if found is not None:
                self._held.move_to_end(segment_id)
            return found

    def put(self, blocks: SegmentBlocks) -> None:
        """Keep them."""
        with self._lock:
            if blocks.segment_id in self._held:
                return
            self._held[blocks.segment_id] = blocks
            self._blocks += len(blocks.location)
            while self._blocks > self._most_blocks:
                _, gone = self._held.popitem(last=False)
                self._blocks -= len(gone.location)


def segment_blocks_call(name: TableName, segment_id: str, snapshot_id: str) -> Call[SegmentBlocks]:
    """The addresses of a segment's blocks."""
    query = urlencode({"snapshot_id": snapshot_id})
    path = f"{name.path}/segments/{quote(segment_id, safe='')}/blocks?{query}"
    return Call(method="GET", path=path, answer=SegmentBlocks)


def ranges_of(pruned: Pruned) -> BlockRanges:
    """The ranges of an answer; raises InvalidRequest when it has none."""
    if pruned.block_ranges is None:
        raise InvalidRequest('only answers of shape "ranges" are to be resolved')
    return pruned.block_ranges


def resolved(pruned: Pruned, segments: Mapping[str, SegmentBlocks]) -> Pruned:
    """The same answer with its blocks as columns; ``segments`` has all that it names, by id."""
    ranges = ranges_of(pruned)
    columns = BlockColumns(location=[], row_count=[], file_size=[], verdict=[])
    schema_ids: list[int] = []
    runs = zip(ranges.segment, ranges.first, ranges.block_count, ranges.verdict, strict=True)
    for segment, first, count, verdict in runs:
        blocks = segments[ranges.segment_id[segment]]
        end = first + count
        columns.location.extend(blocks.location[first:end])
        columns.row_count.extend(blocks.row_count[first:end])
        columns.file_size.extend(blocks.file_size[first:end])
        columns.verdict.extend([verdict] * count)
        schema_ids.extend(blocks.schema_id[first:end])
    if any(each != ranges.schema_id for each in schema_ids):
        older = [None if each == ranges.schema_id else each for each in schema_ids]
        columns = msgspec.structs.replace(columns, schema_id=older)
    return msgspec.structs.replace(pruned, block_ranges=None, block_columns=columns)


class ResolvingTable:
    """Addresses of blocks by segment and number; a part of :class:`lamella.client.Table`."""

    _lake: Runs
    _name: TableName
    _addresses: Addresses

    def resolve(self, pruned: Pruned) -> Pruned:
        """The blocks of an answer of ``shape`` "ranges", as ``shape`` "columns" would have given them.

        The addresses of a segment are asked for once and kept by the client. Raises InvalidRequest (another shape),
        SnapshotExpired (the answer's snapshot is gone).
        """
        segments = {}
        for segment_id in ranges_of(pruned).segment_id:
            blocks = self._addresses.get(segment_id)
            if blocks is None:
                blocks = self._lake.run(segment_blocks_call(self._name, segment_id, pruned.snapshot_id))
                self._addresses.put(blocks)
            segments[segment_id] = blocks
        return resolved(pruned, segments)


class AsyncResolvingTable:
    """The async twin of :class:`ResolvingTable`."""

    _lake: RunsAsync
    _name: TableName
    _addresses: Addresses

    async def resolve(self, pruned: Pruned) -> Pruned:
        """As :meth:`ResolvingTable.resolve`."""
        segments = {}
        for segment_id in ranges_of(pruned).segment_id:
            blocks = self._addresses.get(segment_id)
            if blocks is None:
                blocks = await self._lake.run(segment_blocks_call(self._name, segment_id, pruned.snapshot_id))
                self._addresses.put(blocks)
            segments[segment_id] = blocks
        return resolved(pruned, segments)

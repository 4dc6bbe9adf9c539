"""Sketches in the layers: of blocks, and their unions for segments, groups and snapshots.

A layer has a count of a column only if every part with rows has a sketch of it. After a removal the union is computed
again from the remaining parts, so counts decrease. A table without sketches causes no reads.
"""

from __future__ import annotations

import struct
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import IO, Final, Self

import msgspec
import pyarrow as pa
from cachetools import LRUCache

from lamella.snapshot.errors import ManifestError, ObjectNotFound
from lamella.snapshot.manifest import Block, GroupRef, SegmentRef, Snapshot, Summary
from lamella.snapshot.sketch.hll import Sketch, estimate, united
from lamella.snapshot.storage import Store, TableLayout
from lamella.snapshot.storage.together import TogetherStore

# Sketch objects: one per segment (its union and its blocks' sketches), one per snapshot (its union).
#
# An object has two MessagePack parts, each compressed with Zstandard: the union by column id, then the blocks' sketches
# by location. A header gives their lengths, so that the union can be read without the rest. An unreadable object is
# treated as missing: sketches are estimates, and no answer depends on them.

#: Sketches by column id.
Columns = dict[int, Sketch]

_MAGIC: Final = b"LSK1"
_HEADER: Final = struct.Struct("<4sIIII")  # magic, then stored and plain length of each part
#: The first read covers the header and usually the whole union.
_FIRST_BYTES: Final = 64 << 10
_MAX_PLAIN_BYTES: Final = 1 << 30
_UNION: Final = msgspec.msgpack.Decoder(Columns)
_BLOCKS: Final = msgspec.msgpack.Decoder(dict[str, Columns])


def encode(union: Columns, blocks: Mapping[str, Columns]) -> bytes:
    """Returns the object of a segment, or, without blocks, of a snapshot."""
    codec = pa.Codec("zstd")
    plain = [msgspec.msgpack.encode(union), msgspec.msgpack.encode(blocks)]
    stored = [codec.compress(part, asbytes=True) for part in plain]
    lengths = [length for part, raw in zip(stored, plain, strict=True) for length in (len(part), len(raw))]
    return _HEADER.pack(_MAGIC, *lengths) + b"".join(stored)


def read_union(store: Store, location: str) -> Columns | None:
    """Returns the union of a segment or snapshot; None if the object does not exist or cannot be read."""
    try:
        head = store.read_range(location, 0, _FIRST_BYTES)
        stored, plain, _, _ = _lengths(head)
        part = head[_HEADER.size : _HEADER.size + stored]
        if len(part) < stored:
            part = store.read_range(location, _HEADER.size, stored)
        return _UNION.decode(_plain(part, plain))
    except (ObjectNotFound, ManifestError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def read_blocks(store: Store, location: str) -> dict[str, Columns]:
    """Returns the blocks' sketches of a segment by location; empty if the object does not exist or cannot be read."""
    try:
        data = store.read(location)
        first, _, stored, plain = _lengths(data)
        start = _HEADER.size + first
        return _BLOCKS.decode(_plain(data[start : start + stored], plain))
    except (ObjectNotFound, ManifestError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def _lengths(data: bytes) -> tuple[int, int, int, int]:
    if len(data) < _HEADER.size:
        raise ManifestError("a sketch object is truncated")
    magic, first, first_plain, second, second_plain = _HEADER.unpack_from(data)
    if magic != _MAGIC or max(first_plain, second_plain) > _MAX_PLAIN_BYTES:
        raise ManifestError("not a sketch object")
    return first, first_plain, second, second_plain


def _plain(part: bytes, length: int) -> bytes:
    try:
        return bytes(pa.Codec("zstd").decompress(part, decompressed_size=length, asbytes=True))
    except (pa.ArrowException, OSError) as error:
        raise ManifestError(f"a sketch object cannot be read: {error}") from error


# A temporary file with the sketches of many segments' blocks while these move into other segments.
#
# The sketches of a segment can be a thousand times as large as its summary, and the blocks of one new segment come from
# many old ones. So each old object is read once, and only the sketches of one new segment's blocks are in memory.

_COLUMNS: Final = msgspec.msgpack.Decoder(Columns)
_ENCODER: Final = msgspec.msgpack.Encoder()


class SketchSpool:
    """A context manager; the file is deleted on exit."""

    def __init__(self, store: Store, layout: TableLayout) -> None:
        self._store = store
        self._layout = layout
        self._file: IO[bytes] | None = None
        self._spans: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, ref: SegmentRef) -> None:
        """Add the sketches of a segment's blocks, if it has any."""
        found = read_blocks(self._store, self._layout.sketches(ref.segment_id))
        if found and self._file is None:
            self._file = tempfile.TemporaryFile(prefix="lamella-sketches-")  # noqa: SIM115  # closed at the exit
        for location, columns in found.items():
            if self._file is not None:
                data = _ENCODER.encode(columns)
                self._spans[location] = (self._file.tell(), len(data))
                self._file.write(data)

    def restored(self, blocks: list[Block]) -> list[Block]:
        """Returns blocks read from manifests, with their sketches."""
        return [msgspec.structs.replace(block, sketches=self._of(block.location)) for block in blocks]

    def _of(self, location: str) -> Columns:
        span = self._spans.get(location)
        if span is None or self._file is None:
            return {}
        self._file.seek(span[0])
        found = _COLUMNS.decode(self._file.read(span[1]))
        self._file.seek(0, 2)
        return found


_UNIONS_CACHED = 1024


class SketchLayers:
    """The sketch objects of a warehouse's tables. May be shared between threads."""

    def __init__(self, store: TogetherStore) -> None:
        self._store = store
        self._unions: LRUCache[str, Columns] = LRUCache(_UNIONS_CACHED)
        self._lock = threading.Lock()

    def of_segment(self, layout: TableLayout, segment_id: str, summary: Summary, blocks: Sequence[Block]) -> Summary:
        """Write a new segment's sketches, if its blocks have any; returns the summary with the known counts."""
        sketched = {block.location: dict(block.sketches) for block in blocks if block.sketches}
        if not sketched:
            return summary
        union = _united([block.sketches for block in blocks if block.row_count])
        self._write(layout.sketches(segment_id), union, sketched)
        return counted(summary, union)

    def restored(self, layout: TableLayout, ref: SegmentRef, blocks: Sequence[Block]) -> list[Block]:
        """Returns blocks read from a segment's manifest, with their sketches."""
        if all(stats.distinct_of_values is None for block in blocks for stats in block.col_stats.values()):
            return list(blocks)
        found = read_blocks(self._store, layout.sketches(ref.segment_id))
        return [msgspec.structs.replace(block, sketches=found.get(block.location, {})) for block in blocks]

    def spool(self, layout: TableLayout) -> SketchSpool:
        """Returns a spool for sketches of blocks that move from many segments into others."""
        return SketchSpool(self._store, layout)

    def of_group(self, layout: TableLayout, group_id: str, summary: Summary, segments: Sequence[SegmentRef]) -> Summary:
        """Write a new group's union, if its segments are counted; returns the summary with the known counts."""
        filled = [ref for ref in segments if ref.summary.row_count]
        if not _counted_everywhere(filled):
            return summary
        union = _united([self._read(layout.sketches(ref.segment_id)) or {} for ref in filled])
        self._write(layout.sketches(group_id), union, {})
        return counted(summary, union)

    def of_rest(self, layout: TableLayout, group: GroupRef, left: Sequence[SegmentRef]) -> GroupRef:
        """Returns a group of which only the segments ``left`` are still in the table, with the known counts."""
        filled = [ref for ref in left if ref.summary.row_count]
        if not _counted_everywhere(filled):
            return group
        union = _united([self._read(layout.sketches(ref.segment_id)) or {} for ref in filled])
        with self._lock:  # no object: it is recomputed when it is no longer cached
            self._unions[_rest_key(layout, group)] = union
        return msgspec.structs.replace(group, summary=counted(group.summary, union))

    def of_snapshot(
        self,
        layout: TableLayout,
        base: Snapshot,
        following: Snapshot,
        *,
        appended: Sequence[SegmentRef] | None,
        segments_of: Callable[[GroupRef], Sequence[SegmentRef]],
    ) -> Snapshot:
        """Write the sketches of the snapshot that follows ``base``, if its segments have any, and return it with
        counts.

        ``appended``: the segments added to the blocks of ``base``, None if something was removed. ``segments_of``:
        returns the segments of a group that are in the table.
        """
        parts_of: list[SegmentRef | GroupRef] = [*following.groups, *following.segments]
        filled = [ref for ref in parts_of if ref.summary.row_count]
        if not _counted_everywhere(filled):
            return following
        below = (
            self._read(layout.sketches(base.snapshot_id)) if appended is not None and base.summary.row_count else None
        )
        if appended is not None and below is not None:
            added = [ref for ref in appended if ref.summary.row_count]
            parts = [below, *(self._read(layout.sketches(ref.segment_id)) or {} for ref in added)]
        else:
            parts = [self._part(layout, ref, segments_of) for ref in filled]
        union = _united(parts)
        self._write(layout.sketches(following.snapshot_id), union, {})
        return msgspec.structs.replace(following, summary=counted(following.summary, union))

    def _part(
        self,
        layout: TableLayout,
        ref: SegmentRef | GroupRef,
        segments_of: Callable[[GroupRef], Sequence[SegmentRef]],
    ) -> Columns:
        if isinstance(ref, SegmentRef):
            return self._read(layout.sketches(ref.segment_id)) or {}
        if not ref.dropped:
            return self._read(layout.sketches(ref.group_id)) or {}
        with self._lock:
            found = self._unions.get(_rest_key(layout, ref))
        if found is None:
            left = [each for each in segments_of(ref) if each.summary.row_count]
            found = _united([self._read(layout.sketches(each.segment_id)) or {} for each in left])
        return found

    def _read(self, location: str) -> Columns | None:
        with self._lock:
            found = self._unions.get(location)
        if found is None:
            found = read_union(self._store, location)
            if found is not None:
                with self._lock:
                    self._unions[location] = found
        return found

    def _write(self, location: str, union: Columns, blocks: Mapping[str, Columns]) -> None:
        self._store.put_new(location, encode(union, blocks))
        with self._lock:
            self._unions[location] = union


def _rest_key(layout: TableLayout, group: GroupRef) -> str:
    return f"{layout.sketches(group.group_id)} without {group.dropped}"


def counted(summary: Summary, union: Columns) -> Summary:
    """Returns a summary with the estimates of a union, and no other counts."""
    stats = {
        column_id: msgspec.structs.replace(
            each, distinct_of_values=estimate(union[column_id]) if column_id in union else None
        )
        for column_id, each in summary.col_stats.items()
    }
    return msgspec.structs.replace(summary, col_stats=stats)


def unsketched(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Returns blocks as manifests store them: without their sketches, which have their own object."""
    return tuple(msgspec.structs.replace(block, sketches={}) if block.sketches else block for block in blocks)


def _counted_everywhere(parts: Sequence[SegmentRef | GroupRef]) -> set[int]:
    """Returns the columns that every part has counted."""
    counted_in = [
        {column_id for column_id, stats in ref.summary.col_stats.items() if stats.distinct_of_values is not None}
        for ref in parts
    ]
    return set.intersection(*counted_in) if counted_in else set()


def _united(parts: Sequence[Mapping[int, Sketch]]) -> Columns:
    """Returns the unions of the columns that every part has."""
    if not parts:
        return {}
    common = set(parts[0]).intersection(*parts[1:])
    found = {column_id: united(part[column_id] for part in parts) for column_id in sorted(common)}
    return {column_id: sketch for column_id, sketch in found.items() if sketch is not None}

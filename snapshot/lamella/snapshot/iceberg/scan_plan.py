"""Scan planning: the blocks that a prune keeps as Iceberg scan tasks with statistics, split into plan tasks."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.sidecar import Sidecar
from lamella.snapshot.errors import InvalidPageToken
from lamella.snapshot.iceberg.filter import IcebergResiduals
from lamella.snapshot.iceberg.partitions import partition_json, partition_of, spec_id_of
from lamella.snapshot.iceberg.wire import MAX_CHARACTERS, PlanTableScan
from lamella.snapshot.manifest import CONSTANTS, Block, DeleteFile, Snapshot
from lamella.snapshot.prune.paging import Position
from lamella.snapshot.prune.result import SegmentSelection
from lamella.snapshot.schema import DataType, Schema
from lamella.snapshot.schema.evolution import schema_at
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.stats.bound import Value, from_bound
from lamella.snapshot.stats.column import is_all_null
from lamella.snapshot.stats.constant import Constants
from lamella.snapshot.tokens import SignedTokens

# A block's statistics in Iceberg's form: counts and bounds by field id, restricted to what every reader may trust.
#
# Readers skip files by bounds, and Spark answers MIN and MAX from them as if they were values of rows, except for text
# and bytes. So a bound of any other type is included only if it is such a value. Iceberg compares numbers as if there
# were no NaN, and distinguishes -0.0 from 0.0; Spark's rows do neither.

_INT: Final = struct.Struct("<i")
_LONG: Final = struct.Struct("<q")
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
#: Types whose bounds need not be values of rows.
_CUT: Final = ("binary", "bson")
_SURROGATES: Final = (0xD800, 0xE000)
_LAST: Final = 0x10FFFF


class FileStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest's statistics of a file's columns, by field id. ``value_counts`` include nulls and NaN."""

    value_counts: dict[int, int]
    null_value_counts: dict[int, int]
    nan_value_counts: dict[int, int]
    lower_bounds: dict[int, bytes]
    upper_bounds: dict[int, bytes]


def file_statistics(block: Block, schema: Schema, columns: Collection[int] | None = None) -> FileStatistics:
    """Returns the statistics of a block that was written with ``schema``; only of the ``columns`` with these ids (None:
    all).

    Columns below lists and maps are left out: their numbers of values differ from the number of rows.

    Raises:
        ManifestError: a bound does not match the column's type.
    """
    found = FileStatistics(value_counts={}, null_value_counts={}, nan_value_counts={}, lower_bounds={}, upper_bounds={})
    rows = block.row_count
    for leaf in schema.leaves():
        stats = block.col_stats.get(leaf.id)
        if stats is None or leaf.repeated or (columns is not None and leaf.id not in columns):
            continue
        found.value_counts[leaf.id] = rows
        if stats.null_count is not None:
            found.null_value_counts[leaf.id] = stats.null_count
        if is_all_null(stats, rows):
            continue
        if leaf.dtype.is_float:
            nans = _nans(stats, rows)
            if nans is not None:
                found.nan_value_counts[leaf.id] = nans
        low, high = _bounds(leaf.dtype, stats)
        if low is not None:
            found.lower_bounds[leaf.id] = low
        if high is not None:
            found.upper_bounds[leaf.id] = high
    return found


def _nans(stats: ColumnStats, rows: int) -> int | None:
    if stats.nan == "none":
        return 0
    if stats.nan == "all" and stats.null_count is not None:
        return rows - stats.null_count
    return None


def _bounds(dtype: DataType, stats: ColumnStats) -> tuple[bytes | None, bytes | None]:
    if dtype.is_text or dtype.name in _CUT:
        low = None if stats.min is None else _bytes(from_bound(dtype, stats.min))
        high = None if stats.max is None else _bytes(from_bound(dtype, stats.max))
        if dtype.is_text:
            # Readers decode them, and fail at a truncated character.
            low, high = None if low is None else _head(low), _text_above(high)
        return low, high
    encode = _encoder(dtype)
    if encode is None:
        return None, None
    low = encode(from_bound(dtype, stats.min), -1) if stats.min is not None and stats.min_exact else None
    # In Spark NaN is greater than all numbers, so no number is a maximum in its presence.
    has_max = stats.max is not None and stats.max_exact and (not dtype.is_float or stats.nan == "none")
    high = encode(from_bound(dtype, stats.max), 1) if stats.max is not None and has_max else None
    return low, high


def _encoder(dtype: DataType) -> Callable[[Value, int], bytes | None] | None:
    """Returns a function that encodes a value as Iceberg does, ``side`` -1 as a lower and 1 as an upper bound; None if
    clients order the type differently."""
    name = dtype.name
    if name == "boolean":
        return lambda value, _: b"\1" if value else b"\0"
    if name == "date" or (dtype.is_integer and name != "int64"):
        return lambda value, _: _INT.pack(int(value))
    if name == "int64":
        return lambda value, _: _LONG.pack(int(value))
    if name in ("time", "timestamp", "timestamp_ntz"):
        return (lambda value, _: _LONG.pack(int(value))) if dtype.unit == "us" else None
    if name == "float32":
        return lambda value, side: _FLOAT.pack(_signed_zero(float(value), side))
    if name == "float64":
        return lambda value, side: _DOUBLE.pack(_signed_zero(float(value), side))
    if name == "decimal":
        return lambda value, _: _unscaled(int(value))
    if name == "fixed":
        return lambda value, _: _bytes(value)
    return None  # including uuid: clients order them in two ways


def _signed_zero(value: float, side: int) -> float:
    """Returns the outermost zero: in Iceberg -0.0 is less than 0.0, in rows they are equal."""
    return value if value else side * 0.0


def _unscaled(value: int) -> bytes:
    """Returns the shortest two's complement, big-endian."""
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return value.to_bytes(size, "big", signed=True)


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"not bytes: {value!r}")
    return value


def _text_above(bound: bytes | None) -> bytes | None:
    """Returns an upper bound that is valid text and not less; None if there is none."""
    if bound is None:
        return None
    head = _head(bound)
    if head == bound:
        return bound
    text = head.decode()
    while text:
        text, last = text[:-1], ord(text[-1])
        if last < _LAST:
            after = last + 1
            return (text + chr(_SURROGATES[1] if after == _SURROGATES[0] else after)).encode()
    return None


def _head(bound: bytes) -> bytes:
    """Returns the bytes before the first one that is not text."""
    try:
        bound.decode("utf-8")
    except UnicodeDecodeError as error:
        return bound[: error.start]
    return bound


class FileMembers:
    """Returns members of a ``data-file`` as JSON. ``blocks`` reads those of a segment by its row in the snapshot."""

    def __init__(self, head: Snapshot, column_ids: Sequence[int], blocks: Callable[[int], Sequence[Block]]) -> None:
        self._head = head
        self._ids = frozenset(column_ids)
        self._blocks = blocks
        self._read: tuple[int, Sequence[Block]] | None = None

    def __call__(self, part: SegmentSelection, row: int) -> bytes:
        """Returns the members of one block, each after a comma."""
        if self._read is None or self._read[0] != part.segment:
            self._read = (part.segment, self._blocks(part.segment))
        block = self._read[1][row]
        found = file_statistics(block, schema_at(self._head, block.written_with), self._ids)
        lower, upper = (
            {column: bound.hex() for column, bound in bounds.items() if is_exact(block, column)}
            for bounds, is_exact in ((found.lower_bounds, _low_is_exact), (found.upper_bounds, _high_is_exact))
        )
        return b"".join(
            b',"%b":%b' % (name, msgspec.json.encode(_member(values)))
            for name, values in (
                (b"value-counts", found.value_counts),
                (b"null-value-counts", found.null_value_counts),
                (b"nan-value-counts", found.nan_value_counts),
                (b"lower-bounds", lower),
                (b"upper-bounds", upper),
            )
            if values
        )


def _member(values: Mapping[int, int | str]) -> dict[str, list[int | str]]:
    return {"keys": list(values), "values": list(values.values())}


def _low_is_exact(block: Block, column_id: int) -> bool:
    return block.col_stats[column_id].min_exact


def _high_is_exact(block: Block, column_id: int) -> bool:
    return block.col_stats[column_id].max_exact


#: Maximum number of scan tasks in one answer.
MAX_TASKS: Final = 5_000
#: Maximum total size of their residual filters and statistics, in bytes.
_PART_BYTES: Final = 16 << 20
#: Maximum size of a plan without parts.
MAX_BYTES: Final = 64 << 20
#: Approximate size of the rest of a task, and of the statistics of a column.
_TASK_BYTES: Final = 300
_DELETE_FILE_BYTES: Final = 450
_COLUMN_BYTES: Final = 200
#: Maximum total size of the tokens of one answer, in characters.
_TOKEN_CHARACTERS: Final = 4 << 20

#: Returns further members of the ``data-file`` of a kept block, given its part and row: JSON that begins with a comma,
#: or nothing.
Extra = Callable[[SegmentSelection, int], bytes]


class PlannedBlock(msgspec.Struct, frozen=True):
    """A block to read: row ``row`` of the sidecar of ``part``. ``left``: True, or the residual filter as JSON."""

    part: SegmentSelection
    row: int
    left: bool | msgspec.Raw


def within(parts: Iterable[SegmentSelection], start: Position, stop: Position) -> Iterator[SegmentSelection]:
    """Yields the kept blocks from ``start`` to before ``stop``.

    Positions count blocks of the snapshot, not kept blocks, whose number may decrease while a plan is fetched.
    """
    for part in parts:
        segment, rows = part.segment, part.rows
        if segment < start.segment or segment > stop.segment:
            continue
        low = start.row if segment == start.segment else 0
        below = rows < stop.row if segment == stop.segment else np.ones(len(rows), dtype=bool)
        chosen = below & (rows >= low)
        if chosen.all():
            yield part
        elif chosen.any():
            yield part.where(chosen)


def ranges(
    parts: Iterable[SegmentSelection], start: Position, stop: Position, max_blocks: int
) -> list[tuple[Position, Position]]:
    """Returns ranges of at most ``max_blocks`` blocks each that cover everything from ``start`` to before ``stop``."""
    cuts = [start]
    count = 0
    for part in within(parts, start, stop):
        left = part.rows
        while len(left) > max_blocks - count:
            cut = Position(part.segment, int(left[max_blocks - count]))
            cuts.append(cut)
            left = left[max_blocks - count :]
            count = 0
        count += len(left)
    return list(zip(cuts, [*cuts[1:], stop], strict=True))


def blocks_of(parts: Iterable[SegmentSelection], residuals: IcebergResiduals) -> Iterator[PlannedBlock]:
    """Yields the blocks of which some row may match."""
    for part in parts:
        for row, left in zip(part.rows.tolist(), residuals.of(part.sidecar, part.rows), strict=True):
            if left is not False:
                yield PlannedBlock(part, row, left)


def enough(
    parts: Iterable[SegmentSelection], residuals: IcebergResiduals, row_count: int, max_blocks: int
) -> list[PlannedBlock] | None:
    """Returns blocks with ``row_count`` rows or more, all of which are proven to match.

    None: fewer rows are proven to match, or they need more than ``max_blocks`` blocks.
    """
    found: list[PlannedBlock] = []
    for block in blocks_of(parts, residuals):
        if block.left is True:
            found.append(block)
            row_count -= int(block.part.sidecar.live_row_counts()[block.row])
        if row_count <= 0 or len(found) > max_blocks:
            break
    return found if row_count <= 0 and len(found) <= max_blocks else None


def part_sizes(task_bytes: int, token_characters: int) -> tuple[int, int]:
    """Returns the maximum number of tasks of an answer, and of tokens."""
    tasks = max(1, min(MAX_TASKS, _PART_BYTES // task_bytes))
    return tasks, max(8, _TOKEN_CHARACTERS // max(1, token_characters))


def task_bytes(residual_bytes: int, columns: int, *, has_deletes: bool = False) -> int:
    """Returns the approximate maximum size of a task: a residual is no longer than the whole filter."""
    return _TASK_BYTES + residual_bytes + _COLUMN_BYTES * columns + (_DELETE_FILE_BYTES if has_deletes else 0)


def spread(cuts: Sequence[tuple[Position, Position]], max_ranges: int) -> list[tuple[Position, Position]]:
    """Returns at most ``max_ranges`` ranges that cover the given ones, of about as many each."""
    step = -(-len(cuts) // max_ranges)
    return [(cuts[at][0], cuts[min(at + step, len(cuts)) - 1][1]) for at in range(0, len(cuts), step)]


class ScanTaskList:
    """Collects scan tasks of one answer as JSON, and the deletion vectors that they refer to."""

    def __init__(self) -> None:
        self._tasks: list[bytes] = []
        self._delete_files: list[bytes] = []

    def add(self, blocks: Iterable[PlannedBlock], head: Snapshot, extra: Extra | None = None) -> None:
        """Add the tasks of blocks of a snapshot.

        Raises:
            NotExpressible: Iceberg's readers would not read a constant, or deleted rows, as Spark does.
        """
        partitions = _Partitions(head)
        part: SegmentSelection | None = None
        run: list[PlannedBlock] = []
        for block in blocks:
            if block.part is not part:
                self._add_part(run, partitions, extra)
                part, run = block.part, []
            run.append(block)
        self._add_part(run, partitions, extra)

    def members(self, plan_tasks: Sequence[str] = ()) -> Iterator[bytes]:
        """Yields the members of an answer, with tokens of further parts."""
        if self._delete_files:
            yield b'"delete-files":[%b],' % b",".join(self._delete_files)
        yield b'"file-scan-tasks":['
        yield b",".join(self._tasks)
        yield b"]"
        if plan_tasks:
            yield b',"plan-tasks":' + msgspec.json.encode(plan_tasks)

    def _add_part(self, blocks: Sequence[PlannedBlock], partitions: _Partitions, extra: Extra | None) -> None:
        if not blocks:
            return
        part = blocks[0].part
        rows = np.array([block.row for block in blocks], dtype=np.int64)
        sidecar = part.sidecar
        for block, partition, deletes, location, size, count in zip(
            blocks,
            partitions.of(sidecar, rows),
            sidecar.deletes(rows),
            sidecar.texts("location", rows),
            sidecar.numbers("file_size")[rows].tolist(),
            sidecar.numbers("row_count")[rows].tolist(),
            strict=True,
        ):
            path = _ENCODE(location)
            references = b""
            if deletes:
                references = b',"delete-file-references":[%d]' % len(self._delete_files)
                self._delete_files.append(_delete_file(deletes, partition, path))
            self._tasks.append(
                b'{"data-file":{%b,"content":"data","file-path":%b,"file-format":"parquet",'
                b'"file-size-in-bytes":%d,"record-count":%d%b}%b,"residual-filter":%b}'
                % (
                    partition,
                    path,
                    size,
                    count,
                    b"" if extra is None else extra(part, block.row),
                    references,
                    b"true" if block.left is True else bytes(block.left),
                )
            )


def _delete_file(deletes: Sequence[DeleteFile], partition: bytes, path: bytes) -> bytes:
    """Returns a block's deletion vector as a delete file.

    Readers take the vector by its offset and length. The size of its file is not recorded; where the
    vector ends is a lower limit.
    """
    (entry,) = deletes
    if entry.cardinality is None:
        raise ValueError("require_counted_deletes refuses the snapshot")
    return (
        b'{%b,"content":"position-deletes","file-path":%b,"file-format":"puffin","file-size-in-bytes":%d,'
        b'"record-count":%d,"referenced-data-file":%b,"content-offset":%d,"content-size-in-bytes":%d}'
        % (
            partition,
            _ENCODE(entry.location),
            entry.offset + entry.length,
            entry.cardinality,
            path,
            entry.offset,
            entry.length,
        )
    )


class _Partitions:
    """Returns the members of ``data-file`` that say to which partition a block belongs, as JSON."""

    def __init__(self, head: Snapshot) -> None:
        self._head = head
        self._known: dict[tuple[int, int | None], tuple[object, bytes]] = {}

    def of(self, sidecar: Sidecar, rows: npt.NDArray[np.int64]) -> list[bytes]:
        """Returns those of some blocks."""
        if not sidecar.has_member(CONSTANTS):
            return [_NO_PARTITION] * len(rows)
        older = sidecar.older_schema_ids(rows, self._head.schema.schema_id)
        each = zip(rows.tolist(), sidecar.constants(rows), older, strict=True)
        return [
            _NO_PARTITION if not constants else self._members(sidecar, row, constants, schema_id)
            for row, constants, schema_id in each
        ]

    def _members(self, sidecar: Sidecar, row: int, constants: Constants, schema_id: int | None) -> bytes:
        # Blocks with the same constants share one object, which is kept so that no other has its identity.
        key = (id(constants), schema_id)
        if key not in self._known:
            location = sidecar.text_at("location", row)
            written = self._head.schema if schema_id is None else schema_at(self._head, schema_id)
            partition = partition_of(constants, written, self._head.schema, location)
            values = partition_json(partition, location)
            self._known[key] = constants, b'"spec-id":%d,"partition":%b' % (spec_id_of(tuple(partition)), values)
        return self._known[key][1]


_NO_PARTITION: Final = b'"spec-id":0,"partition":[]'


_ENCODE: Final = msgspec.json.Encoder().encode


# Plan tasks: one part of a plan as a token signed by the service.
#
# A token contains everything necessary, so any replica with the same secret can serve it, and no plans are stored: the
# snapshot, the request, and the range of blocks. It is a signed MessagePack array, with the request compressed.

_VERSION: Final = 1
#: Maximum size of a decompressed request. Tokens are signed, but their requests came from clients.
_MAX_BYTES: Final = 64 << 20
#: After every block of a snapshot.
END: Final = Position(1 << 62, 0)
START: Final = Position(0, 0)


class PlanTask(msgspec.Struct, frozen=True, array_like=True):
    """``spoken``: the snapshot whose schema has the request's names. Blocks from ``start`` to before ``stop``."""

    version: int
    table_id: str
    snapshot_id: str
    spoken: str
    request: bytes
    start: Position
    stop: Position


_TASK: Final = msgspec.msgpack.Decoder(PlanTask)
_REQUEST: Final = msgspec.json.Decoder(PlanTableScan)


class PlanTasks:
    """Writes and reads the tokens of one secret."""

    def __init__(self, secret: bytes) -> None:
        self._signed = SignedTokens(secret, "lamella plan task", max_characters=MAX_CHARACTERS)

    def first(self, table_id: str, snapshot_id: str, spoken: str, request: PlanTableScan) -> PlanTask:
        """Returns the task of a whole plan."""
        packed = zlib.compress(msgspec.json.encode(request), 1)
        return PlanTask(_VERSION, table_id, snapshot_id, spoken, packed, START, END)

    def write(self, task: PlanTask) -> str:
        """Returns the token of a task."""
        return self._signed.write(msgspec.msgpack.encode(task))

    def read(self, text: str) -> tuple[PlanTask, PlanTableScan]:
        """Returns the task of a token, and the request that it is a part of; raises InvalidPageToken."""
        try:
            task = _TASK.decode(self._signed.read(text))
            # A longer one is cut, and is then no valid JSON.
            request = _REQUEST.decode(zlib.decompressobj().decompress(task.request, _MAX_BYTES))
        except (msgspec.MsgspecError, zlib.error) as error:
            raise InvalidPageToken("the plan task is from another version of this service") from error
        if task.version != _VERSION:
            raise InvalidPageToken("the plan task is from another version of this service")
        return task, request

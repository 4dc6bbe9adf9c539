"""Scan planning: the blocks that a prune keeps as Iceberg scan tasks with statistics, cut into plan tasks."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from lamella.snapshot.errors import InvalidPageToken
from lamella.snapshot.iceberg.filter import IcebergResiduals
from lamella.snapshot.iceberg.wire import MAX_CHARACTERS, PlanTableScan
from lamella.snapshot.manifest import Block, Snapshot
from lamella.snapshot.prune.paging import Position
from lamella.snapshot.prune.selection import Kept
from lamella.snapshot.schema import DataType, Schema
from lamella.snapshot.schema.evolution import schema_at
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.stats.bound import Value, from_bound
from lamella.snapshot.stats.column import is_all_null
from lamella.snapshot.tokens import SignedTokens

# A block's statistics as Iceberg's: counts and bounds by field id, and only what every reader of them may believe.
#
# Readers skip files by bounds, and Spark answers MIN and MAX from them as if they were values of rows, but for text
# and bytes. So a bound of any other type is given only when it is such a value. Iceberg compares numbers as if there
# were no NaN, and tells -0.0 from 0.0; Spark's rows do neither.

_INT: Final = struct.Struct("<i")
_LONG: Final = struct.Struct("<q")
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
#: Whose bounds are no claim that a row has them.
_CUT: Final = ("binary", "bson")
_SURROGATES: Final = (0xD800, 0xE000)
_LAST: Final = 0x10FFFF


class FileStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a manifest says of a file's columns, by field id. ``value_counts`` include nulls and NaN."""

    value_counts: dict[int, int]
    null_value_counts: dict[int, int]
    nan_value_counts: dict[int, int]
    lower_bounds: dict[int, bytes]
    upper_bounds: dict[int, bytes]


def file_statistics(block: Block, schema: Schema, columns: Collection[int] | None = None) -> FileStatistics:
    """The statistics of a block that was written with ``schema``; only of the ``columns`` with these ids (None: all).

    Columns below lists and maps are left out: they have other numbers of values than the block has rows.

    Raises:
        ManifestError: a bound is not of the column's type.
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
            # Readers decode them, and fail at a character that is cut.
            low, high = None if low is None else _head(low), _text_above(high)
        return low, high
    encode = _encoder(dtype)
    if encode is None:
        return None, None
    low = encode(from_bound(dtype, stats.min), -1) if stats.min is not None and stats.min_exact else None
    # To Spark NaN is greater than all numbers, so no number is a greatest value beside it.
    has_greatest = stats.max is not None and stats.max_exact and (not dtype.is_float or stats.nan == "none")
    high = encode(from_bound(dtype, stats.max), 1) if stats.max is not None and has_greatest else None
    return low, high


def _encoder(dtype: DataType) -> Callable[[Value, int], bytes | None] | None:
    """Writes a value as Iceberg does, ``side`` -1 as a lower and 1 as an upper bound; None: there is no one order."""
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
    return None  # a uuid among them: clients order them in two ways


def _signed_zero(value: float, side: int) -> float:
    """A zero as the one that no other zero lies beyond: to Iceberg -0.0 is less than 0.0, to a row they are equal."""
    return value if value else side * 0.0


def _unscaled(value: int) -> bytes:
    """Two's complement, the first byte first, in as few bytes as hold it."""
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return value.to_bytes(size, "big", signed=True)


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"not bytes: {value!r}")
    return value


def _text_above(bound: bytes | None) -> bytes | None:
    """An upper bound that is text and not less; None where there is none."""
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
    """What stands before the first byte that is not text."""
    try:
        bound.decode("utf-8")
    except UnicodeDecodeError as error:
        return bound[: error.start]
    return bound


class FileMembers:
    """Gives members of a ``data-file`` as JSON. ``blocks`` reads those of a segment by its row in the snapshot."""

    def __init__(self, head: Snapshot, column_ids: Sequence[int], blocks: Callable[[int], Sequence[Block]]) -> None:
        self._head = head
        self._ids = frozenset(column_ids)
        self._blocks = blocks
        self._read: tuple[int, Sequence[Block]] | None = None

    def __call__(self, part: Kept, row: int) -> bytes:
        """The members of one block, each behind a comma."""
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


#: Scan tasks of one answer.
MAX_TASKS: Final = 5_000
#: What they may take together, in bytes, by their residual filters and statistics.
_PART_BYTES: Final = 16 << 20
#: What a plan without parts may take.
MAX_BYTES: Final = 64 << 20
#: What a task takes beside, and what the statistics of a column take, roughly.
_TASK_BYTES: Final = 300
_COLUMN_BYTES: Final = 200
#: What the tokens of one answer may take together, in characters.
_TOKEN_CHARACTERS: Final = 4 << 20

#: Of a kept block's part and row, further members of its ``data-file``: JSON that begins with a comma, or nothing.
Extra = Callable[[Kept, int], bytes]


class PlannedBlock(msgspec.Struct, frozen=True):
    """A block to read: row ``row`` of the sidecar of ``part``. ``left``: True, or the residual filter as JSON."""

    part: Kept
    row: int
    left: bool | msgspec.Raw


def within(parts: Iterable[Kept], start: Position, stop: Position) -> Iterator[Kept]:
    """The kept blocks from ``start`` to before ``stop``.

    Positions are blocks of the snapshot, not of what is kept: that may become less while a plan is fetched.
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


def ranges(parts: Iterable[Kept], start: Position, stop: Position, most: int) -> list[tuple[Position, Position]]:
    """Where parts of at most ``most`` blocks each begin and end; they cover all from ``start`` to before ``stop``."""
    cuts = [start]
    count = 0
    for part in within(parts, start, stop):
        left = part.rows
        while len(left) > most - count:
            cut = Position(part.segment, int(left[most - count]))
            cuts.append(cut)
            left = left[most - count :]
            count = 0
        count += len(left)
    return list(zip(cuts, [*cuts[1:], stop], strict=True))


def blocks_of(parts: Iterable[Kept], residuals: IcebergResiduals) -> Iterator[PlannedBlock]:
    """The blocks of which some row may match."""
    for part in parts:
        for row, left in zip(part.rows.tolist(), residuals.of(part.sidecar, part.rows), strict=True):
            if left is not False:
                yield PlannedBlock(part, row, left)


def enough(parts: Iterable[Kept], residuals: IcebergResiduals, row_count: int, most: int) -> list[PlannedBlock] | None:
    """Blocks with ``row_count`` rows or more, every one of which is proven to match.

    None: so many are not proven, or not by ``most`` blocks.
    """
    found: list[PlannedBlock] = []
    for block in blocks_of(parts, residuals):
        if block.left is True:
            found.append(block)
            row_count -= int(block.part.sidecar.numbers("row_count")[block.row])
        if row_count <= 0 or len(found) > most:
            break
    return found if row_count <= 0 and len(found) <= most else None


def part_sizes(task_bytes: int, token_characters: int) -> tuple[int, int]:
    """How many tasks an answer has at most, and how many tokens."""
    tasks = max(1, min(MAX_TASKS, _PART_BYTES // task_bytes))
    return tasks, max(8, _TOKEN_CHARACTERS // max(1, token_characters))


def task_bytes(residual_bytes: int, columns: int) -> int:
    """What a task takes at most, roughly: a residual is no longer than what the whole filter is written as."""
    return _TASK_BYTES + residual_bytes + _COLUMN_BYTES * columns


def spread(cuts: Sequence[tuple[Position, Position]], most: int) -> list[tuple[Position, Position]]:
    """At most ``most`` ranges that cover the given ones, of about as many each."""
    step = -(-len(cuts) // most)
    return [(cuts[at][0], cuts[min(at + step, len(cuts)) - 1][1]) for at in range(0, len(cuts), step)]


def tasks_json(blocks: Iterable[PlannedBlock], extra: Extra | None = None) -> bytes:
    """The scan tasks, one after another with commas between them."""
    found: list[bytes] = []
    part: Kept | None = None
    run: list[PlannedBlock] = []
    for block in blocks:
        if block.part is not part:
            found += _of_part(run, extra)
            part, run = block.part, []
        run.append(block)
    found += _of_part(run, extra)
    return b",".join(found)


def _of_part(blocks: Sequence[PlannedBlock], extra: Extra | None) -> Iterator[bytes]:
    if not blocks:
        return
    part = blocks[0].part
    rows = np.array([block.row for block in blocks], dtype=np.int64)
    sidecar = part.sidecar
    for block, place, size, count in zip(
        blocks,
        sidecar.texts("location", rows),
        sidecar.numbers("file_size")[rows].tolist(),
        sidecar.numbers("row_count")[rows].tolist(),
        strict=True,
    ):
        yield (
            b'{"data-file":{"spec-id":0,"partition":[],"content":"data","file-path":%b,"file-format":"parquet",'
            b'"file-size-in-bytes":%d,"record-count":%d%b},"residual-filter":%b}'
            % (
                _ENCODE(place),
                size,
                count,
                b"" if extra is None else extra(part, block.row),
                b"true" if block.left is True else bytes(block.left),
            )
        )


_ENCODE: Final = msgspec.json.Encoder().encode


# Plan tasks: one part of a plan as text that only the service can have written.
#
# A token holds all that is needed, so that any replica with the same secret serves it, and nobody keeps plans: the
# snapshot, the request, and from which block to which. Text: a MessagePack array, signed, the request in it
# compressed.

_VERSION: Final = 1
#: What a request may be once it is decompressed. Only requests of ours are, but they were a client's.
_MAX_BYTES: Final = 64 << 20
#: Behind every block of a snapshot.
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
        """The task that is all of a plan."""
        packed = zlib.compress(msgspec.json.encode(request), 1)
        return PlanTask(_VERSION, table_id, snapshot_id, spoken, packed, START, END)

    def write(self, task: PlanTask) -> str:
        """The token of a task."""
        return self._signed.write(msgspec.msgpack.encode(task))

    def read(self, text: str) -> tuple[PlanTask, PlanTableScan]:
        """The task of a token, and the request that it is a part of; raises InvalidPageToken."""
        try:
            task = _TASK.decode(self._signed.read(text))
            # One that is longer than this is cut, and no JSON any more.
            request = _REQUEST.decode(zlib.decompressobj().decompress(task.request, _MAX_BYTES))
        except (msgspec.MsgspecError, zlib.error) as error:
            raise InvalidPageToken("the plan task is of another version of this service") from error
        if task.version != _VERSION:
            raise InvalidPageToken("the plan task is of another version of this service")
        return task, request

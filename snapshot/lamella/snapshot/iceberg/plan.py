"""A plan: the blocks that a prune keeps as Iceberg scan tasks, cut into parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from lamella.snapshot.iceberg.residual import IcebergResiduals
from lamella.snapshot.prune.kept import Kept
from lamella.snapshot.prune.paging import Position

#: Scan tasks of one answer.
MOST_TASKS: Final = 5_000
#: What they may take together, in bytes, by their residual filters and statistics.
_PART_BYTES: Final = 16 << 20
#: What a plan without parts may take.
MOST_BYTES: Final = 64 << 20
#: What a task takes beside, and what the statistics of a column take, roughly.
_TASK_BYTES: Final = 300
_COLUMN_BYTES: Final = 200
#: What the tokens of one answer may take together, in characters.
_TOKEN_CHARACTERS: Final = 4 << 20

#: Of a kept block's part and row, further members of its ``data-file``: JSON that begins with a comma, or nothing.
Extra = Callable[[Kept, int], bytes]


class PlannedBlock(msgspec.Struct, frozen=True):
    """A block to read: row ``row`` of the companion of ``part``. ``left``: True, or the residual filter as JSON."""

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
        for row, left in zip(part.rows.tolist(), residuals.of(part.companion, part.rows), strict=True):
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
            row_count -= int(block.part.companion.numbers("row_count")[block.row])
        if row_count <= 0 or len(found) > most:
            break
    return found if row_count <= 0 and len(found) <= most else None


def part_sizes(task_bytes: int, token_characters: int) -> tuple[int, int]:
    """How many tasks an answer has at most, and how many tokens."""
    tasks = max(1, min(MOST_TASKS, _PART_BYTES // task_bytes))
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
    companion = part.companion
    for block, place, size, count in zip(
        blocks,
        companion.texts("location", rows),
        companion.numbers("file_size")[rows].tolist(),
        companion.numbers("row_count")[rows].tolist(),
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

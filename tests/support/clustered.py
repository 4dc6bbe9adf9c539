"""Tables of real rows in memory, laid out in blocks, that are rewritten as jobs would do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamella.snapshot.cluster import curve
from lamella.snapshot.cluster.compaction import Bin
from lamella.snapshot.cluster.curve import quantiles
from lamella.snapshot.cluster.depth import DepthSummary, interval_depths, summary
from lamella.snapshot.cluster.extent import (
    NOT_WRITTEN,
    UNIMPROVABLE_LEVEL,
    BlockTarget,
    Extents,
    Intervals,
    Sizes,
    extents,
)
from lamella.snapshot.cluster.selection import Aims, Selection, Task, select, unimprovable
from lamella.snapshot.columnar.keys import NumberKeys
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NUMBER, NULLS_KNOWN, Zones
from lamella.snapshot.schema import parse_type

Rows = npt.NDArray[np.int64]
KNOWN = LOW_KNOWN | HIGH_KNOWN | MAY_NUMBER | NULLS_KNOWN
BYTES_PER_ROW = 100


class Block(NamedTuple):
    """Rows, one column for each of the key; and how often they were rewritten."""

    rows: Rows
    level: int = NOT_WRITTEN


class Rewrites(NamedTuple):
    """What it took until nothing was left to do: runs, and what they wrote, in bytes of the table."""

    runs: int
    amplification: float
    last: Selection


class ClusteredTable:
    """Blocks of whole numbers. ``round_to``: bounds are as coarse as this, as those of long texts are."""

    def __init__(
        self,
        blocks: Sequence[Rows],
        *,
        kind: Literal["linear", "zorder", "hilbert"] = "linear",
        block_rows: int = 100,
        round_to: int = 1,
    ) -> None:
        self.kind = kind
        self.target = BlockTarget(rows=block_rows, size_bytes=1 << 40)
        self.round_to = round_to
        self.blocks = [Block(_columns(rows)) for rows in blocks]

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def size_bytes(self) -> int:
        """Of all blocks."""
        return int(self.sizes.size_bytes.sum())

    @property
    def sizes(self) -> Sizes:
        """Of all blocks."""
        rows = np.array([len(block.rows) for block in self.blocks], dtype=np.int64)
        return Sizes(rows, rows * BYTES_PER_ROW, np.array([block.level for block in self.blocks], dtype=np.int64))

    def extents(self, blocks: Sequence[Block] | None = None) -> Extents:
        """Where blocks (None: all) lie."""
        chosen = self.blocks if blocks is None else blocks
        low = np.stack([block.rows.min(axis=0) for block in chosen]) // self.round_to * self.round_to
        high = -(-np.stack([block.rows.max(axis=0) for block in chosen]) // self.round_to) * self.round_to
        return extents(self.kind, [zones(low[:, at], high[:, at]) for at in range(low.shape[1])])

    def depths(self) -> DepthSummary:
        """How deep blocks on a line lie."""
        found = self.extents()
        assert isinstance(found, Intervals)
        return summary(interval_depths(found))

    def append(self, *blocks: Rows) -> None:
        """Blocks that nobody has rewritten."""
        self.blocks += [Block(_columns(rows)) for rows in blocks]

    def run(self, aims: Aims, **how: Any) -> Selection:
        """One run: select, and rewrite."""
        found = select(self.extents(), self.sizes, aims, **how)
        self.rewrite(found.tasks)
        return found

    def until_done(self, aims: Aims, max_runs: int, **how: Any) -> Rewrites:
        """Runs until one selects nothing; more than ``max_runs`` are an error."""
        before, written = self.size_bytes, 0
        for runs in range(max_runs + 1):
            found = self.run(aims, **how)
            if not found.tasks:
                return Rewrites(runs, written / before, found)
            assert sum(task.size_bytes for task in found.tasks) <= aims.max_bytes
            written += sum(task.size_bytes for task in found.tasks)
        raise AssertionError(f"not done after {max_runs} runs")

    def rewrite(self, tasks: Sequence[Task]) -> None:
        """Each task's rows in order, cut evenly."""
        gone = {int(at) for task in tasks for at in task.blocks}
        assert len(gone) == sum(len(task.blocks) for task in tasks), "a block is in two tasks"
        made = [block for task in tasks for block in self._sorted(task.blocks, task.level)]
        self.blocks = [block for at, block in enumerate(self.blocks) if at not in gone] + made

    def pack(self, bins: Sequence[Bin]) -> None:
        """Each bin's rows in order, in as many pieces as it says."""
        gone = {int(at) for bin_ in bins for at in bin_.blocks}
        made = []
        for bin_ in bins:
            rows = self._in_order(np.concatenate([self.blocks[at].rows for at in bin_.blocks]))
            made += [Block(part, bin_.level) for part in np.array_split(rows, bin_.pieces)]
        self.blocks = [block for at, block in enumerate(self.blocks) if at not in gone] + made

    def _sorted(self, blocks: Any, level: int) -> list[Block]:
        rows = self._in_order(np.concatenate([self.blocks[at].rows for at in blocks]))
        pieces = int(self.target.blocks_of(len(rows), 0))
        made = [Block(part, level) for part in np.array_split(rows, pieces)]
        taken = [self.blocks[at] for at in blocks]
        is_new = np.arange(len(taken) + len(made)) >= len(taken)
        stuck = unimprovable(self.extents(taken + made), is_new)[is_new]
        return [Block(block.rows, UNIMPROVABLE_LEVEL if no else level) for block, no in zip(made, stuck, strict=True)]

    def _in_order(self, rows: Rows) -> Rows:
        keys = tuple(rows[:, at] for at in reversed(range(rows.shape[1])))
        if self.kind == "linear":
            return rows[np.lexsort(keys)]
        bits = curve.bits_for(rows.shape[1])
        dtype = parse_type("int64")
        numbers = [quantiles(pa.array(column), dtype, bits).numbers(pa.array(column)) for column in rows.T]
        found = curve.positions(self.kind, np.column_stack(numbers), bits)
        return rows[np.lexsort((*keys, *(found[:, at] for at in reversed(range(found.shape[1])))))]


def zones(low: Any, high: Any) -> Zones:
    """Zone maps of whole numbers, all known."""
    low, high = np.asarray(low, dtype=np.int64), np.asarray(high, dtype=np.int64)
    return Zones(NumberKeys(low), NumberKeys(high), np.full(len(low), KNOWN, dtype=np.uint8))


def cut(rows: Any, pieces: int) -> list[Rows]:
    """Rows as so many blocks, one after another."""
    return list(np.array_split(np.asarray(rows, dtype=np.int64), pieces))


def _columns(rows: Rows) -> Rows:
    return rows.reshape(len(rows), -1)

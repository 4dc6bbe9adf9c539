"""Lamella in process: ``Warehouse.prune``, as the service calls it."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt
from synthetic import block_numbers

from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from lamella.snapshot.wire.prune import Shape
from speed import tables
from speed.engine import NotOffered
from speed.questions import Question, spark_time, sql, warm_up

#: Memory for sidecars and their decoded form.
CACHE_BYTES: Final = 4 << 30


class Inside:
    """The blocks as arrays, one per field (``shape`` "columns")."""

    note = "SQL text in, names of blocks out; literals differ from call to call"
    shape: Any = "columns"

    def __init__(self, folder: Path) -> None:
        if self.shape not in get_args(Shape):
            raise NotOffered(f"this state of Lamella has no answers of shape {self.shape!r}")
        self.versions = {"lamella": version("lamella")}
        self._folder = folder

    def build(self, count: int) -> None:
        """Make the table."""
        tables.table(self._folder, count)

    def open(self, count: int) -> None:
        """A warehouse with nothing in its caches."""
        made = tables.table(self._folder, count)
        self.pointer = made.pointer
        self.warehouse = Warehouse(FsspecStore(), made.root, cache_bytes=CACHE_BYTES)

    def warm_up(self) -> None:
        """Open every segment, for each requested column."""
        for text in warm_up(self.warehouse.head(self.pointer).summary.block_count):
            self.warehouse.prune(self.pointer, PruneRequest(filter=text, shape=self.shape))

    def run(self, query: Question) -> Any:
        """The answer as a value."""
        return self.warehouse.prune(self.pointer, PruneRequest(filter=sql(query, spark_time), shape=self.shape))

    def block_numbers(self, answer: Any) -> npt.NDArray[np.int64]:
        """The numbers in the names of the blocks."""
        return np.sort(block_numbers(answer.block_columns.location))


class Ranges(Inside):
    """The blocks as runs within segments (``shape`` "ranges")."""

    note = (
        "SQL text in, runs of blocks out, which a client that has seen the segments' lists of blocks needs no more of"
    )
    shape = "ranges"

    def block_numbers(self, answer: Any) -> npt.NDArray[np.int64]:
        """The numbers of the blocks in the runs: a segment's blocks are a thousand in a row."""
        firsts = {
            ref.segment_id: int(block_numbers([ref.first_location or ""])[0])
            for ref in self.warehouse.segments(self.pointer)
        }
        runs = answer.block_ranges
        starts = [firsts[runs.segment_id[segment]] + at for segment, at in zip(runs.segment, runs.first, strict=True)]
        found = [np.arange(at, at + size) for at, size in zip(starts, runs.block_count, strict=True)]
        return np.sort(np.concatenate([*found, np.zeros(0, np.int64)]))

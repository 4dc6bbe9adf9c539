"""The driver's part of an external sort: runs are cut into ranges, which tasks merge into blocks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from lamella.client.rewrite.block_writer import Written
from lamella.client.rewrite.engine import Engine
from lamella.client.rewrite.ranges import cut_ranges
from lamella.client.rewrite.runs import Run, Scratch
from lamella.client.rewrite.stages import MergeRange
from lamella.client.rewrite.target import Target
from lamella.snapshot.errors import StoreError
from lamella.snapshot.layout import FsspecStore

#: Tasks that each process or core should have, so that they end together.
_TASKS_EACH: Final = 2

#: Called with how much is done, of how much, in rows.
Progress = Callable[[int, int], object]


class ScratchSpace:
    """Scratch space for one job. What tasks put there is told to :meth:`used`, and removed at the end."""

    def __init__(self, scratch: Scratch, store: FsspecStore) -> None:
        self.scratch = scratch
        self.store = store
        self._used: set[str] = set()

    def used(self, runs: Iterable[Run] = (), written: Iterable[Written] = ()) -> None:
        """These objects are there."""
        self._used.update(run.location for run in runs)
        self._used.update(part.ref.location for each in written for part in each.parts)

    def clear(self) -> None:
        """Remove them. What failed tasks left behind is removed by a clean-up of the table's folder."""
        if self._used:
            with suppress(StoreError):
                self.store.delete_many(self._used)
        self._used.clear()


@contextmanager
def scratch_space(target: Target, *, is_near: bool, folder: str | None = None) -> Iterator[ScratchSpace]:
    """Scratch space that all tasks see: ``folder`` (a URL), a temporary folder of this machine when they run here, or
    a folder beside the table's blocks."""
    store = target.store()
    if folder is not None or not is_near:
        space = ScratchSpace(Scratch((folder or target.layout.scratch).rstrip("/")), store)
        try:
            yield space
        finally:
            space.clear()
        return
    with tempfile.TemporaryDirectory(prefix="lamella-", ignore_cleanup_errors=True) as made:
        yield ScratchSpace(Scratch(f"file://{made}"), store)


def assemble(
    engine: Engine, target: Target, space: ScratchSpace, runs: Sequence[Run], progress: Progress | None = None
) -> list[Written]:
    """The rows of all runs, merged and written as blocks; in the order of the key.

    A range has as many blocks as memory allows, or fewer, so that all tasks have something to do.
    """
    if not runs:
        return []
    rows = sum(run.row_count for run in runs)
    row_bytes = max(1, sum(run.memory_bytes for run in runs) // rows)
    block_rows = max(1, sum(run.block_rows * run.row_count for run in runs) // rows)
    in_memory = max(1, target.memory_bytes // (row_bytes * block_rows))
    for_all = max(1, rows // (block_rows * engine.parallelism * _TASKS_EACH))
    ranges = cut_ranges(runs, block_rows * min(in_memory, for_all))
    stage = MergeRange(target=target, scratch=space.scratch, block_rows=block_rows)
    found: dict[int, Any] = {}
    done = 0
    for number, written in engine.run(stage, ranges):
        found[number] = written
        space.used(written=[written])
        done += written.row_count
        if progress is not None:
            progress(done, rows)
    return [found[number] for number in range(len(ranges))]

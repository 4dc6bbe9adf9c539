"""Where the rows of a frame go: into blocks as they come, or into sorted runs when they are to be put in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import msgspec
import pyarrow as pa

from lamella.client.rewrite.block_writer import BlockWriter, Written, block_rows
from lamella.client.rewrite.runs import Run, write_run
from lamella.client.rewrite.stages import RunSorter, Stage
from lamella.snapshot.cluster.block_sizes import SMALL
from lamella.snapshot.ids import Ids


class Sunk(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one stream of rows: blocks that are done, and runs of rows that are not in blocks yet."""

    written: Written = Written()
    runs: tuple[Run, ...] = ()


class Sink(Stage, frozen=True, kw_only=True):
    """Takes in one stream of batches, which have the table's columns in its order.

    Without keys rows stay in their order: whole blocks are written at once, and what is left over becomes a run, to be
    put together with what others left, if it would make a small block.
    """

    task_type: ClassVar[type] = bytes
    result_type: ClassVar[type] = Sunk

    def drain(self, batches: Iterable[pa.RecordBatch]) -> Sunk:
        """Every row; raises SchemaMismatch for one that does not fit, and StoreError."""
        if self.target.order.keys:
            sorter = RunSorter(self.target, self.target.store(), self.scratch, Ids())
            for batch in batches:
                sorter.add(batch)
            return Sunk(runs=tuple(sorter.finish()))
        return self._in_blocks(batches)

    def _in_blocks(self, batches: Iterable[pa.RecordBatch]) -> Sunk:
        target, store, ids = self.target, self.target.store(), Ids()
        writer = BlockWriter(target, store, self.scratch, ids)
        rest: list[pa.Table] = []
        waiting: list[pa.RecordBatch] = []
        size_bytes = 0
        for batch in batches:
            if batch.num_rows == 0:
                continue
            waiting.append(batch)
            size_bytes += batch.nbytes
            # The other half is for the rows before them, less than a block.
            if 2 * size_bytes >= target.memory_bytes:
                rest = [writer.write_whole(pa.concat_tables([*rest, target.rows_of(waiting)]))]
                waiting, size_bytes = [], 0
        if waiting:
            rest.append(target.rows_of(waiting))
        rows = pa.concat_tables(rest) if rest else None
        runs: tuple[Run, ...] = ()
        if rows is not None and rows.num_rows:
            wanted = block_rows(rows, target)
            if rows.num_rows >= SMALL * wanted:
                writer.write(rows)
            else:
                keys = target.order.key_rows(rows, target.schema)
                runs = (write_run(store, self.scratch, ids, rows, keys, block_rows=wanted),)
        return Sunk(written=writer.finish(), runs=runs)

"""Samples of rows: what curves and cuts are made by. They decide how good a layout is, never what is in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.client.rewrite.engine import Engine
from lamella.client.rewrite.file_schema import arrow_schema
from lamella.client.rewrite.runs import Scratch
from lamella.client.rewrite.sorting import from_stream, to_stream
from lamella.client.rewrite.source import Source
from lamella.client.rewrite.stages import Bin, Stage
from lamella.client.rewrite.target import Target
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.parquet.store_file import StoreFile
from lamella.snapshot.schema.arrow import conformed, file_columns

#: Rows of a sample, of all blocks together.
SAMPLE_ROWS: Final = 200_000
_LEAST_ROWS: Final = 200


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """Key columns of some rows, as an Arrow stream; None: nothing could be read."""

    keys: bytes | None = None


class SampleKeys(Stage, frozen=True, kw_only=True):
    """Read the key columns of one row group of each block, and take every so many rows of it."""

    rows_per_block: int

    task_type: ClassVar[Any] = Bin
    result_type: ClassVar[Any] = Sampled

    def __call__(self, task: Bin) -> Sampled:
        parts = [part for source in task.sources if (part := self._of_block(source)) is not None]
        return Sampled(keys=to_stream(pa.concat_tables(parts)) if parts else None)

    def _of_block(self, source: Source) -> pa.Table | None:
        target = self.target
        store = target.store()
        tops = dict.fromkeys(target.schema.leaf(key).path[0] for key in target.order.keys)
        wanted = pa.schema([field for field in arrow_schema(target.schema) if field.name in tops])
        written = self.schemas[source.schema_id]
        try:
            with StoreFile(store, store.stat(source.location)) as opened, pq.ParquetFile(opened) as file:
                if not file.num_row_groups:
                    return None
                names = file_columns(wanted.names, file.schema_arrow.names, written, target.schema)
                rows = file.read_row_group(source.row_count % file.num_row_groups, columns=names).combine_chunks()
        except (LamellaError, pa.ArrowException):
            return None  # whoever reads it to write it anew says why it cannot be
        step = max(1, rows.num_rows // max(1, self.rows_per_block))
        picked = rows.take(pa.array(np.arange(step // 2, rows.num_rows, step)))
        table = pa.Table.from_batches(
            [conformed(batch, wanted, written, target.schema) for batch in picked.to_batches()], wanted
        )
        return target.order.columns(table, target.schema)


def sampled_keys(engine: Engine, target: Target, scratch: Scratch, sources: Sequence[Source]) -> pa.Table | None:
    """The key columns of rows of all blocks."""
    per_block = max(_LEAST_ROWS, SAMPLE_ROWS // max(1, len(sources)))
    stage = SampleKeys(target=target, scratch=scratch, rows_per_block=per_block)
    size = max(1, -(-len(sources) // (4 * engine.parallelism)))
    tasks = [Bin(sources=tuple(sources[start : start + size])) for start in range(0, len(sources), size)]
    found = [from_stream(result.keys) for _, result in engine.run(stage, tasks) if result.keys is not None]
    return pa.concat_tables(found) if found else None

"""Taking the rows out of blocks that a filter is true for."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamella.client.rewrite.block_writer import BlockWriter, Written
from lamella.client.rewrite.file_schema import arrow_schema
from lamella.client.rewrite.source import Source, source_rows
from lamella.client.rewrite.stages import Bin, Stage
from lamella.snapshot.errors import BlockReplaced, EvaluationFailed, NotParquet, ObjectNotFound, SchemaMismatch
from lamella.snapshot.expression import read_filter
from lamella.snapshot.ids import Ids
from lamella.snapshot.layout import Store
from lamella.snapshot.rows.conform import conform_leaf
from lamella.snapshot.rows.filter import RowFilter
from lamella.snapshot.stats.measure import leaf_values

Mask = npt.NDArray[np.bool_]


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one block: how many rows matched, and what was written of the others.

    ``fate``: no row matched and the block stays; all did and it goes; some did, so others take its place.
    """

    location: str
    matched: int
    fate: Literal["stays", "goes", "rewritten"]
    written: Written = Written()


class Removals(msgspec.Struct, frozen=True, kw_only=True):
    """What became of some blocks, in their order. ``failed``: why nothing did."""

    blocks: tuple[Removed, ...] = ()
    failed: str | None = None


class RemoveRows(Stage, frozen=True, kw_only=True):
    """Look at the filter's columns first; write a block anew only when some rows match and some do not.

    ``filter``: SQL text or a JSON tree, such that every part of it can be decided row by row.
    """

    filter: Any
    time_zone: str = "UTC"
    case_sensitive: bool = False

    task_type: ClassVar[Any] = Bin
    result_type: ClassVar[Any] = Removals

    def row_filter(self) -> RowFilter:
        """The filter, ready to decide rows; raises FilterNotEvaluable, and what binding raises."""
        predicate = read_filter(self.filter, time_zone=self.time_zone)
        return RowFilter(predicate, self.target.schema, time_zone=self.time_zone, case_sensitive=self.case_sensitive)

    def __call__(self, task: Bin) -> Removals:
        store, found = self.target.store(), self.row_filter()
        try:
            return Removals(blocks=tuple(self._block(store, found, source) for source in task.sources))
        except (BlockReplaced, EvaluationFailed, NotParquet, ObjectNotFound, SchemaMismatch) as error:
            return Removals(failed=error.message)

    def _block(self, store: Store, found: RowFilter, source: Source) -> Removed:
        matches = self._matches(store, found, source)
        matched = int(matches.sum())
        if matched in (0, len(matches)):
            return Removed(location=source.location, matched=matched, fate="goes" if matched else "stays")
        batches = list(source_rows(store, source, self.schemas, self.target.schema))
        rows = self.target.rows_of(batches).filter(pa.array(~matches)).combine_chunks()
        writer = BlockWriter(self.target, store, self.scratch, Ids())
        writer.write_one(rows, source.cluster)
        return Removed(location=source.location, matched=matched, fate="rewritten", written=writer.finish())

    def _matches(self, store: Store, found: RowFilter, source: Source) -> Mask:
        schema = self.target.schema
        names = {leaf.path[0] for leaf in found.columns}
        masks = [np.zeros(0, dtype=bool)]
        if not names:
            return np.asarray(found.matches({}, source.row_count))
        wanted = pa.schema([field for field in arrow_schema(schema) if field.name in names])
        for batch in source_rows(store, source, self.schemas, schema, wanted):
            rows = pa.Table.from_batches([batch])
            columns = {
                leaf.id: conform_leaf(leaf_values(rows, leaf).combine_chunks(), leaf.dtype, leaf.name)
                for leaf in found.columns
            }
            masks.append(np.asarray(found.matches(columns, batch.num_rows)))
        return np.concatenate(masks)

"""Blocks read in Spark's Python workers with hidden columns, the ids of rows and ``_metadata``, whole or only some rows
of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from lamella.client.presigned import SignedBlocks
from lamella.client.rewrite.source import Source, grouped, positioned_rows
from lamella.client.spark.listed_source import ListedSource, listed_scan
from lamella.client.spark.metadata_column import FilePart, metadata_field, values_of
from lamella.client.spark.python_blocks import PARTITION_BYTES, signed_blocks, spark_arrow_schema
from lamella.client.spark.row_ids import id_column, ids_of, shift_for
from lamella.snapshot.deletes import Positions
from lamella.snapshot.schema import Schema
from lamella.snapshot.storage import FsspecStore

if TYPE_CHECKING:
    from lamella.client.spark.gateway import Gateway
    from lamella.client.spark.lake import BlockSelection, LakeTable

_INT64: Final = np.dtype("<i8")


class NumberedBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A block to read, and its number in row ids. ``wanted``: read only the rows at these ascending positions, packed
    as int64; None: all."""

    number: int
    source: Source
    wanted: bytes | None = None

    @property
    def positions(self) -> Positions | None:
        """The wanted positions."""
        return None if self.wanted is None else np.frombuffer(self.wanted, _INT64)

    @property
    def cost_bytes(self) -> int:
        """About how many bytes of the file are used."""
        if self.wanted is None or not self.source.row_count:
            return self.source.file_size
        return self.source.file_size * len(self.wanted) // _INT64.itemsize // self.source.row_count


def packed(positions: Positions) -> bytes:
    """Return positions as the bytes of :class:`NumberedBlock`."""
    return positions.astype(_INT64).tobytes()


class NumberedBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks of a read, as JSON for an option. ``shift``: of the ids; ``column``: with the ids. ``history``: the
    table's schemas, the current one last. ``signed``: the URLs to read them by; None: they are read with
    ``storage_options``."""

    blocks: tuple[NumberedBlock, ...]
    shift: int
    history: tuple[Schema, ...]
    column: str
    snapshot_id: str
    storage_options: dict[str, dict[str, Any]] = {}
    signed: SignedBlocks | None = None

    def tasks(self) -> Iterator[NumberedBlocks]:
        """Yield the blocks in groups of about :data:`PARTITION_BYTES` of what is read."""
        start = 0
        for some in grouped(self.blocks, lambda block: block.cost_bytes, PARTITION_BYTES):
            stop = start + len(some)
            signed = None if self.signed is None else self.signed.part(start, len(some))
            yield msgspec.structs.replace(self, blocks=self.blocks[start:stop], signed=signed)
            start = stop

    def rows(self, struct: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the blocks; ``struct``: their columns in Spark's JSON, with one hidden column or both."""
        columns: list[dict[str, Any]] = json.loads(struct)["fields"]
        metadata = metadata_field(self.history[-1], columns)
        fields = [field for field in columns if field["name"] != self.column and field is not metadata]
        target = spark_arrow_schema(json.dumps({"type": "struct", "fields": fields}))
        schemas = {schema.schema_id: schema for schema in self.history}
        locations = [block.source.location for block in self.blocks]
        store = FsspecStore(self.storage_options) if self.signed is None else self.signed.store(locations)
        for block in self.blocks:
            source = block.source
            file = FilePart(source.location, source.file_size, 0, source.file_size)
            for positions, rows in positioned_rows(store, source, schemas, self.history[-1], target, block.positions):
                if not len(positions):
                    continue
                read = iter(rows.columns if fields else ())
                arrays = []
                for field in columns:
                    if field is metadata:
                        arrays.append(values_of(field, [file], self.snapshot_id, positions))
                    elif field["name"] == self.column:
                        arrays.append(pa.array(ids_of(block.number, positions, self.shift)))
                    else:
                        arrays.append(next(read))
                yield pa.RecordBatch.from_arrays(arrays, names=[field["name"] for field in columns])


class RowsSource(ListedSource):
    """``format("lamella_rows")``: exactly the rows that the option lists."""

    FORMAT = "lamella_rows"
    LISTED = NumberedBlocks


def sources_of(selection: BlockSelection) -> list[Source]:
    """Return what is known of the selected blocks."""
    return [
        Source(
            location=location,
            row_count=selection.rows[at],
            file_size=selection.sizes[at],
            content_id=None,
            schema_id=selection.schema_ids[at],
            constants=(selection.constants[at] or {}) if selection.constants else {},
            deletes=(selection.deletes[at] or ()) if selection.deletes else (),
        )
        for at, location in enumerate(selection.locations)
    ]


def scan_with_ids(
    gateway: Gateway,
    table: LakeTable,
    blocks: Sequence[tuple[Source, Positions | None]],
    struct: str,
    *,
    row_count: int,
) -> Any:
    """Return Spark's own scan (a JVM object) of some blocks with the ids of their rows.

    ``blocks``: with the wanted positions (None: all). ``struct``: the columns, as JSON. ``row_count``: rows that the
    scan may read, which determines the ids.
    """
    numbers = table.block_numbers.of(source.location for source, _ in blocks)
    return _scan(gateway, table, numbers, blocks, struct, shift=shift_for(row_count), signed=None)


def scan_with_metadata(gateway: Gateway, table: LakeTable, selection: BlockSelection, struct: str) -> Any:
    """Return Spark's own scan (a JVM object) of the selected blocks with ``_metadata``; ``struct``: the columns, as
    JSON."""
    sources = sources_of(selection)
    blocks = [(source, None) for source in sources]
    signed = signed_blocks(table, selection)
    return _scan(gateway, table, [0] * len(blocks), blocks, struct, shift=0, signed=signed)


def _scan(
    gateway: Gateway,
    table: LakeTable,
    numbers: Sequence[int],
    blocks: Sequence[tuple[Source, Positions | None]],
    struct: str,
    *,
    shift: int,
    signed: SignedBlocks | None,
) -> Any:
    listed = NumberedBlocks(
        blocks=tuple(
            NumberedBlock(number=number, source=source, wanted=None if wanted is None else packed(wanted))
            for number, (source, wanted) in zip(numbers, blocks, strict=True)
        ),
        shift=shift,
        history=table.history,
        column=id_column(table.schema),
        snapshot_id=table.snapshot_id,
        storage_options={} if signed is not None else table.settings.storage_options,
        signed=signed,
    )
    return listed_scan(gateway, RowsSource, listed, struct)

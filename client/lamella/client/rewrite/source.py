"""Blocks as they are read to be written anew: all rows, exactly, from the very file that was registered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import pyarrow as pa

from lamella.client.rewrite.block_reader import rows_of_file
from lamella.client.rewrite.file_schema import arrow_schema
from lamella.snapshot.errors import BlockReplaced, ObjectNotFound
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import ClusterStats
from lamella.snapshot.schema import Schema
from lamella.snapshot.wire import BlockFacts


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """What is needed of a block to read it; ``schema_id``: the schema that it was written with.

    ``cluster``: what it says of the order of its rows.
    """

    location: str
    row_count: int
    file_size: int
    content_id: str | None
    schema_id: int
    cluster: ClusterStats | None = None

    @classmethod
    def of(cls, block: BlockFacts) -> Source:
        """A block's."""
        return cls(
            location=block.location,
            row_count=block.row_count,
            file_size=block.file_size,
            content_id=block.content_id,
            schema_id=block.schema_id,
            cluster=None if block.key_id is None else ClusterStats(key_id=block.key_id, level=block.level),
        )


def source_rows(
    store: Store,
    source: Source,
    schemas: Mapping[int, Schema],
    current: Schema,
    target: pa.Schema | None = None,
) -> Iterator[pa.RecordBatch]:
    """Every row of a block in the types and the order of the table's columns; ``target``: of these, in these types.

    Raises:
        BlockReplaced: the file is not the one that was registered, or has other rows.
        ObjectNotFound, StoreError: it cannot be read.
        SchemaMismatch: a value does not fit its type, or dates stand in the old calendar.
    """
    stat = store.stat(source.location)
    if stat.size_bytes != source.file_size or source.content_id not in (None, stat.content_id):
        raise _replaced(source)
    rows = 0
    written = schemas[source.schema_id]
    wanted = arrow_schema(current) if target is None else target
    for batch in rows_of_file(store, stat, wanted, written=written, current=current):
        rows += batch.num_rows
        yield batch
    if rows != source.row_count:
        raise _replaced(source)
    try:
        unchanged = store.stat(source.location) == stat
    except ObjectNotFound:
        unchanged = True  # deleted after it was read whole
    if not unchanged:
        raise _replaced(source)


def _replaced(source: Source) -> BlockReplaced:
    return BlockReplaced(
        f"{source.location} is not the file that the table's statistics come from", location=source.location
    )

"""The blocks of a table as rows of ``t$blocks``: made by the driver, or of many blocks by Spark's workers.

Workers read the manifests of segments from the store, as they read blocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from lamella.client.http.results import python_value
from lamella.client.spark.listed_source import ListedSource, listed_scan
from lamella.client.spark.local_filter import Condition, LazyColumns, LocalFilter
from lamella.client.spark.python_blocks import spark_arrow_schema
from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.manifest import FEATURES, Block, DeleteFile, decode_segment, live_rows
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import Bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import PrunedSegment

if TYPE_CHECKING:
    from lamella.client.spark.gateway import Gateway
    from lamella.client.spark.lake import LakeTable

_TEXTS: Final = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}
#: Columns of ``t$blocks``, with Spark's types.
BLOCK_COLUMNS: Final = {
    "location": "string",
    "row_count": "long",
    "deleted_row_count": "long",
    "file_size_bytes": "long",
    "schema_id": "integer",
    "constants": _TEXTS,
}
#: With more blocks in a table, workers make the rows.
MAX_BLOCKS_ON_DRIVER: Final = 20_000
#: Segments (of about a thousand blocks each) in one task.
_SEGMENTS_IN_TASK: Final = 8
#: Segments whose blocks the driver holds at once.
_SEGMENTS_AT_ONCE: Final = 8
_IN_LAMELLA: Final = {
    "string": "string",
    "integer": "int32",
    "long": "int64",
    "boolean": "boolean",
    "timestamp": "timestamp(us)",
}

ConstantTexts = tuple[tuple[str, str | None], ...]


def struct_of(columns: dict[str, Any]) -> str:
    """Return nullable columns as a struct type in Spark's JSON."""
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


def filter_schema(columns: dict[str, Any]) -> Schema:
    """Return the columns by which rows can be left out, of columns with Spark's types."""
    simple = {name: _IN_LAMELLA[kind] for name, kind in columns.items() if isinstance(kind, str)}
    return Schema.assign([Column(name=name, type=kind) for name, kind in simple.items()])


class BlockFacts(msgspec.Struct, frozen=True):
    """What a row of ``t$blocks`` is made from."""

    location: str
    row_count: int
    file_size: int
    schema_id: int
    constants: dict[int, Bound | None]
    deletes: tuple[DeleteFile, ...]

    @classmethod
    def of(cls, block: Block) -> BlockFacts:
        """Return the facts of a block of a manifest."""
        return cls(block.location, block.row_count, block.file_size, block.written_with, block.constants, block.deletes)

    @property
    def deleted_row_count(self) -> int | None:
        """Number of deleted rows; None: unknown."""
        live = live_rows(self.row_count, self.deletes)
        return None if live is None else self.row_count - live

    def constant_texts(self, schemas: dict[int, Schema]) -> ConstantTexts:
        """Return names and values of the columns that the block's file does not hold."""
        leaves = schemas[self.schema_id].by_id() if self.constants else {}
        return tuple(
            (leaves[column].name, _text(python_value(str(leaves[column].dtype), value)))
            for column, value in sorted(self.constants.items())
        )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def facts_of_blocks(table: LakeTable) -> list[BlockFacts]:
    """Return the facts of all blocks of a table at its snapshot, by one request."""
    found = table.selection(None)
    without = [None] * len(found.locations)
    each = zip(
        found.locations,
        found.rows,
        found.sizes,
        found.schema_ids,
        found.constants or without,
        found.deletes or without,
        strict=True,
    )
    return [
        BlockFacts(location, rows, size, schema_id, constants or {}, deletes or ())
        for location, rows, size, schema_id, constants, deletes in each
    ]


def block_columns(facts: Sequence[BlockFacts], history: Iterable[Schema]) -> LazyColumns:
    """Return the columns of ``t$blocks``; ``history``: the schemas of the table."""
    schemas = {schema.schema_id: schema for schema in history}
    return LazyColumns(
        len(facts),
        {
            "location": lambda numbers: [facts[number].location for number in numbers],
            "row_count": lambda numbers: [facts[number].row_count for number in numbers],
            "deleted_row_count": lambda numbers: [facts[number].deleted_row_count for number in numbers],
            "file_size_bytes": lambda numbers: [facts[number].file_size for number in numbers],
            "schema_id": lambda numbers: [facts[number].schema_id for number in numbers],
            "constants": lambda numbers: [list(facts[number].constant_texts(schemas)) for number in numbers],
        },
    )


class SegmentList(msgspec.Struct, frozen=True, kw_only=True):
    """The manifests of a table's segments, and the conditions on their blocks, as JSON for an option."""

    locations: tuple[str, ...]
    conditions: tuple[Condition, ...]
    history: tuple[Schema, ...]
    storage_options: dict[str, dict[str, Any]] = {}

    def tasks(self) -> Iterator[SegmentList]:
        """Yield the segments in groups."""
        for start in range(0, len(self.locations), _SEGMENTS_IN_TASK):
            yield msgspec.structs.replace(self, locations=self.locations[start : start + _SEGMENTS_IN_TASK])

    def rows(self, struct: str) -> Iterator[pa.RecordBatch]:
        """Yield rows of blocks that may meet the conditions; ``struct``: their columns in Spark's JSON."""
        store = FsspecStore(self.storage_options)
        types = spark_arrow_schema(struct_of(BLOCK_COLUMNS))
        conditions = LocalFilter(filter_schema(BLOCK_COLUMNS), self.conditions)
        names = [field["name"] for field in json.loads(struct)["fields"]]
        for location in self.locations:
            facts = [BlockFacts.of(block) for block in decode_segment(store.read(location)).blocks]
            yield from block_columns(facts, self.history).table(types, names, conditions).to_batches()


class BlockListSource(ListedSource):
    """``format("lamella_block_list")``: the blocks of the segments that the option lists."""

    FORMAT = "lamella_block_list"
    LISTED = SegmentList


def segments_of(table: LakeTable) -> tuple[PrunedSegment, ...]:
    """Return the segments of a table at its snapshot, by one request."""
    found = table.handle.prune(snapshot_id=table.snapshot_id, level="segment", reader_features=FEATURES)
    return found.segments or ()


def _manifests(table: LakeTable) -> tuple[str, ...]:
    """Return the locations of the manifests of a table of many blocks; none if it has few, or they cannot be read."""
    if table.block_count <= MAX_BLOCKS_ON_DRIVER or table.settings.signed_urls:
        return ()
    locations = tuple(segment.location for segment in segments_of(table))
    try:
        decode_segment(FsspecStore(table.settings.storage_options).read(locations[0]))
    except LamellaError:
        return ()
    return locations


def parts_of_blocks(table: LakeTable) -> Iterator[list[BlockFacts]]:
    """Yield the facts of all blocks of a table at its snapshot, those of few segments at a time if there are many
    blocks and the driver can read their manifests."""
    locations = _manifests(table)
    if not locations:
        yield facts_of_blocks(table)
        return
    store = FsspecStore(table.settings.storage_options)

    def facts(location: str) -> list[BlockFacts]:
        return [BlockFacts.of(block) for block in decode_segment(store.read(location)).blocks]

    with ContextThreadPool(_SEGMENTS_AT_ONCE, thread_name_prefix="lamella-manifest") as pool:
        for start in range(0, len(locations), _SEGMENTS_AT_ONCE):
            yield from pool.map(facts, locations[start : start + _SEGMENTS_AT_ONCE])


def block_list_scan(gateway: Gateway, table: LakeTable, struct: str, conditions: LocalFilter) -> Any:
    """Return Spark's own scan (a JVM object) by which workers make the rows; ``struct``: their columns as JSON.

    None: the table has few blocks, the driver has no access to the manifests, or no column is needed.
    """
    locations = _manifests(table) if json.loads(struct)["fields"] else ()
    if not locations:
        return None
    listed = SegmentList(
        locations=locations,
        conditions=tuple(conditions.conditions),
        history=table.history,
        storage_options=table.settings.storage_options,
    )
    return listed_scan(gateway, BlockListSource, listed, struct)

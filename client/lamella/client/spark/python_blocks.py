"""Blocks read by pyarrow in Spark's Python workers: for reads whose blocks have different column names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lamella.client.presigned import SignedBlocks
from lamella.client.rewrite.source import rows_of_file
from lamella.snapshot.errors import InvalidSchema, LamellaError
from lamella.snapshot.manifest import DeleteFile
from lamella.snapshot.schema import Schema, parse_type
from lamella.snapshot.schema.spark_types import TEXT_TYPE
from lamella.snapshot.stats import Bound
from lamella.snapshot.stats.constant import Constants
from lamella.snapshot.storage import FsspecStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lamella.client.spark.gateway import Gateway
    from lamella.client.spark.lake import BlockSelection, LakeTable


_OF_SPARK: Final[dict[str, Any]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "time(6)": pa.time64("ns"),
    "time(9)": pa.time64("ns"),
    "string": pa.string(),
    "binary": pa.binary(),
    "variant": pa.struct(
        [
            pa.field("value", pa.binary(), nullable=False),
            pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
        ]
    ),
}


def spark_arrow_schema(schema_json: str) -> pa.Schema:
    """Return the Arrow schema in which Spark accepts rows of a schema (its own JSON) from Python.

    Raises:
        InvalidSchema: a type that no table column is read as.
    """
    return pa.schema([_spark_field(field) for field in json.loads(schema_json)["fields"]])


def _spark_field(field: dict[str, Any]) -> pa.Field:
    return pa.field(field["name"], _spark_type(field["type"], field["name"]))


def _spark_type(spark: Any, name: str) -> Any:
    if isinstance(spark, str):
        if spark.startswith("decimal("):
            dtype = parse_type(spark)
            return pa.decimal128(dtype.precision, dtype.scale)
        if spark in _OF_SPARK:
            return _OF_SPARK[spark]
    elif spark["type"] == "struct":
        return pa.struct([_spark_field(field) for field in spark["fields"]])
    elif spark["type"] == "array":
        return pa.list_(pa.field("element", _spark_type(spark["elementType"], name)))
    elif spark["type"] == "map":
        return pa.map_(_spark_type(spark["keyType"], name), _spark_type(spark["valueType"], name))
    raise InvalidSchema(f"column {name!r} cannot be read as Spark's type {spark}", column=name)


#: File bytes per Spark partition.
PARTITION_BYTES: Final = 64 << 20
_FORMAT: Final = "lamella_blocks"
#: The options with the list of blocks, and with their signed URLs.
BLOCKS: Final = "blocksUrl"
URLS: Final = "blockUrls"


class BlockGroup(InputPartition):
    """The blocks of one Spark partition: locations, and the schemas that determine their columns.

    ``written``: the schemas that the blocks were written with; ``current``: the table's. ``constants``: the values of
    columns that the files do not hold, ``deletes`` their deleted rows, one entry per block. ``signed``: the URLs to
    read them by; None: they are read with ``storage_options``, or what the worker's environment has. ``hidden``:
    columns that say which rows are deleted, for a reader that does not leave these out.
    """

    def __init__(
        self,
        locations: Sequence[str],
        written: Sequence[Schema],
        current: Schema,
        constants: Sequence[Constants],
        deletes: Sequence[Sequence[DeleteFile]],
        signed: SignedBlocks | None = None,
        hidden: Sequence[str] = (),
        storage_options: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(None)
        self.locations = tuple(locations)
        self.written = tuple(written)
        self.current = current
        self.constants = tuple(constants)
        self.deletes = tuple(deletes)
        self.signed = signed
        self.hidden = tuple(hidden)
        self.storage_options = storage_options or {}

    def rows(self, target: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the blocks, one block after another; raises as reading a block does."""
        store = FsspecStore(self.storage_options) if self.signed is None else self.signed.store(self.locations)
        blocks = zip(self.locations, self.written, self.constants, self.deletes, strict=True)
        read = pa.schema([field for field in target if field.name not in self.hidden])
        for location, written, constants, deletes in blocks:
            for rows in rows_of_file(
                store,
                store.stat(location),
                read,
                written=written,
                current=self.current,
                constants=constants,
                deletes=deletes,
            ):
                yield filled_rows(rows, target, self.hidden) if self.hidden else rows


def group_blocks(blocks: BlockListOption, partition_bytes: int, signed: SignedBlocks | None = None) -> list[BlockGroup]:
    """Return the blocks in groups of about ``partition_bytes`` of file; ``signed``: the URLs of all of them."""
    schemas = {schema.schema_id: schema for schema in blocks.history}
    starts: list[int] = []
    bytes_left = 0
    for number, size_bytes in enumerate(blocks.sizes):
        if not starts or size_bytes > bytes_left:
            starts.append(number)
            bytes_left = partition_bytes
        bytes_left -= size_bytes
    made = []
    for start, stop in pairwise([*starts, len(blocks.sizes)]):
        made.append(
            BlockGroup(
                blocks.locations[start:stop],
                [schemas[schema_id] for schema_id in blocks.schema_ids[start:stop]],
                blocks.history[-1],
                [each or {} for each in blocks.constants[start:stop]] or [{}] * (stop - start),
                [each or () for each in blocks.deletes[start:stop]] or [()] * (stop - start),
                None if signed is None else signed.part(start, stop - start),
                blocks.hidden,
                blocks.storage_options,
            )
        )
    return made


def filled_rows(rows: pa.RecordBatch, target: pa.Schema, names: Sequence[str]) -> pa.RecordBatch:
    """Return rows, none of them deleted, with the hidden columns ``names`` of ``target`` as of a row that is not."""
    columns = []
    for field in target:
        if field.name in names:
            value = "" if pa.types.is_string(field.type) else 0
            columns.append(pa.repeat(pa.scalar(value, field.type), rows.num_rows))
        else:
            columns.append(rows.column(rows.schema.get_field_index(field.name)))
    return pa.RecordBatch.from_arrays(columns, schema=target)


class BlockListOption(msgspec.Struct, frozen=True):
    """The blocks of a read as JSON for an option. URLs have an option of their own.

    ``history``: the table's schemas, the current one last. ``constants``, ``deletes``: as in
    :class:`~lamella.client.spark.lake.BlockSelection`. ``hidden``, ``storage_options``: as of :class:`BlockGroup`.
    """

    locations: list[str]
    sizes: list[int]
    schema_ids: list[int]
    history: tuple[Schema, ...]
    constants: list[dict[int, Bound | None] | None] = []
    deletes: list[tuple[DeleteFile, ...] | None] = []
    hidden: tuple[str, ...] = ()
    storage_options: dict[str, dict[str, Any]] = {}

    @classmethod
    def of(cls, table: LakeTable, selection: BlockSelection, hidden: Sequence[str] = ()) -> BlockListOption:
        """Return the list of the selected blocks of a table."""
        return cls(
            selection.locations,
            selection.sizes,
            selection.schema_ids,
            table.history,
            selection.constants,
            selection.deletes,
            tuple(hidden),
            {} if table.settings.signed_urls else table.settings.storage_options,
        )


class BlocksSource(DataSource):
    """``format("lamella_blocks")``: exactly the blocks that the option ``blocksUrl`` lists.

    ``blockUrls``: :class:`~lamella.client.presigned.SignedBlocks` as JSON. Both may hold credentials of the store, and
    Spark shows no options whose name contains "url". Used only by the catalog and by
    :func:`lamella.client.spark.read`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return _FORMAT

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of these columns."""
        made = BlocksReader(self.options[BLOCKS], self.options.get(URLS), schema.json())
        self.options = type(self.options)()  # Spark sends this to executors, which have their own lists
        return made


class BlocksReader(DataSourceReader):
    """Plans from the list, reads with pyarrow. Planning and reading run in different processes."""

    def __init__(self, listed: str, signed: str | None, schema_json: str) -> None:
        self._listed = listed
        self._signed = signed
        self._schema_json = schema_json

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_listed": "", "_signed": None}

    def partitions(self) -> Sequence[InputPartition]:
        """Return the blocks in groups."""
        listed = msgspec.json.decode(self._listed, type=BlockListOption)
        signed = None if self._signed is None else msgspec.json.decode(self._signed, type=SignedBlocks)
        return group_blocks(listed, PARTITION_BYTES, signed)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a group of blocks."""
        if not isinstance(partition, BlockGroup):
            return
        yield from partition.rows(spark_arrow_schema(self._schema_json))


def signed_blocks(table: LakeTable, selection: BlockSelection) -> SignedBlocks | None:
    """Return the URLs of the selected blocks if the table is read by signed URLs; raises the service's errors."""
    if not table.settings.signed_urls:
        return None
    blocks = table.signed(selection.locations)
    return SignedBlocks(
        service_url=table.service_url,
        table=table.name,
        snapshot_id=table.snapshot_id,
        urls=tuple(str(block.url) for block in blocks),
        sizes=tuple(selection.sizes),
        deletes=tuple(block.deletes for block in blocks) if selection.deletes else (),
    )


def blocks_frame(
    spark: SparkSession, table: LakeTable, selection: BlockSelection, struct: str, hidden: Sequence[str] = ()
) -> DataFrame:
    """Return the rows of the selected blocks, read in Python workers; ``struct``: the columns, as JSON; ``hidden``:
    see :class:`BlockGroup`."""
    listed = BlockListOption.of(table, selection, hidden)
    spark.dataSource.register(BlocksSource)
    reader = spark.read.format(_FORMAT).schema(plain_struct(struct))
    signed = signed_blocks(table, selection)
    if signed is not None:
        reader = reader.option(URLS, msgspec.json.encode(signed).decode())
    return reader.option(BLOCKS, msgspec.json.encode(listed).decode()).load()


def python_scan(
    gateway: Gateway, table: LakeTable, selection: BlockSelection, struct: str, hidden: Sequence[str] = ()
) -> Any:
    """Return Spark's own scan (a JVM object) that reads the selected blocks in Python workers; ``struct``: the columns,
    as JSON; ``hidden``: see :class:`BlockGroup`.

    Raises:
        LamellaError: this version of Spark plans it in an unknown way.
    """
    return scan_of(blocks_frame(gateway.spark, table, selection, struct, hidden))


def plain_struct(struct: str) -> StructType:
    """Return the schema of rows that Python workers read; ``struct``: the columns, as JSON.

    Without the lengths of text that Spark's plan knows: of ``CHAR(n)`` it would pad what is read, which is padded.
    """
    columns = json.loads(struct)
    for field in columns["fields"]:
        field["metadata"].pop(TEXT_TYPE, None)
    return StructType.fromJson(columns)


def scan_of(frame: DataFrame) -> Any:
    """Return Spark's own scan of a Python data source; raises as :func:`python_scan`."""
    plan = frame._jdf.queryExecution().optimizedPlan()
    if str(plan.getClass().getSimpleName()) != "DataSourceV2ScanRelation":
        raise LamellaError(
            "blocks of this table name their columns in different ways, which this version of Spark cannot read in one"
            f" scan ({plan.getClass().getSimpleName()}); use lamella.client.spark.read(), or compact the table"
        )
    return plan.scan()

"""Spark's own Parquet readers over a given list of blocks: nothing is listed, no file is opened to plan.

A file index for Spark's V2 scan, and a ``HadoopFsRelation`` where the V2 scan is not available.

A read uses one of nine ways, the first that is correct for its blocks:

``name``    every block has the requested columns under their current names (or lacks them, and has no other column
            of those names): Spark's Parquet reader, unchanged. Columns whose values are not in the files are partition
            columns of that reader, if they are the same for all files of a folder.
``renamed`` all blocks have the columns under the same other names: the same reader, given the names in the files.
``id``      names differ between blocks, and Lamella's own writers made all of them: the same reader finds columns
            by field id; these writers store the column ids as field ids.
``python``  names differ between blocks of other writers, or the same columns are in the files of some blocks only:
            pyarrow reads the blocks in Spark's Python workers, which is several times slower. Compaction removes such
            blocks.
``signed``  the blocks are read by signed URLs, whatever their column names; in Python workers too, since Spark's own
            readers do not support such URLs.
``vectors`` blocks with deleted rows, if they could be read by ``name`` without these: the same reader, which also says
            which rows are deleted (see :mod:`.vector_scan`).
``ids``     the ids of rows are read too (see :mod:`.row_ids`), in Python workers.
``files``   ``_metadata`` is read too, without the positions of rows, and the blocks could be read by ``name`` without
            it: the same reader (see :mod:`.file_values`).
``metadata``  ``_metadata`` is read too, in Python workers.

Spark skips data inside files by the names of its plan, so skipping is disabled in all ways but the first.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from lamella.client.spark.catalyst import FilterWalker
from lamella.client.spark.file_values import MAX_FILES, file_partitions, file_parts, internal_rows_of, with_file_values
from lamella.client.spark.gateway import CONNECTOR, DATASOURCES, SQL, Gateway
from lamella.client.spark.lake import (
    BlockSelection,
    LakeTable,
    hadoop_path,
    identified_struct,
    layouts,
    refuse_hidden,
)
from lamella.client.spark.literal import TRUE
from lamella.client.spark.metadata_column import metadata_field, needs_positions, values_of
from lamella.client.spark.parquet_pushdown import reader_options, refuse_case_sensitive, skippable_columns
from lamella.client.spark.proxy import Proxy
from lamella.client.spark.python_blocks import python_scan, spark_arrow_schema
from lamella.client.spark.row_ids import id_column
from lamella.client.spark.rows_with_ids import scan_with_ids, scan_with_metadata, sources_of
from lamella.client.spark.vector_scan import hidden_fields, row_bits, row_bits_partitions, with_row_bits
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.schema import parse_type, quoted
from lamella.snapshot.schema.arrow import constant_scalars, repeated
from lamella.snapshot.stats.bound import Value
from lamella.snapshot.stats.constant import constant_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# Many ``FileStatus`` objects in one call.
#
# One py4j call per file takes 0.8 ms, so 100,000 files would take more than a minute. Instead the files are encoded as
# Hadoop itself would serialise them (an ``ArrayWritable`` of ``FileStatus``, each of which is a length and a
# ``FileStatusProto`` message) and the JVM reads them back from one byte array.

_PACKED_FROM_BYTES = 64 << 10
_BLOCK_SIZE_BYTES = 128 << 20
# FileStatusProto: fileType=FT_FILE(2) in field 1; the required fields between length and modification time are
# permission{0644}, owner "" and group "".
_TYPE_FILE = b"\x08\x02"
_PERMISSION_OWNER_GROUP = b"\x22\x03\x08\xa4\x03\x2a\x00\x32\x00"


def file_statuses(gateway: Gateway, files: Sequence[tuple[str, int]]) -> Any:
    """Return a ``FileStatus[]`` of ``(Hadoop path, size in bytes)``; modification times are unknown and set to 0."""
    return gateway.classes.files.read(*_packed(encode(files)))


def _packed(data: bytes) -> tuple[bytes, bool]:
    """Return data for the JVM, and whether it is deflated: it is sent as base64 text through a socket."""
    return (zlib.compress(data, 1), True) if len(data) >= _PACKED_FROM_BYTES else (data, False)


def encode(files: Iterable[tuple[str, int]]) -> bytes:
    """Return the bytes of an ``ArrayWritable`` of ``FileStatus``."""
    count = 0
    parts = [b""]
    heads: dict[int, tuple[int, bytes]] = {}  # by length of the path
    tails: dict[int, bytes] = {}  # by size of the file
    pack = struct.Struct(">i").pack
    for path, size_bytes in files:
        text = path.encode("utf-8")
        tail = tails.get(size_bytes)
        if tail is None:
            tail = tails[size_bytes] = b"\x18" + _varint(size_bytes) + _REST
        known = heads.get(len(text))
        if known is None:
            head = _TYPE_FILE + b"\x12" + _varint(len(text))
            known = heads[len(text)] = (len(head) + len(text), head)
        parts += (pack(known[0] + len(tail)), known[1], text, tail)
        count += 1
    parts[0] = pack(count)
    return b"".join(parts)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


#: After the length: modification time and access time 0, replication 1, the block size.
_REST: Final = _PERMISSION_OWNER_GROUP + b"\x38\x00\x40\x00\x50\x01\x58" + _varint(_BLOCK_SIZE_BYTES)


# Spark's own file index, filled with a given list of blocks: nothing is listed, no file is opened.
#
# ``ParquetScanBuilder`` requires a ``PartitioningAwareFileIndex``, an abstract class, which a proxy cannot implement.
# An ``InMemoryFileIndex`` takes its listing from a cache if it can; so it gets a private cache of unlimited size that
# contains one folder with the given files. (Spark's shared cache can be disabled by configuration and evicts entries.)
# The files of the resulting index are counted: it must not lack any.

#: More than the weight of any listing, and small enough that Guava can add a few without overflow.
UNLIMITED_BYTES: Final = 1 << 60
#: File indexes of more blocks are made each time, since the JVM would hold all their files.
_REUSED_BLOCKS: Final = 512


def file_index(
    gateway: Gateway,
    selection: BlockSelection,
    digest: str,
    schema: Any,
    *,
    partitions: Any = None,
    cache_bytes: int = UNLIMITED_BYTES,
) -> Any:
    """Return an ``InMemoryFileIndex`` of exactly these blocks; ``schema``: the ``StructType`` of the data.

    ``digest``: that of the selection. The most recent indexes of a few blocks are used again: Spark takes a millisecond
    to make one. ``partitions``: a ``PartitionSpec`` with the values of each folder; None: there are none.

    Raises:
        LamellaError: Spark's index contains other files than given.
    """
    is_reused = partitions is None and cache_bytes == UNLIMITED_BYTES and len(selection.locations) <= _REUSED_BLOCKS
    if not is_reused:
        return _new_index(gateway, selection, digest, schema, partitions, cache_bytes)
    make = partial(_new_index, gateway, selection, digest, schema, None, cache_bytes)
    return gateway.recent(f"index {digest} {schema.json()}", make)


def _new_index(
    gateway: Gateway, selection: BlockSelection, digest: str, schema: Any, partitions: Any, cache_bytes: int
) -> Any:
    refuse_hidden(selection.locations)
    # This root is never read. It depends on the content, since Spark treats two indexes with the same root as equal.
    root = f"file:///lamella/{digest}"
    data, is_deflated = _packed(encode(selection.files()))
    found = gateway.classes.scans.index(gateway.session, root, data, is_deflated, schema, partitions, cache_bytes)
    if isinstance(found, int):
        raise LamellaError(f"Spark's file index lost blocks: it holds {found} of {len(selection.locations)}")
    return found


# Constants of blocks as Spark's partition values.
#
# Spark keeps partition values by folder. That fits most tables whose values are not in the files: they come from the
# folders, or follow the folders. If two files of a folder differ, Python workers read the blocks.


class ConstantColumns(msgspec.Struct, frozen=True):
    """The requested columns that are constant in every selected block, by id, and the values by folder."""

    ids: tuple[int, ...]
    values: dict[str, dict[int, Value | None]]


def constant_columns(table: LakeTable, selection: BlockSelection, names: Iterable[str]) -> ConstantColumns | None:
    """Return what of the requested columns is constant; None: this differs between blocks, or within a folder."""
    wanted = {name.lower() for name in names}
    requested = {column.id for column in table.schema.columns if column.name.lower() in wanted}
    found = {frozenset(requested.intersection(each or ())) for each in selection.constants}
    if len(found) > 1:
        return None
    ids = tuple(sorted(next(iter(found), frozenset())))
    schemas = {schema.schema_id: schema for schema in table.history}
    values: dict[str, dict[int, Value | None]] = {}
    for location, schema_id, constants in zip(
        selection.locations if ids else (), selection.schema_ids, selection.constants, strict=bool(ids)
    ):
        written = schemas[schema_id]
        given = {column_id: (constants or {})[column_id] for column_id in ids}
        current = {column.id: column.type for column in table.schema.columns}
        if any(written.by_id()[column_id].dtype != parse_type(current[column_id]) for column_id in ids):
            return None  # the column has become wider since
        mine = constant_values(given, written)
        folder = location.rpartition("/")[0]
        if values.setdefault(folder, mine) != mine:
            return None
    return ConstantColumns(ids, values)


def constant_fields(table: LakeTable, constant: ConstantColumns, *, apart: bool) -> list[dict[str, Any]]:
    """Return the fields of the constant columns; ``apart``: under names that no column in a file has."""
    by_id = {column.id: column.name.lower() for column in table.schema.columns}
    fields = {field["name"].lower(): field for field in json.loads(table.columns.readable)["fields"]}
    found = [fields[by_id[column_id]] for column_id in constant.ids]
    if not apart:
        return found
    return [
        {**field, "name": f"_lamella_constant_{column_id}"}
        for field, column_id in zip(found, constant.ids, strict=True)
    ]


def partition_spec(
    gateway: Gateway, table: LakeTable, constant: ConstantColumns, fields: Sequence[Mapping[str, Any]]
) -> Any:
    """Return the ``PartitionSpec`` of the folders; ``fields``: :func:`constant_fields`."""
    struct = json.dumps({"type": "struct", "fields": fields})
    target = spark_arrow_schema(struct)
    columns = []
    for column_id, field in zip(constant.ids, target, strict=True):
        each = [
            repeated(constant_scalars({column_id: values[column_id]}, table.schema)[column_id], 1, field.type)
            for values in constant.values.values()
        ]
        columns.append(pa.chunked_array(each, field.type))
    frame = gateway.spark.createDataFrame(pa.table(columns, schema=target), StructType.fromJson(json.loads(struct)))
    rows = frame._jdf.queryExecution().executedPlan().executeCollect()
    make = gateway.java_class(DATASOURCES + "PartitionPath")
    paths = [
        make(rows[number], gateway.path(hadoop_path(f"{folder}/f").rpartition("/")[0]))
        for number, folder in enumerate(constant.values)
    ]
    return gateway.java_class(DATASOURCES + "PartitionSpec")(gateway.struct_type(struct), gateway.seq(paths))


# A table as a ``HadoopFsRelation`` with a custom file index, for Spark versions without the V2 internals.
#
# It has no name in SQL, no pruning by join keys and no statistics after pruning. It stays at its snapshot. Its filters
# reach Spark's Parquet reader through session settings, so the relation's options disable the reader's own skipping
# where that is not sound.


def relation_frame(gateway: Gateway, table: LakeTable, columns: Sequence[str] | None = None) -> DataFrame:
    """Return a frame over the table at its snapshot; filters on it prune when it runs.

    Raises:
        InvalidSchema: a column that Spark cannot read, unless ``columns`` leaves it out.
        InvalidRequest: blocks have one of the columns under an earlier name, or the session matches names
            case-sensitively.
    """
    from pyspark.sql import DataFrame

    names = [column.name for column in table.schema.columns] if columns is None else list(columns)
    table.columns.check(names)
    if not table.is_plain(columns):
        raise InvalidRequest(
            f"blocks of {table.name} have columns under earlier names, or values that are not in their files, which"
            " cannot be read this way; read it through the catalog of lamella.client.spark.attach, or compact it"
        )
    refuse_case_sensitive(gateway.spark)
    # The blocks that will be read are not known yet. Trusting the page indexes implies trusting the footers.
    trusted = skippable_columns(table.schema) if table.settings.page_index else []
    options = reader_options(table.schema, page_index=bool(table.settings.page_index), believed=trusted)
    relation = gateway.java_class(DATASOURCES + "HadoopFsRelation")(
        RelationIndex(gateway, table),
        gateway.java_class(SQL + "types.StructType")(),
        gateway.struct_type(table.columns.readable),
        gateway.none,
        gateway.java_class(DATASOURCES + "parquet.ParquetFileFormat")(),
        gateway.scala_map(options),
        gateway.session,
    )
    frame = DataFrame(gateway.session.baseRelationToDataFrame(relation), gateway.spark)
    return frame if columns is None else frame.select(*map(quoted, names))


class RelationIndex(Proxy):
    """A ``FileIndex`` over the blocks of one snapshot.

    The partition schema is empty on purpose: Spark does not evaluate partition filters again after the scan, so a
    filter that is only used for pruning must never be a partition filter.
    """

    class Java:
        implements = [DATASOURCES + "FileIndex"]  # noqa: RUF012

    def __init__(self, gateway: Gateway, table: LakeTable) -> None:
        super().__init__(gateway)
        self._table = table

    def _key(self) -> str:
        return f"Lamella {self._table.key}"

    def rootPaths(self) -> Any:
        # Shown in plans and otherwise unused.
        path = self._gateway.path(f"lamella:/{self._table.key}")
        return self._gateway.seq([path])

    def partitionSchema(self) -> Any:
        return self._gateway.java_class(SQL + "types.StructType")()

    def sizeInBytes(self) -> int:
        return self._table.size_bytes

    def inputFiles(self) -> Any:
        return self._gateway.array("java.lang.String", [path for path, _ in self._table.selection(None).files()])

    def refresh(self) -> None:
        """Do nothing: a snapshot does not change."""

    def isTimeTravel(self) -> bool:
        return True

    def metadataOpsTimeNs(self) -> Any:
        return self._gateway.none

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:
        walker = FilterWalker(self._table.schema, time_zone=self._gateway.time_zone())
        trees = [walker.conjunction(filters) for filters in (partition_filters, data_filters)]
        used = [tree for tree in trees if tree != TRUE]
        tree = {"type": "and", "children": used} if used else None
        selection = self._table.selection(tree, time_zone=walker.time_zone)
        statuses = file_statuses(self._gateway, selection.files())
        no_values = self._gateway.java_class(SQL + "catalyst.InternalRow").empty()
        directory = self._gateway.java_class(DATASOURCES + "PartitionDirectory").apply(no_values, statuses)
        return self._gateway.seq([directory])


ReadPath = Literal["name", "renamed", "id", "python", "deletes", "vectors", "signed", "ids", "files", "metadata"]
#: Plan texts of the unusual ways to read.
NOTES: Final[dict[ReadPath, str]] = {
    "renamed": "columns by their names in the files",
    "id": "columns by field ids",
    "python": "READ IN PYTHON, files name columns differently",
    "deletes": "READ IN PYTHON, files have deleted rows",
    "vectors": "with deletion vectors",
    "signed": "READ IN PYTHON, by signed URLs",
    "ids": "with row ids",
    "files": "with _metadata",
    "metadata": "READ IN PYTHON, with _metadata",
}

_BY_ID: Final = {"spark.sql.parquet.fieldId.read.enabled": "true"}


class Pushed(msgspec.Struct, frozen=True, eq=False):
    """Conditions by which Spark's reader may skip: some of a Scala ``Seq`` of expressions, by their numbers."""

    filters: Any = None
    numbers: tuple[int, ...] = ()


NO_FILTERS: Final = Pushed()


def parquet_scan(
    gateway: Gateway, settings: Mapping[str, str], index: Any, schema: Any, options: Any, pushed: Pushed, columns: Any
) -> Any:
    """Return a ``ParquetScan`` of a file index; ``columns``: those that are read, as a ``StructType``."""
    session = session_with(gateway, settings)
    numbers = " ".join(map(str, pushed.numbers))
    return gateway.classes.scans.scan(session, index, schema, options, pushed.filters, numbers, columns)


class BlockScan:
    """A scan of the JVM and what Spark is told about it. ``own_schema``: what it reads, by the names of the plan; None:
    the schema of Spark's own scan.

    ``in_order``: Spark needs the columns in the order of ``required``, whatever ``schema`` says.
    """

    def __init__(
        self,
        gateway: Gateway,
        table: LakeTable,
        selection: BlockSelection,
        required: Any,
        required_json: str,
        options: Any,
        *,
        pushed: Pushed = NO_FILTERS,
        in_order: bool = False,
    ) -> None:
        wanted = _with_defaults(json.loads(required_json), table)
        plain = json.dumps(wanted)
        constant = None
        self._gateway = gateway
        self._selection = selection
        self._native: Any = None
        self._vectors: tuple[Gateway, LakeTable, BlockSelection, list[bytes]] | None = None
        self._files: tuple[Gateway, LakeTable, BlockSelection, dict[str, Any]] | None = None
        self.own_schema = required
        self.way: ReadPath = "python"
        if not selection.locations:
            self.way = "name"
            self._batch = _NoBlocks(gateway)
            return
        if id_column(table.schema) in [field["name"] for field in wanted["fields"]]:
            self.way = "ids"
            blocks = [(source, None) for source in sources_of(selection)]
            self._batch = scan_with_ids(gateway, table, blocks, plain, row_count=selection.row_count).toBatch()
            return
        metadata = metadata_field(table.schema, wanted["fields"])
        if metadata is not None:
            if not self._by_files(gateway, table, selection, wanted, metadata, options, pushed):
                self.way, self._native = "metadata", None
                self._batch = scan_with_metadata(gateway, table, selection, plain).toBatch()
            return
        hidden = [field["name"] for field in hidden_fields(table.schema)]
        hidden = [name for name in hidden if any(field["name"] == name for field in wanted["fields"])]
        if hidden and self._by_vectors(gateway, table, selection, wanted, hidden, options, pushed):
            return
        if table.settings.signed_urls or selection.deletes:
            self.way = "signed" if table.settings.signed_urls else "deletes"
        else:
            constant = constant_columns(table, selection, [field["name"] for field in wanted["fields"]])
        partitions: Any = None
        apart: list[str] = []
        if constant is not None:
            by_id = {column.id: column.name.lower() for column in table.schema.columns}
            apart = [by_id[column_id] for column_id in constant.ids]
            in_files = _without(wanted, apart)
            found = layouts(in_files, table.history, selection.schema_ids)
            self.way = _read_path(table, selection, list(found) or [json.dumps(in_files)], json.dumps(in_files))
            if apart and (self.way == "id" or (in_order and not _is_last(wanted, apart))):
                self.way = "python"
        if self.way in ("python", "deletes", "signed"):
            self._batch = python_scan(gateway, table, selection, plain, hidden).toBatch()
            return
        values = [] if constant is None else constant_fields(table, constant, apart=self.way == "renamed")
        if constant is not None and values:
            partitions = partition_spec(gateway, table, constant, values)
        if self.way == "name":
            struct = gateway.struct_type(json.dumps(_without(json.loads(table.columns.readable), apart)))
            options_used = options
        else:
            text = json.dumps(identified_struct(wanted, table.schema)) if self.way == "id" else next(iter(found))
            struct = required = gateway.struct_type(text)
            if constant is not None and values:
                # Spark's reader returns the values after the columns of the files.
                required = gateway.struct_type(_joined(json.loads(text)["fields"], values))
                self.own_schema = gateway.struct_type(
                    _joined(in_files["fields"], constant_fields(table, constant, apart=False))
                )
            options_used = _with_options(gateway, options, _BY_ID if self.way == "id" else {})
        index = file_index(gateway, selection, selection.digest(), struct, partitions=partitions)
        columns = gateway.struct_type(plain) if self.way == "name" else required
        chosen = pushed if self.way == "name" else NO_FILTERS
        self._native = parquet_scan(gateway, _settings(gateway, wanted), index, struct, options_used, chosen, columns)
        if self.way == "name":
            self.own_schema = None

    def _by_vectors(
        self,
        gateway: Gateway,
        table: LakeTable,
        selection: BlockSelection,
        wanted: dict[str, Any],
        hidden: Sequence[str],
        options: Any,
        pushed: Pushed,
    ) -> bool:
        """Read blocks with deleted rows by Spark's reader, which reads the hidden columns too, if that is possible."""
        in_files = _without(wanted, hidden)
        names = [field["name"] for field in in_files["fields"]]
        constant = constant_columns(table, selection, names)
        plain = json.dumps(in_files)
        found = layouts(in_files, table.history, selection.schema_ids)
        if table.settings.signed_urls or constant is None or constant.ids or list(found or [plain]) != [plain]:
            return False
        marks = row_bits(selection, table.settings.storage_options)
        if marks is None:
            return False
        index_field, deleted_field = hidden_fields(table.schema)
        struct = gateway.struct_type(_joined(json.loads(table.columns.readable)["fields"], [index_field]))
        index = file_index(gateway, selection, selection.digest(), struct)
        columns = gateway.struct_type(_joined(in_files["fields"], [index_field]))
        self._native = parquet_scan(gateway, _settings(gateway, in_files), index, struct, options, pushed, columns)
        read = json.loads(str(self._native.readSchema().json()))["fields"]
        self.own_schema = gateway.struct_type(_joined(read, [deleted_field]))
        self._vectors = (gateway, table, selection, marks)
        self.way = "vectors"
        return True

    def _by_files(
        self,
        gateway: Gateway,
        table: LakeTable,
        selection: BlockSelection,
        wanted: dict[str, Any],
        metadata: dict[str, Any],
        options: Any,
        pushed: Pushed,
    ) -> bool:
        """Read ``_metadata`` by Spark's reader too, as values of files, if that is possible."""
        in_files = _without(wanted, [metadata["name"]])
        names = [field["name"] for field in in_files["fields"]]
        constant = constant_columns(table, selection, names)
        plain = json.dumps(in_files)
        if (
            needs_positions(metadata)
            or table.settings.signed_urls
            or any(selection.deletes)
            or len(selection.locations) > MAX_FILES
            or constant is None
            or constant.ids
            or list(layouts(in_files, table.history, selection.schema_ids) or [plain]) != [plain]
        ):
            return False
        struct = gateway.struct_type(_joined(json.loads(table.columns.readable)["fields"]))
        index = file_index(gateway, selection, selection.digest(), struct)
        columns = gateway.struct_type(plain)
        self._native = parquet_scan(gateway, _settings(gateway, in_files), index, struct, options, pushed, columns)
        read = json.loads(str(self._native.readSchema().json()))["fields"]
        self.own_schema = gateway.struct_type(_joined(read, [metadata]))
        self._files = (gateway, table, selection, metadata)
        self.way = "files"
        return True

    @cached_property
    def _batch(self) -> Any:
        return self._native.toBatch()

    def partitions(self) -> Any:
        """Return ``InputPartition[]``."""
        if self._vectors is not None:
            return row_bits_partitions(*self._vectors)
        if self._files is not None:
            return metadata_partitions(*self._files)
        return self._batch.planInputPartitions()

    def reader_factory(self) -> Any:
        """Return the ``PartitionReaderFactory``."""
        factory = self._batch.createReaderFactory()
        if self._vectors is not None:
            gateway, table, _, _ = self._vectors
            return with_row_bits(gateway, factory, table.schema)
        if self._files is not None:
            gateway, _, _, metadata = self._files
            return with_file_values(gateway, factory, [metadata])
        return factory

    def size_bytes(self) -> int:
        """Spark's own estimate for the requested columns in bytes; the size of the files when it has none."""
        files_bytes = max(1, sum(self._selection.sizes))
        if self._native is None:
            return files_bytes
        return int(self._gateway.classes.scans.sizeBytes(self._native, files_bytes))

    @property
    def is_plain(self) -> bool:
        """Whether Spark's own scan reads all that this one reads: no file has deleted rows or values of its own."""
        return self._native is not None and self._vectors is None and self._files is None

    @property
    def native(self) -> Any:
        """Spark's own scan, if all that Spark asks of it is true of this one; None: it is not."""
        return None if self._vectors is not None else self._native

    @property
    def schema(self) -> Any:
        """What it reads, by the names of the plan."""
        return self._native.readSchema() if self.own_schema is None else self.own_schema


def metadata_partitions(gateway: Gateway, table: LakeTable, selection: BlockSelection, metadata: dict[str, Any]) -> Any:
    """Return ``InputPartition[]`` of the blocks' files, each part with its value of ``_metadata``."""
    parts = [part for _, part in file_parts(gateway, selection)]
    values = pa.table({metadata["name"]: values_of(metadata, parts, table.snapshot_id)})
    return file_partitions(gateway, selection, parts, internal_rows_of(gateway, [metadata], values))


class _NoBlocks:
    """What :class:`BlockScan` uses of a ``Batch`` without partitions."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def planInputPartitions(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "read.InputPartition")

    def createReaderFactory(self) -> Any:
        # Spark sends it with other scans of the query, but never asks it for a reader. So one is enough.
        return self._gateway.shared("reader factory of no files", self._reader_factory)

    def _reader_factory(self) -> Any:
        gateway = self._gateway
        struct = gateway.struct_type(_joined())
        index = file_index(gateway, BlockSelection([], [], [], 0), "empty", struct)
        options = gateway.java_class(SQL + "util.CaseInsensitiveStringMap").empty()
        return parquet_scan(gateway, {}, index, struct, options, NO_FILTERS, struct).toBatch().createReaderFactory()


def _read_path(table: LakeTable, selection: BlockSelection, found: Sequence[str], plain: str) -> ReadPath:
    if list(found) == [plain]:
        return "name"
    if len(found) == 1:
        return "renamed"
    return "id" if table.all_written_by_lamella(selection) else "python"


def _without(struct: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the struct without some of its fields, named in lower case."""
    left_out = set(names)
    return {**struct, "fields": [field for field in struct["fields"] if field["name"].lower() not in left_out]}


def _is_last(struct: dict[str, Any], names: Sequence[str]) -> bool:
    """Return whether a struct ends with these fields in this order, named in lower case."""
    return [field["name"].lower() for field in struct["fields"]][-len(names) :] == list(names)


def _joined(*parts: Iterable[Mapping[str, Any]]) -> str:
    return json.dumps({"type": "struct", "fields": [field for part in parts for field in part]})


def _with_defaults(struct: dict[str, Any], table: LakeTable) -> dict[str, Any]:
    """Return the struct with the table's column defaults in its metadata, whatever Spark's plan did with them."""
    ours = {field["name"].lower(): field["metadata"] for field in json.loads(table.columns.shown)["fields"]}
    return {
        **struct,
        "fields": [
            {**field, "metadata": {**field["metadata"], **ours.get(field["name"].lower(), {})}}
            for field in struct["fields"]
        ],
    }


def _settings(gateway: Gateway, wanted: dict[str, Any]) -> dict[str, str]:
    """Return session settings with which Spark's reader reads these columns correctly, where they differ from the
    session's."""
    settings = {}
    if gateway.setting("spark.sql.caseSensitive", "false") == "true":
        settings["spark.sql.caseSensitive"] = "false"  # files may spell a name another way; the table has each once
    if any(field["type"] == "binary" and "EXISTS_DEFAULT" in field["metadata"] for field in wanted["fields"]):
        settings["spark.sql.parquet.enableVectorizedReader"] = "false"  # it has no default values of that type
    return settings


def session_with(gateway: Gateway, settings: Mapping[str, str]) -> Any:
    """Return the session, or a copy with other settings: a scan uses the settings of the session that creates it."""
    if not settings:
        return gateway.session
    copy = gateway.session.cloneSession()
    for name, value in settings.items():
        copy.sessionState().conf().setConfString(name, value)
    return copy


def _with_options(gateway: Gateway, options: Any, more: Mapping[str, str]) -> Any:
    if not more:
        return options
    merged = gateway.java_map(dict(more))
    merged.putAll(options.asCaseSensitiveMap())
    return gateway.java_class(SQL + "util.CaseInsensitiveStringMap")(merged)

"""Tables as a Hive Metastore or Glue describes them: what they are, and why some cannot be imported.

Spark keeps the definition of its own tables in properties (``spark.sql.sources.*``): the schema with the case of its
names, the partition columns, and the location in a parameter of the serde.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from lamella.client.catalogs.hive_types import hive_columns, spark_columns
from lamella.client.catalogs.tables import SourceTable
from lamella.snapshot.errors import InvalidRequest, InvalidSchema, LamellaError, NotParquet, OtherTableFormat
from lamella.snapshot.schema import Column
from lamella.snapshot.wire import HivePartition, HiveTable

#: The partition value that represents null.
HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_PARQUET_INPUTS: Final = frozenset(
    {
        "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
        "parquet.hive.MapredParquetInputFormat",
        "parquet.hive.DeprecatedParquetInputFormat",
    }
)
_PROVIDER: Final = "spark.sql.sources.provider"
_SCHEMA: Final = "spark.sql.sources.schema"
#: Options of Spark's tables that decide which files, or which of their rows and values, belong to the table.
_OPTIONS: Final = frozenset(
    {
        "recursivefilelookup",
        "pathglobfilter",
        "modifiedbefore",
        "modifiedafter",
        "basepath",
        "ignorecorruptfiles",
        "datetimerebasemode",
        "int96rebasemode",
    }
)
_TRUE: Final = "true"


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """How files of a table or a partition are stored."""

    location: str | None
    input_format: str | None
    serde: str | None = None
    parameters: Mapping[str, str] = {}


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition, with the text of its values."""

    values: tuple[str, ...]
    storage: Storage


class MetastoreTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table's definition. ``columns`` and ``keys`` (the partition columns): names and Hive's types.

    ``in_skewed_folders``: rows with some values are in folders of their own.
    """

    database: str
    name: str
    kind: str
    storage: Storage
    columns: tuple[tuple[str, str], ...]
    keys: tuple[tuple[str, str], ...]
    parameters: Mapping[str, str]
    in_skewed_folders: bool = False


def source_table(table: MetastoreTable, partitions: Callable[[], list[Partition]]) -> SourceTable:
    """Return what a definition is for an import. ``partitions`` returns all partitions of the table."""
    try:
        return _source_table(table, partitions)
    except LamellaError as error:
        return SourceTable(database=table.database, name=table.name, refused=error)


def _source_table(table: MetastoreTable, partitions: Callable[[], list[Partition]]) -> SourceTable:
    parameters = table.parameters
    provider = parameters.get(_PROVIDER, "").lower()
    format_name = parameters.get("table_type", "").lower()
    if "VIEW" in table.kind.upper():
        raise InvalidRequest("it is a view: only tables have files")
    if format_name == "iceberg" or provider == "iceberg":
        location = parameters.get("metadata_location")
        if location is None:
            raise InvalidRequest("the catalog has no metadata_location of this Iceberg table")
        return SourceTable(database=table.database, name=table.name, kind="iceberg", location=location)
    if provider == "delta" or format_name == "delta":
        location = table.storage.parameters.get("path") or table.storage.location
        return SourceTable(database=table.database, name=table.name, kind="delta", location=_location(location))
    _refuse_others(table, provider)
    columns, partitioned_by = _columns(table, provider)
    location = table.storage.parameters.get("path") if provider else table.storage.location

    def found() -> tuple[HivePartition, ...]:
        every = partitions() if partitioned_by else []
        return tuple(_partition(each, partitioned_by, is_sparks=bool(provider)) for each in every)

    return SourceTable(
        database=table.database,
        name=table.name,
        kind="hive",
        location=_location(location),
        hive=HiveTable(columns=columns, partitioned_by=partitioned_by),
        partitions=found,
    )


def _location(text: str | None) -> str:
    if not text:
        raise InvalidRequest("the catalog has no location of this table")
    return text


def _refuse_others(table: MetastoreTable, provider: str) -> None:
    """Raise for a table that is not plain Parquet files, or whose rows are not those of its files."""
    storage, parameters = table.storage, table.parameters
    names = f"{storage.input_format} {storage.serde} {provider}".lower()
    if "hudi" in names or "hoodie" in names or any(name.startswith("hoodie.") for name in parameters):
        raise OtherTableFormat("it is a Hudi table: not all of its files are current")
    if "symlink" in names:
        raise OtherTableFormat("its files are named by manifests (SymlinkTextInputFormat)")
    if parameters.get("transactional", "").lower() == _TRUE:
        raise OtherTableFormat("it is a transactional (ACID) table of Hive: not all of its files are current")
    if "storage_handler" in parameters:
        raise InvalidRequest(f"its rows are kept by {parameters['storage_handler']}, not in files")
    if provider and provider not in ("parquet", "org.apache.spark.sql.parquet"):
        raise NotParquet(f"its files are {provider}, not Parquet")
    if not provider:
        _require_parquet(storage, "its files are")
    if table.in_skewed_folders:
        raise InvalidRequest("it is skewed and keeps some values in folders of their own")
    if parameters.get("projection.enabled", "").lower() == _TRUE:
        raise InvalidRequest("its partitions are computed (projection.enabled): the catalog has no list of them")
    by_position = {**storage.parameters, **parameters}.get("parquet.column.index.access", "")
    if by_position.lower() == _TRUE:
        raise InvalidRequest("Hive finds its columns by position (parquet.column.index.access), other readers by name")
    if provider:
        options = sorted(name for name in storage.parameters if name.lower() in _OPTIONS)
        if options:
            raise InvalidRequest(f"its options change what Spark reads: {options}")


def _require_parquet(storage: Storage, begin: str) -> None:
    if storage.input_format not in _PARQUET_INPUTS:
        name = (storage.input_format or "of an unknown format").rpartition(".")[2]
        raise NotParquet(f"{begin} not Parquet: {name}")


def _columns(table: MetastoreTable, provider: str) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """Return the columns with the partition columns last, and the names of these, as Spark reads the table."""
    stored = _stored_schema(table.parameters)
    keys = tuple(name for name, _ in table.keys)
    if provider:
        if stored is None:
            raise InvalidSchema("Spark's own table has no schema in its properties")
        names = _stored_keys(table.parameters)
        if names and table.parameters.get("spark.sql.partitionProvider") != "catalog":
            raise InvalidRequest(
                "the metastore has no list of its partitions: ALTER TABLE ... RECOVER PARTITIONS makes one in Spark"
            )
        if [name.lower() for name in names] != [name.lower() for name in keys]:
            raise InvalidSchema(f"the partition columns are {list(names)} in the properties and {list(keys)} in Hive")
        return _with_last(spark_columns(stored), names), names
    own = hive_columns([*table.columns, *table.keys])
    if stored is not None:
        # Spark knows the case of names, unless the columns were changed by others since.
        names = _stored_keys(table.parameters)
        try:
            theirs = _with_last(spark_columns(stored), names)
        except InvalidSchema:
            theirs = ()
        if _plain(theirs) == _plain(own) and [name.lower() for name in names] == [name.lower() for name in keys]:
            return theirs, names
    return own, keys


def _with_last(columns: tuple[Column, ...], names: tuple[str, ...]) -> tuple[Column, ...]:
    by_name = {column.name: column for column in columns}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise InvalidSchema(f"the table is partitioned by {missing}, which are not columns")
    return (*(column for column in columns if column.name not in names), *(by_name[name] for name in names))


def _plain(columns: tuple[Column, ...]) -> list[Any]:
    """Return names and types without the case of names."""
    return [(column.name.lower(), column.type, _plain(column.fields)) for column in columns]


def _stored_schema(parameters: Mapping[str, str]) -> str | None:
    """Return the schema that Spark keeps in properties, in one piece or several."""
    whole = parameters.get(_SCHEMA)
    count = parameters.get(f"{_SCHEMA}.numParts")
    if whole is None and count is not None:
        pieces = [parameters.get(f"{_SCHEMA}.part.{number}") for number in range(int(count))]
        whole = None if None in pieces else "".join(piece or "" for piece in pieces)
        if whole is None:
            raise InvalidSchema("a piece of the schema in Spark's properties is missing")
    if whole is not None:
        try:
            json.loads(whole)
        except ValueError as error:
            raise InvalidSchema(f"the schema in Spark's properties cannot be read: {error}") from error
    return whole


def _stored_keys(parameters: Mapping[str, str]) -> tuple[str, ...]:
    count = int(parameters.get(f"{_SCHEMA}.numPartCols", "0"))
    try:
        return tuple(parameters[f"{_SCHEMA}.partCol.{number}"] for number in range(count))
    except KeyError as error:
        raise InvalidSchema(f"{error.args[0]} is missing in Spark's properties") from error


def _partition(partition: Partition, partitioned_by: tuple[str, ...], *, is_sparks: bool) -> HivePartition:
    values = dict(zip(partitioned_by, partition.values, strict=False))
    if not is_sparks:  # for Spark's own tables, the property of the table alone counts
        _require_parquet(partition.storage, f"the files of partition {values} are")
    if len(partition.values) != len(partitioned_by):
        raise InvalidRequest(f"a partition has the values {list(partition.values)} for {list(partitioned_by)}")
    return HivePartition(
        location=_location(partition.storage.location),
        values=tuple(None if value == HIVE_NULL else value for value in partition.values),
    )

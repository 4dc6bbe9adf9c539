"""Python data sources of Spark whose option lists what is read: the driver makes the list, workers read its parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, Self

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from lamella.client.spark.python_blocks import plain_struct, scan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lamella.client.spark.gateway import Gateway

#: Has "url" inside of it because Spark shows the others; it may hold credentials of the store.
_OPTION: Final = "listUrl"


class Listed(Protocol):
    """What is read: a msgspec struct."""

    def tasks(self) -> Iterable[Self]:
        """Yield what each task of Spark reads."""
        ...

    def rows(self, struct: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows; ``struct``: their columns in Spark's JSON."""
        ...


class ListedTask(InputPartition):
    """What one task of Spark reads."""

    def __init__(self, listed: Listed) -> None:
        super().__init__(None)
        self.listed = msgspec.json.encode(listed)


class ListedSource(DataSource):
    """The base of these data sources, which only the catalog uses. ``FORMAT``: the name for ``format``; ``LISTED``: the
    type of the list."""

    FORMAT: ClassVar[str]
    LISTED: ClassVar[Any]

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return cls.FORMAT

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of these columns."""
        made = ListedReader(self.LISTED, self.options[_OPTION], schema.json())
        self.options = type(self.options)()  # Spark sends this to executors, which have their own lists
        return made


class ListedReader(DataSourceReader):
    """Plans from the list, reads its parts. Planning and reading run in different processes."""

    def __init__(self, list_type: Any, listed: str, schema_json: str) -> None:
        self._list_type = list_type
        self._listed = listed
        self._schema_json = schema_json

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_listed": ""}

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        listed: Listed = msgspec.json.decode(self._listed, type=self._list_type)
        return [ListedTask(task) for task in listed.tasks()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task. Spark passes None when there is none."""
        if isinstance(partition, ListedTask):
            listed: Listed = msgspec.json.decode(partition.listed, type=self._list_type)
            yield from listed.rows(self._schema_json)


def listed_frame(spark: SparkSession, source: type[ListedSource], listed: Listed, struct: str) -> DataFrame:
    """Return what is listed as a frame; ``struct``: the columns, as JSON."""
    spark.dataSource.register(source)
    reader = spark.read.format(source.FORMAT).schema(plain_struct(struct))
    return reader.option(_OPTION, msgspec.json.encode(listed).decode()).load()


def listed_scan(gateway: Gateway, source: type[ListedSource], listed: Listed, struct: str) -> Any:
    """Return Spark's own scan (a JVM object) of what is listed; ``struct``: the columns, as JSON.

    Raises:
        LamellaError: this version of Spark plans it in an unknown way.
    """
    return scan_of(listed_frame(gateway.spark, source, listed, struct))

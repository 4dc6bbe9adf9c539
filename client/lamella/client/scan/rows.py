"""Rows in the forms of other libraries: Arrow, pandas, Polars, DuckDB. Each gets rows that are decided already."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

_BATCH_ROWS: Final = 64 << 10


class Rows(ABC):
    """What has rows to read. They are read anew by each method.

    Whatever takes Arrow's PyCapsule interface takes this as it stands, and reads it as a stream:
    ``pyarrow.table(rows)``, ``polars.DataFrame(rows)``, ``duckdb.from_arrow(rows)``.

    The methods for other libraries raise ModuleNotFoundError where the library is not installed; it names the extra.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns that come out."""

    @abstractmethod
    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """The rows as they are read, at most 65,536 at a time."""

    def to_reader(self) -> pa.RecordBatchReader:
        """The batches as a stream with a schema, which can be read once; who drops it ends the reading."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_arrow(self) -> pa.Table:
        """All rows, in memory."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """All rows as a pandas frame; ``options`` are those of ``pyarrow.Table.to_pandas``.

        Without options, integers and booleans with nulls become what pandas makes of them; with
        ``types_mapper=pandas.ArrowDtype`` every type stays. Needs ``lamella[pandas]``.
        """
        library("pandas", "to_pandas", "pandas")
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> polars.DataFrame:
        """All rows as a Polars frame.

        No LazyFrame, since its filters would not reach the service: filter, columns and limit belong into the scan.
        ``.lazy()`` makes one of what was read. Needs ``lamella[polars]``.
        """
        found: polars.DataFrame = library("polars", "to_polars", "polars").DataFrame(self.to_arrow())
        return found

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """A DuckDB relation; None: of DuckDB's default connection, so that ``duckdb.sql`` finds it by its variable.

        The rows stream into each query over the relation, and are read anew by the next; ``.create(name)`` keeps them
        in a table. Its own filters are applied to the rows, after those of the scan. Needs ``lamella[duckdb]``.
        """
        duck = library("duckdb", "to_duckdb", "duckdb")
        relation: duckdb.DuckDBPyRelation = (duck if connection is None else connection).from_arrow(self)
        return relation

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)


def batches_of(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows of a table, at most 65,536 at a time; none that is empty."""
    return (batch for batch in table.to_batches(max_chunksize=_BATCH_ROWS) if batch.num_rows)


def library(module: str, method: str, extra: str) -> Any:
    """Import a library that comes with an extra.

    Raises:
        ModuleNotFoundError: it is not installed; names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ModuleNotFoundError(f"{method} needs {module}: pip install 'lamella[{extra}]'", name=module) from error


def read_frame(rows: Rows) -> pandas.DataFrame:
    """All rows as a pandas frame whose types are the same with and without nulls."""
    return arrow_frame(rows.to_arrow())


def arrow_frame(table: pa.Table) -> pandas.DataFrame:
    """A table as a pandas frame of Arrow's types."""
    found: pandas.DataFrame = table.to_pandas(types_mapper=library("pandas", "to_dask", "dask").ArrowDtype)
    return found

"""Rows in the formats of other libraries: Arrow, pandas, Polars, DuckDB. The filter has been applied exactly."""

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
    """A source of rows. Each method reads them again.

    Implements Arrow's PyCapsule interface, so libraries can read it as a stream: ``pyarrow.table(rows)``,
    ``polars.DataFrame(rows)``, ``duckdb.from_arrow(rows)``.

    The methods for other libraries raise ModuleNotFoundError, which names the extra, when the library is not installed.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The output columns."""

    @abstractmethod
    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows as they are read, at most 65,536 at a time."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the batches as a stream with a schema, which can be read once; dropping it stops the reading.

        Example:
            >>> with table.scan("price > 99.5").to_reader() as reader:
            ...     sum(batch.num_rows for batch in reader)
            6
        """
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_arrow(self) -> pa.Table:
        """Return all rows, in memory.

        Example:
            >>> table.scan("price > 135", ["id", "country"]).to_arrow().to_pylist()
            [{'id': 14, 'country': 'US'}, {'id': 15, 'country': 'DE'}]
        """
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """Return all rows as a pandas frame; ``options``: those of ``pyarrow.Table.to_pandas``.

        By default pandas converts integers and booleans with nulls to other types; ``types_mapper=pandas.ArrowDtype``
        keeps every type. Needs ``lamella[pandas]``.

        Example:
            >>> table.scan("price > 135", ["id", "price"]).to_pandas()
               id  price
            0  14  140.0
            1  15  150.0
        """
        library("pandas", "to_pandas", "pandas")
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> polars.DataFrame:
        """Return all rows as a Polars frame.

        Filters of Polars do not reach the service: pass filter, columns and limit to the scan, or use
        ``to_lazyframe()``. Needs ``lamella[polars]``.

        Example:
            >>> table.scan("price > 99.5").to_polars()["price"].max()
            150.0
        """
        found: polars.DataFrame = library("polars", "to_polars", "polars").DataFrame(self.to_arrow())
        return found

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Return a DuckDB relation; None: on DuckDB's default connection, so that ``duckdb.sql`` finds it by its
        variable name.

        The rows are streamed into each query on the relation and read again for the next; ``.create(name)`` stores them
        in a table. DuckDB's filters are applied to the rows after those of the scan; those of a query on
        ``to_pyarrow_dataset()`` leave out blocks. Needs ``lamella[duckdb]``.

        Example:
            >>> orders = table.scan("price > 99.5").to_duckdb()
            >>> orders.aggregate("max(price)").fetchall()
            [(150.0,)]
        """
        duck = library("duckdb", "to_duckdb", "duckdb")
        relation: duckdb.DuckDBPyRelation = (duck if connection is None else connection).from_arrow(self)
        return relation

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)


def batches_of(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Return the rows of a table, at most 65,536 at a time, in nonempty batches."""
    return (batch for batch in table.to_batches(max_chunksize=_BATCH_ROWS) if batch.num_rows)


def library(module: str, method: str, extra: str = "", *, package: str = "") -> Any:
    """Import a library that an extra installs, or a package of its own.

    Raises:
        ModuleNotFoundError: it is not installed; the message names the extra or the package.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{method} needs {module}: pip install '{package or f'lamella[{extra}]'}'", name=module
        ) from error


def arrow_frame(table: pa.Table) -> pandas.DataFrame:
    """Return a table as a pandas frame of Arrow types."""
    found: pandas.DataFrame = table.to_pandas(types_mapper=library("pandas", "to_dask", "dask").ArrowDtype)
    return found

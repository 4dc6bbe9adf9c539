"""A scan inside other query engines: each hands its filters and columns to the scan through its own extension point.

The engine's filter only decides which blocks and pages are read. Which rows match is decided by the engine itself, so
its own meaning of NaN, of null and of its functions holds. The module of an engine is loaded when it is used.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lamella.client.scan.engines.source import Part, Source
from lamella.client.scan.rows import Rows

if TYPE_CHECKING:
    import daft
    import dask.dataframe
    import polars
    import pyarrow.dataset
    import ray.data


class EngineRows(Rows):
    """Rows that engines can ask for in part.

    The methods below read the snapshot that is current when they are called, also for queries that are made later. They
    raise InvalidRequest for a scan with a limit or an order, since an engine's filter comes before these.
    """

    @abstractmethod
    def at_snapshot(self) -> Source:
        """Return the same rows, whatever is committed later."""

    @abstractmethod
    def narrowed(
        self,
        columns: Sequence[str] | None = None,
        may_match: Sequence[dict[str, Any]] = (),
        *,
        limit: int | None = None,
    ) -> Source:
        """Return what an engine needs of the rows."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def fragments(self) -> Sequence[Part]:
        """Return the rows in parts, one per block."""

    def to_lazyframe(self) -> polars.LazyFrame:
        """Return a LazyFrame of Polars. Filters, columns and limits of a query on it decide which blocks, pages and
        columns are read, and Polars filters the rows. Needs ``lamella[polars]``.

        Example:
            >>> frame = table.scan().to_lazyframe()
            >>> frame.filter(polars.col("price") > 145).select("id").collect()["id"].to_list()
            [15]
        """
        from lamella.client.scan.engines.polars import lazy_frame

        return lazy_frame(self.at_snapshot())

    def to_pyarrow_dataset(self) -> pyarrow.dataset.Dataset:
        """Return a dataset of pyarrow. Filters and columns decide which blocks, pages and columns are read, and pyarrow
        filters the rows.

        DuckDB reads it as a table, by the name of the variable or by ``connection.register``. It has no fragments.

        Example:
            >>> dataset = table.scan().to_pyarrow_dataset()
            >>> dataset.to_table(["id"], filter=pyarrow.compute.field("price") > 145).num_rows
            1
        """
        from lamella.client.scan.engines.dataset import TableDataset

        return TableDataset(self.at_snapshot())

    def to_datafusion(self) -> pyarrow.dataset.Dataset:
        """Return a table for DataFusion: ``context.register_table("orders", scan.to_datafusion())``.

        Filters and columns of a query decide which blocks, pages and columns are read. ``to_pyarrow_dataset()`` is not
        for DataFusion: it filters as pyarrow does.
        """
        from lamella.client.scan.engines.datafusion import DataFusionTable

        return DataFusionTable(self.at_snapshot())

    def to_dask(self) -> dask.dataframe.DataFrame:
        """Return a Dask frame with one partition per block, read where Dask computes them; raises as :meth:`fragments`.

        Only the columns that Dask needs are read. Its types are Arrow's (``pandas.ArrowDtype``): NumPy types would
        differ between partitions with and without nulls. Needs ``lamella[dask]``.

        Example:
            >>> frame = table.scan("price > 99.5").to_dask()
            >>> frame.npartitions, len(frame)
            (2, 6)
        """
        from lamella.client.scan.engines.dask import dask_frame

        return dask_frame(self)

    def to_ray(self, **options: Any) -> ray.data.Dataset:
        """Return a dataset of Ray Data; ``options``: those of ``ray.data.read_datasource``.

        Columns and filters of the dataset, as expressions, decide which blocks, pages and columns are read. Needs
        Ray 2.60 or newer.
        """
        from lamella.client.scan.engines.ray import ray_dataset

        return ray_dataset(self.at_snapshot(), **options)

    def to_daft(self) -> daft.DataFrame:
        """Return a DataFrame of Daft. Filters and columns of a query decide which blocks, pages and columns are read,
        and Daft filters the rows. Needs Daft.
        """
        from lamella.client.scan.engines.daft import daft_frame

        return daft_frame(self.at_snapshot())

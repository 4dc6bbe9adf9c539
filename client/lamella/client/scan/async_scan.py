"""Rows for asyncio: each method of a scan in a thread that its caller awaits.

Reading blocks a thread in any case, since Parquet is decoded. So the synchronous scan does the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from lamella.client.scan.row_changes import RowChanges
from lamella.client.scan.scan import Fragment, Scan
from lamella.snapshot.wire import PruneAnswer

if TYPE_CHECKING:
    import pandas
    import polars

Item = TypeVar("Item")
Source = TypeVar("Source", bound=Scan | RowChanges)


class AsyncRows(Generic[Source]):
    """Rows that are read by threads: ``await rows.to_arrow()``, ``async for batch in rows``. Each method reads them
    again.

    If the task is cancelled, the method ends at once, but its thread finishes what it has begun. ``to_reader()``,
    ``to_duckdb()``, ``to_dask()`` and the methods for other engines are left out: they read later, in the thread that
    uses their result, which would be the event loop's.
    """

    def __init__(self, rows: Source) -> None:
        self._rows = rows

    async def schema(self) -> pa.Schema:
        """The output columns.

        Example:
            >>> (await table.scan(columns=["id", "day"]).schema()).names
            ['id', 'day']
        """
        return await asyncio.to_thread(lambda: self._rows.schema)

    async def to_arrow(self) -> pa.Table:
        """All rows, in memory.

        Example:
            >>> (await table.scan("price > 135", ["id"]).to_arrow()).to_pylist()
            [{'id': 14}, {'id': 15}]
        """
        return await asyncio.to_thread(self._rows.to_arrow)

    async def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """All rows as a pandas frame; ``options``: those of ``pyarrow.Table.to_pandas``. Needs ``lamella[pandas]``.

        Example:
            >>> (await table.scan("price > 125").to_pandas())["id"].tolist()
            [13, 14, 15]
        """
        return await asyncio.to_thread(self._rows.to_pandas, **options)

    async def to_polars(self) -> polars.DataFrame:
        """All rows as a Polars frame. Needs ``lamella[polars]``.

        Example:
            >>> (await table.scan("price > 99.5").to_polars())["price"].max()
            150.0
        """
        return await asyncio.to_thread(self._rows.to_polars)

    def to_batches(self) -> AsyncGenerator[pa.RecordBatch, None]:
        """The rows as they are read, at most 65,536 at a time.

        Example:
            >>> [batch.num_rows async for batch in table.scan("price > 125").to_batches()]
            [3]
        """
        return each(self._rows.to_batches)

    def __aiter__(self) -> AsyncGenerator[pa.RecordBatch, None]:
        return self.to_batches()


class AsyncScan(AsyncRows[Scan]):
    """The rows of a table that match a filter, as :class:`lamella.client.scan.Scan`, for asyncio."""

    async def plan(self) -> PruneAnswer:
        """The service's answer: which blocks and rows are read, and why.

        Example:
            >>> [block.verdict for block in (await table.scan("price > 99.5").plan()).blocks]
            ['SOME', 'ALL']
        """
        return await asyncio.to_thread(lambda: self._rows.plan)

    async def count(self) -> int:
        """The number of rows: from statistics where they prove it, otherwise by reading the filter's columns.

        Example:
            >>> await table.scan("price > 99.5").count()
            6
        """
        return await asyncio.to_thread(self._rows.count)

    async def aggregate(
        self,
        aggregates: Sequence[str],
        *,
        group_by: Sequence[str] = (),
        max_blocks: int | None = None,
        max_rows: int | None = None,
    ) -> pa.Table:
        """The exact result of aggregates; see :meth:`lamella.client.scan.Scan.aggregate`.

        Example:
            >>> rows = await table.scan("price > 65").aggregate(["count(*)"])
            >>> rows.to_pylist()
            [{'count(*)': 9}]
        """
        limits = {"max_blocks": max_blocks, "max_rows": max_rows}
        return await asyncio.to_thread(self._rows.aggregate, aggregates, group_by=group_by, **limits)

    async def fragments(self) -> list[Fragment]:
        """The scan in parts, one per block, which other processes can read in any order.

        Example:
            >>> [fragment.row_count for fragment in await table.scan("price > 125").fragments()]
            [3]
        """
        return await asyncio.to_thread(self._rows.fragments)

    def to_json_rows(self) -> AsyncGenerator[list[Any], None]:
        """The rows as lists of JSON values in the order of the columns.

        Example:
            >>> [row async for row in table.scan("price > 145", ["id", "day"]).to_json_rows()]
            [[15, '2024-06-03']]
        """
        return each(self._rows.to_json_rows)


async def each(begin: Callable[[], Iterator[Item]]) -> AsyncGenerator[Item, None]:
    """The items of an iterator. One thread, in one context, begins it, asks for each item, and closes it."""
    loop, context = asyncio.get_running_loop(), copy_context()
    pool = ThreadPoolExecutor(1, thread_name_prefix="lamella-rows")
    try:
        items = await loop.run_in_executor(pool, lambda: context.run(begin))
        try:
            while (item := await loop.run_in_executor(pool, lambda: context.run(next, items, None))) is not None:
                yield item
        finally:
            # Shielded: also a reader that is cancelled gives its threads and its lease back.
            await asyncio.shield(loop.run_in_executor(pool, lambda: context.run(_close, items)))
    finally:
        pool.shutdown(wait=False)  # the thread may need the event loop to end its work


def _close(items: object) -> None:
    if isinstance(items, Generator):
        items.close()

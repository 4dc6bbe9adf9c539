"""All methods of a service and of a table, combined from the features."""

from __future__ import annotations

from typing import Self

from lamella.client.advice.aio import AsyncTableAdvice
from lamella.client.http.aio.access import AsyncLakeAccess
from lamella.client.http.aio.blocks import AsyncTableAddresses, AsyncTableBlocks
from lamella.client.http.aio.branches import AsyncTableBranches
from lamella.client.http.aio.connection import AsyncConnection
from lamella.client.http.aio.external import AsyncLakeExternal, AsyncTableRefresh
from lamella.client.http.aio.history import AsyncLakeHistory, AsyncTableHistory
from lamella.client.http.aio.indexes import AsyncLakeIndexes, AsyncTableIndexes
from lamella.client.http.aio.jobs import AsyncJobs, AsyncTableSchedules
from lamella.client.http.aio.layout import AsyncTableLayout
from lamella.client.http.aio.maintenance import AsyncLakeMaintenance, AsyncTableMaintenance, AsyncTableVerification
from lamella.client.http.aio.prune import AsyncTablePrune
from lamella.client.http.aio.sample import AsyncTableSample
from lamella.client.http.aio.tables import AsyncLakeTables, AsyncTableContents
from lamella.client.http.aio.usage import AsyncLakeAudit, AsyncTableFeedback, AsyncTableUsage
from lamella.client.http.aio.views import AsyncLakeViews
from lamella.client.http.branches import branch_of
from lamella.client.http.call import TableName


class AsyncLakeMethods(
    AsyncConnection,
    AsyncLakeTables,
    AsyncLakeHistory,
    AsyncLakeViews,
    AsyncLakeMaintenance,
    AsyncLakeIndexes,
    AsyncLakeExternal,
    AsyncLakeAudit,
    AsyncLakeAccess,
):
    """The methods of :class:`lamella.client.AsyncLamella`."""

    @property
    def jobs(self) -> AsyncJobs:
        """The jobs of the service; see ``docs/jobs.md``.

        Example:
            >>> job = await lake.jobs.submit("compact", "shop.orders")
            >>> job.state
            'queued'
        """
        return AsyncJobs(self, self._sleep)


class AsyncTableMethods(
    AsyncTableContents,
    AsyncTablePrune,
    AsyncTableSample,
    AsyncTableHistory,
    AsyncTableBranches,
    AsyncTableMaintenance,
    AsyncTableIndexes,
    AsyncTableRefresh,
    AsyncTableFeedback,
    AsyncTableAdvice,
    AsyncTableLayout,
    AsyncTableBlocks,
    AsyncTableSchedules,
    AsyncTableVerification,
    AsyncTableUsage,
    AsyncTableAddresses,
):
    """The methods of :class:`lamella.client.http.AsyncTable`."""

    _lake: AsyncLakeMethods

    def __init__(self, lake: AsyncLakeMethods, name: TableName) -> None:
        self._lake = lake
        self._name = name
        self._addresses = lake.addresses

    @property
    def namespace(self) -> str:
        """The name of the namespace.

        Example:
            >>> lake.table("shop.orders").namespace
            'shop'
        """
        return self._name.namespace

    @property
    def name(self) -> str:
        """The name of the table in its namespace.

        Example:
            >>> lake.table("shop.orders").name
            'orders'
        """
        return self._name.table

    def branch(self, name: str) -> Self:
        """The handle of a branch of the table, which is read and written like a table; sends no request.

        Example:
            >>> str(lake.table("shop.orders").branch("audit"))
            'shop.orders@audit'
        """
        return type(self)(self._lake, branch_of(self._name, name))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        """The copy in another process has a client of its own."""
        return type(self), (self._lake, self._name)

    def __str__(self) -> str:
        return str(self._name)

    def __repr__(self) -> str:
        return f"{self._lake!r}.table({str(self._name)!r})"

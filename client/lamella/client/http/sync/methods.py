# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/methods.py: change that file.
"""All methods of a service and of a table, combined from the features."""

from __future__ import annotations

from typing import Self

from lamella.client.advice.sync import TableAdvice
from lamella.client.http.branches import branch_of
from lamella.client.http.call import TableName
from lamella.client.http.sync.access import LakeAccess
from lamella.client.http.sync.blocks import TableAddresses, TableBlocks
from lamella.client.http.sync.branches import TableBranches
from lamella.client.http.sync.connection import Connection
from lamella.client.http.sync.external import LakeExternal, TableRefresh
from lamella.client.http.sync.history import LakeHistory, TableHistory
from lamella.client.http.sync.indexes import LakeIndexes, TableIndexes
from lamella.client.http.sync.jobs import Jobs, TableSchedules
from lamella.client.http.sync.layout import TableLayout
from lamella.client.http.sync.maintenance import LakeMaintenance, TableMaintenance, TableVerification
from lamella.client.http.sync.prune import TablePrune
from lamella.client.http.sync.sample import TableSample
from lamella.client.http.sync.tables import LakeTables, TableContents
from lamella.client.http.sync.usage import LakeAudit, TableFeedback, TableUsage
from lamella.client.http.sync.views import LakeViews


class LakeMethods(
    Connection,
    LakeTables,
    LakeHistory,
    LakeViews,
    LakeMaintenance,
    LakeIndexes,
    LakeExternal,
    LakeAudit,
    LakeAccess,
):
    """The methods of :class:`lamella.client.Lamella`."""

    @property
    def jobs(self) -> Jobs:
        """The jobs of the service; see ``docs/jobs.md``.

        Example:
            >>> job = lake.jobs.submit("compact", "shop.orders")
            >>> job.state
            'queued'
        """
        return Jobs(self, self._sleep)


class TableMethods(
    TableContents,
    TablePrune,
    TableSample,
    TableHistory,
    TableBranches,
    TableMaintenance,
    TableIndexes,
    TableRefresh,
    TableFeedback,
    TableAdvice,
    TableLayout,
    TableBlocks,
    TableSchedules,
    TableVerification,
    TableUsage,
    TableAddresses,
):
    """The methods of :class:`lamella.client.http.Table`."""

    _lake: LakeMethods

    def __init__(self, lake: LakeMethods, name: TableName) -> None:
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

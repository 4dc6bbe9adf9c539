"""How a service is used: the calls, and what the client, :class:`Table` and their async twins make of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlencode

from lamella.client.http.call import Call, TableName
from lamella.client.http.running import Runs, RunsAsync
from lamella.snapshot.wire import AuditEntry, AuditList, PruneRatesAnswer

_DAY_S = 86_400


def prune_rates_call(name: TableName, since_s: int) -> Call[PruneRatesAnswer]:
    """How well prunes of a table skipped."""
    return Call(
        method="GET", path=f"{name.path}/prune-rates?{urlencode({'since_s': since_s})}", answer=PruneRatesAnswer
    )


def audit_call(table: str | None, page_size: int | None, page_token: str | None) -> Call[AuditList]:
    """A page of the audit trail."""
    query = {"table": table, "page_size": page_size, "page_token": page_token}
    given = {name: value for name, value in query.items() if value is not None}
    return Call(method="GET", path="/v1/audit" + (f"?{urlencode(given)}" if given else ""), answer=AuditList)


class WatchedTable:
    """How a table is used; a part of :class:`lamella.client.Table`."""

    _lake: Runs
    _name: TableName

    def prune_rates(self, since_s: int = _DAY_S) -> PruneRatesAnswer:
        """How well the prunes of the last so many seconds skipped, of all clients; raises TableNotFound."""
        return self._lake.run(prune_rates_call(self._name, since_s))


class AsyncWatchedTable:
    """The asyncio twin of :class:`WatchedTable`."""

    _lake: RunsAsync
    _name: TableName

    async def prune_rates(self, since_s: int = _DAY_S) -> PruneRatesAnswer:
        """As :meth:`WatchedTable.prune_rates`."""
        return await self._lake.run(prune_rates_call(self._name, since_s))


class WatchedLake:
    """The audit trail; a part of :class:`lamella.client.Lamella`."""

    def audit(self: Runs, table: str | None = None, *, page_size: int | None = None) -> Iterator[AuditEntry]:
        """The changes that were asked for, the newest first, also those that were refused.

        ``table``: only what was about ``namespace.table``. Pages of ``page_size`` are asked for as it goes on.
        """
        token: str | None = None
        while True:
            page = self.run(audit_call(table, page_size, token))
            yield from page.entries
            token = page.next_page_token
            if token is None:
                return


class AsyncWatchedLake:
    """The asyncio twin of :class:`WatchedLake`."""

    async def audit(
        self: RunsAsync, table: str | None = None, *, page_size: int | None = None
    ) -> AsyncIterator[AuditEntry]:
        """As :meth:`WatchedLake.audit`."""
        token: str | None = None
        while True:
            page = await self.run(audit_call(table, page_size, token))
            for entry in page.entries:
                yield entry
            token = page.next_page_token
            if token is None:
                return

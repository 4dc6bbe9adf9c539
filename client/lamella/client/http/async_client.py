"""The client of a Lamella service for asyncio, and the handle of a table."""

from __future__ import annotations

from lamella.client.http.aio.methods import AsyncLakeMethods, AsyncTableMethods
from lamella.client.http.call import TableName


class AsyncLamella(AsyncLakeMethods):
    """A Lamella service, for asyncio: ``async with AsyncLamella("http://127.0.0.1:8181") as lake: ...``.

    Takes the same arguments and raises the same errors as :class:`~lamella.client.http.client.Lamella`. Needs
    ``lamella[aio]`` unless a
    ``transport`` is given.
    """

    def table(self, name: str) -> AsyncTable:
        """The handle of ``namespace.name`` (the table name follows the last dot); sends no request."""
        return AsyncTable(self, TableName.parse(name))


class AsyncTable(AsyncTableMethods):
    """One table of a service; made by :meth:`AsyncLamella.table`. Holds no state but its name."""

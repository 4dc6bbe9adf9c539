"""The client of a Lamella service for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamella.client.http.async_rows import AsyncLake, AsyncTable
from lamella.client.http.call import TableName

if TYPE_CHECKING:
    from lamella.client.http.transaction import AsyncTransaction


class AsyncLamella(AsyncLake):
    """A Lamella service, for asyncio: ``async with AsyncLamella("http://127.0.0.1:8181") as lake: ...``.

    Takes the same arguments and raises the same errors as :class:`~lamella.client.http.client.Lamella`. Needs
    ``lamella[aio]`` unless a ``transport`` is given.
    """

    def table(self, name: str) -> AsyncTable:
        """The handle of ``namespace.name`` (the table name follows the last dot); sends no request.

        Example:
            >>> lake.table("shop.orders").name
            'orders'
        """
        return AsyncTable(self, TableName.parse(name))

    def transaction(self) -> AsyncTransaction[AsyncTable]:
        """Changes of several tables that happen together or not at all; see
        :meth:`lamella.client.Lamella.transaction`.

        Example:
            >>> async with lake.transaction() as tx:
            ...     appended = await tx.table("shop.rates").append({"country": ["US"], "vat": [0]})
            ...     deleted = await tx.table("shop.orders").delete("country = 'US'")
        """
        from lamella.client.http.transaction import AsyncTransaction

        return AsyncTransaction(self)

"""The client of a service without reading and writing rows: what jobs and writers stand on."""

from __future__ import annotations

from lamella.client.http.call import TableName
from lamella.client.http.sync.methods import LakeMethods, TableMethods


class Lake(LakeMethods):
    """The methods of :class:`lamella.client.Lamella` that send requests only."""

    def table(self, name: str) -> TableMethods:
        """The handle of ``namespace.name`` (the table name follows the last dot); sends no request."""
        return TableMethods(self, TableName.parse(name))

"""Adds the nearest name to the error of a missing table or namespace, among those that the caller may see.

A table that the caller may not read has exactly the error of one that does not exist: both get their suggestion here,
from the names that the caller may read.
"""

from __future__ import annotations

from contextlib import suppress

from starlette.requests import Request

from lamella.service.access.principal import Rights, principal_of
from lamella.service.catalog import Catalog
from lamella.service.process.threads import Threads
from lamella.snapshot.errors import BranchNotFound, LamellaError, NamespaceNotFound, TableNotFound
from lamella.snapshot.near_names import MAX_NAMES, did_you_mean


class NearNames:
    """Looks up names in the catalog. Of a namespace with more than a thousand tables nothing is suggested."""

    def __init__(self, catalog: Catalog, readers: Threads) -> None:
        self._catalog = catalog
        self._readers = readers

    async def suggest(self, request: Request, error: Exception) -> None:
        """Add ``did_you_mean`` to the details of an error, if there is a near name; never fails."""
        if not isinstance(error, TableNotFound | NamespaceNotFound) or isinstance(error, BranchNotFound):
            return
        namespace, table = (error.details.get(name) for name in ("namespace", "table"))
        if not isinstance(namespace, str) or (isinstance(error, TableNotFound) and not isinstance(table, str)):
            return
        rights = principal_of(request).rights
        with suppress(LamellaError):  # the first error counts
            error.details.update(await self._readers.run(lambda: self._near(rights, namespace, table)))

    def _near(self, rights: Rights, namespace: str, table: str | None) -> dict[str, str]:
        if table is None:
            spaces = self._catalog.some_names(None, limit=MAX_NAMES + 1)
            return did_you_mean(namespace, [name for name in spaces if rights.sees(name)])
        if not rights.sees(namespace):
            return {}
        names = rights.readable(namespace, self._catalog.some_names(namespace, limit=MAX_NAMES + 1))
        near = did_you_mean(table, names)
        return {key: f"{namespace}.{name}" for key, name in near.items()}

"""Names that forms complete: of tables, namespaces, columns, indexes, tags and principals that their viewer may see.

Each list is a ``datalist`` of the page, so completion needs no script; a script completes names after commas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request

from lamella.service.access.principal import Rights
from lamella.service.catalog import Catalog, TableFilter, TableRecord
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.wire import GrantInfo, KeyInfo, Role

#: Most names in a list.
MAX_NAMES: Final = 300
#: A page that renews parts of itself needs no lists.
_LIVE: Final = "x-lamella-live"

#: Lists by their ids.
Lists = Mapping[str, Sequence[str]]


class Names:
    """Makes the lists of pages. ``clock`` returns Unix milliseconds. Waits for the catalog."""

    def __init__(self, catalog: Catalog, clock: Callable[[], int]) -> None:
        self._catalog = catalog
        self._clock = clock

    def tables(self, rights: Rights, role: Role = "read") -> list[str]:
        """Return the first tables by name on which the viewer has a role."""
        found = self._catalog.listed_tables(TableFilter(within=rights.scopes(role)), limit=MAX_NAMES)
        return [f"{each.record.namespace}.{each.record.name}" for each in found]

    def namespaces(self, rights: Rights, role: Role | None = None) -> list[str]:
        """Return the first namespaces that the viewer sees, or has a role on."""
        names = (each.name for each in self._catalog.namespaces())
        seen = (name for name in names if (rights.sees(name) if role is None else rights.may(role, name)))
        return _first(seen)

    def scopes(self, rights: Rights) -> list[str]:
        """Return what the viewer may grant roles on, as forms take it."""
        namespaces = [f"{name}.*" for name in self.namespaces(rights, "admin")]
        whole = ["*"] if rights.may("admin") else []
        return [*whole, *namespaces, *self.tables(rights, "admin")][:MAX_NAMES]

    def tags(self, record: TableRecord) -> list[str]:
        """Return the tags of a table."""
        return _first(each.name for each in self._catalog.tags(record.table_id, now_ms=self._clock()))

    def of_table(self, record: TableRecord, head: Snapshot) -> dict[str, list[str]]:
        """Return the columns of a snapshot, and the table's tags."""
        return {"columns": columns_of(head), "tags": self.tags(record)}


def columns_of(head: Snapshot) -> list[str]:
    """Return the columns of a snapshot that can be named alone."""
    return _first(leaf.name for leaf in head.schema.leaves() if not leaf.repeated)


def principals_of(grants: Iterable[GrantInfo], keys: Iterable[KeyInfo]) -> list[str]:
    """Return the principals that a viewer sees: those with roles, and keys."""
    return _first(dict.fromkeys([*(each.principal for each in grants), *(f"key:{each.name}" for each in keys)]))


def is_renewal(request: Request) -> bool:
    """Return whether a page is requested to renew parts of it, which keeps the lists that it has."""
    return _LIVE in request.headers


def with_lists(values: Mapping[str, Any], lists: Lists) -> dict[str, Any]:
    """Return the values of a page with its lists."""
    return {**values, "lists": lists}


def _first(names: Iterable[str]) -> list[str]:
    return [name for name, _ in zip(names, range(MAX_NAMES), strict=False)]

"""What a principal may do: its grants, compiled so that a check is three look-ups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lamella.snapshot.wire import ROLES, Grant, Role

_RANK: Final[dict[Role, int]] = {role: rank for rank, role in enumerate(ROLES, 1)}


class Rights:
    """Nothing is allowed but what a grant says. On one place the highest of the roles that cover it counts."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self.grants = tuple(grants)
        self._everywhere = 0
        self._namespaces: dict[str, int] = {}
        self._tables: dict[tuple[str, str], int] = {}
        self._entered: set[str] = set()
        for grant in self.grants:
            self._add(grant)

    def may(self, role: Role, namespace: str | None = None, table: str | None = None) -> bool:
        """Whether a role is held on everything, on a namespace with all that is in it, or on a table."""
        rank = self._everywhere
        if namespace is not None:
            rank = max(rank, self._namespaces.get(namespace, 0))
            if table is not None:
                rank = max(rank, self._tables.get((namespace, table), 0))
        return rank >= _RANK[role]

    def sees(self, namespace: str) -> bool:
        """Whether the principal may know that a namespace exists: it holds a role on it, or on a table in it."""
        return self._everywhere > 0 or namespace in self._entered

    def places(self, role: Role) -> tuple[tuple[str, str | None], ...] | None:
        """Where the role is held: namespaces (with None) and tables; None: everywhere."""
        rank = _RANK[role]
        if self._everywhere >= rank:
            return None
        return (
            *((name, None) for name, held in self._namespaces.items() if held >= rank),
            *(place for place, held in self._tables.items() if held >= rank),
        )

    def _add(self, grant: Grant) -> None:
        rank = _RANK[grant.role]
        if grant.namespace is None:
            # a table without its namespace is no place; it must not become all of them
            self._everywhere = max(self._everywhere, 0 if grant.table is not None else rank)
            return
        self._entered.add(grant.namespace)
        if grant.table is None:
            self._namespaces[grant.namespace] = max(rank, self._namespaces.get(grant.namespace, 0))
        else:
            place = (grant.namespace, grant.table)
            self._tables[place] = max(rank, self._tables.get(place, 0))

"""What a catalog says of its tables, in one form for all catalogs, and which of them are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

import msgspec

from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.wire import HivePartition, HiveTable, SourceKind


class SourceTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a catalog.

    ``kind`` None: it is ``refused``, which says why. ``location``: its folder, or the current metadata file of an
    Iceberg table. ``hive``: columns and partition columns of a Hive table, whose partitions ``partitions`` returns.
    """

    database: str
    name: str
    kind: SourceKind | None = None
    location: str | None = None
    hive: HiveTable | None = None
    partitions: Callable[[], tuple[HivePartition, ...]] | None = None
    refused: LamellaError | None = None

    @property
    def full_name(self) -> str:
        """Return ``database.table``."""
        return f"{self.database}.{self.name}"


class SourceCatalog(Protocol):
    """A catalog that can be imported. ``address`` tells it from others, and has no credentials."""

    @property
    def address(self) -> str: ...  # see above

    def databases(self) -> list[str]:
        """Return the names of all databases."""
        ...

    def names(self, database: str) -> list[str]:
        """Return the names of the tables and views of a database."""
        ...

    def tables(self, database: str, names: Sequence[str]) -> Iterator[SourceTable]:
        """Yield some tables of a database; those that are gone by now are left out."""
        ...


class Selection:
    """The tables that patterns name: ``database`` or ``database.table``, each part with ``*`` and ``?``.

    The table is what follows the last dot, unless a database of the whole name exists.
    """

    def __init__(self, include: Iterable[str] = (), exclude: Iterable[str] = ()) -> None:
        self._include = [_parts(text) for text in include] or [("*", "*")]
        self._exclude = [_parts(text) for text in exclude]

    def may_have(self, database: str) -> bool:
        """Return whether a table of the database may be selected."""
        return any(fnmatchcase(database, of) for of, _ in self._include) and not any(
            fnmatchcase(database, of) and name == "*" for of, name in self._exclude
        )

    def has(self, database: str, name: str) -> bool:
        """Return whether a table is selected."""
        return _matches(self._include, database, name) and not _matches(self._exclude, database, name)

    def without_match(self, tables: Iterable[tuple[str, str]]) -> list[str]:
        """Return the patterns without wildcards that select none of these tables: misspelled names."""
        known = list(tables)
        return [
            of if name == "*" else f"{of}.{name}"
            for of, name in self._include
            if not any(mark in of + name.removesuffix("*") for mark in "*?[")
            and not any(_matches([(of, name)], *table) for table in known)
        ]


def _matches(patterns: Iterable[tuple[str, str]], database: str, name: str) -> bool:
    return any(fnmatchcase(database, of) and fnmatchcase(name, pattern) for of, pattern in patterns)


def _parts(text: str) -> tuple[str, str]:
    database, _, name = text.rpartition(".") if "." in text else (text, "", "*")
    if not database or not name:
        raise InvalidRequest(f"not a pattern for tables: {text!r}; write DATABASE or DATABASE.TABLE")
    return database, name

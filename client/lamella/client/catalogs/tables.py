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

    Names of databases may contain dots: ``a.b`` is the table ``b`` of the database ``a``, and all of the database
    ``a.b``.
    """

    def __init__(self, include: Iterable[str] = (), exclude: Iterable[str] = ()) -> None:
        self._include = [_Pattern.parse(text) for text in include] or [_Pattern(text="*", parts=None)]
        self._exclude = [_Pattern.parse(text) for text in exclude]

    def may_have(self, database: str) -> bool:
        """Return whether a table of the database may be selected."""
        return any(each.may_match(database) for each in self._include) and not any(
            each.matches_all(database) for each in self._exclude
        )

    def has(self, database: str, name: str) -> bool:
        """Return whether a table is selected."""
        return any(each.matches(database, name) for each in self._include) and not any(
            each.matches(database, name) for each in self._exclude
        )

    def without_match(self, databases: Iterable[str], tables: Iterable[tuple[str, str]]) -> list[str]:
        """Return the patterns without wildcards that select no database and no table: misspelled names."""
        known, present = list(tables), set(databases)
        return [
            each.text
            for each in self._include
            if not any(mark in each.text for mark in "*?[")
            and each.text not in present
            and not any(each.matches(*table) for table in known)
        ]


class _Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """``text`` names databases, ``parts`` (None: nothing) tables."""

    text: str
    parts: tuple[str, str] | None

    @classmethod
    def parse(cls, text: str) -> _Pattern:
        database, dot, name = text.rpartition(".")
        if not text or (dot and not (database and name)):
            raise InvalidRequest(f"not a pattern for tables: {text!r}; write DATABASE or DATABASE.TABLE")
        return cls(text=text, parts=(database, name) if dot else None)

    def matches_all(self, database: str) -> bool:
        is_every_table = self.parts is not None and self.parts[1] == "*" and fnmatchcase(database, self.parts[0])
        return fnmatchcase(database, self.text) or is_every_table

    def may_match(self, database: str) -> bool:
        return self.matches_all(database) or (self.parts is not None and fnmatchcase(database, self.parts[0]))

    def matches(self, database: str, name: str) -> bool:
        is_named = self.parts is not None and fnmatchcase(database, self.parts[0]) and fnmatchcase(name, self.parts[1])
        return is_named or fnmatchcase(database, self.text)

"""Search: namespaces, tables, tags and locations from the catalog, columns from the survey of all tables.

A hit contains the text, without regard to case; each group of hits is limited, and only what the viewer may read is
searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import principal_of
from lamella.service.access.principal import Rights
from lamella.service.catalog import Catalog, TableFilter, TableVersion, current_table
from lamella.service.dashboard.pages import ROOT, Page, Pages, link, one_of, text_of
from lamella.service.dashboard.survey import Known, Survey
from lamella.service.process.threads import Threads
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.wire.operation import AUTHENTICATED

#: Hits of a group beside other groups, and alone.
_FEW: Final = 20
_MANY: Final = 500
_LONGEST: Final = 200
#: Columns that are found before the best of them are shown.
_MAX_COLUMNS: Final = 2_000
GROUPS: Final = ("tables", "columns", "namespaces", "tags", "locations")


class Hit(msgspec.Struct, frozen=True):
    """What was found: its name, where it is, and the page about it."""

    name: str
    path: str
    href: str


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The hits of one kind; ``has_more``: there are others."""

    name: str
    hits: tuple[Hit, ...]
    has_more: bool


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The groups with hits. ``searched``, ``tables``: of how many tables the columns were searched, of how many;
    ``listed_ms``: when the survey last looked for tables that changed.
    """

    groups: tuple[Group, ...]
    searched: int
    tables: int
    listed_ms: int | None


class Search:
    """Finds things by a part of their name. Waits for the catalog."""

    def __init__(self, *, catalog: Catalog, survey: Survey, clock: Callable[[], int]) -> None:
        self._catalog = catalog
        self._survey = survey
        self._clock = clock

    def find(self, text: str, rights: Rights, *, only: str | None = None) -> Found:
        """Return what contains a text; ``only``: the one group that is searched, with more hits."""
        known, scopes, limit = self._survey.peek(), rights.scopes("read"), _FEW if only is None else _MANY
        visible = known.within(scopes)
        finders: dict[str, Callable[[], list[Hit]]] = {
            "tables": lambda: self._tables(TableFilter(within=scopes, path_part=text), limit + 1),
            "columns": lambda: self._columns(text, visible, known, limit + 1),
            "namespaces": lambda: self._namespaces(text, rights),
            "tags": lambda: [
                Hit(
                    tag.name,
                    f"{tag.namespace}.{tag.table}",
                    link("tables", tag.namespace, tag.table, at=tag.name),
                )
                for tag in self._catalog.find_tags(text, scopes, now_ms=self._clock(), limit=limit + 1)
            ],
            "locations": lambda: self._tables(
                TableFilter(within=scopes, location_part=text), limit + 1, by_location=True
            ),
        }
        groups = []
        for name in GROUPS if only is None else (only,):
            hits = finders[name]()
            if hits:
                groups.append(Group(name=name, hits=tuple(hits[:limit]), has_more=len(hits) > limit))
        count = self._catalog.count_tables(TableFilter(within=scopes))
        searched = sum(each.table_id in known.columns for each in visible)
        return Found(groups=tuple(groups), searched=min(searched, count), tables=count, listed_ms=known.listed_ms)

    def _namespaces(self, text: str, rights: Rights) -> list[Hit]:
        names = [each.name for each in self._catalog.namespaces() if rights.sees(each.name)]
        return [Hit(name, "", link("namespaces", name)) for name in names if text.lower() in name.lower()]

    def _tables(self, which: TableFilter, limit: int, *, by_location: bool = False) -> list[Hit]:
        hits = []
        for each in self._catalog.listed_tables(which, limit=limit):
            record = each.record
            path, href = f"{record.namespace}.{record.name}", link("tables", record.namespace, record.name)
            hits.append(Hit(record.location, path, href) if by_location else Hit(record.name, record.namespace, href))
        return hits

    def _columns(self, text: str, visible: Sequence[TableVersion], known: Known, limit: int) -> list[Hit]:
        """Return columns: those of exactly this name first, then those that begin with it."""
        found = columns_with(text, visible, known)
        wanted = text.lower()
        ranked = sorted(found, key=lambda each: (each[1].lower() != wanted, not each[1].lower().startswith(wanted)))
        hits: list[Hit] = []
        there: dict[str, bool] = {}
        for table, column in ranked:
            if len(hits) >= limit:
                break
            if table.table_id not in there:
                there[table.table_id] = self._is_current(table)
            if there[table.table_id]:
                href = link("tables", table.namespace, table.name, "columns", name=column)
                hits.append(Hit(column, f"{table.namespace}.{table.name}", href))
        return hits

    def _is_current(self, table: TableVersion) -> bool:
        """Return whether the table still has the name that the survey knew: another may be no business of theirs."""
        with suppress(LamellaError):
            return current_table(self._catalog, table.namespace, table.name).table_id == table.table_id
        return False


def columns_with(text: str, tables: Sequence[TableVersion], known: Known) -> list[tuple[TableVersion, str]]:
    """Return columns whose names contain a text, in the order of tables, up to a limit."""

    def found() -> Iterator[tuple[TableVersion, str]]:
        wanted = text.lower()
        for table in tables:
            columns = known.columns.get(table.table_id, (0, ""))[1]
            if wanted in columns.lower():
                for column in columns.split("\n"):
                    if wanted in column.lower():
                        yield table, column

    return [each for each, _ in zip(found(), range(_MAX_COLUMNS), strict=False)]


class SearchPages:
    """The page of hits."""

    def __init__(self, *, readers: Threads, search: Search, pages: Pages) -> None:
        self._readers = readers
        self._search = search
        self._pages = pages

    async def show(self, request: Request) -> Response:
        text, rights = text_of(request, "q"), principal_of(request).rights
        only = one_of(request, "only", ("", *GROUPS)) or None
        if len(text) > _LONGEST:
            raise InvalidRequest(f"q has at most {_LONGEST} characters, not {len(text)}", parameter="q")
        found = await self._readers.run(lambda: self._search.find(text, rights, only=only)) if text else None
        values: dict[str, Any] = {"text": text, "found": found, "only": only}
        return self._pages.html(request, "search.html", values, title=f"Search {text}" if text else "Search")

    def pages(self) -> tuple[Page, ...]:
        return (Page(ROOT + "/search", self.show, "ui_search", AUTHENTICATED),)

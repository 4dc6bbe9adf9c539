"""Lists that are sorted by links in their headers: the address says by what, and the server sorts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request

from lamella.service.dashboard.pages import one_of


class Sorting(msgspec.Struct, frozen=True):
    """By which column a list is sorted; ``first``: the column that sorts it when the address names none."""

    column: str
    descending: bool
    first: str

    def next(self, column: str, *, is_number: bool) -> str | None:
        """Return the parameter of a header's link: the other direction, or of numbers the largest first."""
        descending = not self.descending if column == self.column else is_number
        return None if column == self.first and not descending else f"-{column}" if descending else column

    def direction(self, column: str) -> str | None:
        """Return the value of ``aria-sort``; None for a column that does not sort the list."""
        if column != self.column:
            return None
        return "descending" if self.descending else "ascending"


def sorting_of(request: Request, columns: Sequence[str]) -> Sorting:
    """Return the order that an address asks for: ``sort=rows``, ``sort=-rows``. Raises InvalidRequest."""
    text = one_of(request, "sort", (*columns, *(f"-{column}" for column in columns)))
    return Sorting(text.removeprefix("-"), text.startswith("-"), columns[0])

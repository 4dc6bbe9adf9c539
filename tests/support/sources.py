"""What an external table must answer: the same rows as the source gives itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lamella.client.http import Table

#: Filters that touch none, some and all rows of tables with ``a`` (int64) and ``s`` (string).
FILTERS: Sequence[str | None] = (None, "a >= 10", "a = 7", "s IS NULL", "s < 'm' OR a < 3", "a < -1")


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows in one order, whatever order they came in."""
    return sorted(table.to_pylist(), key=repr)


def same_as(table: Table, source: pa.Table) -> None:
    """Assert that a full scan and filtered ones give the rows that the source has."""
    names = source.schema.names
    for filter in FILTERS:
        if filter is not None and not {"a", "s"} <= set(names):
            continue
        wanted = rows_of(source)
        if filter is not None:
            wanted = [row for row in wanted if _matches(filter, row)]
        scan = table.scan(filter, columns=names)
        assert list(map(repr, rows_of(scan.to_arrow()))) == list(map(repr, wanted)), filter  # NaN is not equal to NaN
        assert table.scan(filter).count() == len(wanted), filter


def _matches(filter: str, row: Mapping[str, Any]) -> bool:
    a, s = row["a"], row["s"]
    if filter == "a >= 10":
        return a is not None and a >= 10
    if filter == "a = 7":
        return bool(a == 7)
    if filter == "s IS NULL":
        return s is None
    if filter == "s < 'm' OR a < 3":
        return (s is not None and s < "m") or (a is not None and a < 3)
    return a is not None and a < -1

"""Outcomes of foreign suites: each case is served, refused with a reason, or wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from lamella.client import Lamella
from lamella.client.http import Table
from lamella.snapshot.errors import LamellaError

Result = Literal["served", "refused", "wrong", "not a case"]


class Case(NamedTuple):
    """``reason``: why it was refused, what is wrong, or why there is nothing to compare with."""

    name: str
    result: Result
    reason: str = ""


class Suite(NamedTuple):
    """``about``: what was run, in Markdown."""

    title: str
    about: str
    cases: Sequence[Case]

    def count(self, result: Result) -> int:
        """Return the number of cases with a result."""
        return Counter(case.result for case in self.cases)[result]


#: Values of a column that are filtered for.
_VALUES: Final = 3


def delta_case(lake: Lamella, name: str, table_name: str, location: str, wanted: pa.Table | None) -> Case:
    """Follow a Delta table, and compare its rows; ``wanted`` None: nobody can read it."""
    try:
        lake.create_external(table_name, {"kind": "delta", "location": location})
        table = lake.table(table_name)
        table.refresh()
        found = table.scan().to_arrow()
        problem = None if wanted is None else difference(table, found, wanted)
    except LamellaError as error:
        text = " ".join(error.message.split()).replace(location, "the table")
        return Case(name, "refused", f"`{error.code}`: {text}")
    if wanted is None:
        return Case(name, "wrong", "Delta on Spark cannot read it")
    return Case(name, "served") if problem is None else Case(name, "wrong", problem)


def difference(table: Table, found: pa.Table, wanted: pa.Table) -> str | None:
    """Return how a table's rows differ from those that are wanted, None if they do not.

    Names, all rows, their number, and the rows of some filters for values that occur are compared.
    """
    if found.column_names != wanted.column_names:
        return f"its columns are {found.column_names}, not {wanted.column_names}"
    if _texts(found) != _texts(wanted):
        return "its rows are others"
    if table.scan().count() != wanted.num_rows:
        return f"it counts {table.scan().count()} rows, not {wanted.num_rows}"
    for column in wanted.column_names:
        for value in _some_values(wanted[column]):
            condition = f"{_quoted(column)} {'IS NULL' if value is None else f'= {_literal(value)}'}"
            matching = [each == value for each in wanted[column].to_pylist()]
            if _texts(table.scan(condition).to_arrow()) != _texts(wanted.filter(pa.array(matching))):
                return f"the rows with {condition} are others"
    return None


def _some_values(column: pa.ChunkedArray) -> list[Any]:
    """Return some values that are compared without a rounding or a time zone."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind)):
        return []
    values = list(dict.fromkeys(column.to_pylist()))
    return values[:: max(1, len(values) // _VALUES)][:_VALUES]


def _literal(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{text}'"
    return f"DATE '{value.isoformat()}'"


def _quoted(name: str) -> str:
    text = name.replace("`", "``")
    return f"`{text}`"


def _texts(rows: pa.Table) -> list[str]:
    """Return rows as texts in one order; times without regard to a zone, which Parquet files of Spark do not have."""
    columns = [
        values.cast(pa.timestamp("us")) if pa.types.is_timestamp(values.type) else values for values in rows.columns
    ]
    return sorted(map(repr, zip(*(column.to_pylist() for column in columns), strict=True)))

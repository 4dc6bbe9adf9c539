"""Filters as SQL text: Spark's, which Lamella reads, DuckDB's for the oracle, and DataFusion's for delta-rs."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import ClassVar

from sharp.filters import (
    And,
    Between,
    Columns,
    Compare,
    Constant,
    Filter,
    In,
    Like,
    Not,
    Null,
    NullSafe,
    Or,
    StartsWith,
    Text,
)


class Dialect:
    """Spark SQL; other engines override what differs."""

    starts_with: ClassVar = "startswith"

    def sql(self, node: Filter) -> str:
        """The text of a filter."""
        match node:
            case And(parts):
                return " AND ".join(self._part(part) for part in parts)
            case Or(parts):
                return " OR ".join(self._part(part) for part in parts)
            case Not(part):
                return f"NOT ({self.sql(part)})"
            case Compare(column, op, value):
                return f"{column} {op} {self.constant(value)}"
            case Between(column, low, high):
                return f"{column} BETWEEN {self.constant(low)} AND {self.constant(high)}"
            case In(column, values, negated):
                listed = ", ".join(self.constant(value) for value in values)
                return f"{column} {'NOT IN' if negated else 'IN'} ({listed})"
            case Null(column, negated):
                return f"{column} IS {'NOT ' if negated else ''}NULL"
            case NullSafe(column, value):
                return self.null_safe(column, value)
            case Like(column, pattern, negated):
                return f"{column} {'NOT LIKE' if negated else 'LIKE'} {self.constant(pattern)}"
            case StartsWith(column, prefix):
                return f"{self.starts_with}({column}, {self.constant(prefix)})"
            case Columns(left, op, right):
                return f"{left} {op} {right}"
            case Text():
                return self.text(node)

    def null_safe(self, column: str, value: Constant) -> str:
        """Equality that is never null."""
        return f"{column} <=> {self.constant(value)}"

    def text(self, node: Text) -> str:
        """A condition that is text already."""
        return node.spark

    def constant(self, value: Constant) -> str:
        """A constant of the column's type."""
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if isinstance(value, float):
            return self.double(value)
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        if isinstance(value, bytes):
            return self.binary(value)
        if isinstance(value, dt.datetime):
            return self.moment(value)
        if isinstance(value, dt.date):
            return f"DATE '{value.isoformat()}'"
        return format(value, "f") if isinstance(value, Decimal) else str(value)

    def double(self, value: float) -> str:
        """A double, NaN and infinity too."""
        return f"CAST('{value!r}' AS DOUBLE)"

    def binary(self, value: bytes) -> str:
        """Bytes."""
        return f"X'{value.hex().upper()}'"

    def moment(self, value: dt.datetime) -> str:
        """An instant (with a zone) or a wall clock time."""
        kind, zone = ("TIMESTAMP_NTZ", "") if value.tzinfo is None else ("TIMESTAMP", "Z")
        return f"{kind} '{wall_text(value)}{zone}'"

    def _part(self, node: Filter) -> str:
        joined = isinstance(node, And | Or | Between | Text)
        return f"({self.sql(node)})" if joined else self.sql(node)


class DuckDb(Dialect):
    """DuckDB's SQL; the same rows."""

    starts_with = "starts_with"

    def null_safe(self, column: str, value: Constant) -> str:
        return f"{column} IS NOT DISTINCT FROM {self.constant(value)}"

    def text(self, node: Text) -> str:
        return node.duckdb

    def binary(self, value: bytes) -> str:
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"

    def moment(self, value: dt.datetime) -> str:
        kind, zone = ("TIMESTAMP", "") if value.tzinfo is None else ("TIMESTAMPTZ", "+00")
        return f"{kind} '{wall_text(value)}{zone}'"


class DataFusion(Dialect):
    """What delta-rs reads: typed timestamps are refused there, their text is not."""

    starts_with = "starts_with"

    def null_safe(self, column: str, value: Constant) -> str:
        return f"{column} IS NOT DISTINCT FROM {self.constant(value)}"

    def double(self, value: float) -> str:
        return f"'{value!r}'" if value != value or value in (float("inf"), float("-inf")) else repr(value)

    def moment(self, value: dt.datetime) -> str:
        return f"'{wall_text(value)}{'' if value.tzinfo is None else 'Z'}'"


def wall_text(value: dt.datetime) -> str:
    """``1995-01-01 00:00:00.000000``, as the clock of UTC shows it."""
    return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


SPARK = Dialect()
DUCKDB = DuckDb()
DATAFUSION = DataFusion()

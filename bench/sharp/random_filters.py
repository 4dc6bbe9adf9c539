"""Random filters of every operator over a table's own values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sharp.blocks import BLOCK
from sharp.dialects import DUCKDB, SPARK
from sharp.filters import (
    And,
    Atom,
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
    Operator,
    Or,
    StartsWith,
    Text,
)

_SAMPLED: Final = 4_000
_OPERATORS: Final[tuple[Operator, ...]] = ("=", "<>", "<", "<=", ">", ">=")
_EPOCH: Final = dt.date(1970, 1, 1)


class Source:
    """Draws columns and constants of one table. Constants are values of the table or neighbours of them."""

    def __init__(self, rows: pa.Table, rng: Random) -> None:
        self.rng = rng
        self.types = {field.name: field.type for field in rows.schema if field.name != BLOCK}
        self._values: dict[str, list[Constant]] = {name: self._sample(rows[name]) for name in self.types}

    def column(self, fits: Callable[[pa.DataType], bool] = lambda _: True) -> str | None:
        """A column of a fitting type."""
        names = [name for name, dtype in self.types.items() if fits(dtype)]
        return self.rng.choice(names) if names else None

    def value(self, column: str) -> Constant:
        """A constant for the column."""
        found = self.rng.choice(self._values[column])
        return _beside(self.rng, found) if self.rng.random() < 0.3 else found

    def occurring(self, column: str) -> Constant:
        """A value of the column."""
        return self.rng.choice(self._values[column])

    def window(self, column: str, share: float) -> list[Constant]:
        """Return adjacent values of the column, this fraction of all."""
        values = self._values[column]
        size = max(1, round(len(values) * share))
        start = self.rng.randrange(len(values) - size + 1)
        return values[start : start + size]

    def _sample(self, values: pa.ChunkedArray) -> list[Any]:
        picked = values.take(pa.array(sorted(self.rng.sample(range(len(values)), min(len(values), _SAMPLED)))))
        if pa.types.is_floating(picked.type):
            picked = picked.filter(pc.invert(pc.is_nan(picked)))
        return sorted(value for value in pc.unique(picked).to_pylist() if value is not None)


def _beside(rng: Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice((-1, 1))
    if isinstance(value, Decimal):
        return value + rng.choice((-1, 1)) * Decimal(1).scaleb(int(value.as_tuple().exponent))
    if isinstance(value, float):
        return value + rng.choice((-0.125, 0.125))
    if isinstance(value, dt.datetime):
        return value + rng.choice((-1, 1)) * dt.timedelta(minutes=1)
    if isinstance(value, dt.date):
        return value + rng.choice((-1, 1)) * dt.timedelta(days=1)
    return value[:-1] if isinstance(value, str | bytes) and len(value) > 1 else value


Maker = Callable[[Source], Filter | None]


def _compare(op: Operator) -> Callable[[Source], Compare | None]:
    def make(source: Source) -> Compare | None:
        column = source.column()
        return Compare(column, op, source.value(column)) if column else None

    return make


def _between(source: Source) -> Between | None:
    column = source.column(lambda dtype: not pa.types.is_boolean(dtype))
    if column is None:
        return None
    window = source.window(column, source.rng.choice((0.002, 0.02, 0.3)))
    return Between(column, window[0], window[-1])


def _in(minimum: int, maximum: int, *, negated: bool = False) -> Callable[[Source], In | None]:
    def make(source: Source) -> In | None:
        column = source.column(lambda dtype: maximum <= 10 or not pa.types.is_boolean(dtype))
        if column is None:
            return None
        spread = source.rng.choice((0.01, 0.1, 1.0))
        window = source.window(column, spread)
        count = min(source.rng.randint(minimum, maximum), len(window))
        return In(column, tuple(source.rng.sample(window, count)), negated)

    return make


def _null(*, negated: bool) -> Maker:
    def make(source: Source) -> Filter | None:
        column = source.column()
        return Null(column, negated) if column else None

    return make


def _null_safe(source: Source) -> Filter | None:
    column = source.column()
    return NullSafe(column, source.value(column)) if column else None


def _text_of(source: Source) -> tuple[str, str] | None:
    column = source.column(pa.types.is_string)
    if column is None:
        return None
    text = source.occurring(column)
    assert isinstance(text, str)
    return column, text


def _like(shape: str, *, negated: bool = False) -> Maker:
    def make(source: Source) -> Filter | None:
        found = _text_of(source)
        if found is None:
            return None
        column, text = found
        part = text[: source.rng.randint(1, max(1, min(4, len(text))))]
        return None if "_" in part or "%" in part else Like(column, shape.replace("x", part, 1), negated)

    return make


def _starts_with(source: Source) -> Filter | None:
    found = _text_of(source)
    return StartsWith(found[0], found[1][: source.rng.randint(1, 4)]) if found else None


def _nan(source: Source) -> Filter | None:
    column = source.column(pa.types.is_floating)
    return Text(column, f"isnan({column})", f"coalesce(isnan({column}), false)") if column else None


def _ranges(source: Source) -> Filter | None:
    column = source.column(lambda dtype: not pa.types.is_boolean(dtype))
    if column is None:
        return None
    windows = [source.window(column, 0.01) for _ in range(source.rng.randint(2, 4))]
    return Or(tuple(Between(column, window[0], window[-1]) for window in windows))


def _simple(source: Source) -> Atom:
    kind = source.rng.randrange(3)
    found: Atom | None = None
    if kind < 2:
        found = _between(source) if kind == 0 else _compare(source.rng.choice(_OPERATORS))(source)
    return found or _in(1, 10)(source) or Null(next(iter(source.types)))


def _and(source: Source) -> Filter | None:
    """Uses different columns: two ranges of one column seldom overlap, and real filters have none."""
    parts = {node.column: node for node in (_simple(source) for _ in range(4)) if not isinstance(node, Columns)}
    return And(tuple(parts.values())[: source.rng.randint(2, 3)])


def _and_of_one(source: Source) -> Filter | None:
    column = source.column(lambda dtype: not pa.types.is_boolean(dtype))
    if column is None:
        return None
    window = source.window(column, source.rng.choice((0.02, 0.1, 0.5)))
    low, high, listed = window[0], window[-1], source.window(column, 0.3)
    kind = source.rng.randrange(3)
    if kind == 0:
        return And((Compare(column, ">=", low), Compare(column, "<", high)))
    if kind == 1:
        return And((Between(column, low, high), Not(Compare(column, "=", low))))
    return And((In(column, tuple(source.rng.sample(listed, min(6, len(listed))))), Between(column, low, high)))


def _or(source: Source) -> Filter | None:
    return Or(tuple(_simple(source) for _ in range(2)))


def _not(source: Source) -> Filter | None:
    return Not(source.rng.choice((_simple, _and, _or))(source) or _simple(source))


def _columns(source: Source) -> Filter | None:
    by_type: dict[pa.DataType, list[str]] = {}
    for name, dtype in source.types.items():
        if not pa.types.is_floating(dtype):
            by_type.setdefault(dtype, []).append(name)
    groups = [names for names in by_type.values() if len(names) > 1]
    if not groups:
        return None
    left, right = source.rng.sample(source.rng.choice(groups), 2)
    return Columns(left, source.rng.choice(_OPERATORS), right)


def _is_day_or_time(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_date(dtype) or pa.types.is_timestamp(dtype))


def _same(column: str, template: str, near: Sequence[Constant] = ()) -> Text:
    return Text(column, template, template, tuple(near))


def _starts(value: Any, start: dt.date, end: dt.date) -> tuple[Constant, ...]:
    """The first and last moments of the days from ``start`` to before ``end``, in the form of ``value``."""
    if not isinstance(value, dt.datetime):
        return start, end - dt.timedelta(days=1)
    first, last = (dt.datetime(day.year, day.month, day.day, tzinfo=value.tzinfo) for day in (start, end))
    return first, last - dt.timedelta(microseconds=1)


def _year(source: Source) -> Filter | None:
    column = source.column(_is_day_or_time)
    if column is None:
        return None
    value: Any = source.occurring(column)
    op = source.rng.choice(_OPERATORS)
    near = _starts(value, dt.date(value.year, 1, 1), dt.date(value.year + 1, 1, 1))
    return _same(column, f"year({column}) {op} {value.year}", near)


def _month(source: Source) -> Filter | None:
    column = source.column(pa.types.is_date)
    if column is None:
        return None
    value: Any = source.occurring(column)
    return _same(column, f"month({column}) = {value.month}")  # over days: every value there is gets tried


def _to_date(source: Source) -> Filter | None:
    column = source.column(pa.types.is_timestamp)
    if column is None:
        return None
    value: Any = source.occurring(column)
    op, day = source.rng.choice(_OPERATORS), value.date()
    constant = SPARK.constant(day)
    near = _starts(value, day, day + dt.timedelta(days=1))
    return Text(column, f"to_date({column}) {op} {constant}", f"CAST({column} AS DATE) {op} {constant}", near)


def _date_trunc(source: Source) -> Filter | None:
    column = source.column(_is_day_or_time)
    if column is None:
        return None
    value: Any = source.occurring(column)
    start = dt.date(value.year, value.month, 1)
    end = dt.date(value.year + value.month // 12, value.month % 12 + 1, 1)
    near = _starts(value, start, end)
    first = near[0]
    op = source.rng.choice(("=", "<", ">="))
    return Text(
        column,
        f"date_trunc('MONTH', {column}) {op} {SPARK.constant(first)}",
        f"date_trunc('month', {column}) {op} {DUCKDB.constant(first)}",
        near,
    )


def _arithmetic(source: Source) -> Filter | None:
    # Not of decimals of 38 digits: what Spark rounds there, other engines do not.
    column = source.column(
        lambda dtype: bool(pa.types.is_integer(dtype) or (pa.types.is_decimal(dtype) and dtype.precision < 30))
    )
    if column is None:
        return None
    value: Any = source.occurring(column)
    op, by = source.rng.choice(_OPERATORS), source.rng.randint(1, 9)
    wide = source.types[column] == pa.int64() or pa.types.is_decimal(source.types[column])
    shape = source.rng.choice(("plus", "minus", "times") if wide and abs(value) < 10**15 else ("plus", "minus"))
    if shape == "times":
        return _same(column, f"{column} * {by} {op} {SPARK.constant(value * by)}", (value,))
    if shape == "plus":
        return _same(column, f"{column} + {by} {op} {SPARK.constant(value + by)}", (value,))
    return _same(column, f"{column} - {by} {op} {SPARK.constant(value - by)}", (value,))


def _cast(source: Source) -> Filter | None:
    column = source.column(lambda dtype: dtype == pa.int32() or pa.types.is_timestamp(dtype))
    if column is None:
        return None
    value: Any = source.occurring(column)
    op = source.rng.choice(_OPERATORS)
    if isinstance(value, int):
        return _same(column, f"CAST({column} AS BIGINT) {op} {value}", (value,))
    day = value.date()
    near = _starts(value, day, day + dt.timedelta(days=1))
    return _same(column, f"CAST({column} AS DATE) {op} {SPARK.constant(day)}", near)


def _substr(source: Source) -> Filter | None:
    found = _text_of(source)
    if found is None:
        return None
    column, text = found
    prefix = text[: source.rng.randint(1, 4)]
    behind = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    op = source.rng.choice(("=", "<", ">="))
    return _same(column, f"substr({column}, 1, {len(prefix)}) {op} {SPARK.constant(prefix)}", (prefix, behind))


#: Every operator of the report, in its order.
FAMILIES: Final[dict[str, Maker]] = {
    **{op: _compare(op) for op in _OPERATORS},
    "BETWEEN": _between,
    "IN, 1 to 10": _in(1, 10),
    "IN, 11 to 1000": _in(11, 1_000),
    "NOT IN": _in(1, 10, negated=True),
    "IS NULL": _null(negated=False),
    "IS NOT NULL": _null(negated=True),
    "<=>": _null_safe,
    "isnan": _nan,
    "LIKE 'x%'": _like("x%"),
    "NOT LIKE 'x%'": _like("x%", negated=True),
    "LIKE '%x%'": _like("%x%"),
    "startswith": _starts_with,
    "OR of ranges": _ranges,
    "AND": _and,
    "AND, one column": _and_of_one,
    "OR": _or,
    "NOT": _not,
    "column to column": _columns,
    "year()": _year,
    "month()": _month,
    "to_date()": _to_date,
    "date_trunc()": _date_trunc,
    "arithmetic": _arithmetic,
    "cast": _cast,
    "substr()": _substr,
}


def random_filters(source: Source, count: int) -> dict[str, list[Filter]]:
    """``count`` filters of each operator that the table has columns for."""
    found: dict[str, list[Filter]] = {}
    for family, make in FAMILIES.items():
        filters = [node for node in (make(source) for _ in range(count)) if node is not None]
        if filters:
            found[family] = filters
    return found

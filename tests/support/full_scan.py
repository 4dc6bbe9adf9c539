"""Aggregates by a full scan, by Spark's rules, and how the parts of an answer come together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lamella.snapshot.schema import DataType, Schema, parse_type
from lamella.snapshot.stats import Bound, from_bound
from lamella.snapshot.stats.column import has_sum
from lamella.snapshot.wire import AggregateAnswer

Row = Mapping[str, Any]
#: An aggregate: function and column ("*" for all rows).
AggregateCall = tuple[str, str]
Groups = dict[tuple[Any, ...], list[Any]]
NAN = "NaN"
_MAX_SUMMED_DIGITS = 28


def comparable(value: Any) -> Any:
    """A value that equals itself: NaN as text, either zero as 0.0."""
    if isinstance(value, float):
        return NAN if math.isnan(value) else value + 0.0
    return value


def order(value: Any) -> tuple[bool, Any]:
    """Spark's order: NaN above everything."""
    return (True, 0) if value == NAN else (False, value)


def merged(function: str, one: Any, other: Any) -> Any:
    """Two partial results as one."""
    if function == "count":
        return one + other
    if one is None or other is None:
        return other if one is None else one
    if function == "sum":
        return one + other
    return (min if function == "min" else max)(one, other, key=order)


def scan(rows: Iterable[Row], aggregates: Sequence[AggregateCall], group_by: Sequence[str]) -> Groups:
    """The aggregates of rows that match."""
    groups: Groups = {} if group_by else {(): [0 if f == "count" else None for f, _ in aggregates]}
    for row in rows:
        key = tuple(comparable(row[name]) for name in group_by)
        values = groups.setdefault(key, [0 if f == "count" else None for f, _ in aggregates])
        for index, (function, column) in enumerate(aggregates):
            if column == "*" or row[column] is not None:
                one = 1 if function == "count" else comparable(row[column])
                values[index] = merged(function, values[index], one)
    return groups


def together(aggregates: Sequence[AggregateCall], parts: Iterable[Groups]) -> Groups:
    """The results of parts of a table as the whole's."""
    whole: Groups = {}
    for part in parts:
        for key, values in part.items():
            if key in whole:
                values = [merged(f, a, b) for (f, _), a, b in zip(aggregates, whole[key], values, strict=True)]
            whole[key] = values
    return whole


def plain(dtype: DataType, bound: Bound | None) -> Any:
    """An answer's value."""
    if bound is None:
        return None
    return NAN if bound.float64 == NAN else comparable(from_bound(dtype, bound))


def of_answer(answer: AggregateAnswer) -> Groups:
    """What the statistics gave."""
    types = [parse_type(column.type) for column in answer.columns]
    return {
        key_of(answer, group.key): [plain(t, v.value) for t, v in zip(types, group.values, strict=True)]
        for group in answer.groups
    }


def key_of(answer: AggregateAnswer, key: Sequence[Bound | None]) -> tuple[Any, ...]:
    """A group's key."""
    types = [parse_type(column.type) for column in answer.group_columns]
    return tuple(plain(dtype, part) for dtype, part in zip(types, key, strict=True))


def ask(rng: Any, schema: Schema) -> tuple[list[AggregateCall], list[str]]:
    """Random aggregates and columns to group by."""
    leaves = schema.leaves()
    aggregates: list[AggregateCall] = []
    kinds = rng.choice([["count"], ["min", "max"], ["sum"], ["count", "min", "max", "sum"]])
    # Sums of longer decimals may be refused, since no decimal can hold them.
    summable = [leaf for leaf in leaves if has_sum(leaf.dtype) and leaf.dtype.precision <= _MAX_SUMMED_DIGITS]
    for _ in range(rng.randint(1, 3)):
        function = rng.choice(kinds)
        if function == "sum":
            aggregates.append(("sum", rng.choice(summable).name) if summable else ("count", "*"))
            continue
        star = function == "count" and rng.random() < 0.5
        aggregates.append((function, "*" if star else rng.choice(leaves).name))
    group_by = [rng.choice(leaves).name] if rng.random() < 0.4 else []
    return aggregates, group_by

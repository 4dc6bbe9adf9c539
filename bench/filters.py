"""Reading and binding filters: processor time of each stage, for filters whose constants differ from call to call.

    .venv/bin/python bench/filters.py

Microseconds of processor time, the least mean of several rounds; the stages take turns, so that what disturbs one
disturbs all. "parser" is what every filter would cost without the plain reader (which "read" asks first), "JSON" is
the same filter as a request's bytes, decoded and read. "cached" is reading and binding one that was asked before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from lamella.snapshot.expression import Filters, Predicate, bind, read_filter, read_sql, text_of, tree_of
from lamella.snapshot.expression.sql import read_fully
from lamella.snapshot.schema import Column, Schema

VARIANTS: Final = 100
ROUNDS: Final = 9
STAGES: Final = ("parser", "read", "bind", "text", "JSON", "cached")
TYPES: Final = {
    **{"event_time": "bigint", "x": "bigint", "b": "int", "country": "string", "name": "string", "flag": "boolean"},
    **{"price": "decimal(10,2)", "score": "double", "day": "date", "at": "timestamp"},
    **{f"other_{number}": "bigint" for number in range(10)},
}
#: Filters with a placeholder for a number from 0 to 99.
FILTERS: Final = (
    "event_time >= 5000000{0:02} AND event_time < 5000050{0:02}",
    "x IN (1{0:02}, 12, 13, 14, 15, 16, 17, 18, 19, 20)",
    "at BETWEEN TIMESTAMP '2024-01-01 00:00:00.{0:02}' AND TIMESTAMP '2024-01-01 01:00:00.{0:02}'",
    "country = 'x{0}' AND b > 3",
    "x < {0} OR x > 900",
    "name LIKE 'ab{0}%'",
    "x IS NULL AND b = {0}",
    "day = DATE '20{0:02}-05-06'",
    "price > 12.{0:02} AND price <= 99.99",
    "NOT (country = 'x{0}' OR b IS NOT NULL)",
    "country IN ('US', 'x{0}') AND event_time BETWEEN 5 AND 10",
    "score >= 1.5 AND flag = true AND b <> {0}",
)
NOT_PLAIN: Final = "year(day) = 20{0:02} AND x + 1 > 5"


def main() -> None:
    schema = Schema.assign([Column(name=name, type=kind) for name, kind in TYPES.items()])
    print(" ".join(f"{stage:>7}" for stage in STAGES), "  filter", sep="")
    rows = [measured(text, schema) for text in (*FILTERS, NOT_PLAIN)]
    for row, text in zip(rows, (*FILTERS, NOT_PLAIN), strict=True):
        print(" ".join(f"{value:7.1f}" for value in row), f"  {text}", sep="")
    mean = [sum(column) / len(FILTERS) for column in zip(*rows[:-1], strict=True)]
    print(" ".join(f"{value:7.1f}" for value in mean), "  mean of all but the last", sep="")
    print(f"parser / read: {mean[0] / mean[1]:.0f}; (parser + bind) / (read + bind): ", end="")
    print(f"{(mean[0] + mean[2]) / (mean[1] + mean[2]):.0f}")


def measured(text: str, schema: Schema) -> list[float]:
    """Return the stages' microseconds for one filter, in the order of STAGES."""
    texts = [text.format(number) for number in range(VARIANTS)]
    predicates = [read_sql(each) for each in texts]
    bodies = [msgspec.json.encode(tree_of(each)) for each in predicates]
    filters = Filters()

    def cached(each: str) -> None:
        filters.bound(filters.read(each), schema)

    def bound(each: Predicate) -> None:
        bind(each, schema)

    stages: list[Callable[[], float]] = [
        lambda: _mean_us(lambda each: read_fully(each, "UTC"), texts),
        lambda: _mean_us(read_sql, texts),
        lambda: _mean_us(bound, predicates),
        lambda: _mean_us(text_of, predicates),
        lambda: _mean_us(lambda each: read_filter(msgspec.json.decode(each)), bodies),
        lambda: _mean_us(cached, texts),
    ]
    rounds = [[stage() for stage in stages] for _ in range(ROUNDS)]
    return [min(column) for column in zip(*rounds, strict=True)]


def _mean_us(call: Callable[[Any], object], given: Sequence[Any]) -> float:
    start = time.process_time_ns()
    for each in given:
        call(each)
    return (time.process_time_ns() - start) / len(given) / 1_000


if __name__ == "__main__":
    main()

"""Expressions of pyarrow and Polars as filters: a scan finds the rows that the library finds in the whole table."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.client.filters import plain_filter
from lamella.snapshot.errors import (
    EvaluationFailed,
    FilterNotEvaluable,
    FilterTypeMismatch,
    InvalidFilter,
)
from pages.page_tables import PageTable, forget_files, page_table
from scan.planning import WarehouseTable
from scan.test_rows_found import expected, lines

SEEDS = st.integers(0, 2**48)
#: Constants that no column needs to have.
ANYWHERE: tuple[Any, ...] = (
    *(0, 1, -1, 127, 300, 2**31, 2**53 + 1, 2**63, 0.0, -0.0, 0.1, 0.5, 1e300, float(2**24), float(2**53)),
    *(float("nan"), float("inf"), float("-inf"), True, False, "", "a", "2020-01-01", b"", b"\xff"),
    *(Decimal("1.50"), Decimal("0.0001"), Decimal("-7"), Decimal("123456789012345678901234567.5")),
    *(dt.date(1970, 1, 1), dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC), dt.time(12)),  # noqa: DTZ001
)
#: What a reader cannot decide, or a row cannot give; the rows that are found are exact all the same.
REFUSED = (InvalidFilter, FilterNotEvaluable, FilterTypeMismatch, EvaluationFailed)


class Sampled:
    """Random constants and columns of one table."""

    def __init__(self, rng: Random, rows: pa.Table) -> None:
        self.rng = rng
        self.rows = rows
        # Polars rounds constants to columns of 16-bit floats, which Spark has not; docs/python.md says so.
        self.names = [
            field.name
            for field in rows.schema
            if not pa.types.is_nested(field.type) and not pa.types.is_float16(field.type)
        ]

    def constant(self, name: str) -> Any:
        """A value of a column, or another one."""
        found: list[Any] = []
        if self.rng.random() < 0.8:
            try:
                found = [value for value in self.rows.column(name).to_pylist() if value is not None]
            except (ValueError, OverflowError):  # nanoseconds, years beyond Python's
                found = []
        value = self.rng.choice(found or ANYWHERE)
        return value + self.rng.choice([0, 1]) if type(value) is int and self.rng.random() < 0.3 else value

    def column(self) -> str:
        """A name."""
        name: str = self.rng.choice(self.names)
        return name

    def combined(self, leaf: Callable[[], Any], depth: int = 2) -> Any:
        """Conditions joined at random."""
        kind = self.rng.random()
        if depth == 0 or kind < 0.3:
            return leaf()
        if kind < 0.5:
            return ~self.combined(leaf, depth - 1)
        left, right = self.combined(leaf, depth - 1), self.combined(leaf, depth - 1)
        return left & right if kind < 0.75 else left | right


def compared(rng: Random, left: Any, right: Any) -> Any:
    """A comparison of two operands."""
    kinds = (left.__lt__, left.__le__, left.__gt__, left.__ge__, left.__eq__, left.__ne__)
    return rng.choice(kinds)(right)


def arrow_leaf(sampled: Sampled) -> Any:
    """A random condition of pyarrow."""
    rng, name = sampled.rng, sampled.column()
    field = pc.field(name)
    match rng.randrange(9):
        case 0 | 1 | 2:
            return compared(rng, field, sampled.constant(name))
        case 3:
            listed = [sampled.constant(name) for _ in range(rng.randint(1, 3))]
            return field.isin(pa.array([*listed, *([None] if rng.random() < 0.3 else [])]))
        case 4:
            return compared(rng, field, pc.field(sampled.column()))
        case 5:
            return field.is_null(nan_is_null=rng.random() < 0.3)
        case 6:
            return pc.is_nan(field)
        case 7:
            term = rng.choice([field + 1, field - 1, field * 3, -field, field + pc.field(sampled.column())])
            return compared(rng, term, sampled.constant(name))
        case _:
            text = str(sampled.constant(name))[: rng.randint(0, 3)]
            test = rng.choice([pc.starts_with, pc.ends_with, pc.match_substring, pc.match_like])
            return test(field, text.replace("\\", ""))


def polars_leaf(sampled: Sampled) -> Any:
    """A random condition of Polars."""
    rng, name = sampled.rng, sampled.column()
    field = pl.col(name)
    match rng.randrange(9):
        case 0 | 1 | 2:
            return compared(rng, field, sampled.constant(name))
        case 3:
            listed = [sampled.constant(name) for _ in range(rng.randint(0, 3))]
            return field.is_in([*listed, *([None] if rng.random() < 0.3 else [])], nulls_equal=rng.random() < 0.5)
        case 4:
            value = sampled.constant(name)
            return rng.choice([field.eq_missing, field.ne_missing])(pl.lit(rng.choice([value, None])))
        case 5:
            return rng.choice([field.is_null, field.is_not_null, field.is_nan, field.is_not_nan])()
        case 6:
            return field.is_between(
                sampled.constant(name), sampled.constant(name), closed=rng.choice(["both", "left", "right", "none"])
            )
        case 7:
            return rng.choice([pl.all_horizontal, pl.any_horizontal])(
                compared(rng, field, sampled.constant(name)), compared(rng, field, sampled.constant(name))
            )
        case _:
            text = str(sampled.constant(name))[: rng.randint(0, 3)]
            return rng.choice([field.str.starts_with, field.str.ends_with])(text)


def found_by_arrow(rows: pa.Table, expression: Any) -> pa.Table:
    """The rows that pyarrow finds."""
    return ds.dataset(rows).to_table(filter=expression)


def found_by_polars(rows: pa.Table, expression: Any) -> pa.Table:
    """The rows that Polars finds, by their numbers: its types are not those of the table."""
    frame = pl.DataFrame(rows).with_row_index("row number")
    return rows.take(pa.array(frame.filter(expression)["row number"].to_list(), pa.int64()))


def check_expressions(
    seed: int,
    folder: Path,
    leaf: Callable[[Sampled], Any],
    found_by: Callable[[pa.Table, Any], pa.Table],
    tries: int = 12,
) -> int:
    """Compare scans of a random table with what a library finds; returns how many expressions both decided."""
    rng = Random(seed)
    table: PageTable = page_table(rng, folder)
    rows = expected(table, [row for part in table.rows.values() for row in part])
    sampled = Sampled(rng, rows)
    decided = 0
    for _ in range(tries if sampled.names else 0):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Polars warns of comparisons with null
                expression = sampled.combined(lambda: leaf(sampled))
                wanted = found_by(rows, expression)
        except Exception:  # noqa: S112  # whatever the library does not compute needs no comparison
            continue
        except BaseException as error:  # Polars panics
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            continue
        try:
            found = WarehouseTable(table.warehouse, table.pointer).scan(plain_filter(expression)).to_arrow()
        except REFUSED:
            continue
        decided += 1
        case = f"seed {seed}: {expression}: {plain_filter(expression)}"
        assert lines(found) == lines(wanted.cast(found.schema)), case
    forget_files(table)
    return decided


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_a_scan_finds_what_pyarrow_finds(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Over random tables with nulls, NaN, -0.0, decimals and times, wherever the expression is accepted."""
    check_expressions(seed, tmp_path_factory.getbasetemp(), arrow_leaf, found_by_arrow)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_a_scan_finds_what_polars_finds(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same with Polars."""
    check_expressions(seed, tmp_path_factory.getbasetemp(), polars_leaf, found_by_polars)


@pytest.mark.parametrize(("leaf", "found_by"), [(arrow_leaf, found_by_arrow), (polars_leaf, found_by_polars)])
def test_many_expressions_are_decided(
    leaf: Callable[[Sampled], Any], found_by: Callable[[pa.Table, Any], pa.Table], tmp_path: Path
) -> None:
    """The comparison compares something."""
    assert sum(check_expressions(seed, tmp_path, leaf, found_by) for seed in range(20)) >= 20


def test_a_null_beside_a_nan_is_null_under_a_negation(tmp_path: Path) -> None:
    """NOT (c0 < c1) with null and NaN was taken for true; one of the expressions of this seed."""
    assert check_expressions(362, tmp_path, arrow_leaf, found_by_arrow, tries=30) > 0


def test_a_date_that_filters_cannot_hold_is_refused() -> None:
    """pyarrow has dates of later years than Python."""
    with pytest.raises(InvalidFilter, match="years 1 to 9999"):
        plain_filter(pc.field("a") == pa.scalar(2_000_000_000, pa.int32()).cast(pa.date32()))


@pytest.mark.soak
@pytest.mark.parametrize(("leaf", "found_by"), [(arrow_leaf, found_by_arrow), (polars_leaf, found_by_polars)])
def test_thousands_of_expressions_are_exact(
    leaf: Callable[[Sampled], Any], found_by: Callable[[pa.Table, Any], pa.Table], tmp_path: Path
) -> None:
    """The same at length."""
    decided = sum(check_expressions(seed, tmp_path, leaf, found_by, tries=30) for seed in range(1_000))
    print(f"{decided} expressions, each with the rows of the library")

"""Aggregates of a scan: exact, and read from no more blocks than needed."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.errors import FilterNotEvaluable, InvalidRequest, LimitExceeded
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.expression import text_of
from lamella.snapshot.row_filter import vector_of
from lamella.snapshot.schema import DataType, parse_type
from pages.page_tables import forget_files, page_table
from scan.files import written
from scan.planning import WarehouseTable
from support import full_scan, generate
from support.oracle import Oracle

SEEDS = st.integers(0, 2**48)


def cells(dtype: DataType, values: pa.ChunkedArray) -> list[Any]:
    """The values of a column in the order of their type, as a full scan has them."""
    vector = vector_of(values, dtype)
    found = vector.values.to_pylist() if vector.is_bytes else vector.values.tolist()
    return [
        full_scan.comparable(value) if is_valid else None for value, is_valid in zip(found, vector.valid, strict=True)
    ]


def groups(table: pa.Table, keys: Sequence[DataType], results: Sequence[DataType]) -> full_scan.Groups:
    """What a scan returned, by group."""
    columns = [cells(dtype, column) for dtype, column in zip((*keys, *results), table.columns, strict=True)]
    rows = list(zip(*columns, strict=True))
    found = {tuple(row[: len(keys)]): list(row[len(keys) :]) for row in rows}
    assert len(found) == len(rows), "a group comes twice"
    return found


def check_aggregates(seed: int, folder: Path, questions: int) -> int:
    """Aggregate one random table in random ways; returns how many could be answered."""
    rng = Random(seed)
    table = page_table(rng, folder)
    planner = WarehouseTable(table.warehouse, table.pointer)
    oracle = Oracle(table.schema)
    types = {leaf.name: leaf.dtype for leaf in table.schema.leaves()}
    answered = 0
    for _ in range(questions):
        everything = rng.random() < 0.2
        predicate = n.Constant(True) if everything else generate.predicate(rng, table.schema, table.seen)
        calls, group_by = full_scan.ask(rng, table.schema)
        case = f"seed {seed}: {calls} by {group_by} where {text_of(predicate)}"
        matching = [row for rows in table.rows.values() for row in rows if oracle.decide(predicate, row) is True]
        if any(
            types[name].name == "float16" for name in (*group_by, *(column for _, column in calls if column != "*"))
        ):
            continue
        try:
            found = planner.scan(predicate).aggregate(
                [f"{name}({column})" for name, column in calls], group_by=group_by
            )
        except FilterNotEvaluable:
            continue
        answered += 1
        results = [
            parse_type("int64")
            if name == "count"
            else DataType("decimal", precision=38, scale=types[column].scale)
            if name == "sum"
            else types[column]
            for name, column in calls
        ]
        wanted = full_scan.scan(matching, calls, group_by)
        assert groups(found, [types[name] for name in group_by], results) == wanted, case
    forget_files(table)
    return answered


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_aggregates_of_a_scan_are_those_of_its_rows(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Over random types, filters, groups and files, some with statistics that prove little."""
    check_aggregates(seed, tmp_path_factory.getbasetemp(), questions=10)


@pytest.mark.soak
def test_thousands_of_aggregates_are_exact(tmp_path: Path) -> None:
    """The same at length."""
    answered = sum(check_aggregates(seed, tmp_path, questions=20) for seed in range(1_500))
    print(f"{answered} aggregates, each equal to that of the matching rows")


def numbers(folder: Path) -> WarehouseTable:
    """Three blocks of 100 numbers and their halves, in order."""
    return written(
        folder,
        *(
            pa.table({"a": range(first, first + 100), "half": [at / 2 for at in range(first, first + 100)]})
            for first in (0, 100, 200)
        ),
    )


def test_only_blocks_that_match_partly_are_read(tmp_path: Path) -> None:
    """Of the others, statistics say enough: their files may be gone."""
    table = numbers(tmp_path)
    for path in sorted(tmp_path.rglob("*.parquet"))[::2]:
        path.unlink()  # the first and the last block; the middle one stays
    found = table.scan("a >= 150").aggregate(["count(*)", "min(a)", "max(a)"])
    assert found.to_pylist() == [{"count(*)": 150, "min(a)": 150, "max(a)": 299}]


def test_more_than_may_be_read_is_refused(tmp_path: Path) -> None:
    """By blocks and by rows, before anything is read; what needs no reading is answered."""
    table = numbers(tmp_path)
    given: tuple[dict[str, Any], ...] = ({"max_blocks": 0}, {"max_rows": 99})
    for limits in given:
        with pytest.raises(LimitExceeded) as refused:
            table.scan("a >= 150").aggregate(["count(*)"], **limits)
        assert refused.value.details["maximum"] == next(iter(limits.values()))
        assert table.scan("a >= 100").aggregate(["count(*)"], **limits).to_pylist() == [{"count(*)": 200}]
    assert table.scan("a >= 150").aggregate(["count(*)"], max_blocks=1, max_rows=100).num_rows == 1


def test_sums_are_exact_beyond_64_bits(tmp_path: Path) -> None:
    """And refused beyond 38 digits."""
    for name in ("integers", "decimals"):
        (tmp_path / name).mkdir()
    big = 2**63 - 1
    table = written(tmp_path / "integers", pa.table({"a": [big, big, 1]}), pa.table({"a": [big]}))
    assert table.scan("a > 1").aggregate(["sum(a)"]).to_pylist() == [{"sum(a)": 3 * big}]
    nines = Decimal("9" * 38)
    longest = written(
        tmp_path / "decimals", pa.table({"d": pa.array([nines, nines, Decimal(1)], pa.decimal128(38, 0))})
    )
    assert longest.scan("d > 1 AND d < 5").aggregate(["sum(d)"]).to_pylist() == [{"sum(d)": None}]
    with pytest.raises(LimitExceeded):
        longest.scan("d > 1").aggregate(["sum(d)"])


def test_half_precision_is_not_compared(tmp_path: Path) -> None:
    """Such numbers are read, but have no order here."""
    table = written(tmp_path, pa.table({"h": pa.array([1, 2], pa.int8()).cast(pa.float16())}))
    with pytest.raises(InvalidRequest, match="float16"):
        table.scan("h IS NOT NULL").aggregate(["max(h)"])


def test_a_scan_with_a_limit_has_no_aggregates(tmp_path: Path) -> None:
    """Which rows it has is left open."""
    with pytest.raises(InvalidRequest, match="limit"):
        numbers(tmp_path).scan(limit=3).aggregate(["count(*)"])

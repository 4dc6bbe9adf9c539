"""What a scan gives: against a decision row by row, over real files of every shape."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.errors import FilterNotEvaluable
from lamella.snapshot.expression import text_of
from lamella.snapshot.row_filter import vector_of
from lamella.snapshot.wire import OrderBy
from pages.page_tables import PageTable, forget_files, page_table
from scan.planning import WarehouseTable
from support import generate
from support.arrow_files import arrow_table
from support.oracle import Oracle

SEEDS = st.integers(0, 2**48)


def bare(kind: Any) -> Any:
    """A type without extensions: a scan gives a uuid as its sixteen bytes."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    return pa.struct([field.with_type(bare(field.type)) for field in kind]) if pa.types.is_struct(kind) else kind


def expected(table: PageTable, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as an Arrow table of the table's types."""
    made = arrow_table(table.schema, {leaf.name: [row[leaf.name] for row in rows] for leaf in table.schema.leaves()})
    return made.cast(pa.schema([field.with_type(bare(field.type)) for field in made.schema]))


def lines(table: pa.Table) -> list[str]:
    """The rows in a comparable form, NaN and all, in no order."""
    return sorted(map(repr, table.to_pylist()))


def check_scans(seed: int, folder: Path, filters: int) -> int:
    """Scan one random table with random filters; returns how many were decided."""
    rng = Random(seed)
    table = page_table(rng, folder)
    planner = WarehouseTable(table.warehouse, table.pointer)
    oracle = Oracle(table.schema)
    names = [column.name for column in table.schema.columns]
    decided = 0
    for _ in range(filters):
        predicate = generate.predicate(rng, table.schema, table.seen)
        case = f"seed {seed}: {text_of(predicate)}"
        matching = [row for rows in table.rows.values() for row in rows if oracle.decide(predicate, row) is True]
        chosen = rng.sample(names, rng.randint(1, len(names)))
        try:
            found = planner.scan(predicate, columns=tuple(chosen)).to_arrow()
        except FilterNotEvaluable:
            continue
        decided += 1
        wanted = expected(table, matching).select(chosen)
        assert found.schema.types == wanted.schema.types, case
        assert lines(found) == lines(wanted), case
        assert planner.scan(predicate).count() == len(matching), case
        limit = rng.randint(0, len(matching) + 1)
        some = planner.scan(predicate, limit=limit).to_arrow()
        assert some.num_rows == min(limit, len(matching)), case
        everything = lines(expected(table, matching))
        assert all(line in everything for line in lines(some)), case
    forget_files(table)
    return decided


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_a_scan_gives_the_rows_that_match_and_no_other(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Over random types, page sizes, row groups, dictionaries, page versions and codecs, with and without an index."""
    check_scans(seed, tmp_path_factory.getbasetemp(), filters=10)


@pytest.mark.soak
def test_thousands_of_scans_are_exact(tmp_path: Path) -> None:
    """The same at length."""
    decided = sum(check_scans(seed, tmp_path, filters=20) for seed in range(2_000))
    print(f"{decided} scans, each equal to a decision row by row")


def key_of(value: Any, *, descending: bool, nulls_first: bool) -> tuple[int, Any]:
    """Where a value stands among those of its kind; values of one kind compare as they are."""
    if value is None:
        return (0 if nulls_first else 3), 0
    if isinstance(value, float) and value != value:
        return (1 if descending else 2), 0
    return (2 if descending else 1), value


def check_order(seed: int, folder: Path) -> None:
    """Order a random table by a random column: the keys must be those of a sort of all its rows."""
    rng = Random(seed)
    table = page_table(rng, folder)
    planner = WarehouseTable(table.warehouse, table.pointer)
    rows = [row for part in table.rows.values() for row in part]
    leaf = rng.choice(table.schema.leaves())
    descending, nulls_first = rng.random() < 0.5, rng.choice([None, True, False])
    first = not descending if nulls_first is None else nulls_first
    limit = rng.choice([None, rng.randint(1, len(rows) + 1)])
    order = (OrderBy(column=leaf.name, descending=descending, nulls_first=nulls_first),)
    found = planner.scan(limit=limit, order_by=order, columns=(leaf.name,)).to_arrow()

    keys = [key_of(row[leaf.name], descending=descending, nulls_first=first) for row in rows]
    wanted: list[Any] = []
    for kind in range(4):
        ordered = sorted((value for each, value in keys if each == kind), reverse=descending)
        special = None if kind in (0, 3) else math.nan
        wanted += ordered if kind == (2 if descending else 1) else [special] * len(ordered)
    values = found.column(0)
    vector = vector_of(values, leaf.dtype)
    cells = vector.values.to_pylist() if vector.is_bytes else vector.values.tolist()
    got = [cell if valid else None for cell, valid in zip(cells, vector.valid.tolist(), strict=True)]
    forget_files(table)
    case = f"seed {seed}: {leaf.name} {leaf.dtype} descending {descending} nulls first {first} limit {limit}"
    assert [repr(plain(each)) for each in got] == [repr(plain(each)) for each in wanted[:limit]], case


def plain(value: Any) -> Any:
    """A value without the sign of a zero."""
    return value + 0.0 if isinstance(value, float) else value


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_an_order_is_that_of_spark(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With and without a limit: NaN is greatest, nulls come where asked, bytes compare unsigned."""
    check_order(seed, tmp_path_factory.getbasetemp())

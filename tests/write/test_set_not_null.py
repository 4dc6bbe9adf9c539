"""A column becomes required only if no row is null in it, whoever writes at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamella.client import Lamella
from lamella.client.http import Table
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.rewrite import Bounds, purge
from lamella.client.rewrite.engine import SerialEngine
from lamella.snapshot.errors import BlocksRefused, NotProven, SchemaConflict, SchemaMismatch
from lamella.snapshot.schema import Column
from lamella.snapshot.schema.evolution import AddColumn, SetNullable
from write.conftest import MakeTable

REQUIRE = SetNullable(column="a", nullable=False)


def nulls_in(table: Table) -> int:
    """How many rows are null in ``a``, counted in all of them."""
    return int(table.scan().to_arrow()["a"].null_count)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    blocks=st.lists(st.lists(st.sampled_from([None, 1, 2, 3]), min_size=1, max_size=4), min_size=1, max_size=3),
    deleted=st.sets(st.sampled_from([1, 2, 3])),
    deletes_nulls=st.booleans(),
)
def test_what_is_proven_is_true_of_all_rows(
    make_table: MakeTable, blocks: list[list[int | None]], deleted: set[int], deletes_nulls: bool
) -> None:
    """A full scan decides; without a null in any file it is always proven."""
    table = make_table(a="int64")
    for block in blocks:
        table.append({"a": pa.array(block, pa.int64())})
    for value in sorted(deleted):
        table.delete(f"a = {value}", mode="merge-on-read")
    if deletes_nulls:
        table.delete("a IS NULL", mode="merge-on-read")
    before = table.info()
    if not any(None in block for block in blocks):
        table.evolve([REQUIRE])
        is_required = True
    else:
        is_required = accepts(table)
    assert is_required or table.info() == before
    if is_required:
        assert nulls_in(table) == 0
        with pytest.raises(SchemaMismatch, match="'a' is required"):
            table.append({"a": pa.array([None], pa.int64())})


def accepts(table: Table) -> bool:
    """Whether the column can become required; then it is."""
    try:
        table.evolve([REQUIRE])
    except NotProven:
        return False
    return True


def test_deleted_nulls_count_until_a_purge(lake: Lamella, make_table: MakeTable) -> None:
    """The error says so; afterwards the column can be required."""
    table = make_table(a="int64", b="int64")
    table.append({"a": [*range(20), None], "b": [0] * 21})
    table.delete("a IS NULL", mode="merge-on-read")
    with pytest.raises(NotProven, match=r"1 nulls in it\. .* purge"):
        table.evolve([REQUIRE])
    name = f"{table.info().namespace}.{table.info().name}"
    purge(JobContext(lake=lake, table=name, engine=SerialEngine()), Bounds(min_deleted_share=0.01))
    table.evolve([REQUIRE])
    assert [column.nullable for column in table.info().schema.columns] == [False, True]


def test_rows_of_a_writer_that_began_before_are_refused(make_table: MakeTable) -> None:
    """They were checked by the old columns and may be null; nothing is committed, and the next try is refused too."""
    table = make_table(a="int64")
    table.append({"a": [1]})

    def rows() -> Iterator[pa.Table]:
        yield pa.table({"a": pa.array([2], pa.int64())})
        table.evolve([REQUIRE])
        yield pa.table({"a": pa.array([None], pa.int64())})

    with pytest.raises(SchemaConflict, match="write the rows again"):
        table.append(rows())
    assert (table.info().row_count, nulls_in(table)) == (1, 0)
    with pytest.raises(SchemaMismatch):
        table.append({"a": pa.array([None], pa.int64())})
    assert table.info().row_count == 1


def test_what_a_column_needs_to_become_required(make_table: MakeTable) -> None:
    """A struct is proven by a field without nulls; a list cannot be; a new column needs a default."""
    struct = Column(name="s", type="struct", fields=(Column(name="x", type="int64"), Column(name="y", type="int64")))
    elements = Column(name="l", type="list", fields=(Column(name="element", type="int64"),))
    table = make_table(struct, elements)
    table.append([{"s": {"x": 1, "y": None}, "l": [1]}])
    table.evolve([SetNullable(column="s", nullable=False), SetNullable(column="s.x", nullable=False)])
    for path in ("s.y", "l", "l.element"):
        with pytest.raises(NotProven, match=path):
            table.evolve([SetNullable(column=path, nullable=False)])
    with pytest.raises(NotProven, match="'new'"):
        table.evolve([AddColumn(name="new", type="int64"), SetNullable(column="new", nullable=False)])
    table.evolve([AddColumn(name="d", type="int64", default="5"), SetNullable(column="d", nullable=False)])
    with pytest.raises(SchemaMismatch, match=r"'s\.x' is required"):
        table.append([{"s": {"x": None, "y": 1}, "l": None}])
    with pytest.raises(SchemaMismatch, match="'s' is required"):
        table.append([{"s": None, "l": None}])
    table.append([{"s": {"x": 2, "y": None}, "l": None}])
    assert sorted(row["s"]["x"] for row in table.scan().to_arrow().to_pylist()) == [1, 2]


def test_an_empty_table_takes_any_column_as_required(make_table: MakeTable) -> None:
    """There is no row to be null; lists and their elements are checked from then on."""
    table = make_table(Column(name="l", type="list", fields=(Column(name="element", type="int64"),)))
    table.evolve([SetNullable(column="l", nullable=False), SetNullable(column="l.element", nullable=False)])
    for value in (None, [None], [1, None]):
        with pytest.raises(SchemaMismatch, match="required"):
            table.append([{"l": value}, {"l": [1]}])
    table.append([{"l": []}, {"l": [1]}])
    assert table.info().row_count == 2


def test_files_that_may_have_nulls_in_required_parts_are_not_registered(make_table: MakeTable, tmp_path: Any) -> None:
    """Their footers declare optional fields, and count nulls; the rows can be appended, where each is checked."""
    field = Column(name="x", type="int64", nullable=False)
    table = make_table(Column(name="s", type="struct", fields=(field,)))
    folder = table.info().location.removeprefix("file://")
    for name, rows, is_refused in (
        ("full", [{"s": {"x": 1}}], False),
        ("null", [{"s": None}], True),
        ("part", [{"s": {"x": None}}], True),
    ):
        path = f"{folder}/../{name}-{tmp_path.name}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema([("s", pa.struct([("x", pa.int64())]))])), path)
        if is_refused:
            with pytest.raises(BlocksRefused, match="lamella append"):
                table.register([f"file://{path}"])
        else:
            table.register([f"file://{path}"])
    assert table.info().row_count == 1

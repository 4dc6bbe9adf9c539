"""CHECK constraints: added if all rows satisfy them, and then kept by every writer, whoever writes at the same time."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import polars
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamella.client import Lamella, col
from lamella.client.http import Table
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.rewrite import compact
from lamella.client.rewrite.engine import SerialEngine
from lamella.snapshot.errors import (
    CheckViolation,
    FilterNotEvaluable,
    InvalidFilter,
    InvalidRequest,
    InvalidSchema,
    NewMatches,
    NotProven,
    SchemaConflict,
    UnknownColumn,
    WriterFeatureMissing,
)
from lamella.snapshot.schema import Check, Column
from lamella.snapshot.schema.evolution import AddCheck, AddColumn, DropColumn, MoveColumn, RenameColumn, WidenColumn
from lamella.snapshot.wire import SchemaUpdate
from write.conftest import MakeTable


def name_of(table: Table) -> str:
    """``namespace.table``."""
    info = table.info()
    return f"{info.namespace}.{info.name}"


def ints(*values: int | None) -> pa.Table:
    """Rows of one column ``a``."""
    return pa.table({"a": pa.array(values, pa.int64())})


def column(table: Table) -> list[int | None]:
    """The values of ``a`` in all rows."""
    values: list[int | None] = table.scan().to_arrow()["a"].to_pylist()
    return sorted(values, key=lambda value: (value is None, value))


#: Whether each condition is true of a value; None: null.
CONDITIONS: dict[str, Callable[[int | None], bool | None]] = {
    "a > 1": lambda a: None if a is None else a > 1,
    "a IS NOT NULL": lambda a: a is not None,
    "a <> 2 AND a < 5": lambda a: None if a is None else a != 2 and a < 5,
    "a IN (1, 3) OR a IS NULL": lambda a: a is None or a in (1, 3),
    "NOT (a BETWEEN 2 AND 3)": lambda a: None if a is None else not 2 <= a <= 3,
    "(a + 1) % 2 = 0": lambda a: None if a is None else a % 2 == 1,
    "CASE WHEN a = 3 THEN false ELSE true END": lambda a: a != 3,
}


def test_an_expression_is_a_condition(make_table: MakeTable) -> None:
    """Of ours, pyarrow and Polars, or a tree; the table has the SQL text that means the same."""
    table = make_table(a="int64", s="string", x="float64", day="date")
    conditions: list[tuple[Any, str]] = [
        ((col("a") > 0) | col("a").is_null(), "`a` > 0 OR `a` IS NULL"),
        (col("s").is_in(["it's", "b"]), "`s` IN ('it\\'s', 'b')"),
        (col("day") >= dt.date(2024, 1, 1), "`day` >= DATE '2024-01-01'"),
        (pyarrow.compute.field("a") < 9, "`a` < 9"),
        (polars.col("x") <= 1.5, "`x` <= CAST('1.5' AS DOUBLE)"),
        ({"type": "not-null", "term": "s"}, "`s` IS NOT NULL"),
    ]
    for number, (condition, text) in enumerate(conditions):
        table.add_check(f"c{number}", condition)
        assert table.schema().schema.checks[number] == Check(name=f"c{number}", condition=text)
    day = dt.date(2024, 1, 1)
    table.append({"a": [1, None], "s": ["it's", "b"], "x": [1.5, None], "day": [day, None]})
    for name, value in (
        ("a", 0),
        ("a", 9),
        ("s", "c"),
        ("x", 1.6),
        ("x", math.nan),
        ("s", None),
        ("day", dt.date(2023, 1, 1)),
    ):
        row = {"a": 1, "s": "b", "x": 1.0, "day": day, name: value}
        with pytest.raises(CheckViolation):
            table.append([row])
    with pytest.raises(UnknownColumn):
        table.add_check("d", col("b") > 0)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    condition=st.sampled_from(sorted(CONDITIONS)),
    blocks=st.lists(st.lists(st.sampled_from([None, 1, 2, 3, 4, 5]), min_size=1, max_size=3), max_size=3),
    deleted=st.sets(st.sampled_from([1, 2, 3])),
)
def test_a_constraint_is_added_exactly_if_it_is_false_for_no_row(
    make_table: MakeTable, condition: str, blocks: list[list[int | None]], deleted: set[int]
) -> None:
    """Rows for which it is null satisfy it, deleted ones do not count; the same holds of new rows."""
    table = make_table(a="int64")
    for block in blocks:
        table.append(ints(*block))
    for gone in sorted(deleted):
        table.delete(f"a = {gone}", mode="merge-on-read")
    before = table.info()
    decide = CONDITIONS[condition]
    if any(decide(value) is False for value in column(table)):
        with pytest.raises(CheckViolation, match="has a row"):
            table.add_check("c", condition)
        with pytest.raises(NotProven, match="c"):
            table.evolve([AddCheck(name="c", condition=condition)])
        assert table.info() == before
        return
    table.add_check("c", condition)
    assert table.info().schema.checks == (Check(name="c", condition=condition),)
    for value in (None, 1, 2, 3, 4, 5):
        rows = column(table)
        if decide(value) is False:
            with pytest.raises(CheckViolation, match="constraint 'c'") as refused:
                table.append(ints(value))
            assert refused.value.details["constraint"] == "c"
            assert column(table) == rows
        else:
            table.append(ints(value))
            assert len(column(table)) == len(rows) + 1


def test_what_statistics_prove_needs_no_reader(make_table: MakeTable) -> None:
    """The operation for changes of columns adds a constraint if no block may violate it, and otherwise says how."""
    table = make_table(a="int64")
    table.append(ints(5, 6, None))
    table.evolve([AddCheck(name="positive", condition="a > 0")])
    with pytest.raises(NotProven, match="add_check"):
        table.evolve([AddCheck(name="odd", condition="a <> 6")])
    assert [check.name for check in table.info().schema.checks] == ["positive"]


def test_every_way_of_writing_from_python_refuses_a_violating_row(make_table: MakeTable) -> None:
    """Nothing is committed; rows that satisfy the constraint are written."""
    table = make_table(a="int64", b="int64")
    table.append([{"a": 1, "b": 1}])
    table.add_check("positive", "a > 0")
    before = table.info()
    bad = [{"a": 2, "b": 2}, {"a": 0, "b": 3}]
    for write in (
        lambda: table.append(bad),
        lambda: table.append(bad, idempotency_key="once"),
        lambda: table.overwrite(bad),
        lambda: table.overwrite(bad, "b = 1"),
        lambda: table.overwrite(bad, read_snapshot_id=before.snapshot_id),
        lambda: table.upsert(bad, on=["b"]),
    ):
        with pytest.raises(CheckViolation, match=r"CHECK \(a > 0\) is false for 1 row, first where a = 0"):
            write()
    assert table.info() == before
    table.upsert([{"a": 7, "b": 1}], on=["b"])
    table.overwrite([{"a": 8, "b": 1}])
    assert column(table) == [8]


def test_rows_of_writers_that_began_before_are_refused(make_table: MakeTable) -> None:
    """Also of overwrites; the constraint is added while their rows are read."""
    for where in ("append", None, "a = 1"):
        table = make_table(a="int64")
        table.append(ints(1))

        def rows(table: Table = table) -> Iterator[pa.Table]:
            yield ints(2)
            table.add_check("positive", "a > 0")
            yield ints(-1)

        write = table.append if where == "append" else partial(table.overwrite, where=where)
        with pytest.raises(SchemaConflict, match="write the rows again"):
            write(rows())
        assert column(table) == [1]


def test_rows_that_come_while_a_constraint_is_added_are_checked(make_table: MakeTable) -> None:
    """A commit that names a snapshot from before they came is refused; another constraint does not interfere."""
    table = make_table(a="int64")
    table.append(ints(1))
    info = table.info()
    update = SchemaUpdate(changes=(AddCheck(name="c", condition="a > 0"),), base_schema_id=info.schema.schema_id)
    table.append(ints(-1))
    with pytest.raises(NewMatches, match="1 block added meanwhile may hold matching rows"):
        table.commit(base_snapshot_id=info.snapshot_id, operation="schema", schema_update=update)
    table.delete("a < 0")
    table.commit(base_snapshot_id=table.info().snapshot_id, operation="schema", schema_update=update)
    assert [check.name for check in table.info().schema.checks] == ["c"]
    twice = msgspec.structs.replace(update, changes=update.changes * 2)
    with pytest.raises(InvalidRequest, match="has checked all rows"):
        table.commit(operation="schema", schema_update=update)
    with pytest.raises(InvalidRequest, match="has checked all rows"):
        table.commit(operation="schema", base_snapshot_id=info.snapshot_id, schema_update=twice)


def test_writers_that_do_not_know_constraints_are_refused(make_table: MakeTable, tmp_path: Any) -> None:
    """A commit must say that its writer checks them, and files whose rows nobody read cannot be registered."""
    table, other = make_table(a="int64"), make_table(a="int64")
    other.append(ints(-1))
    table.append(ints(1))
    segment = other.snapshot(other.info().snapshot_id).segments[0].segment_id
    (block,) = other.segment(segment).blocks
    path = f"{table.info().location.removeprefix('file://')}/_b/foreign.parquet"
    pq.write_table(ints(-1), path)
    foreign = msgspec.structs.replace(block, location=f"file://{path}", schema_id=None, content_id=None)
    table.add_check("positive", "a > 0")
    before = table.info()
    with pytest.raises(InvalidRequest) as refused:
        table.commit([foreign])
    assert WriterFeatureMissing.code in {
        refused.value.code,
        *(each["code"] for each in refused.value.details["refused"]),
    }
    with pytest.raises(NotProven, match="lamella append"):
        table.register([f"file://{tmp_path}/any.parquet"])
    assert table.info() == before


def test_conditions_that_cannot_be_checked_are_refused(make_table: MakeTable) -> None:
    """With the position where they cannot be read; also when a table is created."""
    table = make_table(a="int64", s="string")
    kinds: tuple[tuple[str, type[InvalidRequest], str], ...] = (
        ("a >", InvalidFilter, "at offset 2"),
        ("a > 0) OR (a < 0", InvalidFilter, "at offset 5"),
        ("nope > 0", UnknownColumn, "nope"),
        ("s RLIKE '(a|b)+$'", FilterNotEvaluable, "RLIKE"),
        ("s < now()", InvalidFilter, "current time"),
    )
    for condition, error, text in kinds:
        with pytest.raises(error, match=text):
            table.add_check("c", condition)
        with pytest.raises(error, match=text):
            table.evolve([AddCheck(name="c", condition=condition)])
    table.add_check("c", "a > 0")
    with pytest.raises(InvalidSchema, match="already a constraint 'C'"):
        table.add_check("C", "a > 1")
    with pytest.raises(InvalidSchema, match="no constraint 'd'"):
        table.drop_check("d")


def test_columns_of_a_constraint_stay_as_they_are(make_table: MakeTable) -> None:
    """They are not dropped, renamed or widened before it; other columns are, and they may move."""
    table = make_table(
        Column(name="s", type="struct", fields=(Column(name="x", type="int32"), Column(name="y", type="int32"))),
        a="int32",
        b="int32",
    )
    table.add_check("c", "s.x + a > 0")
    for change in (
        DropColumn(column="a"),
        RenameColumn(column="a", name="z"),
        RenameColumn(column="s", name="z"),
        WidenColumn(column="s.x", type="int64"),
    ):
        with pytest.raises(InvalidSchema, match="'c': drop the constraint first"):
            table.evolve([change])
    table.evolve(
        [
            MoveColumn(column="a", first=True),
            WidenColumn(column="s.y", type="int64"),
            DropColumn(column="b"),
            AddColumn(name="z", type="int64"),
        ]
    )
    with pytest.raises(CheckViolation):
        table.append([{"a": 1, "s": {"x": -1, "y": 1}, "z": None}])
    table.drop_check("C")
    table.evolve([DropColumn(column="a")])
    assert table.info().schema.checks == ()


def test_a_rollback_restores_the_constraints_of_its_snapshot(lake: Lamella, make_table: MakeTable) -> None:
    """The rows of then were checked by those of then; a rename of the table changes nothing."""
    table = make_table(a="int64")
    table.append(ints(-1, 1))
    before = table.info().snapshot_id
    table.delete("a < 0")
    table.add_check("positive", "a > 0")
    after = table.info().snapshot_id
    table.rollback(before)
    assert table.info().schema.checks == ()
    assert column(table) == [-1, 1]
    table.rollback(after)
    assert [check.name for check in table.info().schema.checks] == ["positive"]
    new_name = f"{table.info().namespace}.other"
    lake.rename_table(name_of(table), new_name)
    with pytest.raises(CheckViolation):
        lake.table(new_name).append(ints(0))


def test_rewrites_and_deletes_keep_their_rows(lake: Lamella, make_table: MakeTable) -> None:
    """Compaction works with constraints, and rewrites of rows that a constraint was proven for as well."""
    table = make_table(a="int64")
    for value in range(1, 6):
        table.append(ints(value))
    table.add_check("positive", "a > 0")
    compact(JobContext(lake=lake, table=name_of(table), engine=SerialEngine()))
    table.delete("a = 2", mode="copy-on-write")
    assert (column(table), table.info().block_count) == ([1, 3, 4, 5], 1)


def test_a_table_is_created_with_constraints(lake: Lamella, make_table: MakeTable) -> None:
    """They hold from the first row on; one that cannot be checked makes no table."""
    namespace = make_table(a="int64").info().namespace
    columns = [Column(name="a", type="int64")]
    table = lake.table(f"{namespace}.checked")
    lake.create_table(f"{namespace}.checked", schema=columns, checks=[Check(name="c", condition="a < 3")])
    with pytest.raises(CheckViolation):
        table.append(ints(3))
    with pytest.raises(InvalidFilter):
        lake.create_table(f"{namespace}.bad", schema=columns, checks=[Check(name="c", condition="a <")])
    assert sorted(lake.tables(namespace)) == ["checked", "t"]


def test_dates_are_those_of_the_constraint_s_time_zone(make_table: MakeTable) -> None:
    """Not those of whoever writes."""
    table = make_table(t="timestamp(us)")
    table.add_check("late", "t >= TIMESTAMP '2024-01-01 00:00:00'", time_zone="Asia/Tokyo")
    table.append(pa.table({"t": pa.array(["2023-12-31T15:00:00Z"]).cast(pa.timestamp("us", "UTC"))}))
    with pytest.raises(CheckViolation):
        table.append(pa.table({"t": pa.array(["2023-12-31T14:59:59Z"]).cast(pa.timestamp("us", "UTC"))}))

"""Small tables whose answers can be seen at a glance."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lamella.snapshot.errors import InvalidRequest, LimitExceeded, UnknownColumn
from lamella.snapshot.manifest import Block, SnapshotPointer
from lamella.snapshot.prune.aggregate import MAX_GROUPS, read_plan
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import Bound, ColumnStats
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import AggregateAnswer, AggregateRequest
from support.generate import exact_stats

SCHEMA = Schema.assign(
    [
        Column(name="n", type="int64"),
        Column(name="x", type="float64"),
        Column(name="s", type="string"),
        Column(name="p", type="struct", fields=(Column(name="a.b", type="int32"),)),
        Column(name="l", type="list", fields=(Column(name="element", type="int64"),)),
        Column(name="i", type="interval"),
    ]
)


class RecordingStore(FsspecStore):
    """Remembers what was read whole."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def read(self, location: str) -> bytes:
        """As the store does."""
        self.reads.append(location)
        return super().read(location)


class Lake:
    """A table of blocks given by their rows of `n` and `x`."""

    def __init__(self, *blocks: list[tuple[int | None, float | None]], segment_blocks: int = 2) -> None:
        self.store = RecordingStore()
        self.warehouse = Warehouse(self.store, "memory://aggregate-examples", segment_blocks=segment_blocks)
        table_id = f"t{id(self)}"
        made = []
        for index, rows in enumerate(blocks):
            stats: dict[int, ColumnStats] = {}
            for column, leaf in enumerate(SCHEMA.leaves()[:2]):
                stats[leaf.id] = exact_stats(leaf.dtype, [row[column] for row in rows])
            made.append(
                Block(location=f"memory://b/{index}.parquet", row_count=len(rows), file_size=1, col_stats=stats)
            )
        empty = self.warehouse.create(table_id, SCHEMA, now_ms=1)
        leaves = self.warehouse.prepare(table_id, SCHEMA, made)
        self.pointer: SnapshotPointer = self.warehouse.commit(empty, added=leaves, now_ms=2).pointer
        self.warehouse = Warehouse(self.store, "memory://aggregate-examples")  # nothing is cached
        self.store.reads.clear()

    def ask(self, *aggregates: str, **request: Any) -> AggregateAnswer:
        """The answer."""
        return self.warehouse.aggregate(self.pointer, AggregateRequest(aggregates=aggregates, **request))

    def values(self, *aggregates: str, **request: Any) -> list[Bound | None]:
        """The values of the only group of a complete answer."""
        answer = self.ask(*aggregates, **request)
        assert answer.complete
        ((group),) = answer.groups
        return [value.value for value in group.values]


def rows(*numbers: int | None) -> list[tuple[int | None, float | None]]:
    """Rows whose `x` is `n` as a float."""
    return [(n, None if n is None else float(n)) for n in numbers]


def integers(*numbers: int | None) -> list[Bound | None]:
    """Values of integers."""
    return [None if n is None else Bound(int64=n) for n in numbers]


def test_a_whole_table_is_answered_from_the_snapshot_alone() -> None:
    """Without a filter neither a segment's manifest nor its sidecar is read."""
    lake = Lake(rows(1, None, 3), rows(4), rows(5, 6))
    assert lake.values("count(*)", "count(n)", "min(n)", "MAX( `n` )", "count(1)") == integers(6, 5, 1, 6, 6)
    read = {location.rsplit("/", 2)[1] for location in lake.store.reads}
    assert read == {"_ss"}


def test_a_segment_that_matches_whole_is_not_opened() -> None:
    """Only the segment at the filter's edge is; its blocks that match in part are listed."""
    lake = Lake(rows(1, 2), rows(3, 4), rows(5, 6), rows(7, 8))
    answer = lake.ask("count(*)", "max(n)", filter="n >= 2")
    assert [(block.location, block.verdict) for block in answer.scan] == [("memory://b/0.parquet", "SOME")]
    assert not answer.complete
    assert [value.value for value in answer.groups[0].values] == integers(6, 8)
    assert sum("/_sg/" in location for location in lake.store.reads) == 1


def test_a_block_that_cannot_hold_the_maximum_is_not_scanned() -> None:
    """A count needs every block that matches in part; a maximum only those that may exceed what is certain."""
    lake = Lake(rows(1, 2), rows(1, 9), rows(5, 6), rows(3, 3))
    scanned = {text: lake.ask(text, filter="n > 2").scan for text in ("max(n)", "min(n)", "count(*)")}
    assert [block.location[-9:] for block in scanned["max(n)"]] == ["1.parquet"]
    assert [block.location[-9:] for block in scanned["count(*)"]] == ["1.parquet"]
    assert not scanned["min(n)"] or scanned["min(n)"][0].location.endswith("1.parquet")
    assert lake.ask("max(n)", filter="n > 1 AND x < 7").scan[0].verdict == "SOME"


def test_no_matching_row_counts_zero_and_has_no_minimum() -> None:
    """As in SQL: one row of zeros and nulls without GROUP BY, none with it."""
    lake = Lake(rows(1, 2))
    assert lake.values("count(*)", "count(n)", "min(n)", filter="n > 5") == integers(0, 0, None)
    assert lake.ask("count(*)", filter="n > 5", group_by=("n",)).groups == ()


def test_nan_is_the_maximum() -> None:
    """A block that may hold NaN says nothing certain of a maximum, and its minimum is that of its numbers."""
    nan = float("nan")
    mixed = Lake([(1, 2.0), (2, nan)])
    assert mixed.values("min(x)") == [Bound(float64=2.0)]
    assert not mixed.ask("max(x)").complete
    only = Lake([(1, nan), (2, None)])
    assert only.values("min(x)", "max(x)", "count(x)") == [
        Bound(float64="NaN"),
        Bound(float64="NaN"),
        Bound(int64=1),
    ]


def test_groups_are_the_columns_that_are_constant_in_each_block() -> None:
    """One value, all nulls, or all NaN make a group; both zeros are one; a block of several values is listed."""
    nan = float("nan")
    lake = Lake(
        [(7, 0.0), (7, -0.0)], [(8, -0.0)], [(None, None)], [(9, nan)], [(1, 1.0), (2, 2.0)], [(3, nan), (3, None)]
    )
    answer = lake.ask("count(*)", "max(n)", group_by=("x",))
    found = {group.key[0]: [value.value for value in group.values] for group in answer.groups}
    assert found == {
        Bound(float64=0.0): integers(3, 8),
        None: integers(1, None),
        Bound(float64="NaN"): integers(1, 9),
    }
    assert [block.location[-9:] for block in answer.scan] == ["4.parquet", "5.parquet"]
    assert answer.other_groups


def test_limits_hold_the_result_without_a_scan() -> None:
    """The blocks that match in part count from none to all of their rows."""
    lake = Lake(rows(1, 2), rows(3, 4), rows(5, 6))
    answer = lake.ask("count(*)", "max(n)", "min(n)", filter="n >= 2", mode="bounded")
    count, maximum, minimum = answer.groups[0].values
    assert not answer.scan
    assert (count.lower, count.upper) == (Bound(int64=4), Bound(int64=6))
    assert (maximum.exact, maximum.value) == (True, Bound(int64=6))
    assert (minimum.lower, minimum.upper, minimum.may_be_null) == (Bound(int64=1), Bound(int64=3), False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sum(x)",
        "sum(s)",
        "avg(n)",
        "count(DISTINCT n)",
        "min(*)",
        "min(n + 1)",
        "min(n",
        "count()",
        "max(i)",
        "min(n.)",
    ],
)
def test_what_is_no_aggregate_is_refused(text: str) -> None:
    """Only counts, exact sums, least and greatest values of columns that have one such value in a row."""
    with pytest.raises(InvalidRequest):
        read_plan(AggregateRequest(aggregates=(text,)), SCHEMA)


def test_columns_are_named_as_in_sql() -> None:
    """Dots lead into structs; backquotes take anything; case matters only on request."""
    plan = read_plan(AggregateRequest(aggregates=("min(P.`A.B`)", "count(i)"), group_by=("`s`",)), SCHEMA)
    assert [aggregate.leaf.name for aggregate in plan.aggregates if aggregate.leaf] == ["p.a.b", "i"]
    assert [leaf.name for leaf in plan.group_by] == ["s"]
    with pytest.raises(UnknownColumn):
        read_plan(AggregateRequest(aggregates=("min(N)",), case_sensitive=True), SCHEMA)
    with pytest.raises(UnknownColumn):
        read_plan(AggregateRequest(aggregates=("count(p)",)), SCHEMA)


@pytest.mark.slow
def test_too_many_terms_or_groups_are_refused_by_name() -> None:
    """Limits are errors, never a cut answer."""
    with pytest.raises(LimitExceeded):
        read_plan(AggregateRequest(aggregates=("count(*)",) * 65), SCHEMA)
    lake = Lake(*[rows(n) for n in range(MAX_GROUPS + 1)], segment_blocks=1000)
    with pytest.raises(LimitExceeded):
        lake.ask("count(*)", group_by=("n",))
    assert len(lake.ask("count(*)", group_by=("n",), filter=f"n < {MAX_GROUPS}").groups) == MAX_GROUPS


def sums(*numbers: int | None) -> list[Bound | None]:
    """Sums of integers."""
    return [None if n is None else Bound(decimal=(str(n), 38, 0)) for n in numbers]


def test_a_sum_comes_from_the_statistics_as_a_count_does() -> None:
    """Nulls add nothing; without values it is null; beyond 64 bits it is exact; segments that match are not opened."""
    lake = Lake(rows(1, 3), rows(4), rows(None), rows(None, -(1 << 63)), rows(-(1 << 63)))
    assert lake.values("sum(n)", "SUM(`n`)", "count(n)") == [*sums(8 - (1 << 64), 8 - (1 << 64)), *integers(5)]
    assert {location.rsplit("/", 2)[1] for location in lake.store.reads} == {"_ss"}
    assert lake.values("sum(n)", filter="n > 0") == sums(8)
    assert lake.values("sum(n)", filter="n > 10") == sums(None)
    answer = lake.ask("sum(n)", filter="n > 1")
    assert [(block.location[-9:], block.verdict) for block in answer.scan] == [("0.parquet", "SOME")]
    assert [value.value for value in answer.groups[0].values] == sums(4)
    assert [(column.name, column.type) for column in answer.columns] == [("sum(n)", "decimal(38,0)")]
    grouped = lake.ask("sum(n)", filter="n IS NOT NULL", group_by=["n"])
    assert [group.values[0].value for group in grouped.groups if group.key == (Bound(int64=4),)] == sums(4)


def test_a_sum_has_limits_where_blocks_would_be_scanned() -> None:
    """Rows that may match add a value between the bounds, or nothing; rows that do add at least the lower one."""
    lake = Lake(rows(1, 5), rows(-3, 2, None))
    ((some,),) = [group.values for group in lake.ask("sum(n)", filter="x > 1.5", mode="bounded").groups]
    assert (some.lower, some.upper, some.may_be_null) == (*sums(-6, 14), True)
    ((none,),) = [group.values for group in lake.ask("sum(n)", filter="n > 9", mode="bounded").groups]
    assert (none.exact, none.value) == (True, None)


def test_blocks_without_a_sum_are_scanned() -> None:
    """Those of footers have none; minima and counts of the same request are not affected by it."""
    warehouse = Warehouse(FsspecStore(), "memory://aggregate-examples", segment_blocks=2)
    leaf = SCHEMA.leaf("n")
    made = [
        Block(location=f"memory://b/{at}.parquet", row_count=2, file_size=1, col_stats={leaf.id: stats})
        for at, stats in enumerate(
            (exact_stats(leaf.dtype, [1, 2]), msgspec.structs.replace(exact_stats(leaf.dtype, [3, 4]), sum=None))
        )
    ]
    empty = warehouse.create("without_sums", SCHEMA, now_ms=1)
    pointer = warehouse.commit(empty, added=warehouse.prepare("without_sums", SCHEMA, made), now_ms=2).pointer
    answer = warehouse.aggregate(pointer, AggregateRequest(aggregates=("sum(n)",)))
    assert [block.location[-9:] for block in answer.scan] == ["1.parquet"]
    assert [value.value for value in answer.groups[0].values] == sums(3)
    assert warehouse.aggregate(pointer, AggregateRequest(aggregates=("count(n)", "min(n)"))).complete
    bounded = warehouse.aggregate(pointer, AggregateRequest(aggregates=("sum(n)",), mode="bounded"))
    (value,) = bounded.groups[0].values
    assert (value.lower, value.upper, value.may_be_null) == (*sums(9, 11), False)


def test_a_sum_of_more_digits_than_a_decimal_is_refused() -> None:
    """Each block has a sum, but all together have none that an answer could hold."""
    schema = Schema.assign([Column(name="d", type="decimal(38,2)")])
    leaf = schema.leaf("d")
    high = 10**38 - 1
    warehouse = Warehouse(FsspecStore(), "memory://aggregate-examples", segment_blocks=1)
    made = [
        Block(
            location=f"memory://b/{at}.parquet",
            row_count=1,
            file_size=1,
            col_stats={leaf.id: exact_stats(leaf.dtype, [high])},
        )
        for at in range(2)
    ]
    empty = warehouse.create("long_sums", schema, now_ms=1)
    pointer = warehouse.commit(empty, added=warehouse.prepare("long_sums", schema, made), now_ms=2).pointer
    with pytest.raises(LimitExceeded, match="more than 38 digits"):
        warehouse.aggregate(pointer, AggregateRequest(aggregates=("sum(d)",)))
    assert warehouse.aggregate(pointer, AggregateRequest(aggregates=("max(d)",))).complete

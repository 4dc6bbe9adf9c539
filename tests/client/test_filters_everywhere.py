"""Every method that takes a filter takes one written in Python, against a running service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fixtures_server import ServerProcess
from lamella.client import AsyncLamella, Lamella, col
from lamella.client.http import Table
from lamella.snapshot.errors import InvalidFilter
from lamella.snapshot.wire import IndexChange


@pytest.fixture
def table(server: ServerProcess) -> Iterator[Table]:
    """Two blocks, of `a` from 0 to 4 and from 5 to 9."""
    with Lamella(server.url) as lake:
        found = lake.table("db.t")
        for first in (0, 5):
            numbers = range(first, first + 5)
            found.append(
                pa.table({"a": pa.array(numbers, pa.int64()), "s": [f"s{n}" for n in numbers]}),
                create=True,
                cluster_by=["a"],
            )
        yield found


#: Of every library, the rows with `a` from 7 on: those of one block.
FILTERS = [col("a") >= 7, pc.field("a") >= 7, pl.col("a") >= 7, (col("a") > 6).is_true()]


@pytest.mark.parametrize("given", FILTERS)
def test_filters_of_reads(table: Table, given: Any) -> None:
    """The service evaluates them as it does SQL text."""
    assert table.prune(given).locations == table.prune("a >= 7").locations
    assert table.prune(given).block_count == 1
    assert [page.block_count for page in table.prune_pages(given, page_size=1)] == [1]
    assert [answer.block_count for answer in table.prune_batch([given, "a < 0"])] == [1, 0]
    assert table.scan(given).count() == 3
    assert sorted(table.scan(given, columns=["a"]).to_arrow()["a"].to_pylist()) == [7, 8, 9]
    assert table.scan(given).aggregate(["sum(a)"]).to_pylist() == [{"sum(a)": 24}]
    assert table.aggregate(["count(*)"], given, mode="bounded").groups
    assert len(table.sample(given).rows) == 3
    assert len(table.diff("1", filter=given).added) == 1
    assert [len(changes.added) for changes in table.changes("1", filter=given)] == [0, 1]
    assert table.row_changes("1", filter=given, columns=["a"]).to_arrow().num_rows == 3
    assert table.plan("compact", filter=given).snapshot_id == table.info().snapshot_id
    index = IndexChange(kind="bloom", expression="a")
    assert table.what_if(index=index, filters=[given]).snapshot_id
    assert table.why_not(given).blocks_total == 2


@pytest.mark.parametrize("given", FILTERS)
def test_filters_of_changes(table: Table, given: Any) -> None:
    """Deletes and overwrites change the rows that match, and no others."""
    table.overwrite({"a": [7, 100], "s": ["seven", "more"]}, given)
    assert sorted(table.scan(columns=["a"]).to_arrow()["a"].to_pylist()) == [0, 1, 2, 3, 4, 5, 6, 7, 100]
    table.delete(given)
    assert sorted(table.scan(columns=["a"]).to_arrow()["a"].to_pylist()) == [0, 1, 2, 3, 4, 5, 6]


def test_a_filter_that_is_refused_changes_nothing(table: Table) -> None:
    """A part that was dropped would delete more rows."""
    before = table.info().snapshot_id
    wrongs: list[Any] = [pl.col("a") + 1 > 3, pc.field("a").cast("int32") > 1, 5]
    for wrong in wrongs:
        with pytest.raises(InvalidFilter):
            table.delete(wrong)
        with pytest.raises(InvalidFilter):
            table.overwrite({"a": [1], "s": ["x"]}, wrong)
    with pytest.raises(TypeError, match="parentheses"):
        table.delete(col("a") > 1 and col("a") < 3)
    assert table.info().snapshot_id == before


@pytest.mark.usefixtures("table")
def test_filters_of_the_asynchronous_client(server: ServerProcess) -> None:
    """The same."""

    async def go() -> list[int]:
        async with AsyncLamella(server.url) as lake:
            same = lake.table("db.t")
            return [(await same.prune(given)).block_count for given in FILTERS]

    assert asyncio.run(go()) == [1] * len(FILTERS)

"""Overwrites and deletes from Python: which rows go, which stay, in one commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from lamella.client import Lamella
from lamella.client.http import Table
from lamella.snapshot.errors import (
    FilterNotEvaluable,
    InvalidFilter,
    InvalidRequest,
    NamespaceNotFound,
    SchemaMismatch,
    UnknownColumn,
)
from support.service_api import fresh_name
from write.conftest import MakeTable


def ids_of(table: Table) -> list[int]:
    """The ids of all rows, in order."""
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def operations_of(table: Table) -> list[str]:
    """What was committed, last first."""
    return [entry.operation for entry in table.snapshots()]


def test_an_overwrite_replaces_all_rows_in_one_commit(make_table: MakeTable) -> None:
    """Whatever the old rows were."""
    table = make_table(id="int64")
    table.append({"id": range(10)}, target_block_rows=3)
    result = table.overwrite({"id": [20, 21]}, set_properties={"loaded": "yes"})
    assert (result.rows, result.rows_removed, result.committed) == (2, 10, True)
    assert result.snapshot_id == table.info().snapshot_id
    assert ids_of(table) == [20, 21]
    assert table.info().properties["loaded"] == "yes"
    assert operations_of(table) == ["overwrite", "append", "create"]


def test_an_overwrite_of_a_part_leaves_the_other_rows(make_table: MakeTable) -> None:
    """A filter is SQL or a tree; rows for which it is null stay."""
    table = make_table(id="int64", at="timestamp(us)")
    table.append([{"id": n} for n in range(10)])
    assert table.overwrite([{"id": 100}], "id < 5 AND at IS NULL").rows_removed == 5
    assert table.overwrite([{"id": 101}], {"type": "gt-eq", "term": "id", "value": 100}).rows_removed == 1
    assert table.overwrite([{"id": 102}], "at > TIMESTAMP '2024-01-01 00:00:00'").rows_removed == 0
    assert ids_of(table) == [5, 6, 7, 8, 9, 101, 102]


def test_a_filter_may_be_in_a_time_zone(make_table: MakeTable) -> None:
    """For times without a zone in it."""
    table = make_table(id="int64", at="timestamp(us)")
    first = 1_719_792_000_000_000  # 2024-07-01T00:00Z
    at = pa.array([first, first + 3_600_000_000], pa.timestamp("us", "UTC"))
    table.append(pa.table({"id": [1, 2], "at": at}))
    table.overwrite([], "at = TIMESTAMP '2024-07-01 02:00:00'", time_zone="Europe/Berlin")
    assert ids_of(table) == [2]
    assert table.delete("at = TIMESTAMP '2024-07-01 03:00:00'", time_zone="Europe/Berlin").rows == 1


def test_an_overwrite_by_no_rows_is_a_delete(make_table: MakeTable) -> None:
    """And one that neither adds nor removes commits nothing."""
    table = make_table(id="int64")
    table.append({"id": [1, 2]})
    result = table.overwrite([], "id = 1")
    assert (result.rows, result.rows_removed, result.committed) == (0, 1, True)
    before = table.info().snapshot_id
    result = table.overwrite(iter([]), "id = 1")
    assert (result.rows_removed, result.committed, result.snapshot_id) == (0, False, before)
    assert table.info().snapshot_id == before


def test_an_overwrite_creates_a_missing_table_on_request(lake: Lamella) -> None:
    """So that a job needs no other first run."""
    name = f"{fresh_name('made')}.t"
    with pytest.raises(NamespaceNotFound):
        lake.table(name).overwrite({"id": [1]})
    lake.table(name).overwrite({"id": [1]}, create=True)
    lake.table(name).overwrite({"id": [2]}, create=True)
    assert ids_of(lake.table(name)) == [2]


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("id RLIKE '1'", FilterNotEvaluable),
        ("id = ", InvalidFilter),
        ("nothing = 1", UnknownColumn),
        (True, InvalidRequest),
        (False, InvalidRequest),
    ],
)
def test_a_filter_that_cannot_be_decided_changes_nothing(
    make_table: MakeTable, where: Any, error: type[Exception]
) -> None:
    """It is refused before a row is read; so is a comparison that Python has evaluated."""
    table = make_table(id="int64")
    table.append({"id": [1]})
    before = table.info()
    rows: Iterator[dict[str, int]] = iter([{"id": 2}])
    with pytest.raises(error):
        table.overwrite(rows, where)
    assert list(rows) == [{"id": 2}]
    with pytest.raises(error):
        table.delete(where)
    assert table.info() == before


def test_an_overwrite_whose_rows_fail_removes_nothing(make_table: MakeTable) -> None:
    """Also when the first rows were written."""
    table = make_table(id="int64")
    table.append({"id": [1]})
    before = table.info()
    with pytest.raises(SchemaMismatch):
        table.overwrite(iter([pa.table({"id": [2]}), pa.table({"id": ["x"]})]), target_block_rows=1, memory_bytes=1)
    assert table.info() == before


def test_what_others_commit_during_an_overwrite_stays(make_table: MakeTable, lake: Lamella) -> None:
    """Rows added after the overwrite has read the table are as if added after it."""
    table = make_table(id="int64")
    table.append({"id": [1, 2]})

    def rows() -> Iterator[dict[str, int]]:
        yield {"id": 3}
        lake.table(str(table)).append({"id": [4]})

    assert table.overwrite(rows(), "id <= 2").rows_removed == 2
    assert ids_of(table) == [3, 4]


def test_a_delete_needs_a_filter_or_every_row(make_table: MakeTable) -> None:
    """None alone, as a variable that was not set, deletes nothing."""
    table = make_table(id="int64")
    table.append({"id": range(10)})
    for where, every_row in ((None, False), ("id = 1", True)):
        with pytest.raises(InvalidRequest):
            table.delete(where, every_row=every_row)
    assert table.info().row_count == 10
    result = table.delete("id IN (0, 2, 4, 6, 8)")
    assert (result.rows, result.snapshot_id) == (5, table.info().snapshot_id)
    assert ids_of(table) == [1, 3, 5, 7, 9]
    assert table.delete(None, every_row=True).rows == 5
    assert ids_of(table) == []
    assert operations_of(table) == ["delete", "delete", "append", "create"]


def test_a_delete_reads_only_blocks_that_may_match_partly(make_table: MakeTable) -> None:
    """Others are dropped unread or left alone; names are compared with case on request."""
    table = make_table(id="int64", cluster_key=["id"])
    table.append({"id": range(1_000)}, target_block_rows=100)
    blocks = table.info().block_count
    result = table.delete("ID < 250", workers=2, progress=True)
    assert result.rows == 250
    assert result.read <= 2
    assert result.dropped >= 1
    assert table.info().block_count >= blocks - result.dropped - result.emptied
    with pytest.raises(UnknownColumn):
        table.delete("ID < 300", case_sensitive=True)
    assert ids_of(table) == list(range(250, 1_000))
    assert table.verify(deep=True, sample=1.0).is_clean


@pytest.mark.parametrize(("mode", "rewritten"), [(None, 0), ("copy-on-write", 1), ("merge-on-read", 0)])
def test_a_delete_rewrites_blocks_on_request(make_table: MakeTable, mode: Any, rewritten: int) -> None:
    """Otherwise as the table's properties say."""
    table = make_table(id="int64")
    table.append({"id": range(10)})
    result = table.delete("id IN (1, 2)", mode=mode)
    assert (result.rows, result.rewritten, result.vectors) == (2, rewritten, 1 - rewritten)
    assert ids_of(table) == [0, *range(3, 10)]


def test_two_writers_at_once_lose_nothing(make_table: MakeTable, lake: Lamella) -> None:
    """One appends, the other deletes what it finds; what is left are the rows that no delete saw."""
    table = make_table(id="int64", m="int8", cluster_key=["id"])
    removed: list[int] = []

    def append() -> None:
        for start in range(0, 200, 20):
            lake.table(str(table)).append(
                {"id": range(start, start + 20), "m": [n % 3 for n in range(start, start + 20)]}, target_block_rows=7
            )

    def delete() -> None:
        removed.extend(lake.table(str(table)).delete("m = 0").rows for _ in range(10))

    threads = [threading.Thread(target=append), threading.Thread(target=delete)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = ids_of(table)
    assert len(left) + sum(removed) == 200
    assert [n for n in left if n % 3] == [n for n in range(200) if n % 3]
    assert table.verify(deep=True, sample=1.0).is_clean

"""Indexes and samples of columns whose values are not in the files: of folders, and those that were added."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamella.client import Lamella
from lamella.client.http import Table
from lamella.snapshot.schema.evolution import AddColumn

REGIONS = ("north", "south", None, "", "Ost")
#: Kinds of indexes over one of the columns that no file has, or over an expression of them alone.
INDEXES = {
    "by_month": ("bloom", "month"),
    "keys_month": ("keys", "month"),
    "set_region": ("value_set", "region"),
    "by_upper": ("bloom", "upper(region)"),
    "by_sum": ("value_set", "month * 2 + flag"),
    "by_flag": ("bloom", "flag"),
}
FILTERS = [
    *(f"month = {month}" for month in range(0, 9, 2)),
    *(f"region = '{region}'" for region in ("north", "Ost", "none", "")),
    "region IS NULL",
    "upper(region) = 'SOUTH'",
    "month * 2 + flag = 9",
    "month * 2 + flag IN (3, 13, 15)",
    "flag = 7 AND month > 3",
    "flag = 8",
    "NOT (month = 3) AND region <> 'south'",
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """Files of one column in folders of a month and a region, and a column `flag` that was added later."""
    folder = tmp_path_factory.mktemp("hive")
    for month in range(1, 8):
        region = REGIONS[month % len(REGIONS)]
        name = "__HIVE_DEFAULT_PARTITION__" if region in (None, "") else region
        location = folder / "sales" / f"month={month}" / f"region={name}"
        location.mkdir(parents=True)
        pq.write_table(
            pa.table({"id": range(month * 10, month * 10 + 10)}), Path(location, "0.parquet"), row_group_size=4
        )
    with Lamella.embedded(folder / "lake") as lake:
        lake.create_namespace("db")
        lake.create_table("db.sales", schema_from=str(folder / "sales"))
        found = lake.table("db.sales")
        found.register([str(folder / "sales")])
        found.evolve([AddColumn(name="flag", type="int32", default="7")])
        yield found


def rows(table: Table, filter: str) -> list[int]:
    """The numbers of the rows for which a filter is true."""
    return sorted(table.scan(filter, ["id"]).to_arrow()["id"].to_pylist())


def test_an_index_of_such_columns_covers_every_block_and_loses_no_row(table: Table) -> None:
    """Values of folders and defaults are indexed like those of files; the answers are those of a scan without."""
    expected = {filter: rows(table, filter) for filter in FILTERS}
    assert sum(map(bool, expected.values())) >= 9
    for name, (kind, expression) in INDEXES.items():
        table.create_index(name, kind, expression)
        answer = table.refresh_index(name)
        assert (answer.indexed, answer.remaining, answer.left_out) == (7, 0, ()), name
    assert {filter: rows(table, filter) for filter in FILTERS} == expected
    (found,) = table.scan("month * 2 + flag = 9").fragments()
    assert found.to_arrow()["month"].to_pylist() == [1] * 10


def test_such_columns_can_be_sampled(table: Table) -> None:
    """A prediction reads blocks whose files have none of the columns that it is about."""
    answer = table.what_if(cluster_key=["month"], filters=["month = 4", "region = 'north'"], sample_blocks=7)
    assert answer.blocks_read == 7
    assert answer.then is not None
    found = table.candidates(3, sample_blocks=4)
    assert found.blocks_total == 7

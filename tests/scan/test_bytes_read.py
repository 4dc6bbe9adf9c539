"""How little is read: pages instead of column chunks, and only of the columns that matter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lamella.snapshot.parquet import read_footer
from lamella.snapshot.parquet.footer import TAIL_BYTES
from lamella.snapshot.parquet.page_index import read_page_index
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import OrderBy
from scan.files import RangesSeen, written
from scan.planning import WarehouseTable

ROWS = 60_000
PAGE_ROWS = 300


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for a file of 200 pages in each of six columns."""
    return tmp_path_factory.mktemp("wide")


def wide_table() -> pa.Table:
    """Sorted by id; another column in the same order, others in none; a list beside them."""
    rng = np.random.default_rng(1)
    ids = np.arange(ROWS)
    return pa.table(
        {
            "id": ids,
            "later": pa.array(ids * 1_000_000 + rng.integers(0, 1000, ROWS)).cast(pa.timestamp("us", "UTC")),
            "price": rng.random(ROWS),
            "name": [f"name-{number:012}" for number in rng.integers(0, 10**9, ROWS)],
            "kind": [f"kind-{number}" for number in rng.integers(0, 50, ROWS)],
            "tags": pa.ListArray.from_arrays(np.arange(0, 2 * ROWS + 1, 2, dtype=np.int32), rng.random(2 * ROWS)),
        }
    )


def wide_planner(folder: Path, table: pa.Table) -> WarehouseTable:
    """The table as one file of small pages."""
    return written(folder, table, max_rows_per_page=PAGE_ROWS, write_batch_size=100, use_dictionary=["kind"])


def test_a_lookup_on_the_sort_column_reads_one_page_of_each_column(wide: Path) -> None:
    """Beside the end of the file: the one page that holds the row, with its dictionary where it has one."""
    table = wide_table()
    planner = wide_planner(wide, table)
    store = RangesSeen()
    names = ("id", "later", "price", "name", "kind")
    found = planner.scan("id = 31234", store=store, columns=names).to_arrow()
    assert found.to_pylist() == table.select(names).slice(31234, 1).to_pylist()

    location = f"file://{wide}/0.parquet"
    footer = read_footer(FsspecStore(), location)
    index = read_page_index(FsspecStore(), footer)
    wanted = 0
    for leaf in range(len(names)):
        pages = index.at(0, leaf)
        assert pages is not None
        assert len(pages) >= ROWS // PAGE_ROWS
        page = int(np.searchsorted(pages.first_rows, 31234, side="right")) - 1
        wanted += int(pages.sizes[page]) + (pages.dictionary[1] if pages.dictionary else 0)
    tail = footer.stat.size_bytes - TAIL_BYTES
    read = sum(size for offset, size in store.ranges if offset < tail)
    assert read == wanted
    assert read < footer.stat.size_bytes // 20


def test_other_columns_are_read_only_where_rows_match(wide: Path) -> None:
    """A filter on a column in no order reads that column; the others by the pages of the rows found."""
    table = wide_table()
    planner = wide_planner(wide, table)
    target = table.column("price")[777].as_py()
    store = RangesSeen()
    found = planner.scan(f"price = {target!r}D", store=store, columns=("name", "later")).to_arrow()
    assert found.to_pylist() == table.select(["name", "later"]).slice(777, 1).to_pylist()
    chunks = read_footer(FsspecStore(), f"file://{wide}/0.parquet").metadata.row_groups[0].chunks
    sizes = [chunk.compressed_size for chunk in chunks]
    assert sum(size for _, size in store.ranges) < sizes[2] + TAIL_BYTES + (sizes[1] + sizes[3]) // 3


def test_a_limit_reads_no_more_rows_than_it_needs(wide: Path) -> None:
    """Where every row matches, the first pages are enough."""
    table = wide_table()
    planner = wide_planner(wide, table)
    store = RangesSeen()
    assert planner.scan(store=store, columns=("id", "price"), limit=5).to_arrow().num_rows == 5
    assert sum(size for _, size in store.ranges) < TAIL_BYTES + 20_000


def test_a_count_from_statistics_reads_nothing(wide: Path) -> None:
    """What the statistics prove needs no file; the rest is read by the filter's columns only."""
    planner = wide_planner(wide, wide_table())
    store = RangesSeen()
    assert planner.scan(store=store).count() == ROWS
    assert planner.scan("id < 0", store=store).count() == 0
    assert store.ranges == []
    assert planner.scan("id < 12345", store=store).count() == 12345
    assert sum(size for _, size in store.ranges) < TAIL_BYTES + 20_000


def test_an_ordered_scan_stops_when_no_block_can_matter(tmp_path: Path) -> None:
    """The first rows of an order come from the first blocks; the last ones are not opened."""
    tables = [pa.table({"a": np.arange(at * 1000, at * 1000 + 1000)}) for at in range(12)]
    planner = written(tmp_path, *tables)
    store = RangesSeen()
    found = planner.scan(store=store, limit=3, order_by=(OrderBy(column="a", descending=True),), workers=1).to_arrow()
    assert found.column("a").to_pylist() == [11999, 11998, 11997]
    assert len(store.files_read()) <= 3

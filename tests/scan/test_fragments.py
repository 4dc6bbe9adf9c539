"""Parts of a scan that are read apart: in other processes, by Dask, later than the table moved on."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import dask
import dask.dataframe
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fixtures_server import ServerProcess
from lamella.client import Lamella
from lamella.client.http import Table
from lamella.client.scan import Fragment
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.wire import OrderBy
from scan.files import of_files
from scan.planning import WarehouseTable

FILES, ROWS = 4, 1_000


@pytest.fixture
def planner(tmp_path: Path) -> WarehouseTable:
    """A table of some files, of which ``id`` says the order and ``kind`` nothing; without a service."""
    return of_files([write(tmp_path, at) for at in range(FILES)])


@pytest.fixture
def table(server: ServerProcess, tmp_path: Path) -> Iterator[Table]:
    """The same table of a service."""
    for at in range(FILES):
        write(tmp_path, at)
    with Lamella(server.url) as lake:
        lake.create_namespace("db")
        lake.create_table("db.t", schema_from=f"file://{tmp_path}/0.parquet")
        table = lake.table("db.t")
        table.register([str(tmp_path / f"{at}.parquet") for at in range(FILES)])
        yield table


def write(folder: Path, at: int) -> Path:
    """A file with pages of a hundred rows; answers where."""
    path = folder / f"{at}.parquet"
    ids = range(at * ROWS, (at + 1) * ROWS)
    rows = pa.table({"id": pa.array(ids, pa.int64()), "kind": [f"k{number % 7}" for number in ids]})
    pq.write_table(rows, path, write_page_index=True, max_rows_per_page=100, write_batch_size=50)
    return path


def test_parts_say_what_they_cost_before_they_are_read(planner: WarehouseTable, tmp_path: Path) -> None:
    """One for each block that is left, with its file's size and the rows that its pages leave."""
    parts = planner.scan("id BETWEEN 950 AND 1149").fragments()
    assert [part.location for part in parts] == [f"file://{tmp_path}/{at}.parquet" for at in (0, 1)]
    assert [part.row_count for part in parts] == [100, 200]
    assert [part.size_bytes for part in parts] == [(tmp_path / f"{at}.parquet").stat().st_size for at in (0, 1)]
    assert [part.to_arrow().num_rows for part in parts] == [50, 150]
    assert {part.schema for part in parts} == {planner.scan().schema}
    assert repr(parts[0]) == f"Fragment('file://{tmp_path}/0.parquet', row_count=100)"


def test_parts_are_read_in_other_processes(planner: WarehouseTable) -> None:
    """Processes that share nothing with this one read them, without the service, to the rows of the scan."""
    scan = planner.scan("kind = 'k3' AND id >= 500", columns=("id",))
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(Fragment.to_arrow, scan.fragments()))
    assert len(found) == FILES
    assert pa.concat_tables(found) == scan.to_arrow()
    assert sum(part.num_rows for part in found) == sum(number % 7 == 3 for number in range(500, FILES * ROWS))


def test_dask_reads_parts_by_its_own_means(planner: WarehouseTable) -> None:
    """``to_dask``, ``from_map`` and ``delayed``, in Dask's processes and threads."""
    scan = planner.scan("kind = 'k3' AND id > 1000")
    ids = [number for number in range(1_001, FILES * ROWS) if number % 7 == 3]
    frame = scan.to_dask()
    assert frame.npartitions == FILES - 1
    with dask.config.set(scheduler="processes", num_workers=2):
        assert frame["id"].compute().tolist() == ids
    mapped = dask.dataframe.from_map(Fragment.to_pandas, scan.fragments())
    assert mapped["id"].sum().compute(scheduler="threads") == sum(ids)
    counts = [dask.delayed(part.to_arrow)() for part in scan.fragments()]
    assert sum(part.num_rows for part in dask.compute(*counts, scheduler="threads")) == len(ids)


def test_parts_stay_at_their_snapshot(table: Table, tmp_path: Path) -> None:
    """What is committed after the scan was planned is not in them, nor is missing what was removed."""
    scan = table.scan("id >= 0")
    parts = scan.fragments()
    table.register([str(write(tmp_path, FILES))])
    table.commit(removed=[parts[0].location])
    assert sum(part.to_arrow().num_rows for part in parts) == FILES * ROWS
    assert [part.location for part in scan.fragments()] == [part.location for part in parts]
    now = [part.location for part in table.scan("id >= 0").fragments()]
    assert now == [*(part.location for part in parts[1:]), f"file://{tmp_path}/{FILES}.parquet"]


def test_changes_come_in_parts(table: Table, tmp_path: Path) -> None:
    """Only blocks that came after a snapshot are parts."""
    before = table.info().snapshot_id
    table.register([str(write(tmp_path, FILES))])
    parts = table.scan(changes_since=before).fragments()
    assert [part.location for part in parts] == [f"file://{tmp_path}/{FILES}.parquet"]


@pytest.mark.parametrize("options", [{"limit": 3}, {"order_by": (OrderBy(column="id"),)}])
def test_what_no_part_can_keep_is_refused(planner: WarehouseTable, options: dict[str, Any]) -> None:
    """A limit or an order of the whole is nothing that a part could have."""
    scan = planner.scan(**options)
    for read in (scan.fragments, scan.to_dask):
        with pytest.raises(InvalidRequest, match="cannot apply a limit or an order"):
            read()


def test_a_part_is_small(planner: WarehouseTable) -> None:
    """It carries a plan, not what was made of it: a few kilobytes, however often it was read."""
    part = planner.scan("id < 100").fragments()[0]
    before = len(pickle.dumps(part))
    part.to_arrow()
    assert len(pickle.dumps(part)) == before < 4_000

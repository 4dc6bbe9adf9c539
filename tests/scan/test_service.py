"""A scan through a real service, as users write it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fixtures_server import ServerProcess
from lamella.client import Lamella
from lamella.snapshot.errors import FilterNotEvaluable, TableNotFound


@pytest.fixture
def lake(server: ServerProcess, tmp_path: Path) -> Iterator[Lamella]:
    """A service with a table of four files."""
    for at in range(4):
        ids = np.arange(10_000) + 10_000 * at
        table = pa.table({"id": ids, "x": np.where(ids % 1000 == 0, np.nan, ids / 7), "t": [f"t{i % 9}" for i in ids]})
        pq.write_table(table, tmp_path / f"{at}.parquet", write_page_index=True, max_rows_per_page=500)
    with Lamella(server.url) as lake:
        lake.create_namespace("db")
        lake.create_table("db.t", schema_from=f"file://{tmp_path}/0.parquet")
        lake.table("db.t").register([str(tmp_path / f"{at}.parquet") for at in range(4)])
        yield lake


def test_a_scan_through_the_service_is_exact(lake: Lamella, capfd: pytest.CaptureFixture[str]) -> None:
    """Rows, counts, orders and time travel; NaN is greater than every number."""
    table = lake.table("db.t")
    scan = table.scan("id BETWEEN 19998 AND 20001", columns=["t", "id"])
    assert scan.to_arrow().column("id").to_pylist() == [19998, 19999, 20000, 20001]
    assert scan.to_arrow().schema.names == ["t", "id"]
    assert scan.plan.report.blocks_total == 4
    assert table.scan("x > 5714").count() == 40 + 1
    assert table.scan("isnan(x)").to_arrow().column("id").to_pylist() == list(range(0, 40_000, 1000))
    first = table.scan(order_by="x DESC, id DESC", limit=2).to_arrow()
    assert first.column("id").to_pylist() == [39_000, 38_000]
    before = table.info().snapshot_id
    assert table.scan("t LIKE '%8' AND id < 20", snapshot_id=before, progress=True).count() == 2
    assert capfd.readouterr().out == ""


def test_errors_come_as_themselves(lake: Lamella) -> None:
    """What the service refuses, and what the reader refuses."""
    with pytest.raises(TableNotFound):
        lake.table("db.other").scan().to_arrow()
    with pytest.raises(FilterNotEvaluable, match="RLIKE"):
        lake.table("db.t").scan("t RLIKE '8.'").count()

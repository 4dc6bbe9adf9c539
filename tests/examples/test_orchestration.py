"""The DAG of Airflow and the assets of Dagster in examples/orchestration, each run in an environment of its own."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from conftest import ROOT, path_from_script
from fixtures_server import ServerProcess
from lamella.client import Lamella

pytestmark = [pytest.mark.soak, pytest.mark.process]

EXAMPLES: Final = ROOT / "examples" / "orchestration"


@pytest.fixture
def lake(server: ServerProcess, tmp_path: Path) -> Iterator[Lamella]:
    """A client of a service that has a worker."""
    command = [sys.executable, "-m", "lamella.client.cli", "worker", "--url", server.url, "--poll-s", "0.2"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=tmp_path) as worker:
        try:
            with Lamella(server.url) as client:
                yield client
        finally:
            worker.terminate()


def environment(lake: Lamella, folder: Path) -> dict[str, str]:
    """What both programs need: where the service is, where Lamella is, and a folder for what they keep."""
    return os.environ | {
        "LAMELLA_URL": lake.url,
        "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("client", "snapshot")),
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "DAGSTER_HOME": str(folder),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }


def run(command: list[Any], lake: Lamella, folder: Path, *, status: int = 0) -> str:
    """Run a program that ends with this status; returns what it said."""
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=folder, env=environment(lake, folder), timeout=400
    )
    said = done.stdout + done.stderr
    assert done.returncode == status, said[-6_000:]
    return said


def sums(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Sums of amounts by country."""
    found: dict[str, float] = {}
    for row in rows:
        found[row["country"]] = found.get(row["country"], 0) + row["amount"]
    return found


AIRFLOW: Final = """
import sys
sys.path.insert(0, sys.argv[1])
import airflow_sales
run = airflow_sales.sales().test()
print("state:", run.state.value)
"""


def test_airflow_adds_new_rows_once(lake: Lamella, tmp_path: Path) -> None:
    """The sensor waits for a snapshot; each run adds the sums of the rows since the last, and a worker compacts."""
    python = path_from_script("environment.py", "airflow")
    run([python, "-m", "airflow", "db", "migrate"], lake, tmp_path)
    raw: list[dict[str, Any]] = []
    for turn in range(2):
        rows = [{"country": "DE" if n % 3 else "FR", "amount": 10 * turn + n} for n in range(50)]
        raw += rows
        lake.table("raw.orders").append(pa.Table.from_pylist(rows), create=True)
        said = run([python, "-c", AIRFLOW, EXAMPLES], lake, tmp_path)
        failures = [line for line in said.splitlines() if "rror" in line]
        assert "state: success" in said, failures
        found = lake.table("shop.sales").scan().to_arrow().to_pylist()
        assert sums(found) == sums(raw)
        assert sum(row["orders"] for row in found) == len(raw)
        done = lake.table("shop.sales").info().properties["airflow.sales.until"]
        assert done == lake.table("raw.orders").info().snapshot_id
    assert [job.state for job in lake.jobs.list(table="shop.sales")] == ["succeeded"] * 2
    assert lake.table("shop.sales").info().block_count == 1


DAGSTER: Final = """
import sys
sys.path.insert(0, sys.argv[1])
import dagster as dg
import dagster_sales as it

resources = {"io_manager": it.LamellaTables(url=sys.argv[2])}
with dg.DagsterInstance.ephemeral() as instance:
    for day in sys.argv[3:]:
        assert dg.materialize([it.orders, it.sales], partition_key=day, resources=resources, instance=instance).success
    done = dg.materialize(
        [it.orders, it.sales, it.total, it.amounts_are_positive],
        selection=dg.AssetSelection.assets(it.total),
        resources=resources,
        instance=instance,
    )
    assert done.success
    print("checks:", [each.passed for each in done.get_asset_check_evaluations()])
"""


def test_dagster_replaces_days(lake: Lamella, tmp_path: Path) -> None:
    """A partition is the rows of a day: running it again changes no row. The definitions load."""
    python = path_from_script("environment.py", "dagster")
    (tmp_path / "dagster.yaml").touch()
    run([python, "-m", "dagster", "definitions", "validate", "-f", EXAMPLES / "dagster_sales.py"], lake, tmp_path)
    days = ["2026-01-02", "2026-01-03", "2026-01-02"]
    assert "checks: [True]" in run([python, "-c", DAGSTER, EXAMPLES, lake.url, *days], lake, tmp_path)
    orders = lake.table("shop.orders").scan().to_arrow().to_pylist()
    assert len(orders) == 2 * 24
    assert {row["ordered_at"].date() for row in orders} == {dt.date(2026, 1, 2), dt.date(2026, 1, 3)}
    assert sums(lake.table("shop.sales").scan().to_arrow().to_pylist()) == sums(orders)
    assert sums(lake.table("shop.total").scan().to_arrow().to_pylist()) == sums(orders)
    assert [each.operation for each in lake.table("shop.sales").snapshots()][:3] == ["overwrite"] * 3

"""Jobs on a standalone cluster of two workers: sent by hand or by ``lamella worker``, and when a process is killed."""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures_server import ServerProcess, StartServer
from lamella.client.http import Lamella
from support.event_tables import EventTable, events
from support.spark_cluster import COMMAND, Events, SparkCluster, begin, run
from support.worker_process import END_S, WorkerProcess, until

pytestmark = [pytest.mark.soak, pytest.mark.spark]

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCKS, ROWS = 40, 1_500
YOUNG_S = 1
#: What one task sorts is so little that the rows go through scratch space.
OUTSIDE_OF_MEMORY = {"memory_mib": 1, "target_rows": 10_000}
#: Python finds Lamella nowhere but where it is installed, or was sent.
NO_OTHER_PATH = {"PYTHONPATH": ""}


@pytest.fixture(scope="module")
def cluster(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Two workers of one core each."""
    assert java_home
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def server(start_server: StartServer, tmp_path: Path) -> ServerProcess:
    """A service whose clean-up takes what is a second old."""
    return start_server(warehouse=tmp_path / "warehouse", vacuum_min_age_s=YOUNG_S)


@pytest.fixture
def table(server: ServerProcess, tmp_path: Path) -> Iterator[EventTable]:
    """Events in blocks that all overlap."""
    rng = random.Random(11)
    with Lamella(server.url) as lake:
        made = EventTable(lake, tmp_path, cluster_key=["day"])
        made.add(*[events(rng, ROWS) for _ in range(BLOCKS)])
        yield made


def names_in(table: EventTable, folder: str) -> list[str]:
    """The files in a folder of the table's own."""
    path = Path(table.handle.info().location.removeprefix("file://")) / folder
    return sorted(os.listdir(path)) if path.exists() else []


def await_sorted_rows(table: EventTable) -> None:
    """Return in the middle of a job, once some tasks have put their rows into scratch space."""
    scratch = Path(table.handle.info().location.removeprefix("file://")) / "_tmp"
    until(lambda: scratch.exists() and len(os.listdir(scratch)) >= 3, "some rows are sorted")


def assert_only_live_objects_after_clean_up(table: EventTable) -> None:
    """`lamella vacuum` leaves nothing in scratch space, and no block that the table does not have."""
    time.sleep(YOUNG_S)
    answer = table.handle.vacuum(execute=True)
    assert (answer.executed, answer.left) == (True, ())
    assert names_in(table, "_tmp") == []
    own = table.handle.info().location + "/_b/"
    live = {block.location for block in table.blocks() if block.location.startswith(own)}
    assert {own + name for name in names_in(table, "_b")} == live


def options(arguments: dict[str, int]) -> list[str]:
    """A job's arguments as they stand in a command."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in arguments.items()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel under the only ending that Spark's Python puts on the executors' path."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built.rename(built.with_suffix(".zip"))


@pytest.fixture(scope="module")
def foreign_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has all that Lamella needs, and no Lamella: it is linked by files that only ours reads."""
    folder = tmp_path_factory.mktemp("foreign")
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (ours,) = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "ours.pth").write_text(ours + "\n", "utf-8")
    python = folder / "bin" / "python"
    command = [str(python), "-c", "import pyarrow, lamella"]
    found = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **NO_OTHER_PATH})
    assert "No module named 'lamella'" in found.stderr
    return python


def test_a_job_sent_by_hand_with_the_wheel_runs_on_both_workers(
    cluster: SparkCluster, table: EventTable, server: ServerProcess, wheel: Path, foreign_python: Path, tmp_path: Path
) -> None:
    """`--py-files` alone brings Lamella to driver and executors; rows stay, and scratch space is left empty."""
    before = table.rows()
    program = tmp_path / "program.py"
    program.write_text("from lamella.client.cli import main\n\nmain()\n", "utf-8")
    done = run(
        [
            *cluster.submit(tmp_path / "events"),
            *("--py-files", str(wheel), str(program), "compact", "--json", "--target-rows=6000", table.name),
        ],
        {"LAMELLA_URL": server.url, "PYSPARK_PYTHON": str(foreign_python), **NO_OTHER_PATH},
        tmp_path / "log",
    )
    assert (done["blocks_before"], done["blocks_after"], done["rows"]) == (BLOCKS, 10, BLOCKS * ROWS)
    assert table.rows() == before
    assert len(Events.read(tmp_path / "events").tasks_by_executor()) == 2
    assert names_in(table, "_tmp") == []


def test_a_job_of_a_worker_outlives_half_of_the_cluster(
    cluster: SparkCluster, table: EventTable, server: ServerProcess, tmp_path: Path
) -> None:
    """`lamella worker` starts it; both members work until one is killed, the other does the rest, and it is right."""
    before = table.rows()
    prefix = shlex.join(cluster.submit(tmp_path / "events"))
    job_id = table.lake.jobs.submit("recluster", table.name, dict(OUTSIDE_OF_MEMORY)).job_id
    worker = WorkerProcess(server.url, tmp_path, "w", "--once", "--command-prefix", prefix, lease_s=60)
    await_sorted_rows(table)
    cluster.lose_worker()
    assert worker.process.wait(2 * END_S) == 0, worker.log.read_text("utf-8")
    done = table.lake.jobs.get(job_id)
    assert (done.state, done.attempts, done.result["rows"]) == ("succeeded", 1, BLOCKS * ROWS)
    assert table.rows() == before
    noted = Events.read(tmp_path / "events")
    assert len(noted.tasks_by_executor()) == 2
    (after,) = noted.lost_after().values()
    assert after > 3
    cluster.add_worker()
    cluster.await_workers()
    assert_only_live_objects_after_clean_up(table)


def test_what_a_killed_job_leaves_is_removed_by_a_clean_up(
    cluster: SparkCluster, table: EventTable, server: ServerProcess, tmp_path: Path
) -> None:
    """A driver that is gone leaves the table as it was, and scratch objects that no one but the clean-up removes."""
    before, snapshot_id = table.rows(), table.handle.info().snapshot_id
    command = [*cluster.submit(tmp_path / "events"), str(COMMAND), "recluster", *options(OUTSIDE_OF_MEMORY), table.name]
    process = begin(command, {"LAMELLA_URL": server.url}, tmp_path / "log")
    await_sorted_rows(table)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=END_S)
    assert names_in(table, "_tmp") != []
    assert (table.handle.info().snapshot_id, table.rows()) == (snapshot_id, before)
    cluster.await_idle()
    assert_only_live_objects_after_clean_up(table)
    assert table.rows() == before

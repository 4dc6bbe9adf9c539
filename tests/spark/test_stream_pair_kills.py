"""Two streams into one table, with jobs and merges tried beside them; driver, service and worker are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from fixtures_server import ServerProcess, StartServer
from lamella.client.http import Lamella
from lamella.client.spark.streaming import PREFIX
from lamella.snapshot.errors import LamellaError
from spark.test_stream_kills import START_S, Driver

pytestmark = [pytest.mark.spark, pytest.mark.soak]

PROGRAM = Path(__file__).with_name("stream_pair_program.py")
#: The sources, and the sign of their ids.
SOURCES = {"db.left": 1, "db.right": -1}
TARGET = "db.target"
ROWS = pa.schema([("id", pa.int64()), ("n", pa.int64())])
KINDS = ("compact", "analyze", "compact", "purge")


def rows_of(ids: list[int]) -> pa.Table:
    """Rows of these ids that no merge has seen."""
    return pa.table({"id": ids, "n": [None] * len(ids)}, ROWS)


class Writer(threading.Thread):
    """Appends consecutive ids to both sources, and submits jobs; goes on when the service was away."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._rng = random.Random(5)
        self.ended = threading.Event()
        self.counts = dict.fromkeys(SOURCES, 0)
        self.jobs = 0
        self.failures = 0
        self.failed: BaseException | None = None

    def run(self) -> None:
        """Until told to end."""
        try:
            with Lamella(self._url) as lake:
                while not self.ended.wait(0.3):
                    self._append(lake, self._rng.choice(list(SOURCES)))
                    if self._rng.random() < 0.2:
                        self._submit(lake)
        except BaseException as error:
            self.failed = error

    def _append(self, lake: Lamella, name: str) -> None:
        first = self.counts[name] + 1
        ids = [SOURCES[name] * at for at in range(first, first + self._rng.randrange(1, 40))]
        try:
            lake.table(name).append(rows_of(ids))
        except LamellaError:
            self.failures += 1
            while (there := self._is_there(lake, name, ids)) is None:
                time.sleep(0.2)
            if not there:
                return
        self.counts[name] += len(ids)

    def _is_there(self, lake: Lamella, name: str, ids: list[int]) -> bool | None:
        """Whether rows were added by a request that failed; None: the service does not answer."""
        try:
            found: int = lake.table(name).scan(f"id = {ids[0]}").to_arrow().num_rows
        except LamellaError:
            return None
        return found > 0

    def _submit(self, lake: Lamella) -> None:
        try:
            lake.jobs.submit(self._rng.choice(KINDS), self._rng.choice([*SOURCES, TARGET]), {}, unique=True)
        except LamellaError:
            self.failures += 1
        else:
            self.jobs += 1


class WorkerProcess:
    """``lamella worker``, in a process group of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self._command = [
            *(sys.executable, "-m", "lamella.client.cli", "worker", "--url", url),
            *("--lease-s", "4", "--poll-s", "0.2", "--grace-s", "1"),
        ]
        self._log = folder / "worker.log"
        self.start()

    def start(self) -> None:
        """Start it."""
        with self._log.open("a") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """It and its programs, without any clean-up."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=START_S)


def start_driver(url: str, folder: Path, trigger: str) -> Driver:
    """Start the program until its queries run; a service that is away while it starts makes it start again."""
    while True:
        driver = Driver(url, folder, trigger, PROGRAM)
        if driver.has_started():
            return driver
        driver.kill()


class Stage:
    """What is killed: driver, service and worker."""

    def __init__(self, server: ServerProcess, folder: Path, rng: random.Random) -> None:
        self._server, self._folder, self._rng = server, folder, rng
        self.worker = WorkerProcess(server.url, folder)
        self.driver = start_driver(server.url, folder, "always")
        self.kills: Counter[str] = Counter()

    def kill_one(self) -> None:
        """Kill one of them at a random moment, and start it again."""
        time.sleep(self._rng.uniform(0, 3))
        name = self._rng.choice(["driver", "service", "worker"])
        self.kills[name] += 1
        if name == "service":
            self._server.kill()
            time.sleep(self._rng.uniform(0, 1))
            self._server.restart()
        elif name == "worker":
            self.worker.kill()
            self.worker.start()
        if name == "driver" or self.driver.process.poll() is not None:
            self.kills["driver, by itself"] += name != "driver"
            self.driver.kill()
            self.driver = start_driver(self._server.url, self._folder, "always")

    def end(self) -> None:
        """Kill driver and worker for good."""
        self.driver.kill()
        self.worker.kill()


@pytest.mark.parametrize("kills", [50])
def test_streams_and_merges_survive_kills_of_all_that_take_part(
    kills: int, java_home: Path, start_server: StartServer, tmp_path: Path
) -> None:
    """Fifty kills at random moments: the target has every row of both sources once, and what the last merge changed.

    Merges run meanwhile, but a driver may not live long enough to commit one.
    """
    assert java_home
    server = start_server(warehouse=tmp_path / "warehouse", catalog=str(tmp_path / "catalog.db"))
    with Lamella(server.url) as lake:
        lake.create_namespace("db")
        for name in (*SOURCES, TARGET):
            lake.table(name).append(rows_of([]), create=True)
    writer = Writer(server.url)
    stage = Stage(server, tmp_path, random.Random(17))
    try:
        writer.start()
        for _ in range(kills):
            stage.kill_one()
            assert writer.failed is None
    finally:
        stage.end()
        writer.ended.set()
        writer.join()
    last = start_driver(server.url, tmp_path, "now")
    last.wait_ended()
    with Lamella(server.url) as lake:
        expected = sorted(sign * at for name, sign in SOURCES.items() for at in range(1, writer.counts[name] + 1))
        sources = [lake.table(name).scan().to_arrow() for name in SOURCES]
        assert sorted(pa.concat_tables(sources)["id"].to_pylist()) == expected
        rows = lake.table(TARGET).scan().to_arrow()
        assert sorted(rows["id"].to_pylist()) == expected
        assert rows["n"].to_pylist() == [2 * number for number in rows["id"].to_pylist()]
        assert sum(name.startswith(PREFIX) for name in lake.table(TARGET).info().properties) == len(SOURCES)
        made = Counter(entry.operation for name in (*SOURCES, TARGET) for entry in lake.table(name).snapshots())
        jobs = Counter(f"{job.kind} {job.state}" for job in lake.jobs.list())
        for name in (*SOURCES, TARGET):
            assert not lake.table(name).verify().findings
    print(f"{dict(stage.kills)}; {len(expected)} rows; {dict(made)}; {dict(jobs)}; {writer.failures} failed requests")
    assert {"driver", "service", "worker"} <= stage.kills.keys()
    assert made["merge"] > 0
    assert made["compact"] > 0
    assert writer.jobs > 0

"""A stream from table to table, whose driver is killed again and again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from fixtures_server import StartServer
from lamella.client.http import Lamella
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.rewrite import compact
from lamella.client.rewrite.engine import ThreadEngine
from lamella.client.spark.streaming import PREFIX
from lamella.snapshot.errors import CommitConflict
from support.spark_environment import spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.soak]

PROGRAM = Path(__file__).with_name("stream_program.py")
SOURCE, TARGET = "db.source", "db.target"
START_S = 300


class Writer(threading.Thread):
    """Appends small blocks of consecutive ids, and compacts both tables now and then."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._rng = random.Random(3)
        self.ended = threading.Event()
        self.count = 0
        self.compactions = 0
        self.failed: BaseException | None = None

    def run(self) -> None:
        """Until told to end."""
        try:
            with Lamella(self._url) as lake:
                while not self.ended.wait(0.2):
                    self._step(lake)
        except BaseException as error:
            self.failed = error

    def _step(self, lake: Lamella) -> None:
        rows = self._rng.randrange(1, 40)
        ids = pa.table({"id": pa.array(range(self.count, self.count + rows), pa.int64())})
        lake.table(SOURCE).append(ids, create=True)
        self.count += rows
        if self._rng.random() < 0.1:
            table = self._rng.choice((SOURCE, SOURCE, TARGET))
            if table == SOURCE or "target" in lake.tables("db"):
                try:
                    done = compact(JobContext(lake=lake, table=table, engine=ThreadEngine(2)))
                except CommitConflict:
                    return  # the stream was faster
                self.compactions += bool(done.tasks)


class Driver:
    """The program, in a process group of its own with its JVM."""

    def __init__(self, url: str, folder: Path, trigger: str, program: Path = PROGRAM) -> None:
        paths = [*sys.path, str(program.parent.parent)]
        self._log = (folder / "driver.log").open("a")
        self.process = subprocess.Popen(
            [sys.executable, program, url, str(folder / "checkpoint"), trigger],
            env=spark_environment() | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )

    def wait_started(self) -> None:
        """Return when the query runs."""
        assert self.has_started(), "the driver ended"

    def has_started(self) -> bool:
        """Wait until the query runs; False: the driver ended before."""
        assert self.process.stdout is not None
        return "started" in self.process.stdout.readline()

    def kill(self) -> None:
        """Driver and JVM at once, without any clean-up."""
        with suppress(ProcessLookupError):  # it ended by itself
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=START_S)
        self._close()

    def wait_ended(self) -> None:
        """Require that it ends by itself, and well."""
        assert self.process.wait(timeout=START_S) == 0
        self._close()

    def _close(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()


@pytest.mark.parametrize("kills", [10])
def test_every_row_is_in_the_target_once_however_often_the_driver_is_killed(
    kills: int, java_home: Path, start_server: StartServer, tmp_path: Path
) -> None:
    """At random moments, also between a commit and the checkpoint, while others append and compact."""
    assert java_home
    server = start_server(warehouse=tmp_path / "warehouse")
    writer = Writer(server.url)
    rng = random.Random(11)
    with Lamella(server.url) as lake:
        lake.create_namespace("db")
        lake.table(SOURCE).append(pa.table({"id": pa.array([-1], pa.int64())}), create=True)
        writer.start()
        for _ in range(kills):
            driver = Driver(server.url, tmp_path, "always")
            driver.wait_started()
            time.sleep(rng.uniform(0, 8))
            driver.kill()
        writer.ended.set()
        writer.join()
        assert writer.failed is None
        last = Driver(server.url, tmp_path, "now")
        last.wait_started()
        last.wait_ended()
        expected = list(range(-1, writer.count))
        assert sorted(lake.table(SOURCE).scan().to_arrow().column("id").to_pylist()) == expected
        assert sorted(lake.table(TARGET).scan().to_arrow().column("id").to_pylist()) == expected
        assert sum(name.startswith(PREFIX) for name in lake.table(TARGET).info().properties) == 1
        batches = sum(entry.operation == "append" for entry in lake.table(TARGET).snapshots())
        assert batches > kills
        assert writer.compactions > 0

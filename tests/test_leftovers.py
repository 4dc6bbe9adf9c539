"""Nothing that a test session started or wrote is there after it ended, however it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

import reaper
from leftovers import MARK
from support.worker_process import is_alive, until

ROOT = Path(__file__).resolve().parent.parent
END_S = 300

#: Processes that no signal to a process group reaches: in sessions of their own, orphans, one that ignores SIGTERM.
SLEEPERS = """
import multiprocessing, subprocess, sys, tempfile, time

def test_sleeps(started, request):
    tempfile.mkdtemp()
    own = subprocess.Popen(["sleep", "600"], start_new_session=True)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
    ignores = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE, start_new_session=True)
    ignores.stdout.readline()
    orphan = subprocess.run(["sh", "-c", "setsid sleep 600 >/dev/null & echo $!"], stdout=subprocess.PIPE).stdout
    forked = multiprocessing.get_context("forkserver").Process(target=time.sleep, args=(600,))
    forked.start()
    started(own.pid, ignores.pid, int(orphan), forked.pid)
    time.sleep(600)
"""

#: The programs that tests start, each as its fixture starts it.
PROGRAMS = """
import time
from pathlib import Path

from fixtures_postgres import postgres_url
from fixtures_s3 import s3
from fixtures_server import ServerProcess, environment_of
from reaper import processes_of
from support.spark_cluster import SparkCluster

def test_runs(started, java_home, s3, postgres_url, tmp_path):
    server = ServerProcess(environment_of({"warehouse": tmp_path / "warehouse", "workers": 2}), tmp_path).wait_ready()
    with SparkCluster(tmp_path / "cluster") as cluster:
        pids = processes_of(MARK, Path(os.environ[MARK]))
        names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids}
        assert {"postgres", "java"} <= names, names
        assert len(pids) > 10, pids
        started(*pids)
        time.sleep(600)
"""

CONFTEST = """
import json, os, sys
from pathlib import Path

import pytest

MARK = "TEST_SESSION"
pytest_plugins = ("leftovers",)

@pytest.fixture
def started():
    def write(*pids):
        part = Path(__file__).with_name("started.part")
        part.write_text(json.dumps({"pids": pids, "worker": os.getpid(), "folder": os.environ[MARK]}))
        part.rename(part.with_name("started.json"))
    return write

@pytest.fixture(scope="session")
def java_home():
    return os.environ["JAVA_HOME"]

@pytest.fixture(scope="session")
def postgres_bin():
    return Path(os.environ["POSTGRES_BIN"])
"""

#: SIGINT does what it does in a terminal, also where this process ignores it, as a job in the background does.
PYTEST = """
import signal, sys
import pytest
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main(sys.argv[1:]))
"""


class Session:
    """A test session of its own, over one file, that is in the middle of its test."""

    def __init__(self, folder: Path, test: str, *options: str, **variables: str) -> None:
        self.temporary = Path(tempfile.mkdtemp(prefix=""))  # a short path, which every user may enter
        self.temporary.chmod(0o711)
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "test_it.py").write_text("import os\nMARK = 'TEST_SESSION'\n" + textwrap.dedent(test))
        paths = os.pathsep.join(str(ROOT / name) for name in ("tests", "scripts"))
        changed = {"PYTHONPATH": paths, "TMPDIR": str(self.temporary), "PYTEST_DEBUG_TEMPROOT": str(self.temporary)}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PYTEST, "-p", "no:cacheprovider", *options, str(folder)],
                env={**inherited, **changed, **variables},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(lambda: (folder / "started.json").exists() or self.process.poll() is not None, "the test runs")
        assert self.process.poll() is None, (folder / "log").read_text()
        said = json.loads((folder / "started.json").read_text())
        self.pids: list[int] = said["pids"]
        self.worker: int = said["worker"]
        self.folder = Path(said["folder"])

    def wait_nothing_left(self) -> None:
        """Return once the session has ended, and there is nothing of it."""
        self.process.wait(END_S)
        self.wait_all_ended()
        until(lambda: not self._folders(), "its folders are removed")

    def wait_all_ended(self) -> None:
        """Return once nothing runs that the session started."""
        until(lambda: not any(is_alive(pid) for pid in self.pids), "what the test started ends")
        until(lambda: not reaper.processes_of(MARK, self.folder), "what belongs to the session ends")

    def _folders(self) -> Sequence[Path]:
        return [
            *self.temporary.glob("test-*"),
            *self.temporary.glob("tmp*"),
            *self.temporary.glob("pytest-of-*/*-[0-9]*"),
        ]


@pytest.mark.parametrize(
    ("how", "options"),
    [
        pytest.param(signal.SIGINT, [], id="interrupted"),
        pytest.param(signal.SIGKILL, ["-n1"], id="killed-spread"),
        pytest.param(signal.SIGKILL, [], id="killed", marks=pytest.mark.soak),
        pytest.param(signal.SIGINT, ["-n1"], id="interrupted-spread", marks=pytest.mark.soak),
    ],
)
@pytest.mark.few(1)
def test_a_session_that_is_ended_leaves_nothing(tmp_path: Path, how: signal.Signals, options: list[str]) -> None:
    """By Ctrl-C and by SIGKILL, with pytest-xdist and without."""
    session = Session(tmp_path, SLEEPERS, *options)
    session.process.send_signal(how)
    session.wait_nothing_left()


def test_a_killed_worker_leaves_nothing(tmp_path: Path) -> None:
    """A process of pytest-xdist: what it started ends, though the session goes on."""
    session = Session(tmp_path, SLEEPERS, "-n1")
    os.kill(session.worker, signal.SIGKILL)
    session.wait_all_ended()
    assert session.process.wait(END_S) == pytest.ExitCode.TESTS_FAILED
    until(lambda: not list(session.temporary.glob("test-*")), "its folders are removed")


def test_a_session_that_comes_to_its_end_keeps_the_folders_of_its_tests(tmp_path: Path) -> None:
    """Or nobody could look into a failure; what was started, and other temporary folders, are gone."""
    failing = SLEEPERS.replace("    time.sleep(600)\n", "    (tmp_path / 'kept').touch()\n    raise AssertionError\n")
    session = Session(tmp_path, failing.replace("request", "tmp_path"), "-n1")
    assert session.process.wait(END_S) == pytest.ExitCode.TESTS_FAILED
    session.wait_all_ended()
    assert len(list(session.temporary.glob("pytest-of-*/pytest-0/popen-gw0/test_sleeps0/kept"))) == 1
    assert not list(session.temporary.glob("test-*"))


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.s3
@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=pytest.mark.soak), signal.SIGKILL])
@pytest.mark.few(1)
def test_all_that_tests_start_ends_with_them(
    tmp_path: Path, java_home: Path, postgres_bin: Path, how: signal.Signals
) -> None:
    """PostgreSQL, moto, a service with two workers, and a Spark cluster: none outlives the session."""
    session = Session(tmp_path, PROGRAMS, JAVA_HOME=str(java_home), POSTGRES_BIN=str(postgres_bin))
    os.kill(session.process.pid, how)
    session.wait_nothing_left()

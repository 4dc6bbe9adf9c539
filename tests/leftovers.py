"""A test session leaves no process and no temporary folder behind, however it ends. A pytest plugin.

Each process that runs tests has a temporary folder of its own, in TMPDIR and in the variable that marks what it starts,
and a reaper (scripts/reaper.py) that outlives it: when the process ends, by itself, by Ctrl-C or by SIGKILL, the reaper
kills everything that is marked and removes the folder. The folder of a worker of pytest-xdist is below the session's.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

import reaper

#: The variable that marks the processes of a session. The tests' services do not inherit LAMELLA_*.
MARK = "TEST_SESSION"

_REAPER = pytest.StashKey[subprocess.Popen[str]]()


def mark() -> dict[str, str]:
    """The variable for a process that is started with an environment of its own."""
    return {MARK: os.environ[MARK]}


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder, and start the reaper."""
    # pytest's own folder (`tmp_path`) stays where it was, so that a failure can be looked into afterwards
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="test-"))  # short: paths of sockets below it have 107 bytes at most
    folder.chmod(0o711)  # PostgreSQL's user passes through it
    os.environ["TMPDIR"] = os.environ[MARK] = tempfile.tempdir = str(folder)
    config.stash[_REAPER] = reaper.start(MARK, folder)
    reaper.send_line(config.stash[_REAPER], f"remove {folder}")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let the reaper remove pytest's folder, too, unless the session comes to its end."""
    if not session.config.option.basetemp:
        base = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # as pytest-xdist does it
        reaper.send_line(session.config.stash[_REAPER], f"remove {base}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep pytest's folder when all tests ran."""
    if not session.config.option.basetemp and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        base = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # as above
        reaper.send_line(session.config.stash[_REAPER], f"keep {base}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Return once everything that was started is gone."""
    process = config.stash.get(_REAPER, None)
    if process is not None:
        reaper.send_line(process, "end")
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        process.returncode = 0  # it ends after this process, which does not wait for it

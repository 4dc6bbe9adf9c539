"""Rows that statements change are written exactly once, whatever becomes of Spark's tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures_server import StartServer
from support.spark_cluster import SparkCluster
from support.spark_environment import spark_environment

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).with_name("row_level_program.py")
#: Rows, different ids, the lowest and highest id, changed rows, rows as they were.
AFTER = [2000, 2000, 0, 1999, 1000, 1000]
BEFORE = [2000, 2000, 0, 1999, 0, 2000]


@pytest.fixture(params=["local[2,3]", "cluster"])
def master(request: pytest.FixtureRequest, java_home: Path, tmp_path: Path) -> Iterator[str]:
    """Three attempts for each task; on a cluster Spark starts a second attempt beside one that takes long."""
    assert java_home
    if request.param != "cluster":
        yield request.param
        return
    with SparkCluster(tmp_path / "cluster") as running:
        yield running.url


@pytest.mark.soak
def test_only_one_attempt_of_each_task_counts(master: str, start_server: StartServer, tmp_path: Path) -> None:
    """An attempt that fails leaves no row; if all fail nothing is committed. Scratch space is empty in the end."""
    server = start_server(warehouse=tmp_path / "warehouse")
    scratch = tmp_path / "scratch"
    marks = tmp_path / "marks"
    for folder in (scratch, marks):
        folder.mkdir()
    paths = [*sys.path, str(PROGRAM.parent.parent)]
    done = subprocess.run(
        [sys.executable, PROGRAM, server.url, master, f"file://{scratch}", marks],
        env=spark_environment() | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["fails_at_first"] == {"error": None, "rows": AFTER, "is_unchanged": False}
    assert found["stalls_at_first"] == {"error": None, "rows": AFTER, "is_unchanged": False}
    failed = found["fails_always"]
    assert "each attempt fails" in failed.pop("error")
    assert failed == {"rows": BEFORE, "is_unchanged": True}
    assert [*scratch.iterdir()] == []
    if master.startswith("spark:"):
        assert {each.name for each in marks.iterdir()} >= {"attempt-0", "attempt-1"}

"""The processes of an engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.worker_process import is_alive, until

PROGRAM = """
import json, os, time
from lamella.client.rewrite.engine import LocalEngine

class Pid:
    task_type = int
    result_type = int

    def __call__(self, task):
        time.sleep(0.2)  # so that both processes have a task
        return os.getpid()

if __name__ == "__main__":
    engine = LocalEngine(2)
    print(json.dumps([pid for _, pid in engine.run(Pid(), range(4))]), flush=True)
    time.sleep(600)
"""


def test_processes_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    """Though they hold both ends of the pipe that they wait at."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    process = subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    pids = set(json.loads(process.stdout.readline()))
    assert process.pid not in pids
    process.kill()
    process.wait()
    process.stdout.close()
    until(lambda: not any(is_alive(pid) for pid in pids), "its processes end")

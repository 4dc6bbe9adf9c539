"""``lamella worker`` as a process of its own, and what its jobs left in their ledger."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

END_S = 300


class WorkerProcess:
    """One worker. ``log`` is the file that it logs to."""

    def __init__(self, url: str, folder: Path, name: str, *options: str, lease_s: int = 5) -> None:
        self.log = folder / f"{name}.log"
        own = ["--url", url, "--name", name, "--lease-s", str(lease_s), "--poll-s", "0.1", "--grace-s", "2", "--json"]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lamella.client.cli", "worker", *own, *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        """As ``kill -9`` does."""
        self.process.kill()
        self.process.wait(END_S)

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(END_S)

    def events(self) -> list[dict[str, Any]]:
        """What it logged."""
        return [json.loads(line) for line in self.log.read_text("utf-8").splitlines() if line.startswith("{")]


class Ledger:
    """The file that pretended jobs write to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """What they did, in order."""
        found = [json.loads(line) for line in self.path.read_text("utf-8").splitlines()]
        return [line for line in found if event in (None, line["event"])]

    def await_lines(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        """The same, once there are so many."""
        until(lambda: len(self.lines(event)) >= count, f"{count} times {event}")
        return self.lines(event)


def until(holds: Callable[[], bool], what: str) -> None:
    """Return as soon as something holds; fail when it does not come to that."""
    give_up_s = time.monotonic() + END_S
    while not holds():
        assert time.monotonic() < give_up_s, f"it did not come to: {what}"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether there is such a process, one that is not merely waiting to be collected."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"

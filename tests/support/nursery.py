"""Service processes that start fast: each is forked from a process that has imported everything already.

They are uvicorn servers like any other, with their settings handed over instead of read from the environment, so a
test can kill and restart one hundreds of times.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from lamella.service.config.settings import Settings
from lamella.service.process.server import serve
from support.ports import free_port

START_S = 300
STOP_S = 300


def run(settings: Mapping[str, Any], log: str) -> None:
    """Serve until the process ends; what is written goes to the end of ``log``."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    serve(Settings(**settings))


class Nursling:
    """One service on a port of its own. ``url`` is its address; it is not started yet."""

    def __init__(self, settings: Mapping[str, Any], folder: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / f"service-{port}.log"
        self._settings = {"log_level": "warning", "log_requests": False, **settings, "port": port}
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        self._process: BaseProcess | None = None

    def start(self, **changed: Any) -> None:
        """Start it, from now on with these settings changed; it is ready later."""
        assert self._process is None
        self._settings.update(changed)
        self._process = self._context.Process(target=run, args=(self._settings, str(self.log)))
        with pytest.MonkeyPatch.context() as patch:
            # The process that services are forked from finds modules by this variable alone.
            patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
            self._process.start()

    def wait_ready(self) -> None:
        """Return once it is ready; fail the test with its log when that does not happen."""
        assert self._process is not None
        give_up = time.monotonic() + START_S
        while time.monotonic() < give_up and self._process.is_alive():
            try:
                with urllib.request.urlopen(f"{self.url}/health/ready", timeout=30):  # noqa: S310  # our own URL
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.01)
        pytest.fail(f"the service did not become ready:\n{self.log_text()}")

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.join(STOP_S)
            self._process.close()
            self._process = None

    def log_text(self) -> str:
        """The end of what it wrote."""
        return self.log.read_text(errors="replace")[-8_000:] if self.log.exists() else ""

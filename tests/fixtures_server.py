"""The service as a process of its own on a loopback port. A pytest plugin.

``start_server`` starts any number of services with the settings it is given; ``server`` is one with SQLite and a local
warehouse in the test's folder; :func:`start_shared` is for fixtures of a wider scope. When a test fails, the end of
each service's log is part of the report.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from support.forked_service import ForkedService
from support.ports import free_port

START_S = 300
STOP_S = 300
LOG_CHARACTERS = 8_000

_SERVERS = pytest.StashKey[list["ServerProcess"]]()
_SHARED = pytest.StashKey[list["ServerProcess"]]()


class ServerProcess:
    """One service process. ``url`` is its address, ``environment`` its settings, ``folder`` holds its log."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self.environment = dict(environment)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"service-{self.port}.log"
        self._start()

    def _start(self) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAMELLA_")}
        # No proxy has to notice that it is being stopped, where a test does not say so.
        given = {**inherited, "LAMELLA_DRAIN_S": "0", **self.environment, "LAMELLA_PORT": str(self.port)}
        self.process: subprocess.Popen[bytes] | ForkedService = ForkedService(given, self.log)

    def wait_ready(self) -> ServerProcess:
        """Return once the service is ready; fail the test with its log when that does not happen."""
        give_up = time.monotonic() + START_S
        while time.monotonic() < give_up and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/health/ready", timeout=10):  # noqa: S310  # our own URL
                    return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.02)
        pytest.fail(f"the service did not become ready:\n{self.log_text()}")

    def kill(self) -> None:
        """As ``kill -9`` does: no clean-up of any kind."""
        self.process.kill()
        self.process.wait(timeout=STOP_S)

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=STOP_S)

    def restart(self) -> ServerProcess:
        """Start it again on the same port, warehouse and catalog, after :meth:`kill` or :meth:`stop`."""
        self._start()
        return self.wait_ready()

    def log_text(self) -> str:
        """All that it wrote."""
        return self.log.read_text(errors="replace")


StartServer = Callable[..., ServerProcess]


def environment_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings, as ``warehouse=...``, as the environment of a service."""
    return {f"LAMELLA_{name.upper()}": str(value) for name, value in settings.items()}


@pytest.fixture
def start_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartServer]:
    """Start a service with the given settings and wait until it is ready; it is stopped after the test."""
    servers = request.node.stash.setdefault(_SERVERS, [])

    def start(**settings: Any) -> ServerProcess:
        server = ServerProcess(environment_of(settings), tmp_path)
        servers.append(server)
        return server.wait_ready()

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def server(start_server: StartServer, tmp_path: Path) -> ServerProcess:
    """A service of this test's own, with SQLite and a local warehouse."""
    return start_server(warehouse=tmp_path / "warehouse")


def start_shared(config: pytest.Config, folder: Path, settings: Mapping[str, Any]) -> ServerProcess:
    """A service that several tests share; whoever starts it stops it. Its log, too, is part of failures' reports."""
    server = ServerProcess(environment_of(settings), folder).wait_ready()
    config.stash.setdefault(_SHARED, []).append(server)
    return server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the logs of the services to the report of a failure."""
    report = yield
    if report.failed:
        for server in [*item.stash.get(_SERVERS, []), *item.config.stash.get(_SHARED, [])]:
            report.sections.append((f"log of {server.url}", server.log_text()[-LOG_CHARACTERS:]))
    return report

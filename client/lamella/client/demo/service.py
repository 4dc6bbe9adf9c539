"""The service as a child process on a loopback port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from lamella.client.demo.folder import Folder
from lamella.client.http import Lamella
from lamella.client.http.pool import PooledTransport
from lamella.client.http.transport import HttpRequest, TransportFailure
from lamella.client.jobs import nanny
from lamella.snapshot.errors import LamellaError

START_S = 60.0
STOP_S = 20.0
_READY = HttpRequest(method="GET", target="/health/ready")


class ServiceProcess:
    """``lamella serve`` over the demo's warehouse, from ``with`` to its end."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it is ready; raises LamellaError with the end of its log when it does not."""
        self._folder.root.mkdir(parents=True, exist_ok=True)
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [
            # it ends the service when this process is killed
            *(sys.executable, "-I", "-S", str(Path(nanny.__file__)), str(STOP_S)),
            *(sys.executable, "-m", "lamella.client.cli", "serve"),
            *("--warehouse", str(self._folder.warehouse)),
            *("--catalog", str(self._folder.catalog)),
            *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        ]
        # The demo's service is what is written here, whatever LAMELLA_* says of another one.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LAMELLA_")}
        environment["LAMELLA_DRAIN_S"] = "0"  # nobody has to notice its end
        with self._folder.service_log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End it: by SIGTERM, and by SIGKILL when that takes longer than STOP_S."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None  # noqa: S101  # it is a pipe
        process.stdin.close()
        process.wait()

    def lake(self) -> Lamella:
        """A client of it."""
        return Lamella(self.url, timeout_s=600.0)

    def _wait_ready(self) -> None:
        transport = PooledTransport(self.url, timeout_s=5.0)
        give_up = time.monotonic() + START_S
        try:
            while time.monotonic() < give_up:
                if self._process is None or self._process.poll() is not None:
                    break
                try:
                    if transport.send(_READY).status == 200:
                        return
                except TransportFailure:
                    pass  # not listening yet
                time.sleep(0.05)
        finally:
            transport.close()
        tail = self._folder.service_log.read_text(errors="replace")[-2000:].strip()
        raise LamellaError(f"the service did not start; the end of {self._folder.service_log}: {tail}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port

"""A real service on a loopback port, for benchmarks."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START_S = 180.0


class Service:
    """A Lamella service that logs to ``folder``; a context manager. ``settings``: by name, without prefix.

    ``module``: what Python runs; another one than the service's own starts it in another way.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str], module: str = "lamella.service") -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = int(listener.getsockname()[1])
        given = {"port": str(self.port), "log_requests": "false", "drain_s": "0", **settings}
        environment = {f"LAMELLA_{name.upper()}": value for name, value in given.items()}
        self._log = (folder / "service.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            env={**os.environ, **environment},
            stdout=self._log,
            stderr=self._log,
        )
        self._local = threading.local()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def __enter__(self) -> Service:
        """Wait until it is ready."""
        until = time.monotonic() + START_S
        while True:
            try:
                self.send("GET", "/health/ready")
            except (OSError, RuntimeError):
                self.hang_up()
                if time.monotonic() > until or self._process.poll() is not None:
                    raise
                time.sleep(0.1)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.hang_up()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        self._log.close()

    def send(self, method: str, path: str, body: bytes = b"", *, key: str | None = None) -> Any:
        """Send a request over this thread's own connection; returns the JSON of the answer."""
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        headers = {"content-type": "application/json", **({} if key is None else {"idempotency-key": key})}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{path}: {answer.status} {data[:500]!r}")
        return json.loads(data) if data else None

    def hang_up(self) -> None:
        """Close this thread's connection; the next request opens a new one."""
        connection = self._local.__dict__.pop("connection", None)
        if connection is not None:
            connection.close()

    def metric(self, name: str) -> float:
        """Return the value of a metric without labels."""
        lines = self.text("/metrics").splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    def text(self, path: str) -> str:
        """Return the answer to a GET on a new connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path)
        text = connection.getresponse().read().decode()
        connection.close()
        return text


@contextmanager
def serving(settings: Mapping[str, str]) -> Iterator[Service]:
    """Yield a service with a temporary folder, which also contains the warehouse unless ``settings`` name one."""
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as folder:
        given = {"warehouse": f"{folder}/warehouse", **settings}
        with Service(Path(folder), given) as service:
            yield service


def written_bytes(folder: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

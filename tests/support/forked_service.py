"""``python -m lamella.service``, started fast: forked from a process that has imported the service already.

Importing it takes seconds of processor time, and the tests start hundreds of services. The rest of a service's life is
that of any other: its settings come from its environment, and it serves until a signal ends it.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_POLL_S = 0.01


class ForkedService:
    """A service; as the :class:`subprocess.Popen` of one."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self.returncode: int | None = None
        self._template = _template()
        inherited = {"folder": os.getcwd(), "files": resource.getrlimit(resource.RLIMIT_NOFILE)}
        self.pid: int = self._template.ask({"environment": dict(environment), "log": str(log), **inherited})

    def poll(self) -> int | None:
        """The exit status, the number of a signal less than zero; None while it runs."""
        if self.returncode is None:
            self.returncode = self._template.ask({"pid": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once there is one; raises TimeoutExpired."""
        give_up_s = time.monotonic() + (timeout or threading.TIMEOUT_MAX)
        while (status := self.poll()) is None:
            if time.monotonic() > give_up_s:
                raise subprocess.TimeoutExpired(["lamella.service"], timeout or 0)
            time.sleep(_POLL_S)
        return status

    def send_signal(self, number: int) -> None:
        """A signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        self.send_signal(signal.SIGKILL)


class _Template:
    """The process that services are forked from. It ends with this one."""

    def __init__(self) -> None:
        paths = os.pathsep.join(path for path in sys.path if path)
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: Mapping[str, Any]) -> Any:
        """Its answer: the number of a process, or the exit status of one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())


@functools.cache
def _template() -> _Template:
    return _Template()


def _fork_for(requests: int, answers: int) -> Mapping[str, Any] | None:
    """Answer requests; what to serve with, in each new process, and None when no request can come any more."""
    with os.fdopen(requests, "r", encoding="utf-8") as lines:
        while line := lines.readline():
            request = json.loads(line)
            if "pid" in request:
                pid, status = os.waitpid(request["pid"], os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if pid else None
            else:
                answer = os.fork()
                if not answer:
                    os.close(answers)
                    return dict(request)
            os.write(answers, json.dumps(answer).encode() + b"\n")
    return None


def _become(request: Mapping[str, Any]) -> None:
    """Take on the environment and the log of a service, and what it would inherit from the one who asks."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    more = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # plug-ins of a test
    sys.path[:0] = [path for path in more if path and path not in sys.path]
    time.tzset()
    os.chdir(request["folder"])
    resource.setrlimit(resource.RLIMIT_NOFILE, request["files"])
    nothing = os.open(os.devnull, os.O_RDWR)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor, meant in enumerate((nothing, log, log)):
        os.dup2(meant, descriptor)
    os.close(nothing)
    os.close(log)


def _main() -> int:
    import lamella.service.__main__
    import lamella.service.process.server  # what takes long

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the services; this ends with its owner
    gc.freeze()
    request = _fork_for(os.dup(0), os.dup(1))
    if request is None:
        return 0
    _become(request)
    return lamella.service.__main__.main()


if __name__ == "__main__":
    sys.exit(_main())

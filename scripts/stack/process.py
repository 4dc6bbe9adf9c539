"""A service as a local process: started, checked, restarted when it ends, stopped with its children."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import reaper
from stack.compose import Service
from stack.recipes import Recipe

#: Seconds between two starts, as in a container engine: the first wait, doubled up to the second.
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 10.0
#: After running for this long the wait is reset.
_STABLE_AFTER_S: Final = 10.0
_POLL_S: Final = 0.05


class DidNotStart(Exception):
    """A service ended or never became healthy; the message includes the end of its log."""


class Member:
    """One service of a running stack. ``log``: the file that it writes to."""

    def __init__(self, service: Service, recipe: Recipe, log: Path) -> None:
        self.service = service
        self.recipe = recipe
        self.log = log
        self.starts = 0
        self.is_well = False
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()
        self._watch: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """The process id of its first process."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def start(self) -> None:
        """Start it; from now on it is restarted when it ends, if the compose file says so."""
        self._spawn()
        if self.service.restarts:
            self._watch = threading.Thread(target=self._keep, name=f"keeper of {self.service.name}", daemon=True)
            self._watch.start()

    def _spawn(self) -> None:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.recipe.command,
                env=self.recipe.environment,
                user=self.recipe.user,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.starts += 1

    def _keep(self) -> None:
        wait_s = _FIRST_WAIT_S
        while not self._ending.is_set():
            began = time.monotonic()
            assert self._process is not None  # noqa: S101  # it was started
            self._process.wait()
            self.is_well = False
            if time.monotonic() - began > _STABLE_AFTER_S:
                wait_s = _FIRST_WAIT_S
            if self._ending.wait(wait_s):
                return
            wait_s = min(_LONGEST_WAIT_S, 2 * wait_s)
            self._spawn()

    def wait_done(self, timeout_s: float) -> None:
        """Wait until it has ended successfully: for services that run once."""
        assert self._process is not None  # noqa: S101  # it was started
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            status = None
        if status != 0:
            raise DidNotStart(f"{self.service.name} ended with {status}:\n{self.tail()}")

    def wait_well(self, timeout_s: float) -> None:
        """Wait until its health check succeeds; without one, until it runs."""
        give_up = time.monotonic() + timeout_s
        while not self.check():
            if time.monotonic() > give_up or (self.pid is None and not self.service.restarts):
                raise DidNotStart(f"{self.service.name} did not become well in {timeout_s:.0f} s:\n{self.tail()}")
            if self.starts > 5:
                raise DidNotStart(f"{self.service.name} ends whenever it is started:\n{self.tail()}")
            time.sleep(_POLL_S)

    def check(self) -> bool:
        """Whether it is healthy now."""
        health = self.recipe.health
        self.is_well = self.pid is not None
        if health is not None and self.is_well:
            try:
                done = subprocess.run(
                    health.command,
                    env=self.recipe.environment,
                    check=False,
                    timeout=health.timeout_s,
                    capture_output=True,
                    stdin=subprocess.DEVNULL,
                )
                self.is_well = done.returncode == 0
            except subprocess.TimeoutExpired:
                self.is_well = False
        return self.is_well

    def request_stop(self) -> None:
        """Send its stop signal, as an outsider would; it is restarted."""
        if self._process is not None:
            _signal(self._process.pid, signal.Signals[self.service.stop_signal])

    def end(self) -> None:
        """Stop it as a container engine does: send its stop signal, then SIGKILL what is left after the timeout."""
        self._ending.set()
        process = self._process
        if process is None:
            return
        left = list(family(process.pid))
        if process.poll() is None:
            for pid in left:
                _signal(pid, signal.SIGCONT)
            process.send_signal(signal.Signals[self.service.stop_signal])
            with suppress(subprocess.TimeoutExpired):
                process.wait(self.service.stop_grace_s)
        for pid in {*left, *family(process.pid)}:
            if _session(pid) == process.pid or pid == process.pid:
                _signal(pid, signal.SIGKILL)
        process.wait()
        if self._watch is not None:
            self._watch.join()

    def tail(self) -> str:
        """Return the end of its log."""
        return self.log.read_text("utf-8", errors="replace")[-4_000:]


def family(pid: int) -> Iterator[int]:
    """Yield a process and all its descendants, children first."""
    with suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text("utf-8").split():
                yield from family(int(child))
    yield pid


#: The environment variable that marks the processes of a stack.
FOLDER: Final = "STACK_FOLDER"


def members_of(folder: Path) -> list[int]:
    """Return the processes of the stack of a folder, whether or not its supervisor is running."""
    return reaper.processes_of(FOLDER, folder)


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process and all its descendants, as for a container."""
    if number is signal.SIGKILL:
        # stopped first, so that none of them starts another process in the meantime
        for each in list(family(pid)):
            _signal(each, signal.SIGSTOP)
    for each in list(family(pid)):
        _signal(each, number)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(OSError):
        os.kill(pid, number)

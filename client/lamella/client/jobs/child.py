"""The process of a job's program, as its worker sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Literal

from lamella.client.jobs import nanny

#: A longer line is taken in pieces.
_LINE_BYTES: Final = 1 << 20
#: How long output is waited for once the program is over, in seconds: something that left the group may hold the pipe.
_DRAIN_S: Final = 5.0

_LOST: Final = 255

Stream = Literal["stdout", "stderr"]


class Child:
    """A program in a process group of its own, which ends with this process.

    ``on_line``: called with each line of its output, without its end, by threads of this object. ``on_exit``: called
    when the program is over, and everything of it was read.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        grace_s: float,
        on_line: Callable[[Stream, bytes], None],
        on_exit: Callable[[], None],
    ) -> None:
        self._on_line = on_line
        self._on_exit = on_exit
        self._lock = threading.Lock()
        self._is_over = self._is_lost = False
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(nanny.__file__)), str(grace_s), *command],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None  # noqa: S101  # it is a pipe
        assert self._process.stderr is not None  # noqa: S101
        self._readers = [
            threading.Thread(target=self._read, args=("stdout", self._process.stdout), daemon=True),
            threading.Thread(target=self._read, args=("stderr", self._process.stderr), daemon=True),
        ]
        try:
            for thread in (*self._readers, threading.Thread(target=self._wait, daemon=True)):
                thread.start()
        except BaseException:  # the system starts no thread: nobody would watch over the program, or read what it says
            self.kill()
            self._process.wait()
            raise

    @property
    def pid(self) -> int:
        """The leader of its process group."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The status it ended with, 128 and more for a signal; None while it runs, or is still being read.

        255 where nobody can tell: this process ignores SIGCHLD.
        """
        with self._lock:
            if not self._is_over:
                return None
        if self._is_lost:
            return _LOST
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    def terminate(self) -> None:
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it, and all that it started in its group, at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            if not self._is_over:  # the leader is not reaped before, so the group's number is still its own
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)

    def _wait(self) -> None:
        try:
            if hasattr(os, "waitid"):  # not on every system
                try:
                    os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
                except ChildProcessError:
                    self._is_lost = True
            else:
                self._process.wait()
            self.kill()  # what the program left behind
            for reader in self._readers:
                reader.join(_DRAIN_S)
        finally:
            with self._lock:
                self._process.wait()
                self._is_over = True
            self._on_exit()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None and not any(reader.is_alive() for reader in self._readers):
                pipe.close()

    def _read(self, stream: Stream, pipe: BinaryIO) -> None:
        while line := pipe.readline(_LINE_BYTES):
            # A line that cannot be told must not end the reading: the program would wait for it for ever.
            with suppress(Exception):
                self._on_line(stream, line.rstrip(b"\r\n"))

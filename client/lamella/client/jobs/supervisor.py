"""Runs a command for as long as its own parent lives: ``supervisor.py GRACE_S COMMAND...``.

It runs between a worker and the program of a job; the two share a process group. Its standard input is a pipe from the
worker that is never written to. The pipe ends when the worker dies, for whatever reason; the supervisor then sends
SIGTERM to the group, and SIGKILL after the grace period. Otherwise it exits with the command's status, or with 128 plus
the number of the signal that ended the command.

SIGTERM is meant for the command; the supervisor ignores it. It is started by its path and imports only the standard
library, so that no missing package can break it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time


def main(grace_s: float, command: list[str]) -> int:
    """Run the command; returns the exit status."""
    if os.getpgrp() != os.getpid():
        os.setsid()  # it kills its whole group, which must be its own
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _pass)  # a handler, and not SIG_IGN, which the command would inherit
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    watched = [0, woken]
    while process.poll() is None:
        ready, _, _ = select.select(watched, [], [])
        if woken in ready:
            os.read(woken, 512)
        if 0 in ready and not os.read(0, 512):
            _end_group(process, grace_s)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _pass(_number: int, _frame: object) -> None:
    """Do nothing: the wake-up pipe records the signal."""


def _end_group(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Kill everything in this process group, finally this process."""
    os.killpg(0, signal.SIGTERM)
    give_up_s = time.monotonic() + grace_s
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=max(0.0, give_up_s - time.monotonic()))
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))

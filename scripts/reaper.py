"""Kills what a process started, and removes its temporary folders, when that process ends: ``reaper.py NAME=FOLDER``.

Its standard input is a pipe from the process that it works for, the owner, and nobody else holds the other end. When
the pipe ends the owner is gone, whatever killed it. Then every process that belongs to the folder gets SIGTERM, and
SIGKILL after a grace.

A process belongs to the folder when its environment has the variable NAME with that folder or one below it: children
inherit it, into sessions and process groups of their own, too. Two programs overwrite their environment with their
title: PostgreSQL is known by its working folder, nginx by the folder that its title names.

The owner writes lines. ``remove PATH``: remove that folder after the processes. ``keep PATH``: do not. ``end``: kill
the processes now, except the owner's helpers of multiprocessing, which end with it; the answer is an empty line.

It runs in a session of its own, so that Ctrl-C does not reach it, and imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

GRACE_S = 5.0
_POLL_S = 0.02
#: Programs that ignore SIGTERM, and end when their owner does.
_HELPERS = (b"multiprocessing.resource_tracker", b"multiprocessing.forkserver")


def processes_of(name: str, folder: Path) -> list[int]:
    """Return the processes that belong to a folder, identified by the variable ``name``; zombies are ignored."""
    path = os.fsencode(folder)
    entry = os.fsencode(name) + b"=" + path
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = b"\0" + (process / "environ").read_bytes()
            if b"\0" + entry + b"\0" in environment or b"\0" + entry + b"/" in environment or _titled(process, folder):
                found.append(int(process.name))
    return found


def _titled(process: Path, folder: Path) -> bool:
    """Whether a process overwrites its environment and belongs to the folder."""
    match (process / "comm").read_text("utf-8").strip():
        case "postgres":
            return (process / "cwd").readlink().is_relative_to(folder)
        case "nginx":
            return os.fsencode(f" {folder}/") in (process / "cmdline").read_bytes()
    return False


def kill(name: str, folder: Path, *, helped: int | None = None) -> None:
    """Kill all processes of a folder except this one and the multiprocessing helpers of the process ``helped``."""
    known: set[int] = set()
    give_up_s = time.monotonic() + GRACE_S
    while left := [pid for pid in processes_of(name, folder) if pid != os.getpid() and not _helps(pid, helped)]:
        is_overdue = time.monotonic() > give_up_s
        for pid in left:
            if is_overdue or pid not in known:
                known.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
                    os.kill(pid, signal.SIGKILL if is_overdue else signal.SIGTERM)
        time.sleep(_POLL_S)


def _helps(pid: int, owner: int | None) -> bool:
    """Whether a process is a child of the owner that tracks resources or forks processes for multiprocessing."""
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[1])
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False  # it is gone
    return parent == owner and any(word in command for word in _HELPERS)


def start(name: str, folder: Path) -> subprocess.Popen[str]:
    """Start a reaper for this process; configure it with :func:`send_line`."""
    environment = {key: value for key, value in os.environ.items() if key != name}
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, f"{name}={folder}"],
        env=environment,
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        encoding="utf-8",
        errors="surrogateescape",
    )


def send_line(reaper: subprocess.Popen[str], line: str) -> None:
    """Write a line to a reaper; does nothing when it has ended."""
    assert reaper.stdin is not None  # noqa: S101  # it is a pipe
    with contextlib.suppress(BrokenPipeError):
        reaper.stdin.write(line + "\n")
        reaper.stdin.flush()


def dismiss(reaper: subprocess.Popen[str]) -> None:
    """Stop a reaper while its owner is alive: it cleans up now."""
    assert reaper.stdin is not None  # noqa: S101  # they are pipes
    assert reaper.stdout is not None  # noqa: S101
    with contextlib.suppress(BrokenPipeError):
        reaper.stdin.close()
    reaper.wait()
    reaper.stdout.close()


def main(name: str, folder: Path, lines: IO[str]) -> None:
    """Run until the owner ends, then clean up after it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folders: list[Path] = []
    for line in lines:
        word, _, path = line.rstrip("\n").partition(" ")
        match word:
            case "remove":
                folders.append(Path(path))
            case "keep":
                folders = [each for each in folders if each != Path(path)]
            case "end":
                kill(name, folder, helped=os.getppid())
                with contextlib.suppress(BrokenPipeError):
                    print(flush=True)
    kill(name, folder)
    for each in folders:
        for _ in range(10):
            shutil.rmtree(each, ignore_errors=True)
            if not each.exists():
                break
            time.sleep(_POLL_S)


if __name__ == "__main__":
    variable, _, path = sys.argv[1].partition("=")
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]  # it is a text file
    main(variable, Path(path), sys.stdin)

"""Timing of calls: wall-clock and processor time, medians over different questions."""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

_T = TypeVar("_T")


class Timing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Milliseconds of one call; ``cpu_ms`` is the processor's time of all threads of the process, a median too."""

    p50_ms: float
    cpu_ms: float
    min_ms: float
    max_ms: float
    repeats: int


def timed(call: Callable[[], _T], cpu: Callable[[], float] = time.process_time) -> tuple[_T, float, float]:
    """Return a call's result, and its seconds of wall-clock and processor time, which ``cpu`` reads."""
    busy, clock = cpu(), time.perf_counter()
    answer = call()
    return answer, time.perf_counter() - clock, cpu() - busy


def summary(seconds: list[tuple[float, float]]) -> Timing:
    """Return the timing of calls that took these seconds of wall-clock and processor time."""
    clock, cpu = [each * 1e3 for each, _ in seconds], [each * 1e3 for _, each in seconds]
    return Timing(
        p50_ms=round(statistics.median(clock), 4),
        cpu_ms=round(statistics.median(cpu), 4),
        min_ms=round(min(clock), 4),
        max_ms=round(max(clock), 4),
        repeats=len(seconds),
    )


def median(
    call: Callable[[int], object],
    *,
    budget_s: float,
    max_calls: int = 200,
    min_calls: int = 3,
    cpu: Callable[[], float] = time.process_time,
) -> Timing:
    """Return the timing of ``call(1)``, ``call(2)``, ...: ``max_calls`` calls, or as many as fit into ``budget_s``."""
    taken: list[tuple[float, float]] = []
    until = time.perf_counter() + budget_s
    for number in range(1, max_calls + 1):
        answer, clock, busy = timed(partial(call, number), cpu)
        del answer  # freed outside of the next call's time
        taken.append((clock, busy))
        if len(taken) >= min_calls and time.perf_counter() > until:
            break
    return summary(taken)


def rss_mb(pid: int | str = "self") -> float:
    """Return the resident memory of a process, in MiB (Linux)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def peak_mb() -> float:
    """Return the peak memory of this process, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def cpu_s(pid: int) -> float:
    """Processor time of another process and of its children that have ended, in seconds (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def with_helpers(pids: Sequence[int]) -> Callable[[], float]:
    """Return a reader of the processor time of this process and of others that work for it, in seconds.

    That of the others has the system's steps, of 10 ms.
    """
    return lambda: time.process_time() + sum(map(cpu_s, pids))


def process_cpu_s() -> float:
    """Processor time of this process and of its children that have ended, in seconds."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def family_cpu_s() -> dict[int, float]:
    """Return the processor time of this process and of all below it, by process id, in seconds (Linux)."""
    parents: dict[int, int] = {}
    taken: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                parents[int(folder.name)] = int(fields[1])
                taken[int(folder.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return {pid: taken.get(pid, 0.0) for pid in family}


def taken_since(before: dict[int, float]) -> float:
    """Return the processor time that :func:`family_cpu_s` has grown by; that of processes which ended is lost."""
    return sum(max(0.0, seconds - before.get(pid, 0.0)) for pid, seconds in family_cpu_s().items())


def forget(folder: Path) -> None:
    """Drop the files below a folder from the page cache, as far as the system allows without root."""
    os.sync()
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)

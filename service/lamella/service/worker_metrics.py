"""The folder in which the worker processes of a service keep their numbers, so that any of them can add them up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, multiprocess, values

MULTIPROCESS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"


def share_numbers(folder: str) -> None:
    """Have this process, and those that it starts, keep their numbers in a folder, unless the environment names one."""
    os.environ.setdefault(MULTIPROCESS_VARIABLE, folder)
    # The package looks at the environment when it is loaded, which it was before we got here.
    values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]


def are_shared() -> bool:
    """True when there are several workers, or may be."""
    return MULTIPROCESS_VARIABLE in os.environ


def all_workers() -> CollectorRegistry:
    """The numbers of all workers together."""
    _forget_dead_workers(Path(os.environ[MULTIPROCESS_VARIABLE]))
    together = CollectorRegistry()
    multiprocess.MultiProcessCollector(together)  # type: ignore[no-untyped-call]  # the package leaves it untyped
    return together


def worker_pids() -> tuple[int, ...]:
    """The processes that serve requests, ascending: those that are alive and counted something, and this one."""
    folder = os.environ.get(MULTIPROCESS_VARIABLE)
    found = {os.getpid()}
    for path in Path(folder).glob("*_*.db") if folder is not None else ():
        pid = path.stem.rpartition("_")[2]
        if pid.isdigit() and _is_alive(int(pid)):
            found.add(int(pid))
    return tuple(sorted(found))


def _forget_dead_workers(folder: Path) -> None:
    """A worker that was killed cannot take back what it counted as in progress."""
    for path in folder.glob("gauge_live*_*.db"):
        pid = int(path.stem.rpartition("_")[2])
        if not _is_alive(pid):
            multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]  # the package leaves it untyped


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's: the number was given away again, and is left alone
    return True

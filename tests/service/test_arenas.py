"""Threads of the service share the memory that the C library has freed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: Eight threads hold memory at the same time; then the process writes what glibc says of its arenas.
PROGRAM = """
import ctypes, sys, threading
from lamella.service.process.threads import limit_arenas

limit_arenas()
barrier = threading.Barrier(8)

def hold():
    found = [bytes(5_000 + size) for size in range(50)]
    barrier.wait()
    return found

threads = [threading.Thread(target=hold) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
library = ctypes.CDLL(None)
library.fopen.restype = ctypes.c_void_p
file = library.fopen(sys.argv[1].encode(), b"w")
library.malloc_info(0, ctypes.c_void_p(file))
library.fclose(ctypes.c_void_p(file))
"""


def arenas(tmp_path: Path, **variables: str) -> int:
    """The number of arenas of a process with these variables."""
    found = tmp_path / "malloc.xml"
    others = {name: text for name, text in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    subprocess.run([sys.executable, "-c", PROGRAM, str(found)], check=True, env={**others, **variables})
    return found.read_text().count("<heap nr=")


def test_threads_share_two_arenas(tmp_path: Path) -> None:
    """However many threads hold memory, there are two arenas; the variable of the C library wins."""
    assert arenas(tmp_path) <= 2
    assert arenas(tmp_path, MALLOC_ARENA_MAX="4") > 2

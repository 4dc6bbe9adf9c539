"""Room for files in a folder that several processes write to: together they never take more than was agreed."""

from __future__ import annotations

import fcntl
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

_PAGE_BYTES: Final = 4096
#: What is left of the bound after a sweep, so that not each file is followed by one.
_LEFT: Final = 0.9
_LOCK_STEP_S: Final = 0.005


class Sweep(msgspec.Struct, frozen=True):
    """What was deleted to make room."""

    files: int = 0
    size_bytes: int = 0


class Room:
    """The files in the folders ``<folder>/<two letters>``; at most ``limit_bytes``, whole pages counted.

    Whoever writes holds a lock on ``<folder>/room``, where the sum of all sizes stands. It is counted up before a file
    is written, so that a process that dies leaves it too high, never too low; each sweep counts anew, and so does the
    first write of a process. Readers take no lock. ``before_sweep`` is called ahead of one.
    """

    def __init__(self, folder: str, limit_bytes: int, before_sweep: Callable[[], None], lock_wait_s: float) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._before_sweep = before_sweep
        self._lock_wait_s = lock_wait_s
        self._counted = False
        self._threads = threading.Lock()
        self.size_bytes = 0

    def put(self, path: str, parts: Sequence[memoryview]) -> Sweep | None:
        """Write a file, under its name only when it is whole, and delete those that were not used for longest.

        Nothing is synced: after a power failure a file may be damaged, which is found when it is opened.

        Returns:
            What was deleted; None when the file was not written, since it is too large or another writer holds the
            lock for too long.

        Raises:
            OSError: the file could not be written.
        """
        size_bytes = _occupied(sum(part.nbytes for part in parts))
        if size_bytes > self._limit_bytes:
            return None
        with self._locked() as lock:
            if lock is None:
                return None
            total_bytes, swept = self._made_room(lock, size_bytes)
            _record(lock, total_bytes + size_bytes)
            self.size_bytes = total_bytes + size_bytes
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            temporary = os.path.join(self._folder, "tmp", uuid.uuid4().hex)
            try:
                with open(temporary, "xb") as file:
                    for part in parts:
                        file.write(part)
                os.replace(temporary, path)
            except OSError:
                _unlink(temporary)
                raise
            return swept

    def recorded_bytes(self) -> int:
        """What all files take, as the last writer left it, whichever process that was; 0 before the first."""
        try:
            with open(os.path.join(self._folder, "room"), "rb") as file:
                return int.from_bytes(file.read(8), "little")
        except OSError:
            return 0

    def _made_room(self, lock: int, size_bytes: int) -> tuple[int, Sweep]:
        """The bytes that are taken, with room for so many more."""
        recorded = os.pread(lock, 8, 0)
        total_bytes = int.from_bytes(recorded, "little")
        if self._counted and len(recorded) == 8 and total_bytes + size_bytes <= self._limit_bytes:
            return total_bytes, Sweep()
        self._before_sweep()
        files = sorted(self._files())
        self._counted = True
        total_bytes = sum(size for _, size, _ in files)
        if total_bytes + size_bytes <= self._limit_bytes:
            return total_bytes, Sweep()
        wanted_bytes = min(int(self._limit_bytes * _LEFT), self._limit_bytes - size_bytes)
        count = freed_bytes = 0
        for _, size, path in files:
            if total_bytes <= wanted_bytes:
                break
            _unlink(path)
            total_bytes -= size
            freed_bytes += size
            count += 1
        return total_bytes, Sweep(count, freed_bytes)

    def _files(self) -> Iterator[tuple[int, int, str]]:
        """Last use (Unix ns), bytes and path of every file; what writers that died left unfinished is deleted."""
        for folder in _entries(self._folder):
            if not folder.is_dir(follow_symlinks=False):
                continue
            for entry in _entries(folder.path):
                if folder.name == "tmp":
                    _unlink(entry.path)
                    continue
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # a reader found it damaged
                yield found.st_mtime_ns, _occupied(found.st_size), entry.path

    @contextmanager
    def _locked(self) -> Iterator[int | None]:
        """A descriptor of the locked file; None when others kept it."""
        until = time.monotonic() + self._lock_wait_s
        if not self._threads.acquire(timeout=self._lock_wait_s):
            yield None
            return
        try:
            os.makedirs(os.path.join(self._folder, "tmp"), mode=0o700, exist_ok=True)
            # Opened each time: processes that were forked would share the lock of an open file.
            lock = os.open(os.path.join(self._folder, "room"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                yield lock if _take(lock, until) else None
            finally:
                os.close(lock)
        finally:
            self._threads.release()


def _take(lock: int, until: float) -> bool:
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_LOCK_STEP_S)
        else:
            return True


def _record(lock: int, total_bytes: int) -> None:
    os.pwrite(lock, total_bytes.to_bytes(8, "little"), 0)


def _occupied(size_bytes: int) -> int:
    return -(-size_bytes // _PAGE_BYTES) * _PAGE_BYTES


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as scan:
            return list(scan)
    except FileNotFoundError:
        return []


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return

"""A disk cache shared by the processes of a host: files mapped into memory, within a quota.

Files are written under a temporary name and renamed. A process checks each file against its checksum when it first
opens it; a torn, truncated or damaged one is deleted and rebuilt. So nothing is synced, the content survives a restart,
and the folder may be deleted at any time. If the disk fails, callers still get their data.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec
import pyarrow as pa

from lamella.snapshot.cache import memory
from lamella.snapshot.cache.memory import Buffer, CacheListener, Event, Views
from lamella.snapshot.concurrency import SingleFlight
from lamella.snapshot.errors import InvalidRequest

#: Linux allows a process 65,530 maps by default, and programs have others. A table of a hundred million blocks has
#: about 1,600 files for each column.
_MAPS: Final = 32_768


class FileMaps:
    """Opens files for reading. Thread-safe.

    A map holds no file descriptor, and stays valid when the file is deleted or replaced. Changing a mapped file in
    place would change the data, and truncating it would crash the process.
    """

    def __init__(self, max_maps: int = _MAPS) -> None:
        self._max_maps = max_maps
        self._lock = threading.Lock()
        self._buffers: WeakValueDictionary[str, Any] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._buffers)

    def get(self, name: str) -> memoryview | None:
        """Returns the view that was stored under a name, if it is still in use."""
        with self._lock:
            buffer = self._buffers.get(name)
        return None if buffer is None else memoryview(buffer).cast("B")

    def names(self) -> list[str]:
        """Returns the names that :meth:`get` knows."""
        with self._lock:
            return list(self._buffers)

    def open(self, path: str) -> memoryview | None:
        """Map a file; None if the limit of maps is reached; raises OSError."""
        if len(self._buffers) >= self._max_maps:
            return None
        with pa.memory_map(path) as file:
            return memoryview(file.read_buffer()).cast("B")

    def keep(self, name: str, mapped: memoryview) -> None:
        """Store a view of :meth:`open` for :meth:`get`, after its content was verified."""
        with self._lock:
            self._buffers[name] = mapped.obj


_PAGE_BYTES: Final = 4096
#: Fraction of the limit that remains after a sweep, so that not every write starts another one.
_SWEEP_TO: Final = 0.9
_LOCK_STEP_S: Final = 0.005


class Sweep(msgspec.Struct, frozen=True):
    """What was deleted to free space."""

    files: int = 0
    size_bytes: int = 0


class DiskQuota:
    """The files in the folders ``<folder>/<two letters>``; at most ``limit_bytes``, counted in whole pages.

    Writers lock ``<folder>/room``, which stores the sum of all sizes. The sum is increased before a file is written, so
    a process that dies leaves it too high, never too low. Each sweep recounts, and so does the first write of a
    process. Readers take no lock. ``before_sweep`` is called before a sweep.
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
        """Write a file, under its name only when complete, and delete the least recently used ones.

        Nothing is synced: after a power failure a file may be damaged, which is detected when it is opened.

        Returns:
            What was deleted; None if the file was not written, because it is too large or another writer held the lock
            for too long.
        """
        size_bytes = _occupied(sum(part.nbytes for part in parts))
        if size_bytes > self._limit_bytes:
            return None
        with self._locked() as lock:
            if lock is None:
                return None
            total_bytes, swept = self._with_space(lock, size_bytes)
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
        """Returns the bytes of all files, as recorded by the last writer of any process; 0 before the first write."""
        try:
            with open(os.path.join(self._folder, "room"), "rb") as file:
                return int.from_bytes(file.read(8), "little")
        except OSError:
            return 0

    def _with_space(self, lock: int, size_bytes: int) -> tuple[int, Sweep]:
        """Frees space for so many more bytes; returns the bytes in use and what was deleted."""
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
        wanted_bytes = min(int(self._limit_bytes * _SWEEP_TO), self._limit_bytes - size_bytes)
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
        """Yields last use (Unix ns), bytes and path of every file; deletes unfinished files of writers that died."""
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
        """Yields a descriptor of the locked file; None if the lock was not available in time."""
        until = time.monotonic() + self._lock_wait_s
        if not self._threads.acquire(timeout=self._lock_wait_s):
            yield None
            return
        try:
            os.makedirs(os.path.join(self._folder, "tmp"), mode=0o700, exist_ok=True)
            # Opened each time: forked processes would share the lock of an open file.
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


#: Part of every path, so that releases with different file formats do not share files.
_VERSION: Final = "v1"


class DiskCache:
    """Immutable buffers below ``folder``, at most ``limit_bytes`` of files over all processes that share it.

    It implements :class:`~lamella.snapshot.cache.memory.DerivedCache` and may be used from several threads and
    processes at once. The least recently opened files are deleted first; a file that is mapped somewhere stays readable
    there.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        limit_bytes: int,
        listener: CacheListener | None = None,
        *,
        maps: FileMaps | None = None,
        lock_wait_s: float = 2.0,
    ) -> None:
        """Open the cache, or create it.

        ``maps`` limits the number of files mapped at a time. If another process holds the lock for longer than
        ``lock_wait_s``, nothing is written.

        Raises:
            InvalidRequest: the folder cannot be created, belongs to another user, or others may write to it: derived
                columns are trusted, so nobody else may write them.
        """
        self._folder = os.path.join(os.path.abspath(folder), _VERSION)
        _prepare_folder(self._folder)
        self._listener = listener
        self._maps = maps if maps is not None else FileMaps()
        self.max_bytes = limit_bytes
        self._locked_sum = DiskQuota(self._folder, limit_bytes, self._touch_mapped, lock_wait_s)
        self._single_flight = SingleFlight()

    @property
    def size_bytes(self) -> int:
        """Returns the bytes of the files of all processes at the last write."""
        return self._locked_sum.recorded_bytes()

    @property
    def is_half_full(self) -> bool:
        """Returns whether the files of all processes took half of the limit at the last write."""
        return 2 * self.size_bytes >= self.max_bytes

    def derived(self, key: str, make: Callable[[], Sequence[Buffer]]) -> Views:
        """Returns the buffers of a key, mapped; on the heap if the disk fails or other files leave no space."""
        return self._load(f"derived {key}", make)[0]

    def derived_with_heap(self, key: str, make: Callable[[], Sequence[Buffer]]) -> tuple[Views, int]:
        """Returns the buffers as :meth:`derived`, and their bytes on the heap: none if they are mapped."""
        views, mapped = self._load(f"derived {key}", make)
        return views, 0 if mapped else sum(view.nbytes for view in views)

    def has_derived(self, key: str) -> bool:
        """Returns whether :meth:`derived` would find a file, damaged or not."""
        return os.path.exists(self._path(f"derived {key}")[0])

    def content(self, sha256: str, read: Callable[[], bytes]) -> tuple[memoryview, bool]:
        """Returns the bytes with that SHA-256, and whether they are mapped and take no heap.

        ``read`` is called on a miss; it has verified the hash of the bytes it returns.
        """
        views, mapped = self._load(f"content {sha256}", lambda: [read()])
        return views[0], mapped

    def has_content(self, sha256: str) -> bool:
        """Returns whether :meth:`content` would find a file, damaged or not."""
        return os.path.exists(self._path(f"content {sha256}")[0])

    def _path(self, key: str) -> tuple[str, bytes]:
        """Returns the path of a file, and the hash stored in it."""
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
        name = digest.hex()
        return f"{self._folder}/{name[:2]}/{name[2:]}", digest

    def _load(self, key: str, make: Callable[[], Sequence[Buffer]]) -> tuple[Views, bool]:
        path, digest = self._path(key)
        found = self._found(path, digest)
        return found if found is not None else self._single_flight.run(path, lambda: self._made(path, digest, make))

    def _made(self, path: str, digest: bytes, make: Callable[[], Sequence[Buffer]]) -> tuple[Views, bool]:
        found = self._found(path, digest)  # another thread or process may have written it in the meantime
        if found is not None:
            return found
        views = tuple(memory.read_only(buffer) for buffer in make())
        self._report("miss", size_bytes=sum(view.nbytes for view in views))
        try:
            swept = self._locked_sum.put(path, memory.pack(digest, views))
            if swept is not None:
                if swept.files:
                    self._report("evicted", swept.files, swept.size_bytes)
                if self._listener is not None:
                    self._listener.cache_size(self._locked_sum.size_bytes)
                mapped = self._maps.open(path)
                if mapped is not None:
                    # Another process may have replaced it, and this check detects a disk that returns wrong data.
                    memory.check(mapped, digest)
                    self._maps.keep(path, mapped)
                    return memory.buffer_views(mapped), True
        except (OSError, memory.Damaged):
            self._report("failed")
        return views, False

    def _found(self, path: str, digest: bytes) -> tuple[Views, bool] | None:
        """Returns the file's buffers and whether they are mapped; None if there is no such file, or no longer."""
        view = self._maps.get(path)
        if view is not None:
            return memory.buffer_views(view), True
        try:
            mapped = self._maps.open(path)
            file = mapped if mapped is not None else _read(path)
            memory.check(file, digest)
        except FileNotFoundError:
            return None
        except memory.Damaged:
            self._discard(path)
            return None
        except OSError:
            self._report("failed")
            return None
        if mapped is not None:
            self._maps.keep(path, mapped)
        self._touch(path)
        self._report("hit", size_bytes=file.nbytes)
        return memory.buffer_views(file), mapped is not None

    def _discard(self, path: str) -> None:
        self._report("damaged")
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError:
            self._report("failed")

    def _touch_mapped(self) -> None:
        """Mark the files that this process has mapped as in use, however long ago they were opened."""
        for path in self._maps.names():
            self._touch(path)

    def _touch(self, path: str) -> None:
        """Set a file's time to its last use."""
        try:
            os.utime(path)
        except FileNotFoundError:
            return  # it was deleted to free space for another
        except OSError:
            self._report("failed")

    def _report(self, event: Event, files: int = 1, size_bytes: int = 0) -> None:
        if self._listener is not None:
            self._listener.cache_event(event, files, size_bytes)


def _read(path: str) -> memoryview:
    with open(path, "rb") as file:
        return memoryview(file.read())


def _prepare_folder(folder: str) -> None:
    try:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        found = os.stat(folder, follow_symlinks=False)
        usable = os.access(folder, os.R_OK | os.W_OK | os.X_OK)
    except OSError as error:
        raise InvalidRequest(
            f"a cache cannot be created at {folder}: {error.strerror or error}", path=folder
        ) from error
    if found.st_uid != os.geteuid() or found.st_mode & 0o022 or not usable:
        raise InvalidRequest(
            f"{folder} must be owned by the user of this process, and must not be writable by others", path=folder
        )

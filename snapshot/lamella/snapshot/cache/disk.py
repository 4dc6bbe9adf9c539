"""A cache on a local disk, shared by the processes of a host through the page cache.

Files are written under a temporary name and renamed, and each is checked against its own checksum when a process first
opens it: a torn, cut or damaged one is thrown away and made anew. So nothing is ever synced, a restart finds all that
was there, and the folder may be deleted at any time. If the disk fails, callers get what they asked for all the same.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Final

from lamella.snapshot.cache import frame
from lamella.snapshot.cache.flights import Flights
from lamella.snapshot.cache.maps import FileMaps
from lamella.snapshot.cache.port import Buffer, CacheListener, Event, Views
from lamella.snapshot.cache.room import Room
from lamella.snapshot.errors import InvalidRequest

#: Part of every path, so that releases that write files of another form leave each other alone.
_VERSION: Final = "v1"


class DiskCache:
    """Immutable buffers below ``folder``, at most ``limit_bytes`` of files over all processes that share it.

    It implements :class:`~lamella.snapshot.cache.port.DerivedCache` and may be used from several threads, and by
    several processes at once. The files that were not opened for longest go first; one that is mapped somewhere stays
    readable there.
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
        """Open the cache, or begin it.

        ``maps`` bounds the files that are mapped at a time. What another process does not let be written for
        ``lock_wait_s`` is not written.

        Raises:
            InvalidRequest: the folder cannot be made, is another user's, or others may write to it: derived columns
                are believed, so nobody else may put any there.
        """
        self._folder = os.path.join(os.path.abspath(folder), _VERSION)
        _claim(self._folder)
        self._listener = listener
        self._maps = maps if maps is not None else FileMaps()
        self._room = Room(self._folder, limit_bytes, self._touch_mapped, lock_wait_s)
        self._flights = Flights()

    @property
    def size_bytes(self) -> int:
        """What the files of all processes took when one was last added."""
        return self._room.recorded_bytes()

    def derived(self, key: str, make: Callable[[], Sequence[Buffer]]) -> Views:
        """The buffers of that key, mapped; on the heap where the disk fails or is full of larger ones."""
        return self._load(f"derived {key}", make)[0]

    def has_derived(self, key: str) -> bool:
        """True when :meth:`derived` would find a file, damaged or not."""
        return os.path.exists(self._place(f"derived {key}")[0])

    def content(self, sha256: str, read: Callable[[], bytes]) -> tuple[memoryview, bool]:
        """The bytes with that SHA-256, and whether they are mapped, and take no heap.

        ``read`` gives them when the cache does not have them; it has held them against the hash already.
        """
        views, mapped = self._load(f"content {sha256}", lambda: [read()])
        return views[0], mapped

    def has_content(self, sha256: str) -> bool:
        """True when :meth:`content` would find a file, damaged or not."""
        return os.path.exists(self._place(f"content {sha256}")[0])

    def _place(self, key: str) -> tuple[str, bytes]:
        """The path of a file, and the hash in it."""
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
        name = digest.hex()
        return f"{self._folder}/{name[:2]}/{name[2:]}", digest

    def _load(self, key: str, make: Callable[[], Sequence[Buffer]]) -> tuple[Views, bool]:
        path, digest = self._place(key)
        found = self._found(path, digest)
        return found if found is not None else self._flights.run(path, lambda: self._made(path, digest, make))

    def _made(self, path: str, digest: bytes, make: Callable[[], Sequence[Buffer]]) -> tuple[Views, bool]:
        found = self._found(path, digest)  # another thread or process may have been done just before
        if found is not None:
            return found
        views = tuple(frame.read_only(buffer) for buffer in make())
        self._tell("miss", size_bytes=sum(view.nbytes for view in views))
        try:
            swept = self._room.put(path, frame.pack(digest, views))
            if swept is not None:
                if swept.files:
                    self._tell("evicted", swept.files, swept.size_bytes)
                if self._listener is not None:
                    self._listener.cache_size(self._room.size_bytes)
                mapped = self._maps.open(path)
                if mapped is not None:
                    # Another process may have replaced it meanwhile, and this is the moment to see a disk that lies.
                    frame.check(mapped, digest)
                    self._maps.keep(path, mapped)
                    return frame.views(mapped), True
        except (OSError, frame.Damaged):
            self._tell("failed")
        return views, False

    def _found(self, path: str, digest: bytes) -> tuple[Views, bool] | None:
        """The file's buffers and whether they are mapped; None when there is no such file, or no longer."""
        held = self._maps.held(path)
        if held is not None:
            return frame.views(held), True
        try:
            mapped = self._maps.open(path)
            file = mapped if mapped is not None else _read(path)
            frame.check(file, digest)
        except FileNotFoundError:
            return None
        except frame.Damaged:
            self._discard(path)
            return None
        except OSError:
            self._tell("failed")
            return None
        if mapped is not None:
            self._maps.keep(path, mapped)
        self._touch(path)
        self._tell("hit", size_bytes=file.nbytes)
        return frame.views(file), mapped is not None

    def _discard(self, path: str) -> None:
        self._tell("damaged")
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError:
            self._tell("failed")

    def _touch_mapped(self) -> None:
        """What this process has mapped is in use, however long ago it was opened."""
        for path in self._maps.names():
            self._touch(path)

    def _touch(self, path: str) -> None:
        """A file's time is that of its last use."""
        try:
            os.utime(path)
        except FileNotFoundError:
            return  # it made room for another
        except OSError:
            self._tell("failed")

    def _tell(self, event: Event, files: int = 1, size_bytes: int = 0) -> None:
        if self._listener is not None:
            self._listener.cache_event(event, files, size_bytes)


def _read(path: str) -> memoryview:
    with open(path, "rb") as file:
        return memoryview(file.read())


def _claim(folder: str) -> None:
    try:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        found = os.stat(folder, follow_symlinks=False)
        usable = os.access(folder, os.R_OK | os.W_OK | os.X_OK)
    except OSError as error:
        raise InvalidRequest(f"no cache can be kept at {folder}: {error.strerror or error}", path=folder) from error
    if found.st_uid != os.geteuid() or found.st_mode & 0o022 or not usable:
        raise InvalidRequest(
            f"{folder} must belong to the user of this process, and others may not write to it", path=folder
        )

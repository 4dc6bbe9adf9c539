"""Local files, and objects in memory for tests."""

from __future__ import annotations

import errno
import heapq
import os
import stat as modes
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from lamella.snapshot.errors import AlreadyExists, LamellaError, ObjectNotFound, StoreError
from lamella.snapshot.storage.location import is_hidden
from lamella.snapshot.storage.store import ListedObject, ObjectStat, is_mappable

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)


class LocalFiles:
    """The store of scheme ``file``; paths are absolute."""

    def read(self, path: str) -> bytes:
        """Returns all bytes of a file."""
        with _errors(path), open(path, "rb") as file:
            return file.read()

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Returns some bytes of a file."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return _pread(descriptor, start, length)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _as_ours(error, path) from error

    def stat(self, path: str) -> ObjectStat:
        """Returns the size, and ``size-mtime_ns`` as the content id."""
        try:
            found = os.stat(path)
        except OSError as error:
            raise _as_ours(error, path) from error
        if not modes.S_ISREG(found.st_mode):
            raise ObjectNotFound(f"not a file: file://{path}", location=f"file://{path}")
        return _stat(path, found.st_size, found.st_mtime_ns)

    def stat_many(self, paths: Sequence[str]) -> dict[str, ObjectStat]:
        """Returns the stats of those paths that are files; none of them if the system refuses one.

        One call asks for all of them outside of the interpreter. A thread that calls ``os.stat`` for each takes the
        interpreter back within microseconds of each call, sooner than a thread that waits for it can wake up. So other
        threads stood still for up to 140 ms while two thousand files were checked.
        """
        from pyarrow.fs import FileType, LocalFileSystem  # here: not every process that imports this needs Arrow

        try:
            found = LocalFileSystem().get_file_info(list(paths))
        except (OSError, ValueError):  # as UnicodeError and ArrowInvalid, which are ValueErrors
            return {}
        return {
            path: _stat(path, info.size, info.mtime_ns)
            for path, info in zip(paths, found, strict=True)
            if info.type is FileType.File
        }

    def read_cached_ends(self, paths: Sequence[str], length: int) -> Iterator[tuple[ObjectStat, bytes]]:
        """Yields the stats and the last bytes of files, up to the first one that the system does not have in memory, or
        that it refuses.

        A thread that reads a file gives the interpreter back several times, and waits each time until it gets it. That
        takes several times as long as reading from memory.
        """
        for path in paths:
            found = _cached_end(path, length)
            if found is None:
                return
            yield found

    def put(self, path: str, data: bytes) -> ObjectStat:
        """Write next to the final name, sync, then link: linking is atomic and never replaces."""
        written = _written(path, data, os.link)
        return _stat(path, written.st_size, written.st_mtime_ns)

    def replace(self, path: str, data: bytes) -> None:
        """Write next to the final name, sync, then rename, which is atomic too."""
        _written(path, data, os.replace)

    def local_path(self, path: str) -> str | None:
        """Returns the path itself, None if it must not be mapped."""
        return path if is_mappable(os.path.dirname(path)) else None

    def exists(self, path: str) -> bool:
        """Returns whether the file exists."""
        return os.path.isfile(path)

    def list(self, folder: str, start_after: str | None = None) -> Iterator[ListedObject]:
        """Yields every file below a folder; links to folders are followed, each folder once."""
        found = sorted(_listed_files(folder), key=lambda found: found.location)
        behind = None if start_after is None else f"file://{start_after}"
        return (each for each in found if behind is None or each.location > behind)

    def locations(self, folder: str) -> Sequence[str]:
        """Returns the locations that :meth:`list` yields, without asking for sizes and times."""
        return sorted([f"file://{entry.path}" for entry in _walk(folder)])

    def delete(self, path: str) -> None:
        """Remove a file."""
        try:
            with _errors(path):
                os.unlink(path)
        except ObjectNotFound:
            return

    def delete_many(self, paths: Iterable[str]) -> dict[str, str]:
        """Remove files, one after another."""
        failed = {}
        for path in paths:
            try:
                self.delete(path)
            except StoreError as error:
                failed[path] = error.message
        return failed


def _written(path: str, data: bytes, move: Callable[[str, str], None]) -> os.stat_result:
    """Write a file next to ``path``, and call ``move`` to move it there."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name[:100]}.{uuid.uuid4().hex}.tmp")
    with _errors(path, writing=True):
        _make_folders(folder)
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                written = os.fstat(file.fileno())
            move(temporary, path)
        finally:
            _unlink(temporary)
        _sync_folder(folder)
    return written


def _pread(descriptor: int, start: int, length: int) -> bytes:
    first = os.pread(descriptor, length, start)
    if len(first) == length or not first:
        return first
    parts = [first]  # one call returns at most 2 GiB
    got = len(first)
    while got < length:
        more = os.pread(descriptor, length - got, start + got)
        if not more:
            break
        parts.append(more)
        got += len(more)
    return b"".join(parts)


#: Reads only what is in memory; not every system has it, and not for every kind of file system.
_AT_ONCE: Final[int] = getattr(os, "RWF_NOWAIT", 0)


def _cached_end(path: str, length: int) -> tuple[ObjectStat, bytes] | None:
    """Returns the stat and the last bytes of a file; None: the system would wait for them, or refuses them."""
    if not _AT_ONCE:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(descriptor)
            wanted = min(length, found.st_size)
            data = bytearray(wanted)
            if not modes.S_ISREG(found.st_mode) or not wanted:
                return None
            if os.preadv(descriptor, [data], found.st_size - wanted, _AT_ONCE) != wanted:
                return None
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return _stat(path, found.st_size, found.st_mtime_ns), bytes(data)


def _stat(path: str, size_bytes: int, mtime_ns: int) -> ObjectStat:
    return ObjectStat(location=f"file://{path}", size_bytes=size_bytes, content_id=f"{size_bytes}-{mtime_ns}")


def _listed(path: str, found: os.stat_result) -> ListedObject:
    stat = _stat(path, found.st_size, found.st_mtime_ns)
    return ListedObject(
        location=stat.location,
        size_bytes=stat.size_bytes,
        content_id=stat.content_id,
        modified_ms=found.st_mtime_ns // 1_000_000,
    )


def _listed_files(root: str) -> Iterator[ListedObject]:
    for entry in _walk(root):
        try:
            with _errors(entry.path):
                found = entry.stat()
        except ObjectNotFound:
            continue  # removed since the folder was read
        yield _listed(entry.path, found)


def _walk(root: str) -> Iterator[os.DirEntry[str]]:
    """Yields every file below a folder, whatever the order in which the system names them.

    A folder that is listed is not listed again by way of a link. So real folders come before links, and links in the
    order of their names. But files with a hidden part in their names are not data files: names without one come first,
    and a folder that was listed only under a hidden name is listed again under another.
    """
    shown: set[tuple[int, int]] = set()
    hidden: set[tuple[int, int]] = set()
    folders = [(False, False, root)]  # a heap: is its name hidden, does it contain a link, the name
    while folders:
        below_hidden, below_link, folder = heapq.heappop(folders)
        try:
            with _errors(folder):
                here = os.stat(folder)
                identity = (here.st_dev, here.st_ino)
                listed = hidden if below_hidden else shown
                if identity in listed or (below_link and identity in shown):
                    continue
                with os.scandir(folder) as scan:
                    entries = list(scan)
        except ObjectNotFound:
            continue
        listed.add(identity)
        for entry in entries:
            try:
                entry.name.encode("utf-8")
            except UnicodeEncodeError as error:
                raise StoreError(f"a file name in {folder} is not UTF-8: {entry.name!r}", location=folder) from error
            try:
                is_folder, is_file = entry.is_dir(), entry.is_file()
            except OSError as error:
                found = _as_ours(error, entry.path)
                if isinstance(found, ObjectNotFound):
                    continue  # removed since the folder was read, or a link that leads nowhere
                raise found from error
            if is_folder:
                names = (below_hidden or is_hidden(entry.name), below_link or entry.is_symlink(), entry.path)
                heapq.heappush(folders, names)
            elif is_file:
                yield entry


def _make_folders(folder: str) -> None:
    """Create missing folders durably: the parent of each one is synced."""
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for made in reversed(missing):
        try:
            os.mkdir(made)
        except FileExistsError:
            if not os.path.isdir(made):
                raise NotADirectoryError(errno.ENOTDIR, "a file exists where a folder is required", made) from None
        _sync_folder(os.path.dirname(made))


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


@contextmanager
def _errors(path: str, *, writing: bool = False) -> Iterator[None]:
    """Converts system errors to the errors of :mod:`lamella.snapshot.storage.store`."""
    try:
        yield
    except OSError as error:
        raise _as_ours(error, path, writing=writing) from error


def _as_ours(error: OSError, path: str, *, writing: bool = False) -> LamellaError:
    location = f"file://{path}"
    if isinstance(error, FileExistsError):
        return AlreadyExists(f"already there: {location}", location=location)
    if error.errno in _ABSENT and not writing:
        return ObjectNotFound(f"no such file: {location}", location=location)
    return StoreError(f"{location}: {error.strerror or error}", location=location)


#: fsspec has one set of objects for the whole process, so one lock guards it.
_LOCK = threading.Lock()


class MemoryFiles:
    """The store of scheme ``memory``; paths start with a slash."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._files = MemoryFileSystem(**options)

    def read(self, path: str) -> bytes:
        """Returns all bytes of an object."""
        with _LOCK:
            data: bytes = self._file(path).getvalue()
            return data

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Returns some bytes of an object."""
        return self.read(path)[start : start + length]

    def stat(self, path: str) -> ObjectStat:
        """Returns the size, and ``size-modified`` as the content id."""
        with _LOCK:
            return self._stat(path)

    def put(self, path: str, data: bytes) -> ObjectStat:
        """Create an object."""
        with _LOCK:
            if path in self._files.store:
                raise AlreadyExists(f"already there: memory:/{path}", location=f"memory:/{path}")
            self._put(path, data)
            return self._stat(path)

    def replace(self, path: str, data: bytes) -> None:
        """Create or replace an object."""
        with _LOCK:
            self._put(path, data)

    def exists(self, path: str) -> bool:
        """Returns whether the object exists."""
        return path in self._files.store

    def list(self, folder: str, start_after: str | None = None) -> Iterator[ListedObject]:
        """Yields every object below a folder."""
        prefix = folder.rstrip("/") + "/"
        with _LOCK:
            paths = sorted(path for path in self._files.store if path.startswith(prefix))
            return iter([self._listed(path) for path in paths if start_after is None or path > start_after])

    def delete(self, path: str) -> None:
        """Remove an object."""
        with _LOCK:
            self._files.store.pop(path, None)

    def delete_many(self, paths: Iterable[str]) -> dict[str, str]:
        """Remove objects."""
        for path in paths:
            self.delete(path)
        return {}

    def _put(self, path: str, data: bytes) -> None:
        # fsspec's own methods look at every object for each one they write.
        MemoryFile(self._files, path, data).commit()

    def _file(self, path: str) -> Any:
        file = self._files.store.get(path)
        if file is None:
            raise ObjectNotFound(f"no such object: memory:/{path}", location=f"memory:/{path}")
        return file

    def _stat(self, path: str) -> ObjectStat:
        found = self._listed(path)
        return ObjectStat(location=found.location, size_bytes=found.size_bytes, content_id=found.content_id)

    def _listed(self, path: str) -> ListedObject:
        file = self._file(path)
        size_bytes = len(file.getbuffer())
        modified_us = int(file.modified.timestamp() * 1_000_000)
        return ListedObject(
            location=f"memory:/{path}",
            size_bytes=size_bytes,
            content_id=f"{size_bytes}-{modified_us * 1_000}",
            modified_ms=modified_us // 1_000,
        )

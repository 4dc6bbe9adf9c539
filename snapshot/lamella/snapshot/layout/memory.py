"""Objects in this process, through fsspec's memory file system: for tests and trials."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

from fsspec.implementations.memory import MemoryFileSystem

from lamella.snapshot.errors import AlreadyExists, ObjectNotFound
from lamella.snapshot.layout.store import ListedObject, ObjectStat

#: fsspec keeps one set of objects for the whole process, so one lock guards it.
_LOCK = threading.Lock()


class MemoryFiles:
    """The store of scheme ``memory``; paths start with a slash."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._files = MemoryFileSystem(**options)

    def read(self, path: str) -> bytes:
        """All bytes of an object."""
        with _LOCK:
            data: bytes = self._file(path).getvalue()
            return data

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Some bytes of an object."""
        return self.read(path)[start : start + length]

    def stat(self, path: str) -> ObjectStat:
        """Size, and ``size-modified`` as the content id."""
        with _LOCK:
            return self._stat(path)

    def put(self, path: str, data: bytes) -> ObjectStat:
        """Create an object."""
        with _LOCK:
            if self._files.exists(path):
                raise AlreadyExists(f"already there: memory:/{path}", location=f"memory:/{path}")
            self._files.pipe_file(path, data)
            return self._stat(path)

    def replace(self, path: str, data: bytes) -> None:
        """Create or replace an object."""
        with _LOCK:
            self._files.pipe_file(path, data)

    def exists(self, path: str) -> bool:
        """True for an object."""
        return path in self._files.store

    def list(self, folder: str, start_after: str | None = None) -> Iterator[ListedObject]:
        """Every object below a folder."""
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

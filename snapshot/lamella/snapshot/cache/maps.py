"""Files mapped into memory, a bounded number of them at a time."""

from __future__ import annotations

import threading
from typing import Any, Final
from weakref import WeakValueDictionary

import pyarrow as pa

#: Linux allows a process 65,530 maps by default, and programs have others.
_MAPS: Final = 8_192


class FileMaps:
    """Opens files to be read. Thread-safe.

    A map holds no file descriptor, and stays as it is when the file is deleted or another gets its name. Changing a
    mapped file in place would change what was read, and cutting it would end the process.
    """

    def __init__(self, most: int = _MAPS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._held: WeakValueDictionary[str, Any] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._held)

    def held(self, name: str) -> memoryview | None:
        """What was kept by that name, while somebody still uses it."""
        with self._lock:
            buffer = self._held.get(name)
        return None if buffer is None else memoryview(buffer).cast("B")

    def names(self) -> list[str]:
        """The names that :meth:`held` knows."""
        with self._lock:
            return list(self._held)

    def open(self, path: str) -> memoryview | None:
        """Map a file, None when as many are mapped as may be; raises OSError."""
        if len(self._held) >= self._most:
            return None
        with pa.memory_map(path) as file:
            return memoryview(file.read_buffer()).cast("B")

    def keep(self, name: str, mapped: memoryview) -> None:
        """Let :meth:`held` know a view that :meth:`open` gave, once its content was found right."""
        with self._lock:
            self._held[name] = mapped.obj

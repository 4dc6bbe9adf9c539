"""Which snapshot of a table the statement at hand reads, while it writes into that table."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec


class Pin(msgspec.Struct, eq=False):
    """``was_read``: the statement asked for the table, and got this snapshot."""

    snapshot_id: str
    was_read: bool = False


class Pins:
    """Spark loads a table again for each query that it runs, so one statement that runs several may see several
    snapshots. Held while a statement writes, a pin gives all its reads of the table one, the one that it began with.

    With pinned threads (``pins_threads`` of the gateway) this is about the thread at hand; without them callbacks do
    not tell whose they are, and every query of the session gets that snapshot meanwhile.
    """

    def __init__(self, *, by_thread: bool) -> None:
        self._by_thread = by_thread
        self._pins: dict[tuple[int, str], list[Pin]] = {}
        self._written: Counter[tuple[int, str]] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def held(self, table: str, snapshot_id: str) -> Iterator[Pin]:
        """Pin ``namespace.table`` while it is written to; the innermost pin counts."""
        key, pin = self._key(table), Pin(snapshot_id)
        with self._lock:
            self._pins.setdefault(key, []).append(pin)
        try:
            yield pin
            with self._lock:
                self._written[key] += 1
        finally:
            with self._lock:
                self._pins[key].remove(pin)
                if not self._pins[key]:
                    del self._pins[key]

    def read(self, table: str) -> str | None:
        """The snapshot to be read, if there is a pin; notes that it was read."""
        with self._lock:
            pins = self._pins.get(self._key(table))
            if not pins:
                return None
            pins[-1].was_read = True
            return pins[-1].snapshot_id

    def written(self, table: str) -> int:
        """How often the table has been written to."""
        with self._lock:
            return self._written[self._key(table)]

    def _key(self, table: str) -> tuple[int, str]:
        return (threading.get_ident() if self._by_thread else 0, table)

"""The door that mutations come in by: so many for one table, so many bytes for all, and no more for now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from lamella.service.metrics import Metrics
from lamella.snapshot.errors import Overloaded


class Door:
    """Counts what is inside. Belongs to one event loop, so it needs no lock.

    ``most_waiting``: mutations of one table at once; ``most_bytes``: their bodies, over all tables. A body that is
    larger than that is let in when it comes alone.
    """

    def __init__(self, *, most_waiting: int, most_bytes: int, metrics: Metrics) -> None:
        self._most_waiting = most_waiting
        self._most_bytes = most_bytes
        self._metrics = metrics
        self._inside: Counter[str] = Counter()
        self._bytes = 0

    @contextmanager
    def enter(self, table: str, size_bytes: int) -> Iterator[None]:
        """Be inside until the end; ``table`` is any text that tells tables apart.

        Raises:
            Overloaded: too much is inside already; nothing was done.
        """
        if self._inside[table] >= self._most_waiting:
            self._metrics.mutations_refused.labels("table").inc()
            raise Overloaded(
                f"{self._most_waiting} mutations of this table are waiting already", retry_after_s=1, limit="table"
            )
        if self._bytes and self._bytes + size_bytes > self._most_bytes:
            self._metrics.mutations_refused.labels("bytes").inc()
            raise Overloaded("the mutations that are waiting are too large together", retry_after_s=1, limit="bytes")
        self._inside[table] += 1
        self._bytes += size_bytes
        try:
            yield
        finally:
            self._bytes -= size_bytes
            self._inside[table] -= 1
            if not self._inside[table]:
                del self._inside[table]

"""Which blocks of a scan were read to their end without a matching row."""

from __future__ import annotations

import threading


class Emptiness:
    """Counts pieces of blocks as they are opened and read; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: dict[str, int] = {}
        self._rows: dict[str, int] = {}

    def opened(self, location: str, pieces: int) -> None:
        """A block consists of so many pieces; those that are ruled out by page statistics are not among them."""
        with self._lock:
            self._pieces[location] = self._pieces.get(location, 0) + pieces

    def read(self, location: str, rows: int) -> None:
        """One piece is done, and so many of its rows match."""
        with self._lock:
            self._pieces[location] -= 1
            self._rows[location] = self._rows.get(location, 0) + rows

    def empty(self) -> list[str]:
        """The blocks of which every piece was read, at least one, and no row matches."""
        with self._lock:
            return sorted(place for place, rows in self._rows.items() if not rows and not self._pieces[place])

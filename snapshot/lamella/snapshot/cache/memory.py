"""Derived columns in memory: what serves where there is no cache on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lamella.snapshot.cache.frame import ALIGNMENT_BYTES, read_only
from lamella.snapshot.cache.port import Buffer, Views
from lamella.snapshot.cache.resident import Resident, Shelf

#: About what a view takes beside its bytes.
_VIEW_BYTES = 4 * ALIGNMENT_BYTES


class MemoryCache:
    """A :class:`~lamella.snapshot.cache.port.DerivedCache` whose buffers count as values of ``resident``."""

    def __init__(self, resident: Resident) -> None:
        self._views: Shelf[Views] = Shelf(resident, "derived")

    def derived(self, key: str, make: Callable[[], Sequence[Buffer]]) -> Views:
        """The buffers of that key."""

        def made() -> tuple[Views, int]:
            views = tuple(read_only(buffer) for buffer in make())
            return views, len(key) + sum(view.nbytes + _VIEW_BYTES for view in views)

        return self._views.load(key, made)

    def has_derived(self, key: str) -> bool:
        """True when the buffers of that key are held."""
        return self._views.get(key) is not None

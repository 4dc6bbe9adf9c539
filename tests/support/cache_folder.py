"""What a cache on disk tells and gives, in a form that tests can compare."""

from __future__ import annotations

from collections import Counter

from lamella.snapshot.cache import Event, Views


class Heard:
    """Counts files by event; ``size_bytes`` is what the cache said last of its size."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.size_bytes = 0

    def cache_event(self, event: Event, files: int, size_bytes: int) -> None:
        """Count."""
        assert size_bytes >= 0
        self.files[event] += files

    def cache_size(self, size_bytes: int) -> None:
        """Note it."""
        self.size_bytes = size_bytes


def plain(views: Views) -> tuple[bytes, ...]:
    """The bytes of some buffers."""
    return tuple(bytes(view) for view in views)


def copied(content: tuple[memoryview, bool]) -> tuple[bytes, bool]:
    """The bytes of a content, and whether it is mapped."""
    return bytes(content[0]), content[1]

"""What is kept near, because it never changes: values in memory, and files on a local disk that all processes share."""

from lamella.snapshot.cache.disk import DiskCache
from lamella.snapshot.cache.maps import FileMaps
from lamella.snapshot.cache.memory import MemoryCache
from lamella.snapshot.cache.port import Buffer, CacheListener, DerivedCache, Event, Views
from lamella.snapshot.cache.resident import Counts, Resident, Shelf, held_bytes

__all__ = [
    "Buffer",
    "CacheListener",
    "Counts",
    "DerivedCache",
    "DiskCache",
    "Event",
    "FileMaps",
    "MemoryCache",
    "Resident",
    "Shelf",
    "Views",
    "held_bytes",
]

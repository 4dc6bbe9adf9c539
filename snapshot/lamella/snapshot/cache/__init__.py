"""Caches of immutable data: values in memory, and files on a local disk that all processes of a host share."""

from lamella.snapshot.cache.disk import DiskCache, FileMaps
from lamella.snapshot.cache.memory import (
    BoundedCache,
    Buffer,
    CacheListener,
    CacheNamespace,
    Counts,
    DerivedCache,
    Event,
    MemoryCache,
    Views,
    estimated_bytes,
)

__all__ = [
    "BoundedCache",
    "Buffer",
    "CacheListener",
    "CacheNamespace",
    "Counts",
    "DerivedCache",
    "DiskCache",
    "Event",
    "FileMaps",
    "MemoryCache",
    "Views",
    "estimated_bytes",
]

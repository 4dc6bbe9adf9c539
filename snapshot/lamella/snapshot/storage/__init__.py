"""Locations of objects, and the interface of the storage that holds them."""

from lamella.snapshot.storage.fsspec_store import FsspecStore
from lamella.snapshot.storage.location import normal
from lamella.snapshot.storage.paths import (
    AllLocations,
    AllowedLocations,
    TableLayout,
    TableLocations,
    check_prefix,
    is_below,
    table_root,
)
from lamella.snapshot.storage.store import (
    BatchStatStore,
    CachedEndStore,
    EndReadingStore,
    ListedObject,
    MappableStore,
    ObjectStat,
    ReplacingStore,
    SignedUrls,
    SigningStore,
    Store,
    check_create_only,
    check_write,
)

__all__ = [
    "AllLocations",
    "AllowedLocations",
    "BatchStatStore",
    "CachedEndStore",
    "EndReadingStore",
    "FsspecStore",
    "ListedObject",
    "MappableStore",
    "ObjectStat",
    "ReplacingStore",
    "SignedUrls",
    "SigningStore",
    "Store",
    "TableLayout",
    "TableLocations",
    "check_create_only",
    "check_prefix",
    "check_write",
    "is_below",
    "normal",
    "table_root",
]

"""Where objects are, and the port to the storage that holds them."""

from lamella.snapshot.layout.fsspec_store import FsspecStore
from lamella.snapshot.layout.location import normal
from lamella.snapshot.layout.paths import TableLayout, table_root
from lamella.snapshot.layout.places import AllowedPlaces, Anywhere, Places, check_prefix
from lamella.snapshot.layout.probe import check_create_only, check_write
from lamella.snapshot.layout.store import (
    ListedObject,
    MappableStore,
    ObjectStat,
    ReplacingStore,
    SignedUrls,
    SigningStore,
    Store,
)

__all__ = [
    "AllowedPlaces",
    "Anywhere",
    "FsspecStore",
    "ListedObject",
    "MappableStore",
    "ObjectStat",
    "Places",
    "ReplacingStore",
    "SignedUrls",
    "SigningStore",
    "Store",
    "TableLayout",
    "check_create_only",
    "check_prefix",
    "check_write",
    "normal",
    "table_root",
]

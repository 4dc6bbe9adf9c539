"""Where objects are, and the port to the storage that holds them."""

from lamella.snapshot.layout.fsspec_store import FsspecStore
from lamella.snapshot.layout.location import normal
from lamella.snapshot.layout.paths import TableLayout, table_root
from lamella.snapshot.layout.probe import check_create_only
from lamella.snapshot.layout.store import ListedObject, MappableStore, ObjectStat, Store

__all__ = [
    "FsspecStore",
    "ListedObject",
    "MappableStore",
    "ObjectStat",
    "Store",
    "TableLayout",
    "check_create_only",
    "normal",
    "table_root",
]
